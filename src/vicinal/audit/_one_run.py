"""One interaction of Ind-KNN, many canaries, each put in by a coin; the coins are guessed."""

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from vicinal import _checks
from vicinal._arrays import Bools, Floats
from vicinal.audit._ind_knn import IndKNNAudit
from vicinal.audit._schedule import AuditFinding, ControlResult
from vicinal.audit._visits import HONEST, MOST, Damage, Universes, universes
from vicinal.mechanisms import public_draws
from vicinal.predictors import IndKNNClassifier
from vicinal.testing import charged_block, draw_from, refill

_BISECTIONS = 60
_LARGEST = 60.0

Tradeoff = Callable[[float], float]
"""The least rate of false alarms at which a power can be had."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """What came of guessing coins: of m canaries r were guessed, v of them right."""

    canaries: int
    guessed: int
    right: int

    def __post_init__(self) -> None:
        _checks.integer("canaries", self.canaries, least=1)
        _checks.integer("guessed", self.guessed, least=0, most=self.canaries)
        _checks.integer("right", self.right, least=0, most=self.guessed)


def chance_under_dp(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return a bound on the chance of guessing so well against (epsilon, delta)-DP."""
    r, v = guesses.guessed, guesses.right
    if delta == 0:
        return float(binom.sf(v - 1, r, 1 / (1 + math.exp(-epsilon))))
    return chance_under_tradeoff(guesses, dp_tradeoff(epsilon, delta))


def dp_tradeoff(epsilon: float, delta: float) -> Tradeoff:
    """Return the least false alarms at each power against (epsilon, delta)-DP."""
    factor = math.exp(epsilon)
    return lambda power: max(0.0, (power - delta) / factor, 1 - delta - factor * (1 - power))


def mu_tradeoff(mu: float) -> Tradeoff:
    """Return the least false alarms at each power against a mu-GDP mechanism."""
    return lambda power: float(ndtr(ndtri(power) - mu))


def chance_under_tradeoff(guesses: Guesses, tradeoff: Tradeoff) -> float:
    """Return a bound on the chance of guessing so well against a trade-off curve."""
    low, high = 0.0, 1.0
    if _fits(guesses, 1.0, tradeoff):
        return 1.0
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high) if low > 0 else high / 16
        low, high = (middle, high) if _fits(guesses, middle, tradeoff) else (low, middle)
        if low == 0 and high < 1e-30:
            break
    return high


def _fits(guesses: Guesses, tail: float, tradeoff: Tradeoff) -> bool:
    """Tell whether so many right guesses may come with probability `tail`."""
    m, r, v = guesses.canaries, guesses.guessed, guesses.right
    if r == 0 or v == 0:
        return True
    right, wrong = tail * v / m, tail * (r - v) / m
    for i in range(v - 1, -1, -1):
        needed = max(wrong, tradeoff(min(1.0, right)))
        right, wrong = right + i / (r - i) * (needed - wrong), needed
        if right + wrong > r / m:
            return False
    return True


def epsilon_from_guesses(guesses: Guesses, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon at `delta`, at a confidence of 0 < `confidence` < 1."""
    failure = 1 - _checks.real("confidence", confidence, above=0, below=1)
    delta = _checks.real("delta", delta, least=0, below=1)
    if delta == 0:
        return _largest_refuted(lambda epsilon: chance_under_dp(guesses, epsilon, 0.0) <= failure)
    return _largest_refuted(
        lambda epsilon: not _fits(guesses, failure, dp_tradeoff(epsilon, delta))
    )


def mu_from_guesses(guesses: Guesses, confidence: float) -> float:
    """Return a lower bound on mu at a confidence of 0 < `confidence` < 1."""
    failure = 1 - _checks.real("confidence", confidence, above=0, below=1)
    return _largest_refuted(lambda mu: not _fits(guesses, failure, mu_tradeoff(mu)))


def _largest_refuted(refuted: Callable[[float], bool]) -> float:
    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


@dataclass(frozen=True, kw_only=True)
class OneRunResult(AuditFinding):
    """What one interaction proves; each lower bound at the whole confidence.

    Attributes
    ----------
    guesses : Guesses
        What came of it.

    Examples
    --------
    >>> from vicinal.audit import IndKNNAudit, one_run
    >>> result = one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=8)
    >>> result.guesses.canaries
    8
    """

    guesses: Guesses

    @property
    def power(self) -> str:
        return f"{self.guesses.right} of {self.guesses.guessed} guesses right"

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "guesses": asdict(self.guesses)}


DAMAGES = {
    "noise an eighth": Damage(noise_divisor=8),
    "noise a quarter, charge skipped": Damage(noise_divisor=4, skips_charges=True),
}
"""Broken versions of which one run shows that they are; smaller leaks need many runs."""


def one_run(
    audit: IndKNNAudit,
    *,
    reuse: bool | str = False,
    canaries: int = 500,
    share: float = 0.25,
    confidence: float = 0.95,
    damage: Damage = HONEST,
    damages: Mapping[str, Damage] = MappingProxyType({}),
) -> OneRunResult:
    """Put canaries into made-up records by coins, ask once, guess coins, and bound the leak.

    Each canary is somebody who spends a whole budget on one answer.

    Parameters
    ----------
    audit : IndKNNAudit
        The classifier.
    reuse : False or "gate"
        What earlier answers do for later queries.
    canaries : int
        m, 8 to 500.
    share : float
        Share of the canaries that is guessed: those of which the attacker is surest.
    confidence : float
        Of the bounds, 0 < confidence < 1.
    damage : Damage
        What is broken.
    damages : mapping of str to Damage
        Broken versions to try as well, by name; all of their canaries are guessed.

    Examples
    --------
    >>> from vicinal.audit import IndKNNAudit, one_run
    >>> result = one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=8)
    >>> result.epsilon_lower <= result.epsilon_claim
    True
    """
    canaries = _checks.integer("canaries", canaries, least=8, most=MOST)
    start = time.monotonic()
    guesses = _guessed(_scores(audit, reuse, canaries, damage), share)
    claim = audit.budget_mu("votes")
    controls = []
    for name, broken in damages.items():
        every = _guessed(_scores(audit, reuse, canaries, broken), 1.0)
        proved = mu_from_guesses(every, confidence)
        controls.append(ControlResult(name, proved > claim, proved, claim, runs=1, seconds=0.0))
    return OneRunResult(
        mechanism="Ind-KNN votes, one run",
        world=f"{canaries} canaries, each spends all on one answer; reuse: {reuse or 'none'}",
        guesses=guesses,
        claim=claim,
        lower=mu_from_guesses(guesses, confidence),
        epsilon_claim=audit.epsilon,
        epsilon_lower=epsilon_from_guesses(guesses, audit.delta, confidence),
        delta=audit.delta,
        confidence=confidence,
        seconds=time.monotonic() - start,
        controls=tuple(controls),
    )


def _scores(
    audit: IndKNNAudit, reuse: bool | str, canaries: int, damage: Damage
) -> tuple[Floats, np.ndarray]:
    """Return the attacker's score of every canary, 0 to 1 or so, and the coins."""
    world = universes([(1.0, 0)] * audit.records, [(0.9, 1)], count=canaries)
    parameters = audit.parameters(canaries, "votes")
    coins = public_draws().integers(0, 2, canaries) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = [
            block.sums / block.release.scales[:, None]
            for block in (
                charged_block(_fitted(parameters, world, there), world.queries)
                for there in (False, True)
            )
        ]
        classifier = _fitted({**parameters, "reuse_predictions": reuse}, world, coins)
        if damage.noise_divisor > 1:
            draw_from(classifier, damage.noise())
        scores = np.zeros(canaries)
        for number in range(2):
            if number and damage.skips_charges:
                refill(classifier)
            answers = classifier.query(world.queries)
            assert answers.votes is not None  # noqa: S101 (votes leave)
            if number == 0 or damage.skips_charges:
                scores += _likelihood_ratios(answers.votes / answers.noise[:, None], *means)
    return scores, coins


def _likelihood_ratios(votes: Floats, absent: Floats, present: Floats) -> Floats:
    """Return the scaled likelihood ratio of votes; a half where nothing was asked."""
    shift = present - absent
    gain = ((votes - absent) * shift).sum(axis=1) / np.square(shift).sum(axis=1)
    return np.where(np.isnan(gain), 0.5, gain)


def _fitted(
    parameters: Mapping[str, Any], world: Universes, coins: Bools | bool
) -> IndKNNClassifier:
    """Return a classifier of everybody and of the canaries whose coin came up."""
    classifier = IndKNNClassifier(**parameters, interactions="public")
    X, y, subjects = world.people(coins)
    return classifier.fit(X, y, subjects, public=world.public)


def _guessed(scored: tuple[Floats, np.ndarray], share: float) -> Guesses:
    """Guess "in" of the highest scores and "out" of the lowest, `share` of all together."""
    scores, coins = scored
    half = max(1, round(share * len(scores) / 2))
    order = np.argsort(scores)
    right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    return Guesses(len(scores), 2 * half, right)
