"""Base classes of estimators with a fixed plan: the charge is known before the first release.

A plan is a JSON object with `delta` and `releases`; each entry of `releases` describes equal
planned mechanisms: their kind, noise, sampling rate and number. Encoded targets are class indices
(n,), or 0s and 1s (n, c) for several labels. A query is screened if it is answered only when its
noisy largest number of votes reaches a threshold.

Noise is sampled in integers. Its *scale* is its standard deviation in *grid steps*, the unit of
these integers. Every sample adds its *delta slack*, the part of delta that the grid costs, to the
delta of a guarantee.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, Bools, Floats
from vicinal.errors import InvalidInput, PrivacyRefused, VicinalError
from vicinal.ledger.memory import ForkSafeLock
from vicinal.mechanisms.noise_sources import BernoulliSource, create_noise_source, create_sampler
from vicinal.mechanisms.planned_releases import FINE_SCALE, NoisyMax, NoisyThreshold, ReleaseCounter
from vicinal.parameters import (
    AUTO,
    SEED,
    Auto,
    CheckedParameters,
    Choice,
    Given,
    Integer,
    Real,
    Unless,
    parameter,
    parameter_table,
)
from vicinal.planning.guarantees import (
    PlanJSON,
    ReleaseJSON,
    count_samples_by_scale,
    create_guarantee,
    find_min_noise,
)
from vicinal.planning.parameter_tables import INTERACTIONS
from vicinal.predictors import inputs
from vicinal.progress import begin_progress
from vicinal.tabular import check_row_order, read_names, refuse_features_as_targets
from vicinal.targets.classes import ClassesParameter, encode_labels

ABSTAIN = -1
"""The label, for integer classes, of a query that failed the screening or whose answer is an
abstention; None for other classes."""

_VOTE_NOISE = Real(minimum=1e-2, maximum=1e9)
"""Check of a noise standard deviation in votes, from 0.01 to 1e9."""


class NamedClassesMixin(ClassifierMixin):
    """A classifier whose predictions are class names in the composed Unicode form (NFC)."""

    def score(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the share of queries `X` (q, d) whose prediction is the true label of `y` (q,).

        `sample_weight` (q,), optional: the weight of each query in the share.
        """
        return float(super().score(X, checks.normalize_labels(y), sample_weight))


class GuaranteeDisplay(BaseEstimator):
    """An estimator whose HTML representation ends with its guarantee, if it has one."""

    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of the estimator."""
        raise NotImplementedError

    def _html_repr(self) -> str:
        """Return scikit-learn's representation, and the guarantee if there is one."""
        html: str = super()._html_repr()
        try:
            return html + self.guarantee()._repr_html_()
        except (NotFittedError, VicinalError):
            return html


def compute_decision_scores(votes: Floats) -> Floats:
    """Return the `votes` (q, c); for two classes those of the second minus the first, (q,).

    These are decision scores in the convention of scikit-learn.
    """
    return votes[:, 1] - votes[:, 0] if votes.shape[1] == 2 else votes


# Smallest delta of a fixed plan: its logarithm and inverse stay in the range of floats.
MIN_FIXED_DELTA = 1e-100
_COUNT_FIELDS = ("count", "answered")  # fields of a release that add up over interactions


@parameter_table
class FixedPlanParameters(ClassesParameter):
    """Parameters of every estimator with a fixed plan."""

    delta: float = parameter(
        Real(minimum=MIN_FIXED_DELTA, below=1),
        default=1e-5,
        doc="The delta of :meth:`guarantee`, unless you pass another.",
    )
    interactions: Given[int | str, int] = parameter(
        INTERACTIONS,
        default=1,
        doc="""Number of interactions with the same subjects, each with this plan, that the
        guarantee covers together. A further one is refused. "public": the records need no
        protection, interactions are not counted, and the guarantee is void.""",
    )
    simulation_seed: int | None = parameter(
        SEED,
        default=None,
        doc="Seed that makes experiments repeatable; with it the guarantee is void.",
    )


@parameter_table
class AnsweringParameters(FixedPlanParameters):
    """Parameters of classifiers with a fixed plan of noisy votes."""

    sigma_votes: Auto[float] = parameter(
        Unless(AUTO, _VOTE_NOISE),
        default=AUTO,
        doc="""Standard deviation of the Gaussian noise on the votes of every class. "auto": the
        smallest that keeps `epsilon` over the whole plan; without `epsilon` 25 for Private-kNN and
        40 for PATE.""",
    )
    sigma_screen: float | None = parameter(
        Unless(None, _VOTE_NOISE),
        default=None,
        doc="""Noise standard deviation of the screening, in votes: a query is answered only if its
        largest vote count plus this noise reaches `threshold`. None for both: no screening.""",
    )
    threshold: float | None = parameter(
        Unless(None, Real(minimum=-1e7, maximum=1e7)),
        default=None,
        doc="Threshold of the screening, in votes.",
    )
    epsilon: float | None = parameter(
        Unless(None, Real(above=0)),
        default=None,
        doc="""The guarantee for a subject at `delta` over the whole plan; replaces the declaration
        of the noise.""",
    )
    n_queries: int = parameter(
        Integer(minimum=1, maximum=10**9),
        default=1000,
        doc="""Planned number of queries. More are refused, because the guarantee holds for the
        plan.""",
    )
    n_answers: int | None = parameter(
        Unless(None, Integer(minimum=0)),
        default=None,
        doc="""Largest number of queries that may pass the screening and be answered; None for all.
        After that many answers no query is screened or answered.""",
    )
    release: str = parameter(
        Choice(("votes", "label")),
        default="votes",
        doc="Released values: noisy votes, or the label alone, which costs less in Renyi DP.",
    )


class FixedPlan(CheckedParameters, FixedPlanParameters):
    """Checked parameters of an estimator with a fixed plan; `_name` identifies the method."""

    _name: ClassVar[str]

    @abstractmethod
    def list_releases(self) -> list[ReleaseJSON]:
        """Return the planned releases, as the entries of a plan."""

    @abstractmethod
    def count_noise_samples(self) -> dict[int, float]:
        """Return the planned number of noise samples, keyed by the noise's scale in grid steps."""

    @abstractmethod
    def create_mechanism(self, records: inputs.FitInputs, targets: AnyArray) -> Any:
        """Return the mechanism that makes the planned releases.

        `records`: the checked features, subjects and public rows of ``fit``. `targets`, (n,) or
        (n, c): encoded; private.
        """

    @property
    def plan_identity(self) -> Hashable:
        """A key of all planned releases; interactions under one guarantee must have equal keys."""
        return self._name, json.dumps(self.list_releases(), sort_keys=True)

    def encode_targets(self, y: npt.ArrayLike | None, size: int) -> AnyArray:
        """Return the encoded targets, int32 (n,); private.

        `y`: the argument of ``fit``, class names (n,). `size`: n, the number of records.
        """
        return encode_labels(y, size, self.classes)

    def plan_interactions(
        self, releases: list[ReleaseJSON], delta: float | None = None
    ) -> PlanJSON:
        """Return the plan of all declared interactions with the same subjects.

        `releases`: the entries of one interaction's plan. `delta`: None for the parameter `delta`.
        """
        n_interactions = max(1, self.interactions)  # 0 for public records
        total_releases = [
            {
                name: n_interactions * value if name in _COUNT_FIELDS else value
                for name, value in release.items()
            }
            for release in releases
        ]
        return {"delta": self.delta if delta is None else delta, "releases": total_releases}


class AnsweringPlan(AnsweringParameters, FixedPlan):
    """Checked parameters of a classifier whose planned releases are its answers.

    `_default_noise`: noise standard deviation in votes if neither `sigma_votes` nor `epsilon` is
    given.
    """

    _default_noise: ClassVar[float]

    @property
    @abstractmethod
    def max_votes(self) -> int:
        """Largest number of votes in a query."""

    @abstractmethod
    def _plan_releases(self, noise: float) -> list[ReleaseJSON]:
        """Return the planned releases as the entries of a plan; the last one has the votes.

        `noise`: standard deviation of the noise on each class's votes, in votes.
        """

    def complete_and_check(self) -> None:
        """Raise InvalidInput for parameters that exclude each other."""
        self._check_screening()
        if self.epsilon is not None and self.sigma_votes is not None:
            raise InvalidInput(
                "The 'epsilon' parameter must be None where 'sigma_votes' is given. Leave "
                "'sigma_votes' at 'auto', or read the epsilon of this noise off guarantee()."
            )
        if self.n_answers is not None:
            # Without an answer there is no noise on votes that could be fitted to epsilon.
            min_answers = 0 if self.epsilon is None else 1
            checks.check_integer(
                "n_answers", self.n_answers, minimum=min_answers, maximum=self.n_queries
            )
        # An epsilon that no noise can keep must be refused before the estimator changes.
        self.list_releases()

    def _check_screening(self) -> None:
        """Raise InvalidInput for contradictions of screening, `n_answers` and `classes`."""
        if (self.sigma_screen is None) != (self.threshold is None):
            raise InvalidInput(
                "The 'threshold' and 'sigma_screen' parameters belong together: give both for "
                "screening, or None for both."
            )
        if not self.screened and self.n_answers not in (None, self.n_queries):
            raise InvalidInput(
                "The 'n_answers' parameter must be None without screening: every query is answered."
            )
        if self.screened and self.classes.dtype.kind in "iu" and ABSTAIN in self.classes:
            raise InvalidInput(
                "The 'classes' parameter must not hold -1, which marks a query that is not "
                "answered. Rename the class."
            )

    @property
    def screened(self) -> bool:
        """Whether queries are screened before they are answered."""
        return self.sigma_screen is not None

    @property
    def label_only(self) -> bool:
        """Whether labels are released without votes."""
        return self.release == "label"

    @property
    def planned_answers(self) -> int:
        """Largest number of queries that are answered."""
        return self.n_queries if self.n_answers is None else self.n_answers

    @property
    def vote_noise(self) -> float:
        """Noise standard deviation in votes: as given, or the smallest that keeps epsilon."""
        if self.epsilon is None:
            return self._default_noise if self.sigma_votes is None else self.sigma_votes
        plan = self.plan_interactions(self._plan_releases(self._default_noise))
        noise_field = "sigma_votes" if "sigma_votes" in plan["releases"][-1] else "sigma"
        return find_min_noise(plan, self.epsilon, noise_field)

    def list_releases(self) -> list[ReleaseJSON]:
        """Return the planned releases at the planned noise, as the entries of a plan."""
        return self._plan_releases(self.vote_noise)

    def count_noise_samples(self) -> dict[int, float]:
        """Return the planned number of noise samples, keyed by the noise's scale in grid steps."""
        n_screening_samples = float(self.n_queries) * self.screened
        n_vote_samples = float(self.planned_answers) * len(self.classes)
        return count_samples_by_scale(
            [(FINE_SCALE, n_screening_samples), (self.create_noisy_max().scale, n_vote_samples)]
        )

    def create_noisy_max(self) -> NoisyMax:
        """Return a new noisy-max mechanism that permits the planned number of answers."""
        quota = ReleaseCounter(self.planned_answers, "answers")
        noise = create_noise_source(self.simulation_seed)
        return NoisyMax(self.vote_noise, self.max_votes, quota, noise, label_only=self.label_only)

    def create_screening(self, sampler: BernoulliSource | None = None) -> NoisyThreshold | None:
        """Return a new mechanism that screens the planned number of queries; None: no screening.

        `sampler`: source of random bits shared with the Poisson sampling; a new one if None.
        """
        if self.sigma_screen is None or self.threshold is None:
            return None
        quota = ReleaseCounter(self.n_queries, "screenings")
        noise = create_noise_source(self.simulation_seed)
        sampler = sampler or create_sampler(self.simulation_seed)
        return NoisyThreshold(self.threshold, self.sigma_screen, quota, noise, sampler)


Plans = TypeVar("Plans", bound=FixedPlan)
Answering = TypeVar("Answering", bound=AnsweringPlan)


class FixedPlanEstimator(
    NamedClassesMixin, GuaranteeDisplay, FixedPlanParameters, ABC, Generic[Plans]
):
    """An estimator with a fixed plan, whose guarantee is known before the first release.

    A subclass defines the class of its plan, `_plan_type`, and starts the releases in
    :meth:`_fit_checked`. Its guarantee also states `_additional_public_facts` and
    `_additional_assumptions`. Later changes of parameters do not affect the plan of ``fit``.
    """

    _plan_type: type[Plans]
    _additional_public_facts: tuple[str, ...] = ()
    _additional_assumptions: tuple[str, ...] = ()

    @abstractmethod
    def _fit_checked(self, plan: Plans, records: inputs.FitInputs, targets: AnyArray) -> None:
        """Create the mechanism that answers queries; without one, make all releases here.

        `records`: the checked arguments of ``fit``, whose records are claimed. `targets`: encoded,
        (n,) or (n, c); private.
        """

    def _fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        public: npt.ArrayLike | None = None,
    ) -> Self:
        """Check all arguments, claim the records and start the releases.

        After an error the estimator is unchanged. `X` (n, d), `y`, (n,) or (n, c), and `subjects`
        (n,) are private features, targets and ids, `public` (m, d) unlabelled rows, as ``fit`` of a
        subclass takes them.
        """
        with inputs.restore_on_error(self):
            plan = self._plan_type.from_estimator(self)
            check_row_order(X, y=y, subjects=subjects)
            refuse_features_as_targets(read_names("X", X) or (), y=y, subjects=subjects)
            records = inputs.read_fit_inputs(self, X, subjects, public)
            targets = plan.encode_targets(y, len(records))
            inputs.claim_records(self, plan, records)
            self.classes_ = plan.classes
            self._fit_checked(plan, records, targets)
            self._plan = plan
        return self

    def _get_plan(self) -> Plans:
        """Return the plan of ``fit``; before ``fit``, the plan of the current parameters."""
        return vars(self).get("_plan") or self._plan_type.from_estimator(self)

    def _count_noise_samples(self) -> dict[int, float]:
        """Return the planned number of noise samples, keyed by the noise's scale in grid steps."""
        return self._get_plan().count_noise_samples()

    def plan(self, delta: float | None = None) -> PlanJSON:
        """Return the plan in the JSON types that ``vicinal account`` reads.

        It covers all declared interactions. `delta`: of the guarantee; None: the estimator's.
        """
        planned = self._get_plan()
        stated = self.delta if delta is None else delta
        delta = checks.check_real("delta", stated, minimum=MIN_FIXED_DELTA, below=1)
        return planned.plan_interactions(planned.list_releases(), delta)

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee of the whole plan, known before the first release.

        It covers all planned releases, even if fewer are made. Its ``str()`` is a paragraph; its
        epsilon equals the output of ``vicinal account`` for :meth:`plan`. `delta`: of the
        guarantee; None: the estimator's.
        """
        planned = self._get_plan()
        return create_guarantee(
            self.plan(delta),
            self._count_noise_samples(),
            simulated=planned.simulation_seed is not None,
            interactions=planned.interactions,
            public=self._additional_public_facts,
            assumed=self._additional_assumptions,
        )


class FixedPlanClassifier(FixedPlanEstimator[Answering]):
    """A classifier that answers at most the planned number of queries."""

    n_asked_: int
    n_answers_: int

    def predict(self, X: npt.ArrayLike) -> AnyArray:
        """Return labels, (q,); -1, or None for string classes, if a query fails the screening.

        With `tau` (Private-kNN): 0 and 1 for every attribute, int64 (q, c). An attribute is present
        if its noisy votes reach half of k. `X`, array (q, d): public queries. Raises PrivacyRefused
        if they exceed the planned number; then none is answered.
        """
        return self._decide_labels(*self._release_answers(X))

    def _decide_labels(self, passed: Bools, answers: AnyArray) -> AnyArray:
        """Return the class name of every query, (q,); -1 or None for those that did not pass.

        `passed`, bool (q,): queries that passed the screening. `answers`: their class indices (p,)
        if labels alone are released, else their noisy votes (p, c).
        """
        class_indices = answers if self._plan.label_only else answers.argmax(axis=1)
        names: AnyArray = self.classes_[class_indices]
        if passed.all():
            return names
        are_integers = self.classes_.dtype.kind in "iu"
        labels = np.full(
            len(passed), ABSTAIN if are_integers else None, dtype=int if are_integers else object
        )
        labels[passed] = names
        return labels

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Return :meth:`votes`; for two classes those of the second minus the first, (q,)."""
        votes = self.votes(X)
        return votes if getattr(self._plan, "tau", None) else compute_decision_scores(votes)

    def votes(self, X: npt.ArrayLike) -> Floats:
        """Return noisy votes of queries `X` (q, d), float64 (q, c); NaN where screening failed.

        Charged like ``predict``: query once, and derive labels from the votes. Raises
        PrivacyRefused if labels alone are released, or the queries exceed the planned number.
        """
        check_is_fitted(self)
        if self._get_plan().label_only:
            raise PrivacyRefused(
                "There are no noisy votes, because only labels are paid for. Fit with "
                "release='votes'."
            )
        passed, answers = self._release_answers(X)
        votes = np.full((len(passed), len(self.classes_)), np.nan)
        votes[passed] = answers
        return votes

    def _fit_checked(self, plan: Answering, records: inputs.FitInputs, targets: AnyArray) -> None:
        """Create the mechanism that answers queries by `plan`; set the counters of queries to 0."""
        self._release = plan.create_mechanism(records, targets)
        self._lock = ForkSafeLock()
        self.vote_noise_ = plan.vote_noise
        self.n_asked_ = self.n_answers_ = 0

    def _release_answers(self, X: npt.ArrayLike) -> tuple[Bools, AnyArray]:
        """Release answers to queries; return whether each query passed the screening, and answers.

        The first array is bool (q,). Answers to the p queries that passed are class indices (p,) if
        labels alone are released, else noisy votes (p, c). Both are counted in `n_asked_` and
        `n_answers_`. `X`, (q, d): queries. Raises PrivacyRefused if they exceed the plan.
        """
        check_is_fitted(self)
        queries = inputs.read_features(self, X)
        with self._lock:
            self._release.check_queries(len(queries))
            inputs.note_release(self)
            block_results = []
            report_progress = begin_progress("answers", len(queries))
            for block in self._release.split_blocks(queries):
                passed, answers = self._release.answer(block)
                self.n_asked_ += len(passed)
                self.n_answers_ += len(answers)
                block_results.append((passed, answers))
                if report_progress is not None:
                    report_progress(len(passed))
        all_passed = np.concatenate([passed for passed, _ in block_results])
        return all_passed, np.concatenate([answers for _, answers in block_results])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle; raise PrivacyRefused after ``fit``."""
        if hasattr(self, "_release"):
            raise PrivacyRefused(
                "A fitted classifier cannot be copied or pickled: every copy could give the "
                "planned answers again. Copy it before fit (sklearn.base.clone), or share it."
            )
        return dict(super().__getstate__())
