"""Kinds of Private-kNN: screening, noisy maximum, multi-label votes, and a plain Gaussian."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from vicinal.accounting import _label_vectors
from vicinal.accounting._certificate import gaussian_worst_case, threshold_worst_case
from vicinal.accounting._composition import Composition, compose
from vicinal.accounting._label_release import NoisyLabel
from vicinal.accounting._screening import Screening, ScreeningAt
from vicinal.accounting._subsampled import SubsampledGaussian
from vicinal.accounting.kinds._base import (
    KNOWN_COINS,
    LABEL_ONLY,
    ONE_OF_K,
    POISSON,
    PRIVATE_COST,
    Kind,
    Values,
    Witnesses,
    check_release,
    classes,
    largest_votes,
    one_row_each,
    positive,
    rate,
    scale,
    threshold,
    vote_count,
)
from vicinal.errors import InvalidInput

_VOTES_SENSITIVITY = math.nextafter(math.sqrt(2), 2)


def _screening(values: Values) -> Screening:
    return Screening(values["k"], values["threshold"], values["sigma"], values["gamma"])


def screening_cost(values: Values, count: int) -> Composition:
    """Return what `count` screening answers cost."""
    if "votes" not in values:
        return Composition.of(_screening(values), count)
    fixed = (values["k"], values["threshold"], values["sigma"])
    times: Counter[int] = Counter(values["votes"])
    answers = count if len(values["votes"]) == 1 else 1
    return compose(Composition.of(ScreeningAt(t, *fixed), answers * n) for t, n in times.items())


def _screening_values(
    name: str, values: dict[str, Any], _delta: float, count: int
) -> dict[str, Any]:
    if "votes" in values:
        if max(values["votes"]) > values["k"]:
            raise InvalidInput(
                f"The '{name}.votes' parameter must not exceed '{name}.k', {values['k']}."
            )
        if len(values["votes"]) > 1:
            one_row_each(name, values, count)
        if values["gamma"] != 1:
            raise InvalidInput(
                f"The '{name}.gamma' parameter must be 1 where '{name}.votes' is given: a "
                "data-dependent cost must not be amplified by sampling."
            )
    return values


def screening_witness(values: Values, count: int, order: float) -> Witnesses:
    """Return `count` answers at the votes that are worst at this `order`."""
    if "votes" in values:
        return None
    screening = _screening(values)
    votes, sign = screening.worst_votes(order)
    position = sign * (votes - screening.threshold) / screening.sigma
    return [threshold_worst_case(position, 1 / screening.sigma, screening.gamma, count)]


def _screening_words(values: Values) -> tuple[str, ...]:
    private = (PRIVATE_COST,) if "votes" in values else ()
    return (ONE_OF_K, *private, *_sampling_words(values))


def _sampling_words(values: Values) -> tuple[str, ...]:
    return (POISSON, KNOWN_COINS) if values.get("gamma", 1) < 1 else ()


SCREENING = Kind(
    fields={
        "k": vote_count,
        "classes": classes,
        "threshold": threshold,
        "sigma": scale,
        "gamma": rate,
        "votes": largest_votes,
    },
    defaults={"gamma": 1.0},
    optional=("classes", "votes"),
    complete=_screening_values,
    cost=screening_cost,
    worst_case=screening_witness,
    assumptions=_screening_words,
)


def _gaussian(values: Values) -> SubsampledGaussian:
    return SubsampledGaussian(values["sigma"] / values["sensitivity"], values["gamma"])


def _noisy_max(values: Values) -> SubsampledGaussian:
    return SubsampledGaussian(values["sigma"] / _VOTES_SENSITIVITY, values["gamma"])


def _multilabel(values: Values) -> SubsampledGaussian:
    return _label_vectors.multilabel(values["tau"], values["sigma"], values["gamma"])


def full_step(release: SubsampledGaussian, count: int) -> Witnesses:
    """Return `count` Gaussian releases that a subject moves by the whole sensitivity."""
    return [gaussian_worst_case(1 / release.sigma, release.gamma, count)]


GAUSSIAN = Kind(
    fields={"sigma": scale, "sensitivity": positive, "gamma": rate},
    defaults={"sensitivity": 1.0, "gamma": 1.0},
    cost=lambda values, count: Composition.of(_gaussian(values), count),
    worst_case=lambda values, count, _: full_step(_gaussian(values), count),
    assumptions=lambda values: (
        "one subject moves a Gaussian release by at most its sensitivity, in the Euclidean norm",
        *_sampling_words(values),
    ),
)


def argmax_cost(values: Values, count: int) -> Composition:
    """Return what `count` noisy maxima cost, with or without the votes."""
    if values["release"] == "votes":
        return Composition.of(_noisy_max(values), count)
    label = NoisyLabel(values["sigma"], values["gamma"], values.get("classes"))
    return Composition.of(label, count)


def argmax_witness(values: Values, count: int, _order: float) -> Witnesses:
    """Return `count` noisy maxima between two classes that the subject moves apart."""
    if values["release"] == "votes":
        return full_step(_noisy_max(values), count)
    # Two classes, the one leading by a vote: one in and one out make the other one lead by a vote.
    half = 1 / (values["sigma"] * _VOTES_SENSITIVITY)
    return [threshold_worst_case(-half, 2 * half, values["gamma"], count)]


def _argmax_words(values: Values) -> tuple[str, ...]:
    label = () if values["release"] == "votes" else (LABEL_ONLY,)
    return (ONE_OF_K, *label, *_sampling_words(values))


NOISY_MAX = Kind(
    fields={"sigma": scale, "gamma": rate, "release": check_release, "classes": classes},
    defaults={"gamma": 1.0, "release": "votes"},
    optional=("classes",),
    cost=argmax_cost,
    worst_case=argmax_witness,
    assumptions=_argmax_words,
)

MULTILABEL = Kind(
    fields={"tau": positive, "sigma": scale, "gamma": rate},
    defaults={"gamma": 1.0},
    cost=lambda values, count: Composition.of(_multilabel(values), count),
    worst_case=lambda values, count, _: full_step(_multilabel(values), count),
    assumptions=lambda values: (
        ONE_OF_K,
        (
            "every neighbour's label vector is scaled to an L1 norm of at most tau, entries of 0 "
            "stay 0, and noise is added to every attribute"
        ),
        "the lower bound takes two neighbours with tau labels each and none in common",
        *_sampling_words(values),
    ),
)
