"""Orders for shards, and what they charge, without a coordinator."""

import dataclasses

import numpy as np

import store_tools as tools
from vicinal.distributed.messages import VoteRequest


def request_of(server, name=b"a block of any id", *, clock=5, size=6, **changes):
    """Return an order for the first queries, priced as the server's own audience is."""
    engine = server._audience_states["default"].engine
    block = engine.votes.kernel.encode(tools.Q[:size])
    scales = np.full(size, engine.votes.grid.scale(1.5 * np.sqrt(40)))
    near = engine.radius.thresholds(block)
    request = VoteRequest(name, clock, "default", block, near, scales)
    return dataclasses.replace(request, **changes)


def units_of(server):
    """Return what everybody on a shard has left."""
    return server._parts.ledger.audiences["default"].account.remaining.copy()
