"""One set of budgets, several sets of features: re-embedding, and going on after a kill.

A student trained on released answers is public, and so is the map that it makes of raw records. A
record's next features are therefore a function of that record and of the transcript, which is all
that the individual filter asks (ZZGW23, Algorithm 3; Feldman & Zrnic 2021): contributions go on
depending on a record, its own remaining budget and public things. What must not happen is that a
budget is refilled on the way. Here every subject keeps its slot in the one ledger; the index, the
radius and the noise are planned anew, from public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal import _checks
from vicinal._arrays import FloatMatrix, Floats, Ints
from vicinal.accounting import UNITS
from vicinal.engine import Shard
from vicinal.errors import InvalidInput
from vicinal.ledger import MemoryLedger
from vicinal.linear import KernelMap, LinearModel, ModelFeatures, PrivateModel, metric_kernel
from vicinal.mechanisms import NoisyVotes
from vicinal.neighbours import Cosine
from vicinal.planning import (
    IndKNNPlan,
    engine_on,
    kernel_for,
    numbers,
    slack_meter,
)
from vicinal.predictors import _inputs as inputs
from vicinal.predictors._ind_knn import IndKNNClassifier
from vicinal.targets import labels


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A private model as it outlives the process: what its training has paid for. Public.

    - `share`: the share of budgets that it was trained with.
    - `weights`, float64 (d + 1, c): its weights.
    - `used`, float64 (m,): the share that each public row would have paid, were it a record.
    - `n_asked`: queries that it has put to the vote.
    - `kernel`: part of its features.
    """

    share: float
    weights: Floats
    used: Floats
    n_asked: int
    kernel: KernelMap | None

    @classmethod
    def of(cls, classifier: IndKNNClassifier) -> TrainedModel | None:
        gate = classifier._engine.model_gate
        if gate is None:
            return None
        model = gate.model
        share, weights = classifier.model_share_, model.model.weights
        return cls(share, weights, model.used, gate.n_asked, model.model.features.kernel)

    def on(self, public: FloatMatrix, settings: IndKNNPlan, *, lifted: bool) -> PrivateModel:
        """Return the model itself, on the encoded public rows that it was trained beside.

        Raises InvalidInput if they are other rows.
        """
        if self.kernel is not None and self.kernel.n_features != public.shape[1]:
            raise InvalidInput("The model to go on with must be of the same public rows.")
        features = ModelFeatures.of(public, self.kernel, lifted=lifted)
        if len(public) != len(self.used) or len(self.weights) != features.width:
            raise InvalidInput("The model to go on with must be of the same public rows.")
        model = LinearModel(self.weights, features)
        return PrivateModel(model, public, self.used, settings.class_shares)


@dataclass(frozen=True, slots=True, eq=False)
class SpentBudget:
    """What an interaction has used up, which is as private as the records.

    - `remaining`, int64 (s,): units that every subject has left, in the order of their first
      records.
    - `slack`: delta that the grid has used up.
    - `answers`: answers given.
    - `n_records`: the public size, as declared or as estimated once with noise.
    - `model`: the private model in these features, if one was trained.
    - `why_no_model`: why "auto" trained none; "" otherwise.
    """

    remaining: Ints
    slack: float
    answers: int
    n_records: int
    model: TrainedModel | None = None
    why_no_model: str = ""

    def __post_init__(self) -> None:
        units = self.remaining
        sound = units.ndim == 1 and units.dtype == np.int64
        if not sound or (units < 0).any() or (units > UNITS).any():
            raise InvalidInput("The 'remaining' budgets must be int64 units between none and all.")
        _checks.real("slack", self.slack, least=0)
        _checks.integer("answers", self.answers, least=0)
        _checks.integer("n_records", self.n_records, least=1)


def planned_queries(n_queries: int, share: float) -> int:
    """Return how many queries a whole budget would last for at this rate, rounded up.

    Planning goes by queries over budget: n queries from a share of all budgets get the noise and
    the neighbours that n / share queries get from whole budgets.
    """
    n_queries = _checks.integer("n_queries", n_queries, least=1)
    return math.ceil(n_queries / _checks.real("share", share, above=0, most=1))


def spent_budget(classifier: IndKNNClassifier) -> SpentBudget:
    """Return what `classifier` has used up; for the curator, to go on from after a kill. Private.

    Raises sklearn.exceptions.NotFittedError if it was not fitted.
    """
    check_is_fitted(classifier)
    with classifier._engine.lock:
        return SpentBudget(
            classifier._shard.ledger.remaining.copy(),
            _slack_of(classifier),
            classifier.n_answers_,
            classifier.n_records_,
            TrainedModel.of(classifier),
            classifier._settings.why_no_model,
        )


def reembed(
    classifier: IndKNNClassifier,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    subjects: npt.ArrayLike | None = None,
    public: npt.ArrayLike | None = None,
    *,
    n_queries: int,
    share: float = 1.0,
) -> None:
    """Give the records of a fitted classifier other features; every subject keeps its budget.

    - `classifier`: fitted; changed in place. Parameters set since ``fit`` have no effect.
    - `X`, array (n, d): new features of all records, made record by record by a public map.
    - `y`, `subjects`, array (n,): as given to ``fit``, and with `subjects` exactly if they were
      given there. A known subject keeps what it has left; one that is new starts with a full
      budget.
    - `public`, array (m, d): the public reference in the new features.
    - `n_queries`: how many more queries to plan for.
    - `share`: from which share of full budgets; shares of all rounds should come to 1.

    Raises InvalidInput before anything is changed. Without `subjects` the records must be those of
    ``fit``, in that order, with none erased.
    """
    check_is_fitted(classifier)
    before = classifier._engine
    with before.lock, inputs.unchanged_if_refused(classifier):
        planned = classifier._settings
        settings = _settings(classifier, planned, n_queries, share)
        inputs.OneOfSeveralFits(interaction=classifier._interaction).join(classifier)
        settings = _another_seed(settings, classifier.n_answers_)
        ledger = classifier._shard.ledger
        if not isinstance(ledger, MemoryLedger):
            raise InvalidInput("The classifier must hold its budgets in memory. Got a store.")
        inputs.check_subjects_given(subjects is not None, before=classifier._subjects_given)
        if subjects is None and not _as_at_fit(classifier, np.shape(X)[0], y):
            raise InvalidInput(
                "The records must be those of fit, in that order and with their labels, where no "
                "'subjects' are given. Give subjects to fit and here if records come and go."
            )
        _embed(classifier, settings, ledger, (X, y, subjects, public), _slack_of(classifier))
        classifier._engine = replace(classifier._engine, lock=before.lock)
        _plan_on(classifier, planned, settings.n_queries)


def resume(
    classifier: IndKNNClassifier,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    subjects: npt.ArrayLike | None,
    public: npt.ArrayLike | None,
    spent: SpentBudget,
    *,
    n_queries: int,
    share: float = 1.0,
) -> None:
    """Fit `classifier` with the budgets that an earlier process left, instead of new ones.

    Arguments as of :func:`reembed`; the records must be those of the earlier process, in the
    same order, and `spent` what :func:`spent_budget` returned there last.

    Raises InvalidInput before anything is changed; also if `spent` is about another number of
    subjects.
    """
    with inputs.unchanged_if_refused(classifier):
        inputs.OneOfSeveralFits(resumed=True).join(classifier)
        settings = _settings(classifier, IndKNNPlan.of(classifier), n_queries, share)
        settings = settings.changed(n_records=spent.n_records, why_no_model=spent.why_no_model)
        if spent.model is not None:
            settings = settings.changed(model_share=spent.model.share)
        settings = _another_seed(settings, spent.answers)
        ledger = MemoryLedger()
        rows = len(np.asarray(y)) if subjects is None else 0
        ids = (
            list(range(rows))
            if subjects is None
            else inputs.checked_subjects(subjects, np.shape(X)[0])
        )
        ledger.enroll(ids)
        if ledger.remaining.shape != spent.remaining.shape:
            raise InvalidInput("The budgets to go on with must be those of the same records.")
        ledger.remaining[:] = spent.remaining
        classifier.n_answers_ = spent.answers
        arrays = (X, y, subjects, public)
        _embed(classifier, settings, ledger, arrays, spent.slack, spent.model)
        planned = IndKNNPlan.of(classifier).changed(
            model_share=settings.model_share, why_no_model=spent.why_no_model
        )
        _plan_on(classifier, planned, settings.n_queries)


def _settings(
    classifier: IndKNNClassifier, settings: IndKNNPlan, n_queries: int, share: float
) -> IndKNNPlan:
    """Return settings that plan for a round; the size is not estimated again."""
    known = getattr(classifier, "n_records_", settings.n_records)
    # A model belongs to the features that it was trained in: other features have none.
    return settings.changed(
        n_queries=planned_queries(n_queries, share), n_records=known, model_share=0.0
    )


def _another_seed(settings: IndKNNPlan, answers: int) -> IndKNNPlan:
    """Return settings whose simulated noise does not repeat that of `answers` answers."""
    if settings.simulation_seed is None:
        return settings
    return settings.changed(simulation_seed=settings.simulation_seed + answers + 1)


def _plan_on(classifier: IndKNNClassifier, settings: IndKNNPlan, n_queries: int) -> None:
    """Let the classifier warn once it has answered so many more."""
    planned = classifier.n_answers_ + n_queries
    classifier._settings = settings.changed(n_queries=planned)
    if classifier._planned_answers is not None:
        classifier._planned_answers = planned


def _as_at_fit(classifier: IndKNNClassifier, rows: int, y: npt.ArrayLike) -> bool:
    """Tell whether records without subject ids are those of fit, as far as can be seen."""
    shard = classifier._engine.shard
    if not isinstance(shard, Shard) or not classifier._next_number == rows == len(shard):
        return False
    carried = labels(y, rows, classifier.classes_)
    return bool((carried == shard.subject_table.labels).all())


def _embed(
    classifier: IndKNNClassifier,
    settings: IndKNNPlan,
    ledger: MemoryLedger,
    arrays: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike | None, npt.ArrayLike | None],
    slack: float,
    trained: TrainedModel | None = None,
) -> None:
    """Put records with their features, on the budgets of `ledger`, behind the classifier.

    Beside a model that was trained before, features are those that the model makes of them.
    """
    X, y, subjects, public = arrays
    records = inputs.records(classifier, X, subjects, public)
    targets = settings.target.encode(y, len(records))
    claimed = inputs.claim(classifier, settings, records)
    del classifier._one_of
    reference, model = records.reference, None
    kernel = encoder = kernel_for(settings, reference)
    # What can still be refused comes before subjects are enrolled.
    integers = encoder.encode(records.features)
    if trained is not None:
        if reference is None or not isinstance(encoder, Cosine):
            raise InvalidInput("The model to go on with must be of the same public rows.")
        model = trained.on(numbers(encoder.encode(reference)), settings, lifted=encoder.lifts)
        reference = model.features(numbers(encoder.encode(reference)))
        kernel = metric_kernel(reference)
        integers = kernel.encode(model.features(numbers(integers)))
    n_features = integers.shape[1]
    shard = Shard(kernel, n_features, ledger)
    shard.ledger = ledger
    shard.add(integers, targets, records.names)
    meter = slack_meter(settings, slack)
    assembled = engine_on(
        shard, kernel, settings, n_features, reference, meter, claimed, model=model
    )
    if trained is not None and assembled.engine.model_gate is not None:
        assembled.engine.model_gate.n_asked = trained.n_asked
    classifier._install(replace(assembled, encoder=encoder), settings, records)


def _slack_of(classifier: IndKNNClassifier) -> float:
    """Return the delta that the grid has used up; labels alone need none."""
    votes = classifier._engine.votes
    return votes._slack.spent if isinstance(votes, NoisyVotes) else 0.0
