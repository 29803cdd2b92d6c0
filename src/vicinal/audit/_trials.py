"""Two worlds that an attacker must tell apart, and what many runs of them prove."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Self

from vicinal._arrays import Floats
from vicinal.audit._bounds import RateBounds
from vicinal.audit._claims import Claim
from vicinal.audit._damage import HONEST, Damage

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

    Examples
    --------
    >>> from vicinal.audit import IndKNNAudit
    >>> trial = IndKNNAudit(n_classes=3).votes()
    >>> trial.play(present=True).shape[0] == trial.play(present=False).shape[0]
    True
    """

    mechanism: str
    world: str
    claim: Claim
    _damages: Mapping[str, Damage] = MappingProxyType({})
    _damage: Damage = HONEST

    @abstractmethod
    def play(self, present: bool) -> Floats:
        """Return the attacker's scores of some independent runs of one world."""

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on broken versions, by what is broken."""
        return {name: self._broken(damage) for name, damage in self._damages.items()}

    def _broken(self, damage: Damage) -> Self:
        """Return this attack on a broken version, with the claim that is known already."""
        other = copy.copy(self)
        other._damages, other._damage = {}, damage
        other._prepare()
        return other

    def _prepare(self) -> None:  # noqa: B027 (most have nothing to prepare)
        """Work out what the scores of this version need."""


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

    Examples
    --------
    >>> from vicinal.audit import ControlResult
    >>> result = ControlResult("noise halved", True, lower=0.8, claim=0.5, runs=4096, seconds=2)
    >>> result.caught
    True
    """

    name: str
    caught: bool
    lower: float
    claim: float
    runs: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """What one audit proves of one claim.

    Attributes
    ----------
    mechanism, world : str
        What was attacked, and how.
    claim, lower : float
        In units of a Gaussian shift (mu), at the test that was made.
    epsilon_claim, epsilon_lower, delta : float
        The claim as epsilon at delta, and the least epsilon at delta that was proved.
    confidence : float
        Of the lower bounds.
    seconds : float
        It took.
    controls : tuple of ControlResult
        The same audit on broken versions.

    Examples
    --------
    >>> from vicinal.audit import AuditFinding
    >>> finding = AuditFinding(
    ...     mechanism="Gaussian",
    ...     world="a lone person",
    ...     claim=0.5,
    ...     lower=0.45,
    ...     epsilon_claim=1.96,
    ...     epsilon_lower=1.7,
    ...     delta=1e-5,
    ...     confidence=0.999,
    ...     seconds=60,
    ... )
    >>> finding.ratio, finding.kept
    (0.9, True)
    """

    mechanism: str
    world: str
    claim: float
    lower: float
    epsilon_claim: float
    epsilon_lower: float
    delta: float
    confidence: float
    seconds: float
    controls: tuple[ControlResult, ...] = ()

    @property
    def ratio(self) -> float:
        """The lower bound as a share of the claim."""
        return self.lower / self.claim if self.claim > 0 else 0.0

    @property
    def kept(self) -> bool:
        """Whether what was seen agrees with the claim."""
        return self.lower <= self.claim and self.epsilon_lower <= self.epsilon_claim

    @property
    def conclusive(self) -> bool:
        """Whether every broken version was caught; where not, there were too few runs."""
        return all(control.caught for control in self.controls)

    @property
    def holds(self) -> bool:
        """Whether the claim was kept, and every broken version was caught."""
        return self.kept and self.conclusive

    @property
    @abstractmethod
    def power(self) -> str:
        """What was run, and what it would have seen, in words."""

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
            "seconds": self.seconds,
            "controls": [asdict(control) for control in self.controls],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AuditResult(AuditFinding):
    """What the runs of one trial prove about one claim.

    Attributes
    ----------
    rates : RateBounds
        The test, and what its rates are at least and at most.
    visible_mu, visible_epsilon : float
        A mechanism this leaky would have been put above its claim with probability .95.
    runs : int
        Runs of each world.

    Examples
    --------
    >>> from vicinal.audit import IndKNNAudit, carry_out
    >>> result = carry_out(IndKNNAudit(n_classes=3).votes(), seconds=0.1, controls=False)
    >>> result.lower <= result.claim
    True
    """

    rates: RateBounds
    visible_mu: float
    visible_epsilon: float
    runs: int

    @property
    def power(self) -> str:
        """Runs, and the least leak that they would have shown."""
        return (
            f"{self.runs} runs of each world; a leak of epsilon >= {self.visible_epsilon:.3f} "
            "would have been seen"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        visible = {"mu": self.visible_mu, "epsilon": self.visible_epsilon}
        return {**super().to_dict(), "would_have_seen": visible, "runs": self.runs}
