"""Charging on a shard, and the journal of charged requests with their private sums.

A charge and the sums that it paid for become durable in one transaction, under the name of the
request. A repeated request therefore finds the same sums and charges nothing, even after a restart.
The sums have no noise. They are as private as the budgets, are stored in the same database, are
sent to the coordinator only, and are deleted once the coordinator's answer is durable.

A shard computes charges itself: of votes from the noise scales in the request, of an evaluation or
a training step from its own plan. PrivacyRefused is raised, and nothing charged, if the coordinator
has another noise scale than the plan. Everywhere in this module, `state` holds the engine and the
budgets of the charged audience on this shard.
"""

import numpy as np

from vicinal.arrays import Steps
from vicinal.distributed import messages as tasks
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Database
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.linear.private_model import LocalGradients
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.mechanisms.noise_sources import create_noise_source
from vicinal.mechanisms.tally import NoisyTally, TallyPlan
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.planning.engine_factory import convert_to_float32
from vicinal.planning.plan import IndKNNPlan
from vicinal.store.audience_state import AudienceState, restore_plan
from vicinal.store.evaluation import CountedRows, charge_evaluated_subjects
from vicinal.store.opening import OpenStore
from vicinal.store.private_models import load_feature_map

_CLOCK_KEY = "turn"
"""Stored name of the coordinator's clock: a database key, and a column of the table `carried`."""

_SEQUENCE_KEY = "sequence"  # database key of the sequence number of the last charged block


class ChargeJournal:
    """The charged requests in a shard's database and their private sums, in the table `carried`.

    Sums are votes of a query block, cells of an evaluation, or gradients. `database`: the shard's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def clock(self) -> int:
        """The latest clock of the coordinator that the shard has seen; never decreases."""
        return self._database.get_integer(_CLOCK_KEY)

    def find_sums(self, request: tasks.SumRequest) -> Steps | None:
        """Return the stored sums of a request that was charged before, or None. Private.

        Raises InvalidInput if a different request was charged under this name.
        """
        rows = self._database.read(
            "SELECT digest, sums FROM carried WHERE name = ? AND round = ?",
            (request.name, request.sum_kind),
        )
        if not rows:
            return None
        ((digest, sums),) = rows
        if digest != request.compute_digest():
            raise InvalidInput(
                "The block must be the one that its name was given to. Another block was charged "
                "under this name."
            )
        return np.frombuffer(sums, dtype="<i8").astype(np.int64).reshape(request.shape)

    def refuse_overtaken_request(self, request: tasks.SumRequest) -> None:
        """Raise PrivacyRefused for a request that arrives after later ones were charged."""
        last_sequence = self._database.get_integer(_SEQUENCE_KEY)
        is_overtaken = isinstance(request, tasks.VoteRequest) and request.sequence < last_sequence
        if request.clock < self.clock or is_overtaken:
            raise PrivacyRefused(
                "The block is over: the coordinator has gone on since. Nothing was charged for it."
            )

    def write_sums(self, request: tasks.SumRequest, sums: Steps) -> None:
        """Store the sums of a request, inside the transaction that writes its charges.

        Those with earlier clocks are deleted. `sums`: int64 of ``request.shape``, in grid steps.
        """
        self.delete_sums_before(request.clock)
        if isinstance(request, tasks.VoteRequest):
            self._database.put(_SEQUENCE_KEY, str(request.sequence))
        row = (
            request.name,
            request.sum_kind,
            request.clock,
            request.compute_digest(),
            sums.astype("<i8").tobytes(),
        )
        self._database.insert(Tables.CARRIED, [row])

    def delete_sums_before(self, clock: int) -> None:
        """Delete the sums of all requests with a clock before `clock`, inside a transaction.

        Does nothing if `clock` is not later than the latest one that the shard has seen.
        """
        if clock > self.clock:
            self._database.delete(Tables.CARRIED, "turn < ?", (clock,))
            self._database.put(_CLOCK_KEY, str(clock))

    def reset_sequence(self) -> None:
        """Accept any sequence number next, inside the transaction that writes a new epoch."""
        self._database.put(_SEQUENCE_KEY, "0")


def charge_votes(state: AudienceState, request: tasks.VoteRequest) -> Steps:
    """Charge a query block in memory and return its private votes, int64 (q, c) in grid steps.

    The caller makes the charges and the votes durable.
    """
    votes = state.engine.votes
    release = votes.prepare_release(request.scales / votes.grid.steps)
    # The coordinator accounts for the delta that the noise grid uses; a shard releases nothing.
    state.slack.resume(state.audience.slack)
    return state.engine.shard.charge_and_sum(release, request.queries, request.thresholds)


def charge_evaluation(
    ledger: Ledger, state: AudienceState, request: tasks.EvaluationRequest
) -> Steps:
    """Charge subjects for an evaluation, inside a release; return the private sums of all cells.

    The sums are int64 of ``request.shape``, in grid steps. `ledger`: the shard's ledger.
    """
    plan = state.plan
    tally_plan = TallyPlan(request.sizes, request.share, plan.interaction_budget, plan.grid_delta)
    tally = NoisyTally(tally_plan, state.engine.votes.noise_source, _create_unmetered_slack(plan))
    _check_noise_scale(request, tally.scale)
    counted = CountedRows(tally_plan, request.cells, request.subjects)
    return charge_evaluated_subjects(ledger, state.audience, tally, counted)


def create_local_gradients(store: OpenStore, audience: Audience) -> LocalGradients:
    """Return the object that charges a shard's subjects for the gradients of their records.

    The gradients train an audience's model. Nothing is computed or charged yet. `store`: the
    shard's open folder. `audience`: whose budgets are charged.
    """
    plan = restore_plan(store, audience)
    records = store.record_files.features
    return LocalGradients(
        plan.training,
        load_feature_map(store, audience)[0],
        convert_to_float32(records.map_rows(len(store.shard))),
        store.shard.subject_table_of(audience.account),
        audience.account,
        create_noise_source(),
        _create_unmetered_slack(plan),
    )


def create_step_release(
    gradients: LocalGradients, request: tasks.GradientRequest, step_noise: float
) -> GradientRelease:
    """Return the noise and the charge rate of a training step; nothing is charged yet.

    `gradients`: those of this shard's records. `step_noise`: the plan's noise standard deviation of
    a step, in clipping norms. Raises InvalidInput for weights of another shape than the model's, or
    not finite.
    """
    mechanism = gradients.mechanism
    if request.weights.shape != (mechanism.n_features, mechanism.n_scores):
        raise InvalidInput("The weights of a step must be those of the audience's model.")
    if not np.isfinite(request.weights).all():
        raise InvalidInput("The weights of a step must be finite.")
    release = mechanism.prepare_release(step_noise)
    _check_noise_scale(request, release.scale)
    return release


def _create_unmetered_slack(plan: IndKNNPlan) -> DeltaSlackAccountant:
    """Return an accountant for a `plan` that counts no slack, the delta that a noise grid costs."""
    # Only the coordinator adds noise.
    return DeltaSlackAccountant(plan.grid_delta, needs_slack=False)


def _check_noise_scale(
    request: tasks.EvaluationRequest | tasks.GradientRequest, scale: int
) -> None:
    """Raise PrivacyRefused unless a request has the noise `scale`, in grid steps, of the plan."""
    if request.scale != scale:
        raise PrivacyRefused("The coordinator has another plan for this audience than the shard.")
