"""Attacks on noisy sums, labels, and answers of a gate, by the likelihood ratio."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr

from vicinal._arrays import Floats, Ints
from vicinal.audit._claims import Claim, PlanClaim, ind_knn_claim
from vicinal.audit._interactions import AuditInteraction, Damage, TwoWorlds, damages
from vicinal.audit._schedule import AuditTrial
from vicinal.baselines import NoisySGDClassifier
from vicinal.mechanisms import public_draws
from vicinal.testing import Transcript, no_noise, noise_from

MOST_RUNS, NUMBERS_AT_ONCE = 1 << 12, 1 << 18
"""Runs between two looks at the clock, at most, and numbers that noise is added to for them."""

CERTAIN = 1e3
"""Added to the log likelihood ratio where something left that is not made of noisy sums."""

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(81)


class SumsTrial(AuditTrial):
    """Noisy sums of an interaction, or the labels made of its votes: all that was released.

    `world` says where the subject stands; `broken` what to break.
    """

    def __init__(
        self,
        mechanism: str,
        interaction: AuditInteraction,
        world: str,
        broken: Mapping[str, Damage],
        claim: Claim | None = None,
    ) -> None:
        self.mechanism, self.world = mechanism, world
        plan = interaction.plan
        self.claim = claim or ind_knn_claim(plan)
        self._interaction, self._damages = interaction, broken
        self._table = plan.charges if plan.label_only else None
        self._prepare()

    def _prepare(self) -> None:
        self._worlds = TwoWorlds.of(self._interaction, self._damage)
        size = sum(sums.size for sums in self._worlds.absent)
        self._runs = max(64, min(MOST_RUNS, NUMBERS_AT_ONCE // max(1, size)))
        classes = len(self._interaction.parameters.get("classes", ()))
        self.moved = self._worlds.moved(self._table, classes)
        # Votes and no gradients: these have a row for each feature.
        self._labels = [
            self._table is not None and sums.shape == (1, classes) for sums in self._worlds.absent
        ]

    def play(self, present: bool) -> Floats:
        drawn = self._worlds.drawn(present, self._damage.noise(), self._runs)
        leaked = present and not self._worlds.alike
        total = np.full(self._runs, CERTAIN if leaked else 0.0)
        parts = zip(drawn, self._worlds.absent, self._worlds.shifts(), self._worlds.scales,
                    self._labels, strict=True)  # fmt: skip
        for noisy, absent, shift, scale, label in parts:
            if label:
                total += label_ratio(noisy.argmax(axis=2), absent / scale, shift)
            else:
                away = (noisy - absent) / scale - shift / 2
                total += (away * shift).reshape(self._runs, -1).sum(axis=1)
        return total


def label_ratio(labels: Ints, votes: Floats, shift: Floats) -> Floats:
    """Return the log likelihood ratio of whether the first class won; votes in noise scales."""
    absent, there = chances_of_first(votes), chances_of_first(votes + shift)
    won, lost = np.log(there / absent), np.log((1 - there) / (1 - absent))
    return np.asarray(np.where(labels == 0, won, lost).sum(axis=1))


class GateTrial(AuditTrial):
    """Noisy votes of many universes, while a model of earlier answers answers where it is sure."""

    mechanism = "Ind-KNN gate"

    def __init__(
        self, interaction: AuditInteraction, world: str, broken: Mapping[str, Damage]
    ) -> None:
        self.world, self.claim = world, ind_knn_claim(interaction.plan)
        self._interaction, self._damages = interaction, broken
        self._prepare()

    def _prepare(self) -> None:
        open_to_all = {**self._interaction.parameters, "reuse_predictions": False}
        every = replace(self._interaction, parameters=open_to_all)
        worlds = [self._votes(every, there, Transcript(no_noise())) for there in (False, True)]
        self._absent, self._shift = worlds[0], worlds[1] - worlds[0]

    def _votes(self, interaction: AuditInteraction, present: bool, noise: Transcript) -> Floats:
        """Return all votes in noise scales, (asks, universes, c); NaN where nobody was asked."""
        left = interaction.gone_through(present, self._damage, noise)
        asks = zip(left[1::5], left[2::5], strict=True)
        return np.stack([votes / noise[:, None] for votes, noise in asks])

    def play(self, present: bool) -> Floats:
        votes = self._votes(self._interaction, present, Transcript(self._damage.noise()))
        gain = np.nan_to_num((votes - self._absent - self._shift / 2) * self._shift)
        return np.asarray(gain.sum(axis=(0, 2)))


def chances_of_first(votes: Floats) -> Floats:
    """Return how likely the first class has the most noisy votes; `votes` in noise scales."""
    leads = votes[..., :1] - votes[..., 1:]
    wins = np.zeros(votes.shape[:-1])
    for node, weight in zip(_NODES.tolist(), _NODE_WEIGHTS.tolist(), strict=True):
        wins += weight * np.exp(log_ndtr(node + leads).sum(axis=-1))
    return np.clip(wins / math.sqrt(2 * math.pi), 1e-12, 1 - 1e-12)


# ---------------------------------------------------------------- noisy gradients of a plan

_SUBJECTS = 1024


class NoisySGDTrial(AuditTrial):
    """All noisy gradients of a training, of subjects who each have a feature of their own.

    Of a subject's two records, which are opposite and say opposite things, nothing is left along
    the bias that all share: each subject's gradient lies along its own feature, cut to the bound.
    """

    mechanism = "NoisySGD"
    world = "gradients of one subject, alone on its feature"
    _damages = damages("noise halved", "subjects forgotten", "everybody sampled", "twice the plan")

    def __init__(
        self, gamma: float = 0.15, epsilon: float = 8.0, steps: int = 3, delta: float = 1e-5
    ) -> None:
        self._classifier = NoisySGDClassifier(
            range(2), epsilon=epsilon, delta=delta, n_steps=steps, sampling_rate=gamma,
            n_records=10 * _SUBJECTS, interactions="public",
        )  # fmt: skip
        self._gamma = gamma
        self.claim = PlanClaim(self._classifier.plan())

    def play(self, present: bool) -> Floats:
        axes = np.eye(_SUBJECTS, _SUBJECTS + 1)
        if not present:
            axes = axes[:0]
        nobody = np.eye(1, _SUBJECTS + 1, _SUBJECTS)
        X, y = np.concatenate([axes, -axes, nobody]), np.repeat([0, 1, 0], [len(axes)] * 2 + [1])
        ids = np.concatenate([np.arange(len(axes))] * 2 + [[_SUBJECTS]])
        seen = Transcript(self._damage.noise())
        with noise_from(seen), self._damage.done():
            self._classifier.fit(X, y, None if self._damage.forgets_subjects else ids)
        sigma = self._classifier.noise_multiplier_
        total = np.zeros(_SUBJECTS)
        for _, scale, noisy in seen.released:
            # In noise scales, along a subject's feature: class 1 less class 0.
            along = (noisy[:_SUBJECTS, 1] - noisy[:_SUBJECTS, 0]) / (math.sqrt(2) * scale)
            away = (along - 0.5 / sigma) / sigma
            total += np.logaddexp(math.log(self._gamma) + away, math.log1p(-self._gamma))
        return total


# ---------------------------------------------------------------- published students

_POOL, _WIDTH = 6, 16  # public examples; the first is the query, two others have public labels


class StudentTrial(SumsTrial):
    """Students of the labels of one query: how sure each is there of the subject's class."""

    def _prepare(self) -> None:
        super()._prepare()
        self._known: dict[bytes, float] = {}

    def play(self, present: bool) -> Floats:
        drawn = self._worlds.drawn(present, self._damage.noise(), self._runs)
        labels = np.stack([noisy.argmax(axis=2)[:, 0] for noisy in drawn])
        kinds, which = np.unique(np.sort(labels, axis=0), axis=1, return_inverse=True)
        for kind in kinds.T:
            if kind.tobytes() not in self._known:
                self._known[kind.tobytes()] = _sureness(kind)
        return np.array([self._known[kind.tobytes()] for kind in kinds.T])[which.ravel()]


def _sureness(labels: Ints) -> float:
    """Return how sure a student of these labels of one query, (q,), is of the first of two."""
    from vicinal.students import Recipe, train_student

    pool = public_draws(0).normal(size=(_POOL, _WIDTH)).astype(np.float32)
    rows = np.concatenate([np.zeros(len(labels), dtype=int), [1, 2]])
    recipe = Recipe(network="mlp", method="plain", steps=10, labelled=8, unlabelled=2)
    student = train_student(pool, rows, [*labels.tolist(), 0, 1], [0, 1], recipe)
    return float(student.predict_proba(pool[:1])[0, 0])
