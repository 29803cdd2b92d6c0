"""What `vicinal plan` foretells of a table, beside what happens."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.report_set.data import MOST_QUERIES, Split, questions
from experiments.report_set.methods import DELTA, Plan, ours
from vicinal.neighbours import Reference
from vicinal.planning.engine_factory import create_kernel
from vicinal.planning.plan import IndKNNPlan
from vicinal.planning.plan_simulation import PlanChoice, SimulationSetup, simulate
from vicinal.targets.kinds import declared_target

PUBLIC = 2000
"""Labelled public rows that a plan is played on: with fewer their own luck is what one sees."""

PLAYED = 3

LEAST = 1000
"""Records, and half as many queries, that say something of a table."""


class Forecast(NamedTuple):
    """Shares of right answers to queries about a table, as foretold and as they were."""

    table: str
    records: int
    foretold: float
    happened: float


def measure(group: str, records: int, epsilon: float) -> Iterable[Forecast]:
    """Measure every table of classes that has enough rows."""
    for question in questions(group):
        split = Split.of(question, 0, PUBLIC) if question.of_classes else None
        if split is None or min(len(split.private), 2 * len(split.queries)) < LEAST:
            continue
        split = split.first(records)
        right = ours(Plan(split, epsilon, MOST_QUERIES, 0)).argmax(axis=1)
        happened = float(np.mean(right == split.answers[split.queries]))
        yield Forecast(
            question.name, len(split.private), foretold(split, len(right), epsilon), happened
        )


def foretold(split: Split, n_queries: int, epsilon: float) -> float:
    """Return the share of right answers that a plan of the default foretells."""
    _, public, _ = split.features()
    given = {
        "classes": list(range(split.n_classes)), "epsilon": epsilon, "delta": DELTA,
        "n_queries": n_queries, "n_records": len(split.private),
        "records_per_subject": split.records_per_subject,
    }  # fmt: skip
    plan = IndKNNPlan.of_target(declared_target(given), given).choose_model_share(len(public))
    kernel = create_kernel(plan, public)
    labels = split.answers[split.public]
    reference = Reference(kernel, kernel.encode(public))
    setup = SimulationSetup(reference, labels, np.arange(len(labels)), split.n_classes)
    played = []
    for seed in range(PLAYED):
        beside = setup.with_simulated_model(plan, seed)
        share = 1.0 if beside.model is None else beside.model.budget_share
        choice = PlanChoice.from_plan(plan, beside.reference, share)
        played.append(simulate(beside, choice, seed).accuracy)
    return float(np.mean(played))


def write(path: Path, forecasts: Iterable[Forecast]) -> None:
    """Write them into a file."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(Forecast._fields)
        rows.writerows((*one[:2], *(f"{share:.4f}" for share in one[2:])) for one in forecasts)


def as_text(path: Path) -> str:
    """Return how far forecasts were off, those that were furthest off first."""
    with path.open(encoding="utf-8", newline="") as lines:
        kept = [(row["table"], int(row["records"]), *_shares(row)) for row in csv.DictReader(lines)]
    kept.sort(key=lambda one: -abs(one[2] - one[3]))
    off = np.array([foretold - happened for *_, foretold, happened in kept])
    rows = [
        f"| {table} | {size:,} | {foretold:.3f} | {happened:.3f} | {foretold - happened:+.3f} |"
        for table, size, foretold, happened in kept
    ]
    told = (
        f"{len(off)} tables: off by {abs(off).mean():.3f} on average, {off.mean():+.3f} in one "
        f"direction; more than .02 on {int((abs(off) > 0.02).sum())}."
    )
    return "\n".join(
        [
            told,
            "",
            "| table | records | foretold | happened | off |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def _shares(row: dict[str, str]) -> tuple[float, float]:
    return float(row["foretold"]), float(row["happened"])
