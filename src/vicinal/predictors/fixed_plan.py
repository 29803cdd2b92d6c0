"""What estimators share whose releases are all alike: a plan priced beforehand, and no copies."""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, Bools, Floats, Ints
from vicinal.errors import InvalidInput, PrivacyRefused, VicinalError
from vicinal.ledger.memory import ForkSafeLock
from vicinal.mechanisms.noise_sources import BernoulliSource, bernoulli_source, create_noise_source
from vicinal.mechanisms.planned_releases import FINEST, NoisyMax, NoisyThreshold, ReleaseCounter
from vicinal.parameters import (
    AUTO,
    SEED,
    Auto,
    Choice,
    Given,
    Integer,
    Real,
    Settings,
    Unless,
    parameter,
    parameter_table,
)
from vicinal.planning.guarantees import (
    Plan,
    affordable_noise,
    count_draws_by_scale,
    guarantee_of,
    repeat_plan,
)
from vicinal.planning.parameter_tables import INTERACTIONS
from vicinal.predictors import inputs
from vicinal.predictors._named_classes import NamedClassesMixin
from vicinal.progress import step
from vicinal.tabular import check_row_order
from vicinal.targets.classes import ClassesParameter, encode_labels

ABSTAIN = -1
"""The answer, with integer classes, to a query that was not answered; else it is None."""

_VOTE_NOISE = Real(least=1e-2, most=1e9)
"""What a noise scale in votes must be."""


class GuaranteeDisplay(BaseEstimator):
    """An estimator whose HTML ends with its guarantee, once there is one."""

    def guarantee(self) -> Guarantee:
        raise NotImplementedError

    def _html_repr(self) -> str:
        shown: str = super()._html_repr()
        try:
            return shown + self.guarantee()._repr_html_()
        except (NotFittedError, VicinalError):
            return shown


def decision_scores(votes: Floats) -> Floats:
    """Return scores as scikit-learn has them: of two classes the lead of the second, (q,)."""
    return votes[:, 1] - votes[:, 0] if votes.shape[1] == 2 else votes


@parameter_table
class FixedPlanParameters(ClassesParameter):
    """What every estimator takes whose releases are all planned beforehand."""

    delta: float = parameter(
        Real(above=0, below=1),
        default=1e-5,
        doc="The delta at which :meth:`guarantee` states the cost, unless you pass another.",
    )
    interactions: Given[int | str, int] = parameter(
        INTERACTIONS,
        default=1,
        doc="""How many interactions with the same subjects, each carrying out this same plan, the
        guarantee covers together. A further one is refused. "public": the records need no
        protection, nothing is counted, and the guarantee is void.""",
    )
    simulation_seed: int | None = parameter(
        SEED,
        default=None,
        doc="Makes all randomness repeatable for experiments, and the guarantee void.",
    )


@parameter_table
class AnsweringParameters(FixedPlanParameters):
    """What classifiers take whose planned releases are noisy votes on their answers."""

    sigma_votes: Auto[float] = parameter(
        Unless(AUTO, _VOTE_NOISE),
        default=AUTO,
        doc="""Scale of the Gaussian noise on the votes of every class. "auto": the least that keeps
        `epsilon` over the whole plan; without an `epsilon` 25 for Private-kNN, and 40 for PATE.""",
    )
    sigma_screen: float | None = parameter(
        Unless(None, _VOTE_NOISE),
        default=None,
        doc="""Noise scale of the screening, in votes: a query is answered only if its largest vote
        count, with this noise, reaches `threshold`. Leave both None for no screening.""",
    )
    threshold: float | None = parameter(
        Unless(None, Real(least=-1e7, most=1e7)),
        default=None,
        doc="Threshold of the screening, in votes.",
    )
    epsilon: float | None = parameter(
        Unless(None, Real(above=0)),
        default=None,
        doc="""The guarantee for a subject at `delta` over the whole plan, instead of the scale of
        the noise.""",
    )
    n_queries: int = parameter(
        Integer(least=1, most=10**9),
        default=1000,
        doc="""How many queries are planned. More are refused, because the cost is stated for the
        plan.""",
    )
    n_answers: int | None = parameter(
        Unless(None, Integer(least=0)),
        default=None,
        doc="""How many of them may pass the screening and be answered; all, if left out. Once so
        many answers are given, no other query is screened or answered.""",
    )
    release: str = parameter(
        Choice(("votes", "label")),
        default="votes",
        doc="What leaves: noisy votes, or the label alone, which costs less in Renyi DP.",
    )


class FixedPlanSettings(Settings, FixedPlanParameters):
    """Checked parameters whose releases are all planned beforehand."""

    _name: ClassVar[str]

    @abstractmethod
    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""

    @abstractmethod
    def draws(self) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""

    @abstractmethod
    def start(self, records: inputs.FitInputs, targets: AnyArray) -> Any:
        """Return what makes the planned releases, with fresh quotas."""

    @property
    def plan_identity(self) -> Hashable:
        """What interactions that share the guarantee must have in common: all of the plan."""
        return self._name, json.dumps(self.releases(), sort_keys=True)

    def targets(self, y: npt.ArrayLike | None, size: int) -> AnyArray:
        return encode_labels(y, size, self.classes)

    def together(self, releases: list[Plan], delta: float | None = None) -> Plan:
        plan = {"delta": self.delta if delta is None else delta, "releases": releases}
        return repeat_plan(plan, self.interactions)


class AnsweringSettings(AnsweringParameters, FixedPlanSettings):
    """Checked parameters of a classifier whose planned releases are its answers.

    `_default_noise`: of the votes, where neither it nor an epsilon is given.
    """

    _default_noise: ClassVar[float]

    @property
    def _noise_field(self) -> str:
        """What the noise on votes is called in the last release of the plan."""
        return "sigma"

    @property
    @abstractmethod
    def most_votes(self) -> int:
        """How many vote in a query."""

    @abstractmethod
    def _releases(self, noise: float) -> list[Plan]:
        """Return the planned releases, with this noise on votes."""

    def check_together(self) -> None:
        self._check_screening()
        if self.epsilon is not None and self.sigma_votes is not None:
            raise InvalidInput(
                "The 'epsilon' parameter must be None where 'sigma_votes' is given. Leave "
                "'sigma_votes' at 'auto', or read the epsilon of this noise off guarantee()."
            )
        if self.n_answers is not None:
            least = 0 if self.epsilon is None else 1  # no noise keeps an epsilon of nothing
            checks.check_integer("n_answers", self.n_answers, least=least, most=self.n_queries)
        self.releases()  # what no noise can keep is refused before anything is changed

    def _check_screening(self) -> None:
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
        return self.sigma_screen is not None

    @property
    def label_only(self) -> bool:
        return self.release == "label"

    @property
    def planned_answers(self) -> int:
        return self.n_queries if self.n_answers is None else self.n_answers

    @property
    def vote_noise(self) -> float:
        """The noise scale on votes: as given, or the least that keeps epsilon."""
        if self.epsilon is None:
            return self._default_noise if self.sigma_votes is None else self.sigma_votes
        plan = self.together(self._releases(self._default_noise))
        return affordable_noise(plan, self.epsilon, self._noise_field)

    def releases(self) -> list[Plan]:
        return self._releases(self.vote_noise)

    def draws(self) -> dict[int, float]:
        screened = float(self.n_queries) * self.screened
        voted = float(self.planned_answers) * len(self.classes)
        return count_draws_by_scale([(FINEST, screened), (self.voting().scale, voted)])

    def voting(self) -> NoisyMax:
        """Return the noisy maximum, with a fresh quota."""
        quota = ReleaseCounter(self.planned_answers, "answers")
        noise = create_noise_source(self.simulation_seed)
        return NoisyMax(self.vote_noise, self.most_votes, quota, noise, label_only=self.label_only)

    def screening(self, coins: BernoulliSource | None = None) -> NoisyThreshold | None:
        """Return the screening, with a fresh quota, or None; `coins` are shared with a sampling."""
        if self.sigma_screen is None or self.threshold is None:
            return None
        quota = ReleaseCounter(self.n_queries, "screenings")
        noise, seed = create_noise_source(self.simulation_seed), self.simulation_seed
        coins = coins or bernoulli_source(seed)
        return NoisyThreshold(self.threshold, self.sigma_screen, quota, noise, coins)


Plans = TypeVar("Plans", bound=FixedPlanSettings)


Answering = TypeVar("Answering", bound=AnsweringSettings)


class FixedPlanEstimator(
    NamedClassesMixin, GuaranteeDisplay, FixedPlanParameters, ABC, Generic[Plans]
):
    """An estimator whose releases are all planned beforehand, and priced before the first.

    A subclass says of what class its settings are, and starts its releases in :meth:`_start`.
    What is planned is, after ``fit``, what was planned then, whatever has been set since.
    """

    _settings_type: type[Plans]
    _also_public: tuple[str, ...] = ()
    _also_assumed: tuple[str, ...] = ()

    @abstractmethod
    def _start(self, settings: Plans, records: inputs.FitInputs, targets: AnyArray) -> None:
        """Start the planned releases on records that are claimed."""

    def _fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        public: npt.ArrayLike | None = None,
    ) -> Self:
        """Check everything, claim the records, and start; or leave the estimator as it was."""
        with inputs.restore_on_error(self):
            settings = self._settings_type.of(self)
            check_row_order(X, y=y, subjects=subjects)
            records = inputs.check_fit_inputs(self, X, subjects, public)
            targets = settings.targets(y, len(records))
            inputs.claim_records(self, settings, records)
            self.classes_ = settings.classes
            self._start(settings, records, targets)
            self._settings = settings
        return self

    def _planned(self) -> Plans:
        """Return the settings of ``fit``, or before it those that the parameters make."""
        return vars(self).get("_settings") or self._settings_type.of(self)

    def _draws(self) -> dict[int, float]:
        return self._planned().draws()

    def plan(self, delta: float | None = None) -> Plan:
        """Return the plan as the JSON that ``vicinal account`` reads, at `delta` or the default.

        Of all interactions together, where several were declared.
        """
        planned = self._planned()
        delta = checks.check_real("delta", self.delta if delta is None else delta, above=0, below=1)
        return planned.together(planned.releases(), delta)

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

    def predict(self, X: npt.ArrayLike) -> AnyArray:
        """Return labels, (q,); -1, or None with string classes, where the screening fails.

        With `tau` (Private-kNN): 0 and 1 for every attribute, int64 (q, c). An attribute is there
        if its noisy votes reach half of k.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.

        Raises
        ------
        PrivacyRefused
            Before anything is asked, if so many queries were not planned.
        """
        return self._decided(*self._answers(X))

    def _decided(self, passed: Bools, answers: AnyArray) -> AnyArray:
        return self._named(answers if self._settings.label_only else answers.argmax(axis=1), passed)

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Return :meth:`votes`; of two classes the lead of the second over the first, (q,)."""
        votes = self.votes(X)
        return votes if getattr(self._settings, "tau", None) else decision_scores(votes)

    def votes(self, X: npt.ArrayLike) -> Floats:
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
                "There are no noisy votes, because only labels are paid for. Fit with "
                "release='votes'."
            )
        passed, answers = self._answers(X)
        votes = np.full((len(passed), len(self.classes_)), np.nan)
        votes[passed] = answers
        return votes

    def _start(self, settings: Answering, records: inputs.FitInputs, targets: AnyArray) -> None:
        self._release, self._lock = settings.start(records, targets), ForkSafeLock()
        self.vote_noise_ = settings.vote_noise
        self.n_asked_ = self.n_answers_ = 0

    def _answers(self, X: npt.ArrayLike) -> tuple[Bools, AnyArray]:
        check_is_fitted(self)
        queries = inputs.checked_features(self, X)
        with self._lock:
            self._release.check(len(queries))
            inputs.note_release(self)
            parts, done = [], step("answers", len(queries))
            for block in self._release.blocks(queries):
                passed, answers = self._release.answer(block)
                self.n_asked_ += len(passed)
                self.n_answers_ += len(answers)
                parts.append((passed, answers))
                if done is not None:
                    done(len(passed))
        return np.concatenate([p for p, _ in parts]), np.concatenate([a for _, a in parts])

    def _named(self, best: Ints, passed: Bools) -> AnyArray:
        names: AnyArray = self.classes_[best]
        if passed.all():
            return names
        are_integers = self.classes_.dtype.kind in "iu"
        labels = np.full(
            len(passed), ABSTAIN if are_integers else None, dtype=int if are_integers else object
        )
        labels[passed] = names
        return labels

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "_release"):
            raise PrivacyRefused(
                "A fitted classifier cannot be copied or pickled: every copy could give the "
                "planned answers again. Copy it before fit (sklearn.base.clone), or share it."
            )
        return dict(super().__getstate__())
