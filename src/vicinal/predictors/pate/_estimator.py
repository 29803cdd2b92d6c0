"""PATE: private aggregation of the votes of teachers.

Sources: Papernot, Abadi, Erlingsson, Goodfellow & Talwar 2017 (P17); Papernot, Song, Mironov,
Raghunathan, Talwar & Erlingsson 2018 (P18), *Scalable private learning with PATE*.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy.typing as npt

from vicinal import _checks
from vicinal.accounting._composition import Composition
from vicinal.accounting._guarantee import Guarantee
from vicinal.accounting._plan import Plan as CheckedPlan
from vicinal.errors import InvalidInput
from vicinal.predictors._common.fixed_plan import FixedPlanClassifier
from vicinal.predictors._common.plan_guarantee import METHODS
from vicinal.predictors.pate._parameters import PATESettings


@dataclass(eq=False, repr=False)
class PATEClassifier(FixedPlanClassifier[PATESettings]):
    r"""Asks teachers, each trained on the records of other people, and adds noise to their votes.

    Every subject has one teacher, drawn at random. Removing a subject changes one teacher, and so
    at most one vote in a query. All queries cost the same, so the whole cost is known before the
    first one.

    Parameters
    ----------
    classes : sequence of int or str
        All class names. Public, and an input.
    n_teachers : int
        How many teachers there are.
    sigma_votes : float or "auto"
        Scale of the Gaussian noise on the votes of every class (gnmax, confident_gnmax). "auto":
        the least that keeps `epsilon` over the whole plan; 40 without an `epsilon`.
    mechanism : {"gnmax", "lnmax", "confident_gnmax"}
        Gaussian noise on the votes; Laplace noise; Gaussian noise, on those queries only whose
        largest vote count, with noise of scale `sigma_screen`, reaches `threshold`.
    teacher : scikit-learn classifier, optional
        What every teacher is a clone of; logistic regression, if left out. It must read nothing
        but its arguments and its ``random_state``.
    scale : float or "auto"
        Scale of the Laplace noise (lnmax). "auto": the least that keeps `epsilon` over the whole
        plan; 20 without an `epsilon`.
    sigma_screen, threshold : float, optional
        Noise scale and threshold of the screening, in votes (confident_gnmax).
    epsilon : float, optional
        The guarantee for a subject at `delta` over the whole plan, instead of `sigma_votes` or
        `scale`.
    n_queries : int
        How many queries are planned. More are refused.
    n_answers : int, optional
        How many of them may pass the screening and be answered; all, if left out.
    delta : float
        At which :meth:`guarantee` states the cost, unless told otherwise.
    release : {"votes", "label"}
        What leaves; always the label alone with lnmax.
    smooth_cost : tuple of float (order, beta, sigma), optional
        Plans for publishing once what the answers cost given the votes, see
        :meth:`publish_cost`; gnmax with release="label" only.
    interactions : int or "public"
        How many interactions with the same subjects, each carrying out this same plan, the
        guarantee covers together. A further one is refused. "public": the records need no
        protection, nothing is counted, and the guarantee is void.
    simulation_seed : int, optional
        Makes noise and teachers repeatable for experiments, and the guarantee void.

    Attributes
    ----------
    classes_ : ndarray (c,)
        Class names as declared.
    n_features_in_ : int
        Number of features.
    vote_noise_ : float
        `sigma_votes`, or `scale` with lnmax, as planned; public.
    n_asked_, n_answers_ : int
        Queries asked, and answered, since ``fit``.

    Notes
    -----
    A teacher that fails to train, or has seen one class only, votes all the same. A fitted
    classifier cannot be copied or pickled: every copy could carry out the plan.
    """

    _plans = PATESettings
    _how_votes_leave = "mechanism='gnmax' or 'confident_gnmax', and release='votes'"
    _also_assumed = (
        "a teacher's training and predictions read nothing but their arguments and random_state",
    )

    classes: Iterable[Any]
    n_teachers: int = 250
    sigma_votes: float | str = "auto"
    _: KW_ONLY
    mechanism: str = "gnmax"
    teacher: Any = None
    scale: float | str = "auto"
    sigma_screen: float | None = None
    threshold: float | None = None
    epsilon: float | None = None
    n_queries: int = 1000
    n_answers: int | None = None
    delta: float = 1e-5
    release: str = "votes"
    smooth_cost: tuple[float, float, float] | None = None
    interactions: int | str = 1
    simulation_seed: int | None = None

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

    def predict(
        self, X: npt.ArrayLike, *, progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[Any]:
        """Return labels, (q,); -1, or None with string classes, where the screening fails.

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
        best = answers if self._settings.label_only else answers.argmax(axis=1)
        return self._named(best, passed)

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee of the whole plan, known before the first query.

        As for every plan, its epsilon is what ``vicinal account`` says of :meth:`plan`; with
        `smooth_cost`, publishing the cost is part of it, which no plan's JSON can state.
        """
        stated = super().guarantee(delta)
        published = self._planned().publication()
        if published is None or not stated.holds:
            return stated
        plan = CheckedPlan.from_dict(self.plan(delta)).composition()
        total = plan.add(Composition.of(published.term, self._planned().interactions))
        epsilon = total.to_epsilon(self.plan(delta)["delta"], "rdp")
        return dataclasses.replace(stated, epsilon=epsilon, method=METHODS["rdp"])

    def publish_cost(self, delta: float | None = None) -> dict[str, float]:
        """Publish, once, what the labels given so far cost, with noise of smooth sensitivity.

        The estimate is public: its own price is part of :meth:`guarantee`. It is an estimate:
        the noise may put it below the true cost, and how large the noise was stays private.

        Returns
        -------
        dict
            ``order``; ``cost``, the noisy sum of Renyi divergences at this order; ``publishing``,
            what publishing costs at it; ``epsilon`` of both at ``delta``.

        Raises
        ------
        InvalidInput
            If `smooth_cost` was not planned, or before the first answer.
        PrivacyRefused
            The second time.
        """
        given = _checks.real("delta", self.delta if delta is None else delta, above=0, below=1)
        if self._planned().smooth_cost is None or not getattr(self, "n_answers_", 0):
            raise InvalidInput(
                "The cost can be published after answers were given by a classifier with "
                "'smooth_cost'."
            )
        with self._turn:
            published: dict[str, float] = self._release.publish_cost(given)
        return published

    def private_cost_for_curator(self, delta: float | None = None) -> dict[str, Any]:
        """Return what the answers so far cost, given the teachers' votes; **it is private**.

        Where teachers agree an answer costs little (P17, Theorem 3; P18, Theorem 6). How much
        they agree depends on private data, and so does this cost: it is for the curator's eyes,
        must not be published, and nothing public may be decided by it. The public cost is
        :meth:`guarantee`; :meth:`publish_cost` publishes an estimate.

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
        given = _checks.real("delta", self.delta if delta is None else delta, above=0, below=1)
        with self._turn:
            total = self._settings.composition_at(self._release.largest, self._release.votes)
        epsilon = total.to_epsilon(given, "rdp")
        return {"epsilon": epsilon, "delta": given, "method": "rdp", "private": True}
