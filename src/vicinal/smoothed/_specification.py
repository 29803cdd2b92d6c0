"""Mechanisms and populations from plain values, as a JSON file holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vicinal.errors import InvalidInput
from vicinal.smoothed._average import Average
from vicinal.smoothed._composition import NamedMechanism, compose
from vicinal.smoothed._knn import KNNVotes
from vicinal.smoothed._mechanism import Histogram, Mechanism
from vicinal.smoothed._populations import Heterogeneous, Hull, Interval, Population, Vertices
from vicinal.smoothed._radius import RadiusVotes
from vicinal.smoothed._samplers import FixedSize, Poisson, Sampler, WithReplacement
from vicinal.smoothed._winner import Winner

Spec = dict[str, Any]


def sampler_of(spec: object) -> Sampler:
    """Return a sampler: {"kind": "fixed_size", "size": 99}, "poisson" or "with_replacement"."""
    return _built("sampler", spec, _SAMPLERS)  # type: ignore[no-any-return]


def mechanism_of(spec: object) -> Mechanism:
    """Return a mechanism.

    {"kind": "histogram", "sampler": ...}, "winner" (rule, sampler, profile, ties), "average"
    (levels, size, rounding), "radius_votes" (gamma, classes), "knn_votes" (k, gamma, classes), or
    "composition" (releases: a list of {"mechanism": ..., "coins": name}).

    Raises
    ------
    InvalidInput
        If the kind is unknown, or a field is missing, unknown or not usable.
    PrivacyRefused
        If two releases of a composition share their coins.
    """
    return _built("mechanism", spec, _MECHANISMS)  # type: ignore[no-any-return]


def population_of(spec: object) -> Population:
    """Return a population: "vertices" (rows), "hull" (points), "interval" or "heterogeneous"."""
    return _built("population", spec, _POPULATIONS)  # type: ignore[no-any-return]


def _built(name: str, spec: object, kinds: dict[str, Callable[..., Any]]) -> Any:
    if not isinstance(spec, dict) or spec.get("kind") not in kinds:
        known = ", ".join(repr(kind) for kind in kinds)
        raise InvalidInput(
            f"The {name!r} parameter must be an object whose kind is one of {known}."
        )
    fields = {key: value for key, value in spec.items() if key != "kind"}
    try:
        return kinds[spec["kind"]](**fields)
    except TypeError:
        raise InvalidInput(
            f"The {name!r} parameter of kind {spec['kind']!r} has missing or unknown fields, or "
            f"values of the wrong type. Got the fields {sorted(fields)}."
        ) from None


def _histogram(sampler: object) -> Histogram:
    return Histogram(sampler_of(sampler))


def _winner(rule: str, sampler: object, profile: Any = None, ties: str = "random") -> Winner:
    return Winner(rule, sampler_of(sampler), profile, ties)


def _composition(releases: list[Spec]) -> Mechanism:
    return compose([NamedMechanism(mechanism_of(r["mechanism"]), r["coins"]) for r in releases])  # type: ignore[arg-type]


def _heterogeneous(groups: list[Spec]) -> Heterogeneous:
    return Heterogeneous([(group["count"], group["distribution"]) for group in groups])


_SAMPLERS: dict[str, Callable[..., Any]] = {
    "fixed_size": FixedSize,
    "poisson": Poisson,
    "with_replacement": WithReplacement,
}
_MECHANISMS: dict[str, Callable[..., Any]] = {
    "histogram": _histogram,
    "winner": _winner,
    "average": Average,
    "radius_votes": RadiusVotes,
    "knn_votes": KNNVotes,
    "composition": _composition,
}
_POPULATIONS: dict[str, Callable[..., Any]] = {
    "vertices": Vertices,
    "hull": Hull,
    "interval": Interval,
    "heterogeneous": _heterogeneous,
}
