"""Private-kNN and PATE over rounds: every question costs the same, and the plans add up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, Floats, Ints
from vicinal.accounting import Guarantee
from vicinal.accounting import Plan as PricedPlan
from vicinal.baselines import PATEClassifier
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.labelling._labellers import ABSTAINED, Answered, State, digest_of
from vicinal.labelling._plan import LabellingPlan, Round
from vicinal.planning import guarantee_of, summed
from vicinal.predictors import OneOfSeveralFits, PrivateKNNClassifier

Planned = PrivateKNNClassifier | PATEClassifier


class FixedPlanLabeller:
    """A classifier whose questions all cost the same; each round has one of its own.

    The rounds' plans are priced together. Shares of budgets mean nothing here: what a round costs
    is decided by its classifier's noise and its number of questions.

    Parameters
    ----------
    make : callable
        Round to an unfitted :class:`PrivateKNNClassifier` or :class:`PATEClassifier`; its number
        of queries is set to the round's. Called again, it must return an equal one.
    plan : LabellingPlan
        All rounds; the plan that is carried out.
    labels : array (n,)
        Private labels of the records.
    subjects : array (n,), optional
        Whose records they are.

    Raises
    ------
    InvalidInput
        If a classifier limits its answers (n_answers): a limit would have to be carried over kills;
        or has an epsilon of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import PrivateKNNClassifier
    >>> from vicinal.labelling import FixedPlanLabeller, default_plan
    >>> def make(part):
    ...     return PrivateKNNClassifier(classes=[0, 1], k=20, sigma_votes=60.0, gamma=0.5)
    >>> labels = np.array([0, 1] * 500)
    >>> labeller = FixedPlanLabeller(make, default_plan(rounds=1, pool=100), labels)
    >>> labeller.epsilon() > 0
    True
    """

    def __init__(
        self,
        make: Callable[[Round], Planned],
        plan: LabellingPlan,
        labels: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
    ) -> None:
        self._make, self._plan = make, plan
        self._labels, self._subjects = labels, subjects
        self._n_asked: list[int] = []
        self._classifier: Planned | None = None
        self._fits = OneOfSeveralFits()
        for classifier in self._classifiers():
            if classifier.n_answers is not None:
                raise InvalidInput("The 'n_answers' parameter must be None in rounds.")
            if classifier.epsilon is not None:
                raise InvalidInput(
                    "The 'epsilon' parameter must be None in rounds, which are priced together. "
                    "Give the noise."
                )
            if classifier.interactions != 1:
                raise InvalidInput("The 'interactions' parameter must be 1 in rounds.")

    @property
    def classes(self) -> AnyArray:
        """Class names (c,), as declared."""
        return np.asarray(list(self._classifiers()[0].classes))

    def embed(
        self,
        records: AnyArray,
        reference: AnyArray,  # noqa: ARG002 (the queries themselves are enough)
        part: Round,  # noqa: ARG002 (the plan is known)
    ) -> None:
        """Take in features for the next round, or for what is left of one that was cut off.

        Returns None: nothing is known of the public examples before they are asked about.

        Raises
        ------
        PrivacyRefused
            If all rounds are over: the guarantee is for the plan.
        """
        rounds = self._plan.rounds
        if not self._n_asked or self._n_asked[-1] == rounds[len(self._n_asked) - 1].questions:
            if len(self._n_asked) == len(rounds):
                raise PrivacyRefused("All planned rounds are over.")
            self._n_asked.append(0)
        current = rounds[len(self._n_asked) - 1]
        classifier = self._make(current)
        classifier.set_params(n_queries=current.questions - self._n_asked[-1])
        self._fits.join(classifier)
        self._classifier = classifier.fit(records, self._labels, self._subjects)

    def label(self, queries: AnyArray) -> Answered:
        """Answer queries (q, d), of which those that fail a screening get `ABSTAINED`.

        Raises
        ------
        PrivacyRefused
            Before anything is asked, if so many were not planned.
        """
        if self._classifier is None:
            raise InvalidInput("Records must be embedded before they are asked.")
        if self._classifier.release == "votes":
            answered = _by_votes(self._classifier.decision_function(queries))
        else:
            answered = Answered(self._places(self._classifier.predict(queries)), None)
        self._n_asked[-1] += len(queries)
        return answered

    def state(self) -> State:
        """Return how many questions each round has asked."""
        return {"asked": np.array(self._n_asked, dtype=np.int64)}

    def restore(self, state: State) -> None:
        """Go on from a state, before the first :meth:`embed`.

        Raises
        ------
        InvalidInput
            If the state is not one of this plan.
        """
        counts = state.get("asked", np.array([-1])).tolist()
        most = [part.questions for part in self._plan.rounds]
        fits = len(counts) <= len(most) and counts[:-1] == most[: len(counts) - 1]
        if not fits or any(not 0 <= a <= b for a, b in zip(counts, most, strict=False)):
            raise InvalidInput("The journal does not hold the questions of this plan.")
        self._n_asked = counts
        self._fits = OneOfSeveralFits(resumed=True)

    def plan(self) -> dict[str, Any]:
        """Return the releases of all rounds as the JSON that ``vicinal account`` reads."""
        plans = [classifier.plan() for classifier in self._classifiers()]
        releases = list(chain.from_iterable(plan["releases"] for plan in plans))
        return {**plans[0], "releases": releases}

    def epsilon(self) -> float:
        """Return what all rounds cost, as :meth:`guarantee` does, also in a simulation."""
        plan = PricedPlan.from_dict(self.plan())
        return plan.composition().least_epsilon(plan.delta)

    def guarantee(self) -> Guarantee:
        """Return the guarantee of all rounds together, known before the first question."""
        classifiers = self._classifiers()
        settings = [classifier._planned() for classifier in classifiers]
        return guarantee_of(
            self.plan(),
            summed(chain.from_iterable(each.draws().items() for each in settings)),
            simulated=any(each.simulation_seed is not None for each in settings),
            public=classifiers[0]._also_public,
            assumed=classifiers[0]._also_assumed,
        )

    def digest(self) -> str:
        """Return a digest of labels, subjects and parameters. Private."""
        parameters = [sorted(c.get_params().items()) for c in self._classifiers()]
        return digest_of(parameters, self._labels, self._subjects)

    def _classifiers(self) -> list[Planned]:
        pairs = [(self._make(part), part.questions) for part in self._plan.rounds]
        return [classifier.set_params(n_queries=questions) for classifier, questions in pairs]

    def _places(self, names: AnyArray) -> Ints:
        place_of = {name: place for place, name in enumerate(self.classes.tolist())}
        return np.array([place_of.get(name, ABSTAINED) for name in names.tolist()], dtype=np.int64)


def _by_votes(votes: Floats) -> Answered:
    """Return best classes and their leads; rows of NaN were not answered."""
    answered = ~np.isnan(votes).any(axis=1)
    labels = np.full(len(votes), ABSTAINED, dtype=np.int64)
    margins = np.full(len(votes), -np.inf)
    labels[answered] = votes[answered].argmax(axis=1)
    top = np.partition(votes[answered], -2, axis=1)[:, -2:]
    margins[answered] = top[:, 1] - top[:, 0]
    return Answered(labels, margins)
