"""PATE: private aggregation of the votes of teachers.

Source: Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson 2018 (P18), *Scalable private
learning with PATE*.
"""

from __future__ import annotations

from typing import Any, Self

import numpy.typing as npt

from vicinal._parameters import documented
from vicinal.baselines._pate_parameters import PATEParameters, PATESettings
from vicinal.errors import InvalidInput
from vicinal.predictors import FixedPlanClassifier


@documented
class PATEClassifier(FixedPlanClassifier[PATESettings], PATEParameters):
    r"""Asks teachers, each trained on the records of other people, and adds noise to their votes.

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
    A teacher that fails to train, or has seen one class only, votes all the same. A fitted
    classifier cannot be copied or pickled: every copy could carry out the plan.

    Examples
    --------
    >>> from vicinal import PATEClassifier
    >>> clf = PATEClassifier([0, 1, 2], n_teachers=250, sigma_votes=40.0, n_queries=100)
    >>> round(clf.guarantee().epsilon, 1)  # known before there is a record
    1.4
    """

    _plans = PATESettings
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

    def private_cost_for_curator(self, delta: float | None = None) -> dict[str, Any]:
        """Return what the answers so far cost, given the teachers' votes; **it is private**.

        Where teachers agree an answer costs little (P18, Theorem 6). How much
        they agree depends on private data, and so does this cost: it is for the curator's eyes,
        must not be published, and nothing public may be decided by it. The public cost is
        :meth:`guarantee`.

        Returns
        -------
        dict
            ``epsilon``, ``delta``, ``method`` and ``private``, which is True.

        Raises
        ------
        InvalidInput
            Before the first answer.
        """
        if not getattr(self, "n_asked_", 0):
            raise InvalidInput("The cost that depends on votes needs queries that were answered.")
        checked = self._delta(delta)
        with self._lock:
            total = self._settings.composition_at(self._release.largest, self._release.votes)
        epsilon = total.to_epsilon(checked, "rdp")
        return {"epsilon": epsilon, "delta": checked, "method": "rdp", "private": True}
