"""Vote requests to a shard, and the budgets that it charges, without a coordinator."""

import dataclasses

import numpy as np

import store_tools as tools
from vicinal.distributed.messages import VoteRequest


def create_request(server, name=b"a block of any id", *, clock=5, size=6, **changes):
    """Return a vote request for `size` queries with the audience's noise and the given fields."""
    engine = server._audience_states["default"].engine
    block = engine.votes.kernel.encode(tools.Q[:size])
    scales = np.full(size, engine.votes.grid.convert_noise(1.5 * np.sqrt(40)))
    thresholds = engine.radius.thresholds(block)
    request = VoteRequest(name, clock, "default", block, thresholds, scales)
    return dataclasses.replace(request, **changes)


def copy_remaining_units(server):
    """Return a copy of the remaining units of all subjects on a shard."""
    return server._store.ledger.audiences["default"].account.remaining.copy()
