"""Two worlds that an attacker must tell apart, and what many runs of them prove."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.accounting._budget import gdp_epsilon
from vicinal.audit._bounds import LEAST, Floats, RateBounds, rate_bounds, visible_mu
from vicinal.audit._claims import Claim
from vicinal.mechanisms import NoiseSource, randomness

CONFIDENCE = 1 - 1e-6
"""Of every bound, unless another one is asked for."""

_HONEST_SHARE = 0.5  # of the time; the broken versions share the rest

Labels = npt.NDArray[np.int64]
Progress = Callable[[float], None]


class AuditTrial(ABC):
    """One attack on one mechanism: made-up worlds with and without a subject.

    The mechanism is the installed one with its real noise, unless a damage says otherwise. Worlds
    are made of public things alone.

    Attributes
    ----------
    mechanism, world : str
        What is attacked, and where the subject stands.
    claim : Claim
        What the mechanism promises in these worlds.
    """

    mechanism: str
    world: str
    claim: Claim

    @abstractmethod
    def play(self, present: bool) -> Floats:
        """Return the attacker's scores of some independent runs of one world."""

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on broken versions, by what is broken."""
        return {}


class WeakerNoise(NoiseSource):
    """A part of the noise that was paid for: a broken version, for audits to catch.

    Parameters
    ----------
    divisor : int
        Noise scales are divided by it.
    """

    exact = False

    def __init__(self, divisor: int = 2) -> None:
        self._divisor = divisor
        self._noise = randomness()

    def discrete_gaussian(self, scale: int, size: int) -> Labels:
        """Return exact draws at a smaller scale."""
        return self._noise.discrete_gaussian(max(1, scale // self._divisor), size)

    def discrete_laplace(self, scale: int, size: int) -> Labels:
        """Return exact draws at a smaller scale."""
        return self._noise.discrete_laplace(max(1, scale // self._divisor), size)


@dataclass(frozen=True)
class ControlResult:
    """What an audit said of a broken version."""

    name: str
    caught: bool
    lower: float
    claim: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name, "caught": self.caught, "lower": self.lower, "claim": self.claim,
        }  # fmt: skip


@dataclass(frozen=True)
class AuditResult:
    """What the runs of one trial prove about one claim.

    Attributes
    ----------
    mechanism, world : str
        What was attacked, and how.
    rates : RateBounds
        The test, and what its rates are at least and at most.
    claim, lower : float
        In units of a Gaussian shift (mu), at the rate of false alarms that was tested.
    epsilon_claim, epsilon_lower, delta : float
        The claim as epsilon at delta, and the least epsilon at delta that these runs allow.
    visible_mu, visible_epsilon : float
        A mechanism this leaky would have been put above its claim with probability .95.
    confidence : float
        Of all lower bounds of this result together.
    runs : int
        Runs of each world.
    seconds : float
        They took.
    controls : tuple of ControlResult
        The same audit on broken versions.
    """

    mechanism: str
    world: str
    rates: RateBounds
    claim: float
    lower: float
    epsilon_claim: float
    epsilon_lower: float
    delta: float
    visible_mu: float
    visible_epsilon: float
    confidence: float
    runs: int
    seconds: float
    controls: tuple[ControlResult, ...] = ()

    @property
    def ratio(self) -> float:
        """The lower bound as a share of the claim."""
        return self.lower / self.claim if self.claim > 0 else 0.0

    @property
    def kept(self) -> bool:
        """Whether the runs agree with the claim."""
        return self.lower <= self.claim and self.epsilon_lower <= self.epsilon_claim

    @property
    def conclusive(self) -> bool:
        """Whether every broken version was caught; where not, there were too few runs."""
        return all(control.caught for control in self.controls)

    @property
    def holds(self) -> bool:
        """Whether the runs agree with the claim, and every broken version was caught."""
        return self.kept and self.conclusive

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {
            "mechanism": self.mechanism,
            "world": self.world,
            "unit": "mu",
            "claim": self.claim,
            "lower": self.lower,
            "confidence": self.confidence,
            "ratio": self.ratio,
            "kept": self.lower <= self.claim and self.epsilon_lower <= self.epsilon_claim,
            "epsilon": {
                "claim": self.epsilon_claim, "lower": self.epsilon_lower, "delta": self.delta,
            },
            "would_have_seen": {"mu": self.visible_mu, "epsilon": self.visible_epsilon},
            "runs": self.runs,
            "seconds": self.seconds,
            "controls": [control.to_dict() for control in self.controls],
        }  # fmt: skip


@dataclass
class _Runs:
    """Scores of both worlds, block by block."""

    present: list[Floats] = field(default_factory=list)
    absent: list[Floats] = field(default_factory=list)

    def add(self, trial: AuditTrial) -> None:
        self.present.append(trial.play(present=True))
        self.absent.append(trial.play(present=False))

    def __len__(self) -> int:
        return sum(map(len, self.absent))


def carry_out(
    trial: AuditTrial,
    seconds: float,
    confidence: float = CONFIDENCE,
    *,
    runs: int | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Run a trial and its broken versions for some seconds, and say what it proves.

    When it stops does not depend on what the runs say, so the confidence is that of one look.

    Parameters
    ----------
    trial : AuditTrial
        The attack.
    seconds : float
        For all of it; at least one block of each world is run whatever it takes.
    confidence : float
        Of the lower bounds.
    runs : int, optional
        Runs of each world, honest or broken, at least; then no time is kept.
    progress : callable, optional
        Called with seconds just used.
    """
    controls = trial.controls()
    share = _HONEST_SHARE if controls else 1.0
    found = _played(trial, seconds * share, runs, progress)
    left = seconds * (1 - share) / max(1, len(controls))
    broken = tuple(
        _control(name, control, _played(control, left, runs, progress)[0], confidence)
        for name, control in controls.items()
    )
    return _result(trial, *found, confidence, broken)


def _played(
    trial: AuditTrial, seconds: float, runs: int | None, progress: Progress | None
) -> tuple[_Runs, float]:
    found, start = _Runs(), time.monotonic()
    while True:
        before = time.monotonic()
        found.add(trial)
        now = time.monotonic()
        if progress is not None:
            progress(now - before)
        enough = now - start >= seconds if runs is None else len(found) >= runs
        if enough and len(found) >= LEAST:
            return found, now - start


def _rates(trial: AuditTrial, found: _Runs, confidence: float) -> tuple[RateBounds, float]:
    """Return the test that comes nearest to the claim, and the least epsilon of another one."""
    present, absent = np.concatenate(found.present), np.concatenate(found.absent)
    both = 1 - (1 - confidence) / 2
    nearest = rate_bounds(present, absent, both, lambda rates: _share(rates, trial.claim))
    delta = trial.claim.delta
    steepest = rate_bounds(present, absent, both, lambda rates: rates.epsilon(delta))
    return nearest, max(nearest.epsilon(delta), steepest.epsilon(delta))


def _share(rates: RateBounds, claim: Claim) -> float:
    """Return the lower bound as a share of the claim, where rates allow any."""
    if rates.mu <= 0 or not 0 < rates.false_alarms < 1:
        return -1.0
    allowed = claim.mu(rates.false_alarms)
    return rates.mu / allowed if allowed > 0 else float("inf")


def _result(
    trial: AuditTrial,
    found: _Runs,
    seconds: float,
    confidence: float,
    controls: Sequence[ControlResult],
) -> AuditResult:
    rates, epsilon = _rates(trial, found, confidence)
    claim, delta = trial.claim.mu(rates.false_alarms), trial.claim.delta
    seen = visible_mu(claim, len(found), 1 - (1 - confidence) / 2)
    return AuditResult(
        trial.mechanism, trial.world, rates, claim, rates.mu, trial.claim.epsilon(), epsilon,
        delta, seen, gdp_epsilon(seen, delta), confidence, len(found), seconds, tuple(controls),
    )  # fmt: skip


def _control(name: str, control: AuditTrial, found: _Runs, confidence: float) -> ControlResult:
    rates, epsilon = _rates(control, found, confidence)
    claim = control.claim.mu(rates.false_alarms)
    caught = rates.mu > claim or epsilon > control.claim.epsilon()
    return ControlResult(name, bool(caught), rates.mu, claim)
