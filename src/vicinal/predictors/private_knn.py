"""Private-kNN: noisy votes of the nearest of a fresh Poisson sample, for every query anew.

Source: Zhu, Yu, Chandraker & Wang 2020 (ZYCW20), *Private-kNN: Practical Differential Privacy for
Computer Vision*.
"""

from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Bools, FloatMatrix
from vicinal.errors import InvalidInput
from vicinal.mechanisms.noise_sources import bernoulli_source
from vicinal.mechanisms.planned_releases import ReleaseCounter
from vicinal.mechanisms.private_knn import (
    ClippedVotes,
    OneHotVotes,
    PrivateKNNRelease,
    VoteEncoding,
)
from vicinal.neighbours.kernels import FLOAT32, RBF, int8_precision
from vicinal.parameters import (
    AUTO,
    Auto,
    Integer,
    Real,
    Unless,
    document_parameters,
    parameter,
    parameter_table,
)
from vicinal.planning.guarantees import Plan
from vicinal.predictors.fixed_plan import (
    AnsweringParameters,
    AnsweringSettings,
    FixedPlanClassifier,
)
from vicinal.predictors.inputs import FitInputs
from vicinal.targets.classes import encode_labels
from vicinal.targets.label_sets import label_sets

_FEW_FEATURES = 64
"""With fewer products are cheap, and the fine grid is taken. Distances are exact on either."""


@parameter_table
class PrivateKNNParameters(AnsweringParameters):
    """What Private-kNN takes besides."""

    n_neighbors: int = parameter(
        Integer(least=1, most=10**6), default=300, kw_only=False, doc="How many records vote."
    )
    sampling_rate: float = parameter(
        Real(above=0, most=1),
        default=0.15,
        kw_only=False,
        doc="The probability with which each subject takes part in a sample, above 0.",
    )
    tau: float | None = parameter(
        Unless(None, Real(above=0, most=1e6)),
        default=None,
        doc="""For records with several labels (attributes, named by `classes`): the votes of a
        record together count at most `tau` (the tau-approximation). Without screening only.""",
    )
    norm_bound: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""The longest feature vector that distances are exact for; longer ones are pulled back
        to this length. "auto" takes it from the public reference of `fit`, else from the first
        queries asked, which are public, too.""",
    )


class PrivateKNNSettings(PrivateKNNParameters, AnsweringSettings):
    """Checked parameters; None stands for "auto", and for no screening."""

    _name = "Private-kNN"
    _default_noise = 25.0

    @property
    def most_votes(self) -> int:
        return self.n_neighbors

    def _check_screening(self) -> None:
        super()._check_screening()
        if self.tau is not None and (self.screened or self.label_only):
            raise InvalidInput(
                "The 'tau' parameter must be None with screening or release='label': records with "
                "several labels are answered with noise on every attribute."
            )

    def _releases(self, noise: float) -> list[Plan]:
        return [*self._screening(), *self._votes(self.planned_answers, noise)]

    def _screening(self) -> list[Plan]:
        if self.sigma_screen is None:
            return []
        fields: Plan = {
            "k": self.n_neighbors,
            "classes": len(self.classes),
            "threshold": self.threshold,
        }
        noise = {"sigma": self.sigma_screen, "gamma": self.sampling_rate}
        return [{"kind": "screening", **fields, **noise, "count": self.n_queries}]

    def _votes(self, count: int, noise: float) -> list[Plan]:
        shared: Plan = {"sigma": noise, "gamma": self.sampling_rate, "count": count}
        if count == 0:
            return []
        if self.tau is not None:
            return [{"kind": "multilabel", "tau": self.tau, **shared}]
        if self.label_only:
            shared |= {"release": "label", "classes": len(self.classes)}
        return [{"kind": "noisy_max", **shared}]

    def targets(self, y: npt.ArrayLike | None, size: int) -> AnyArray:
        if self.tau is None:
            return encode_labels(y, size, self.classes)
        return label_sets(y, size, self.classes.tolist())

    def encoding(self, targets: AnyArray) -> VoteEncoding:
        if self.tau is None:
            return OneHotVotes(targets, len(self.classes))
        return ClippedVotes(targets, self.tau)

    def kernel(self, public: FloatMatrix, margin: float) -> RBF:
        """Return the kernel whose similarities are negative squared distances.

        `public` (m, d) are public rows that bound and grid are chosen by; `margin` is how far
        beyond them the bound lies.
        """
        bound = self.norm_bound
        if bound is None:
            longest = float(np.sqrt(np.square(public.astype(np.float64)).sum(axis=1)).max())
            bound = margin * longest or 1.0
        fine = public.shape[1] < _FEW_FEATURES
        return RBF(1.0, bound, FLOAT32 if fine else int8_precision(public, bound))

    def start(self, records: FitInputs, targets: AnyArray) -> PrivateKNNRelease:
        coins = bernoulli_source(self.simulation_seed)
        release = PrivateKNNRelease(
            records.features,
            *records.slots,
            self.encoding(targets),
            k=self.n_neighbors,
            gamma=self.sampling_rate,
            grid=self.kernel,
            screening=self.screening(coins),
            voting=self.voting(),
            coins=coins,
            planned=ReleaseCounter(self.n_queries, "queries"),
        )
        if records.reference is not None:
            release.encode_by(records.reference, margin=1.0)
        return release


@document_parameters
class PrivateKNNClassifier(FixedPlanClassifier[PrivateKNNSettings], PrivateKNNParameters):
    r"""Labels queries by a noisy vote of the k nearest in a Poisson sample of private records.

    For every query each subject takes part by an independent coin of probability `sampling_rate`,
    and the `n_neighbors` nearest who do vote. *Screening*: the query passes if its largest vote
    count plus N(0, sigma_screen^2) reaches the threshold. Then **a fresh sample** votes, and the
    class with the most votes, with noise N(0, sigma_votes^2) on each, is the answer. All queries
    cost the same, so the whole cost is known before the first one.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Names of the columns of `X`, if it came as a table whose names are texts.
    vote_noise_ : float
        `sigma_votes` as planned; public.
    n_asked_, n_answers_ : int
        Queries asked, and answered, since ``fit``.

    Notes
    -----
    Corrections to the published code: samples are Poisson, never of fixed size or with
    replacement; the vote is on a sample of its own; votes are compared with the threshold as it
    is; the cost is that of the screening's own law (:mod:`vicinal.accounting.screening`); the
    tau-clipping leaves votes of 0 at 0.

    A subject with several records takes part by one coin and has one vote, by its nearest record.
    A fitted classifier cannot be copied or pickled: every copy could carry out the plan.

    Examples
    --------
    >>> from vicinal import PrivateKNNClassifier
    >>> clf = PrivateKNNClassifier(range(10), 300, 0.15, sigma_votes=25.0, n_queries=1000)
    >>> round(clf.guarantee().epsilon, 1)  # known before there is a record
    1.0
    """

    _settings_type = PrivateKNNSettings
    _also_public = ("the public rows that the grid of features is chosen by",)

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        public: npt.ArrayLike | None = None,
    ) -> Self:
        """Take in private records.

        Parameters
        ----------
        X : array or table (n, d)
            Private features: finite numbers. Later queries need the same column names.
        y : array (n,)
            Private labels, each one of `classes`; with `tau` an array (n, c) of 0 and 1, one
            column for each of `classes`.
        subjects : array (n,), optional
            Integer or string id of the subject behind each record. Without it every record is a
            subject.
        public : array or table (m, d), optional
            Public, unlabelled points that the grid of the features is chosen by. Columns are found
            by name where `X` has names, too.

        Raises
        ------
        InvalidInput
            Before anything is changed; the message names the argument and the fix.
        PrivacyRefused
            If records took part in an earlier interaction of this process.
        """
        return self._fit(X, y, subjects, public)

    def _decided(self, passed: Bools, answers: AnyArray) -> AnyArray:
        if self._settings.tau is None:
            return super()._decided(passed, answers)
        return np.asarray(2 * answers >= self._settings.n_neighbors).astype(np.int64)
