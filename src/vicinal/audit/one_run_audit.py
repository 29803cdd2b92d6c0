"""Audit of Ind-KNN in one interaction with many canaries: each is included by a coin flip.

Proof note: one_run.md. A canary is a made-up subject; the attacker guesses its presence. Canaries
have disjoint neighbourhoods, so the guess of one coin is independent of the other canaries. The
interaction checks exactly that they do not interfere.

Arguments of the private functions: `interaction`, one with a canary in each copy; `fault`, injected
into the installed version; `confidence`, of each lower bound; `progress`, called with 1 after each
interaction.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.audit._attacks import compute_label_log_ratios
from vicinal.audit.claims import Claim, RateBounds, compute_lower_rate_bounds, create_ind_knn_claim
from vicinal.audit.ind_knn import IndKNNAudit, TargetSpec, name_released_values
from vicinal.audit.interactions import (
    CHARGE_FAULTS,
    MAX_COPIES,
    NO_FAULT,
    AuditInteraction,
    InjectedFault,
    select_faults,
)
from vicinal.audit.schedule import CONFIDENCE, AuditFinding, ControlResult
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.testing import Transcript

DEFAULT_CANARIES = 400_000
"""Default number of canaries. At epsilon 1 and confidence 1 - 1e-6 the lower bound on mu is .93 of
the claim, with a standard deviation of .015."""

_CONTROL_CANARIES = 40_000
"""Maximal number of canaries for a control. They suffice because a control makes more queries and
leaks more than the installed version."""

_LABEL_FAULTS = "noise a third", "charged to another subject"
"""Names of the faults that one run detects from labels. The claim for labels is loose: missing or
late charges stay below it in one run, but the exact shift in `interactions.py` detects them."""

_QUERIES_PER_CANARY = 1
_COST_SHARE = 9.0
"""Queries at each canary, and the uncapped cost of one answer as a multiple of a budget.

The cost is capped at the budget, so the canary spends its whole budget at once."""

_CONTROL_QUERIES_PER_CANARY = 4
_CONTROL_COST_SHARE = 0.95
"""The same for controls. An answer costs nearly the whole budget, so the following queries reveal
whether the canary was charged and stopped."""


@dataclass(frozen=True, kw_only=True)
class OneRunResult(AuditFinding):
    """Result of an audit in one interaction. Each of its lower bounds has the full confidence.

    Attributes
    ----------
    n_canaries : int
        Number of canaries, included or not; the coin of each was guessed.
    n_correct : int
        Number of correct guesses.
    is_local : bool
        Whether the private sums at each canary's query depended on its own coin alone.

    Examples
    --------
    >>> from vicinal.audit import audit_in_one_run
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> result = audit_in_one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=500)
    >>> result.is_local, result.mu_lower_bound <= result.claimed_mu
    (True, True)
    """

    n_canaries: int
    n_correct: int
    is_local: bool

    @property
    def is_consistent(self) -> bool:
        """Whether the audit is consistent with the claim and the canaries did not interfere."""
        # The individual filter guarantees that no contribution depends on other subjects' records.
        return self.is_local and super().is_consistent

    @property
    def power_statement(self) -> str:
        """Sentence for reports: the correct guesses, and whether canaries interfered."""
        note = "each beside records of its own" if self.is_local else "WHICH INTERFERE: no bound"
        return f"{self.n_correct} of {self.n_canaries} canaries guessed, {note}"

    def to_dict(self) -> dict[str, Any]:
        guesses = {"canaries": self.n_canaries, "right": self.n_correct, "local": self.is_local}
        return {**super().to_dict(), **guesses}


def audit_in_one_run(
    audit: IndKNNAudit,
    *,
    release: str = "votes",
    target_spec: TargetSpec | None = None,
    canaries: int = DEFAULT_CANARIES,
    confidence: float = CONFIDENCE,
    controls: bool = True,
    progress: Callable[[float], None] | None = None,
) -> OneRunResult:
    """Return a lower bound on the privacy loss from one interaction with many canaries.

    Each canary is included in made-up data by a fair coin and spends its whole budget on one
    answer. The attacker queries once at each canary and guesses its coin.

    Parameters
    ----------
    audit : IndKNNAudit
        The public settings of the audited estimator.
    release : {"votes", "label"}
        Released values: noisy votes, or labels alone.
    target_spec : mapping, optional
        Estimator parameters that declare vector targets: numbers, or sets of labels.
    canaries : int
        Number of canaries m, 8 to 2^20.
    confidence : float
        Confidence of each lower bound, 0 < confidence < 1.
    controls : bool
        Whether the versions with injected faults are audited, too, with at most 40,000 canaries.
    progress : callable, optional
        Called with 1 after each interaction.

    Examples
    --------
    >>> from vicinal.audit import audit_in_one_run
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> result = audit_in_one_run(IndKNNAudit(3), canaries=500, controls=False)
    >>> result.epsilon_lower <= result.epsilon_claim
    True
    """
    canaries = checks.check_integer("canaries", canaries, minimum=8, maximum=MAX_COPIES)
    confidence = checks.check_real("confidence", confidence, above=0, below=1)
    start = time.monotonic()

    def create_interaction(n_canaries: int, n_queries: int, cost_share: float) -> AuditInteraction:
        return audit.build_canary_interaction(
            n_canaries, release, target_spec, n_queries, cost_share
        )

    interaction = create_interaction(canaries, _QUERIES_PER_CANARY, _COST_SHARE)
    n_correct, is_local, rates = _bound_guesses(interaction, NO_FAULT, confidence, progress)
    claim = create_ind_knn_claim(create_interaction(8, _QUERIES_PER_CANARY, _COST_SHARE).plan)
    fault_names = _LABEL_FAULTS if release == "label" else ("noise halved", *CHARGE_FAULTS)

    control_interaction = create_interaction(
        min(canaries, _CONTROL_CANARIES), _CONTROL_QUERIES_PER_CANARY, _CONTROL_COST_SHARE
    )
    control_results = [
        _run_control(name, fault, control_interaction, claim, confidence, progress)
        for name, fault in (select_faults(*fault_names).items() if controls else ())
    ]
    kind = name_released_values(release, target_spec)
    return OneRunResult(
        mechanism=f"Ind-KNN {kind}, one run",
        scenario=f"{canaries} canaries, each spends all on one answer",
        n_canaries=canaries,
        n_correct=n_correct,
        is_local=is_local,
        claimed_mu=claim.compute_max_mu(rates),
        mu_lower_bound=rates.mu,
        epsilon_claim=claim.compute_epsilon(),
        epsilon_lower=rates.bound_epsilon(claim.delta),
        delta=claim.delta,
        confidence=confidence,
        seconds=time.monotonic() - start,
        controls=tuple(control_results),
    )


def _run_control(
    name: str,
    fault: InjectedFault,
    interaction: AuditInteraction,
    claim: Claim,
    confidence: float,
    progress: Callable[[float], None] | None,
) -> ControlResult:
    """Return the result of an audit of a version with an injected fault.

    The fault is caught if the lower bound on mu refutes `claim`, or the canaries interfered.
    `name`: the fault's name.
    """
    start = time.monotonic()
    _, is_local, rates = _bound_guesses(interaction, fault, confidence, progress)
    claimed_mu = claim.compute_max_mu(rates)
    seconds = time.monotonic() - start
    is_caught = rates.mu > claimed_mu or not is_local
    n_canaries = interaction.copies.n_copies
    return ControlResult(name, is_caught, rates.mu, claimed_mu, n_canaries, seconds)


def _bound_guesses(
    interaction: AuditInteraction,
    fault: InjectedFault,
    confidence: float,
    progress: Callable[[float], None] | None,
) -> tuple[int, bool, RateBounds]:
    """Return the number of correct guesses, whether canaries were local, and bounds on the rates.

    The rates are those of the test "a canary is present", by the guess of its coin.
    """
    n_correct, is_local = _guess_coins(interaction, fault)
    # Without locality no bound is known; an accuracy of 1/2 is possible without any leak.
    accuracy = 0.5
    if is_local:
        bound = compute_lower_rate_bounds(n_correct, interaction.copies.n_copies, 1 - confidence)
        accuracy = max(0.5, float(bound))
    if progress is not None:
        progress(1)
    return n_correct, is_local, RateBounds(accuracy, 1 - accuracy, equal_errors=True)


def _guess_coins(interaction: AuditInteraction, fault: InjectedFault) -> tuple[int, bool]:
    """Return the number of coins guessed correctly, and whether the canaries were local.

    The interaction runs with random coins, and each coin is guessed by its likelihood ratio.
    Canaries are local if all included ones have equal private sums, and all excluded ones.
    """
    n_canaries = interaction.copies.n_copies
    coins = public_draws().integers(0, 2, n_canaries) > 0
    transcript = Transcript(fault.create_noise())
    outputs = interaction.run(coins, fault, transcript)
    n_values = transcript.released[0][0].shape[-1]
    n_rounds = len(interaction.actions)
    sums = np.concatenate([private.reshape(-1, n_values) for private, _, _ in transcript.released])
    sums = sums.reshape(n_rounds, n_canaries, n_values)
    is_local = len({scale for _, scale, _ in transcript.released}) == 1 and all(
        np.array_equal(group, group[:1].repeat(len(group), axis=0))
        for round_sums in sums
        for group in (round_sums[coins], round_sums[~coins])
    )
    scale = transcript.released[0][1]
    # The attacker knows the private sum of both worlds: it follows from the public plan.
    absent_sums = sums[:, ~coins][:, :1]
    shifts = (sums[:, coins][:, :1] - absent_sums) / scale
    absent_sums = absent_sums / scale
    log_ratios = np.zeros(n_canaries)
    for index in range(n_rounds):
        # A query adds five outputs; the first three are labels, noisy votes and noise scales.
        labels, votes, noise = outputs[5 * index : 5 * index + 3]
        absent = absent_sums[index]
        shift = shifts[index]
        if votes is None:
            log_ratios += compute_label_log_ratios(labels[:, None], absent, shift)
        else:
            deviations = votes / noise[:, None] - absent - shift / 2
            log_ratios += (deviations * shift).sum(axis=1)
    return int(((log_ratios > 0) == coins).sum()), is_local
