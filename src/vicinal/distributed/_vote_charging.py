"""What a request costs the subjects of a shard, charged in memory at the mechanism's price."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.distributed._messages import COUNT, COUNTED, TallyRequest, VoteRequest
from vicinal.distributed._search_ahead import SearchedBlock
from vicinal.distributed._vote_journal import ChargedVotes, VoteJournal
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger._ledger import Ledger
from vicinal.mechanisms import DeltaSlackAccountant, NoisyTally, TallyPlan
from vicinal.predictors.ind_knn._engine import QueryEngine
from vicinal.predictors.ind_knn._shard import LocalShardBase, TwoRoundQuery
from vicinal.store._audience_state import AudienceState
from vicinal.store._evaluation_charges import CountedRows, charge_people

_NOBODY = np.zeros(0, dtype=np.bool_)
_NO_SCALES = np.zeros(0, dtype=np.int64)


def charge(
    state: AudienceState,
    request: VoteRequest,
    journal: VoteJournal,
    ahead: SearchedBlock,
    version: int,
) -> ChargedVotes:
    """Charge a block and return its sums; a request has noise scales only.

    Who was found `ahead` is charged if the records have the same `version` still; else the search
    is now.

    Raises InvalidInput if it asks for counts, and those of the audience are public. Raises
    PrivacyRefused if it asks for the votes of a block that was not counted here.
    """
    engine, shard = state.engine, shard_of(state)
    if request.round == COUNT:
        return _counted(engine, shard, request)
    release = engine.votes.release(request.scales / engine.votes.grid.steps)
    # The coordinator charges what the grid costs; here nothing is released.
    state.slack.resume(state.audience.slack)
    if request.round == COUNTED:
        hits = shard.search(request.queries, request.thresholds)
        paid = TwoRoundQuery(shard, slice(0, len(hits)), hits.keep(_payers(request, journal)))
        return ChargedVotes(paid.charge_and_sum(release), _NOBODY)
    parts = ahead.parts(shard, request.search, version)
    return ChargedVotes(shard.charge_parts(release, len(request.queries), parts), _NOBODY)


def charge_tally(ledger: Ledger, state: AudienceState, request: TallyRequest) -> ChargedVotes:
    """Charge people for being evaluated, inside a release, and return their sum.

    Raises PrivacyRefused if the coordinator's noise is not what they would pay for here. Nobody was
    charged.
    """
    settings = state.settings
    plan = TallyPlan(request.sizes, request.share, settings.spendable, settings.grid_delta)
    # The coordinator adds the noise, and charges what the grid costs.
    unmetered = DeltaSlackAccountant(settings.grid_delta, needed=False)
    tally = NoisyTally(plan, state.engine.votes.noise, unmetered)
    if tally.scale != request.scale:
        raise PrivacyRefused("The coordinator has another plan for this audience than the shard.")
    counted = CountedRows(plan, request.cells, request.subjects)
    return ChargedVotes(charge_people(ledger, state.audience, tally, counted), _NOBODY)


def _payers(request: VoteRequest, journal: VoteJournal) -> npt.NDArray[np.bool_]:
    """Return which hits of the second round had paid for the first."""
    first = VoteRequest(
        request.name, request.clock, request.audience, COUNT, request.queries,
        request.thresholds, _NO_SCALES,
    )  # fmt: skip
    charged = journal.find(first)
    if charged is None:
        raise PrivacyRefused("The block was not counted on this shard, so it cannot vote.")
    return charged.payers


def _counted(engine: QueryEngine, shard: LocalShardBase, request: VoteRequest) -> ChargedVotes:
    if engine.count is None:
        raise InvalidInput("The audience's counts are public: its queries are not counted.")
    hits = shard.search(request.queries, request.thresholds)
    counts, payers, spent = engine.count.contribute_and_charge(hits, shard.subject_table)
    shard.ledger.note_charged_total(spent)
    return ChargedVotes(counts, payers)


def shard_of(state: AudienceState) -> LocalShardBase:
    """Return the records as an audience sees them."""
    shard = state.engine.shard
    assert isinstance(shard, LocalShardBase)  # noqa: S101 (open_audience_state made it)
    return shard
