"""PATE: private aggregation of the votes of teachers.

Source: Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson 2018 (P18), *Scalable private
learning with PATE*.
"""

from typing import Any, Self

import numpy.typing as npt

from vicinal.arrays import AnyArray
from vicinal.errors import InvalidInput
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.mechanisms.planned_releases import ReleaseCounter
from vicinal.mechanisms.teachers import PATERelease, train_teachers
from vicinal.parameters import Checked, Integer, document_parameters, parameter, parameter_table
from vicinal.planning.guarantees import ReleaseJSON
from vicinal.predictors.fixed_plan import AnsweringParameters, AnsweringPlan, FixedPlanClassifier
from vicinal.predictors.inputs import FitInputs


def _resolve_teacher(name: str, value: Any) -> Any:
    """Return the classifier that every teacher clones: `value`, or logistic regression for None.

    `name`: the parameter's name in the InvalidInput that is raised if `value` is no classifier.
    """
    if value is None:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=200)
    if not all(hasattr(value, method) for method in ("fit", "predict", "get_params")):
        raise InvalidInput(
            f"The {name!r} parameter must be a scikit-learn classifier. Got {value!r}."
        )
    return value


@parameter_table
class PATEParameters(AnsweringParameters):
    """Parameters of PATE beyond those of every estimator that answers queries by a fixed plan."""

    n_teachers: int = parameter(
        Integer(minimum=1, maximum=10**6), default=250, kw_only=False, doc="Number of teachers."
    )
    teacher: Any = parameter(
        Checked(_resolve_teacher, "scikit-learn classifier, optional"),
        default=None,
        doc="""The classifier that every teacher is a clone of. Default: logistic regression. It
        must read nothing but its arguments and its ``random_state``.""",
    )


class PATEPlan(PATEParameters, AnsweringPlan):
    """Checked parameters of a PATE classifier.

    "auto" of `sigma_votes` is None here: the noise is calibrated to `epsilon`, or has a standard
    deviation of 40 votes if `epsilon` is None, too.
    """

    _name = "PATE"
    _default_noise = 40.0

    @property
    def max_votes(self) -> int:
        """Number of votes in a query: one per teacher."""
        return self.n_teachers

    def _plan_releases(self, noise: float) -> list[ReleaseJSON]:
        """Return the planned releases: GNMax, or with screening Confident-GNMax.

        `noise`: standard deviation of the noise on the votes of each class.
        """
        release = {"release": "label" if self.label_only else "votes"}
        if not self.screened:
            return [{"kind": "gnmax", "sigma": noise, "count": self.n_queries, **release}]
        return [
            {
                "kind": "confident_gnmax",
                "teachers": self.n_teachers,
                "threshold": self.threshold,
                "sigma_screen": self.sigma_screen,
                "sigma_votes": noise,
                "answered": self.planned_answers,
                "count": self.n_queries,
                **release,
            }
        ]

    def create_mechanism(self, records: FitInputs, targets: AnyArray) -> PATERelease:
        """Train the teachers, and return the mechanism that releases their noisy votes.

        `records`: private features (n, d) and subject ids. `targets`, (n,): private class indices.
        """
        # The key assigns subjects to teachers. It is secret, except in simulations.
        is_simulated = self.simulation_seed is not None
        key = f"simulated:{self.simulation_seed}".encode() if is_simulated else fresh_key()
        teachers = train_teachers(
            self.teacher,
            records.features,
            targets,
            list(records.subject_ids),
            key,
            self.n_teachers,
            len(self.classes),
        )
        return PATERelease(
            self.create_screening(),
            self.create_noisy_max(),
            ReleaseCounter(self.n_queries, "queries"),
            teachers,
            len(self.classes),
        )


@document_parameters
class PATEClassifier(FixedPlanClassifier[PATEPlan], PATEParameters):
    r"""Adds noise to the votes of teachers, each trained on the records of different subjects.

    Every subject is assigned to one teacher at random. Removing a subject changes one teacher, and
    so at most one vote in a query. All queries cost the same, so the total cost is known before the
    first query. Without screening this is GNMax, with it Confident-GNMax.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Column names of `X`, if it is a table with string column names.
    vote_noise_ : float
        Planned standard deviation of the noise on votes, `sigma_votes`; public.
    n_asked_, n_answers_ : int
        Number of queries, and of answered queries, since ``fit``.

    Notes
    -----
    A teacher whose training fails, or whose records have a single class, still votes. A fitted
    classifier cannot be copied or pickled, because every copy could answer the planned queries.

    Examples
    --------
    >>> from vicinal import PATEClassifier
    >>> clf = PATEClassifier([0, 1, 2], n_teachers=250, sigma_votes=40.0, n_queries=100)
    >>> round(clf.guarantee().epsilon, 1)  # known before there is a record
    1.4
    """

    _plan_type = PATEPlan
    _additional_assumptions = (
        "a teacher's training and predictions read nothing but their arguments and random_state",
    )

    def fit(
        self, X: npt.ArrayLike, y: npt.ArrayLike, subjects: npt.ArrayLike | None = None
    ) -> Self:
        """Train the teachers on private records.

        Parameters
        ----------
        X : array or table (n, d)
            Private features: finite numbers. Later queries need the same column names.
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
