"""Private-kNN: noisy votes of the nearest of a fresh Poisson sample, for every query anew.

Source: Zhu, Yu, Chandraker & Wang 2020 (ZYCW20), *Private-kNN: Practical Differential Privacy for
Computer Vision*.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, Bools
from vicinal._parameters import documented
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.planning import priced
from vicinal.predictors._fixed_plan import FixedPlanClassifier
from vicinal.predictors._private_knn_parameters import PrivateKNNParameters, PrivateKNNSettings


@documented
class PrivateKNNClassifier(FixedPlanClassifier[PrivateKNNSettings], PrivateKNNParameters):
    r"""Labels queries by a noisy vote of the k nearest in a Poisson sample of private records.

    For every query each subject takes part by an independent coin of probability gamma, and the k
    nearest who do vote. *Screening*: the query passes if its largest vote count plus N(0,
    sigma_screen^2) reaches the threshold. Then **a fresh sample** votes, and the class with the
    most votes, with noise N(0, sigma_votes^2) on each, is the answer. All queries cost the same,
    so the whole cost is known before the first one.

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
    Corrections to the published code: samples are Poisson, never of fixed size or with
    replacement; the vote is on a sample of its own; votes are compared with the threshold as it
    is; the cost is that of the screening's own law (:mod:`vicinal.accounting._screening`); the
    tau-clipping leaves votes of 0 at 0.

    A subject with several records takes part by one coin and has one vote, by its nearest record.
    A fitted classifier cannot be copied or pickled: every copy could carry out the plan.

    Examples
    --------
    >>> from vicinal import PrivateKNNClassifier
    >>> clf = PrivateKNNClassifier(range(10), k=300, gamma=0.15, sigma_votes=25.0, n_queries=1000)
    >>> round(clf.guarantee().epsilon, 1)  # known before there is a record
    1.0
    """

    _plans = PrivateKNNSettings
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
        X : array (n, d)
            Private features, any float type, finite.
        y : array (n,)
            Private labels, each one of `classes`; with `tau` an array (n, c) of 0 and 1, one
            column for each of `classes`.
        subjects : array (n,), optional
            Integer or string id of the subject behind each record. Without it every record is a
            subject.
        public : array (m, d), optional
            Public, unlabelled points that the grid of the features is chosen by.

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
        return np.asarray(2 * answers >= self._settings.k).astype(np.int64)

    def private_cost_for_curator(self, delta: float | None = None) -> dict[str, Any]:
        """Return what the answers so far cost, given their votes; **it is private**.

        Screening costs little where the largest vote is far from the threshold. How far it was
        depends on private data, and so does this cost: it is for the curator's eyes, must not be
        published, and nothing public may be decided by it. The public cost is :meth:`guarantee`.
        Without sampling only (gamma=1): such a cost must not be amplified.

        Returns
        -------
        dict
            As of :func:`vicinal.accounting._plan.account`, with ``private`` True.

        Raises
        ------
        PrivacyRefused
            With gamma < 1.
        InvalidInput
            Without screening, or before the first answer.
        """
        settings = self._planned()
        if settings.gamma != 1:
            raise PrivacyRefused(
                "A data-dependent cost is known without sampling only: it must not be amplified. "
                "Use gamma=1, or guarantee()."
            )
        largest = self._release.largest if hasattr(self, "_release") else ()
        if settings.sigma_screen is None or not largest:
            raise InvalidInput("The cost that depends on votes needs queries that were screened.")
        plan = self.plan(delta)  # of this interaction alone, from here on
        plan["releases"] = settings.releases_at(largest, self.n_answers_)
        return priced(plan)
