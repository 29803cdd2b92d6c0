"""One set of budgets, several sets of features: re-embedding, and going on after a kill.

A student trained on released answers is public, and so is the map that it makes of raw records. A
record's next features are therefore a function of that record and of the transcript, which is all
that the individual filter asks (ZZGW23, Algorithm 3; Feldman & Zrnic 2021): contributions go on
depending on a record, its own remaining budget and public things. What must not happen is that a
budget is refilled on the way: every subject goes on with what it had left. The index, the radius
and the noise are planned anew, from public numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.accounting.budget import UNITS
from vicinal.arrays import AnyArray
from vicinal.engine.shard import Shard
from vicinal.errors import InvalidInput
from vicinal.ledger.memory import MemoryLedger
from vicinal.linear.private_model import MODEL_ARRAYS, PrivateModel, metric_kernel
from vicinal.neighbours.kernels import Cosine
from vicinal.planning.engine_factory import convert_to_float, engine_on, kernel_for, slack_meter
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors import inputs
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.tabular import read_column

SpentBudget = dict[str, AnyArray]
"""What an interaction has used up, as a file holds it. **As private as the records.**

- `remaining`, int64 (s,): units that every subject has left, in the order of their first records.
- `slack`, `answers`, `n_records`: delta that the grid has used up, answers given, and the public
  size, as declared or as estimated once with noise.
- `why_no_model`: why "auto" trained no private model, if it did not.
- Of a private model, if one was trained: `model_share`, the share of budgets that it was trained
  with; `model_put`: queries that it has put to the vote; and its arrays, `model_weights`,
  `model_used` and others (:meth:`vicinal.linear.private_model.PrivateModel.arrays`).
"""

_NONE_OF_IND_KNN = "The journal does not hold the budgets of Ind-KNN."
_OTHER_ROWS = "The model to go on with must be of the same public rows."


def planned_queries(n_queries: int, share: float) -> int:
    """Return how many queries a whole budget would last for at this rate, rounded up.

    Planning goes by queries over budget: n queries from a share of all budgets get the noise and
    the neighbours that n / share queries get from whole budgets.
    """
    n_queries = checks.check_integer("n_queries", n_queries, least=1)
    return math.ceil(n_queries / checks.check_real("share", share, above=0, most=1))


def spent_budget(classifier: IndKNNClassifier) -> SpentBudget:
    """Return what `classifier` has used up; for the curator, to go on from after a kill. Private.

    Raises sklearn.exceptions.NotFittedError if it was not fitted.
    """
    check_is_fitted(classifier)
    with classifier._engine.lock:
        votes, gate = classifier._engine.votes, classifier._engine.model_gate
        spent = {
            "remaining": classifier._shard.ledger.remaining.copy(),
            "slack": np.array(votes.meter.spent),
            "answers": np.array(classifier.n_answers_),
            "n_records": np.array(classifier.n_records_),
        }
        if why := classifier._settings.why_no_model:
            spent["why_no_model"] = np.array(why)
        if gate is not None:
            spent["model_share"] = np.array(classifier.model_share_)
            spent["model_put"] = np.array(gate.n_asked)
            spent |= {f"model_{name}": array for name, array in gate.model.arrays().items()}
    return spent


def check_spent(spent: SpentBudget) -> None:
    """Raise InvalidInput for budgets that nobody can have."""
    try:
        units, slack = spent["remaining"], float(spent["slack"])
        answers, size = int(spent["answers"]), int(spent["n_records"])
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(_NONE_OF_IND_KNN) from None
    if "model_share" in spent and "model_put" not in spent:
        raise InvalidInput(_NONE_OF_IND_KNN)
    sound = units.ndim == 1 and units.dtype == np.int64
    if not sound or (units < 0).any() or (units > UNITS).any():
        raise InvalidInput("The 'remaining' budgets must be int64 units between none and all.")
    checks.check_real("slack", slack, least=0)
    checks.check_integer("answers", answers, least=0)
    checks.check_integer("n_records", size, least=1)


def resume_fit(
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
    """Fit `classifier` with the budgets that an earlier fit left, instead of new ones.

    - `classifier`: fitted in other features, or new in a process that goes on after a kill.
    - `X`, array (n, d): features of the records of the earlier fit, in the same order, made record
      by record by a public map.
    - `y`, `subjects`, array (n,): as given there.
    - `public`, array (m, d): the public reference in these features.
    - `spent`: what :func:`spent_budget` returned last.
    - `n_queries`: how many more queries to plan for.
    - `share`: from which share of full budgets; shares of all rounds should come to 1.

    Raises InvalidInput before anything is changed; also if `spent` is about another number of
    subjects.
    """
    answers, why = int(spent["answers"]), str(spent.get("why_no_model", ""))
    # A model belongs to the features that it was trained in: other features have none.
    model_share = float(spent.get("model_share", 0))
    with inputs.unchanged_if_refused(classifier):
        earlier = vars(classifier).get("_interaction")
        inputs.OneOfSeveralFits(resumed=True, interaction=earlier).join(classifier)
        # A second estimate of the size would be a second release.
        settings = IndKNNPlan.of(classifier).changed(
            n_queries=planned_queries(n_queries, share), n_records=int(spent["n_records"]),
            model_share=model_share, why_no_model=why,
        )  # fmt: skip
        if settings.simulation_seed is not None:  # noise must not repeat that of earlier answers
            seed = settings.simulation_seed + answers + 1
            settings = settings.changed(simulation_seed=seed)
        ledger = MemoryLedger()
        size = len(read_column("y", y))
        ids = range(size) if subjects is None else inputs.checked_subjects(subjects, size)
        ledger.enroll(ids)
        if ledger.remaining.shape != spent["remaining"].shape:
            raise InvalidInput("The budgets to go on with must be those of the same records.")
        ledger.remaining[:] = spent["remaining"]
        classifier.n_answers_ = answers
        _embed(classifier, settings, ledger, (X, y, subjects, public), spent)
        planned = answers + settings.n_queries
        classifier._settings = IndKNNPlan.of(classifier).changed(
            n_queries=planned, model_share=model_share, why_no_model=why
        )
        if classifier._planned_answers is not None:
            classifier._planned_answers = planned


def _embed(
    classifier: IndKNNClassifier,
    settings: IndKNNPlan,
    ledger: MemoryLedger,
    arrays: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike | None, npt.ArrayLike | None],
    spent: SpentBudget,
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
    if "model_share" in spent:
        if reference is None or not isinstance(encoder, Cosine):
            raise InvalidInput(_OTHER_ROWS)
        points = convert_to_float(encoder.encode(reference))
        kept = {name: spent[part] for name in MODEL_ARRAYS if (part := f"model_{name}") in spent}
        model = PrivateModel.kept(kept, points, settings.loss, lifted=encoder.lifts)
        reference = model.features(points)
        kernel = metric_kernel(reference)
        integers = kernel.encode(model.features(convert_to_float(integers)))
    n_features = integers.shape[1]
    shard = Shard(kernel, n_features, ledger)
    shard.ledger = ledger
    shard.add(integers, targets, records.names)
    meter = slack_meter(settings, float(spent["slack"]))
    assembled = engine_on(
        shard, kernel, settings, n_features, reference, meter, claimed, model=model
    )
    if assembled.engine.model_gate is not None:
        assembled.engine.model_gate.n_asked = int(spent["model_put"])
    classifier._install(replace(assembled, encoder=encoder), settings, records)
