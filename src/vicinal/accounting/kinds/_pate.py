"""Kinds of PATE: LNMax, GNMax, Confident-GNMax, and what publishing a cost costs.

With a field ``votes`` (a row of counts for every query) a release is priced at its own votes. Such
a price is private. It is that of labels: noisy votes that leave cost the same whatever they are.
"""

from __future__ import annotations

from typing import Any

from vicinal import _checks
from vicinal.accounting._composition import Composition
from vicinal.accounting._data_dependent_cost import PrivateMaxima
from vicinal.accounting._laplace import Laplace
from vicinal.accounting._smooth_cost import SmoothRelease
from vicinal.accounting.kinds._base import (
    LABEL_ONLY,
    PRIVATE_COST,
    Kind,
    Values,
    Witnesses,
    check_release,
    labels_only,
    one_row_each,
    scale,
    threshold,
    vote_count,
    vote_table,
)
from vicinal.accounting.kinds._private_knn import (
    argmax_cost,
    argmax_witness,
    screening_cost,
    screening_witness,
)
from vicinal.errors import InvalidInput

_TEACHERS = (
    "teachers are trained on disjoint parts of the data, by subject, and every teacher has one vote"
)


_STOPS = "no more screened queries are answered than 'answered' says, and the run stops there"


def _gnmax(values: Values) -> Values:
    return {"sigma": values["sigma"], "gamma": 1.0, "release": values["release"]}


def _gnmax_values(name: str, values: dict[str, Any], _delta: float, count: int) -> dict[str, Any]:
    if "votes" in values:
        labels_only(name, values)
        one_row_each(name, values, count)
    return values


def _gnmax_cost(values: Values, count: int) -> Composition:
    if "votes" not in values:
        return argmax_cost(_gnmax(values), count)
    return Composition.of(PrivateMaxima("gnmax", values["sigma"], values["votes"]))


def _gnmax_witness(values: Values, count: int, order: float) -> Witnesses:
    return None if "votes" in values else argmax_witness(_gnmax(values), count, order)


def _lnmax_values(name: str, values: dict[str, Any], _delta: float, count: int) -> dict[str, Any]:
    if "votes" in values:
        one_row_each(name, values, count)
    return values


def _lnmax_cost(values: Values, count: int) -> Composition:
    if "votes" in values:
        return Composition.of(PrivateMaxima("lnmax", values["scale"], values["votes"]))
    # One vote moves, so two counts change by one each.
    return Composition.of(Laplace(values["scale"]), 2 * count)


def _confident(values: Values) -> Values:
    votes = {"votes": tuple(map(_top, values["votes"]))} if "votes" in values else {}
    return {
        "k": values["teachers"],
        "threshold": values["threshold"],
        "sigma": values["sigma_screen"],
        "gamma": 1.0,
        **votes,
    }


def _top(row: tuple[float, ...]) -> int:
    return int(max(row))


def _confident_values(
    name: str, values: dict[str, Any], _delta: float, count: int
) -> dict[str, Any]:
    if "answered" in values:
        _checks.integer(f"{name}.answered", values["answered"], least=0, most=count)
    if "votes" not in values:
        if "passed" in values:
            raise InvalidInput(f"The '{name}.passed' parameter belongs to '{name}.votes'.")
        return values
    labels_only(name, values)
    one_row_each(name, values, count)
    if "answered" in values:
        raise InvalidInput(
            f"The '{name}.answered' parameter must be left out where '{name}.votes' is given: say "
            f"which queries passed in '{name}.passed'."
        )
    if any(sum(row) != values["teachers"] or any(n % 1 for n in row) for row in values["votes"]):
        raise InvalidInput(
            f"The '{name}.votes' parameter must hold whole votes, '{name}.teachers' of them, "
            f"{values['teachers']}, in every row."
        )
    if max(values.get("passed", (0,)), default=0) >= count:
        raise InvalidInput(
            f"The '{name}.passed' parameter must hold numbers of queries from 0 to {count - 1}."
        )
    return values


def _passed(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(
            f"The {name!r} parameter must be a list of the numbers of the queries that passed, "
            f"counted from 0. Got {value!r}."
        )
    rows = tuple(_checks.integer(name, row, least=0) for row in value)
    if len(set(rows)) != len(rows):
        raise InvalidInput(f"The {name!r} parameter must name every query once.")
    return rows


def _answered(values: Values, count: int) -> int:
    return int(values.get("answered", count))


def _number(name: str, value: object) -> int:
    return _checks.integer(name, value, least=0)


def _confident_votes(values: Values) -> Values:
    return {"sigma": values["sigma_votes"], "gamma": 1.0, "release": values["release"]}


def _confident_cost(values: Values, count: int) -> Composition:
    screened = screening_cost(_confident(values), count)
    if "votes" in values:
        labels = [values["votes"][row] for row in values.get("passed", range(count))]
        if not labels:
            return screened
        maxima = PrivateMaxima("gnmax", values["sigma_votes"], tuple(labels))
        return screened.add(Composition.of(maxima))
    return screened.add(argmax_cost(_confident_votes(values), _answered(values, count)))


def _confident_witness(values: Values, count: int, order: float) -> Witnesses:
    first = screening_witness(_confident(values), count, order)
    if first is None:
        return None
    answered = _answered(values, count)
    second = argmax_witness(_confident_votes(values), answered, order) if answered else None
    return [*first, *(second or [])]


def _words(values: Values) -> tuple[str, ...]:
    private = (PRIVATE_COST, LABEL_ONLY) if "votes" in values else ()
    label = (LABEL_ONLY,) if values.get("release") == "label" else ()
    stops = (_STOPS,) if "answered" in values else ()
    return tuple(dict.fromkeys((_TEACHERS, *stops, *private, *label)))


def _laplace_scale(name: str, value: object) -> float:
    return _checks.real(name, value, least=1e-3, most=1e6)


def _beta(name: str, value: object) -> float:
    return _checks.real(name, value, above=0, most=4)


LNMAX = Kind(
    fields={"scale": _laplace_scale, "votes": vote_table},
    optional=("votes",),
    complete=_lnmax_values,
    cost=_lnmax_cost,
    worst_case=lambda _values, _count, _order: None,
    assumptions=_words,
)

GNMAX = Kind(
    fields={"sigma": scale, "release": check_release, "votes": vote_table},
    defaults={"release": "votes"},
    optional=("votes",),
    complete=_gnmax_values,
    cost=_gnmax_cost,
    worst_case=_gnmax_witness,
    assumptions=_words,
)

CONFIDENT_GNMAX = Kind(
    fields={
        "teachers": vote_count,
        "threshold": threshold,
        "sigma_screen": scale,
        "sigma_votes": scale,
        "answered": _number,
        "release": check_release,
        "votes": vote_table,
        "passed": _passed,
    },
    defaults={"release": "votes"},
    optional=("answered", "votes", "passed"),
    complete=_confident_values,
    cost=_confident_cost,
    worst_case=_confident_witness,
    assumptions=_words,
)

SMOOTH_RELEASE = Kind(
    fields={"beta": _beta, "sigma": scale},
    cost=lambda values, count: Composition.of(SmoothRelease(**values), count),
    worst_case=lambda _values, _count, _order: None,
    assumptions=lambda _: (
        (
            "a smooth_release publishes one data-dependent cost, at a Renyi order chosen "
            "beforehand, with normal noise of sigma times its beta-smooth sensitivity"
        ),
    ),
)
