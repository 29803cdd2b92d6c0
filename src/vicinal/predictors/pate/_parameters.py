"""From the parameters of a PATE classifier to its plan, and to teachers that answer."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting._composition import Composition
from vicinal.accounting._data_dependent_cost import PrivateMaxima
from vicinal.accounting._screening import ScreeningAt
from vicinal.accounting._smooth_cost import SmoothCost
from vicinal.accounting._subsampled import SubsampledGaussian
from vicinal.errors import InvalidInput
from vicinal.mechanisms import fresh_key, randomness
from vicinal.mechanisms._interactions import interactions
from vicinal.mechanisms._noisy_max import GaussianMax, LaplaceMax, NoisyMax
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.mechanisms._sampling import bernoulli_source
from vicinal.mechanisms._screening import FINEST, NoisyThreshold
from vicinal.mechanisms._smooth_cost import LEAST_SCALE, NoisyCost
from vicinal.mechanisms._teachers import Teacher, count_votes, randomness_of, teachers_of
from vicinal.predictors._common import inputs
from vicinal.predictors._common.fixed_plan import Plan, check_abstention, summed

MECHANISMS = ("gnmax", "lnmax", "confident_gnmax")
"""How votes become answers; see :class:`PATEClassifier`."""

_BLOCK = 1000


class PATEParameters(Protocol):
    """The estimator's parameters, as its constructor takes them; meanings are told there."""

    classes: Any
    n_teachers: int
    sigma_votes: float
    mechanism: str
    teacher: Any
    scale: float
    sigma_screen: float | None
    threshold: float | None
    n_queries: int
    n_answers: int | None
    delta: float
    release: str
    smooth_cost: tuple[float, float, float] | None
    interactions: int | str
    simulation_seed: int | None


@dataclass(frozen=True, slots=True)
class PATESettings:
    """Checked parameters of a PATE classifier."""

    classes: npt.NDArray[Any]
    n_teachers: int
    mechanism: str
    noise: float
    teacher: Any
    sigma_screen: float
    threshold: float
    n_queries: int
    n_answers: int
    label_only: bool
    smooth: tuple[float, float, float] | None
    interactions: int
    seed: int | None

    @classmethod
    def of(cls, given: PATEParameters) -> Self:
        """Check an estimator's parameters; raise InvalidInput naming the first bad one."""
        mechanism = _checks.choice("mechanism", given.mechanism, MECHANISMS)
        screened = mechanism == "confident_gnmax"
        classes = _checks.class_names(given.classes)
        sigma = _checks.real("sigma_votes", given.sigma_votes, least=1e-2, most=1e9)
        scale = _checks.real("scale", given.scale, least=1e-3, most=1e6)
        n_queries = _checks.integer("n_queries", given.n_queries, least=1, most=10**9)
        _checks.real("delta", given.delta, above=0, below=1)
        label = _checks.choice("release", given.release, ("votes", "label")) == "label"
        if screened:
            check_abstention(classes)
        return cls(
            classes=classes,
            n_teachers=_checks.integer("n_teachers", given.n_teachers, least=1, most=10**6),
            mechanism=mechanism,
            noise=scale if mechanism == "lnmax" else sigma,
            teacher=_teacher(given.teacher),
            sigma_screen=_screening("sigma_screen", given.sigma_screen, screened, 1e-2, 1e9),
            threshold=_screening("threshold", given.threshold, screened, -1e7, 1e7),
            n_queries=n_queries,
            n_answers=_answers(given.n_answers, n_queries, screened),
            label_only=label or mechanism == "lnmax",
            smooth=_smooth(given.smooth_cost, label and mechanism == "gnmax"),
            interactions=interactions(given.interactions),
            seed=None
            if given.simulation_seed is None
            else _checks.integer("simulation_seed", given.simulation_seed, least=0),
        )

    @property
    def terms(self) -> Hashable:
        """What interactions that share the guarantee must have in common: all of the plan."""
        return "PATE", json.dumps([self.releases(), self.smooth], sort_keys=True)

    @property
    def screened(self) -> bool:
        """Whether queries are screened."""
        return self.mechanism == "confident_gnmax"

    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""
        what = {"release": "label" if self.label_only else "votes"}
        if self.mechanism == "lnmax":
            return [{"kind": "lnmax", "scale": self.noise, "count": self.n_queries}]
        if self.mechanism == "gnmax":
            return [{"kind": "gnmax", "sigma": self.noise, "count": self.n_queries, **what}]
        screening = {
            "teachers": self.n_teachers,
            "threshold": self.threshold,
            "sigma_screen": self.sigma_screen,
        }
        return [
            {
                "kind": "confident_gnmax",
                **screening,
                "sigma_votes": self.noise,
                "answered": self.n_answers,
                "count": self.n_queries,
                **what,
            }
        ]

    def draws(self) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""
        screened = float(self.n_queries) * self.screened
        voted = float(self.n_answers) * len(self.classes)
        published = (LEAST_SCALE, float(self.smooth is not None))
        return summed([(FINEST, screened), (self.voting().scale, voted), published])

    def publication(self) -> NoisyCost | None:
        """Return what publishes the cost, once, if that is planned."""
        if self.smooth is None:
            return None
        order, beta, sigma = self.smooth
        cost = SmoothCost.at(self.noise, order, len(self.classes))
        return NoisyCost(cost, beta, sigma, self.n_queries, randomness(self.seed))

    def voting(self) -> NoisyMax:
        """Return the noisy maximum, with a fresh quota."""
        kind = LaplaceMax if self.mechanism == "lnmax" else GaussianMax
        quota, noise = ReleaseCounter(self.n_answers, "answers"), randomness(self.seed)
        return kind(self.noise, self.n_teachers, quota, noise, label_only=self.label_only)

    def screening(self) -> NoisyThreshold | None:
        """Return the screening, with a fresh quota, or None."""
        if not self.screened:
            return None
        quota = ReleaseCounter(self.n_queries, "screenings")
        noise, coins = randomness(self.seed), bernoulli_source(self.seed)
        return NoisyThreshold(self.threshold, self.sigma_screen, quota, noise, coins)


class PATERelease:
    """Teachers that answer as planned, and remember their votes for the curator.

    Used by one thread at a time.
    """

    def __init__(
        self,
        settings: PATESettings,
        records: inputs.FitInputs,
        labels: npt.NDArray[np.int32],
    ) -> None:
        self._settings = settings
        self._asked = ReleaseCounter(settings.n_queries, "queries")
        self._publication = settings.publication()
        self._screening, self._voting = settings.screening(), settings.voting()
        simulated = settings.seed is not None
        key = f"simulated:{settings.seed}".encode() if simulated else fresh_key()
        part = teachers_of(list(records.names), key, settings.n_teachers)
        self.teachers = [
            Teacher(
                settings.teacher,
                records.features[part == number],
                labels[part == number],
                len(settings.classes),
                randomness_of(number, key),
            )
            for number in range(settings.n_teachers)
        ]
        self._largest: list[int] = []
        self._votes: list[tuple[float, ...]] = []

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more queries were not planned."""
        self._asked.check(size)

    def blocks(self, queries: inputs.FloatMatrix) -> Iterator[inputs.FloatMatrix]:
        """Yield consecutive queries, as many as a progress bar wants to hear of at a time."""
        for start in range(0, len(queries), _BLOCK):
            yield queries[start : start + _BLOCK]

    def answer(self, queries: inputs.FloatMatrix) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
        """Take from the quotas; return who is answered, bool (q,), and their answers."""
        self._asked.note_releases(len(queries))
        passed = np.full(len(queries), self._voting.quota.left > 0)
        votes = count_votes(self.teachers, queries, len(self._settings.classes))
        if self._screening is not None and passed.any():
            largest = votes.max(axis=1)
            self._largest += largest.tolist()
            passed = self._screening.publish(largest)
        # Who passed is public, so this is, too: the first of them up to what was planned.
        passed &= np.cumsum(passed) <= self._voting.quota.left
        self._votes += [tuple(map(float, row)) for row in votes[passed].tolist()]
        return passed, self._voting.publish(votes[passed] * self._voting.steps)

    def publish_cost(self, delta: float) -> dict[str, float]:
        """Return the noisy cost of the labels so far, see :meth:`PATEClassifier.publish_cost`."""
        published = self._publication
        assert published is not None  # noqa: S101 (checked by the only caller)
        order = published.cost.order
        cost = published.publish(np.array(self._votes, dtype=np.int64))
        publishing = float(published.term.rdp(np.array([order]))[0])
        conversion = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        epsilon = max(0.0, cost + publishing + conversion)
        return {
            "order": order,
            "cost": cost,
            "publishing": publishing,
            "epsilon": epsilon,
            "delta": delta,
        }

    def private_composition(self) -> Composition:
        """Return the releases so far, at their own votes. Private."""
        settings = self._settings
        total = Composition()
        for votes, count in sorted(Counter(self._largest).items()):
            at = ScreeningAt(votes, settings.n_teachers, settings.threshold, settings.sigma_screen)
            total = total.add(Composition.of(at, count))
        if not self._votes:
            return total
        if not settings.label_only:
            # The cost at the votes is known for labels only.
            noise = SubsampledGaussian(settings.noise / math.nextafter(math.sqrt(2), 2))
            return total.add(Composition.of(noise, len(self._votes)))
        name = "lnmax" if settings.mechanism == "lnmax" else "gnmax"
        return total.add(Composition.of(PrivateMaxima(name, settings.noise, tuple(self._votes))))


def _teacher(given: Any) -> Any:
    if given is None:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=200)
    if not (hasattr(given, "fit") and hasattr(given, "predict") and hasattr(given, "get_params")):
        raise InvalidInput(
            f"The 'teacher' parameter must be a scikit-learn classifier. Got {given!r}."
        )
    return given


def _screening(name: str, value: object, screened: bool, least: float, most: float) -> float:
    if screened:
        return _checks.real(name, value, least=least, most=most)
    if value is not None:
        raise InvalidInput(f"The {name!r} parameter belongs to mechanism='confident_gnmax'.")
    return 1.0


def _smooth(given: Any, possible: bool) -> tuple[float, float, float] | None:
    if given is None:
        return None
    if not possible or not isinstance(given, tuple | list) or len(given) != 3:
        raise InvalidInput(
            "The 'smooth_cost' parameter must be None or three numbers (order, beta, sigma), the "
            f"latter with mechanism='gnmax' and release='label'. Got {given!r}."
        )
    return (
        _checks.real("smooth_cost order", given[0], least=1 + 1e-6, most=1e6),
        _checks.real("smooth_cost beta", given[1], above=0, most=3.9),
        _checks.real("smooth_cost sigma", given[2], least=1e-3, most=1e3),
    )


def _answers(value: object, n_queries: int, screened: bool) -> int:
    if value is None:
        return n_queries
    if not screened:
        raise InvalidInput("The 'n_answers' parameter belongs to mechanism='confident_gnmax'.")
    return _checks.integer("n_answers", value, least=0, most=n_queries)
