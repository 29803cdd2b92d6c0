"""Two worlds that an attacker must tell apart, and what many runs of them prove."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vicinal.audit._bounds import Floats, RateBounds
from vicinal.audit._claims import Claim

CONFIDENCE = 1 - 1e-6
"""Of every bound, unless another one is asked for."""


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


@dataclass(frozen=True)
class ControlResult:
    """What an audit said of a broken version.

    Attributes
    ----------
    name : str
        What is broken.
    caught : bool
        Whether it was put above its claim.
    lower, claim : float
        In units of a Gaussian shift, of the last look.
    runs : int
        Runs of each world until then.
    seconds : float
        They took.
    """

    name: str
    caught: bool
    lower: float
    claim: float
    runs: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name, "caught": self.caught, "lower": self.lower, "claim": self.claim,
            "runs": self.runs, "seconds": self.seconds,
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
            "kept": self.kept,
            "epsilon": {
                "claim": self.epsilon_claim, "lower": self.epsilon_lower, "delta": self.delta,
            },
            "would_have_seen": {"mu": self.visible_mu, "epsilon": self.visible_epsilon},
            "runs": self.runs,
            "seconds": self.seconds,
            "controls": [control.to_dict() for control in self.controls],
        }  # fmt: skip
