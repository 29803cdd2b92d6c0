"""Kinds of PATE: LNMax, GNMax, Confident-GNMax, all data-independent."""

from __future__ import annotations

from typing import Any

from vicinal import checks
from vicinal.accounting.curves import Composition
from vicinal.accounting.kinds.base import (
    LABEL_ONLY,
    Kind,
    Values,
    Witnesses,
    scale,
    threshold,
    vote_count,
    what_leaves,
)
from vicinal.accounting.kinds.private_knn import (
    argmax_cost,
    argmax_witness,
    screening_cost,
    screening_witness,
)
from vicinal.accounting.laplace import Laplace

_TEACHERS = (
    "teachers are trained on disjoint parts of the data, by subject, and every teacher has one vote"
)


_STOPS = "no more screened queries are answered than 'answered' says, and the run stops there"


def _gnmax(values: Values) -> Values:
    return {"sigma": values["sigma"], "gamma": 1.0, "release": values["release"]}


def _confident(values: Values) -> Values:
    return {
        "k": values["teachers"],
        "threshold": values["threshold"],
        "sigma": values["sigma_screen"],
        "gamma": 1.0,
    }


def _confident_values(
    name: str, values: dict[str, Any], _delta: float, count: int
) -> dict[str, Any]:
    if "answered" in values:
        checks.integer(f"{name}.answered", values["answered"], least=0, most=count)
    return values


def _answered(values: Values, count: int) -> int:
    return int(values.get("answered", count))


def _number(name: str, value: object) -> int:
    return checks.integer(name, value, least=0)


def _confident_votes(values: Values) -> Values:
    return {"sigma": values["sigma_votes"], "gamma": 1.0, "release": values["release"]}


def _confident_cost(values: Values, count: int) -> Composition:
    screened = screening_cost(_confident(values), count)
    return screened.add(argmax_cost(_confident_votes(values), _answered(values, count)))


def _confident_witness(values: Values, count: int, order: float) -> Witnesses:
    first = screening_witness(_confident(values), count, order) or []
    answered = _answered(values, count)
    second = argmax_witness(_confident_votes(values), answered, order) if answered else None
    return [*first, *(second or [])]


def _laplace_scale(name: str, value: object) -> float:
    return checks.real(name, value, least=1e-3, most=1e6)


LNMAX = Kind(
    fields={"scale": _laplace_scale},
    # One vote moves, so two counts change by one each.
    cost=lambda values, count: Composition.of(Laplace(values["scale"]), 2 * count),
    witness=lambda _values, _count, _order: None,
    words=lambda _: (_TEACHERS,),
)

GNMAX = Kind(
    fields={"sigma": scale, "release": what_leaves},
    defaults={"release": "votes"},
    cost=lambda values, count: argmax_cost(_gnmax(values), count),
    witness=lambda values, count, order: argmax_witness(_gnmax(values), count, order),
    words=lambda values: (_TEACHERS, *(() if values["release"] == "votes" else (LABEL_ONLY,))),
)

CONFIDENT_GNMAX = Kind(
    fields={
        "teachers": vote_count,
        "threshold": threshold,
        "sigma_screen": scale,
        "sigma_votes": scale,
        "answered": _number,
        "release": what_leaves,
    },
    defaults={"release": "votes"},
    optional=("answered",),
    complete=_confident_values,
    cost=_confident_cost,
    witness=_confident_witness,
    words=lambda values: (
        _TEACHERS,
        *(() if "answered" not in values else (_STOPS,)),
        *(() if values["release"] == "votes" else (LABEL_ONLY,)),
    ),
)
