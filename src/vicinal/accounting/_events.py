"""Compositions as events of dp-accounting (extra ``events``), for what both know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vicinal._lazy import of_extra
from vicinal.accounting._composition import Composition, PricedRelease, Zcdp
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from dp_accounting import DpEvent


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
    events = of_extra("events", "dp_accounting", "An event of dp-accounting")
    parts = [
        events.SelfComposedDpEvent(_event_of(release, events), count)
        for release, count in composition.terms
    ]
    return events.ComposedDpEvent(parts)


def _event_of(release: PricedRelease, events: Any) -> DpEvent:
    event: DpEvent
    if isinstance(release, SubsampledGaussian):
        event = events.GaussianDpEvent(release.sigma)
        if release.gamma < 1:
            event = events.PoissonSampledDpEvent(release.gamma, event)
        return event
    if isinstance(release, Zcdp):
        event = events.ZCDpEvent(release.rho)
        return event
    raise InvalidInput(
        f"The 'composition' parameter holds a {type(release).__name__}, which has no exact "
        "counterpart among the events of dp-accounting."
    )
