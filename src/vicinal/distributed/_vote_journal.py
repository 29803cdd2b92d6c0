"""The blocks that a shard has carried, with their votes, until their answers are durable.

A shard's charge and the votes that it paid for become durable in one transaction, under the name
of the block. So a repeated order finds the same votes and charges nothing, also after a restart.
The votes have no noise on them: they are as private as budgets, lie in the same database, leave it
for the coordinator alone, and are deleted as soon as the answer is durable there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal.distributed._vote_request import Steps, VoteRequest
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger._database import Database

_TURN = "turn"


@dataclass(frozen=True, slots=True, eq=False)
class CarriedVotes:
    """What carrying an order gave; private.

    Attributes
    ----------
    sums : int64
        Votes (q, c) or counts (q,), in grid steps.
    part : bool (hits,)
        Which hits could pay for being counted; empty for votes.
    """

    sums: Steps
    part: np.ndarray


class VoteJournal:
    """The table of carried blocks in a shard's database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.turn = int(database.get(_TURN) or 0)

    def find(self, order: VoteRequest) -> CarriedVotes | None:
        """Return what an order gave when it came first, or None.

        Raises
        ------
        InvalidInput
            If another order came under this name.
        """
        rows = self._database.execute(
            "SELECT digest, sums, part FROM carried WHERE name = ? AND round = ?",
            (order.name, order.round),
        )
        if not rows:
            return None
        ((digest, sums, part),) = rows
        if digest != order.digest():
            raise InvalidInput(
                "The block must be the one that its name was given to. Another block was carried "
                "under this name."
            )
        found = np.frombuffer(sums, dtype="<i8").astype(np.int64)
        return CarriedVotes(_shaped(found, order), np.frombuffer(part, dtype=np.bool_))

    def check(self, order: VoteRequest) -> None:
        """Raise PrivacyRefused for a late order of a block that is over: it must not be charged."""
        if order.turn < self.turn:
            raise PrivacyRefused(
                "The block is over: the coordinator has gone on since. Nothing was charged for it."
            )

    def write(self, order: VoteRequest, outcome: CarriedVotes) -> None:
        """Put an outcome on record, inside the transaction that writes its charges."""
        self.drop(order.turn)
        self._database.execute(
            "INSERT INTO carried (name, round, turn, digest, sums, part) VALUES (?, ?, ?, ?, ?, ?)",
            (
                order.name, order.round, order.turn, order.digest(),
                outcome.sums.astype("<i8").tobytes(), outcome.part.tobytes(),
            ),
        )  # fmt: skip

    def drop(self, turn: int) -> None:
        """Delete the votes of all turns before `turn`, inside a transaction."""
        if turn > self.turn:
            self._database.execute("DELETE FROM carried WHERE turn < ?", (turn,))
            self._database.put(_TURN, str(turn))

    def passed(self, turn: int) -> None:
        """Take note that a turn is durable."""
        self.turn = max(self.turn, turn)

    def __len__(self) -> int:
        """Return how many outcomes are kept."""
        return int(self._database.execute("SELECT COUNT(*) FROM carried")[0][0])


def _shaped(sums: Steps, order: VoteRequest) -> Steps:
    return sums.reshape(len(order.queries), -1) if len(order.scales) else sums
