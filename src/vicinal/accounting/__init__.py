"""What a release costs. Pure mathematics: no data, no randomness, no input or output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal._lazy import lazy_exports

if TYPE_CHECKING:
    from vicinal.accounting._calibrate import CalibratedPlan, calibrate
    from vicinal.accounting._events import to_event
    from vicinal.accounting._guarantee import Guarantee
    from vicinal.accounting._plan import Plan, account

__all__ = ["CalibratedPlan", "Guarantee", "Plan", "account", "calibrate", "to_event"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    globals(),
    {
        "CalibratedPlan": "vicinal.accounting._calibrate",
        "Guarantee": "vicinal.accounting._guarantee",
        "Plan": "vicinal.accounting._plan",
        "account": "vicinal.accounting._plan",
        "calibrate": "vicinal.accounting._calibrate",
        "to_event": "vicinal.accounting._events",
    },
)
