"""Execution of audits: the time given to each attack, and the bounds that follow from its runs.

The number of runs of an attack on the installed version does not depend on its scores, so its
bounds need no correction for repeated testing. A control, which has an injected fault, stops as
soon as it is caught: it is tested whenever its number of runs has doubled, each time with an equal
share of the failure probability.
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
from vicinal.audit.claims import MIN_RUNS, Claim, RateBounds, bound_rates, find_detectable_mu
from vicinal.audit.interactions import NO_FAULT, InjectedFault

CONFIDENCE = 1 - 1e-6
"""Default confidence of all lower bounds of one result."""


class AuditTrial(ABC):
    """An attack on one mechanism, in a made-up world with and without a subject.

    The attacker is a distinguisher: it assigns a score to each run, and large scores suggest that
    the subject is present. The mechanism is the installed one with its real noise, unless a fault
    is injected. The worlds are made from public facts alone.

    - `mechanism`, `world`: names of the mechanism and of the world, for reports.
    - `claim`: the guarantee that the mechanism states for these worlds.
    - `moved`: total shift of the private sums by the subject, as mu, computed exactly; 0 if the
      sums are random and the shift is unknown.
    """

    mechanism: str
    world: str
    claim: Claim
    moved: float = 0.0
    _faults: Mapping[str, InjectedFault] = MappingProxyType({})
    _fault: InjectedFault = NO_FAULT

    @abstractmethod
    def play(self, present: bool) -> Floats:
        """Return the attacker's scores of independent runs in one world, float64 (runs,)."""

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on a version with each injected fault, by the fault's name."""
        controls = {}
        for name, fault in self._faults.items():
            # A shallow copy shares the claim, which is expensive to compute.
            control = copy.copy(self)
            controls[name] = control
            control._faults = {}
            control._fault = fault
            control._prepare()
        return controls

    def _prepare(self) -> None:  # noqa: B027 (most attacks have no state to compute)
        """Compute the state that depends on the injected fault."""

    @property
    def overspends(self) -> bool:
        """Whether the exact shift of the private sums exceeds the claim: a charge is missing."""
        return self.moved > self.claim.most_moved


@dataclass(frozen=True)
class ControlResult:
    """Result of a control: an audit of a version with an injected fault.

    - `name`: name of the fault.
    - `caught`: whether the audit refuted the claim, as it must.
    - `lower`, `claim`: lower bound on mu and the claimed mu at the last test.
    - `runs`: runs of each world until the last test; canaries in an audit with one run.
    - `seconds`: duration of these runs.
    """

    name: str
    caught: bool
    lower: float
    claim: float
    runs: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """Result of one audit: lower bounds on the privacy loss of a mechanism, beside its claim.

    Attributes
    ----------
    mechanism, world : str
        Names of the attacked mechanism and of the made-up world.
    claim, lower : float
        The claimed mu and the lower bound on mu, both at the rates of the selected test.
    epsilon_claim, epsilon_lower, delta : float
        The claimed epsilon at delta, and the lower bound on epsilon at delta.
    confidence : float
        Confidence of the lower bounds.
    seconds : float
        Duration of the audit.
    moved, most_moved : float or None
        Exact total shift of the private sums by the subject, as mu, and the largest shift that the
        claim permits; None if the mechanism samples records and charges no budgets.
    controls : tuple of ControlResult
        Results of the same audit on versions with injected faults.
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
        """The lower bound on mu as a share of the claimed mu."""
        return self.lower / self.claim if self.claim > 0 else 0.0

    @property
    def kept(self) -> bool:
        """Whether the claim is not refuted, neither by the exact shift nor by a lower bound."""
        is_shift_permitted = self.moved is None or self.moved <= (self.most_moved or 0.0)
        are_bounds_permitted = self.lower <= self.claim and self.epsilon_lower <= self.epsilon_claim
        return is_shift_permitted and are_bounds_permitted

    @property
    def conclusive(self) -> bool:
        """Whether every injected fault was detected. If not, there were too few runs."""
        return all(control.caught for control in self.controls)

    @property
    def holds(self) -> bool:
        """Whether the claim is not refuted and every injected fault was detected."""
        return self.kept and self.conclusive

    @property
    @abstractmethod
    def power(self) -> str:
        """Sentence for reports: the size of the audit, and the leak that it would have detected."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
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
                "claim": self.epsilon_claim,
                "lower": self.epsilon_lower,
                "delta": self.delta,
            },
            "seconds": self.seconds,
            "moved": self.moved,
            "most_moved": self.most_moved,
            "controls": [asdict(control) for control in self.controls],
        }


@dataclass(frozen=True, kw_only=True)
class AuditResult(AuditFinding):
    """Result of an audit by many independent runs of one attack.

    Attributes
    ----------
    rates : RateBounds
        Bounds on the power and false positive rate of the selected test.
    visible_mu, visible_epsilon : float
        Leak that the audit detects with probability .95, as mu and as epsilon at `delta`.
    runs : int
        Number of runs of each world.

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
"""Callback that receives the seconds used since its last call."""

_CONTROL_SHARE = 0.5
"""Largest share of the time that all controls use together."""

_MAX_TESTS = 32
"""Maximal number of tests of a control; each has this part of the failure probability."""


@dataclass
class _TrialRuns:
    """Scores of one attack in both worlds, in blocks of independent runs, and their duration."""

    trial: AuditTrial
    report_progress: Progress | None
    present_blocks: list[Floats] = field(default_factory=list)
    absent_blocks: list[Floats] = field(default_factory=list)
    total_seconds: float = 0.0
    block_seconds: float = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.absent_blocks))

    def run_block(self) -> None:
        """Run one block in each world."""
        start = time.monotonic()
        self.present_blocks.append(self.trial.play(present=True))
        self.absent_blocks.append(self.trial.play(present=False))
        self.block_seconds = time.monotonic() - start
        self.total_seconds += self.block_seconds
        if self.report_progress is not None:
            self.report_progress(self.block_seconds)

    def run_until(self, deadline: float, max_runs: float) -> None:
        """Run blocks until the deadline or `max_runs` runs, but at least `MIN_RUNS` runs.

        `deadline` is a time of the monotonic clock, in seconds.
        """
        while len(self) < MIN_RUNS or (time.monotonic() < deadline and len(self) < max_runs):
            self.run_block()

    @property
    def time_weight(self) -> float:
        """Relative share of the time for this attack: the square root of the seconds per run.

        These shares minimise the sum of the variances over all attacks.
        """
        return math.sqrt(self.block_seconds / max(1, len(self.absent_blocks[-1])))

    def bound_loss(self, confidence: float) -> tuple[RateBounds, float]:
        """Return :func:`find_best_test` for all completed runs."""
        present_scores = np.concatenate(self.present_blocks)
        absent_scores = np.concatenate(self.absent_blocks)
        return find_best_test(self.trial.claim, present_scores, absent_scores, confidence)


def find_best_test(
    claim: Claim, present: Floats, absent: Floats, confidence: float
) -> tuple[RateBounds, float]:
    """Return bounds on the rates of the best test, and a lower bound on epsilon at `claim.delta`.

    The best test has the largest lower bound on mu relative to the claim. The bound on epsilon may
    come from another test, selected for epsilon.

    - `claim`: the claim to test.
    - `present`, `absent` (float64 (n,), (m,)): scores of independent runs in the worlds with and
      without the subject.
    - `confidence`: probability with which all bounds hold, at least.
    """
    confidence_of_each = 1 - (1 - confidence) / 2

    def compute_claim_share(rates: RateBounds) -> float:
        """Return the bound on mu as a share of the claimed mu; -1 if the bound is trivial."""
        if rates.mu <= 0 or not 0 < rates.false_positive_rate < 1:
            return -1.0
        claimed_mu = claim.allowed(rates)
        return rates.mu / claimed_mu if claimed_mu > 0 else float("inf")

    def compute_epsilon(rates: RateBounds) -> float:
        return rates.bound_epsilon(claim.delta)

    best_for_mu = bound_rates(present, absent, confidence_of_each, compute_claim_share)
    best_for_epsilon = bound_rates(present, absent, confidence_of_each, compute_epsilon)
    return best_for_mu, max(compute_epsilon(best_for_mu), compute_epsilon(best_for_epsilon))


def carry_out(
    trial: AuditTrial,
    seconds: float,
    confidence: float = CONFIDENCE,
    *,
    runs: float = math.inf,
    controls: bool = True,
    progress: Progress | None = None,
) -> AuditResult:
    """Run one attack and its controls; return the result. See :func:`carry_out_all`."""
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
    """Run attacks and their controls for a given time; return one result for each attack.

    The time is divided in proportion to the square root of the seconds per run, measured on the
    first two blocks. Time that controls do not use, because they are caught early, is given to the
    attacks on the installed version.

    Parameters
    ----------
    trials : iterable of AuditTrial
        The attacks.
    seconds : float
        Total time, including the creation of the attacks. At least two blocks of each world are
        run, whatever their duration.
    confidence : float
        Confidence with which all lower bounds of one result hold.
    runs : float
        Number of runs of each world after which an attack stops before its time is used.
    controls : bool
        Whether controls are run.
    progress : callable, optional
        Called with the seconds used since its last call.

    Examples
    --------
    >>> from vicinal.audit import carry_out_all
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> trial = IndKNNAudit(n_classes=3).votes()
    >>> [result.mechanism for result in carry_out_all([trial], seconds=0.1, controls=False)]
    ['Ind-KNN votes']
    """
    confidence = checks.check_real("confidence", confidence, above=0, below=1)
    start = time.monotonic()
    all_runs = [_TrialRuns(trial, progress) for trial in trials]
    for trial_runs in all_runs:
        trial_runs.run_block()
        trial_runs.run_until(math.inf, min(runs, 2 * len(trial_runs)))
    remaining = max(0.0, start + seconds - time.monotonic())
    weights = [trial_runs.time_weight * len(trial_runs.trial.controls()) for trial_runs in all_runs]
    control_seconds = _divide_time(remaining * _CONTROL_SHARE, weights)
    control_results = [
        _try_controls(trial_runs.trial, share, confidence, runs, progress) if controls else ()
        for trial_runs, share in zip(all_runs, control_seconds, strict=True)
    ]
    remaining = max(0.0, start + seconds - time.monotonic())
    trial_seconds = _divide_time(remaining, [trial_runs.time_weight for trial_runs in all_runs])
    for trial_runs, share in zip(all_runs, trial_seconds, strict=True):
        trial_runs.run_until(time.monotonic() + share, runs)
    return [
        _create_result(trial_runs, confidence, results)
        for trial_runs, results in zip(all_runs, control_results, strict=True)
    ]


def _divide_time(seconds: float, weights: Sequence[float]) -> list[float]:
    """Return shares of the time in proportion to the weights; zeros if all weights are 0."""
    total = sum(weights)
    return [seconds * weight / total if total else 0.0 for weight in weights]


def _try_controls(
    trial: AuditTrial, seconds: float, confidence: float, runs: float, progress: Progress | None
) -> tuple[ControlResult, ...]:
    """Run all controls of an attack within a time limit, see :func:`try_control`."""
    # Each control gets an equal share of the time that remains when it starts.
    controls = trial.controls()
    deadline = time.monotonic() + seconds
    results: list[ControlResult] = []
    for name, control in controls.items():
        n_remaining = len(controls) - len(results)
        share = max(0.0, deadline - time.monotonic()) / n_remaining
        results.append(try_control(name, control, share, confidence, runs, progress))
    return tuple(results)


def try_control(
    name: str,
    control: AuditTrial,
    seconds: float,
    confidence: float = CONFIDENCE,
    runs: float = math.inf,
    progress: Progress | None = None,
) -> ControlResult:
    """Run a control until the audit refutes its claim, or its time or runs are used.

    - `name`, `control`: name of the injected fault, and the attack on a version with it.
    - `seconds`: time limit, which is checked whenever the number of runs has doubled.
    - `confidence`: confidence of all tests together.
    - `runs`: number of runs of each world after which the control stops.
    """
    control_runs = _TrialRuns(control, progress)
    deadline = time.monotonic() + seconds
    confidence_of_each = 1 - (1 - confidence) / _MAX_TESTS
    while True:
        control_runs.run_until(math.inf, max(1, 2 * len(control_runs)))
        rates, epsilon = control_runs.bound_loss(confidence_of_each)
        claim = control.claim.allowed(rates)
        is_caught = rates.mu > claim or epsilon > control.claim.epsilon() or control.overspends
        if is_caught or time.monotonic() >= deadline or len(control_runs) >= runs:
            return ControlResult(
                name, is_caught, rates.mu, claim, len(control_runs), control_runs.total_seconds
            )


def _create_result(
    trial_runs: _TrialRuns, confidence: float, controls: tuple[ControlResult, ...]
) -> AuditResult:
    """Return the result of an attack from its finished runs and the results of its controls."""
    rates, epsilon = trial_runs.bound_loss(confidence)
    trial = trial_runs.trial
    runs = len(trial_runs)
    claim = trial.claim.allowed(rates)
    delta = trial.claim.delta
    detectable_mu = find_detectable_mu(claim, runs, 1 - (1 - confidence) / 2)
    return AuditResult(
        mechanism=trial.mechanism,
        world=trial.world,
        rates=rates,
        claim=claim,
        lower=rates.mu,
        epsilon_claim=trial.claim.epsilon(),
        epsilon_lower=epsilon,
        delta=delta,
        visible_mu=detectable_mu,
        visible_epsilon=gdp_epsilon(detectable_mu, delta),
        confidence=confidence,
        runs=runs,
        seconds=trial_runs.total_seconds,
        moved=trial.moved or None,
        most_moved=trial.claim.most_moved if trial.moved else None,
        controls=controls,
    )
