"""Private-kNN: noisy votes of the nearest records in a new Poisson sample for every query.

Source: Zhu, Yu, Chandraker & Wang 2020 (ZYCW20), *Private-kNN: Practical Differential Privacy for
Computer Vision*.
"""

from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Bools, FloatMatrix
from vicinal.errors import InvalidInput
from vicinal.mechanisms.noise_sources import create_sampler
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
from vicinal.planning.guarantees import ReleaseJSON
from vicinal.predictors.fixed_plan import AnsweringParameters, AnsweringPlan, FixedPlanClassifier
from vicinal.predictors.inputs import FitInputs
from vicinal.targets.classes import encode_labels
from vicinal.targets.label_sets import read_label_matrix

_FEW_FEATURES = 64
"""Number of features below which the fine float32 grid is used, since products are cheap there.
Above, features are rounded to int8 precision. Distances are exact on both grids."""


@parameter_table
class PrivateKNNParameters(AnsweringParameters):
    """Parameters of Private-kNN in addition to those of all classifiers with a fixed plan."""

    n_neighbors: int = parameter(
        Integer(minimum=1, maximum=10**6),
        default=300,
        kw_only=False,
        doc="Number of records that vote.",
    )
    sampling_rate: float = parameter(
        Real(above=0, maximum=1),
        default=0.15,
        kw_only=False,
        doc="The probability with which each subject takes part in a sample, above 0.",
    )
    tau: float | None = parameter(
        Unless(None, Real(above=0, maximum=1e6)),
        default=None,
        doc="""For records with several labels (attributes, named by `classes`): the votes of a
        record together count at most `tau` (the tau-approximation). Without screening only.""",
    )
    norm_bound: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""Largest length of feature vectors; longer ones are scaled to this length. "auto"
        takes it from the public reference of `fit`, else from the first queries, which are public,
        too.""",
    )


class PrivateKNNPlan(PrivateKNNParameters, AnsweringPlan):
    """Checked parameters of Private-kNN; None stands for "auto", and for no screening."""

    _name = "Private-kNN"
    _default_noise = 25.0

    @property
    def max_votes(self) -> int:
        """Largest number of votes in a query: that of the neighbours."""
        return self.n_neighbors

    def _check_screening(self) -> None:
        """Raise InvalidInput also if `tau` is given with screening or the release of labels."""
        super()._check_screening()
        if self.tau is not None and (self.screened or self.label_only):
            raise InvalidInput(
                "The 'tau' parameter must be None with screening or release='label': records with "
                "several labels are answered with noise on every attribute."
            )

    def _plan_releases(self, noise: float) -> list[ReleaseJSON]:
        """Return the planned releases; `noise`: standard deviation of the noise, in votes."""
        rate = self.sampling_rate
        releases: list[ReleaseJSON] = []
        if self.screened:
            screening = {
                "kind": "screening",
                "k": self.n_neighbors,
                "classes": len(self.classes),
                "threshold": self.threshold,
                "sigma": self.sigma_screen,
                "gamma": rate,
                "count": self.n_queries,
            }
            releases.append(screening)
        vote_options: ReleaseJSON = {"sigma": noise, "gamma": rate, "count": self.planned_answers}
        if self.planned_answers == 0:
            return releases
        if self.tau is not None:
            return [*releases, {"kind": "multilabel", "tau": self.tau, **vote_options}]
        if self.label_only:
            vote_options |= {"release": "label", "classes": len(self.classes)}
        return [*releases, {"kind": "noisy_max", **vote_options}]

    def encode_targets(self, y: npt.ArrayLike | None, size: int) -> AnyArray:
        """Return the class index of each record, (n,), or with `tau` 0s and 1s (n, c); private.

        `y`: the argument of ``fit``. `size`: n, the number of records.
        """
        if self.tau is None:
            return encode_labels(y, size, self.classes)
        return read_label_matrix(y, size, self.classes.tolist())

    def create_kernel(self, public: FloatMatrix, margin: float) -> RBF:
        """Return the kernel whose similarities are negative squared distances of rounded features.

        `public`, (m, d): rows that determine the grid to which features are rounded. `margin`: if
        `norm_bound` is "auto", the bound is `margin` times the largest norm of these rows.
        """
        bound = self.norm_bound
        if bound is None:
            max_norm = float(np.sqrt(np.square(public.astype(np.float64)).sum(axis=1)).max())
            bound = margin * max_norm or 1.0
        uses_float32 = public.shape[1] < _FEW_FEATURES
        return RBF(1.0, bound, FLOAT32 if uses_float32 else int8_precision(public, bound))

    def create_mechanism(self, records: FitInputs, targets: AnyArray) -> PrivateKNNRelease:
        """Return a new mechanism that answers the planned number of queries; none is used yet.

        `targets`: class indices (n,), or 0s and 1s (n, c) for several labels (`tau` is given);
        private.
        """
        votes: VoteEncoding = (
            OneHotVotes(targets, len(self.classes))
            if self.tau is None
            else ClippedVotes(targets, self.tau)
        )
        sampler = create_sampler(self.simulation_seed)
        release = PrivateKNNRelease(
            records.features,
            *records.slots,
            votes,
            k=self.n_neighbors,
            gamma=self.sampling_rate,
            choose_kernel=self.create_kernel,
            screening=self.create_screening(sampler),
            voting=self.create_noisy_max(),
            sampler=sampler,
            query_counter=ReleaseCounter(self.n_queries, "queries"),
        )
        if records.reference is not None:
            release.choose_kernel_and_encode(records.reference, margin=1.0)
        return release


@document_parameters
class PrivateKNNClassifier(FixedPlanClassifier[PrivateKNNPlan], PrivateKNNParameters):
    r"""Labels queries by a noisy vote of the k nearest records in a Poisson sample.

    For every query each subject is sampled independently with probability `sampling_rate`, and the
    `n_neighbors` nearest sampled subjects vote. *Screening*: the query passes if its largest vote
    count plus N(0, sigma_screen^2) reaches the threshold. Then **a new sample** votes, and the
    class with the most votes, with noise N(0, sigma_votes^2) on each, is the answer. All queries
    are charged equally, so the total charge is known before the first.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Names of the columns of `X`, if it is a table with string column names.
    vote_noise_ : float
        `sigma_votes` as planned; public.
    n_asked_, n_answers_ : int
        Numbers of queries received, and answered, since ``fit``.

    Notes
    -----
    Corrections to the published code: samples are Poisson, never of fixed size or with
    replacement; the vote uses a separate sample; votes are compared with the unmodified threshold;
    the screening is charged by its exact distribution (:mod:`vicinal.accounting.screening`); the
    clipping of a record's votes to `tau` keeps votes of 0 at 0.

    A subject with several records is sampled as a whole and has one vote, by its nearest record.
    A fitted classifier cannot be copied or pickled: every copy could spend the planned charge.

    Examples
    --------
    >>> from vicinal import PrivateKNNClassifier
    >>> clf = PrivateKNNClassifier(range(10), 300, 0.15, sigma_votes=25.0, n_queries=1000)
    >>> round(clf.guarantee().epsilon, 1)  # known before there is a record
    1.0
    """

    _plan_type = PrivateKNNPlan
    _additional_public_facts = ("the public rows that the grid of features is chosen by",)

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        public: npt.ArrayLike | None = None,
    ) -> Self:
        """Fit on private records; the releases start with the first query.

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
            Public, unlabelled points that determine the rounding grid of the features. Columns are
            matched by name if `X` has names, too.

        Raises
        ------
        InvalidInput
            Before anything is changed; the message names the argument and the fix.
        PrivacyRefused
            If records took part in an earlier interaction of this process.
        """
        return self._fit(X, y, subjects, public)

    def _decide_labels(self, passed: Bools, answers: AnyArray) -> AnyArray:
        """Return the label of every query, (q,); with `tau` a 0 or 1 for every label of it, (q, c).

        With `tau`, a label is present if its noisy votes reach half of k. `passed`, bool (q,):
        queries that passed the screening; with `tau`, all. `answers`: noisy votes (p, c) of the p
        queries that passed, or their class indices (p,) if labels alone are released.
        """
        if self._plan.tau is None:
            return super()._decide_labels(passed, answers)
        return np.asarray(2 * answers >= self._plan.n_neighbors).astype(np.int64)
