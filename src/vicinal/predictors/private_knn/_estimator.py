"""Private-kNN: noisy votes of the nearest of a fresh Poisson sample, for every query anew.

Source: Zhu, Yu, Chandraker & Wang 2020 (ZYCW20), *Private-kNN: Practical Differential Privacy for
Computer Vision*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.predictors._common.fixed_plan import FixedPlanClassifier
from vicinal.predictors._common.plan_guarantee import priced
from vicinal.predictors.private_knn._parameters import PrivateKNNSettings


@dataclass(eq=False, repr=False)
class PrivateKNNClassifier(FixedPlanClassifier[PrivateKNNSettings]):
    r"""Labels queries by a noisy vote of the k nearest in a Poisson sample of private records.

    For every query each subject takes part by an independent coin of probability gamma, and the k
    nearest who do vote. *Screening*: the query passes if its largest vote count plus N(0,
    sigma_screen^2) reaches the threshold. Then **a fresh sample** votes, and the class with the
    most votes, with noise N(0, sigma_votes^2) on each, is the answer. All queries cost the same,
    so the whole cost is known before the first one.

    Parameters
    ----------
    classes : sequence of int or str
        All class names (or attributes, with `tau`). Public, and an input.
    k : int
        How many of the nearest vote.
    gamma : float
        The probability with which each subject takes part in a sample, 0 < gamma <= 1.
    sigma_screen, threshold : float, optional
        Noise scale and threshold of the screening, in votes. None, both, for no screening.
    sigma_votes : float or "auto"
        Noise scale on the votes of every class. "auto": the least that keeps `epsilon` over the
        whole plan; 25 without an `epsilon`.
    tau : float, optional
        For records with several labels (attributes): the votes of a record together count at most
        `tau` (the tau-approximation). Without screening only.
    epsilon : float, optional
        The guarantee for a subject at `delta` over the whole plan, instead of `sigma_votes`.
    n_queries : int
        How many queries are planned. More are refused, for the cost is stated for the plan.
    n_answers : int, optional
        How many of them may pass the screening and be answered; all, if left out. Once so many
        answers are given, no other query is screened or answered.
    delta : float
        At which :meth:`guarantee` states the cost, unless told otherwise.
    release : {"votes", "label"}
        What leaves: noisy votes, or the label alone, which costs less in Renyi DP.
    norm_bound : float or "auto"
        The longest feature vector that distances are exact for; longer ones are pulled back to
        this length. "auto" takes it from the public reference of `fit`, else from the first
        queries asked, which are public, too.
    precision : {"auto", "int8", "float32"}
        Grid of the features; "auto" is the fast int8 from 64 features on. Distances are exact
        integers on either.
    interactions : int or "public"
        How many interactions with the same subjects, each carrying out this same plan, the
        guarantee covers together. A further one is refused. "public": the records need no
        protection, nothing is counted, and the guarantee is void.
    simulation_seed : int, optional
        Makes noise and samples repeatable for experiments, and the guarantee void.

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
    """

    _plans = PrivateKNNSettings
    _also_public = ("the public rows that the grid of features is chosen by",)

    classes: Iterable[Any]
    k: int = 300
    gamma: float = 0.15
    sigma_screen: float | None = None
    threshold: float | None = None
    sigma_votes: float | str = "auto"
    tau: float | None = None
    _: KW_ONLY
    epsilon: float | None = None
    n_queries: int = 1000
    n_answers: int | None = None
    delta: float = 1e-5
    release: str = "votes"
    norm_bound: float | str = "auto"
    precision: str = "auto"
    interactions: int | str = 1
    simulation_seed: int | None = None

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

    def predict(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[Any]:
        """Return labels, (q,), or 0 and 1 for every attribute, int64 (q, c), with `tau`.

        A query that does not pass the screening is answered -1, or None with string classes.
        An attribute is there if its noisy votes reach half of k.

        Parameters
        ----------
        X : array (q, d)
            Queries. They are public.
        progress : callable, optional
            Called with the number of queries just done.

        Raises
        ------
        PrivacyRefused
            Before anything is asked, if so many queries were not planned.
        """
        passed, answers = self._answers(X, progress)
        if self._settings.tau is not None:
            return np.asarray(2 * answers >= self._settings.k).astype(np.int64)
        return self._named(answers if self._settings.label_only else answers.argmax(axis=1), passed)

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
