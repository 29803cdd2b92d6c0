"""Ind-KNN: private prediction with an individual privacy budget for every subject.

Source: Zhu, Zhao, Guo & Wang 2023 (ZZGW23), *"Private Prediction Strikes Back!" Private Kernelized
Nearest Neighbors with Individual Renyi Filter*.
"""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.engine.engine import QueryAnswers
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.parameters import document_parameters
from vicinal.planning.engine_factory import convert_to_float32
from vicinal.planning.parameter_tables import IndKNNClassifierParameters
from vicinal.predictors import inputs
from vicinal.predictors.fixed_plan import ABSTAIN, NamedClassesMixin, compute_decision_scores
from vicinal.predictors.ind_knn_base import IndKNNEstimator


@document_parameters
class IndKNNClassifier(NamedClassesMixin, IndKNNEstimator, IndKNNClassifierParameters):
    r"""Answers queries from private records; every subject has a separate privacy budget.

    The neighbours of a query vote with their kernel weight. A subject is charged exactly for the
    contribution of its records. When its budget runs out, it contributes less, and then nothing (it
    retires). Only noisy votes are released. All answers together, however many, are
    (epsilon, delta)-differentially private for every subject.

    Start with :doc:`/tutorials/python`; :doc:`/explanation/guarantee` describes the guarantee, and
    :doc:`/how-to/pick-epsilon` the choice of `epsilon` and `n_queries`.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray (d,)
        Names of the columns of `X`, if it is a table with string column names.
    n_records_ : int
        Number of records: `n_records`, or its noisy estimate.
    n_neighbors_ : int or None
        Number of neighbours that the plan expects; None with a fixed radius.
    noise_multiplier_ : float
        Standard deviation of the noise on each class's votes, divided by the root of the neighbour
        count.
    budget_ : float
        Budget of each subject for votes, after planning, in the units of `accounting`.
    model_share_ : float
        Share of the budgets that trained a model; 0 if there is none.
    n_answers_ : int
        Answers given since ``fit``.

    See Also
    --------
    IndKNNRegressor : Answers with numbers.
    IndKNNMultiLabelClassifier : Answers with several labels.
    Store : Keeps records and budgets on disk.
    NoisySGDClassifier : Pays once, for a model that can be published.

    Notes
    -----
    Shapes: n records, d features, q queries, c classes.

    ``fit`` starts new budgets: fitting again on the same subjects is a second interaction, whose
    privacy loss adds to the first. The same process refuses it unless `interactions` declared it.
    For the same reason a fitted classifier cannot be copied or pickled. With a private model, `fit`
    itself is a release, even without any query.

    With a private model, ``predict_proba`` gives its probabilities, joined with the votes where
    private records were used. Votes, ``decision_function``, confidence and abstention use these
    probabilities times the expected number of votes.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 4000)
    >>> X = rng.normal(size=(4000, 5)) + 3.0 * y[:, None]
    >>> public = rng.normal(1.5, 2.0, size=(500, 5))
    >>> clf = IndKNNClassifier(["no", "yes"], epsilon=1.0, n_queries=100, n_records=4000)
    >>> labels = np.array(["no", "yes"])[y]
    >>> clf.fit(X, labels, public=public)
    IndKNNClassifier(...)
    >>> queries = [[3.0] * 5, [0.0] * 5]
    >>> print(clf.predict(queries))
    ['yes' 'no']
    >>> clf.predict_proba(queries).round(1)  # of the same rows: costs nothing
    array([[0., 1.],
           [1., 0.]])
    >>> print(clf.guarantee())
    (1, 1e-05)-differential privacy for every subject...
    >>> clf.erase([17])  # one record is erased, and its subject's budget stays spent
    1
    """

    @classmethod
    def zhu2023(
        cls,
        classes: Iterable[Any],
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_queries: int = 1000,
        *,
        tau: float,
        noise_multiplier: float,
        kernel: str = "cosine",
        bandwidth: float = float(np.exp(1.5)),
        norm_bound: float | str = "auto",
        execution: str = "sequential",
        reuse_predictions: bool = False,
        simulation_seed: int | None = None,
    ) -> Self:
        r"""Return an unfitted classifier with ZZGW23 Algorithm 3, its errors corrected.

        Records with a kernel value kappa of at least `tau` vote. Their number K = max(#selected +
        N(0, sigma1^2), 30) is released at sigma1 = sqrt(T / (6 B)), where T is `n_queries` and B
        the initial Renyi budget. Weights are min(kappa, sigma2 sqrt(2 K z)), where z is the
        subject's remaining budget; the noise has standard deviation sigma2 sqrt(K), and sigma2 is
        `noise_multiplier`. `kernel`: "cosine", or "rbf" with `bandwidth` nu. `norm_bound`: largest
        length of a feature vector ("auto": in public rows). `execution`: "sequential" or "block"
        (queries are answered and charged one by one, or in blocks). The rest: as in the class.

        Corrected against the printed texts and the authors' code:

        1. Alg. 4, line 12 mixes units (the charge is min(kappa^2 / (2 sigma2^2 K), z)), and line
           15 must sum the clipped weight, not kappa.
        2. The theorem's proof charges the count 1 / (2 sigma1^2 K); it is 1 / (2 sigma1^2).
        3. The code tests the budget before the count's charge and overspends, answers label 0
           without noise when no record is near, and with hashing turns a negative budget into a NaN
           that wins the argmax. Here all cases take the same path.
        4. The code centres features by the private mean, calibrates B by the Gaussian formula
           while the paper uses RDP (here: RDP), seeds the noise with 0, and divides the RBF's
           exponent by e^1.5 where the paper's nu = e^1.5 gives e^3 (here: the paper's nu).
        5. sigma1 = sqrt(T / (6 B)) charges 3 B / T a selection, not "half of the budget".

        With `reuse_predictions` answered queries vote from then on, with the released label, and
        count towards K: they are public, so they are not charged (ZZGW23, 3.1).
        """
        return cls(
            classes,
            epsilon,
            delta,
            n_queries,
            noise_multiplier=noise_multiplier,
            kernel=kernel,
            min_similarity=tau,
            neighbor_count="private",
            accounting="rdp",
            execution=execution,
            model_share=0,
            bandwidth=bandwidth,
            norm_bound=norm_bound,
            simulation_seed=simulation_seed,
            reuse_predictions=reuse_predictions,
        )

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Return noisy votes of queries `X` (q, d), float64 (q, c); for two classes second - first.

        Charged like :meth:`predict`; cached answers to an identical array are not charged. Raises
        PrivacyRefused with release="label": only labels are released.
        """
        self._check_votes_released("The noisy votes")
        votes = self._query_cached(X).votes
        assert votes is not None  # noqa: S101 (votes are released: just checked)
        return compute_decision_scores(votes)

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Return class probabilities of queries `X` (q, d), float64 (q, c); rows sum to 1.

        Charged like :meth:`predict`; cached answers to an identical array are not charged.
        Combines `class_prior` with the noisy votes according to their noise. Raises PrivacyRefused
        with release="label": only labels are released.
        """
        self._check_votes_released("Probabilities")
        return self.probabilities(self._query_cached(X))

    def probabilities(self, answers: QueryAnswers) -> Floats:
        """Return class probabilities, float64 (q, c), of `answers` by :meth:`query`, uncharged."""
        self._check_votes_released("Probabilities")
        assert answers.votes is not None  # noqa: S101 (votes are released: just checked)
        if answers.probabilities is not None:
            return answers.probabilities
        return self._engine.decision.compute_probabilities(answers.votes, answers.noise)

    def model_probabilities(self, X: npt.ArrayLike) -> Floats | None:
        """Return class probabilities by the private model alone, float64 (q, c); None without one.

        Never charged: the weights of the model were charged and released in training, and no record
        is read here. Rows sum to 1. `X`, array (q, d): public queries.
        """
        check_is_fitted(self)
        queries = inputs.read_features(self, X)
        if self._model is None:
            return None
        return self._model.predict(convert_to_float32(self._encoder.encode(queries)))

    def _check_votes_released(self, requested: str) -> None:
        """Raise PrivacyRefused if only labels are released; `requested` names the values refused.

        Raises sklearn.exceptions.NotFittedError before ``fit``.
        """
        check_is_fitted(self)
        if self._plan.label_only:
            raise PrivacyRefused(
                f"{requested} cannot be given with release='label': only labels are paid for. Fit "
                "with release='votes'."
            )

    def predict(self, X: npt.ArrayLike, *, abstain_below: float | None = None) -> AnyArray:
        """Return a label for every query; an identical array of queries is charged only once.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        abstain_below : float, optional
            Abstain from answers whose :meth:`confidence` (lead of the best class over the next, in
            noise standard deviations) is smaller. An abstention is -1, or None if classes are not
            integers. Not charged: it depends on noisy votes only. Refused with release="label", and
            if -1 is a class.

        Returns
        -------
        array (q,)
            Elements of ``classes_``; with `abstain_below` as int64 or objects.
        """
        check_is_fitted(self)
        if abstain_below is None:
            return np.asarray(self.classes_[self._query_cached(X).labels])
        min_confidence = checks.check_real("abstain_below", abstain_below, minimum=0)
        self._check_votes_released("Abstentions")
        integer_names = self.classes_.dtype.kind in "iu"
        if integer_names and ABSTAIN in self.classes_:
            raise InvalidInput(
                "The 'abstain_below' parameter must be None when -1 is a class, because -1 marks "
                "an abstention. Rename the class."
            )
        answers = self._query_cached(X)
        assert answers.votes is not None  # noqa: S101 (votes are released: just checked)
        labels = self.classes_[answers.labels]
        labels = labels.astype(np.int64) if integer_names else labels.astype(object)
        confidence = self.confidence(answers.votes, answers.noise)
        labels[confidence < min_confidence] = ABSTAIN if integer_names else None
        return np.asarray(labels)

    def confidence(self, votes: npt.ArrayLike, noise: npt.ArrayLike | None = None) -> Floats:
        """Return the lead of the best class over the next, (q,), in noise standard deviations.

        These are the lead's, sqrt(2) times those of a vote. Post-processing: not charged.

        Parameters
        ----------
        votes : float (q, c)
            As :meth:`query` returned them; NaN stays NaN.
        noise : float (q,), optional
            Standard deviation of the noise, as :meth:`query` returned it. Not needed if it is equal
            for all answers: with public counts, without reuse, at the planned noise. Otherwise
            InvalidInput is raised without it.
        """
        check_is_fitted(self)
        if noise is None:
            if not self._plan.has_equal_noise:
                raise InvalidInput(
                    "The noise differs from answer to answer here. Take votes and noise from "
                    "query(), and pass both."
                )
            noise = self.noise_multiplier_ * np.sqrt(
                self._plan.get_typical_count(self.n_neighbors_)
            )
        leads = np.diff(np.sort(np.asarray(votes, dtype=np.float64), axis=1)[:, -2:])[:, 0]
        return np.asarray(leads / (np.sqrt(2.0) * np.asarray(noise, dtype=np.float64)))
