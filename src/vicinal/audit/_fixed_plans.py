"""Audits of Private-kNN and PATE: one made-up data set asked again and again.

All queries of these mechanisms cost the same and share no state but a counter, so a plan of q
queries is carried out many times over by one data set, and its runs are independent. The law of
what leaves is known for both worlds, and the attacker tests by the likelihood ratio of all of it.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import binom
from sklearn.dummy import DummyClassifier

from vicinal.audit._bounds import Floats
from vicinal.audit._claims import PlanClaim
from vicinal.audit._damage import Heads, WeakerNoise
from vicinal.audit._trials import AuditTrial
from vicinal.mechanisms import public_draws
from vicinal.mechanisms._sampling import Bools, NearestOfSample
from vicinal.neighbours import NeighbourLists
from vicinal.neighbours._kernels import IntegerMatrix
from vicinal.neighbours._poisson_knn import Chosen
from vicinal.predictors import PATEClassifier, PrivateKNNClassifier

RUNS = 1 << 12
"""Runs of one data set between two looks at the clock."""

_TOO_FEW = 1e-9  # how likely a draw holds fewer than k others

_PASSES = 1 << 22  # queries that one fitted classifier is planned for

Release = Any  # what a fitted classifier answers by
Damages = Mapping[str, Callable[[Release], None]]
NO_DAMAGES: Damages = {}


@dataclass(frozen=True)
class AnswerLaw:
    """The law of one answer in both worlds.

    - `votes`, `moved`, float64 (c,): votes without the subject, and what it adds where it takes
      part.
    - `gamma`: how likely it takes part.
    - `sigma`: noise on every vote.
    - `label_only`: whether only the first class's winning or not is seen, of two classes.
    - `screen`: threshold and noise of the screening.
    """

    votes: Floats
    moved: Floats
    gamma: float
    sigma: float
    label_only: bool = False
    screen: tuple[float, float] | None = None

    def score(self, passed: Bools, answers: npt.NDArray[Any]) -> Floats:
        """Return the log likelihood ratio of every query's answer, (q,)."""
        ratios = np.zeros(len(passed))
        if self.screen is not None:
            threshold, noise = self.screen
            tops = (self.votes.max(), (self.votes + self.moved).max())
            absent, taking = (float(ndtr((top - threshold) / noise)) for top in tops)
            ratios += _coin_ratio(passed, absent, self._mixed(absent, taking))
        ratios[passed] += self._of_answers(answers)
        return ratios

    def _of_answers(self, answers: npt.NDArray[Any]) -> Floats:
        if self.label_only:
            absent, taking = (
                float(ndtr((votes[0] - votes[1]) / (math.sqrt(2) * self.sigma)))
                for votes in (self.votes, self.votes + self.moved)
            )
            return _coin_ratio(answers == 0, absent, self._mixed(absent, taking))
        away = (answers - self.votes - self.moved / 2) @ self.moved / self.sigma**2
        return np.logaddexp(math.log(self.gamma) + away, _log(1 - self.gamma))

    def _mixed(self, absent: float, taking: float) -> float:
        return (1 - self.gamma) * absent + self.gamma * taking


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf


def _coin_ratio(happened: Bools, absent: float, present: float) -> Floats:
    absent, present = (min(max(p, 1e-300), 1 - 1e-16) for p in (absent, present))
    return np.where(happened, math.log(present / absent), math.log((1 - present) / (1 - absent)))


class FixedPlanTrial(AuditTrial):
    """A plan of a few queries, carried out by one data set thousands of times.

    - `classifier`: with the plan of one run, not fitted.
    - `law`: of one answer.
    - `world`: where the subject stands.
    - `damages`: what breaks a fitted classifier's release, by name.
    """

    def __init__(
        self, classifier: Any, law: AnswerLaw, world: str, damages: Damages = NO_DAMAGES
    ) -> None:
        self.world = world
        self.claim = PlanClaim(classifier.plan())
        self._plan, self._law, self._damages = classifier, law, damages
        self._damage: Callable[[Release], None] | None = None
        self._ready: dict[bool, Any] = {}

    def play(self, present: bool) -> Floats:
        """Return the log likelihood ratio of all answers of each run."""
        queries = self._plan.n_queries
        fitted = self._ready.get(present)
        if fitted is None or fitted._settings.n_queries - fitted.n_asked_ < RUNS * queries:
            fitted = self._ready[present] = self._fitted(present)
        passed, answers = self._answers(fitted, RUNS * queries)
        scores = self._law.score(passed, answers).reshape(RUNS, queries)
        return np.asarray(scores.sum(axis=1))

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on every broken version."""
        return {name: self._broken(damage) for name, damage in self._damages.items()}

    def _broken(self, damage: Callable[[Release], None]) -> Self:
        """Return this attack on a broken version, with the claim that is known already."""
        other = copy.copy(self)
        other._damages, other._damage, other._ready = NO_DAMAGES, damage, {}
        return other

    def _fitted(self, present: bool) -> Any:
        parameters = self._plan.get_params(deep=False) | {
            "n_queries": _PASSES,
            "interactions": "public",
        }
        fitted = self._fit(type(self._plan)(**parameters), present)
        if self._damage is not None:
            self._damage(fitted._release)
        return fitted

    @abstractmethod
    def _fit(self, classifier: Any, present: bool) -> Any:
        """Return the classifier, fitted on one world."""

    @abstractmethod
    def _answers(self, fitted: Any, size: int) -> tuple[Bools, npt.NDArray[Any]]:
        """Return who was answered, and the answers, of `size` equal queries."""


# ---------------------------------------------------------------- Private-kNN


class PrivateKNNTrial(FixedPlanTrial):
    """Everybody says class 1, the subject stands next to the query and says class 0."""

    mechanism = "Private-kNN"
    records = 3
    """Records of the subject, which count as one."""

    def _fit(self, classifier: Any, present: bool) -> Any:
        others = _crowd(classifier)
        own = self.records if present else 0
        places = np.arange(1, own + others + 1)[:, None] * np.array([[1.0, 0.0]])
        labels = np.repeat([0, 1], [own, others])
        ids = np.concatenate([np.zeros(own, dtype=int), 1 + np.arange(others)])
        forgets = self._damage is forget_subjects
        classifier.set_params(norm_bound=2.0 * len(places))
        fitted = classifier.fit(places, labels, None if forgets else ids)
        fitted._release.encode_by(np.zeros((1, 2)), 1.0)
        return fitted

    def _answers(self, fitted: Any, size: int) -> tuple[Bools, npt.NDArray[Any]]:
        return answers_at_origin(fitted, size)


def answers_at_origin(fitted: Any, size: int) -> tuple[Bools, npt.NDArray[Any]]:
    """Return which queries at the origin pass, and what Private-kNN answers to those."""
    release = fitted._release
    release._planned.note_releases(size)
    fitted.n_asked_ += size
    passed, answers = release._answered(release.kernel.encode(np.zeros((size, 2))))
    return np.asarray(passed), answers


def _crowd(classifier: Any) -> int:
    """Return how many others there must be for k of them to be sampled, but once in 10^9 draws.

    Where fewer are, the attacker's score is off; what scores prove holds for any score.
    """
    k, gamma = int(classifier.k), float(classifier.gamma)
    others = k
    while binom.cdf(k - 1, others, gamma) > _TOO_FEW:
        others += math.ceil(1 / gamma)
    return others


def private_knn_votes(
    gamma: float = 0.15, sigma: float = 0.7, queries: int = 2, delta: float = 1e-5
) -> PrivateKNNTrial:
    """Return the attack on votes of sampled neighbours."""
    classifier = PrivateKNNClassifier(
        range(2), 2, gamma, sigma_votes=sigma, n_queries=queries, delta=delta
    )
    law = AnswerLaw(np.array([0.0, 2.0]), np.array([1.0, -1.0]), gamma, sigma)
    damages: dict[str, Callable[[Release], None]] = {
        "noise halved": halve_noise,
        "everybody sampled": sample_everybody,
        "subjects forgotten": forget_subjects,
    }
    return PrivateKNNTrial(classifier, law, f"votes, sampled at {gamma:g}, subject next", damages)


def private_knn_without_sampling(delta: float = 1e-5) -> PrivateKNNTrial:
    """Return the attack on votes where everybody takes part."""
    classifier = PrivateKNNClassifier(range(2), 3, 1.0, sigma_votes=2.0, n_queries=1, delta=delta)
    law = AnswerLaw(np.array([0.0, 3.0]), np.array([1.0, -1.0]), 1.0, 2.0)
    damages: dict[str, Callable[[Release], None]] = {
        "drawn with replacement": draw_with_replacement,
        "noise halved": halve_noise,
    }
    return PrivateKNNTrial(classifier, law, "votes, everybody takes part", damages)


def private_knn_labels(
    gamma: float = 0.15, sigma: float = 0.7, delta: float = 1e-5
) -> PrivateKNNTrial:
    """Return the attack on labels of one neighbour."""
    classifier = PrivateKNNClassifier(
        range(2), 1, gamma, sigma_votes=sigma, n_queries=1, delta=delta, release="label"
    )
    law = AnswerLaw(np.array([0.0, 1.0]), np.array([1.0, -1.0]), gamma, sigma, label_only=True)
    return PrivateKNNTrial(
        classifier, law, "labels, one neighbour", {"everybody sampled": sample_everybody}
    )


def private_knn_screening(
    gamma: float = 0.15, sigma: float = 0.7, delta: float = 1e-5
) -> PrivateKNNTrial:
    """Return the attack on what a screening lets pass; answers have noise that hides all."""
    k, threshold = 2, 2.0 - 1.5 * sigma
    classifier = PrivateKNNClassifier(
        range(2),
        k,
        gamma,
        sigma_screen=sigma,
        threshold=threshold,
        sigma_votes=1e6,
        n_queries=1,
        delta=delta,
    )
    law = AnswerLaw(
        np.array([0.0, float(k)]), np.array([1.0, -1.0]), gamma, 1e6, screen=(threshold, sigma)
    )
    damages: dict[str, Callable[[Release], None]] = {"everybody sampled": sample_everybody}
    return PrivateKNNTrial(classifier, law, "screening, unanimous neighbours", damages)


def private_knn_screened(
    gamma: float = 0.15, sigma: float = 0.7, delta: float = 1e-5
) -> PrivateKNNTrial:
    """Return the attack on a screening and the votes of what it lets pass, both telling."""
    k, noise = 2, 1.5
    threshold = k - 1.5 * noise
    classifier = PrivateKNNClassifier(
        range(2), k, gamma, sigma_screen=noise, threshold=threshold, sigma_votes=sigma,
        n_queries=1, delta=delta,
    )  # fmt: skip
    law = AnswerLaw(
        np.array([0.0, float(k)]), np.array([1.0, -1.0]), gamma, sigma, screen=(threshold, noise)
    )
    damages: dict[str, Callable[[Release], None]] = {
        "noise halved": halve_noise,
        "everybody sampled": sample_everybody,
    }
    return PrivateKNNTrial(classifier, law, "screening, then votes of what passed", damages)


# ---------------------------------------------------------------- PATE


class PATETrial(FixedPlanTrial):
    """All teachers say class 0 but the one that the subject's records decide."""

    mechanism = "PATE"

    def _fit(self, classifier: Any, present: bool) -> Any:
        own = 4 if present else 0
        labels = np.repeat([1, 0], [own, 1])
        ids = np.repeat([0, 1], [own, 1])
        forgets = self._damage is forget_subjects
        return classifier.fit(np.zeros((own + 1, 1)), labels, None if forgets else ids)

    def _answers(self, fitted: Any, size: int) -> tuple[Bools, npt.NDArray[Any]]:
        fitted.n_asked_ += size
        passed, answers = fitted._release.answer(np.zeros((size, 1)))
        return np.asarray(passed), answers


def pate_votes(sigma: float = 2.0, queries: int = 2, delta: float = 1e-5) -> PATETrial:
    """Return the attack on votes of teachers."""
    teachers = 50
    classifier = PATEClassifier(
        range(2), teachers, sigma_votes=sigma,
        teacher=DummyClassifier(strategy="constant", constant=1), n_queries=queries, delta=delta,
    )  # fmt: skip
    law = AnswerLaw(np.array([float(teachers), 0.0]), np.array([-1.0, 1.0]), 1.0, sigma)
    damages: dict[str, Callable[[Release], None]] = {
        "noise halved": halve_noise,
        "subjects forgotten": forget_subjects,
    }
    return PATETrial(classifier, law, "votes, a teacher that the subject decides", damages)


# ---------------------------------------------------------------- broken versions


def halve_noise(release: Release) -> None:
    """Draw half of the noise that was paid for."""
    release._voting._noise = WeakerNoise(2)


def forget_subjects(release: Release) -> None:
    """Take every record for a subject of its own; the trial fits without ids."""


def sample_everybody(release: Release) -> None:
    """Let everybody take part whatever their coins say."""
    release.nearest._source = Heads()


class ReplacementSample(NearestOfSample):
    """A sample of fixed size with replacement, in which one person votes several times."""

    def draw(self, queries: IntegerMatrix, near: NeighbourLists) -> Chosen:  # noqa: ARG002
        """Return the first k of so many draws; records lie in order of distance."""
        subjects, first = np.unique(self.knn.slots, return_index=True)
        size = round(self.gamma * len(subjects))
        drawn = public_draws().integers(0, len(first), (len(queries), size))
        rows = np.sort(first[drawn], axis=1)[:, : self.knn.k]
        return np.ascontiguousarray(rows, dtype=np.int32)


def draw_with_replacement(release: Release) -> None:
    """Sample as published code did."""
    honest = release.nearest
    release.nearest = ReplacementSample(honest.knn, honest.gamma, honest._source)
