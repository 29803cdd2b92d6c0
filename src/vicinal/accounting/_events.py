"""A bridge to and from the events of dp-accounting (extra ``events``), for what both know.

Guarded, because an event is a bag of numbers that nobody has checked: NaN and infinities are
refused (its RDP accountant returns epsilon 0 for a Gaussian of sigma NaN), so is every event whose
meaning here is not certain (an exponential mechanism among them, whose count some versions drop),
and so is every neighbouring relation but adding or removing one subject.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vicinal import _checks
from vicinal._lazy import of_extra
from vicinal.accounting._composition import Composition, PricedRelease, Zcdp, compose
from vicinal.accounting._gaussian import Laplace, SubsampledGaussian
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ADD_OR_REMOVE_ONE = "ADD_OR_REMOVE_ONE"
_NEEDED_BY = "An event of dp-accounting"


def to_event(composition: Composition) -> DpEvent:
    """Return `composition` as one event of dp-accounting, for add/remove-one neighbours.

    Raises
    ------
    InvalidInput
        If a release has no exact counterpart there (a screening, a label alone).

    Examples
    --------
    >>> from vicinal.accounting import Plan, to_event
    >>> release = {"kind": "gaussian", "sigma": 5.0, "count": 1}
    >>> plan = Plan.from_dict({"delta": 1e-5, "releases": [release]})
    >>> type(to_event(plan.composition())).__name__
    'ComposedDpEvent'
    """
    events = of_extra("events", "dp_accounting", _NEEDED_BY)
    parts = [
        events.SelfComposedDpEvent(_event_of(release, events), count)
        for release, count in composition.terms
    ]
    return events.ComposedDpEvent(parts)


def from_event(event: DpEvent, neighbouring: object = ADD_OR_REMOVE_ONE) -> Composition:
    """Return the composition that an event of dp-accounting stands for.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        Built of no-op, Gaussian, Laplace and zCDP (xi = 0) events, Poisson samples of Gaussians,
        repetitions and lists.
    neighbouring : str or dp_accounting.NeighboringRelation
        The relation that the event was stated for: add or remove one, nothing else.

    Raises
    ------
    InvalidInput
        For anything else, and for parameters that are not finite or out of bounds.

    Examples
    --------
    >>> from dp_accounting import GaussianDpEvent
    >>> from vicinal.accounting import from_event
    >>> round(from_event(GaussianDpEvent(5.0)).least_epsilon(1e-5), 2)
    0.73
    """
    relation = getattr(neighbouring, "name", neighbouring)
    _checks.choice("neighbouring", relation, (ADD_OR_REMOVE_ONE,))
    of_extra("events", "dp_accounting", _NEEDED_BY)
    name = type(event).__name__
    if name not in _READERS:
        raise InvalidInput(
            f"The 'event' parameter holds a {name}, whose cost is not known here. Known: "
            f"{', '.join(_READERS)}."
        )
    return _READERS[name](event)


def _event_of(release: PricedRelease, events: Any) -> DpEvent:
    event: DpEvent
    if isinstance(release, SubsampledGaussian):
        event = events.GaussianDpEvent(release.sigma)
        if release.gamma < 1:
            event = events.PoissonSampledDpEvent(release.gamma, event)
        return event
    if isinstance(release, Laplace):
        event = events.LaplaceDpEvent(release.scale)
        return event
    if isinstance(release, Zcdp):
        event = events.ZCDpEvent(release.rho)
        return event
    raise InvalidInput(
        f"The 'composition' parameter holds a {type(release).__name__}, which has no exact "
        "counterpart among the events of dp-accounting."
    )


def _noise(event: Any) -> float:
    return _checks.real("noise_multiplier", event.noise_multiplier, above=0)


def _zcdp(event: Any) -> Composition:
    _checks.real("xi", event.xi, least=0, most=0)
    return Composition.of(Zcdp(_checks.real("rho", event.rho, least=0)))


def _poisson(event: Any) -> Composition:
    """Return a Poisson sample of Gaussians; several on one sample are one of larger shift."""
    gamma = _checks.real("sampling_probability", event.sampling_probability, least=0, most=1)
    inner = from_event(event.event)
    squares = []
    for release, count in inner.terms:
        if not (isinstance(release, SubsampledGaussian) and release.gamma == 1):
            raise InvalidInput(
                "The 'event' parameter samples something that is not Gaussian, whose cost is not "
                "known here."
            )
        squares.append(count / release.sigma**2)
    if gamma == 0 or not squares:
        return Composition()
    return Composition.of(SubsampledGaussian(1 / math.sqrt(math.fsum(squares)), gamma))


_READERS: dict[str, Callable[[Any], Composition]] = {
    "NoOpDpEvent": lambda _: Composition(),
    "GaussianDpEvent": lambda event: Composition.of(SubsampledGaussian(_noise(event))),
    "LaplaceDpEvent": lambda event: Composition.of(Laplace(_noise(event))),
    "ZCDpEvent": _zcdp,
    "SelfComposedDpEvent": lambda event: from_event(event.event).repeat(event.count),
    "ComposedDpEvent": lambda event: compose(from_event(part) for part in event.events),
    "PoissonSampledDpEvent": _poisson,
}
