"""What estimators share whose releases are all alike: a plan priced beforehand, and no copies."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from vicinal import _checks
from vicinal._checks import SubjectId
from vicinal.accounting._calibrate import calibrate
from vicinal.accounting._guarantee import Guarantee
from vicinal.accounting._plan import NEIGHBOURING, account
from vicinal.accounting._plan import Plan as CheckedPlan
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.predictors._common import claims, inputs
from vicinal.predictors._common.guarantee_text import only_release
from vicinal.predictors._common.lock import ForkSafeLock
from vicinal.predictors._common.parameters import Real, Settings

ABSTAIN = -1
"""The answer, with integer classes, to a query that was not answered; else it is None."""

PROTECTED = "features, labels and presence of every record, over all answers since fit together"
PUBLIC = ("the queries", "the class names", "all parameters", "all answers given")
ASSUMED = (
    "each person's records carry that person's subject id (without ids, one record is one person)",
    "features are computed record by record, with nothing learnt from private records",
    "the system's entropy is unpredictable",
    "time and memory use are not observed",
)

GRID_SHARE = 5e-11
"""Share of delta that whole steps of noise may cost: less than the accounting rounds up by."""

VOTE_NOISE = Real(least=1e-2, most=1e9)
"""What a noise scale in votes must be."""

_PER_DRAW = 1 / 6
METHODS = {
    "pld": "privacy loss distributions, composed numerically and rounded up",
    "rdp": "Renyi DP, converted by Balle et al. 2020",
    "gdp": "Gaussian DP",
    "rdp_mironov": "Renyi DP, converted by Mironov 2017",
}
"""The accounting's methods in words."""

Plan = dict[str, Any]


def priced(plan: Plan) -> dict[str, Any]:
    """Return what ``vicinal account`` says of `plan`, without the lower bound's certificate."""
    price: dict[str, Any] = json.loads(_priced(json.dumps(plan, sort_keys=True)))
    return price


@lru_cache(maxsize=64)
def _priced(plan: str) -> str:
    return json.dumps(account(json.loads(plan)))


def summed(draws: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return how many draws there are at each scale."""
    total: dict[int, float] = {}
    for scale, count in draws:
        total[scale] = total.get(scale, 0.0) + count
    return total


def grid_cost(epsilon: float, draws: dict[int, float]) -> float:
    """Return what the grid of the noise adds to delta.

    Parameters
    ----------
    epsilon : float
        The guarantee's, under noise from the real line.
    draws : dict of int to float
        How many draws of noise are made at each scale in steps. Each draw changes probabilities
        by at most 1 / (6 scale^2) (mechanisms/screening.md), all of them together by v, say, so
        (epsilon, delta + (1 + e^epsilon) v) holds.
    """
    change = _PER_DRAW * math.fsum(count / float(scale) ** 2 for scale, count in draws.items())
    return change * (1 + math.exp(min(epsilon, 700.0)))


def _room(plan: Plan, price: dict[str, Any]) -> float:
    """Return the share of delta that is certainly inside what the accounting rounds up by.

    It makes delta larger by a relative 1e-9 (pld) or 1e-10 (gdp), or the Renyi curve D by a
    relative 1e-10, which makes delta larger by (alpha - 1) D 1e-10; its own errors are below 1e-11.
    """
    if not price["method"].startswith("rdp"):
        return GRID_SHARE
    total = CheckedPlan.from_dict(plan).composition()
    order = total.best_order(price["delta"])
    return GRID_SHARE * min(1.0, (order - 1) * float(total.rdp(order)[0]))


def _delta_with_grid(plan: Plan, price: dict[str, Any], draws: dict[int, float]) -> float:
    """Return the plan's delta, with what the grid adds unless the accounting has room for it."""
    delta: float = price["delta"]
    cost = grid_cost(price["epsilon"], draws)
    if cost <= _room(plan, price) * delta:
        return delta
    return min(1.0, math.nextafter(delta + cost, 1.0))


def several(plan: Plan, interactions: int) -> Plan:
    """Return the plan of all interactions that share a guarantee: each carries out `plan`."""
    times = max(1, interactions)
    releases = [
        {**release, **{name: times * release[name] for name in _NUMBERS if name in release}}
        for release in plan["releases"]
    ]
    return {**plan, "releases": releases}


_NUMBERS = ("count", "answered")


def guarantee_of(
    plan: Plan,
    draws: dict[int, float],
    *,
    simulated: bool,
    interactions: int = 1,
    public: tuple[str, ...],
    assumed: tuple[str, ...] = (),
) -> Guarantee:
    """Return the guarantee of all releases of `plan`; its epsilon is that of ``vicinal account``.

    Parameters
    ----------
    plan : dict
        The JSON of a plan, for all interactions together.
    draws : dict of int to float
        See :func:`grid_cost`; of one interaction.
    simulated : bool
        Whether randomness came from a seed, which voids the guarantee.
    interactions : int
        How many interactions share the guarantee; 0 if the records are public, which voids it.
    public, assumed : tuple of str
        What is public, and assumed, besides :data:`PUBLIC` and :data:`ASSUMED`.
    """
    price = priced(plan)
    void = simulated or interactions == 0
    draws = {scale: max(1, interactions) * count for scale, count in draws.items()}
    return Guarantee(
        epsilon=math.inf if void else price["epsilon"],
        delta=1.0 if void else _delta_with_grid(plan, price, draws),
        neighbouring=NEIGHBOURING,
        protected=(PROTECTED,),
        public=(*PUBLIC, *public),
        method=METHODS[price["method"]],
        assumptions=(*price["assumptions"], *ASSUMED, only_release(interactions), *assumed),
        holds=not void,
        public_records=interactions == 0,
    )


def affordable_noise(plan: Plan, epsilon: float, noise: str) -> float:
    """Return the least value of the field `noise`, of the last release, that keeps `epsilon`.

    Parameters
    ----------
    plan : dict
        The JSON of a plan, for all interactions together.
    epsilon : float
        The target at the plan's delta. The plan never costs more, and hardly less.

    Raises
    ------
    PrivacyRefused
        If no value keeps it.
    """
    return _affordable(json.dumps(plan, sort_keys=True), epsilon, noise)


@lru_cache(maxsize=64)
def _affordable(plan: str, epsilon: float, noise: str) -> float:
    releases = json.loads(plan)
    last = len(releases["releases"]) - 1
    return float(calibrate(releases, epsilon, noise, last).value)


def check_answers(n_answers: int | None, n_queries: int, epsilon: float | None) -> None:
    """Refuse more answers than queries, and an epsilon for no answers."""
    if n_answers is None:
        return
    _checks.integer("n_answers", n_answers, least=0 if epsilon is None else 1, most=n_queries)


def check_one_noise(epsilon: float | None, name: str, noise: float | None) -> None:
    """Refuse a target epsilon beside a noise scale: each follows from the other."""
    if epsilon is not None and noise is not None:
        raise InvalidInput(
            f"The 'epsilon' parameter must be None where {name!r} is given. Leave {name!r} at "
            "'auto', or read the epsilon of this noise off guarantee()."
        )


class FixedPlanSettings(Settings):
    """Checked parameters whose releases are all planned beforehand."""

    _name: ClassVar[str]
    classes: npt.NDArray[Any]
    delta: float
    interactions: int
    simulation_seed: int | None

    @abstractmethod
    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""

    @abstractmethod
    def draws(self) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""

    @abstractmethod
    def start(self, records: inputs.FitInputs, targets: npt.NDArray[Any]) -> Any:
        """Return what makes the planned releases, with fresh quotas."""

    @property
    def terms(self) -> Hashable:
        """What interactions that share the guarantee must have in common: all of the plan."""
        return self._name, json.dumps(self.releases(), sort_keys=True)

    def targets(self, y: npt.ArrayLike | None, size: int) -> npt.NDArray[Any]:
        """Return the class of every record, int32 (n,)."""
        return inputs.labels(y, size, self.classes)

    def together(self, releases: list[Plan], delta: float | None = None) -> Plan:
        """Return the plan of all interactions that share the guarantee."""
        plan = {"delta": self.delta if delta is None else delta, "releases": releases}
        return several(plan, self.interactions)


class AnsweringSettings(FixedPlanSettings):
    """Checked parameters of a classifier whose planned releases are its answers."""

    n_queries: int
    n_answers: int | None
    release: str

    @property
    def label_only(self) -> bool:
        """Whether labels leave, and no votes."""
        return self.release == "label"

    @property
    def planned_answers(self) -> int:
        """How many queries may be answered."""
        return self.n_queries if self.n_answers is None else self.n_answers

    @property
    @abstractmethod
    def vote_noise(self) -> float:
        """The noise scale on votes: as given, or the least that keeps epsilon."""


Plans = TypeVar("Plans", bound=FixedPlanSettings)
Answering = TypeVar("Answering", bound=AnsweringSettings)


class FixedPlanRelease(Protocol):
    """Private records that answer as planned; used by one thread at a time."""

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more queries were not planned."""

    def blocks(self, queries: inputs.FloatMatrix) -> Iterator[inputs.FloatMatrix]:
        """Yield consecutive queries, as many at a time as memory allows."""

    def answer(self, queries: inputs.FloatMatrix) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
        """Take from the quota; return who is answered, bool (q,), and their answers."""


class FixedPlanEstimator(ClassifierMixin, BaseEstimator, ABC, Generic[Plans]):
    """An estimator whose releases are all planned beforehand, and priced before the first.

    A subclass says of what class its settings are, and starts its releases in :meth:`_start`.
    What is planned is, after ``fit``, what was planned then, whatever has been set since.
    """

    delta: float
    _plans: type[Plans]
    _also_public: tuple[str, ...] = ()
    _also_assumed: tuple[str, ...] = ()

    @abstractmethod
    def _start(self, settings: Plans, records: inputs.FitInputs, targets: npt.NDArray[Any]) -> None:
        """Start the planned releases on records that are claimed."""

    def _fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        public: npt.ArrayLike | None = None,
    ) -> Self:
        """Check everything, claim the records, and start; or leave the estimator as it was."""
        with inputs.unchanged_if_refused(self):
            settings = self._plans.of(self)
            records = inputs.records(self, X, subjects, public)
            targets = settings.targets(y, len(records))
            claims.claim(self, settings, records, targets)
            self.classes_ = settings.classes
            self._start(settings, records, targets)
            self._settings = settings
        return self

    def _planned(self) -> Plans:
        """Return the settings of ``fit``, or before it those that the parameters make."""
        return vars(self).get("_settings") or self._plans.of(self)

    def _draws(self) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""
        return self._planned().draws()

    def plan(self, delta: float | None = None) -> Plan:
        """Return the plan as the JSON that ``vicinal account`` reads, at `delta` or the default.

        Of all interactions together, where several were declared.
        """
        given = _checks.real("delta", self.delta if delta is None else delta, above=0, below=1)
        planned = self._planned()
        return planned.together(planned.releases(), given)

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee of the whole plan, known before the first release.

        It covers all planned releases, however many are made. ``str()`` of it reads as a
        paragraph; its epsilon is what ``vicinal account`` says of :meth:`plan`.

        Parameters
        ----------
        delta : float, optional
            The delta to state it at, instead of the estimator's own.
        """
        planned = self._planned()
        return guarantee_of(
            self.plan(delta),
            self._draws(),
            simulated=planned.simulation_seed is not None,
            interactions=planned.interactions,
            public=self._also_public,
            assumed=self._also_assumed,
        )


class FixedPlanClassifier(FixedPlanEstimator[Answering]):
    """A classifier that answers as many queries as were planned, and then no more."""

    n_asked_: int
    n_answers_: int
    _how_votes_leave = "release='votes'"

    def decision_function(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float64]:
        """Return noisy votes, float64 (q, c); NaN where a query did not pass the screening.

        Costs the same as ``predict``: ask once, and derive labels from the votes.

        Raises
        ------
        PrivacyRefused
            If only labels are paid for, or so many queries were not planned.
        """
        check_is_fitted(self)
        if self._planned().label_only:
            raise PrivacyRefused(
                "The noisy votes cannot be given: only labels are paid for. Fit with "
                f"{self._how_votes_leave}."
            )
        passed, answers = self._answers(X, progress)
        votes = np.full((len(passed), len(self.classes_)), np.nan)
        votes[passed] = answers
        return votes

    def _start(
        self, settings: Answering, records: inputs.FitInputs, targets: npt.NDArray[Any]
    ) -> None:
        self._release, self._turn = settings.start(records, targets), ForkSafeLock()
        self.vote_noise_ = settings.vote_noise
        self.n_asked_ = self.n_answers_ = 0

    def _answers(
        self, X: npt.ArrayLike, progress: Callable[[int], None] | None
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
        """Return who was answered, bool (q,), and their answers."""
        check_is_fitted(self)
        queries = inputs.features(self, X)
        with self._turn:
            self._release.check(len(queries))
            claims.release(self)
            parts = []
            for block in self._release.blocks(queries):
                passed, answers = self._release.answer(block)
                self.n_asked_ += len(passed)
                self.n_answers_ += len(answers)
                parts.append((passed, answers))
                if progress is not None:
                    progress(len(passed))
        return np.concatenate([p for p, _ in parts]), np.concatenate([a for _, a in parts])

    def _named(
        self, best: npt.NDArray[np.int64], passed: npt.NDArray[np.bool_]
    ) -> npt.NDArray[Any]:
        """Return names for the answered queries, and an abstention for the others, (q,)."""
        names: npt.NDArray[Any] = self.classes_[best]
        if passed.all():
            return names
        whole = self.classes_.dtype.kind in "iu"
        labels = np.full(len(passed), ABSTAIN if whole else None, dtype=int if whole else object)
        labels[passed] = names
        return labels

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to copy a plan: two copies could each carry it out."""
        if hasattr(self, "_release"):
            raise PrivacyRefused(
                "A fitted classifier cannot be copied or pickled: every copy could give the "
                "planned answers again. Copy it before fit (sklearn.base.clone), or share it."
            )
        return dict(super().__getstate__())


def check_abstention(classes: npt.NDArray[Any]) -> None:
    """Refuse -1 as a class where -1 marks an abstention."""
    if classes.dtype.kind in "iu" and ABSTAIN in classes:
        raise InvalidInput(
            "The 'classes' parameter must not hold -1, which marks a query that is not answered. "
            "Rename the class."
        )


def subject_slots(names: Sequence[SubjectId]) -> tuple[npt.NDArray[np.int32], int]:
    """Return the subject of every record, int32 (n,), and their number."""
    place = {name: slot for slot, name in enumerate(dict.fromkeys(names))}
    return np.array([place[name] for name in names], dtype=np.int32), len(place)
