"""The kind of Ind-KNN: an individual filter with a budget for every subject."""

from __future__ import annotations

import math
from typing import Any

from vicinal.accounting import _budget
from vicinal.accounting._composition import Composition
from vicinal.accounting._label_release import LabelFilter
from vicinal.accounting._subsampled import SubsampledGaussian
from vicinal.accounting.kinds._base import (
    Kind,
    Values,
    Witnesses,
    check_release,
    fraction,
    positive,
)
from vicinal.accounting.kinds._private_knn import full_step
from vicinal.errors import InvalidInput


def _filter_values(name: str, values: dict[str, Any], delta: float, _count: int) -> dict[str, Any]:
    if ("epsilon" in values) == ("B" in values):
        raise InvalidInput(
            f"The '{name}.epsilon' and '{name}.B' parameters: exactly one must be given."
        )
    if "delta" in values and "B" in values:
        raise InvalidInput(f"The '{name}.delta' parameter belongs to '{name}.epsilon', not to B.")
    if values["release"] == "label" and "B" in values:
        raise InvalidInput(
            f"The '{name}.B' parameter belongs to release 'votes': labels are charged at one Rényi "
            f"order. Give '{name}.epsilon'."
        )
    if "epsilon" in values:
        values.setdefault("delta", delta)
    return values


def filter_budget(values: Values) -> float:
    """Return the budget B (zCDP) of an individual filter, from B or from epsilon and delta."""
    if "B" in values:
        return float(values["B"])
    return _budget.budget(values["epsilon"], values["delta"], "gdp")


def _filter(values: Values) -> SubsampledGaussian:
    return SubsampledGaussian(1 / math.sqrt(2 * filter_budget(values)))


def _filter_cost(values: Values, count: int) -> Composition:
    if values["release"] == "label":
        return Composition.of(LabelFilter.from_epsilon(values["epsilon"], values["delta"]), count)
    return Composition.of(_filter(values), count)


def _filter_witness(values: Values, count: int, _order: float) -> Witnesses:
    return None if values["release"] == "label" else full_step(_filter(values), count)


IND_KNN = Kind(
    fields={"epsilon": positive, "delta": fraction, "B": positive, "release": check_release},
    defaults={"release": "votes"},
    optional=("epsilon", "delta", "B"),
    complete=_filter_values,
    cost=_filter_cost,
    worst_case=_filter_witness,
    assumptions=lambda _: (
        (
            "Ind-KNN charges every subject individually and stops at the budget B (Feldman & "
            "Zrnic 2021; Koskela, Tobaben & Honkela 2023)"
        ),
        (
            "releases of a plan may be interleaved with Ind-KNN's queries (concurrent composition: "
            "Vadhan & Zhang 2023)"
        ),
        "the lower bound is for a subject who spends the whole budget",
    ),
)
