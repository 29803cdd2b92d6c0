"""What a shard charges: the price in memory, the votes until they are answered.

A charge and the votes that it paid for become durable in one transaction, under the name of the
block: a repeated request finds the same votes and charges nothing, also after a restart. The votes
have no noise on them. They are as private as budgets, lie in the same database, leave it for the
coordinator alone, and are deleted as soon as the answer is durable there.
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
from vicinal.planning.engine_factory import convert_to_float
from vicinal.planning.plan import IndKNNPlan
from vicinal.store.audience_state import AudienceState, settings_of
from vicinal.store.evaluation import CountedRows, charge_people
from vicinal.store.opening import OpenStore
from vicinal.store.private_models import stored_features

_CLOCK = "turn"
"""Where the database keeps how far the coordinator had come; so is the column of the table."""

_SEQUENCE = "sequence"
"""Where the database keeps the place of the last block that was charged."""


class VoteJournal:
    """The table of charged blocks in a shard's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def clock(self) -> int:
        """How far the coordinator had come, as far as the shard knows; never goes back."""
        return self._database.number(_CLOCK)

    def find(self, request: tasks.SumRequest) -> Steps | None:
        """Return what a request gave when it came first, or None. Private.

        Raises InvalidInput if another request came under this name.
        """
        rows = self._database.read(
            "SELECT digest, sums FROM carried WHERE name = ? AND round = ?",
            (request.name, request.round),
        )
        if not rows:
            return None
        ((digest, sums),) = rows
        if digest != request.digest():
            raise InvalidInput(
                "The block must be the one that its name was given to. Another block was charged "
                "under this name."
            )
        return np.frombuffer(sums, dtype="<i8").astype(np.int64).reshape(request.shape)

    def check(self, request: tasks.SumRequest) -> None:
        """Raise PrivacyRefused for a late request of a block that is over: nobody is charged."""
        last = self._database.number(_SEQUENCE)
        late = isinstance(request, tasks.VoteRequest) and request.sequence < last
        if request.clock < self.clock or late:
            raise PrivacyRefused(
                "The block is over: the coordinator has gone on since. Nothing was charged for it."
            )

    def write(self, request: tasks.SumRequest, sums: Steps) -> None:
        """Record votes, inside the transaction that writes their charges."""
        self.delete_before(request.clock)
        if isinstance(request, tasks.VoteRequest):
            self._database.put(_SEQUENCE, str(request.sequence))
        own = request.name, request.round, request.clock, request.digest()
        self._database.insert(Tables.CARRIED, [(*own, sums.astype("<i8").tobytes())])

    def delete_before(self, clock: int) -> None:
        """Delete the votes of all blocks before `clock`, inside a transaction."""
        if clock > self.clock:
            self._database.delete(Tables.CARRIED, "turn < ?", (clock,))
            self._database.put(_CLOCK, str(clock))

    def begin_epoch(self) -> None:
        """Begin to count anew, inside the transaction that writes the coordinator's new epoch."""
        self._database.put(_SEQUENCE, "0")


def charge(state: AudienceState, request: tasks.VoteRequest) -> Steps:
    """Charge a block and return its sums; a request has noise scales only."""
    votes = state.engine.votes
    release = votes.release(request.scales / votes.grid.steps)
    # The coordinator charges what the grid costs; here nothing is released.
    state.slack.resume(state.audience.slack)
    return state.engine.shard.charge_and_sum(release, request.queries, request.thresholds)


def charge_tally(ledger: Ledger, state: AudienceState, request: tasks.TallyRequest) -> Steps:
    """Charge subjects for being evaluated, inside a release, and return their sum.

    Raises PrivacyRefused if the coordinator's noise is not what they would pay for here. Nobody was
    charged.
    """
    settings = state.settings
    plan = TallyPlan(request.sizes, request.share, settings.spendable, settings.grid_delta)
    tally = NoisyTally(plan, state.engine.votes.noise, _unmetered(settings))
    _check_scale(request, tally.scale)
    counted = CountedRows(plan, request.cells, request.subjects)
    return charge_people(ledger, state.audience, tally, counted)


def local_gradients(parts: OpenStore, audience: Audience) -> LocalGradients:
    """Return the records of a shard as an audience's model is trained on them; private."""
    settings, records = settings_of(parts, audience), parts.record_files.features
    return LocalGradients(
        settings.training, stored_features(parts, audience)[0],
        convert_to_float(records.rows(len(parts.shard))),
        parts.shard.subject_table_of(audience.account),
        audience.account, create_noise_source(), _unmetered(settings),
    )  # fmt: skip


def step_of(
    gradients: LocalGradients, request: tasks.GradientRequest, noise: float
) -> GradientRelease:
    """Return the release of a step, as this shard prices it; nobody is charged yet.

    Raises InvalidInput for weights that are none of this model's. Raises PrivacyRefused if the
    coordinator's noise is not what subjects would pay for here.
    """
    mechanism = gradients.mechanism
    if request.weights.shape != (mechanism.n_features, mechanism.n_scores):
        raise InvalidInput("The weights of a step must be those of the audience's model.")
    if not np.isfinite(request.weights).all():
        raise InvalidInput("The weights of a step must be finite.")
    release = mechanism.release(noise)
    _check_scale(request, release.scale)
    return release


def _unmetered(settings: IndKNNPlan) -> DeltaSlackAccountant:
    """Return what meters nothing: the coordinator adds the noise, and pays for its grid."""
    return DeltaSlackAccountant(settings.grid_delta, needed=False)


def _check_scale(request: tasks.TallyRequest | tasks.GradientRequest, scale: int) -> None:
    if request.scale != scale:
        raise PrivacyRefused("The coordinator has another plan for this audience than the shard.")
