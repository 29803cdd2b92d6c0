"""`vicinal transfer`: rounds of asking and learning, from private records to a student."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._label import Seed, TaskOptions, figures, labelling_task
from vicinal.cli._labellers import LabellerOptions, Price, tell_price
from vicinal.cli._options import Json, grouped
from vicinal.cli._output import as_json, progress, write_file
from vicinal.cli._student import StudentOptions, student_figures

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray
    from vicinal.labelling import LabellingPlan, TransferResult
    from vicinal.reports import ClassFigures
    from vicinal.students import Student


@grouped
def transfer(
    *,
    task: TaskOptions,
    report: Annotated[Path | None, typer.Option(help="Write a report, HTML.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of asking and learning.", min=1)] = 2,
    choice: LabellerOptions,
    price: Price = False,
    options: StudentOptions,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Ask private records about public examples, train a student, ask again by its features.

    One budget lasts for all rounds, and what they cost is known before the first question. After a
    crash the same command goes on where it stopped. The student carries the guarantee of everything
    together, and may be published.
    """
    from vicinal import labelling, students

    start = time.perf_counter()
    names, dataset, pool, truth = task.read()
    overlapping = options.overlapping
    plan = labelling.default_plan(rounds, len(pool), seed=seed, overlapping=overlapping)
    answering = choice.labeller_of(dataset, names, plan)
    if price:
        tell_price(answering, plan, json=json)
        return
    job = labelling_task(dataset, pool)
    recipe = options.recipe(job.pool.ndim, seed)
    learner = students.StudentLearner(names, [recipe])
    with progress(silent=json) as begin, labelling.FileJournal(task.folder) as journal:
        outcome = labelling.transfer(job, answering, learner, plan, journal, begin)
        final = students.load(journal.folder / f"student-{rounds}.pt")
    places = options.write(final)
    figures_of = [] if truth is None else _figures(outcome, final, job.pool, truth)
    if report is not None:
        from vicinal.reports import transfer_page

        write_file(report, transfer_page(outcome, plan, job.pool, names, figures_of))
    result = _result(outcome, plan, time.perf_counter() - start)
    result |= {"figures": {name: one.to_dict() for name, one in figures_of}, **places}
    typer.echo(as_json(result) if json else _text(result, figures_of))


def _figures(
    outcome: TransferResult, final: Student, pool: AnyArray, truth: AnyArray
) -> list[tuple[str, ClassFigures]]:
    """Return how good the answers of each round and the student are, by the pool's own labels."""
    import numpy as np

    from vicinal.labelling import ABSTAINED

    names, named = np.array(final.classes), []
    for number, asked_round in enumerate(outcome.rounds, 1):
        answered = asked_round.labels != ABSTAINED
        rows, labels = asked_round.questions[answered], names[asked_round.labels[answered]]
        named.append((f"answers of round {number}", figures(labels, truth[rows], final.classes)))
    queried = np.concatenate([asked_round.questions for asked_round in outcome.rounds])
    title = "the student, on examples not asked about"
    return [*named, (title, student_figures(final, pool, truth, queried))]


def _result(outcome: TransferResult, plan: LabellingPlan, seconds: float) -> dict[str, Any]:
    from vicinal import __version__

    rounds = [
        {"questions": len(asked_round.labels), "kept": len(selected), "share_of_budget": part.share}
        for asked_round, selected, part in zip(
            outcome.rounds, outcome.selected, plan.rounds, strict=True
        )
    ]
    return {
        "rounds": rounds,
        "guarantee": outcome.guarantee.to_dict(),
        "seconds": round(seconds, 1),
        "version": __version__,
    }


def _text(result: dict[str, Any], figures_of: list[tuple[str, ClassFigures]]) -> str:
    from vicinal.reports import duration

    lines = [
        f"Round {number}: {part['questions']:,} questions from {part['share_of_budget']:.0%} of "
        f"every budget, {part['kept']:,} answers kept"
        for number, part in enumerate(result["rounds"], 1)
    ]
    for name, one in figures_of:
        lines += ["", f"{name[0].upper()}{name[1:]}:", *one.lines()]
    lines += [f"Student: {result['out']}, after {duration(result['seconds'])}"]
    return "\n".join([*lines, "", result["guarantee"]["text"]])
