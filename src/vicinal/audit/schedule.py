"""Execution of audits: the time given to each attack, and the bounds that follow from its runs.

The number of runs of an attack on the installed version does not depend on its scores, so its
bounds need no correction for repeated testing. A control, which has an injected fault, stops as
soon as the fault is detected: a test is made whenever the number of runs has doubled, each time
with an equal share of the failure probability.

A *world* is a made-up data set with or without the attacked subject. Arguments of the functions:
`confidence`, probability with which all bounds of a result hold, at least; `max_runs`, number of
runs of each world after which an attack stops; `progress`, called with the seconds used since its
last call, or None.
"""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
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


class Attack(ABC):
    """An attack on one mechanism, in two worlds: made-up data with and without one subject.

    The attacker is a distinguisher: it assigns a score to each run, and large scores suggest that
    the subject is present. The mechanism is the installed one with its real noise, unless a fault
    is injected. The data are made from public facts alone.

    - `mechanism`, `scenario`: name of the mechanism, and description of the data, for reports.
    - `claim`: the guarantee that the mechanism states for these data.
    - `total_shift_mu`: total shift of the private sums by the subject, as mu of Gaussian DP,
      computed exactly; 0 if the sums are random and the shift is unknown.
    """

    mechanism: str
    scenario: str
    claim: Claim
    total_shift_mu: float = 0.0
    _faults: Mapping[str, InjectedFault] = MappingProxyType({})
    _fault: InjectedFault = NO_FAULT

    @abstractmethod
    def compute_scores(self, present: bool) -> Floats:
        """Return the attacker's scores of a block of independent runs, float64 (runs,).

        `present`: whether the subject is in the data set of these runs.
        """

    def create_controls(self) -> Mapping[str, Attack]:
        """Return the controls: this attack on versions with an injected fault, by fault name."""
        controls = {}
        for name, fault in self._faults.items():
            # A shallow copy shares the claim, which is expensive to compute.
            control = copy.copy(self)
            controls[name] = control
            control._faults = {}
            control._fault = fault
            control._reset_fault_state()
        return controls

    def _reset_fault_state(self) -> None:  # noqa: B027 (most attacks have no state to compute)
        """Compute or reset the state of the attack that depends on the injected fault."""

    @property
    def exceeds_max_shift(self) -> bool:
        """Whether the exact shift of the private sums exceeds the claim: a charge is missing."""
        return self.total_shift_mu > self.claim.max_total_shift_mu


@dataclass(frozen=True)
class ControlResult:
    """Result of a control: an audit of a version with an injected fault.

    - `name`: name of the fault.
    - `caught`: whether the audit refuted the claim, as it must.
    - `mu_lower_bound`, `claimed_mu`: the measured lower bound on mu (of Gaussian DP), and the mu
      that the claim permits, both for the last test.
    - `runs`: runs of each world until the last test; canaries in an audit with one run.
    - `seconds`: duration of these runs.
    """

    name: str
    caught: bool
    mu_lower_bound: float
    claimed_mu: float
    runs: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        names = ("name", "caught", "lower", "claim", "runs", "seconds")
        return dict(zip(names, astuple(self), strict=True))


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """Result of one audit: lower bounds on the privacy loss of a mechanism, and its claim.

    Attributes
    ----------
    mechanism, scenario : str
        Name of the attacked mechanism, and description of the made-up data.
    claimed_mu, mu_lower_bound : float
        The mu (of Gaussian DP) that the claim permits for the selected test, and the measured lower
        bound on mu for the same test.
    epsilon_claim, epsilon_lower, delta : float
        The claimed epsilon, and the measured lower bound on epsilon, both at `delta`.
    confidence : float
        Confidence of the lower bounds.
    seconds : float
        Duration of the audit.
    total_shift_mu, max_total_shift_mu : float or None
        Exact total shift of the private sums by the subject, as mu, and the largest shift that the
        claim permits; None if the mechanism samples records and charges no budgets.
    controls : tuple of ControlResult
        Results of the same audit on versions with injected faults.
    """

    mechanism: str
    scenario: str
    claimed_mu: float
    mu_lower_bound: float
    epsilon_claim: float
    epsilon_lower: float
    delta: float
    confidence: float
    seconds: float
    total_shift_mu: float | None = None
    max_total_shift_mu: float | None = None
    controls: tuple[ControlResult, ...] = ()

    @property
    def ratio(self) -> float:
        """The lower bound on mu as a share of the claimed mu."""
        return self.mu_lower_bound / self.claimed_mu if self.claimed_mu > 0 else 0.0

    @property
    def is_consistent(self) -> bool:
        """Whether the claim is not refuted, neither by the exact shift nor by a lower bound."""
        is_shift_permitted = self.total_shift_mu is None or (
            self.total_shift_mu <= (self.max_total_shift_mu or 0.0)
        )
        is_mu_permitted = self.mu_lower_bound <= self.claimed_mu
        is_epsilon_permitted = self.epsilon_lower <= self.epsilon_claim
        return is_shift_permitted and is_mu_permitted and is_epsilon_permitted

    @property
    def is_conclusive(self) -> bool:
        """Whether every injected fault was detected. If not, there were too few runs."""
        return all(control.caught for control in self.controls)

    @property
    def holds(self) -> bool:
        """Whether the claim is not refuted and every injected fault was detected."""
        return self.is_consistent and self.is_conclusive

    @property
    @abstractmethod
    def power_statement(self) -> str:
        """Sentence for reports: the size of the audit, and the leak that it would have detected."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "mechanism": self.mechanism,
            "world": self.scenario,
            "unit": "mu",
            "claim": self.claimed_mu,
            "lower": self.mu_lower_bound,
            "confidence": self.confidence,
            "ratio": self.ratio,
            "kept": self.is_consistent,
            "epsilon": {
                "claim": self.epsilon_claim,
                "lower": self.epsilon_lower,
                "delta": self.delta,
            },
            "seconds": self.seconds,
            "moved": self.total_shift_mu,
            "most_moved": self.max_total_shift_mu,
            "controls": [control.to_dict() for control in self.controls],
        }


@dataclass(frozen=True, kw_only=True)
class AuditResult(AuditFinding):
    """Result of an audit by many independent runs of one attack.

    Attributes
    ----------
    rates : RateBounds
        Confidence bounds on the power and false positive rate of the selected test.
    detectable_mu, detectable_epsilon : float
        Privacy loss that the audit detects with probability .95, as mu and as epsilon at `delta`.
    runs : int
        Number of runs of each world.

    Examples
    --------
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> from vicinal.audit.schedule import run_audits
    >>> attack = IndKNNAudit(n_classes=3).build_votes_attack()
    >>> (result,) = run_audits([attack], seconds=0.1, controls=False)
    >>> result.mu_lower_bound <= result.claimed_mu
    True
    """

    rates: RateBounds
    detectable_mu: float
    detectable_epsilon: float
    runs: int

    @property
    def power_statement(self) -> str:
        return (
            f"{self.runs} runs of each world; a leak of epsilon >= {self.detectable_epsilon:.3f} "
            "would have been seen"
        )

    def to_dict(self) -> dict[str, Any]:
        detectable = {"mu": self.detectable_mu, "epsilon": self.detectable_epsilon}
        return {**super().to_dict(), "would_have_seen": detectable, "runs": self.runs}


ReportProgress = Callable[[float], None]
"""Callback of progress displays, called with the seconds used since its last call."""

_CONTROL_SHARE = 0.5  # largest share of the time that all controls use together

_MAX_TESTS = 32
"""Maximal number of tests of a control; each has this part of the failure probability."""


@dataclass
class _AttackRuns:
    """The completed runs of one attack, as blocks of scores with and without the subject.

    `report_progress`: called with the seconds of each block, or None. `total_seconds`,
    `block_seconds`: duration of all blocks, and of the last block of both worlds.
    """

    attack: Attack
    report_progress: ReportProgress | None
    present_blocks: list[Floats] = field(default_factory=list)
    absent_blocks: list[Floats] = field(default_factory=list)
    total_seconds: float = 0.0
    block_seconds: float = 0.0

    def __len__(self) -> int:
        """Return the number of runs of each world."""
        return sum(map(len, self.absent_blocks))

    def run_block(self) -> None:
        """Run one block in each world."""
        start = time.monotonic()
        self.present_blocks.append(self.attack.compute_scores(present=True))
        self.absent_blocks.append(self.attack.compute_scores(present=False))
        self.block_seconds = time.monotonic() - start
        self.total_seconds += self.block_seconds
        if self.report_progress is not None:
            self.report_progress(self.block_seconds)

    def run_until(self, deadline: float, max_runs: float) -> None:
        """Run blocks until the deadline or `max_runs` runs, but at least `MIN_RUNS` runs.

        `deadline`: time of the monotonic clock, in seconds.
        """
        while len(self) < MIN_RUNS or (time.monotonic() < deadline and len(self) < max_runs):
            self.run_block()

    @property
    def time_weight(self) -> float:
        """Relative share of the time for this attack: the square root of the seconds per run.

        For equal variances per run, they minimise the sum of the estimates' variances.
        """
        return math.sqrt(self.block_seconds / max(1, len(self.absent_blocks[-1])))

    def bound_privacy_loss(self, confidence: float) -> tuple[RateBounds, float]:
        """Return the result of :func:`bound_best_test` for all completed runs."""
        present_scores = np.concatenate(self.present_blocks)
        absent_scores = np.concatenate(self.absent_blocks)
        return bound_best_test(self.attack.claim, present_scores, absent_scores, confidence)


def bound_best_test(
    claim: Claim, present_scores: Floats, absent_scores: Floats, confidence: float
) -> tuple[RateBounds, float]:
    """Return bounds on the rates of the best test, and a lower bound on epsilon at `claim.delta`.

    The best test has the largest lower bound on mu relative to the claim. The bound on epsilon may
    come from another test, selected for epsilon.

    - `claim`: the claim to test. A test compares the score of a run with a threshold.
    - `present_scores`, `absent_scores` (float64 (n,), (m,)): scores of independent runs in the
      worlds with and without the subject.
    """
    confidence_of_each = 1 - (1 - confidence) / 2

    def compute_claim_share(rates: RateBounds) -> float:
        """Return the lower bound on mu as a share of the claimed mu; -1 if it is trivial."""
        if rates.mu <= 0 or not 0 < rates.false_positive_rate < 1:
            return -1.0
        claimed_mu = claim.compute_max_mu(rates)
        return rates.mu / claimed_mu if claimed_mu > 0 else float("inf")

    def bound_epsilon(rates: RateBounds) -> float:
        return rates.bound_epsilon(claim.delta)

    best_for_mu = bound_rates(
        present_scores, absent_scores, confidence_of_each, compute_claim_share
    )
    best_for_epsilon = bound_rates(present_scores, absent_scores, confidence_of_each, bound_epsilon)
    return best_for_mu, max(bound_epsilon(best_for_mu), bound_epsilon(best_for_epsilon))


def run_audits(
    attacks: Iterable[Attack],
    seconds: float,
    confidence: float = CONFIDENCE,
    *,
    max_runs: float = math.inf,
    controls: bool = True,
    progress: ReportProgress | None = None,
) -> list[AuditResult]:
    """Run attacks and their controls for a given time; return one result for each attack.

    The time is divided in proportion to the square root of the seconds per run, measured on the
    first two blocks. Time that controls do not use, because they are caught early, is given to the
    attacks on the installed version.

    Parameters
    ----------
    attacks : iterable of Attack
        The attacks.
    seconds : float
        Time limit of all attacks and controls together, including the creation of the attacks. At
        least two blocks of each world are run, whatever their duration.
    confidence : float
        Confidence with which all lower bounds of one result hold.
    max_runs : float
        Number of runs of each world after which an attack stops before its time is used.
    controls : bool
        Whether the versions with injected faults are attacked, too.
    progress : callable, optional
        Called with the seconds used since its last call.

    Examples
    --------
    >>> from vicinal.audit import run_audits
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> attack = IndKNNAudit(n_classes=3).build_votes_attack()
    >>> [result.mechanism for result in run_audits([attack], seconds=0.1, controls=False)]
    ['Ind-KNN votes']
    """
    confidence = checks.check_real("confidence", confidence, above=0, below=1)
    start = time.monotonic()
    all_runs = [_AttackRuns(attack, progress) for attack in attacks]
    for attack_runs in all_runs:
        attack_runs.run_block()
        attack_runs.run_until(math.inf, min(max_runs, 2 * len(attack_runs)))
    all_controls = [
        attack_runs.attack.create_controls() if controls else {} for attack_runs in all_runs
    ]
    remaining = max(0.0, start + seconds - time.monotonic())
    weights = [
        attack_runs.time_weight * len(attack_controls)
        for attack_runs, attack_controls in zip(all_runs, all_controls, strict=True)
    ]
    control_seconds = _divide_time(remaining * _CONTROL_SHARE, weights)
    control_results = [
        _run_controls(attack_controls, share, confidence, max_runs, progress)
        for attack_controls, share in zip(all_controls, control_seconds, strict=True)
    ]
    remaining = max(0.0, start + seconds - time.monotonic())
    attack_seconds = _divide_time(remaining, [attack_runs.time_weight for attack_runs in all_runs])
    for attack_runs, share in zip(all_runs, attack_seconds, strict=True):
        attack_runs.run_until(time.monotonic() + share, max_runs)
    return [
        _create_result(attack_runs, confidence, results)
        for attack_runs, results in zip(all_runs, control_results, strict=True)
    ]


def _divide_time(seconds: float, weights: Sequence[float]) -> list[float]:
    """Divide `seconds` in proportion to the weights; return zeros if all weights are 0."""
    total = sum(weights)
    return [seconds * weight / total if total else 0.0 for weight in weights]


def _run_controls(
    controls: Mapping[str, Attack],
    seconds: float,
    confidence: float,
    max_runs: float,
    progress: ReportProgress | None,
) -> tuple[ControlResult, ...]:
    """Run the controls of an attack, by fault name, within `seconds` together; return results."""
    # Each control gets an equal share of the time that remains when it starts.
    deadline = time.monotonic() + seconds
    results: list[ControlResult] = []
    for name, control in controls.items():
        n_remaining = len(controls) - len(results)
        share = max(0.0, deadline - time.monotonic()) / n_remaining
        results.append(run_control(name, control, share, confidence, max_runs, progress))
    return tuple(results)


def run_control(
    name: str,
    control: Attack,
    seconds: float,
    confidence: float = CONFIDENCE,
    max_runs: float = math.inf,
    progress: ReportProgress | None = None,
) -> ControlResult:
    """Run a control until the audit refutes its claim, or its time or runs are used up.

    - `name`, `control`: name of the injected fault, and the attack on a version with it.
    - `seconds`: time limit, which is checked whenever the number of runs has doubled.
    - `confidence`: confidence of all tests together.
    """
    control_runs = _AttackRuns(control, progress)
    deadline = time.monotonic() + seconds
    confidence_of_each = 1 - (1 - confidence) / _MAX_TESTS
    while True:
        control_runs.run_until(math.inf, max(1, 2 * len(control_runs)))
        rates, epsilon = control_runs.bound_privacy_loss(confidence_of_each)
        claimed_mu = control.claim.compute_max_mu(rates)
        is_caught = (
            rates.mu > claimed_mu
            or epsilon > control.claim.compute_epsilon()
            or control.exceeds_max_shift
        )
        if is_caught or time.monotonic() >= deadline or len(control_runs) >= max_runs:
            return ControlResult(
                name, is_caught, rates.mu, claimed_mu, len(control_runs), control_runs.total_seconds
            )


def _create_result(
    attack_runs: _AttackRuns, confidence: float, controls: tuple[ControlResult, ...]
) -> AuditResult:
    """Return the result of an attack from its finished runs and the results of its controls."""
    rates, epsilon = attack_runs.bound_privacy_loss(confidence)
    attack = attack_runs.attack
    runs = len(attack_runs)
    claimed_mu = attack.claim.compute_max_mu(rates)
    delta = attack.claim.delta
    detectable_mu = find_detectable_mu(claimed_mu, runs, 1 - (1 - confidence) / 2)
    return AuditResult(
        mechanism=attack.mechanism,
        scenario=attack.scenario,
        rates=rates,
        claimed_mu=claimed_mu,
        mu_lower_bound=rates.mu,
        epsilon_claim=attack.claim.compute_epsilon(),
        epsilon_lower=epsilon,
        delta=delta,
        detectable_mu=detectable_mu,
        detectable_epsilon=gdp_epsilon(detectable_mu, delta),
        confidence=confidence,
        runs=runs,
        seconds=attack_runs.total_seconds,
        total_shift_mu=attack.total_shift_mu or None,
        max_total_shift_mu=attack.claim.max_total_shift_mu if attack.total_shift_mu else None,
        controls=controls,
    )
