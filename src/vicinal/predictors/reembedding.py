"""Fits that continue the budgets of an earlier fit: with new features, or after an interruption.

A student trained on released answers is public, and so is its feature map. The new features of a
record are therefore a function of this record and of the released answers, as the individual filter
requires (ZZGW23, Algorithm 3; Feldman & Zrnic 2021): a contribution depends on the record, its
remaining budget and public values only. Budgets must not be refilled: every subject continues with
its remaining budget. The index, the radius and the noise are planned again from public values.
"""

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
from vicinal.interactions.fit_registry import Interaction
from vicinal.ledger.memory import MemoryLedger
from vicinal.linear.private_model import MODEL_ARRAYS, PrivateModel, build_metric_kernel
from vicinal.mechanisms.subject_table import RecordTargets
from vicinal.neighbours.kernels import Cosine
from vicinal.planning.engine_factory import (
    convert_to_float32,
    create_engine,
    create_kernel,
    create_slack_accountant,
)
from vicinal.planning.parameter_tables import create_index_factory
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors import inputs
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.tabular import read_column

BudgetState = dict[str, AnyArray]
"""The state of the budgets of one fit, as arrays of a file. **As private as the records.**

- `remaining`, int64 (s,): remaining budget units of every subject, in the order of first records.
- `slack`, `answers`, `n_records`: delta spent by the integer grid, number of answers, and the
  public number of records, as declared or as estimated once with noise.
- `why_no_model`: the reason why "auto" trained no private model, if so.
- With a private model: `model_share`, the share of the budgets spent on its training; `model_put`,
  the number of queries so far that the model passed on to a vote of private records; and its
  arrays `model_weights`, `model_used` and further ones
  (:meth:`vicinal.linear.private_model.PrivateModel.to_arrays`).
"""

_NOT_IND_KNN_MESSAGE = "The journal does not hold the budgets of Ind-KNN."
_OTHER_REFERENCE_MESSAGE = "The model to continue with must use the same public rows."


def scale_planned_queries(n_queries: int, share: float) -> int:
    """Return n_queries / share, rounded up: the number of queries to plan for with full budgets.

    `n_queries` queries may spend the share `share`, in (0, 1], of full budgets. They get the noise
    and the neighbours that n_queries / share queries would get from full budgets.
    """
    return math.ceil(n_queries / share)


def get_budget_state(classifier: IndKNNClassifier) -> BudgetState:
    """Return the state of the budgets of `classifier`, from which :func:`resume_fit` continues.

    Private: for the curator only. Raises sklearn.exceptions.NotFittedError if it was not fitted.
    """
    check_is_fitted(classifier)
    with classifier._engine.lock:
        votes = classifier._engine.votes
        gate = classifier._engine.model_gate
        state = {
            "remaining": classifier._shard.ledger.remaining.copy(),
            "slack": np.array(votes.slack_accountant.spent),
            "answers": np.array(classifier.n_answers_),
            "n_records": np.array(classifier.n_records_),
        }
        no_model_reason = classifier._plan.no_model_reason
        if no_model_reason:
            state["why_no_model"] = np.array(no_model_reason)
        if gate is not None:
            state["model_share"] = np.array(classifier.model_share_)
            state["model_put"] = np.array(gate.n_private_queries)
            state |= {f"model_{name}": array for name, array in gate.model.to_arrays().items()}
    return state


def check_budget_state(state: BudgetState) -> None:
    """Raise InvalidInput if an earlier fit's `state` lacks an entry, or has an impossible one."""
    try:
        remaining_units = state["remaining"]
        slack = float(state["slack"])
        n_answers = int(state["answers"])
        n_records = int(state["n_records"])
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(_NOT_IND_KNN_MESSAGE) from None
    if "model_share" in state and "model_put" not in state:
        raise InvalidInput(_NOT_IND_KNN_MESSAGE)
    is_vector = remaining_units.ndim == 1 and remaining_units.dtype == np.int64
    if not is_vector or (remaining_units < 0).any() or (remaining_units > UNITS).any():
        raise InvalidInput("The 'remaining' budgets must be int64 units between none and all.")
    checks.check_real("slack", slack, minimum=0)
    checks.check_integer("answers", n_answers, minimum=0)
    checks.check_integer("n_records", n_records, minimum=1)


def resume_fit(
    classifier: IndKNNClassifier,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    subjects: npt.ArrayLike | None,
    public: npt.ArrayLike | None,
    state: BudgetState,
    *,
    n_queries: int,
    share: float = 1.0,
) -> None:
    """Fit `classifier` with the remaining budgets of an earlier fit instead of new budgets.

    - `classifier`: fitted with other features, or new in a process that continues after a crash.
    - `X` (n, d): features of the records of the earlier fit, in the same order, computed record by
      record by a public map. `y`, `subjects` (n,): those of the earlier fit.
    - `public` (m, d): the public reference in the new features.
    - `state`: the last result of :func:`get_budget_state`.
    - `n_queries`: number of further queries to plan for.
    - `share`: share of full budgets for these queries; the shares of all rounds should sum to 1.

    Raises InvalidInput, also for another number of subjects; the classifier is then unchanged.
    """
    n_answers = int(state["answers"])
    no_model_reason = str(state.get("why_no_model", ""))
    # A model is valid only for the features of its training, so `state` has none for new features.
    model_share = float(state.get("model_share", 0))
    with inputs.restore_on_error(classifier):
        earlier = vars(classifier).get("_interaction")
        inputs.FitSeries(resumed=True, interaction=earlier).join(classifier)
        # The size is not estimated again, since a second estimate would be a second release.
        plan = IndKNNPlan.from_estimator(classifier).changed(
            n_queries=scale_planned_queries(n_queries, share),
            n_records=int(state["n_records"]),
            model_share=model_share,
            no_model_reason=no_model_reason,
        )
        if plan.simulation_seed is not None:
            # The noise must differ from that of earlier answers.
            seed = plan.simulation_seed + n_answers + 1
            plan = plan.changed(simulation_seed=seed)
        ledger = MemoryLedger()
        size = len(read_column("y", y))
        ids = range(size) if subjects is None else inputs.read_subject_list(subjects, size)
        ledger.enroll(ids)
        if ledger.remaining.shape != state["remaining"].shape:
            raise InvalidInput("The budgets to go on with must be those of the same records.")
        ledger.remaining[:] = state["remaining"]
        classifier.n_answers_ = n_answers
        records = inputs.read_fit_inputs(classifier, X, subjects, public)
        targets = plan.target.encode(y, len(records))
        claimed = inputs.claim_records(classifier, plan, records)
        _install_engine(classifier, plan, ledger, records, targets, claimed, state)
        n_planned = n_answers + plan.n_queries
        classifier._plan = IndKNNPlan.from_estimator(classifier).changed(
            n_queries=n_planned, model_share=model_share, no_model_reason=no_model_reason
        )
        if classifier._planned_answers is not None:
            classifier._planned_answers = n_planned


def _install_engine(
    classifier: IndKNNClassifier,
    plan: IndKNNPlan,
    ledger: MemoryLedger,
    records: inputs.FitInputs,
    targets: RecordTargets,
    interaction: Interaction | None,
    state: BudgetState,
) -> None:
    """Let `classifier` answer with a new engine on the records and the budgets of `ledger`.

    - `plan`: the plan of the further queries.
    - `ledger`: the enrolled subjects and their remaining budgets.
    - `interaction`: that of the records; None for simulations and public records.
    - `state`: that of the earlier fit; its private model, if any, maps the features.
    """
    del classifier._fit_series
    reference = records.reference
    model = None
    kernel = encoder = create_kernel(plan, reference)
    # Checks that may raise precede the enrolment of subjects.
    integers = encoder.encode(records.features)
    if "model_share" in state:
        if reference is None or not isinstance(encoder, Cosine):
            raise InvalidInput(_OTHER_REFERENCE_MESSAGE)
        points = convert_to_float32(encoder.encode(reference))
        model_arrays = {
            name: state[f"model_{name}"] for name in MODEL_ARRAYS if f"model_{name}" in state
        }
        model = PrivateModel.from_arrays(model_arrays, points, plan.loss, lifted=encoder.lifts)
        reference = model.compute_metric_rows(points)
        kernel = build_metric_kernel(reference)
        integers = kernel.encode(model.compute_metric_rows(convert_to_float32(integers)))
    n_features = integers.shape[1]
    shard = Shard(kernel, n_features, create_index_factory(plan.index), ledger)
    shard.ledger = ledger
    shard.add(integers, targets, records.subject_ids)
    slack_accountant = create_slack_accountant(plan, float(state["slack"]))
    assembled = create_engine(
        shard, kernel, plan, n_features, reference, slack_accountant, interaction, model=model
    )
    if assembled.engine.model_gate is not None:
        assembled.engine.model_gate.n_private_queries = int(state["model_put"])
    classifier._set_fitted_state(replace(assembled, encoder=encoder), plan, records)
