"""Who answers: private records behind a mechanism, and how much of a plan they have used up.

Who takes part in the rounds beside the labeller: extractors, students, and who trains them.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.accounting.plan import Plan as PricedPlan
from vicinal.arrays import AnyArray, Floats, Floats32, Ints, Places
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.labelling.plan import LabellingPlan, Round
from vicinal.linear.private_model import SHARE
from vicinal.parameters import AUTO
from vicinal.planning.guarantees import count_draws_by_scale, guarantee_of, ind_knn_guarantee
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.predictors.inputs import OneOfSeveralFits
from vicinal.predictors.private_knn import PrivateKNNClassifier
from vicinal.predictors.reembedding import check_spent, planned_queries, resume_fit, spent_budget
from vicinal.progress import Begin
from vicinal.tabular import read_column

State = dict[str, AnyArray]
"""What a labeller must remember to go on after a kill. **As private as the records.**"""

_ROUNDS = "features change from round to round"
"""Why the labeller of several rounds has no private model."""

ABSTAINED = -1
"""Position of a class where a query was not answered."""


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Released answers to queries about public examples.

    `labels`, int64 (q,): positions of classes; `ABSTAINED` where there is no answer. `margins`,
    float64 (q,): the noisy lead of the best class, larger is surer; None where votes do not leave.
    `soft_labels`, float64 (q, c): beside a private model, where votes leave, how likely every class
    is, by both together.
    """

    labels: Ints
    margins: Floats | None
    soft_labels: Floats | None = None


class Labeller(ABC):
    """Answers about public examples at a guarantee that holds over all rounds together.

    A labeller is told features round by round; its budgets are one set. Between :meth:`ask` and
    the next call, :meth:`state` says what all answers so far have cost, and :meth:`restore` makes a
    new labeller go on from there: with the same records it must then answer, and charge, as the
    old one would have.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.labelling import IndKNNLabeller, Labeller
    >>> labeller: Labeller = IndKNNLabeller([0, 1], labels=np.array([0, 1] * 50))
    >>> labeller.digest() == IndKNNLabeller([0, 1], labels=np.array([0, 1] * 50)).digest()
    True
    """

    _labels: npt.ArrayLike
    _subjects: npt.ArrayLike | None

    @property
    @abstractmethod
    def classes(self) -> AnyArray:
        """Class names (c,), as declared."""

    @abstractmethod
    def embed(self, records: AnyArray, reference: AnyArray, part: Round) -> Floats | None:
        """Take in features of all private records (n, d) and of the public examples (m, d).

        Returns what is released with that about the public examples: how likely every class is by
        a private model, (m, c). None without one.

        Raises
        ------
        PrivacyRefused
            If all rounds of a fixed plan are over: the guarantee is for the plan.
        """

    @abstractmethod
    def label(self, queries: AnyArray) -> Answered:
        """Answer queries (q, d), of which those that fail a screening get `ABSTAINED`.

        Spends budget. Raises PrivacyRefused, before anything is asked, if so many were not planned.
        """

    @abstractmethod
    def state(self) -> State:
        """Return what has been used up. Private."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Go on from a state, before the first :meth:`embed`.

        Raises
        ------
        InvalidInput
            If the state is not one of this kind, or of this plan.
        """

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return what holds over all rounds, known before the first query."""

    def digest(self) -> str:
        """Return a digest of private labels, subjects and all parameters. Private.

        Ids count in their one form, whatever file they are of.
        """
        ids = None if self._subjects is None else checks.subject_ids("subjects", self._subjects)
        labels = np.asarray(read_column("labels", self._labels)).tolist()
        text = f"{self._parameters()!r}{labels!r}{ids!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    @abstractmethod
    def _parameters(self) -> object:
        """Return all parameters, in an order of their own."""


class IndKNNLabeller(Labeller):
    """Ind-KNN over rounds: every subject has one budget, whatever the features.

    Parameters
    ----------
    classes : sequence of int or str
        All class names.
    labels : array (n,)
        Private labels of the records, each one of `classes`.
    subjects : array (n,), optional
        Whose records they are.
    epsilon, delta : float
        The guarantee over all rounds; delta "auto" as for
        :class:`~vicinal.predictors.IndKNNClassifier`.
    release : {"votes", "label"}
        What leaves. Labels alone cost less, and come without margins to choose by.
    n_records : int, optional
        Public size of the data; without it, it is estimated once with noise.
    records_per_subject : float
        Public mean number of records of a subject, >= 1; planning alone reads it.
    model_share : float or "auto"
        The share of budgets that trains a private model beside the votes, as for
        :class:`~vicinal.predictors.IndKNNClassifier`; in a plan of one round. Where features change
        from round to round there is none. 0: none.
    simulation_seed : int, optional
        Makes noise repeatable, and the guarantee void.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.labelling import IndKNNLabeller
    >>> labeller = IndKNNLabeller(["no", "yes"], np.array(["no", "yes"] * 50), epsilon=2.0)
    >>> labeller.classes.tolist()
    ['no', 'yes']
    """

    def __init__(
        self,
        classes: Sequence[Any],
        labels: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        *,
        epsilon: float = 1.0,
        delta: float | str = AUTO,
        release: str = "votes",
        n_records: int | None = None,
        records_per_subject: float = 1.0,
        model_share: float | str = AUTO,
        simulation_seed: int | None = None,
    ) -> None:
        self._classifier = IndKNNClassifier(
            list(classes), epsilon, delta, release=release, n_records=n_records,
            records_per_subject=records_per_subject, model_share=model_share,
            simulation_seed=simulation_seed,
        )  # fmt: skip
        IndKNNPlan.of(self._classifier)  # refuses parameters before anything is asked
        self._labels, self._subjects = labels, subjects
        self._share = model_share
        self._spent: State | None = None
        self._settled: tuple[float, str] | None = None
        self._fitted = False

    @property
    def classes(self) -> AnyArray:
        return checks.class_names(self._classifier.classes)

    def embed(self, records: AnyArray, reference: AnyArray, part: Round) -> Floats | None:
        # The first time fills the budgets, or takes those of restore(). What is returned follows
        # from released weights, and costs nothing.
        training_set = records, self._labels, self._subjects, reference
        if self._fitted:
            self._spent = spent_budget(self._classifier)
        if self._spent is None:
            self._set_plan(part).fit(*training_set)
            share, why = self._classifier.model_share_, ""
            if self._share == AUTO and not share:
                why = self._classifier._settings.why_no_model or _ROUNDS
            self._settled = share, why
        else:
            plan = {"n_queries": part.queries, "share": part.share}
            resume_fit(self._classifier, *training_set, self._spent, **plan)  # type: ignore[arg-type]
        self._fitted = True
        return self._classifier.model_probabilities(reference)

    def _set_plan(self, part: Round) -> IndKNNClassifier:
        queries = planned_queries(part.queries, part.share)
        share = self._share if part.share == 1 else 0
        self._classifier.set_params(n_queries=queries, model_share=share)
        return self._classifier

    def plan(self, part: Round) -> IndKNNPlan:
        """Return the plan of a first round, before anything is asked."""
        return IndKNNPlan.of(self._set_plan(part))

    def label(self, queries: AnyArray) -> Answered:
        answers = self._classifier.query(queries)
        votes = answers.votes
        margins = None if votes is None else self._classifier.confidence(votes, answers.noise)
        return Answered(answers.labels, margins, answers.probabilities)

    def state(self) -> State:
        _, why = self._settled or (0.0, "")
        spent = spent_budget(self._classifier)
        return spent | ({"why_no_model": np.array(why)} if why else {})

    def restore(self, state: State) -> None:
        check_spent(state)
        self._spent = state
        self._settled = float(state.get("model_share", 0)), str(state.get("why_no_model", ""))

    def guarantee(self) -> Guarantee:
        settings = IndKNNPlan.of(self._classifier)
        if self._settled is not None:
            share, why = self._settled
            settings = settings.changed(model_share=share, why_no_model=why)
        elif settings.may_train():  # not known yet; what is stated covers both
            share = settings.model_share or SHARE
            settings = settings.changed(model_share=share)
        return ind_knn_guarantee(settings)

    def _parameters(self) -> object:
        own = {"n_queries": None, "model_share": self._share}
        return sorted({**self._classifier.get_params(), **own}.items())


class FeatureExtractor(Protocol):
    """Makes features of examples, each from that example and public things alone."""

    def transform(self, examples: AnyArray, /) -> AnyArray: ...


class StudentModel(FeatureExtractor, Protocol):
    """What was learnt from released answers; may be published."""

    def predict_proba(self, examples: AnyArray, /) -> AnyArray:
        """Return the probability of every class, (n, c)."""
        ...


AnyStudent = TypeVar("AnyStudent", bound=StudentModel)


class Learner(Protocol[AnyStudent]):
    """Trains students, and keeps them."""

    def learn(
        self,
        examples: AnyArray,
        rows: Places,
        labels: Places,
        number: int,
        begin: Begin,
        soft_labels: Floats32 | None,
    ) -> AnyStudent:
        """Return a student trained on answers about `rows` of public examples, for round `number`.

        `labels` are positions of classes; `soft_labels` how likely every class is for all examples,
        (m, c), where a private model has told them. Nothing else may be learnt from.
        """
        ...

    def save(self, student: AnyStudent, path: Path, guarantee: Guarantee) -> None:
        """Write a student so that a kill leaves the whole file or none."""
        ...

    def load(self, path: Path) -> AnyStudent: ...


# ---------------------------------------------------------------- all queries cost the same


class FixedPlanLabeller(Labeller):
    """A classifier whose queries all cost the same; each round has one of its own.

    The rounds' plans are priced together. Shares of budgets mean nothing here: what a round costs
    is decided by its classifier's noise and its number of queries.

    Parameters
    ----------
    make : callable
        Round to an unfitted :class:`PrivateKNNClassifier`; its number of queries is set to the
        round's. Called again, it must return an equal one.
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
    ...     return PrivateKNNClassifier([0, 1], 20, 0.5, sigma_votes=60.0)
    >>> labels = np.array([0, 1] * 500)
    >>> labeller = FixedPlanLabeller(make, default_plan(rounds=1, pool=100), labels)
    >>> labeller.epsilon() > 0
    True
    """

    def __init__(
        self,
        make: Callable[[Round], PrivateKNNClassifier],
        plan: LabellingPlan,
        labels: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
    ) -> None:
        self._make, self._plan = make, plan
        self._labels, self._subjects = labels, subjects
        self._n_asked: list[int] = []
        self._classifier: PrivateKNNClassifier | None = None
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
        return checks.class_names(self._classifiers()[0].classes)

    def embed(
        self,
        records: AnyArray,
        reference: AnyArray,  # noqa: ARG002 (the queries themselves are enough)
        part: Round,  # noqa: ARG002 (the plan is known)
    ) -> None:
        # For the next round, or for what is left of one that was cut off.
        rounds = self._plan.rounds
        if not self._n_asked or self._n_asked[-1] == rounds[len(self._n_asked) - 1].queries:
            if len(self._n_asked) == len(rounds):
                raise PrivacyRefused("All planned rounds are over.")
            self._n_asked.append(0)
        current = rounds[len(self._n_asked) - 1]
        classifier = self._make(current)
        classifier.set_params(n_queries=current.queries - self._n_asked[-1])
        self._fits.join(classifier)
        self._classifier = classifier.fit(records, self._labels, self._subjects)

    def label(self, queries: AnyArray) -> Answered:
        if self._classifier is None:
            raise InvalidInput("Records must be embedded before they are asked.")
        if self._classifier.release == "votes":
            answered = _by_votes(self._classifier.votes(queries))
        else:
            answered = Answered(self._places(self._classifier.predict(queries)), None)
        self._n_asked[-1] += len(queries)
        return answered

    def state(self) -> State:
        return {"asked": np.array(self._n_asked, dtype=np.int64)}

    def restore(self, state: State) -> None:
        counts = state.get("asked", np.array([-1])).tolist()
        most = [part.queries for part in self._plan.rounds]
        fits = len(counts) <= len(most) and counts[:-1] == most[: len(counts) - 1]
        if not fits or any(not 0 <= a <= b for a, b in zip(counts, most, strict=False)):
            raise InvalidInput("The journal does not hold the queries of this plan.")
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
        classifiers = self._classifiers()
        settings = [classifier._planned() for classifier in classifiers]
        return guarantee_of(
            self.plan(),
            count_draws_by_scale(chain.from_iterable(each.draws().items() for each in settings)),
            simulated=any(each.simulation_seed is not None for each in settings),
            public=classifiers[0]._also_public,
            assumed=classifiers[0]._also_assumed,
        )

    def _parameters(self) -> object:
        return [sorted(c.get_params().items()) for c in self._classifiers()]

    def _classifiers(self) -> list[PrivateKNNClassifier]:
        pairs = [(self._make(part), part.queries) for part in self._plan.rounds]
        return [classifier.set_params(n_queries=queries) for classifier, queries in pairs]

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
