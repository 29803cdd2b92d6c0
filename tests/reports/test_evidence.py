"""Certificates, signed receipts, and checks of a model's evidence by third parties."""

import json
import math
import os
from contextlib import suppress
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from scipy.special import ndtr

from command_line import invoked as run
from vicinal import Store
from vicinal.accounting.budget import zcdp_budget as budget
from vicinal.cli.audit import read_audit
from vicinal.errors import InvalidInput
from vicinal.reports.deployment_certificate import (
    compute_certified_success,
    create_certificate,
    render_certificate_page,
)
from vicinal.store.receipts import check_receipt

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X, Y, R = RNG.normal(size=(40, 4)), np.arange(40) % 2, RNG.normal(size=(30, 4))
IDS = [f"sanna-{i}" for i in range(40)]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "store"
    Store.init(
        path, X, Y, IDS, classes=range(2), public=R, n_queries=50, n_neighbors=5,
        n_records=40, noise_multiplier=3.0,
    ).close()  # fmt: skip
    return path


@pytest.fixture
def facts(folder):
    with Store.open(folder) as store:
        return store.facts()


FACTS = {
    "audiences": {}, "identity": "i", "classes": ["a"], "features": {}, "version": 1,
    "total": {"epsilon": 1, "delta": 1e-5, "capped": True, "text": "epsilon 1"},
}  # fmt: skip


# ---------------------------------------------------------------- certificate


def test_a_certificate_is_whole_and_names_nobody(folder, tmp_path):
    out = tmp_path / "file"
    run("certificate", folder, "-o", out, "--controller", "<b>Clinic</b>")
    found = json.loads((out / "certificate.json").read_text())
    page = (out / "certificate.html").read_text()
    (audience,) = found["audiences"]
    assert (audience["epsilon"], audience["delta"]) == (1.0, 1e-5)
    assert all(len(note["sha256"]) == 64 for note in found["mechanism"]["proofs"])
    assert "&lt;b&gt;Clinic&lt;/b&gt;" in page
    assert "<b>Clinic" not in page
    # What does not wrap is cut off on paper.
    digests = [note["sha256"] for note in found["mechanism"]["proofs"]]
    assert all(f'<span class="digest">{digest}</span>' in page for digest in digests)
    assert "http://" not in page
    assert "https://" not in page
    assert "sanna" not in page + json.dumps(found)
    assert all(held(found, path) for path in fields_named(found))


LISTS = ("nist_sp_800_226", "owasp_aisvs")


def fields_named(found):
    """Return every field that a list of somebody else is mapped to."""
    mapped = [path for name in LISTS for row in found[name] for path in row["fields"]]
    tiers = [value for tier in found["registry"].values() for value in tier.values()]
    return mapped + [path for value in tiers if isinstance(value, list) for path in value]


def held(found, path):
    """Tell whether a certificate has a field, in all of its audiences."""
    whole, _, inner = path.partition("[].")
    names = (inner or whole).split(".")
    return all(
        reduce(lambda part, name: part[name], names, part) is not None
        for part in (found[whole] if inner else [found])
    )


def test_a_list_says_of_every_item_whether_it_is_covered(facts):
    found = create_certificate(facts, "0", "now", accuracy="93 % on a test set")
    assert all(found["compared"][name] in render_certificate_page(found) for name in LISTS)
    assert set(found["compared"]) == {*LISTS, "registry"}
    for row in (row for name in LISTS for row in found[name]):
        assert row["status"] in ("covered", "partly", "not covered")
        assert bool(row["fields"]) == (row["status"] != "not covered")
    assert "93 % on a test set" in render_certificate_page(found)


def test_a_certificate_names_the_proof_of_everything_that_spends(facts):
    state = facts["audiences"]["default"]
    plan = {**state["plan"], "model_share": 0.3, "neighbor_count": "private"}
    further = {**facts, "audiences": {"default": {**state, "plan": plan, "evaluations": [{}]}}}
    further["total"] = {**facts["total"], "capped": True}
    plain, whole = (
        {note["note"] for note in create_certificate(each, "0", "now")["mechanism"]["proofs"]}
        for each in (facts, further)
    )
    names = ("linear_model", "count", "tally")
    assert whole - plain == {*(f"mechanisms/{name}.md" for name in names), "ledger/total.md"}


def test_a_certificate_says_what_audits_have_shown(facts):
    one_run = {name: value for name, value in CLAIM.items() if name != "would_have_seen"}
    report = {**REPORT, "identity": facts["identity"], "claims": [CLAIM, one_run]}
    found = create_certificate(facts, "0.1.0", "2026-01-02", audits=[report])
    assert found["audits"][0]["claims"][0]["controls_caught"] == 1
    assert "0.200 of 0.250" in render_certificate_page(found)
    assert "None of this store is on file" in render_certificate_page(
        create_certificate(facts, "0", "now")
    )


def test_a_certificate_names_what_was_not_audited_and_what_was_measured(facts):
    (plain,) = create_certificate(facts, "0", "now")["audiences"]
    assert plain["membership_guess"]["measured"] is None
    claims = [{**CLAIM, "lower": 0.26}, {**CLAIM, "attack": "total", "lower": 0.5}]
    report = {**REPORT, "identity": facts["identity"], "claims": claims}
    found = create_certificate(facts, "0", "now", audits=[report])
    guess = found["audiences"][0]["membership_guess"]
    assert guess["from"] <= guess["expected"] <= guess["to_at_most"]
    # A lower bound is rounded down: .55172 to .551.
    assert guess["measured"] == 0.551 < ndtr(0.13)
    page = " ".join(render_certificate_page(found).split())
    expected = f"it is at most about {guess['expected']:.1%}".replace("%", " %")
    assert f"{expected}. For a subject whose whole budget is used" in page
    assert "reached at least 55.1 %. These two figures are about different subjects" in page
    plain_page = " ".join(render_certificate_page(create_certificate(facts, "0", "now")).split())
    assert f"{expected}. No audit on file has measured it. </p>" in plain_page
    assert guess["measured"] <= guess["to_at_most"]
    assert "restart (default)" in found["not_audited"]
    assert "votes (default)" not in found["not_audited"]
    assert "restart (default)" in render_certificate_page(found)
    elsewhere = create_certificate(facts, "0", "now", audits=[{**report, "audience": "other"}])
    assert "votes (default)" in elsewhere["not_audited"]


@pytest.mark.parametrize("identity", [None, "another"])
def test_audits_of_other_targets_are_no_evidence_on_a_store(facts, identity):
    """Fails if headline, table and "Not audited" of a certificate contradict each other."""
    report = {**REPORT, "identity": identity}
    found = create_certificate(facts, "0", "now", audits=[report])
    assert found["audits"] == []
    assert len(found["other_audits"]) == 1
    assert "votes (default)" in found["not_audited"]
    page = " ".join(render_certificate_page(found).split())
    store_audits, _, other_audits = page.partition("Audits of the installed package")
    assert "No audit on file has measured it" in store_audits
    assert "None of this store is on file" in store_audits
    assert "0.200 of 0.250" not in store_audits
    assert "0.200 of 0.250" in other_audits


@pytest.mark.parametrize(
    ("capped", "names", "epsilon", "gaussian"),
    [(False, "a", 1.0, True), (True, "a", 2.0, True), (False, "ab", 2.0, False)],
)
def test_the_worst_guess_is_that_of_all_audiences_there_may_be(
    facts, capped, names, epsilon, gaussian
):
    states = dict.fromkeys(names, facts["audiences"]["default"])
    total = {"epsilon": 2.0, "delta": 1e-5, "capped": capped, "text": ""}
    found = create_certificate({**facts, "audiences": states, "total": total}, "0", "now")
    worst = compute_certified_success(epsilon, 1e-5, gaussian=gaussian)
    assert found["total"]["membership_guess_at_most"] == worst


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_attack_success_is_that_of_the_curve_rounded_up(epsilon):
    plain = compute_certified_success(epsilon, 1e-5, gaussian=False)
    exact = (math.exp(epsilon) + 1e-5) / (1 + math.exp(epsilon))
    assert exact <= plain <= exact + 1e-3
    shift = math.sqrt(2 * budget(epsilon, 0.99e-5))
    filtered = compute_certified_success(epsilon, 1e-5, gaussian=True)
    assert ndtr(shift / 2) <= filtered <= ndtr(shift / 2) + 1.01e-3
    assert filtered < plain


CLAIM = {
    "attack": "votes", "mechanism": "m", "world": "w", "lower": 0.2, "claim": 0.25, "ratio": 0.8,
    "confidence": 0.99,
    "would_have_seen": {"epsilon": 1.5}, "controls": [{"name": "noise halved", "caught": True}],
}  # fmt: skip
REPORT = {
    "at": "2026-01-01", "version": "0.1.0", "holds": True, "claims": [CLAIM], "audience": "default",
}  # fmt: skip


def with_one_changed(value, other):
    """Yield copies of plain values in which one place, at any depth, holds `other`."""
    yield other
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for place, part in inside:
        for changed in with_one_changed(part, other):
            copied = value.copy()
            copied[place] = changed
            yield copied


@pytest.mark.parametrize("other", [None, 7, "x", math.nan, []], ids=repr)
def test_a_file_that_is_no_audit_is_refused(tmp_path, other):
    """In one place of a report stands what does not belong there."""
    path, refused = tmp_path / "audit.json", 0
    for content in with_one_changed(REPORT, other):
        path.write_text(json.dumps(content))
        try:
            render_certificate_page(
                create_certificate(FACTS, "0", "now", audits=[read_audit(path)])
            )
        except InvalidInput:
            refused += 1
    assert refused > 3


def test_the_command_refuses_a_file_that_is_no_audit(folder, tmp_path):
    (tmp_path / "audit.json").write_text("{}")
    found = run("certificate", folder, "-o", tmp_path, "--audit", tmp_path / "audit.json", code=2)
    assert "was not written by" in found.stderr
    assert found.stderr.count("\n") == 1


# ---------------------------------------------------------------- receipts


def test_the_report_of_another_store_is_refused(folder, tmp_path):
    with Store.open(folder) as store:
        identity = store.facts()["identity"]
    for name, stated, target, code, message in (
        ("own", identity, "store", 0, ""),
        ("every", None, None, 0, ""),
        ("other", "ab", "store", 2, "another store"),
        ("plan", None, "p.json", 2, "reports on the plan p.json, and not on this store."),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(REPORT | {"identity": stated, "target": target}))
        found = run("certificate", folder, "-o", tmp_path / name, "--audit", path, code=code)
        assert message in " ".join(found.stderr.split())


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    return path, run("receipt", "key", path).stdout.strip()


@pytest.fixture
def receipt(folder, key, tmp_path):
    """A receipt of an erasure."""
    run("erase", folder, "--subject", "sanna-3", "--yes")
    path = tmp_path / "receipt.json"
    run("receipt", "erasure", folder, "--key", key[0], "--subject", "sanna-3", "-o", path)
    return path


def test_an_erasure_is_proved_and_seen_to_be_undone(folder, key, tmp_path):
    path, public = key
    receipt = tmp_path / "receipt.json"
    erasure = ("receipt", "erasure", folder, "--key", path, "--subject", "sanna-3", "-o", receipt)
    assert "Nothing is signed" in run(*erasure, code=3).stderr
    run("erase", folder, "--subject", "sanna-3", "--yes")
    run(*erasure)
    assert "sanna" not in receipt.read_text()
    check = ("receipt", "verify", receipt, "--public-key", public)
    assert "The signature is good." in run(*check).stdout
    here = (*check, "--store", folder, "--subject", "sanna-3")
    assert "in force" in run(*here).stdout
    assert "does not cover all" in run(*check, "--store", folder, "--subject", "x", code=2).stderr
    with Store.open(folder) as store:
        store.add(X[:1], Y[:1], ["sanna-3"])
    assert "in the store again" in run(*here, code=2).stderr


def test_a_receipt_is_of_one_store_and_of_its_history(folder, key, receipt, tmp_path):
    other = tmp_path / "other"
    Store.init(other, X, Y, classes=range(2), public=R, n_records=40).close()
    check = ("receipt", "verify", receipt, "--public-key", key[1], "--store")
    assert "another store" in run(*check, other, code=2).stderr
    run(*check, folder)


@pytest.mark.parametrize("field", ["clock", "digests", "store", "public_key", "signature"])
def test_a_changed_receipt_is_refused(key, receipt, field):
    content = json.loads(receipt.read_text())
    content[field] = 7 if field == "clock" else "00" * 32
    receipt.write_text(json.dumps(content))
    found = run("receipt", "verify", receipt, "--public-key", key[1], code=2)
    assert "was changed, or signed with another key" in found.stderr


def test_keys_are_private_and_never_written_over(key):
    path, _ = key
    assert path.stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in run("receipt", "key", path, code=2).stderr


@pytest.mark.parametrize("fault", ["missing", "readable", "short"])
def test_a_key_that_is_none_is_refused(folder, key, fault):
    path, _ = key
    if fault == "missing":
        path.unlink()
    elif fault == "readable":
        os.chmod(path, 0o644)  # noqa: PTH101 (the call that an operator's tool makes)
    else:
        path.write_bytes(b"short")
    words = {"missing": "There is no key", "readable": "read by others", "short": "32 bytes"}
    erasure = ("receipt", "erasure", folder, "--key", path, "--subject", "sanna-3")
    assert words[fault] in run(*erasure, code=2).stderr


def test_a_key_under_which_anybody_can_sign_is_refused():
    """Fails for any of the fourteen spellings of keys of small order: one signature fits."""
    key_type = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    modulus, eighth = 2**255 - 19, 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    places = [0, 1, eighth, modulus - eighth, modulus - 1]
    signatures = [place.to_bytes(32, "little") + bytes(32) for place in places]
    forged = {
        (place | sign << 255).to_bytes(32, "little").hex()
        for place in [*places, modulus, modulus + 1]
        for sign in (0, 1)
    }
    for public in forged:
        verifier = key_type.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        for number in range(40):
            receipt = {"format": 1, "kind": "erasure", "public_key": public, "number": number}
            message = json.dumps(receipt, sort_keys=True, separators=(",", ":")).encode()
            good = [one for one in signatures if passes(verifier, one, message)]
            if good:
                break
        assert good, "the attack has come to fail by itself"
        with pytest.raises(InvalidInput, match="Anybody can sign"):
            check_receipt({**receipt, "signature": good[0].hex()}, public)


def passes(verifier, signature, message):
    """Tell whether a library takes a signature, which nobody made."""
    with suppress(Exception):
        verifier.verify(signature, b"vicinal receipt\x01" + message)
        return True
    return False


@pytest.mark.parametrize("content", ["[]", "{", '{"kind": "erasure"}'])
def test_a_file_that_is_no_receipt_is_one_clear_line(tmp_path, content):
    (tmp_path / "r.json").write_text(content)
    found = run("receipt", "verify", tmp_path / "r.json", "--public-key", "00" * 32, code=2)
    assert found.stderr.count("\n") == 1


def test_certificates_follow_their_schema(folder, tmp_path):
    """The page for output checkers names the file; a field may not be added without it."""
    path = ROOT / "docs" / "reference" / "certificate.schema.json"
    validator = Draft202012Validator(json.loads(path.read_text()))
    out = tmp_path / "file"
    printed = run("certificate", folder, "-o", out, "--json").stdout
    report = {**REPORT, "claims": [CLAIM], "audience": "default"}
    with Store.open(folder) as store:
        store.predict(X[:20])
        ids = [f"v{i}" for i in range(20)]
        store.evaluate(X[:20], Y[:20], ids, share=1.0, accept_noise=True, coverage="per-class")
        store.predict(X[20:25])
        others = [f"w{i}" for i in range(20)]
        store.evaluate(X[:20], Y[:20], others, share=1.0, accept_noise=True, coverage="per-class")
        evaluated = create_certificate(store.facts(), "0", "now", audits=[report])
        page = render_certificate_page(evaluated)
        store.erase(IDS[:1])
        changed = create_certificate(store.facts(), "0", "now", audits=[report])
    (coverage,) = [audience["coverage"] for audience in evaluated["audiences"]]
    assert [item["name"] for item in coverage["of"]] == [0, 1]
    assert coverage["calibrated_at_answer"] == 25, "the newest calibration"
    for text in (coverage["statement"], "none certified"):
        assert text in page
    assert "Each subject counts once" in coverage["statement"]
    assert changed["audiences"][0]["coverage"] is None, "the promise no longer holds"
    assert "store/coverage.md" in str(evaluated["mechanism"])
    for found in (json.loads(printed), json.loads(json.dumps(evaluated)), changed):
        validator.validate(found)
    validator.validate(create_certificate(FACTS, "0", "now"))
    for broken in (
        {**evaluated, "format": 1},
        {**evaluated, "budgets": []},
        {name: value for name, value in evaluated.items() if name != "unit"},
        {**evaluated, "audiences": [{**evaluated["audiences"][0], "epsilon": "1"}]},
    ):
        assert not validator.is_valid(broken)
