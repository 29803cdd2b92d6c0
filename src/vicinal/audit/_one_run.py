"""One interaction of Ind-KNN, many canaries, each put in by a coin; the coins are guessed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from vicinal import _checks
from vicinal._arrays import Floats
from vicinal.audit._damage import HONEST, Damage
from vicinal.audit._guesses import Guesses, epsilon_from_guesses, mu_from_guesses
from vicinal.audit._ind_knn import IndKNNAudit
from vicinal.audit._trials import AuditFinding, ControlResult
from vicinal.audit._universes import MOST, Universes, universes
from vicinal.mechanisms import public_draws
from vicinal.predictors import IndKNNClassifier
from vicinal.testing import charged_block, draw_from, refill


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
        """How many guesses were right."""
        return f"{self.guesses.right} of {self.guesses.guessed} guesses right"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
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
    controls = tuple(
        _control(name, _guessed(_scores(audit, reuse, canaries, broken), 1.0), claim, confidence)
        for name, broken in damages.items()
    )
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
        controls=controls,
    )


def _control(name: str, guesses: Guesses, claim: float, confidence: float) -> ControlResult:
    lower = mu_from_guesses(guesses, confidence)
    return ControlResult(name, lower > claim, lower, claim, runs=1, seconds=0.0)


def _scores(
    audit: IndKNNAudit, reuse: bool | str, canaries: int, damage: Damage
) -> tuple[Floats, np.ndarray]:
    """Return the attacker's score of every canary, 0 to 1 or so, and the coins."""
    world, parameters = _canary_world(audit, canaries)
    coins = public_draws().integers(0, 2, canaries) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = [
            block.sums / block.release.scales[:, None]
            for block in (
                charged_block(_fitted(parameters, world, np.full(canaries, there)), world.queries)
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


def _canary_world(audit: IndKNNAudit, canaries: int) -> tuple[Universes, Mapping[str, Any]]:
    world = universes([(1.0, 0)] * audit.records, [(0.9, 1)], count=canaries)
    return world, audit.parameters(canaries, "votes")


def _fitted(parameters: Mapping[str, Any], world: Universes, coins: np.ndarray) -> IndKNNClassifier:
    """Return a classifier of everybody and of the canaries whose coin came up."""
    victims = world.victims
    chosen = coins[victims.subjects]
    people = world.others.and_(
        type(victims)(victims.X[chosen], victims.y[chosen], victims.subjects[chosen])
    )
    classifier = IndKNNClassifier(**parameters, interactions="public")
    return classifier.fit(people.X, people.y, people.subjects, public=world.public)


def _guessed(scored: tuple[Floats, np.ndarray], share: float) -> Guesses:
    """Guess "in" of the highest scores and "out" of the lowest, `share` of all together."""
    scores, coins = scored
    half = max(1, round(share * len(scores) / 2))
    order = np.argsort(scores)
    right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    return Guesses(len(scores), 2 * half, right)
