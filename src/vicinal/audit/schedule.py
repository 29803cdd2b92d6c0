"""Carrying out audits: how long which attack runs, and what its runs prove.

When an honest attack stops does not depend on its scores, so its bounds have the confidence of one
look. A broken version stops as soon as it is caught: it is looked at whenever its runs have
doubled, each time at a part of the failure probability.
"""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import gdp_epsilon
from vicinal.arrays import Floats
from vicinal.audit.claims import LEAST, Claim, RateBounds, rate_bounds, visible_mu
from vicinal.audit.interactions import HONEST, Damage

CONFIDENCE = 1 - 1e-6
"""Of every bound, unless another one is asked for."""


class AuditTrial(ABC):
    """One attack on one `mechanism`: a made-up `world` with and without a subject.

    The mechanism is the installed one with its real noise, unless a damage says otherwise; `claim`
    is what it promises in these worlds, which are made of public things alone. `moved` is the
    Gaussian shift of all that the subject moved, exactly, where sums are known; else 0.
    """

    mechanism: str
    world: str
    claim: Claim
    moved: float = 0.0
    _damages: Mapping[str, Damage] = MappingProxyType({})
    _damage: Damage = HONEST

    @abstractmethod
    def play(self, present: bool) -> Floats:
        """Return the attacker's scores of some independent runs of one world."""

    def controls(self) -> Mapping[str, AuditTrial]:
        versions = {}
        for name, damage in self._damages.items():
            other = versions[name] = copy.copy(self)  # with the claim that is known already
            other._damages, other._damage = {}, damage
            other._prepare()
        return versions

    def _prepare(self) -> None:  # noqa: B027 (most have nothing to prepare)
        """Work out what the scores of this version need."""

    @property
    def overspends(self) -> bool:
        """Whether the subject moved more than was claimed: some charge is missing."""
        return self.moved > self.claim.most_moved


@dataclass(frozen=True)
class ControlResult:
    """What an audit said of a broken version: whether it was put above its claim.

    `lower`, `claim`: in units of a Gaussian shift, of the last look, after so many `runs` of each
    world, which took so many `seconds`.
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
    moved, most_moved : float or None
        The Gaussian shift of all that the subject moved private sums by, exactly and without luck,
        and what the claim allows; None where sums are drawn, not charged.
    controls : tuple of ControlResult
        The same audit on broken versions.
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
    moved: float | None = None
    most_moved: float | None = None
    controls: tuple[ControlResult, ...] = ()

    @property
    def ratio(self) -> float:
        """The lower bound as a share of the claim."""
        return self.lower / self.claim if self.claim > 0 else 0.0

    @property
    def kept(self) -> bool:
        """Whether what was seen agrees with the claim."""
        within = self.moved is None or self.moved <= (self.most_moved or 0.0)
        return within and self.lower <= self.claim and self.epsilon_lower <= self.epsilon_claim

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
            "moved": self.moved,
            "most_moved": self.most_moved,
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
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> from vicinal.audit.schedule import carry_out
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
        return (
            f"{self.runs} runs of each world; a leak of epsilon >= {self.visible_epsilon:.3f} "
            "would have been seen"
        )

    def to_dict(self) -> dict[str, Any]:
        visible = {"mu": self.visible_mu, "epsilon": self.visible_epsilon}
        return {**super().to_dict(), "would_have_seen": visible, "runs": self.runs}


Progress = Callable[[float], None]

CONTROL_SHARE = 0.5
"""Of the time, for all broken versions together, at most."""

LOOKS = 32
"""At a broken version, at most."""


@dataclass
class _Runs:
    """Scores of both worlds of one attack, block by block, and what a block takes."""

    trial: AuditTrial
    progress: Progress | None
    present: list[Floats] = field(default_factory=list)
    absent: list[Floats] = field(default_factory=list)
    seconds: float = 0.0
    block: float = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.absent))

    def play(self) -> None:
        start = time.monotonic()
        self.present.append(self.trial.play(present=True))
        self.absent.append(self.trial.play(present=False))
        self.block = time.monotonic() - start
        self.seconds += self.block
        if self.progress is not None:
            self.progress(self.block)

    def play_on(self, deadline: float, runs: float) -> None:
        while len(self) < LEAST or (time.monotonic() < deadline and len(self) < runs):
            self.play()

    @property
    def weight(self) -> float:
        """A share of the time: the square root of what a run costs.

        Of all shares this makes the sum of the variances least that the runs leave.
        """
        return math.sqrt(self.block / max(1, len(self.absent[-1])))

    def proved(self, confidence: float) -> tuple[RateBounds, float]:
        """Return what the runs so far prove of the trial's claim, see :func:`find_best_test`."""
        present, absent = np.concatenate(self.present), np.concatenate(self.absent)
        return find_best_test(self.trial.claim, present, absent, confidence)


def find_best_test(
    claim: Claim, present: Floats, absent: Floats, confidence: float
) -> tuple[RateBounds, float]:
    """Return the test that comes nearest to the claim, and the least epsilon of any test.

    Of scores (n,) of independent runs in the worlds with and without the subject. The confidence
    is that of both together.
    """
    both = 1 - (1 - confidence) / 2
    nearest = rate_bounds(present, absent, both, lambda rates: _share(rates, claim))
    steepest = rate_bounds(present, absent, both, lambda rates: rates.epsilon(claim.delta))
    return nearest, max(nearest.epsilon(claim.delta), steepest.epsilon(claim.delta))


def carry_out(
    trial: AuditTrial,
    seconds: float,
    confidence: float = CONFIDENCE,
    *,
    runs: float = math.inf,
    controls: bool = True,
    progress: Progress | None = None,
) -> AuditResult:
    """Carry out one trial, see :func:`carry_out_all`."""
    return carry_out_all(
        [trial], seconds, confidence, runs=runs, controls=controls, progress=progress
    )[0]


def carry_out_all(
    trials: Iterable[AuditTrial],
    seconds: float,
    confidence: float = CONFIDENCE,
    *,
    runs: float = math.inf,
    controls: bool = True,
    progress: Progress | None = None,
) -> list[AuditResult]:
    """Run trials and their broken versions for some seconds, and say what they prove.

    Time is shared by the square root of what a run costs, as two blocks of each have shown. What
    broken versions leave over, since they are caught soon, goes to the honest ones.

    Parameters
    ----------
    trials : iterable of AuditTrial
        The attacks.
    seconds : float
        For all of it, making them included; at least two blocks of each world are run whatever
        they take.
    confidence : float
        Of all lower bounds of one result.
    runs : float
        Runs of each world of each attack that are enough, whatever time is left.
    controls : bool
        Whether broken versions are tried at all.
    progress : callable, optional
        Called with seconds just used.

    Examples
    --------
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> from vicinal.audit import carry_out_all
    >>> trial = IndKNNAudit(n_classes=3).votes()
    >>> [result.mechanism for result in carry_out_all([trial], seconds=0.1, controls=False)]
    ['Ind-KNN votes']
    """
    confidence = checks.check_real("confidence", confidence, above=0, below=1)
    start = time.monotonic()
    honest = [_Runs(trial, progress) for trial in trials]
    for played in honest:
        played.play()
        played.play_on(math.inf, min(runs, 2 * len(played)))
    remaining = max(0.0, start + seconds - time.monotonic())
    weights = [played.weight * len(played.trial.controls()) for played in honest]
    parts = _parts(remaining * CONTROL_SHARE, weights)
    broken = [
        _controls(played.trial, part, confidence, runs, progress) if controls else ()
        for played, part in zip(honest, parts, strict=True)
    ]
    remaining = max(0.0, start + seconds - time.monotonic())
    for played, part in zip(honest, _parts(remaining, [f.weight for f in honest]), strict=True):
        played.play_on(time.monotonic() + part, runs)
    return [
        _result(played, confidence, caught) for played, caught in zip(honest, broken, strict=True)
    ]


def _parts(seconds: float, weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [seconds * weight / total if total else 0.0 for weight in weights]


def _controls(
    trial: AuditTrial, seconds: float, confidence: float, runs: float, progress: Progress | None
) -> tuple[ControlResult, ...]:
    broken, end = trial.controls(), time.monotonic() + seconds
    results = []
    for n_left, (name, control) in zip(range(len(broken), 0, -1), broken.items(), strict=True):
        part = max(0.0, end - time.monotonic()) / n_left
        results.append(try_control(name, control, part, confidence, runs, progress))
    return tuple(results)


def try_control(
    name: str,
    control: AuditTrial,
    seconds: float,
    confidence: float = CONFIDENCE,
    runs: float = math.inf,
    progress: Progress | None = None,
) -> ControlResult:
    """Run a broken version until it is caught, or its seconds or runs are over."""
    control_runs, deadline = _Runs(control, progress), time.monotonic() + seconds
    each = 1 - (1 - confidence) / LOOKS
    while True:
        control_runs.play_on(math.inf, max(1, 2 * len(control_runs)))
        rates, epsilon = control_runs.proved(each)
        claim = control.claim.allowed(rates)
        caught = rates.mu > claim or epsilon > control.claim.epsilon() or control.overspends
        if caught or time.monotonic() >= deadline or len(control_runs) >= runs:
            return ControlResult(
                name, caught, rates.mu, claim, len(control_runs), control_runs.seconds
            )


def _share(rates: RateBounds, claim: Claim) -> float:
    if rates.mu <= 0 or not 0 < rates.false_alarms < 1:
        return -1.0
    allowed = claim.allowed(rates)
    return rates.mu / allowed if allowed > 0 else float("inf")


def _result(played: _Runs, confidence: float, controls: tuple[ControlResult, ...]) -> AuditResult:
    rates, epsilon = played.proved(confidence)
    trial, runs = played.trial, len(played)
    claim, delta = trial.claim.allowed(rates), trial.claim.delta
    visible = visible_mu(claim, runs, 1 - (1 - confidence) / 2)
    return AuditResult(
        mechanism=trial.mechanism,
        world=trial.world,
        rates=rates,
        claim=claim,
        lower=rates.mu,
        epsilon_claim=trial.claim.epsilon(),
        epsilon_lower=epsilon,
        delta=delta,
        visible_mu=visible,
        visible_epsilon=gdp_epsilon(visible, delta),
        confidence=confidence,
        runs=runs,
        seconds=played.seconds,
        moved=trial.moved or None,
        most_moved=trial.claim.most_moved if trial.moved else None,
        controls=controls,
    )
