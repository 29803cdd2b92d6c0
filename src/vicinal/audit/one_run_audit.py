"""Audit of Ind-KNN in one interaction with many canaries: each is included by a coin flip.

Proof note: one_run.md. A canary is a made-up subject; the attacker guesses its presence. Canaries
have disjoint neighbourhoods, so each coin is guessed as well as if its canary were the only one.
The interaction checks exactly that they do not interfere.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.audit._trials import compute_label_log_ratios
from vicinal.audit.claims import RateBounds, ind_knn_claim, rate_at_least
from vicinal.audit.ind_knn import IndKNNAudit
from vicinal.audit.interactions import (
    CHARGE_FAULTS,
    MAX_UNIVERSES,
    NO_FAULT,
    AuditInteraction,
    InjectedFault,
    select_faults,
)
from vicinal.audit.schedule import CONFIDENCE, AuditFinding, ControlResult
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.testing import Transcript

CANARIES = 400_000
"""Default number of canaries. At epsilon 1 and confidence 1 - 1e-6 the lower bound on mu is .93 of
the claim, with a standard deviation of .015."""

_CONTROL_CANARIES = 40_000
"""Number of canaries for a control. They suffice because a control makes more queries and leaks
more than the installed version."""

_LABEL_FAULTS = "noise a third", "charged to somebody else"
"""Faults that one run detects from labels. The claim for labels is loose: missing or late charges
stay below it in one run, but the exact shift in `interactions.py` detects them."""

_QUERIES_PER_CANARY = 1
_COST_SHARE = 9.0
"""Queries beside each canary, and the uncapped cost of one answer as a multiple of a budget.

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
    canaries : int
        Number of canaries, included or not; the coin of each was guessed.
    right : int
        Number of correct guesses.
    local : bool
        Whether the private sum beside each canary depended on its own coin alone.

    Examples
    --------
    >>> from vicinal.audit import one_run
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> result = one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=500)
    >>> result.local, result.lower <= result.claim
    (True, True)
    """

    canaries: int
    right: int
    local: bool

    @property
    def kept(self) -> bool:
        """Whether the audit is consistent with the claim and the canaries did not interfere."""
        # The individual filter guarantees that no contribution depends on other subjects' records.
        return self.local and super().kept

    @property
    def power(self) -> str:
        alone = "each beside records of its own" if self.local else "WHICH INTERFERE: no bound"
        return f"{self.right} of {self.canaries} canaries guessed, {alone}"

    def to_dict(self) -> dict[str, Any]:
        guesses = {"canaries": self.canaries, "right": self.right, "local": self.local}
        return {**super().to_dict(), **guesses}


def one_run(
    audit: IndKNNAudit,
    *,
    release: str = "votes",
    target: Mapping[str, Any] | None = None,
    canaries: int = CANARIES,
    confidence: float = CONFIDENCE,
    controls: bool = True,
    progress: Callable[[float], None] | None = None,
) -> OneRunResult:
    """Return a lower bound on the privacy loss from one interaction with many canaries.

    Each canary is included in made-up data by a fair coin and spends its whole budget on one
    answer. The attacker queries once beside each canary and guesses its coin.

    Parameters
    ----------
    audit : IndKNNAudit
        The public settings of the audited estimator.
    release : {"votes", "label"}
        Released values: noisy votes, or labels alone.
    target : mapping, optional
        Estimator parameters that declare the targets of records which are not classes.
    canaries : int
        Number of canaries m, 8 to 2^20.
    confidence : float
        Confidence of the lower bounds, 0 < confidence < 1.
    controls : bool
        Whether versions with injected faults are audited too, with at most 40,000 canaries.
    progress : callable, optional
        Called with 1 after each interaction.

    Examples
    --------
    >>> from vicinal.audit import one_run
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> result = one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=500, controls=False)
    >>> result.epsilon_lower <= result.epsilon_claim
    True
    """
    canaries = checks.check_integer("canaries", canaries, minimum=8, maximum=MAX_UNIVERSES)
    confidence = checks.check_real("confidence", confidence, above=0, below=1)
    start = time.monotonic()

    def create_interaction(n_canaries: int, n_queries: int, cost_share: float) -> AuditInteraction:
        return audit.create_canaries(n_canaries, release, target, n_queries, cost_share)

    interaction = create_interaction(canaries, _QUERIES_PER_CANARY, _COST_SHARE)
    n_correct, is_local, rates = _bound_guesses(interaction, NO_FAULT, confidence, progress)
    claim = ind_knn_claim(create_interaction(8, _QUERIES_PER_CANARY, _COST_SHARE).plan)
    fault_names = _LABEL_FAULTS if release == "label" else ("noise halved", *CHARGE_FAULTS)
    control_results = []
    for name, fault in select_faults(*fault_names).items() if controls else ():
        control_start = time.monotonic()
        n_canaries = min(canaries, _CONTROL_CANARIES)
        control = create_interaction(n_canaries, _CONTROL_QUERIES_PER_CANARY, _CONTROL_COST_SHARE)
        _, control_is_local, control_rates = _bound_guesses(control, fault, confidence, progress)
        allowed_mu = claim.allowed(control_rates)
        seconds = time.monotonic() - control_start
        is_caught = control_rates.mu > allowed_mu or not control_is_local
        control_results.append(
            ControlResult(name, is_caught, control_rates.mu, allowed_mu, n_canaries, seconds)
        )
    vector_kind = "votes" if target is None else "vectors"
    kind = "labels" if release == "label" else vector_kind
    return OneRunResult(
        mechanism=f"Ind-KNN {kind}, one run",
        world=f"{canaries} canaries, each spends all on one answer",
        canaries=canaries,
        right=n_correct,
        local=is_local,
        claim=claim.allowed(rates),
        lower=rates.mu,
        epsilon_claim=claim.epsilon(),
        epsilon_lower=rates.bound_epsilon(claim.delta),
        delta=claim.delta,
        confidence=confidence,
        seconds=time.monotonic() - start,
        controls=tuple(control_results),
    )


def _bound_guesses(
    interaction: AuditInteraction,
    fault: InjectedFault,
    confidence: float,
    progress: Callable[[float], None] | None,
) -> tuple[int, bool, RateBounds]:
    """Return the number of correct guesses, the locality, and bounds on the guessing test."""
    n_correct, is_local = _guess_coins(interaction, fault)
    # Without locality no bound is known; an accuracy of 1/2 is possible without any leak.
    accuracy = 0.5
    if is_local:
        bound = rate_at_least(n_correct, interaction.universes.count, 1 - confidence)
        accuracy = max(0.5, bound)
    if progress is not None:
        progress(1)
    return n_correct, is_local, RateBounds(accuracy, 1 - accuracy, equal_errors=True)


def _guess_coins(interaction: AuditInteraction, fault: InjectedFault) -> tuple[int, bool]:
    """Run the interaction with random coins and guess each coin by its likelihood ratio.

    Returns the number of correct guesses, and whether the canaries were local: all private sums of
    included canaries were equal, and so were those of excluded ones.
    """
    count = interaction.universes.count
    coins = public_draws().integers(0, 2, count) > 0
    transcript = Transcript(fault.create_noise())
    outputs = interaction.run(coins, fault, transcript)
    n_values = transcript.released[0][0].shape[-1]
    n_rounds = len(interaction.actions)
    sums = np.concatenate([private.reshape(-1, n_values) for private, _, _ in transcript.released])
    sums = sums.reshape(n_rounds, count, n_values)
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
    log_ratios = np.zeros(count)
    for index in range(n_rounds):
        # An action adds five outputs; the first three are labels, noisy votes and noise scales.
        labels, votes, noise = outputs[5 * index : 5 * index + 3]
        absent = absent_sums[index]
        shift = shifts[index]
        if votes is None:
            log_ratios += compute_label_log_ratios(labels[:, None], absent, shift)
        else:
            deviations = votes / noise[:, None] - absent - shift / 2
            log_ratios += (deviations * shift).sum(axis=1)
    return int(((log_ratios > 0) == coins).sum()), is_local
