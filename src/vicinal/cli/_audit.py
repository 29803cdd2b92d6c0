"""`vicinal audit`: how much the installed mechanisms give away, measured on made-up worlds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._account import read_plan
from vicinal.cli._options import Json
from vicinal.cli._output import as_json, check_writable, progress, write_file
from vicinal.errors import InvalidInput, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vicinal._progress import Step
    from vicinal.audit import AuditFinding, AuditResult, IndKNNAudit, OneRunResult, Trials

CONTRADICTED = 1
"""Exit code of an audit that contradicts a claim."""

INCONCLUSIVE = 4
"""Exit code of an audit that agrees with all claims, but missed a version broken on purpose."""


def audit(
    target: Annotated[
        Path | None, typer.Argument(metavar="[STORE | PLAN.json]", help="Default: every mechanism.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="How long, all attacks together.")] = 2.0,
    confidence: Annotated[
        float | None,
        typer.Option(help="Of every lower bound. Default: 1 - 1e-6, and .95 of --one-run."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Attacks to carry out, comma-separated; see --list.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Without a store or plan; default 10.", min=2, max=100)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Without a store or plan; default 1.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Without a store or plan; default 1e-5.")
    ] = None,
    audience: Annotated[str, typer.Option(help="Whose plan, of a store.")] = "default",
    one_run: Annotated[
        bool, typer.Option("--one-run", help="Audit one interaction with many canaries instead.")
    ] = False,
    canaries: Annotated[int, typer.Option(help="Of --one-run.", min=8, max=500)] = 500,
    listed: Annotated[bool, typer.Option("--list", help="Name the attacks and stop.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the JSON to this file, too.")] = None,
    json: Json = False,
) -> None:
    """Attack the installed code in made-up worlds; compare what it gives away with its claim.

    No private record is read. Ends with 1 if a claim is contradicted, and with 4 if none is but
    an attack missed a version that was broken on purpose: it had too few runs to tell.
    """
    if out is not None:
        check_writable(out)
    facts = None if target is None or not target.is_dir() else _facts(target)
    default = _default(target, classes=classes, epsilon=epsilon, delta=delta)
    if one_run:
        ind_knn = _audited_classifier(target, facts, audience, default)
        with progress(silent=json) as begin:
            step = begin("interactions", 3)
            chance = 0.95 if confidence is None else confidence
            findings: Sequence[AuditFinding] = _one_run(ind_knn, canaries, chance, step)
    else:
        trials = _chosen(_trials(target, facts, audience, default), only)
        if listed:
            typer.echo("\n".join(trials))
            return
        findings = _attacked(trials, minutes, confidence, silent=json)
    report = report_of(findings, target, facts)
    if out is not None:
        write_file(out, as_json(report) + "\n")
    typer.echo(
        as_json(report) if json else "\n".join([*map(_described, findings), _verdict(findings)])
    )
    if not all(result.kept for result in findings):
        raise typer.Exit(CONTRADICTED)
    if not all(result.conclusive for result in findings):
        raise typer.Exit(INCONCLUSIVE)


def _attacked(
    trials: Trials, minutes: float, confidence: float | None, *, silent: bool
) -> list[AuditResult]:
    from vicinal import _checks
    from vicinal.audit import run_trials

    minutes = _checks.real("minutes", minutes, above=0, most=24 * 60)
    chance = 1 - 1e-6 if confidence is None else confidence
    with progress(silent=silent) as begin:
        step = begin("attacks", round(60 * minutes))
        return run_trials(trials, minutes, chance, step)  # type: ignore[arg-type]


def _one_run(
    ind_knn: IndKNNAudit, canaries: int, confidence: float, step: Step
) -> list[OneRunResult]:
    from vicinal.audit import one_run_of_each

    return one_run_of_each(ind_knn, canaries, confidence, step)  # type: ignore[arg-type]


def _default(target: Path | None, **options_or_none: float | None) -> IndKNNAudit:
    """Return the classifier that is audited where neither a store nor a plan is named."""
    from vicinal.audit import IndKNNAudit

    options = {name: value for name, value in options_or_none.items() if value is not None}
    if target is not None and options:
        raise InvalidInput(
            f"The {min(options)!r} parameter must be left out: the store or the plan states it."
        )
    if "classes" in options:
        options["n_classes"] = options.pop("classes")
    return IndKNNAudit(**options)  # type: ignore[arg-type]


def _audited_classifier(
    target: Path | None, facts: dict[str, Any] | None, audience: str, default: IndKNNAudit
) -> IndKNNAudit:
    """Return the classifier whose interaction is audited: a store's, or the default one."""
    from vicinal.audit import store_audit

    if target is None:
        return default
    if facts is None:
        raise InvalidInput("One run is audited of a store or of default settings, not of a plan.")
    ind_knn = store_audit(facts, audience)
    if not facts["classes"]:
        raise InvalidInput("One run is audited of a store of classes; leave out --one-run.")
    if facts["audiences"][audience]["plan"]["release"] != "votes":
        raise InvalidInput("One run is audited where votes leave; this audience gets labels alone.")
    return ind_knn


def report_of(
    results: Sequence[AuditFinding], target: Path | None, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return results as plain values, with what was audited, when, and by which version."""
    from datetime import UTC, datetime

    from vicinal import __version__

    return {
        "target": None if target is None else target.name,
        "identity": None if facts is None else facts.get("identity"),
        "version": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "claims": [result.to_dict() for result in results],
        "holds": all(result.holds for result in results),
    }


def _trials(
    target: Path | None, facts: dict[str, Any] | None, audience: str, default: IndKNNAudit
) -> Trials:
    from vicinal.audit import all_trials, plan_trials, store_trials

    if target is None:
        return all_trials(default)
    if facts is not None:
        return store_trials(facts, audience)
    plan = read_plan(target)
    try:
        return plan_trials(plan)
    except InvalidInput as error:
        # A field of the file, not the flag of the same name.
        words = str(error).replace("' parameter", "' field")
        raise InvalidInput(f"The plan {target.name}: {words}") from None


def _facts(store: Path) -> dict[str, Any]:
    """Return what everybody may know of a store; it is closed before anything is attacked."""
    from vicinal.cli._shards import opened_at

    try:
        with opened_at(store) as opened:
            return opened.facts()
    except StorageFailed as error:
        raise StorageFailed(f"The store cannot be audited. {error}") from None


def _chosen(trials: Trials, only: str | None) -> Trials:
    if only is None:
        return trials
    names = [name.strip() for name in only.split(",")]
    if not set(names) <= set(trials):
        raise InvalidInput(
            f"The 'only' parameter must name attacks among: {', '.join(trials)}. Got {only!r}."
        )
    return {name: trials[name] for name in names}


def _verdict(results: Sequence[AuditFinding]) -> str:
    """Return what all results together say, in a line."""
    wrong = sum(not result.kept for result in results)
    weak = sum(not result.conclusive for result in results)
    if wrong:
        return f"CONTRADICTED: {wrong} of {len(results)} claims. Do not rely on this installation."
    if weak:
        return (
            f"No claim is contradicted, but {weak} of {len(results)} attacks would have missed a "
            "fault: they had too few runs. Raise --minutes, or choose fewer attacks by --only."
        )
    return "No claim is contradicted, and every version broken on purpose was caught."


def _described(result: AuditFinding) -> str:
    """Return a result as a few lines: the figures, what would have been seen, the controls."""
    verdict = "kept" if result.kept else "CONTRADICTED"
    measured = (
        f"  mu at least {result.lower:.3f}, claimed {result.claim:.3f} ({verdict}), "
        f"ratio {result.ratio:.2f}; epsilon at least {result.epsilon_lower:.3f}, "
        f"claimed {result.epsilon_claim:.3f} at delta {result.delta:g}"
    )
    power = (
        f"  {result.power}; {result.seconds:.0f} s; wrong with probability at most "
        f"{1 - result.confidence:.1g}"
    )
    lines = [f"{result.mechanism}: {result.world}", measured, power]
    lines += [
        f"  broken on purpose, {control.name}: {'caught' if control.caught else 'not caught'}"
        f" ({control.runs} runs)"
        for control in result.controls
    ]
    return "\n".join(lines)
