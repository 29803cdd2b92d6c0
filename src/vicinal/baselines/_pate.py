"""PATE: private aggregation of the votes of teachers.

Source: Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson 2018 (P18), *Scalable private
learning with PATE*.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy.typing as npt

from vicinal._arrays import AnyArray
from vicinal._parameters import Check, Choice, Integer, Real, documented, parameter, table
from vicinal.errors import InvalidInput
from vicinal.mechanisms import (
    FINEST,
    NoisyMax,
    PATERelease,
    ReleaseCounter,
    fresh_key,
    randomness,
    train_teachers,
)
from vicinal.planning import Plan, affordable_noise, summed
from vicinal.predictors import (
    VOTE_NOISE,
    AnsweringParameters,
    AnsweringSettings,
    FitInputs,
    FixedPlanClassifier,
    check_abstention,
    check_answers,
    check_one_noise,
)

GNMAX = "gnmax"
CONFIDENT_GNMAX = "confident_gnmax"
MECHANISMS = (GNMAX, CONFIDENT_GNMAX)
"""How votes become answers; see :class:`PATEClassifier`."""

DEFAULT_NOISE = 40.0
"""The scale of the noise on votes where neither it nor an epsilon is given."""


@dataclass(frozen=True, slots=True)
class TeacherModel(Check):
    """A scikit-learn classifier; logistic regression where none is given."""

    type_name = "scikit-learn classifier, optional"
    refused: ClassVar[tuple[object, ...]] = ("a teacher", 3, [])

    def __call__(self, name: str, value: Any) -> Any:
        if value is None:
            from sklearn.linear_model import LogisticRegression

            return LogisticRegression(max_iter=200)
        if not all(hasattr(value, method) for method in ("fit", "predict", "get_params")):
            raise InvalidInput(
                f"The {name!r} parameter must be a scikit-learn classifier. Got {value!r}."
            )
        return value


@table
class PATEParameters(AnsweringParameters):
    """What PATE takes besides."""

    n_teachers: int = parameter(
        Integer(least=1, most=10**6), default=250, kw_only=False, doc="How many teachers there are."
    )
    mechanism: str = parameter(
        Choice(MECHANISMS),
        default=GNMAX,
        doc="""Gaussian noise on the votes of all queries, or of those only whose largest vote
        count, with noise of scale `sigma_screen`, reaches `threshold`.""",
    )
    teacher: Any = parameter(
        TeacherModel(),
        default=None,
        doc="""The classifier that every teacher is a clone of. Default: logistic regression. It
        must read nothing but its arguments and its ``random_state``.""",
    )


class PATESettings(PATEParameters, AnsweringSettings):
    """Checked parameters of a PATE classifier; None stands for "auto", and for no screening."""

    _name = "PATE"

    def check_together(self) -> None:
        self._check_screening()
        check_answers(self.n_answers, self.n_queries, self.epsilon)
        check_one_noise(self.epsilon, "sigma_votes", self.sigma_votes)
        self.releases()  # what no noise can keep is refused before anything is changed

    def _check_screening(self) -> None:
        if self.screened:
            check_abstention(self.classes)
            VOTE_NOISE("sigma_screen", self.sigma_screen)
            Real(least=-1e7, most=1e7)("threshold", self.threshold)
            return
        for name in ("sigma_screen", "threshold", "n_answers"):
            if getattr(self, name) is not None:
                raise InvalidInput(
                    f"The {name!r} parameter belongs to mechanism='confident_gnmax'."
                )

    @property
    def vote_noise(self) -> float:
        if self.epsilon is None:
            return DEFAULT_NOISE if self.sigma_votes is None else self.sigma_votes
        field = "sigma" if self.mechanism == GNMAX else "sigma_votes"
        return affordable_noise(self.together(self._releases(DEFAULT_NOISE)), self.epsilon, field)

    @property
    def screened(self) -> bool:
        """Whether queries are screened."""
        return self.mechanism == CONFIDENT_GNMAX

    def releases(self) -> list[Plan]:
        return self._releases(self.vote_noise)

    def _releases(self, noise: float) -> list[Plan]:
        leaves = {"release": "label" if self.label_only else "votes"}
        if self.mechanism == GNMAX:
            return [{"kind": GNMAX, "sigma": noise, "count": self.n_queries, **leaves}]
        return [
            {
                "kind": CONFIDENT_GNMAX,
                "teachers": self.n_teachers,
                "threshold": self.threshold,
                "sigma_screen": self.sigma_screen,
                "sigma_votes": noise,
                "answered": self.planned_answers,
                "count": self.n_queries,
                **leaves,
            }
        ]

    def draws(self) -> dict[int, float]:
        screened = float(self.n_queries) * self.screened
        voted = float(self.planned_answers) * len(self.classes)
        return summed([(FINEST, screened), (self.voting().scale, voted)])

    def voting(self) -> NoisyMax:
        """Return the noisy maximum, with a fresh quota."""
        quota = ReleaseCounter(self.planned_answers, "answers")
        noise = randomness(self.simulation_seed)
        return NoisyMax(self.vote_noise, self.n_teachers, quota, noise, label_only=self.label_only)

    def start(self, records: FitInputs, targets: AnyArray) -> PATERelease:
        simulated = self.simulation_seed is not None
        key = f"simulated:{self.simulation_seed}".encode() if simulated else fresh_key()
        teachers = train_teachers(
            self.teacher, records.features, targets, list(records.names), key, self.n_teachers,
            len(self.classes),
        )  # fmt: skip
        return PATERelease(
            teachers,
            len(self.classes),
            self.screening(),
            self.voting(),
            ReleaseCounter(self.n_queries, "queries"),
        )


@documented
class PATEClassifier(FixedPlanClassifier[PATESettings], PATEParameters):
    r"""Adds noise to the votes of teachers, each trained on the records of different subjects.

    Every subject has one teacher, drawn at random. Removing a subject changes one teacher, and so
    at most one vote in a query. All queries cost the same, so the whole cost is known before the
    first one.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    n_features_in_ : int
        Number of features.
    vote_noise_ : float
        `sigma_votes` as planned; public.
    n_asked_, n_answers_ : int
        Queries asked, and answered, since ``fit``.

    Notes
    -----
    A teacher that fails to train, or has seen only one class, still votes. A fitted classifier
    cannot be copied or pickled: every copy could carry out the plan.

    Examples
    --------
    >>> from vicinal import PATEClassifier
    >>> clf = PATEClassifier([0, 1, 2], n_teachers=250, sigma_votes=40.0, n_queries=100)
    >>> round(clf.guarantee().epsilon, 1)  # known before there is a record
    1.4
    """

    _settings_type = PATESettings
    _how_votes_leave = "mechanism='gnmax' or 'confident_gnmax', and release='votes'"
    _also_assumed = (
        "a teacher's training and predictions read nothing but their arguments and random_state",
    )

    def fit(
        self, X: npt.ArrayLike, y: npt.ArrayLike, subjects: npt.ArrayLike | None = None
    ) -> Self:
        """Train the teachers.

        Parameters
        ----------
        X : array (n, d)
            Private features, any float type, finite.
        y : array (n,)
            Private labels, each one of `classes`.
        subjects : array (n,), optional
            Integer or string id of the subject behind each record. Without it every record is a
            subject.

        Raises
        ------
        InvalidInput
            Before anything is changed; the message names the argument and the fix.
        PrivacyRefused
            If records took part in an earlier interaction of this process.
        """
        return self._fit(X, y, subjects)
