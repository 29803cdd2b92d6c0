"""How many answers were used, and when: for the console's plot. All of it is public.

Samples are of this process and in its memory; a restart begins anew.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

MOST = 240
"""Samples of an audience at most; beyond it every second of the older ones goes."""


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Answers used at a time, and the share of a budget that public points have used up."""

    at: float
    used: int
    wear: float | None


@dataclass(eq=False)
class UsageLog:
    """Samples by audience, oldest first; equal ones in a row are kept once, with their end."""

    _samples: dict[str, list[UsageSample]] = field(default_factory=dict)

    def note(self, audience: str, used: int, wear: float | None, at: float | None = None) -> None:
        """Add a sample, at present unless `at` (seconds since 1970) is given."""
        samples = self._samples.setdefault(audience, [])
        sample = UsageSample(time.time() if at is None else at, used, wear)
        if len(samples) > 1 and samples[-1].used == samples[-2].used == used:
            samples.pop()
        samples.append(sample)
        if len(samples) > MOST:
            samples[1:-1] = samples[1:-1:2]

    def of(self, audience: str) -> list[dict[str, Any]]:
        """Return the samples of an audience as JSON has them."""
        return [
            {"at": sample.at, "used": sample.used, "wear": sample.wear}
            for sample in self._samples.get(audience, ())
        ]
