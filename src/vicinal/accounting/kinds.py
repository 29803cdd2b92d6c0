"""The kinds of releases that a plan can hold: fields, cost, certificate, assumptions.

One :class:`PlannedRelease` a mechanism; a new mechanism is a new entry of ``KINDS``.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sized
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

from scipy.special import ndtr

from vicinal import checks as _checks
from vicinal.accounting import _counts as counts
from vicinal.accounting import budget
from vicinal.accounting._certificate import WorstCasePair, gaussian_worst_case, threshold_worst_case
from vicinal.accounting.composition import MAX_COUNT, Composition, PricedRelease
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.label_only import NoisyLabel
from vicinal.accounting.screening import MAX_VOTES, Screening
from vicinal.errors import InvalidInput

FieldCheck = Callable[[str, object], Any]

POISSON = (
    "with gamma < 1 every subject takes part by an independent coin of probability gamma, tossed "
    "anew for every release; never a sample of fixed size"
)
KNOWN_COINS = (
    "with gamma < 1 the lower bound is for an attacker who knows everybody else's coins, as in "
    "every analysis of sampling"
)
LABEL_ONLY = (
    "where only the label is released, nobody sees the noisy votes, and nothing else is "
    "computed from them"
)
ONE_OF_K = (
    "a subject has at most one record among the k that vote, so that one subject moves the vote "
    "vector by at most one vote in and one vote out"
)


def check_that(meaning: str, check: Callable[..., Any], **bounds: Any) -> FieldCheck:
    """Return a check with its bounds; `meaning` is what the reference says of the field."""
    bounded = partial(check, **bounds)
    bounded.__doc__ = meaning
    return bounded


positive = check_that("a finite number > 0", _checks.check_real, above=0)
fraction = check_that("a number between 0 and 1", _checks.check_real, above=0, below=1)
rate = check_that("a probability > 0", _checks.check_real, above=0, most=1)
scale = check_that("a noise scale", _checks.check_real, least=1e-2, most=1e9)
threshold = check_that("a threshold in votes", _checks.check_real, least=-1e7, most=1e7)
vote_count = check_that(
    "a number of voting records", _checks.check_integer, least=1, most=MAX_VOTES
)
classes = check_that("a number of classes", _checks.check_integer, least=2)
check_release = check_that(
    "what leaves the mechanism", _checks.check_choice, options=("votes", "label")
)


whole_step = check_that("a whole number", _checks.check_integer, least=1, most=10_000)

_MOST_NUMBERS = 20_000


def numbers(name: str, value: object, **bounds: float) -> tuple[float, ...]:
    """Return a list of numbers within bounds, not empty."""
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_NUMBERS:
        raise InvalidInput(
            f"The '{name}' parameter must be a list of 1 to {_MOST_NUMBERS} numbers."
        )
    return tuple(_checks.check_real(name, each, **bounds) for each in value)


def growing(name: str, value: object, **bounds: float) -> tuple[float, ...]:
    """Return the same, each larger than the one before."""
    values = numbers(name, value, **bounds)
    if any(first >= second for first, second in pairwise(values)):
        raise InvalidInput(f"The '{name}' parameter must grow from number to number.")
    return values


def checked(check: FieldCheck, default: Any = dataclasses.MISSING) -> Any:
    """Return a dataclass field that `check` admits; default None: it may be missing altogether."""
    return dataclasses.field(default=default, metadata={"check": check})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRelease(ABC):
    """One release of a plan.

    A kind of release is a subclass: its fields, each declared once. A plan calls it by its `kind`.
    """

    kind: ClassVar[str]

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the fields besides kind and count."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """Return the fields that must be given."""
        fields = dataclasses.fields(cls)
        return tuple(field.name for field in fields if field.default is dataclasses.MISSING)

    @classmethod
    def from_fields(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Check every given field; `name` is how errors call the release."""
        checks = {field.name: field.metadata["check"] for field in dataclasses.fields(cls)}
        given_checks = {key: check for key, check in checks.items() if key in values}
        return cls(
            **{key: check(f"{name}.{key}", values[key]) for key, check in given_checks.items()}
        )

    @property
    def values(self) -> dict[str, Any]:
        """Return the fields that have a value, by name."""
        values = {key: getattr(self, key) for key in sorted(self.field_names())}
        return {key: value for key, value in values.items() if value is not None}

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Check fields against each other and the plan; return them with what follows from it.

        Errors call the release `name`; `count` such are planned, at the plan's `delta`.
        """
        return self

    @abstractmethod
    def cost(self, count: int) -> Composition:
        """Return what `count` such releases cost."""

    @abstractmethod
    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        """Return laws that some neighbouring data sets give, bad at `order`; None if not known."""

    def parts(self, delta: float) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return what one release is made of, each with its epsilon `alone` at `delta`."""
        return []

    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """Return what must be true for the cost to hold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _EqualParts(PlannedRelease):
    """A release made of :attr:`times` parts of one price."""

    @abstractmethod
    def priced(self) -> PricedRelease:
        """Return one of the parts."""

    @property
    def times(self) -> int:
        return 1

    def cost(self, count: int) -> Composition:
        return Composition.of(self.priced(), count * self.times)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:  # noqa: ARG002
        """Return what a subject does that moves every part by the whole sensitivity."""
        priced, number = self.priced(), count * self.times
        if isinstance(priced, SubsampledGaussian):
            return [gaussian_worst_case(1 / priced.sigma, priced.gamma, number)]
        pair: Any = priced.pair()
        return None if pair is None else [pair.worst_case(number)]


_VOTES_SENSITIVITY = math.nextafter(math.sqrt(2), 2)


def _sampling_assumptions(gamma: float) -> tuple[str, ...]:
    return (POISSON, KNOWN_COINS) if gamma < 1 else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedScreening(_EqualParts):
    """Whether the largest of k votes reaches a threshold."""

    kind: ClassVar[str] = "screening"

    k: int = checked(vote_count)
    classes: int | None = checked(classes, None)
    threshold: float = checked(threshold)
    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)

    def priced(self) -> Screening:
        return Screening(self.k, self.threshold, self.sigma, self.gamma)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        screening = self.priced()
        votes, sign = screening.worst_votes(order)
        position = sign * (votes - screening.threshold) / screening.sigma
        return [threshold_worst_case(position, 1 / screening.sigma, screening.gamma, count)]

    def assumptions(self) -> tuple[str, ...]:
        return (ONE_OF_K, *_sampling_assumptions(self.gamma))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedNoisyMax(_EqualParts):
    """Votes of every class with Gaussian noise, or the class that has the most of them."""

    kind: ClassVar[str] = "noisy_max"

    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)
    release: str = checked(check_release, "votes")
    classes: int | None = checked(classes, None)

    def priced(self) -> PricedRelease:
        if self.release == "votes":
            return SubsampledGaussian(self.sigma / _VOTES_SENSITIVITY, self.gamma)
        return NoisyLabel(self.sigma, self.gamma, self.classes)

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        if self.release == "votes":
            return super().worst_case(count, order)
        # Two classes, one leading by a vote: one in and one out make the other lead by a vote.
        half = 1 / (self.sigma * _VOTES_SENSITIVITY)
        return [threshold_worst_case(-half, 2 * half, self.gamma, count)]

    def assumptions(self) -> tuple[str, ...]:
        label = () if self.release == "votes" else (LABEL_ONLY,)
        return (ONE_OF_K, *label, *_sampling_assumptions(self.gamma))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedGaussian(_EqualParts):
    """A vector with Gaussian noise."""

    kind: ClassVar[str] = "gaussian"

    sigma: float = checked(scale)
    sensitivity: float = checked(positive, 1.0)
    gamma: float = checked(rate, 1.0)

    def priced(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma / self.sensitivity, self.gamma)

    def assumptions(self) -> tuple[str, ...]:
        return (
            (
                "one subject moves a Gaussian release by at most its sensitivity, in the Euclidean "
                "norm"
            ),
            *_sampling_assumptions(self.gamma),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedMultilabel(_EqualParts):
    """Votes for any number of attributes, with noise on every attribute."""

    kind: ClassVar[str] = "multilabel"

    tau: float = checked(positive)
    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)

    def priced(self) -> SubsampledGaussian:
        return multilabel(self.tau, self.sigma, self.gamma)

    def assumptions(self) -> tuple[str, ...]:
        return (
            ONE_OF_K,
            (
                "every neighbour's label vector is scaled to an L1 norm of at most tau, entries of "
                "0 stay 0, and noise is added to every attribute"
            ),
            "the lower bound takes two neighbours with tau labels each and none in common",
            *_sampling_assumptions(self.gamma),
        )


def sensitivity(tau: float) -> float:
    """Return the L2 sensitivity sqrt(2 tau) of the summed, tau-bounded label vectors."""
    return math.nextafter(math.sqrt(2 * _checks.check_real("tau", tau, above=0)), math.inf)


def multilabel(tau: float, sigma: float, gamma: float = 1.0) -> SubsampledGaussian:
    """Return the release of one query's noisy label counts at noise scale `sigma` (votes)."""
    scale = _checks.check_real("sigma", sigma, above=0)
    return SubsampledGaussian(scale / sensitivity(tau), gamma)


MOST_STEPS = 10**6
steps = check_that("a number of gradients", _checks.check_integer, least=1, most=MOST_STEPS)

KEEPS = (
    "a trained model keeps what it has learnt about subjects who leave, and knows nothing of "
    "those who come later"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTraining(_EqualParts):
    """Noisy gradients that train a model once, such as NoisySGD; `count` trainings.

    `sigma` is the noise on every coordinate, over the clipping bound. With gamma = 1 all subjects
    are in all batches. A training inside Ind-KNN's own filter is an `ind_knn` with `model_share`
    instead: the filter has paid for it.
    """

    kind: ClassVar[str] = "training"

    steps: int = checked(steps)
    sigma: float = checked(scale)
    gamma: float = checked(rate, 1.0)

    def complete(self, name: str, delta: float, count: int) -> PlannedTraining:  # noqa: ARG002
        if count * self.steps > MAX_COUNT:
            raise InvalidInput(
                f"The '{name}.steps' parameter must be at most {MAX_COUNT // count} for {count} "
                f"trainings. Got {self.steps}."
            )
        return self

    @property
    def times(self) -> int:
        return self.steps

    def priced(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma, self.gamma)

    def assumptions(self) -> tuple[str, ...]:
        return (
            (
                "the gradient of a subject, summed over its records, is clipped to one bound, and "
                "sigma is the noise over that bound"
            ),
            KEEPS,
            *_sampling_assumptions(self.gamma),
        )


MODEL_STEPS = 40  # gradients of a private model, unless others are planned

_GRID_SHARE = 0.01
"""Share of an Ind-KNN filter's own delta that its grid, and the tail of labels, may use up.

The same number as `mechanisms.SLACK_SHARE`, at which the filter's meter stops; a test compares
them.
"""

_TRAINED = (
    "gradients and answers are charged in one filter, each subject for its own: what training "
    "leaves of a budget is spent on answers, and somebody who comes later spends all of it there"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedIndKNN(_EqualParts):
    """All queries to one Ind-KNN classifier; its budget from `B`, or from `epsilon` and `delta`.

    With `model_share` a private model is trained in the same filter, by `model_steps` gradients
    that take at most this share of a subject's budget: it costs nothing beside the budget.
    """

    kind: ClassVar[str] = "ind_knn"

    epsilon: float | None = checked(positive, None)
    delta: float | None = checked(fraction, None)
    B: float | None = checked(positive, None)
    release: str = checked(check_release, "votes")
    model_share: float | None = checked(fraction, None)
    model_steps: int | None = checked(steps, None)

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        if (self.epsilon is None) == (self.B is None):
            raise InvalidInput(
                f"The '{name}.epsilon' and '{name}.B' parameters: exactly one must be given."
            )
        if self.delta is not None and self.B is not None:
            raise InvalidInput(
                f"The '{name}.delta' parameter belongs to '{name}.epsilon', not to B."
            )
        if self.release == "label" and self.B is not None:
            raise InvalidInput(
                f"The '{name}.B' parameter belongs to release 'votes': the price of labels adds to "
                f"delta. Give '{name}.epsilon'."
            )
        if self.model_steps is not None and self.model_share is None:
            raise InvalidInput(
                f"The '{name}.model_steps' parameter belongs to '{name}.model_share'."
            )
        model = None if self.model_share is None else self.model_steps or MODEL_STEPS
        own_delta = delta if self.epsilon is not None and self.delta is None else self.delta
        return dataclasses.replace(self, delta=own_delta, model_steps=model)

    def budget(self) -> float:
        """Return the budget B (zCDP) of an individual filter, from B or from epsilon and delta."""
        if self.B is not None:
            return float(self.B)
        assert self.epsilon is not None and self.delta is not None  # noqa: S101, PT018 (complete)
        return budget.zcdp_budget(self.epsilon, self.delta * (1 - _GRID_SHARE), "gdp")

    def parts(self, delta: float) -> list[dict[str, Any]]:
        """Return the training and what it leaves for answers, if there is a training.

        Each is an individual filter of its own part of the budget, so sqrt(2 part)-GDP; the two
        add up in one filter, whose epsilon is below the sum of theirs.
        """
        if self.model_share is None or self.model_steps is None:
            return []
        trained = self.model_share * self.budget()
        training = Composition.of(SubsampledGaussian(1 / math.sqrt(2 * trained)))
        return [
            {
                "part": "training",
                "steps": self.model_steps,
                "sigma": math.sqrt(self.model_steps / (2 * trained)),
                "budget_at_most": trained,
                "alone": self._with_grid(training, 1).least_epsilon(delta),
            },
            {
                "part": "answers",
                "budget_at_least": self.budget() - trained,
                "alone": self.cost(1).least_epsilon(delta),
            },
        ]

    def priced(self) -> SubsampledGaussian:
        return SubsampledGaussian(1 / math.sqrt(2 * self.budget()))

    def cost(self, count: int) -> Composition:
        return self._with_grid(super().cost(count), count)

    def _with_grid(self, cost: Composition, count: int) -> Composition:
        """Return the cost of releases of `count` filters with what their grids may add to it."""
        if self.B is not None:
            return cost
        return cost.add(Composition.of(counts.OpenFailure(self._failure()), count))

    def _failure(self) -> float:
        """Return the probability of an open failure that stands for the grid and labels' tail.

        Votes: the failures of all their grids, at most the share of delta at which the filter's
        meter stops (mechanisms/votes.md). Labels: D_E(z0) + tau (label_only.md, section 6) is at
        most (1 - eta) D_E(z0) + eta for E >= 1 with eta = tau / (1 - D_1(z0)).
        """
        assert self.delta is not None  # noqa: S101 (complete)
        least = 1.0
        if self.release == "label":
            least = 2 * float(ndtr(-math.sqrt(self.budget() / 2)))
        return min(1.0, _GRID_SHARE * self.delta / least * (1 + 1e-9))

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        return None if self.release == "label" else super().worst_case(count, order)

    def assumptions(self) -> tuple[str, ...]:
        return (
            (
                "Ind-KNN charges every subject individually and stops at the budget B (Feldman & "
                "Zrnic 2021; Koskela, Tobaben & Honkela 2023)"
            ),
            (
                "releases of a plan may be interleaved with Ind-KNN's queries (concurrent "
                "composition: Vadhan & Zhang 2023)"
            ),
            "the lower bound is for a subject who spends the whole budget",
            *(() if self.B is None else (_NO_GRID,)),
            *(() if self.model_share is None else (_TRAINED, KEEPS)),
        )


_NO_GRID = (
    "a budget B is priced as it is: an estimator in Gaussian DP may add 1 % of its own delta for "
    "the grid of its votes, which a release with epsilon includes"
)
_TEACHERS = (
    "teachers are trained on disjoint parts of the data, by subject, and every teacher has one vote"
)
_STOPS = "no more screened queries are answered than 'answered' says, and the run stops there"
_number = check_that("a number of queries", _checks.check_integer, least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedGNMax(_EqualParts):
    """Votes of every class under Gaussian noise, or the label."""

    kind: ClassVar[str] = "gnmax"

    sigma: float = checked(scale)
    release: str = checked(check_release, "votes")

    def priced(self) -> PricedRelease:
        return PlannedNoisyMax(sigma=self.sigma, release=self.release).priced()

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        like = PlannedNoisyMax(sigma=self.sigma, release=self.release)
        return like.worst_case(count, order)

    def assumptions(self) -> tuple[str, ...]:
        return (_TEACHERS, *((LABEL_ONLY,) if self.release == "label" else ()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedConfidentGNMax(PlannedRelease):
    """GNMax for those queries only that a screening lets pass."""

    kind: ClassVar[str] = "confident_gnmax"

    teachers: int = checked(vote_count)
    threshold: float = checked(threshold)
    sigma_screen: float = checked(scale)
    sigma_votes: float = checked(scale)
    answered: int | None = checked(_number, None)
    release: str = checked(check_release, "votes")

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        if self.answered is not None:
            _checks.check_integer(f"{name}.answered", self.answered, least=0, most=count)
        return self

    def cost(self, count: int) -> Composition:
        screened = self._screening().cost(count)
        return screened.add(self._maximum().cost(self._answers(count)))

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        first = self._screening().worst_case(count, order)
        answers = self._answers(count)
        second = self._maximum().worst_case(answers, order) if answers else None
        return [*(first or []), *(second or [])]

    def assumptions(self) -> tuple[str, ...]:
        stops = () if self.answered is None else (_STOPS,)
        return (_TEACHERS, *stops, *((LABEL_ONLY,) if self.release == "label" else ()))

    def _answers(self, count: int) -> int:
        return count if self.answered is None else self.answered

    def _screening(self) -> PlannedScreening:
        return PlannedScreening(k=self.teachers, threshold=self.threshold, sigma=self.sigma_screen)

    def _maximum(self) -> PlannedNoisyMax:
        return PlannedNoisyMax(sigma=self.sigma_votes, release=self.release)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlannedRow(_EqualParts):
    """Equal releases side by side."""

    cells: int = checked(
        check_that("a number of cells", _checks.check_integer, least=1, most=10**6), 1
    )

    @property
    def times(self) -> int:
        return self.cells

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        _checks.check_integer(f"{name}.cells", self.cells, least=1, most=MAX_COUNT // count)
        return self

    def assumptions(self) -> tuple[str, ...]:
        return (
            (
                "one subject moves at most 'cells' of the numbers of a release, each by at most "
                "its sensitivity, and each number has noise of its own"
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedLaplace(_PlannedRow):
    """Numbers with Laplace noise: a count, or a histogram."""

    kind: ClassVar[str] = "laplace"

    scale: float = checked(scale)
    sensitivity: float = checked(positive, 1.0)

    def priced(self) -> counts.LaplaceNumber:
        return counts.LaplaceNumber(math.nextafter(self.sensitivity / self.scale, math.inf))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedDiscreteLaplace(_PlannedRow):
    """Whole numbers with discrete Laplace noise."""

    kind: ClassVar[str] = "discrete_laplace"

    scale: float = checked(scale)
    sensitivity: int = checked(whole_step, 1)

    def priced(self) -> counts.DiscreteLaplace:
        return counts.DiscreteLaplace(self.scale, self.sensitivity)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedDiscreteGaussian(_PlannedRow):
    """Whole numbers with discrete Gaussian noise."""

    kind: ClassVar[str] = "discrete_gaussian"

    sigma: float = checked(scale)
    sensitivity: int = checked(whole_step, 1)

    def priced(self) -> counts.DiscreteGaussian:
        return counts.DiscreteGaussian(self.sigma, self.sensitivity)


_STATED = "stated costs are upper bounds for one subject added or removed, in both directions"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRenyi(_PlannedRow):
    """Whatever is known by its Rényi divergences `rdp` at growing `orders`."""

    kind: ClassVar[str] = "renyi"

    orders: tuple[float, ...] = checked(check_that("orders", growing, least=1.001, most=1e9))
    rdp: tuple[float, ...] = checked(check_that("divergences", numbers, least=0, most=1e9))

    def complete(self, name: str, delta: float, count: int) -> Self:
        _alike(name, "rdp", self.rdp, "orders", self.orders)
        return super().complete(name, delta, count)

    def priced(self) -> counts.RenyiCurve:
        return counts.RenyiCurve(self.orders, self.rdp)

    def assumptions(self) -> tuple[str, ...]:
        return (_STATED,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedLosses(_PlannedRow):
    """Whatever is known by its privacy losses, growing, and their probabilities."""

    kind: ClassVar[str] = "pld"

    losses: tuple[float, ...] = checked(check_that("losses", growing, least=-500, most=500))
    probabilities: tuple[float, ...] = checked(
        check_that("probabilities", numbers, least=1e-300, most=1)
    )
    infinite: float = checked(
        check_that("a probability", _checks.check_real, least=0, below=1), 0.0
    )

    def complete(self, name: str, delta: float, count: int) -> Self:
        _alike(name, "probabilities", self.probabilities, "losses", self.losses)
        return super().complete(name, delta, count)

    def priced(self) -> counts.FiniteLosses:
        return counts.FiniteLosses(self.losses, self.probabilities, self.infinite)

    def cost(self, count: int) -> Composition:
        self.priced().pair()  # refuses probabilities that are none
        return super().cost(count)

    def assumptions(self) -> tuple[str, ...]:
        return (_STATED, "losses are under the law with the subject, in one direction or both")


def _alike(name: str, first: str, one: Sized, second: str, other: Sized) -> None:
    if len(one) != len(other):
        raise InvalidInput(
            f"The '{name}.{first}' parameter must be as many numbers as '{second}', {len(other)}. "
            f"Got {len(one)}."
        )


# Every kind of release, by the name that a plan gives it.
KINDS: dict[str, type[PlannedRelease]] = {
    release.kind: release
    for release in (
        PlannedScreening,
        PlannedNoisyMax,
        PlannedGaussian,
        PlannedMultilabel,
        PlannedGNMax,
        PlannedConfidentGNMax,
        PlannedIndKNN,
        PlannedTraining,
        PlannedLaplace,
        PlannedDiscreteLaplace,
        PlannedDiscreteGaussian,
        PlannedRenyi,
        PlannedLosses,
    )
}
