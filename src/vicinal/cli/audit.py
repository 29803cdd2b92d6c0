"""`vicinal audit`, `certificate` and `receipt`: evidence on an installation and its stores.

An attack tests whether outputs on two neighbouring inputs differ more than a claimed guarantee
allows. A one-run audit inserts many canaries (random records) into one run of a plan, and guesses
which were inserted. The `target` of an audit is the folder of a store, the file of a plan, or None
for all mechanisms and the default plan; `facts` are the public facts of a store, None for another
target; `audience` has the audited plan.

Shared options: `store`, folder of the store; `subject`, subject ids; `subjects`, file of subject
ids; `json`, print one JSON object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer
from typer import Argument, Option

from vicinal import __version__
from vicinal.cli import output
from vicinal.cli.main import create_command_group
from vicinal.cli.options import Json, PanelCommand, StorePath, SubjectFile, SubjectIds
from vicinal.cli.output import echo
from vicinal.cli.records import collect_subject_ids, open_store
from vicinal.errors import InvalidInput, StorageFailed

if TYPE_CHECKING:
    from vicinal.audit.catalogue import AttackFactories
    from vicinal.audit.one_run_audit import OneRunResult
    from vicinal.audit.schedule import AuditFinding
    from vicinal.store.store import Store

CONTRADICTED = 1
"""Exit code of an audit that contradicts a claim."""

INCONCLUSIVE = 4
"""Exit code of an audit that agrees with all claims, but missed a copy broken on purpose."""

_N_INTERACTIONS = 8  # steps of the progress bar of a one-run audit
_MAX_MINUTES = 24 * 60


def audit(
    target: Annotated[
        Path | None,
        Argument(metavar="[STORE | PLAN.json]", help="What to audit. Default: every mechanism."),
    ] = None,
    minutes: Annotated[float, Option(help="Time for all attacks together.")] = 2.0,
    confidence: Annotated[float, Option(help="Confidence of each lower bound.")] = 1 - 1e-6,
    attack_names: Annotated[
        str | None, Option("--only", help="Attacks to run, separated by commas. See --list.")
    ] = None,
    audience: Annotated[str, Option(help="Audience of a store whose plan to audit.")] = "default",
    one_run: Annotated[bool, Option("--one-run", help="Attack one run of many canaries.")] = False,
    n_canaries: Annotated[
        int, Option("--canaries", help="Number of canaries.", min=8, max=1 << 20)
    ] = 400_000,
    list_only: Annotated[bool, Option("--list", help="List the attacks and stop.")] = False,
    out: Annotated[Path | None, Option(help="Also write the JSON object to this file.")] = None,
    json: Json = False,
) -> None:
    """Attack the installed code to test its claims.

    The attacks use synthetic data and read no private record. Mechanisms of the store that were not
    attacked are listed. The exit code is 1 if an attack contradicts a claim. It is 4 if none does,
    but an attack had too few runs to detect a copy of the code that was broken on purpose.
    """
    from vicinal.audit.catalogue import list_unaudited_attacks, list_unaudited_releases
    from vicinal.ledger.sealed_files import read_json

    if out is not None:
        output.check_outputs({"out": out}, {"TARGET": target})
    facts = _read_store_facts(target)
    findings: Mapping[str, AuditFinding]
    if one_run:
        with output.show_progress_bars(silent=json) as begin:
            step: Any = begin("interactions", _N_INTERACTIONS)
            findings = {
                "one-run": _run_one_run_audit(target, facts, audience, n_canaries, confidence, step)
            }
    else:
        attacks = _list_attacks(target, facts, audience, attack_names)
        if list_only:
            echo("\n".join(attacks))
            return
        findings = _run_attacks(attacks, minutes, confidence, silent=json)
    unaudited: list[str] = []
    if facts is not None:
        unaudited = list_unaudited_attacks(facts, {audience: set(findings)})
    elif target is not None and not one_run:
        unaudited = list_unaudited_releases(read_json(target, "plan"), findings)
    result = {
        "target": None if target is None else target.name,
        "identity": None if facts is None else facts.get("identity"),
        "version": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "audience": None if facts is None else audience,
        "claims": [{"attack": name, **finding.to_dict()} for name, finding in findings.items()],
        "not_audited": unaudited,
        "holds": all(finding.holds for finding in findings.values()),
    }
    report = output.as_json(result)
    if out is not None:
        output.write_file(out, report + "\n")
    echo(report if json else _format_findings(list(findings.values()), unaudited))
    if not all(finding.is_consistent for finding in findings.values()):
        raise typer.Exit(CONTRADICTED)
    if not all(finding.is_conclusive for finding in findings.values()):
        raise typer.Exit(INCONCLUSIVE)


def _read_store_facts(target: Path | None) -> dict[str, Any] | None:
    """Return the public facts of a store, which is closed again; None for any other target."""
    if target is None or not target.is_dir():
        return None
    try:
        with open_store(target, read_only=True) as opened:
            return opened.facts()
    except StorageFailed as error:
        raise StorageFailed(f"The store cannot be audited. {error}") from None


def _run_one_run_audit(
    target: Path | None,
    facts: dict[str, Any] | None,
    audience: str,
    n_canaries: int,
    confidence: float,
    step: Callable[[float], None],
) -> OneRunResult:
    """Return the finding of a one-run audit, of a store's plan or else of the default plan.

    `n_canaries`: number of inserted records. `confidence`: of the lower bound. `step`: called with
    the number of interactions made since its last call.
    """
    from vicinal.audit import one_run_audit
    from vicinal.audit.catalogue import read_audit_settings
    from vicinal.audit.ind_knn import IndKNNAudit

    plan_audit = IndKNNAudit()
    options: dict[str, Any] = {}
    if facts is not None:
        plan_audit, options["release"], options["target_spec"] = read_audit_settings(
            facts, audience
        )
    elif target is not None:
        raise InvalidInput("The 'one_run' option audits a store or the default plan, not a file.")
    return one_run_audit.audit_in_one_run(
        plan_audit, canaries=n_canaries, confidence=confidence, progress=step, **options
    )


def _run_attacks(
    attacks: AttackFactories, minutes: float, confidence: float, *, silent: bool
) -> dict[str, AuditFinding]:
    """Run attacks for at most `minutes` together; return their findings by name.

    `attacks`: functions that create them. `confidence`: of each lower bound.
    """
    from vicinal import checks
    from vicinal.audit.schedule import run_audits

    minutes = checks.check_real("minutes", minutes, above=0, maximum=_MAX_MINUTES)
    with output.show_progress_bars(silent=silent) as begin:
        step = begin("attacks", round(60 * minutes))
        new_attacks = (create_attack() for create_attack in attacks.values())
        results = run_audits(new_attacks, 60 * minutes, confidence, progress=step)  # type: ignore[arg-type]
        return dict(zip(attacks, results, strict=True))


def _list_attacks(
    target: Path | None, facts: dict[str, Any] | None, audience: str, names: str | None
) -> AttackFactories:
    """Return functions that create the attacks on the target, by name of the attack.

    `names`: names of the selected attacks, separated by commas; None for all.
    """
    from vicinal.audit.catalogue import list_all_attacks, list_plan_attacks, list_store_attacks
    from vicinal.audit.ind_knn import IndKNNAudit
    from vicinal.ledger.sealed_files import read_json

    if target is None:
        attacks = list_all_attacks(IndKNNAudit())
    elif facts is not None:
        attacks = list_store_attacks(facts, audience)
    else:
        plan = read_json(target, "plan")
        try:
            attacks = list_plan_attacks(plan)
        except InvalidInput as error:
            # The name is a field of the file, so it must not be replaced by a flag.
            message = str(error).replace("' parameter", "' field")
            raise InvalidInput(f"The plan {target.name}: {message}") from None
    if names is None:
        return attacks
    selected = [name.strip() for name in names.split(",")]
    if not set(selected) <= set(attacks):
        raise InvalidInput(
            f"The 'only' parameter must name attacks among: {', '.join(attacks)}. Got {names!r}."
        )
    return {name: attacks[name] for name in selected}


def _format_findings(findings: Sequence[AuditFinding], unaudited: Sequence[str]) -> str:
    """Return the text of an audit: findings, names of `unaudited` attacks, and a verdict."""
    lines = [_format_finding(finding) for finding in findings]
    if unaudited:
        lines.append(f"Not audited here: {', '.join(unaudited)}.")
    n_contradicted = sum(not finding.is_consistent for finding in findings)
    n_inconclusive = sum(not finding.is_conclusive for finding in findings)
    if n_contradicted:
        lines.append(
            f"CONTRADICTED: {n_contradicted} of {len(findings)} claims. Do not rely on this "
            "installation."
        )
    elif n_inconclusive:
        lines.append(
            f"No claim is contradicted, but {n_inconclusive} of {len(findings)} attacks had too "
            "few runs to find a fault. Give more --minutes, or choose fewer attacks with --only."
        )
    else:
        lines.append(
            "No claim is contradicted, and the attacks caught every copy broken on purpose."
        )
    return "\n".join(lines)


def _format_finding(finding: AuditFinding) -> str:
    """Return the lines on the `finding` of one attack: bounds, power, and detected faults."""
    verdict = "kept" if finding.is_consistent else "CONTRADICTED"
    lines = [
        f"{finding.mechanism}: {finding.scenario}",
        (
            f"  mu at least {finding.mu_lower_bound:.3f}, "
            f"claimed {finding.claimed_mu:.3f} ({verdict}), "
            f"ratio {finding.ratio:.2f}; epsilon at least {finding.epsilon_lower:.3f}, "
            f"claimed {finding.epsilon_claim:.3f} at delta {finding.delta:g}"
        ),
        (
            f"  {finding.power_statement}; {finding.seconds:.0f} s; wrong with probability at most "
            f"{1 - finding.confidence:.1g}"
        ),
    ]
    if finding.total_shift_mu is not None:
        lines.append(
            f"  moved by the subject, exactly: mu {finding.total_shift_mu:.6f} "
            f"of {finding.max_total_shift_mu:.6f}"
        )
    for control in finding.controls:
        result = "caught" if control.caught else "not caught"
        lines.append(f"  broken on purpose, {control.name}: {result} ({control.runs} runs)")
    return "\n".join(lines)


Statement = Annotated[str | None, Option(help="Your own statement, which the certificate repeats.")]


def certificate(
    store: StorePath,
    out: Annotated[Path, Option("--out", "-o", help="Folder for both files.")],
    audit: Annotated[
        list[Path] | None,
        Option(help="File of `vicinal audit --out` on this store or every mechanism. Repeatable."),
    ] = None,
    controller: Statement = None,
    purpose: Statement = None,
    retention: Statement = None,
    vouched_by: Statement = None,
    accuracy: Statement = None,
    json: Json = False,
) -> None:
    """Write the guarantees of a store, with the evidence."""
    from vicinal.reports.deployment_certificate import create_certificate, render_certificate_page

    output.refuse_overlap({"out": out}, {"STORE": store})
    reports = [read_audit(path) for path in audit or []]
    with open_store(store, read_only=True) as opened:
        facts = opened.facts()
    for path, report in zip(audit or [], reports, strict=True):
        if report.get("identity") not in (None, facts.get("identity")):
            raise InvalidInput(f"The file {path} reports on another store. Audit this one.")
        if report.get("identity") is None and report.get("target") is not None:
            raise InvalidInput(
                f"The file {path} reports on the plan {report['target']}, and not on this store. "
                f"Run: vicinal audit {store} --out {path}"
            )
    content = create_certificate(
        facts,
        __version__,
        datetime.now(UTC).isoformat(timespec="seconds"),
        controller=controller,
        purpose=purpose,
        retention=retention,
        vouched_by=vouched_by,
        accuracy=accuracy,
        audits=reports,
    )
    text = output.as_json(content)
    folder = output.create_output_folder(out)
    output.write_file(folder / "certificate.json", text + "\n")
    output.write_file(folder / "certificate.html", render_certificate_page(content))
    echo(text if json else f"Wrote {folder / 'certificate.html'} and .json")


_REPORT_FIELDS = {"at": str, "version": str, "holds": bool, "claims": list}
_OPTIONAL_REPORT_FIELDS = ("target", "identity", "audience")  # text, or null
_CLAIM_FIELDS = {
    **dict.fromkeys(("attack", "mechanism", "world"), str),
    **dict.fromkeys(("lower", "claim", "ratio", "confidence"), float),
    "controls": list,
}


def read_audit(path: Path) -> dict[str, Any]:
    """Return the report in `path`, a file of `vicinal audit --out`; InvalidInput for others."""
    from vicinal.ledger.sealed_files import read_json

    report = read_json(path, "audit")
    if not (
        _has_fields(report, _REPORT_FIELDS)
        and all(isinstance(report.get(name), str | None) for name in _OPTIONAL_REPORT_FIELDS)
        and all(map(_is_claim, report["claims"]))
    ):
        raise InvalidInput(f"The file {path} was not written by `vicinal audit --out`.")
    return report


def _is_claim(claim: Any) -> bool:
    """Return whether a JSON value is a `claim`, as in the list "claims" of `vicinal audit`."""
    return (
        _has_fields(claim, _CLAIM_FIELDS)
        and all(
            _has_fields(control, {"name": str, "caught": bool}) for control in claim["controls"]
        )
        and _has_fields(claim.get("would_have_seen", {"epsilon": 0}), {"epsilon": float})
    )


def _has_fields(value: Any, types: Mapping[str, type]) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object with fields of these types; floats are finite."""
    return isinstance(value, dict) and all(
        type(value.get(name)) in (int, float) and math.isfinite(value[name])
        if field_type is float
        else isinstance(value.get(name), field_type)
        for name, field_type in types.items()
    )


receipt = create_command_group("Sign and verify receipts for erasures.")

_KeyFile = Annotated[Path, Option(help="Key file of this installation, with mode 0600.")]


@receipt.command("key")
def create_key(path: Annotated[Path, Argument(help="New file for the private key.")]) -> None:
    """Create the signing key of this installation, and print its public half for verifiers."""
    from vicinal.store.receipts import SigningKey

    echo(SigningKey.create(path).public_key)


@receipt.command("erasure", cls=PanelCommand)
def sign_erasure(
    store: StorePath,
    key: _KeyFile,
    subject: SubjectIds = None,
    subjects: SubjectFile = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write it to this file.")] = None,
) -> None:
    """Sign that subjects are erased from a store. The receipt does not name them."""
    from vicinal.store.receipts import SigningKey, create_erasure_receipt

    output.check_outputs({"out": out}, {"key": key, "STORE": store})
    signer = SigningKey(key)
    with _open_single_store(store) as opened:
        ids = collect_subject_ids(subject, subjects)
        receipt = create_erasure_receipt(opened._store, ids, signer, models_kept=opened.models_stay)
    output.echo_or_write(output.as_json(receipt), out)


@receipt.command()
def verify(
    receipt: Annotated[Path, Argument(metavar="RECEIPT.json", help="The receipt.")],
    public_key: Annotated[str, Option(help="Public key of the signer, as `key` printed it.")],
    store: Annotated[Path | None, Option(help="Store in which it must still be in force.")] = None,
    subject: SubjectIds = None,
    subjects: SubjectFile = None,
    json: Json = False,
) -> None:
    """Check a receipt's signature and, with --store, that it is still in force."""
    from vicinal.ledger.sealed_files import read_json
    from vicinal.store.receipts import check_receipt, find_receipt_faults

    content = check_receipt(read_json(receipt, "receipt"), public_key)
    errors: list[str] = []
    if store is not None:
        with _open_single_store(store) as opened:
            errors = find_receipt_faults(
                opened._store, content, collect_subject_ids(subject, subjects)
            )
    if json:
        in_force = None if store is None else not errors
        echo(output.as_json({"receipt": content, "in_force": in_force}))
    if errors:
        raise InvalidInput(" ".join(errors))
    if not json:
        echo("The signature is good." + ("" if store is None else " It is in force."))


@contextmanager
def _open_single_store(path: Path) -> Iterator[Store]:
    """Open the store in the folder `path` for reading; raise InvalidInput for a cluster."""
    from vicinal.distributed.folders import is_cluster
    from vicinal.store.store import Store

    if is_cluster(path):
        raise InvalidInput(f"{path} is a cluster. Receipts are for stores in one folder.")
    with Store.open(path, read_only=True) as store:
        yield store
