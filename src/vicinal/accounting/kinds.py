"""The kinds of releases that a plan can hold: fields, cost, lower bound and assumptions.

Each release of a plan (see :mod:`vicinal.accounting.plan`) names a kind, and each kind is one
subclass of :class:`PlannedRelease`. It declares its fields with the checks of their JSON values, an
upper bound on its privacy loss, pairs of output distributions for a lower bound on epsilon, and the
assumptions of the upper bound. A new mechanism is a new subclass and an entry of ``KINDS``.

Everywhere in this module: `count` is the number of equal releases in the plan; `order`, the Rényi
order for which the data sets of a lower bound are chosen; `name`, the release's name in error
messages, such as "releases[0]"; `delta`, the plan's. A *component* is one mechanism of a release
that composes several equal ones. An *attained pair* is a pair of output distributions that two
neighbouring data sets attain. A method without a docstring does what the base class states.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from itertools import pairwise
from typing import Any, ClassVar, Self

from scipy.special import ndtr

from vicinal.accounting import _counts as counts
from vicinal.accounting import budget
from vicinal.accounting._certificate import (
    AttainedPair,
    build_gaussian_pair,
    build_threshold_test_pair,
)
from vicinal.accounting.composition import MAX_COUNT, Composition, PricedRelease
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.label_filter import MAX_CLASSES
from vicinal.accounting.label_only import NoisyLabel
from vicinal.accounting.screening import MAX_VOTES, Screening
from vicinal.errors import InvalidInput
from vicinal.parameters import Check, Choice, Integer, Real, get_checks, parameter

ASSUMES_POISSON_SAMPLING = (
    "with gamma < 1 every subject is sampled independently with probability gamma, anew for every "
    "release; never a sample of fixed size"
)
ASSUMES_KNOWN_COINS = (
    "with gamma < 1 the lower bound is for an attacker who knows which other subjects are sampled, "
    "as in every analysis of sampling"
)
ASSUMES_LABEL_ONLY = (
    "where only the label is released, the noisy votes remain secret, and nothing else is "
    "computed from them"
)
ASSUMES_ONE_VOTE_PER_SUBJECT = (
    "a subject has at most one record among the k that vote, so that one subject moves the vote "
    "vector by at most one vote in and one vote out"
)
ASSUMES_MODEL_IS_KEPT = (
    "a trained model does not change when a subject is erased, and does not use records that are "
    "added after its training"
)
_ASSUMES_SHARED_FILTER = (
    "gradients and answers are charged to the same budget of each subject: answers may use the "
    "budget that training does not, and all the budget of a subject enrolled after training"
)
_ASSUMES_NO_ROUNDING_COST = (
    "the cost of a budget B is that of B alone: an estimator in Gaussian DP may add 1 % of its own "
    "delta for the grid of its votes, which a release with epsilon includes"
)
_ASSUMES_DISJOINT_TEACHERS = (
    "teachers are trained on disjoint parts of the data, by subject, and every teacher has one vote"
)
_ASSUMES_MAX_ANSWERED = (
    "no more screened queries are answered than 'answered' says, and the run stops there"
)
_ASSUMES_STATED_COSTS = (
    "stated costs are upper bounds for one subject added or removed, in both directions"
)


_NOISE_SCALE = Real(minimum=1e-2, maximum=1e9)
_THRESHOLD = Real(minimum=-1e7, maximum=1e7)
_POSITIVE = Real(above=0)
_FRACTION = Real(above=0, below=1)
# Far below one subject of any data set; differences of logarithms lose all digits near 1e-300.
_SAMPLING_RATE = Real(minimum=1e-12, maximum=1)
_N_VOTES = Integer(minimum=1, maximum=MAX_VOTES)
_N_CLASSES = Integer(minimum=2, maximum=MAX_CLASSES)
_RELEASE = Choice(("votes", "label"))
# The dominating pair of discrete Laplace noise has one outcome more than the sensitivity.
_SENSITIVITY = Integer(minimum=1, maximum=10_000)

MAX_STEPS = 10**6  # The largest number of gradients of one training
_N_STEPS = Integer(minimum=1, maximum=MAX_STEPS)

# The largest number of entries of a list in a plan (orders, divergences, losses).
_MAX_LIST_LENGTH = 20_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberList(Check):
    """A nonempty list of numbers in ``minimum .. maximum``, strictly growing if `increasing`."""

    minimum: float
    maximum: float
    increasing: bool = False

    type_name = "list of float"

    def __call__(self, name: str, value: object) -> tuple[float, ...]:
        """Return the list `value` of the field `name` as a tuple, or raise InvalidInput."""
        if not isinstance(value, list | tuple) or not 0 < len(value) <= _MAX_LIST_LENGTH:
            raise InvalidInput(
                f"The '{name}' parameter must be a list of 1 to {_MAX_LIST_LENGTH} numbers."
            )
        check = Real(minimum=self.minimum, maximum=self.maximum)
        values = tuple(check(name, number) for number in value)
        if self.increasing and any(first >= second for first, second in pairwise(values)):
            raise InvalidInput(f"The '{name}' parameter must grow from number to number.")
        return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRelease(ABC):
    """One release of a plan: base class of all kinds.

    A subclass declares the fields of its kind, each once, by
    :func:`~vicinal.parameters.parameter`. A field with the default None may be absent from a plan.
    A plan names the kind by the class attribute `kind`.
    """

    kind: ClassVar[str]

    @classmethod
    def list_field_names(cls) -> tuple[str, ...]:
        """Return the names of all fields of this kind; `kind` and `count` are not among them."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def list_required_fields(cls) -> tuple[str, ...]:
        """Return the names of the fields that a plan must give."""
        fields = dataclasses.fields(cls)
        return tuple(field.name for field in fields if field.default is dataclasses.MISSING)

    @classmethod
    def from_fields(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Return the release with `values` (field name to JSON value), each value checked."""
        checks = dict(get_checks(cls))
        checked = {key: checks[key](f"{name}.{key}", value) for key, value in values.items()}
        return cls(**checked)

    @property
    def values(self) -> dict[str, Any]:
        """The fields that are not None, by name, in alphabetical order."""
        values = {key: getattr(self, key) for key in sorted(self.list_field_names())}
        return {key: value for key, value in values.items() if value is not None}

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Return the release with all defaults, after checks that involve several fields.

        Raises InvalidInput if fields contradict each other, or are too large for `count` releases.
        """
        return self

    @abstractmethod
    def compose_releases(self, count: int) -> Composition:
        """Return the composition of `count` such releases, for an upper bound on their loss."""

    @abstractmethod
    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:
        """Return attained pairs whose product is the output of `count` releases, or None.

        None: no such pair is known, so the plan has no lower bound on epsilon.
        """

    def describe_components(self, delta: float) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return a report in JSON values on each part of a release with different mechanisms.

        Key ``part`` names the mechanism, ``alone`` is its epsilon at `delta`. Empty for a release
        of equal mechanisms.
        """
        return []

    @abstractmethod
    def list_assumptions(self) -> tuple[str, ...]:
        """Return the assumptions under which the bounds hold, one sentence each."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _EqualComponents(PlannedRelease):
    """A release that is the composition of `n_components` equal mechanisms, its components."""

    @abstractmethod
    def build_component(self) -> PricedRelease:
        """Return one component, with its RDP curve and its dominating pair."""

    @property
    def n_components(self) -> int:
        """The number of equal components of one release."""
        return 1

    def compose_releases(self, count: int) -> Composition:
        return Composition.from_release(self.build_component(), count * self.n_components)

    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:  # noqa: ARG002
        """Return the attained pair of a subject that moves all components by their sensitivity.

        None if a component has no dominating pair.
        """
        component = self.build_component()
        n_components = count * self.n_components
        if isinstance(component, SubsampledGaussian):
            return [build_gaussian_pair(1 / component.sigma, component.gamma, n_components)]
        pair: Any = component.build_dominating_pair()
        return None if pair is None else [pair.discretize(n_components)]


# L2 sensitivity of a vote vector: one vote enters and one leaves, sqrt(2), rounded up.
_VOTES_SENSITIVITY = math.nextafter(math.sqrt(2), 2)


def _list_sampling_assumptions(gamma: float) -> tuple[str, ...]:
    """Return the assumptions of Poisson sampling with probability `gamma`; none without it."""
    return (ASSUMES_POISSON_SAMPLING, ASSUMES_KNOWN_COINS) if gamma < 1 else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedScreening(_EqualComponents):
    """Whether the largest of k votes reaches a threshold."""

    kind: ClassVar[str] = "screening"

    k: int = parameter(_N_VOTES, doc="Number of records that vote.")
    classes: int | None = parameter(_N_CLASSES, default=None, doc="Number of classes; no effect.")
    threshold: float = parameter(_THRESHOLD, doc="Threshold of the largest noisy count, in votes.")
    sigma: float = parameter(_NOISE_SCALE, doc="Standard deviation of the noise, in votes.")
    gamma: float = parameter(_SAMPLING_RATE, default=1.0, doc="Probability of sampling a subject.")

    def build_component(self) -> Screening:
        return Screening(self.k, self.threshold, self.sigma, self.gamma)

    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:
        """Return the attained pair of the largest vote count that is the worst one at `order`."""
        screening = self.build_component()
        votes, sign = screening.find_worst_votes(order)
        margin = sign * (votes - screening.threshold) / screening.sigma
        shift = 1 / screening.sigma
        return [build_threshold_test_pair(margin, shift, screening.gamma, count)]

    def list_assumptions(self) -> tuple[str, ...]:
        return (ASSUMES_ONE_VOTE_PER_SUBJECT, *_list_sampling_assumptions(self.gamma))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedNoisyMax(_EqualComponents):
    """The votes of every class with Gaussian noise, or only the class with the most noisy votes."""

    kind: ClassVar[str] = "noisy_max"

    sigma: float = parameter(_NOISE_SCALE, doc="Standard deviation of the noise, in votes.")
    gamma: float = parameter(_SAMPLING_RATE, default=1.0, doc="Probability of sampling a subject.")
    release: str = parameter(_RELEASE, default="votes", doc="The released values.")
    classes: int | None = parameter(
        _N_CLASSES, default=None, doc="Number of classes; two cost less."
    )

    def build_component(self) -> PricedRelease:
        if self.release == "votes":
            return SubsampledGaussian(self.sigma / _VOTES_SENSITIVITY, self.gamma)
        return NoisyLabel(self.sigma, self.gamma, self.classes)

    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:
        """Return the attained pair of votes moved by sqrt(2), or of a label of two classes."""
        if self.release == "votes":
            return super().list_attained_pairs(count, order)
        # Two classes, one leading by one vote. With the subject one vote enters and one leaves, so
        # that the other class leads by one vote: the difference of the two noisy counts, in units
        # of its noise scale sqrt(2) sigma, moves from -half_shift to +half_shift.
        half_shift = 1 / (self.sigma * _VOTES_SENSITIVITY)
        return [build_threshold_test_pair(-half_shift, 2 * half_shift, self.gamma, count)]

    def list_assumptions(self) -> tuple[str, ...]:
        label = () if self.release == "votes" else (ASSUMES_LABEL_ONLY,)
        return (ASSUMES_ONE_VOTE_PER_SUBJECT, *label, *_list_sampling_assumptions(self.gamma))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedGaussian(_EqualComponents):
    """A planned release of a vector with Gaussian noise."""

    kind: ClassVar[str] = "gaussian"

    sigma: float = parameter(_NOISE_SCALE, doc="Standard deviation of the noise on a coordinate.")
    sensitivity: float = parameter(_POSITIVE, default=1.0, doc="Largest change in Euclidean norm.")
    gamma: float = parameter(_SAMPLING_RATE, default=1.0, doc="Probability of sampling a subject.")

    def build_component(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma / self.sensitivity, self.gamma)

    def list_assumptions(self) -> tuple[str, ...]:
        return (
            (
                "one subject moves a Gaussian release by at most its sensitivity, in the Euclidean "
                "norm"
            ),
            *_list_sampling_assumptions(self.gamma),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedMultilabel(_EqualComponents):
    """Votes for any number of attributes, with Gaussian noise on every attribute."""

    kind: ClassVar[str] = "multilabel"

    tau: float = parameter(_POSITIVE, doc="Largest L1 norm of a neighbour's label vector.")
    sigma: float = parameter(_NOISE_SCALE, doc="Standard deviation of the noise, in votes.")
    gamma: float = parameter(_SAMPLING_RATE, default=1.0, doc="Probability of sampling a subject.")

    def build_component(self) -> SubsampledGaussian:
        """Return the mechanism of one query: the Gaussian mechanism on label counts.

        Every neighbour's 0/1 label vector is scaled to an L1 norm of at most tau. One neighbour
        enters and one leaves, so the L2 sensitivity is sqrt(2 tau).
        Source: Zhu, Yu, Chandraker & Wang 2020, supplement, Theorem 5.
        """
        sensitivity = math.nextafter(math.sqrt(2 * self.tau), math.inf)
        return SubsampledGaussian(self.sigma / sensitivity, self.gamma)

    def list_assumptions(self) -> tuple[str, ...]:
        return (
            ASSUMES_ONE_VOTE_PER_SUBJECT,
            (
                "every neighbour's label vector is scaled to an L1 norm of at most tau, entries of "
                "0 stay 0, and noise is added to every attribute"
            ),
            "the lower bound takes two neighbours with tau labels each and none in common",
            *_list_sampling_assumptions(self.gamma),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTraining(_EqualComponents):
    """Noisy gradients that train a model once, such as NoisySGD; `count` trainings.

    With gamma = 1 all subjects are in all batches. A training inside Ind-KNN's own filter is an
    `ind_knn` with `model_share` instead: the filter has paid for it.
    """

    kind: ClassVar[str] = "training"

    steps: int = parameter(_N_STEPS, doc="Number of gradients of one training.")
    sigma: float = parameter(_NOISE_SCALE, doc="Noise on every coordinate, in clipping bounds.")
    gamma: float = parameter(_SAMPLING_RATE, default=1.0, doc="Probability of sampling a subject.")

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> PlannedTraining:  # noqa: ARG002
        """Return the release unchanged; raise InvalidInput if `count` trainings are too long."""
        if count * self.steps > MAX_COUNT:
            raise InvalidInput(
                f"The '{name}.steps' parameter must be at most {MAX_COUNT // count} for {count} "
                f"trainings. Got {self.steps}."
            )
        return self

    @property
    def n_components(self) -> int:
        """The number of gradients of one training."""
        return self.steps

    def build_component(self) -> SubsampledGaussian:
        return SubsampledGaussian(self.sigma, self.gamma)

    def list_assumptions(self) -> tuple[str, ...]:
        return (
            (
                "the gradient of a subject, summed over its records, is clipped to one bound, and "
                "sigma is the noise over that bound"
            ),
            ASSUMES_MODEL_IS_KEPT,
            *_list_sampling_assumptions(self.gamma),
        )


# Gradients of a private model inside a filter, unless the plan states another number. The same
# number as `linear.descent.STEPS`; a test compares them.
DEFAULT_MODEL_STEPS = 40
# Share of an Ind-KNN filter's own delta kept for the grid of its noise and the tail of labels. The
# same number as `mechanisms.SLACK_SHARE`, at which the filter's meter stops; a test compares them.
_GRID_SHARE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedIndKNN(_EqualComponents):
    """All queries to one Ind-KNN classifier; its budget from `B`, or from `epsilon` and `delta`.

    With `model_share` a private model is trained in the same individual filter, by `model_steps`
    gradients that take at most this share of a subject's budget. The filter's budget includes the
    training, so it adds nothing to the cost.
    """

    kind: ClassVar[str] = "ind_knn"

    epsilon: float | None = parameter(
        _POSITIVE, default=None, doc="Epsilon of the filter; or give B."
    )
    delta: float | None = parameter(_FRACTION, default=None, doc="Its delta. Default: the plan's.")
    B: float | None = parameter(_POSITIVE, default=None, doc="Its zCDP budget; or give `epsilon`.")
    release: str = parameter(_RELEASE, default="votes", doc="The released values.")
    model_share: float | None = parameter(_FRACTION, default=None, doc="Largest share for a model.")
    model_steps: int | None = parameter(
        _N_STEPS, default=None, doc="Number of gradients of the private model, 40 unless given."
    )

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Return the release with defaults: the plan's `delta`, and the number of gradients.

        Raises InvalidInput for fields that contradict each other, such as both epsilon and B.
        """
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
        model_steps = None
        if self.model_share is not None:
            model_steps = self.model_steps or DEFAULT_MODEL_STEPS
        own_delta = delta if self.epsilon is not None and self.delta is None else self.delta
        return dataclasses.replace(self, delta=own_delta, model_steps=model_steps)

    def compute_budget(self) -> float:
        """Return the filter's budget B in zCDP; 1 % of its delta is kept for the grid of votes."""
        if self.B is not None:
            return float(self.B)
        # `validate_and_fill_fields` has filled in both.
        assert self.epsilon is not None and self.delta is not None  # noqa: S101, PT018
        return budget.zcdp_budget(self.epsilon, self.delta * (1 - _GRID_SHARE), "gdp")

    def describe_components(self, delta: float) -> list[dict[str, Any]]:
        """Return the privacy costs of the training and of the answers; empty without a training.

        ``alone`` is the epsilon of one without the other at the plan's `delta`, the answers with
        the whole budget. The epsilon of the common filter is below the sum of the two.
        """
        if self.model_share is None or self.model_steps is None:
            return []
        # The training is an individual filter of this budget B', which is mu-GDP, mu = sqrt(2 B').
        # Answers are one of the whole budget B, because a subject enrolled after the training
        # spends all of it on answers.
        training_budget = self.model_share * self.compute_budget()
        training = Composition.from_release(SubsampledGaussian(1 / math.sqrt(2 * training_budget)))
        return [
            {
                "part": "training",
                "steps": self.model_steps,
                "sigma": math.sqrt(self.model_steps / (2 * training_budget)),
                "budget_at_most": training_budget,
                "alone": self._add_grid_disclosures(training, 1).compute_min_epsilon(delta),
            },
            {
                "part": "answers",
                "budget_at_least": self.compute_budget() - training_budget,
                "alone": self.compose_releases(1).compute_min_epsilon(delta),
            },
        ]

    def build_component(self) -> SubsampledGaussian:
        """Return the Gaussian release of mu = sqrt(2 B) that dominates the whole interaction."""
        return SubsampledGaussian(1 / math.sqrt(2 * self.compute_budget()))

    def compose_releases(self, count: int) -> Composition:
        """Return the composition of `count` filters, each with the failures of its vote grid."""
        return self._add_grid_disclosures(super().compose_releases(count), count)

    def _add_grid_disclosures(self, composition: Composition, count: int) -> Composition:
        """Return `composition` with the failures of the vote grids of `count` filters added."""
        # The cost of a budget stated as B omits its grid, see `_ASSUMES_NO_ROUNDING_COST`.
        if self.B is not None:
            return composition
        disclosure = counts.ProbabilisticDisclosure(self._compute_disclosure_probability())
        return composition.add(Composition.from_release(disclosure, count))

    def _compute_disclosure_probability(self) -> float:
        """Return the probability of events of one filter that its budget does not cover.

        They are failures of the rounding of votes to the grid, and for labels also the tail beyond
        which their divergence is not bounded. The probability is added to delta.
        """
        # Votes: the failures of all grids, at most the share of delta at which the filter's meter
        # stops (mechanisms/votes.md). Labels: D_E(z0) + tau (label_only.md, section 6) is at most
        # (1 - eta) D_E(z0) + eta for E >= 1 with eta = tau / (1 - D_1(z0)), z0 = 2 B.
        assert self.delta is not None  # noqa: S101 (validate_and_fill_fields)
        one_minus_divergence = 1.0
        if self.release == "label":
            # 1 - D_1(z0) = 2 Phi(-sqrt(z0) / 2).
            one_minus_divergence = 2 * float(ndtr(-math.sqrt(self.compute_budget() / 2)))
        # The factor covers the rounding errors of this quotient.
        probability_without_labels = _GRID_SHARE * self.delta * (1 + 1e-9)
        if probability_without_labels >= one_minus_divergence:
            return 1.0
        return probability_without_labels / one_minus_divergence

    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:
        """Return the Gaussian pair of a subject that spends its whole budget; None for labels."""
        return None if self.release == "label" else super().list_attained_pairs(count, order)

    def list_assumptions(self) -> tuple[str, ...]:
        rounding = () if self.B is None else (_ASSUMES_NO_ROUNDING_COST,)
        model = () if self.model_share is None else (_ASSUMES_SHARED_FILTER, ASSUMES_MODEL_IS_KEPT)
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
            *rounding,
            *model,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedGNMax(_EqualComponents):
    """The teachers' votes for every class under Gaussian noise, or only the label."""

    kind: ClassVar[str] = "gnmax"

    sigma: float = parameter(_NOISE_SCALE, doc="Standard deviation of the noise, in votes.")
    release: str = parameter(_RELEASE, default="votes", doc="The released values.")

    def build_component(self) -> PricedRelease:
        return self._build_noisy_max().build_component()

    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:
        return self._build_noisy_max().list_attained_pairs(count, order)

    def _build_noisy_max(self) -> PlannedNoisyMax:
        """Return the same release of noisy votes by the kind ``noisy_max``."""
        return PlannedNoisyMax(sigma=self.sigma, release=self.release)

    def list_assumptions(self) -> tuple[str, ...]:
        label = (ASSUMES_LABEL_ONLY,) if self.release == "label" else ()
        return (_ASSUMES_DISJOINT_TEACHERS, *label)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedConfidentGNMax(PlannedRelease):
    """GNMax for the queries that pass a screening."""

    kind: ClassVar[str] = "confident_gnmax"

    teachers: int = parameter(_N_VOTES, doc="Number of teachers.")
    threshold: float = parameter(_THRESHOLD, doc="Threshold of the largest noisy count, in votes.")
    sigma_screen: float = parameter(_NOISE_SCALE, doc="Standard deviation of the screening noise.")
    sigma_votes: float = parameter(_NOISE_SCALE, doc="Standard deviation of the noise on votes.")
    answered: int | None = parameter(
        Integer(minimum=0),
        default=None,
        doc="Largest number of answered queries. Default: `count`.",
    )
    release: str = parameter(_RELEASE, default="votes", doc="The released values.")

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Return the release; raise InvalidInput if `answered` exceeds `count` queries."""
        if self.answered is not None:
            Integer(minimum=0, maximum=count)(f"{name}.answered", self.answered)
        return self

    def compose_releases(self, count: int) -> Composition:
        """Return the composition of `count` screenings and of the answers to queries that pass."""
        screenings = self._build_screening().compose_releases(count)
        answers = self._build_noisy_max().compose_releases(self._count_answers(count))
        return screenings.add(answers)

    def list_attained_pairs(self, count: int, order: float) -> list[AttainedPair] | None:
        """Return attained pairs of screenings and answers, each for its own worst data sets."""
        pairs = self._build_screening().list_attained_pairs(count, order) or []
        n_answers = self._count_answers(count)
        if n_answers:
            pairs = pairs + (self._build_noisy_max().list_attained_pairs(n_answers, order) or [])
        return pairs

    def list_assumptions(self) -> tuple[str, ...]:
        answered = () if self.answered is None else (_ASSUMES_MAX_ANSWERED,)
        label = (ASSUMES_LABEL_ONLY,) if self.release == "label" else ()
        return (_ASSUMES_DISJOINT_TEACHERS, *answered, *label)

    def _count_answers(self, count: int) -> int:
        """Return how many of `count` screened queries are answered at most."""
        return count if self.answered is None else self.answered

    def _build_screening(self) -> PlannedScreening:
        """Return the screening of a query by the teachers' votes."""
        return PlannedScreening(k=self.teachers, threshold=self.threshold, sigma=self.sigma_screen)

    def _build_noisy_max(self) -> PlannedNoisyMax:
        """Return the noisy votes on a query that has passed the screening."""
        return PlannedNoisyMax(sigma=self.sigma_votes, release=self.release)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlannedCells(_EqualComponents):
    """Numbers with independent noise, such as a histogram; a subject moves at most `cells`."""

    cells: int = parameter(
        Integer(minimum=1, maximum=10**6),
        default=1,
        doc="Largest number of cells that one subject moves.",
    )

    @property
    def n_components(self) -> int:
        """The number of cells that a subject moves, each a mechanism with its own noise."""
        return self.cells

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        """Return the release; raise InvalidInput if `count` releases have too many cells."""
        Integer(minimum=1, maximum=MAX_COUNT // count)(f"{name}.cells", self.cells)
        return self

    def list_assumptions(self) -> tuple[str, ...]:
        return (
            (
                "one subject moves at most 'cells' of the numbers of a release, each by at most "
                "its sensitivity, and each number has noise of its own"
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedLaplace(_PlannedCells):
    """Numbers with Laplace noise: a count, or a histogram."""

    kind: ClassVar[str] = "laplace"

    scale: float = parameter(_NOISE_SCALE, doc="Scale of the noise.")
    sensitivity: float = parameter(_POSITIVE, default=1.0, doc="Largest change by one subject.")

    def build_component(self) -> counts.LaplaceNumber:
        return counts.LaplaceNumber(math.nextafter(self.sensitivity / self.scale, math.inf))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedDiscreteLaplace(_PlannedCells):
    """Whole numbers with discrete Laplace noise."""

    kind: ClassVar[str] = "discrete_laplace"

    scale: float = parameter(_NOISE_SCALE, doc="Scale of the noise.")
    sensitivity: int = parameter(_SENSITIVITY, default=1, doc="Largest change by one subject.")

    def build_component(self) -> counts.DiscreteLaplace:
        return counts.DiscreteLaplace(self.scale, self.sensitivity)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedDiscreteGaussian(_PlannedCells):
    """Whole numbers with discrete Gaussian noise."""

    kind: ClassVar[str] = "discrete_gaussian"

    sigma: float = parameter(_NOISE_SCALE, doc="Scale of the noise.")
    sensitivity: int = parameter(_SENSITIVITY, default=1, doc="Largest change by one subject.")

    def build_component(self) -> counts.DiscreteGaussian:
        return counts.DiscreteGaussian(self.sigma, self.sensitivity)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRenyi(_PlannedCells):
    """A mechanism known by its Rényi divergences `rdp` at increasing `orders`."""

    kind: ClassVar[str] = "renyi"

    orders: tuple[float, ...] = parameter(
        NumberList(minimum=1.001, maximum=1e9, increasing=True), doc="Orders of the divergences."
    )
    rdp: tuple[float, ...] = parameter(
        NumberList(minimum=0, maximum=1e9), doc="Rényi divergence at each order."
    )

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> Self:
        """Return the release; raise InvalidInput unless `rdp` and `orders` are equally long."""
        _check_same_length(name, "rdp", self.rdp, "orders", self.orders)
        return super().validate_and_fill_fields(name, delta, count)

    def build_component(self) -> counts.RenyiCurve:
        return counts.RenyiCurve(self.orders, self.rdp)

    def list_assumptions(self) -> tuple[str, ...]:
        return (_ASSUMES_STATED_COSTS,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedLosses(_PlannedCells):
    """A mechanism known by its privacy loss distribution: increasing `losses`, `probabilities`.

    Probabilities are those with the subject; `infinite` is the probability of an infinite loss.
    """

    kind: ClassVar[str] = "pld"

    losses: tuple[float, ...] = parameter(
        NumberList(minimum=-500, maximum=500, increasing=True), doc="Privacy losses."
    )
    probabilities: tuple[float, ...] = parameter(
        NumberList(minimum=1e-300, maximum=1), doc="Probability of each loss, with the subject."
    )
    infinite: float = parameter(
        Real(minimum=0, below=1), default=0.0, doc="Probability of an infinite loss."
    )

    def validate_and_fill_fields(self, name: str, delta: float, count: int) -> Self:
        """Return the release; raise InvalidInput unless both lists are equally long."""
        _check_same_length(name, "probabilities", self.probabilities, "losses", self.losses)
        return super().validate_and_fill_fields(name, delta, count)

    def build_component(self) -> counts.FiniteLosses:
        return counts.FiniteLosses(self.losses, self.probabilities, self.infinite)

    def compose_releases(self, count: int) -> Composition:
        """Return the composition; raise InvalidInput if the stated losses are no distribution."""
        self.build_component().build_dominating_pair()
        return super().compose_releases(count)

    def list_assumptions(self) -> tuple[str, ...]:
        return (
            _ASSUMES_STATED_COSTS,
            "losses are under the distribution with the subject, in one direction or both",
        )


def _check_same_length(
    release_name: str, field: str, values: Sized, other_field: str, other_values: Sized
) -> None:
    """Raise InvalidInput, with the names given, unless two fields are lists of one length."""
    if len(values) != len(other_values):
        raise InvalidInput(
            f"The '{release_name}.{field}' parameter must be as many numbers as '{other_field}', "
            f"{len(other_values)}. Got {len(values)}."
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
