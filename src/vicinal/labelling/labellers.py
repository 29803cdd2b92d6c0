"""Labellers answer queries from private records and keep the state of the spent budgets.

Also the interfaces of the feature extractors, student models and learners that a run needs.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.accounting.plan import Plan as PricedPlan
from vicinal.arrays import AnyArray, Floats, Floats32, Ints
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.labelling.plan import LabellingPlan, Round
from vicinal.linear.losses import subtract_second_best
from vicinal.linear.private_model import MAX_TRAINING_SHARE
from vicinal.parameters import AUTO
from vicinal.planning.guarantees import (
    count_samples_by_scale,
    create_guarantee,
    create_ind_knn_guarantee,
)
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.predictors.inputs import FitSeries
from vicinal.predictors.private_knn import PrivateKNNClassifier
from vicinal.predictors.reembedding import (
    check_budget_state,
    get_budget_state,
    resume_fit,
    scale_planned_queries,
)
from vicinal.progress import Begin
from vicinal.tabular import read_column

State = dict[str, AnyArray]
"""Arrays, by name, from which a labeller resumes after a crash. **As private as the records.**"""

_NO_MODEL_REASON = "features change from round to round"
"""The reason given in plans and guarantees why several rounds train no private model."""

_NO_MODEL_KEY = "why_no_model"  # of the reason in a state, as in that of the classifier's budgets

ABSTAINED = -1  # the class index of a query that was not answered


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Released answers to queries about public examples.

    `labels`, int64 (q,): class indices; `ABSTAINED` where there is no answer. `margins`,
    float64 (q,): the noisy lead of the best class over the second, in votes or in standard
    deviations of the noise; None where votes are not released. `soft_labels`, float64 (q, c): class
    probabilities by the private model, pooled with released votes; None unless there are both.
    """

    labels: Ints
    margins: Floats | None
    soft_labels: Floats | None = None


class Labeller(ABC):
    """Answers queries about public examples under one guarantee for all rounds together.

    :meth:`begin_round` sets the features of a round, :meth:`label` answers queries in these
    features. All rounds share one set of budgets. After each call of :meth:`label`, :meth:`state`
    returns the budgets spent so far, and :meth:`restore` gives them to a new labeller, which must
    then answer and charge queries on the same records as the old one would have.

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
    def begin_round(
        self, record_features: AnyArray, public_features: AnyArray, planned_round: Round
    ) -> Floats | None:
        """Begin a round, or resume it: fit the mechanism to the features of the private records.

        Returns the class probabilities (m, c) of the public examples by a private model; these
        probabilities are released values. None without a model. Raises PrivacyRefused if all rounds
        of a fixed plan have ended, because the guarantee covers only these.

        - `record_features` (n, d): of all private records, in the order of their labels.
        - `public_features` (m, d): of all public examples; neighbourhood radii follow from them.
        - `planned_round`: the round of the plan.
        """

    @abstractmethod
    def label(self, queries: AnyArray) -> Answers:
        """Return released answers to `queries`, features (q, d), and charge the records for them.

        The label is `ABSTAINED` for queries that fail the mechanism's noisy screening. Raises
        PrivacyRefused, before any charge, if the plan has fewer queries left than `queries`.
        """

    @abstractmethod
    def state(self) -> State:
        """Return the budgets spent to date, for :meth:`restore`. Private."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Resume from a `state` of :meth:`state`; call it before the first :meth:`begin_round`.

        Raises InvalidInput if the state belongs to another kind of labeller or to another plan.
        """

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return the guarantee of all planned rounds together, fixed before the first query."""

    def digest(self) -> str:
        """Return the SHA-256 of private labels, subjects and parameters, in hexadecimal digits.

        It is private. Subject ids are normalized first, so that the file format they come from has
        no effect. A journal of a labeller with another digest is refused.
        """
        ids = (
            None if self._subjects is None else checks.check_subject_ids("subjects", self._subjects)
        )
        labels = np.asarray(read_column("labels", self._labels)).tolist()
        text = f"{self._get_parameters()!r}{labels!r}{ids!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    @abstractmethod
    def _get_parameters(self) -> list[Any]:
        """Return all parameters that affect answers, in a fixed order, for :meth:`digest`."""


class _ModelChoice(NamedTuple):
    """Model share that the first fit chose, and the reason if "auto" chose no model, else ""."""

    share: float
    no_model_reason: str


class IndKNNLabeller(Labeller):
    """A labeller by Ind-KNN: each subject has one budget for all rounds.

    Parameters
    ----------
    classes : sequence of int or str
        All class names.
    labels : array (n,)
        Private labels of the records, each one of `classes`.
    subjects : array (n,), optional
        Subject id of each record; without it, every record is its own subject.
    epsilon, delta : float
        The guarantee over all rounds; delta "auto" as for
        :class:`~vicinal.predictors.IndKNNClassifier`.
    release : {"votes", "label"}
        The released values. Labels alone cost less, but answers then have no margins by which
        the most certain ones could be selected.
    n_records : int, optional
        Public size of the data; without it, it is estimated once with noise.
    records_per_subject : float
        Public mean number of records per subject, >= 1; used for planning only.
    model_share : float or "auto"
        The share of each budget that trains a private model beside the votes, as for
        :class:`~vicinal.predictors.IndKNNClassifier`; 0 for no model. Plans of several rounds
        train none, because their features change.
    simulation_seed : int, optional
        Seed that makes the noise repeatable, which voids the guarantee.

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
            classes,
            epsilon,
            delta,
            release=release,
            n_records=n_records,
            records_per_subject=records_per_subject,
            model_share=model_share,
            simulation_seed=simulation_seed,
        )
        IndKNNPlan.from_estimator(self._classifier)  # raises for invalid parameters
        self._labels = labels
        self._subjects = subjects
        self._model_share = model_share
        # A labeller is new, or restored from a state; begin_round() then makes it fitted. The first
        # fit of a new one gives all subjects full budgets and decides on a private model; every
        # other fit continues the budgets and the decision.
        self._restored_state: State | None = None
        self._model_choice: _ModelChoice | None = None  # None in a new labeller
        self._fitted = False

    @property
    def classes(self) -> AnyArray:
        return checks.check_class_names(self._classifier.classes)

    def begin_round(
        self, record_features: AnyArray, public_features: AnyArray, planned_round: Round
    ) -> Floats | None:
        budgets = get_budget_state(self._classifier) if self._fitted else self._restored_state
        if budgets is None:
            self._configure_classifier(planned_round)
            self._classifier.fit(record_features, self._labels, self._subjects, public_features)
            share = self._classifier.model_share_
            reason = ""
            if self._model_share == AUTO and not share:
                budgets = get_budget_state(self._classifier)
                reason = str(budgets.get(_NO_MODEL_KEY, _NO_MODEL_REASON))
            self._model_choice = _ModelChoice(share, reason)
        else:
            resume_fit(
                self._classifier,
                record_features,
                self._labels,
                self._subjects,
                public_features,
                budgets,
                n_queries=planned_round.queries,
                share=planned_round.share,
            )
        self._fitted = True
        # Computed from released model weights, so these probabilities are not charged.
        return self._classifier.model_probabilities(public_features)

    def _configure_classifier(self, first_round: Round) -> None:
        """Set the classifier's number of queries and model share to those of the whole run.

        The number is that of queries which the whole budget would pay for at the rate of
        `first_round`, the plan's first round. A private model is trained only if this round has the
        whole budget, so that features never change.
        """
        n_queries = scale_planned_queries(first_round.queries, first_round.share)
        model_share = self._model_share if first_round.share == 1 else 0
        self._classifier.set_params(n_queries=n_queries, model_share=model_share)

    def plan(self, first_round: Round) -> IndKNNPlan:
        """Return the Ind-KNN plan of a run: noise, number of neighbours and guarantee.

        `first_round`: the first round of the labelling plan; its rate of spending counts.
        """
        self._configure_classifier(first_round)
        return IndKNNPlan.from_estimator(self._classifier)

    def label(self, queries: AnyArray) -> Answers:
        """Return released answers to `queries`, features (q, d), and charge the records for them.

        The answers have margins, in standard deviations of the noise, if votes are released.
        """
        answers = self._classifier.query(queries)
        votes = answers.votes
        margins = None if votes is None else self._classifier.confidence(votes, answers.noise)
        return Answers(answers.labels, margins, answers.probabilities)

    def state(self) -> State:
        """Return the budgets spent to date, and the reason why no model was trained. Private."""
        state = get_budget_state(self._classifier)
        if self._model_choice is not None and self._model_choice.no_model_reason:
            state[_NO_MODEL_KEY] = np.array(self._model_choice.no_model_reason)
        return state

    def restore(self, state: State) -> None:
        check_budget_state(state)
        self._restored_state = state
        model_share = float(state.get("model_share", 0))
        self._model_choice = _ModelChoice(model_share, str(state.get(_NO_MODEL_KEY, "")))

    def guarantee(self) -> Guarantee:
        """Return the guarantee of all rounds, which share one budget.

        A new labeller's assumes a private model with the largest share that a fit may use.
        """
        plan = IndKNNPlan.from_estimator(self._classifier)
        if self._model_choice is not None:
            choice = self._model_choice
            plan = plan.changed(model_share=choice.share, no_model_reason=choice.no_model_reason)
        elif plan.may_train():
            # The fit decides on that. The guarantee with a model also holds without one.
            plan = plan.changed(model_share=plan.model_share or MAX_TRAINING_SHARE)
        return create_ind_knn_guarantee(plan)

    def _get_parameters(self) -> list[Any]:
        # Rounds change these two parameters of the classifier, so the constructor's values count.
        constructor_values = {"n_queries": None, "model_share": self._model_share}
        return sorted({**self._classifier.get_params(), **constructor_values}.items())


class FeatureExtractor(Protocol):
    """A feature map: each row depends on its own example and on public data alone."""

    def transform(self, examples: AnyArray, /) -> AnyArray:
        """Return features (n, d) of `examples` (n, ...)."""


class StudentModel(FeatureExtractor, Protocol):
    """A model trained on released answers, which may be published; also a feature extractor."""

    def predict_proba(self, examples: AnyArray, /) -> AnyArray:
        """Return the probability of every class, (n, c), of `examples` (n, ...)."""
        ...


class Learner(Protocol):
    """Trains student models, and reads and writes their files."""

    def learn(
        self,
        examples: AnyArray,
        rows: Ints,
        labels: Ints,
        round_index: int,
        begin: Begin,
        soft_labels: Floats32 | None,
    ) -> StudentModel:
        """Return a student trained on released answers; training may use no other data.

        `examples` (m, ...) are all public examples, `rows` (a,) the indices of those with a label,
        and `labels` (a,) their class indices. `round_index` is from 0. `begin` starts a progress
        display from a name and a number of steps. `soft_labels` (m, c) are class probabilities of
        all examples; None without a private model.
        """
        ...

    def save(self, student: Any, path: Path, guarantee: Guarantee) -> None:
        """Write a student of :meth:`learn` and its guarantee; a crash leaves no incomplete file."""
        ...

    def load(self, path: Path) -> StudentModel:
        """Return the student that :meth:`save` wrote to `path`."""


class PrivateKNNLabeller(Labeller):
    """A labeller by Private-kNN: all queries of a round cost the same, for every subject.

    Each round has its own classifier, whose noise and number of queries decide the round's cost.
    The guarantee composes the costs of all rounds; ``Round.share`` has no effect here. Raises
    InvalidInput if a classifier limits its answers (n_answers), has an epsilon of its own, or has
    `interactions` other than 1.

    Parameters
    ----------
    make_classifier : callable
        Function from a :class:`Round` to its unfitted :class:`PrivateKNNClassifier`, whose number
        of queries is then set to the round's. Equal rounds must give equal classifiers.
    plan : LabellingPlan
        All rounds of the run.
    labels : array (n,)
        Private labels of the records.
    subjects : array (n,), optional
        Subject id of each record; without it, every record is its own subject.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import PrivateKNNClassifier
    >>> from vicinal.labelling import PrivateKNNLabeller, default_plan
    >>> def make_classifier(planned_round):
    ...     return PrivateKNNClassifier([0, 1], 20, 0.5, sigma_votes=60.0)
    >>> labels = np.array([0, 1] * 500)
    >>> labeller = PrivateKNNLabeller(make_classifier, default_plan(1, pool=100), labels)
    >>> labeller.epsilon() > 0
    True
    """

    def __init__(
        self,
        make_classifier: Callable[[Round], PrivateKNNClassifier],
        plan: LabellingPlan,
        labels: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
    ) -> None:
        self._make_classifier = make_classifier
        self._plan = plan
        self._labels = labels
        self._subjects = subjects
        # The number of queries answered in each round that has begun.
        self._n_answered: list[int] = []
        self._classifier: PrivateKNNClassifier | None = None
        self._fits = FitSeries()
        for classifier in self._make_classifiers():
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
        return checks.check_class_names(self._make_classifiers()[0].classes)

    def begin_round(
        self,
        record_features: AnyArray,
        public_features: AnyArray,  # noqa: ARG002
        planned_round: Round,  # noqa: ARG002
    ) -> None:
        """Begin the next round of the plan, or resume an incomplete one; there is no model.

        Fits the round's classifier to `record_features` (n, d). `public_features` are not needed,
        nor is `planned_round`: the number of answered queries determines the round.
        """
        rounds = self._plan.rounds
        n_begun = len(self._n_answered)
        if not n_begun or self._n_answered[-1] == rounds[n_begun - 1].queries:
            if n_begun == len(rounds):
                raise PrivacyRefused("All planned rounds are over.")
            self._n_answered.append(0)
        current_round = rounds[len(self._n_answered) - 1]
        classifier = self._make_classifier(current_round)
        classifier.set_params(n_queries=current_round.queries - self._n_answered[-1])
        self._fits.join(classifier)  # the fits of all rounds are one interaction
        self._classifier = classifier.fit(record_features, self._labels, self._subjects)

    def label(self, queries: AnyArray) -> Answers:
        """Return released answers to `queries`, features (q, d), and count them as answered.

        The answers have margins, in votes, if votes are released.
        """
        if self._classifier is None:
            raise InvalidInput("Call begin_round() before label().")
        if self._classifier.release == "votes":
            answers = _select_best_classes(self._classifier.votes(queries))
        else:
            index_of = {name: index for index, name in enumerate(self.classes.tolist())}
            names = self._classifier.predict(queries).tolist()  # -1 or None without an answer
            labels = [index_of.get(name, ABSTAINED) for name in names]
            answers = Answers(np.array(labels, dtype=np.int64), None)
        self._n_answered[-1] += len(queries)
        return answers

    def state(self) -> State:
        """Return the array "asked": the number of queries answered in each begun round, int64."""
        return {"asked": np.array(self._n_answered, dtype=np.int64)}

    def restore(self, state: State) -> None:
        n_answered = state.get("asked", np.array([-1])).tolist()
        n_planned = [planned.queries for planned in self._plan.rounds]
        n_complete = len(n_answered) - 1  # every round before the last begun one is complete
        matches = len(n_answered) <= len(n_planned) and n_answered[:-1] == n_planned[:n_complete]
        counts = zip(n_answered, n_planned, strict=False)
        if not matches or any(not 0 <= answered <= planned for answered, planned in counts):
            raise InvalidInput("The journal does not hold the queries of this plan.")
        self._n_answered = n_answered
        self._fits = FitSeries(resumed=True)

    def plan(self) -> dict[str, Any]:
        """Return the releases of all rounds as the JSON that ``vicinal account`` reads."""
        plans = [classifier.plan() for classifier in self._make_classifiers()]
        releases = list(chain.from_iterable(plan["releases"] for plan in plans))
        return {**plans[0], "releases": releases}

    def epsilon(self) -> float:
        """Return the epsilon of all rounds together, also for simulated noise.

        A :meth:`guarantee` has the same epsilon, but is void if noise is simulated.
        """
        plan = PricedPlan.from_dict(self.plan())
        return plan.composition().compute_min_epsilon(plan.delta)

    def guarantee(self) -> Guarantee:
        classifiers = self._make_classifiers()
        plans = [classifier._get_plan() for classifier in classifiers]
        return create_guarantee(
            self.plan(),
            count_samples_by_scale(
                chain.from_iterable(plan.count_noise_samples().items() for plan in plans)
            ),
            simulated=any(plan.simulation_seed is not None for plan in plans),
            public=classifiers[0]._additional_public_facts,
            assumed=classifiers[0]._additional_assumptions,
        )

    def _get_parameters(self) -> list[Any]:
        return [sorted(c.get_params().items()) for c in self._make_classifiers()]

    def _make_classifiers(self) -> list[PrivateKNNClassifier]:
        """Return the unfitted classifier of each round, with the round's number of queries."""
        return [
            self._make_classifier(planned).set_params(n_queries=planned.queries)
            for planned in self._plan.rounds
        ]


def _select_best_classes(votes: Floats) -> Answers:
    """Return the best class and its margin, in votes, for each row of noisy `votes` (q, c).

    Rows of NaN are queries that failed the screening; they get `ABSTAINED` and a margin of -inf.
    """
    answered = ~np.isnan(votes).any(axis=1)
    labels = np.full(len(votes), ABSTAINED, dtype=np.int64)
    margins = np.full(len(votes), -np.inf)
    labels[answered] = votes[answered].argmax(axis=1)
    margins[answered] = subtract_second_best(votes[answered])
    return Answers(labels, margins)
