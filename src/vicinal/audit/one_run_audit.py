"""One interaction of Ind-KNN, many canaries, each put in by a coin; the coins are guessed.

Proof note: one_run.md. A vote is local: it is made of the records inside a radius. Canaries whose
neighbourhoods are disjoint do not interfere, so every coin is guessed as well as if its canary were
the only one; and that they do not is checked to the last digit in the interaction itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.audit._trials import label_ratio
from vicinal.audit.claims import RateBounds, ind_knn_claim, rate_at_least
from vicinal.audit.ind_knn import IndKNNAudit
from vicinal.audit.interactions import CHARGING, HONEST, MOST, AuditInteraction, Damage, damages
from vicinal.audit.schedule import CONFIDENCE, AuditFinding, ControlResult
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.testing import Transcript

CANARIES = 400_000
"""So many prove .93 of the claim at epsilon 1 and a confidence of 1 - 1e-6, give or take .015."""

_OF_CONTROLS = 40_000
"""Canaries of a broken version: it is asked more often, and gives away more."""

_OF_LABELS = "noise a third", "charged to somebody else"
"""Broken versions that labels show. The claim on a label is loose, so that charges that are missing
or come late stay below it in one run; the exact attack finds them to the last digit."""

_WHOLE, _BROKEN = (1, 9.0), (4, 0.95)
"""How often canaries are asked about, and what of a budget an answer could cost: all of it is spent
at once; or nearly, and then it shows who is charged and stopped."""


@dataclass(frozen=True, kw_only=True)
class OneRunResult(AuditFinding):
    """What one interaction proves; both lower bounds at the whole confidence.

    Attributes
    ----------
    canaries, right : int
        Coins that were guessed, all of them, and guesses that were right.
    local : bool
        Whether the private sum beside each canary depended on its own coin alone.

    Examples
    --------
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> from vicinal.audit import one_run
    >>> result = one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=500)
    >>> result.local, result.lower <= result.claim
    (True, True)
    """

    canaries: int
    right: int
    local: bool

    @property
    def kept(self) -> bool:
        # Nobody's contribution may follow from who else is there.
        return self.local and super().kept

    @property
    def power(self) -> str:
        alone = "each beside records of its own" if self.local else "WHICH INTERFERE: no bound"
        return f"{self.right} of {self.canaries} canaries guessed, {alone}"

    def to_dict(self) -> dict[str, Any]:
        guessed = {"canaries": self.canaries, "right": self.right, "local": self.local}
        return {**super().to_dict(), **guessed}


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
    """Put canaries into made-up records by coins, ask once beside each, and guess every coin.

    Each canary is somebody who spends a whole budget on one answer.

    Parameters
    ----------
    audit : IndKNNAudit
        The plan.
    release : {"votes", "label"}
        What leaves.
    target : mapping, optional
        What records carry, if no classes: parameters of the estimator.
    canaries : int
        m, 8 to 2^20.
    confidence : float
        Of the bounds, 0 < confidence < 1.
    controls : bool
        Whether broken versions are tried, too, most of them with 40,000 canaries.
    progress : callable, optional
        Called with 1 after each interaction.

    Examples
    --------
    >>> from vicinal.audit.ind_knn import IndKNNAudit
    >>> from vicinal.audit import one_run
    >>> result = one_run(IndKNNAudit(n_classes=3, epsilon=4.0), canaries=500, controls=False)
    >>> result.epsilon_lower <= result.epsilon_claim
    True
    """
    canaries = checks.check_integer("canaries", canaries, least=8, most=MOST)
    failure = 1 - checks.check_real("confidence", confidence, above=0, below=1)
    start = time.monotonic()

    def played(
        damage: Damage, count: int, asked: tuple[int, float]
    ) -> tuple[int, bool, RateBounds]:
        interaction = audit.canaries(count, release, target, *asked)
        right, local = _guessed(interaction, damage)
        # Interfering canaries prove nothing: half of the guesses are right by luck.
        rate = max(0.5, rate_at_least(right, count, failure)) if local else 0.5
        if progress is not None:
            progress(1)
        return right, local, RateBounds(rate, 1 - rate, even=True)

    right, local, rates = played(HONEST, canaries, _WHOLE)
    claim = ind_knn_claim(audit.canaries(8, release, target, *_WHOLE).plan)
    caught = []
    names = _OF_LABELS if release == "label" else ("noise halved", *CHARGING)
    for name, damage in damages(*names).items() if controls else ():
        begun = time.monotonic()
        count = min(canaries, _OF_CONTROLS)
        _, local_too, found = played(damage, count, _BROKEN)
        allowed, took = claim.allowed(found), time.monotonic() - begun
        seen = found.mu > allowed or not local_too
        caught.append(ControlResult(name, seen, found.mu, allowed, count, took))
    kind = "labels" if release == "label" else "votes" if target is None else "vectors"
    return OneRunResult(
        mechanism=f"Ind-KNN {kind}, one run",
        world=f"{canaries} canaries, each spends all on one answer",
        canaries=canaries,
        right=right,
        local=local,
        claim=claim.allowed(rates),
        lower=rates.mu,
        epsilon_claim=claim.epsilon(),
        epsilon_lower=rates.epsilon(claim.delta),
        delta=claim.delta,
        confidence=confidence,
        seconds=time.monotonic() - start,
        controls=tuple(caught),
    )


def _guessed(interaction: AuditInteraction, damage: Damage) -> tuple[int, bool]:
    """Return how many coins were guessed from what left, and whether canaries were local."""
    count = interaction.world.count
    coins = public_draws().integers(0, 2, count) > 0
    seen = Transcript(damage.noise())
    left = interaction.gone_through(coins, damage, seen)
    width = seen.released[0][0].shape[-1]
    sums = np.concatenate([private.reshape(-1, width) for private, _, _ in seen.released])
    sums = sums.reshape(len(interaction.acts), count, width)
    local = len({scale for _, scale, _ in seen.released}) == 1 and all(
        np.array_equal(group, group[:1].repeat(len(group), axis=0))
        for ask in sums
        for group in (ask[coins], ask[~coins])
    )
    scale = seen.released[0][1]
    absent = sums[:, ~coins][:, :1]
    # What a canary adds everybody knows who knows the plan.
    absent, shift = absent / scale, (sums[:, coins][:, :1] - absent) / scale
    ratio = np.zeros(count)
    for number in range(len(interaction.acts)):
        labels, votes, noise = left[5 * number : 5 * number + 3]
        if votes is None:
            ratio += label_ratio(labels[:, None], absent[number], shift[number])
        else:
            away = votes / noise[:, None] - absent[number] - shift[number] / 2
            ratio += (away * shift[number]).sum(axis=1)
    return int(((ratio > 0) == coins).sum()), local
