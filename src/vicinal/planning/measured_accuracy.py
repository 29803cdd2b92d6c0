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
from vicinal.targets.target import NUMBERS

N_SIMILAR_TABLES = 15
"""Largest number of tables whose accuracies make up a range.

The range of n exchangeable values contains a further one with probability (n - 1) / (n + 1), 7/8
for 15. More tables would be less similar; of the 42 that were measured, seven have more than two
classes and ten have numbers.
"""

MAX_EXTRAPOLATION = 2.0
"""Largest ratio of a plan's features or classes to the largest measured numbers of them."""


@dataclass(frozen=True, slots=True)
class MeasuredAccuracy:
    """Accuracy of the default on one table, for one number of records and one epsilon.

    - `table`: name of the table.
    - `n_records`, `n_features`, `n_classes`: numbers of private records, of features after encoding
      the columns, and of classes; one class stands for records with a number each.
    - `epsilon`: at delta 1e-5.
    - `largest_class_share`: share of the most frequent class among all rows; 0 for numbers.
    - `accuracy`: share of correct answers to up to 2,000 queries, or R squared of numbers; the mean
      over the splits.
    """

    table: str
    n_records: int
    n_features: int
    n_classes: int
    largest_class_share: float
    epsilon: float
    accuracy: float

    @property
    def error_reduction(self) -> float:
        """Share of the errors of the constant answer, the most frequent class, that is avoided."""
        constant_errors = 1 - self.largest_class_share
        return (self.accuracy - self.largest_class_share) / constant_errors


@dataclass(frozen=True, slots=True)
class AccuracyRange:
    """Range of accuracy on the measured tables that are most similar to a plan.

    - `measure`: "accuracy" of classes, or "R squared" of numbers.
    - `low`, `high`: lowest and highest value of it.
    - `lower_quartile`, `upper_quartile`: half of the tables are between them.
    - `n_tables`: number of tables in the range.
    - `uses_class_shares`: whether the tables' error reductions were applied to the shares of the
      plan's classes; otherwise the accuracies are those of the tables.
    - `assumes_equal_shares`: whether these shares were assumed to be equal, as none were declared.
    - `is_too_high`: whether the plan has fewer records or a smaller epsilon than was measured.
    """

    low: float
    lower_quartile: float
    upper_quartile: float
    high: float
    n_tables: int
    uses_class_shares: bool
    assumes_equal_shares: bool
    measure: str
    is_too_high: bool = False

    @property
    def outside_share(self) -> float:
        """Share of the plans whose accuracy is outside the range, if tables are exchangeable."""
        return 2 / (self.n_tables + 1)

    @classmethod
    def from_tables(
        cls,
        similar: Sequence[MeasuredAccuracy],
        largest_class_share: float | None,
        n_classes: int = 2,
    ) -> Self:
        """Return the range of the accuracies of `similar` tables, of which there is at least one.

        - `largest_class_share`: share of the plan's most frequent class, 0 to 1; None if unknown.
          Then three or more classes are assumed to be equally frequent, because most tables have
          two classes and the accuracies on them would often be too high. With a share, the range is
          that of the constant answer's accuracy plus each table's error reduction.
        - `n_classes`: number of classes of the plan; 1 for numbers.
        """
        assumes_equal_shares = largest_class_share is None and n_classes > 2
        if assumes_equal_shares:
            largest_class_share = 1 / n_classes
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
            assumes_equal_shares=assumes_equal_shares,
            measure="R squared" if n_classes == 1 else "accuracy",
        )


@cache
def read_measured_accuracies() -> tuple[MeasuredAccuracy, ...]:
    """Return all measured accuracies, read from the package's table."""
    text = files("vicinal.planning").joinpath("measured_accuracy.csv").read_text("utf-8")
    _header, *rows = csv.reader(text.splitlines())
    types = (str, int, int, int, float, float, float)
    return tuple(
        MeasuredAccuracy(*[parse(cell) for parse, cell in zip(types, row, strict=True)])
        for row in rows
    )


def find_similar_tables(
    accuracies: Iterable[MeasuredAccuracy],
    *,
    n_records: float,
    epsilon: float,
    n_classes: int,
    n_features: int | None,
) -> list[MeasuredAccuracy]:
    """Return the figures of the tables most similar to a plan, nearest first: one of each table.

    The distance is the sum of the absolute logarithms of the ratios of records, epsilon, classes
    and features. Each table is represented by its nearest number of records and epsilon. A plan for
    numbers is compared with tables of numbers only, and one for two classes with tables of two.

    `accuracies`: figures to choose from. The rest: numbers of the plan; `n_classes` is 1 for
    numbers, `n_features` that after encoding, or None if unknown.
    """

    def compute_distance(measured: MeasuredAccuracy) -> float:
        """Return the distance of a table from the plan."""
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
        has_several_classes = n_classes > 2 and measured.n_classes > 1
        if measured.n_classes == n_classes or has_several_classes:
            nearest_by_table.setdefault(measured.table, measured)
    return list(nearest_by_table.values())[:N_SIMILAR_TABLES]


def describe_unmeasured_plan(plan: IndKNNPlan, n_features: int | None) -> str:
    """Return why no measured table is similar to a plan, as a clause; "" if some are.

    `plan`: with a public number of records. `n_features`: as for :func:`find_accuracy_range`.
    """
    of_classes = plan.target.is_class_vote
    accuracies = [
        measured
        for measured in read_measured_accuracies()
        if (measured.n_classes > 1) == of_classes
    ]
    max_features = MAX_EXTRAPOLATION * max(measured.n_features for measured in accuracies)
    max_classes = MAX_EXTRAPOLATION * max(measured.n_classes for measured in accuracies)
    obstacles = {
        "with several numbers or labels in a record": (
            not of_classes and (plan.target.kind != NUMBERS or len(plan.target.names) > 1)
        ),
        "without a private model": not plan.model_share,
        "that release labels alone": plan.label_only,
        "with unequal costs": plan.cost is not None,
        "with more than one interaction": plan.interactions != 1,
        "with renewed budgets": plan.n_periods != 1,
        f"with more than {max_classes:g} classes": (
            of_classes and plan.target.n_coordinates > max_classes
        ),
        f"with more than {max_features:g} features": (n_features or 0) > max_features,
    }
    kinds = [kind for kind, applies in obstacles.items() if applies]
    return f"no plans {kinds[0]} were measured" if kinds else ""


def find_accuracy_range(plan: IndKNNPlan, n_features: int | None) -> AccuracyRange | None:
    """Return the range of accuracy on the measured tables most similar to a plan.

    It is None if none is similar (:func:`describe_unmeasured_plan`).

    `plan`: with a public number of records; each subject counts as one record. `n_features`: number
    of features after encoding; None if unknown.
    """
    if describe_unmeasured_plan(plan, n_features):
        return None
    accuracies = read_measured_accuracies()
    n_classes = plan.target.n_coordinates if plan.target.is_class_vote else 1
    similar = find_similar_tables(
        accuracies,
        n_records=plan.n_subjects,
        epsilon=plan.epsilon,
        n_classes=n_classes,
        n_features=n_features,
    )
    largest_class_share = None if plan.class_prior is None else max(plan.class_prior)
    is_too_high = plan.n_subjects < min(measured.n_records for measured in accuracies)
    is_too_high |= plan.epsilon < min(measured.epsilon for measured in accuracies)
    accuracy_range = AccuracyRange.from_tables(similar, largest_class_share, n_classes)
    return replace(accuracy_range, is_too_high=is_too_high)
