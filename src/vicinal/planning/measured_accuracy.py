"""Accuracy of default plans on public tables, measured in advance, as a guide without labels.

`python -m experiments similar-tables --write` writes the figures; docs/reference/report-set.md
describes how they were measured and how often the ranges contain the accuracy on another table.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Self

import numpy as np

from vicinal.planning.plan import IndKNNPlan

N_SIMILAR_TABLES = 15
"""Number of tables whose accuracies make up a range.

The range of 15 exchangeable values contains a further one with probability 14/16. More tables would
be less similar; of the 32 that were measured, only six have more than two classes.
"""

MAX_EXTRAPOLATION = 2.0
"""Largest ratio of a plan's features or classes to the largest measured numbers of them."""


@dataclass(frozen=True, slots=True)
class MeasuredAccuracy:
    """Accuracy of the default on one table, for one number of records and one epsilon.

    - `table`: name of the table.
    - `n_records`, `n_features`, `n_classes`: numbers of private records, of features after encoding
      the columns, and of classes.
    - `epsilon`: at delta 1e-5.
    - `largest_class_share`: share of the most frequent class among all rows.
    - `accuracy`: share of correct answers to up to 2,000 queries, mean over the splits.
    """

    table: str
    n_records: int
    n_features: int
    n_classes: int
    largest_class_share: float
    epsilon: float
    accuracy: float

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Self:
        """Return the figures of one row of a CSV file; `texts`: its cells, one for each field."""
        types = (str, int, int, int, float, float, float)
        values = [parse(text) for parse, text in zip(types, texts, strict=True)]
        return cls(*values)

    @property
    def error_reduction(self) -> float:
        """Share of the errors of the constant answer, the most frequent class, that is avoided."""
        constant_errors = 1 - self.largest_class_share
        return (self.accuracy - self.largest_class_share) / constant_errors


@dataclass(frozen=True, slots=True)
class AccuracyRange:
    """Range of accuracy on the measured tables that are most similar to a plan.

    - `low`, `high`: lowest and highest accuracy.
    - `lower_quartile`, `upper_quartile`: half of the tables are between them.
    - `n_tables`: number of tables in the range.
    - `uses_class_shares`: whether the tables' error reductions were applied to the declared shares
      of the plan's classes; otherwise the accuracies are those of the tables.
    - `is_too_high`: whether the plan has fewer records or a smaller epsilon than was measured.
    """

    low: float
    lower_quartile: float
    upper_quartile: float
    high: float
    n_tables: int
    uses_class_shares: bool
    is_too_high: bool = False

    @classmethod
    def from_tables(
        cls, similar: Sequence[MeasuredAccuracy], largest_class_share: float | None
    ) -> Self:
        """Return the range of the accuracies of `similar` tables, of which there is at least one.

        `largest_class_share`: share of the plan's most frequent class, 0 to 1. Then the range is
        that of the constant answer's accuracy plus each table's error reduction. None if unknown.
        """
        if largest_class_share is None:
            accuracies = [measured.accuracy for measured in similar]
        else:
            constant_errors = 1 - largest_class_share
            accuracies = [
                max(0.0, largest_class_share + constant_errors * measured.error_reduction)
                for measured in similar
            ]
        low, lower_quartile, upper_quartile, high = np.quantile(accuracies, (0, 0.25, 0.75, 1))
        return cls(
            low=float(low),
            lower_quartile=float(lower_quartile),
            upper_quartile=float(upper_quartile),
            high=float(high),
            n_tables=len(similar),
            uses_class_shares=largest_class_share is not None,
        )


@cache
def read_measured_accuracies() -> tuple[MeasuredAccuracy, ...]:
    """Return all measured accuracies, read from the package's table."""
    lines = files("vicinal.planning").joinpath("measured_accuracy.csv").read_text("utf-8")
    _header, *rows = csv.reader(lines.splitlines())
    return tuple(MeasuredAccuracy.from_texts(row) for row in rows)


def find_similar_tables(
    accuracies: Iterable[MeasuredAccuracy],
    *,
    n_records: float,
    epsilon: float,
    n_classes: int,
    n_features: int | None,
) -> list[MeasuredAccuracy]:
    """Return the figures of the most similar tables, nearest first: one of each table.

    The distance is the sum of the absolute logarithms of the ratios of records, epsilon, classes
    and features. Each table is represented by its nearest number of records and epsilon. A plan for
    two classes is compared with tables of two classes only.

    - `accuracies`: figures to choose from.
    - `n_records`, `epsilon`, `n_classes`: of the plan.
    - `n_features`: number of features of the plan after encoding; None if unknown.
    """

    def compute_distance(measured: MeasuredAccuracy) -> float:
        ratios = [
            measured.n_records / n_records,
            measured.epsilon / epsilon,
            measured.n_classes / n_classes,
        ]
        if n_features is not None:
            ratios.append(measured.n_features / n_features)
        return sum(abs(math.log(ratio)) for ratio in ratios)

    nearest_by_table: dict[str, MeasuredAccuracy] = {}
    for measured in sorted(accuracies, key=compute_distance):
        if n_classes > 2 or measured.n_classes == 2:
            nearest_by_table.setdefault(measured.table, measured)
    return list(nearest_by_table.values())[:N_SIMILAR_TABLES]


def find_accuracy_range(plan: IndKNNPlan, n_features: int | None) -> AccuracyRange | None:
    """Return the range of accuracy on the measured tables most similar to a plan for classes.

    It is None if plans like this one were not measured: without a private model, with labels alone,
    unequal costs, several interactions or renewal periods, or with more than twice as many features
    or classes as the largest measured tables. It is also None for three or more classes of unknown
    shares, because the range would often be too high: most measured tables have two classes.

    `plan`: with a public number of records; each subject counts as one record. `n_features`: number
    of features after encoding; None if unknown.
    """
    n_classes = plan.target.n_coordinates
    is_measured_kind = (
        plan.target.is_class_vote
        and plan.model_share
        and not plan.label_only
        and plan.cost is None
        and plan.interactions == 1
        and plan.n_periods == 1
        and (n_classes == 2 or plan.class_prior is not None)
    )
    if not is_measured_kind:
        return None
    accuracies = read_measured_accuracies()
    max_classes = max(measured.n_classes for measured in accuracies)
    max_features = max(measured.n_features for measured in accuracies)
    if (
        n_classes > MAX_EXTRAPOLATION * max_classes
        or (n_features or 0) > MAX_EXTRAPOLATION * max_features
    ):
        return None
    n_subjects = plan.size / plan.records_per_subject
    similar = find_similar_tables(
        accuracies,
        n_records=n_subjects,
        epsilon=plan.epsilon,
        n_classes=n_classes,
        n_features=n_features,
    )
    largest_class_share = None if plan.class_prior is None else max(plan.class_prior)
    is_too_high = n_subjects < min(measured.n_records for measured in accuracies)
    is_too_high |= plan.epsilon < min(measured.epsilon for measured in accuracies)
    accuracy_range = AccuracyRange.from_tables(similar, largest_class_share)
    return replace(accuracy_range, is_too_high=is_too_high)
