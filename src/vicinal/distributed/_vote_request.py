"""What a coordinator sends to shards: one block of queries, with a name that it keeps for ever.

Everything in an order is public: queries, radii and noise scales. What comes back is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vicinal.neighbours._integer_features import IntegerMatrix

if TYPE_CHECKING:
    from vicinal.distributed._shard_server import ShardServer

Steps = npt.NDArray[np.int64]

VOTES, COUNT, COUNTED = "votes", "count", "counted"
"""Rounds: the votes of all neighbours; how many can pay for being counted; the votes of those."""

_NAME_BYTES = 16
_PIECE = 64 << 10
"""Bytes of queries in one argument of a message: above 100 KB Ray puts an argument elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class VoteRequest:
    """One round of one block.

    Attributes
    ----------
    name : bytes
        Names the block. However often it comes, it is carried out once.
    turn : int
        How far the coordinator had come, see :meth:`ShardServer.settle`.
    audience : str
        Whose budgets pay.
    round : str
        :data:`VOTES`, :data:`COUNT` or :data:`COUNTED`.
    queries : int8 or float32 (q, d)
        Integer features.
    thresholds : int64 (q,)
        Radii as similarities.
    scales : int64 (q,)
        Noise scales of the votes in grid steps; empty where queries are counted.
    """

    name: bytes
    turn: int
    audience: str
    round: str
    queries: IntegerMatrix
    thresholds: Steps
    scales: Steps

    def done_by(self, keeper: ShardServer) -> Steps:
        """Have a shard carry it out; what it returns is private."""
        return keeper.charge_and_sum(self)

    def digest(self) -> bytes:
        """Return a digest of everything that charges follow from."""
        parts = [self.name, self.turn.to_bytes(8), self.audience.encode(), self.round.encode()]
        for array in (self.queries, self.thresholds, self.scales):
            parts += [f"{array.dtype} {array.shape}".encode(), array.tobytes()]
        return hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()


def block_name(*parts: bytes) -> bytes:
    """Return the name of a block that is made of these parts."""
    digest = hashlib.blake2b(digest_size=_NAME_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


def cut(message: Any) -> list[Any]:
    """Return a message with the first queries of its order, and the others in pieces."""
    order = getattr(message, "task", None)
    if not isinstance(order, VoteRequest):
        return [message]
    rows = max(1, _PIECE * len(order.queries) // max(1, order.queries.nbytes))
    end = max(1, len(order.queries))
    first, *more = [order.queries[at : at + rows] for at in range(0, end, rows)]
    return [replace(message, task=replace(order, queries=first)), *more]


def joined(message: Any, more: Sequence[IntegerMatrix]) -> Any:
    """Return what was :func:`cut`, or any other message as it is."""
    if not more:
        return message
    order = message.task
    whole = replace(order, queries=np.concatenate([order.queries, *more]))
    return replace(message, task=whole)
