"""`vicinal audit`, `certificate` and `receipt`: evidence on an installation and its stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer
from typer import Argument, Option, echo

from vicinal import __version__
from vicinal.cli.main import group_of
from vicinal.cli.options import Json, StorePath, SubjectFile, SubjectIds
from vicinal.cli.output import (
    as_json,
    check_outputs,
    output_folder,
    refuse_overlap,
    show_progress_bars,
    write_file,
)
from vicinal.cli.records import listed_ids, opened_at
from vicinal.errors import InvalidInput, StorageFailed

if TYPE_CHECKING:
    from vicinal.audit.catalogue import Trials
    from vicinal.audit.one_run_audit import OneRunResult
    from vicinal.audit.schedule import AuditFinding
    from vicinal.store.store import Store

CONTRADICTED = 1
"""Exit code of an audit that contradicts a claim."""

INCONCLUSIVE = 4
"""Exit code of an audit that agrees with all claims, but missed a version broken on purpose."""


def audit(  # noqa: PLR0915 (imports among them)
    target: Annotated[
        Path | None,
        Argument(metavar="[STORE | PLAN.json]", help="What to audit. Default: every mechanism."),
    ] = None,
    minutes: Annotated[float, Option(help="Time for all attacks together.")] = 2.0,
    confidence: Annotated[float, Option(help="Confidence of each lower bound.")] = 1 - 1e-6,
    only: Annotated[
        str | None, Option(help="Attacks to carry out, separated by commas. See --list.")
    ] = None,
    audience: Annotated[str, Option(help="Audience of the store whose plan to audit.")] = "default",
    one_run: Annotated[
        bool, Option("--one-run", help="Attack one interaction that has many canaries.")
    ] = False,
    canaries: Annotated[int, Option(help="How many canaries.", min=8, max=1 << 20)] = 400_000,
    listed: Annotated[bool, Option("--list", help="List the attacks and stop.")] = False,
    out: Annotated[Path | None, Option(help="Also write the JSON object to this file.")] = None,
    json: Json = False,
) -> None:
    """Attack the installed code to test what it claims.

    The attacks use made-up data and read no private record. Mechanisms of the store that were not
    attacked are listed. The exit code is 1 if an attack contradicts a claim. It is 4 if none does,
    but an attack had too few runs to catch a copy of the code that was broken on purpose.
    """
    from vicinal import checks
    from vicinal.audit.catalogue import not_audited
    from vicinal.audit.schedule import carry_out_all

    if out is not None:
        check_outputs({"out": out}, {"TARGET": target})
    facts = None
    if target is not None and target.is_dir():
        try:  # it is closed before anything is attacked
            with opened_at(target, reading=True) as opened:
                facts = opened.facts()
        except StorageFailed as error:
            raise StorageFailed(f"The store cannot be audited. {error}") from None
    findings: Mapping[str, AuditFinding]
    if one_run:
        interaction = _one_interaction(target, facts, audience)
        with show_progress_bars(silent=json) as begin:
            step = begin("interactions", 8)
            found = interaction(canaries=canaries, confidence=confidence, progress=step)
            findings = {"one-run": found}
    else:
        trials = _chosen(_trials(target, facts, audience), only)
        if listed:
            echo("\n".join(trials))
            return
        minutes = checks.check_real("minutes", minutes, above=0, most=24 * 60)
        with show_progress_bars(silent=json) as begin:
            step = begin("attacks", round(60 * minutes))
            made = (make() for make in trials.values())
            results = carry_out_all(made, 60 * minutes, confidence, progress=step)  # type: ignore[arg-type]
            findings = dict(zip(trials, results, strict=True))
    left_out = [] if facts is None else not_audited(facts, {audience: set(findings)})
    report = as_json({
        "target": None if target is None else target.name,
        "identity": None if facts is None else facts.get("identity"),
        "version": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "audience": None if facts is None else audience,
        "claims": [{"attack": name, **each.to_dict()} for name, each in findings.items()],
        "not_audited": left_out,
        "holds": all(finding.holds for finding in findings.values()),
    })  # fmt: skip
    if out is not None:
        write_file(out, report + "\n")
    every = list(findings.values())
    words = [f"Not audited here: {', '.join(left_out)}."] if left_out else []
    echo(report if json else "\n".join([*map(_finding_text, every), *words, _verdict(every)]))
    if not all(finding.kept for finding in every):
        raise typer.Exit(CONTRADICTED)
    if not all(finding.conclusive for finding in every):
        raise typer.Exit(INCONCLUSIVE)


def _one_interaction(
    target: Path | None, facts: dict[str, Any] | None, audience: str
) -> Callable[..., OneRunResult]:
    from vicinal.audit import one_run_audit
    from vicinal.audit.catalogue import stored_plan
    from vicinal.audit.ind_knn import IndKNNAudit

    if target is None:
        return partial(one_run_audit.one_run, IndKNNAudit())
    if facts is None:
        raise InvalidInput("The 'one_run' option audits a store or the default plan, not a file.")
    audit, release, carried = stored_plan(facts, audience)
    return partial(one_run_audit.one_run, audit, release=release, target=carried)


def _trials(target: Path | None, facts: dict[str, Any] | None, audience: str) -> Trials:
    from vicinal.audit.catalogue import all_trials, plan_trials, store_trials
    from vicinal.audit.ind_knn import IndKNNAudit
    from vicinal.ledger.sealed_files import read_json

    if target is None:
        return all_trials(IndKNNAudit())
    if facts is not None:
        return store_trials(facts, audience)
    plan = read_json(target, "plan")
    try:
        return plan_trials(plan)
    except InvalidInput as error:
        # A field of the file, not the flag of the same name.
        words = str(error).replace("' parameter", "' field")
        raise InvalidInput(f"The plan {target.name}: {words}") from None


def _chosen(trials: Trials, only: str | None) -> Trials:
    if only is None:
        return trials
    names = [name.strip() for name in only.split(",")]
    if not set(names) <= set(trials):
        raise InvalidInput(
            f"The 'only' parameter must name attacks among: {', '.join(trials)}. Got {only!r}."
        )
    return {name: trials[name] for name in names}


def _verdict(findings: Sequence[AuditFinding]) -> str:
    wrong = sum(not finding.kept for finding in findings)
    weak = sum(not finding.conclusive for finding in findings)
    if wrong:
        return f"CONTRADICTED: {wrong} of {len(findings)} claims. Do not rely on this installation."
    if weak:
        return (
            f"No claim is contradicted, but {weak} of {len(findings)} attacks had too few runs to "
            "find a fault. Give more --minutes, or choose fewer attacks with --only."
        )
    return "No claim is contradicted, and the attacks caught every copy broken on purpose."


def _finding_text(finding: AuditFinding) -> str:
    verdict = "kept" if finding.kept else "CONTRADICTED"
    return "\n".join([
        f"{finding.mechanism}: {finding.world}",
        (f"  mu at least {finding.lower:.3f}, claimed {finding.claim:.3f} ({verdict}), "
        f"ratio {finding.ratio:.2f}; epsilon at least {finding.epsilon_lower:.3f}, "
        f"claimed {finding.epsilon_claim:.3f} at delta {finding.delta:g}"),
        (f"  {finding.power}; {finding.seconds:.0f} s; wrong with probability at most "
        f"{1 - finding.confidence:.1g}"),
        *(f"  moved by the subject, exactly: mu {finding.moved:.6f} of {finding.most_moved:.6f}"
          for _ in [0] if finding.moved is not None),
        *(f"  broken on purpose, {control.name}: {'caught' if control.caught else 'not caught'}"
          f" ({control.runs} runs)" for control in finding.controls),
    ])  # fmt: skip


Stated = Annotated[str | None, Option(help="Your own statement, which the certificate repeats.")]


def certificate(
    store: StorePath,
    out: Annotated[Path, Option("--out", "-o", help="Folder for both files.")],
    audit: Annotated[
        list[Path] | None, Option(help="File that `vicinal audit --out` wrote. Repeat for more.")
    ] = None,
    controller: Stated = None,
    purpose: Stated = None,
    retention: Stated = None,
    vouched_by: Stated = None,
    accuracy: Stated = None,
    json: Json = False,
) -> None:
    """Write what a store guarantees, with the evidence."""
    from vicinal.reports.deployment_certificate import certificate_page, deployment_certificate

    refuse_overlap({"out": out}, {"STORE": store})
    found = [read_audit(path) for path in audit or []]
    with opened_at(store, reading=True) as opened:
        facts = opened.facts()
    for path, report in zip(audit or [], found, strict=True):
        if report.get("identity") not in (None, facts.get("identity")):
            raise InvalidInput(f"The file {path} reports on another store. Audit this one.")
    content = deployment_certificate(
        facts, __version__, datetime.now(UTC).isoformat(timespec="seconds"),
        controller=controller, purpose=purpose, retention=retention, vouched_by=vouched_by,
        accuracy=accuracy, audits=found,
    )  # fmt: skip
    folder = output_folder(out)
    write_file(folder / "certificate.json", as_json(content) + "\n")
    write_file(folder / "certificate.html", certificate_page(content))
    echo(as_json(content) if json else f"Wrote {folder / 'certificate.html'} and .json")


_REPORT = {"at": str, "version": str, "holds": bool, "claims": list}
_CLAIM = {
    **dict.fromkeys(("attack", "mechanism", "world"), str),
    **dict.fromkeys(("lower", "claim", "ratio", "confidence"), float),
    "controls": list,
}


def read_audit(path: Path) -> dict[str, Any]:
    from vicinal.ledger.sealed_files import read_json

    report = read_json(path, "audit")
    if not (_has(report, _REPORT) and all(_is_claim(claim) for claim in report["claims"])):
        raise InvalidInput(f"The file {path} was not written by `vicinal audit --out`.")
    return report


def _is_claim(claim: Any) -> bool:
    return (
        _has(claim, _CLAIM)
        and all(_has(control, {"name": str, "caught": bool}) for control in claim["controls"])
        and ("would_have_seen" not in claim or _has(claim["would_have_seen"], {"epsilon": float}))
    )


def _has(value: Any, fields: Mapping[str, type]) -> TypeGuard[dict[str, Any]]:
    """Tell whether a JSON object has these fields, of these types; numbers must be finite."""
    return isinstance(value, dict) and all(
        type(value.get(name)) in (int, float) and math.isfinite(value[name])
        if kind is float
        else isinstance(value.get(name), kind)
        for name, kind in fields.items()
    )


receipt = group_of("Sign and verify receipts for erasures.")

KeyFile = Annotated[Path, Option(help="Key file of this installation, with mode 0600.")]
Out = Annotated[Path | None, Option("--out", "-o", help="Write the receipt to this file.")]


@receipt.command()
def key(path: Annotated[Path, Argument(help="A new file.")]) -> None:
    """Make this installation's key, and print the public half for those who verify."""
    from vicinal.store.receipts import SigningKey

    echo(SigningKey.create(path).public)


@receipt.command()
def erasure(
    store: StorePath,
    key: KeyFile,
    subject: SubjectIds = None,
    subjects: SubjectFile = None,
    out: Out = None,
) -> None:
    """Sign that subjects are erased from a store. The receipt does not name them."""
    from vicinal.store.receipts import SigningKey, erasure_receipt

    check_outputs({"out": out}, {"key": key, "STORE": store})
    signer = SigningKey(key)
    with _opened(store) as opened:
        ids, kept = listed_ids(subject, subjects), opened.models_stay
        _give(erasure_receipt(opened._parts, ids, signer, models_kept=kept), out)


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
    from vicinal.store.receipts import check_receipt, faults_of_receipt

    content = check_receipt(read_json(receipt, "receipt"), public_key)
    faults: list[str] = []
    if store is not None:
        with _opened(store) as opened:
            ids = listed_ids(subject, subjects)
            faults = faults_of_receipt(opened._parts, content, ids)
    if json:
        echo(as_json({"receipt": content, "in_force": None if store is None else not faults}))
    if faults:
        raise InvalidInput(" ".join(faults))
    if not json:
        echo("The signature is good." + ("" if store is None else " It is in force."))


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    from vicinal.distributed.folders import is_cluster
    from vicinal.store.store import Store

    if is_cluster(path):
        raise InvalidInput(f"{path} is a cluster. Receipts are for stores in one folder.")
    with Store.open(path, reading=True) as store:
        yield store


def _give(receipt: dict[str, Any], out: Path | None) -> None:
    if out is None:
        echo(as_json(receipt))
    else:
        write_file(out, as_json(receipt) + "\n")
