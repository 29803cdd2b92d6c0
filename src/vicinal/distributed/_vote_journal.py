"""The blocks that a shard has charged, with their votes, until their answers are durable.

A shard's charge and the votes that it paid for become durable in one transaction, under the name
of the block. So a repeated request finds the same votes and charges nothing, also after a restart.
The votes have no noise on them: they are as private as budgets, lie in the same database, leave it
for the coordinator alone, and are deleted as soon as the answer is durable there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.distributed._messages import Steps, SumRequest, VoteRequest
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger._database import Database

_CLOCK = "turn"
"""Where the database keeps how far the coordinator had come; so is the column of the table."""

_SEQUENCE = "sequence"
"""Where the database keeps the place of the last block that was charged."""


@dataclass(frozen=True, slots=True, eq=False)
class ChargedVotes:
    """What a request gave; private.

    `sums`: votes (q, c), counts (q,) or tables (cells,), in grid steps. `payers`, bool (hits,):
    which hits could pay for being counted; empty for votes.
    """

    sums: Steps
    payers: npt.NDArray[np.bool_]


class VoteJournal:
    """The table of charged blocks in a shard's database.

    `clock`: how far the coordinator had come, as far as the shard knows; never goes back.
    `sequence`: place of the last block that was charged in this epoch of the coordinator.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.clock = int(database.get(_CLOCK) or 0)
        self.sequence = int(database.get(_SEQUENCE) or 0)

    def find(self, request: SumRequest) -> ChargedVotes | None:
        """Return what a request gave when it came first, or None.

        Raises InvalidInput if another request came under this name.
        """
        rows = self._database.execute(
            "SELECT digest, sums, part FROM carried WHERE name = ? AND round = ?",
            (request.name, request.round),
        )
        if not rows:
            return None
        ((digest, sums, payers),) = rows
        if digest != request.digest():
            raise InvalidInput(
                "The block must be the one that its name was given to. Another block was charged "
                "under this name."
            )
        votes = np.frombuffer(sums, dtype="<i8").astype(np.int64).reshape(request.shape)
        return ChargedVotes(votes, np.frombuffer(payers, dtype=np.bool_))

    def check(self, request: SumRequest) -> None:
        """Raise PrivacyRefused for a late request of a block that is over: nobody is charged."""
        late = isinstance(request, VoteRequest) and request.sequence < self.sequence
        if request.clock < self.clock or late:
            raise PrivacyRefused(
                "The block is over: the coordinator has gone on since. Nothing was charged for it."
            )

    def write(self, request: SumRequest, votes: ChargedVotes) -> None:
        """Record votes, inside the transaction that writes their charges."""
        self.delete_before(request.clock)
        if isinstance(request, VoteRequest):
            self._database.put(_SEQUENCE, str(request.sequence))
        self._database.execute(
            "INSERT INTO carried (name, round, turn, digest, sums, part) VALUES (?, ?, ?, ?, ?, ?)",
            (
                request.name, request.round, request.clock, request.digest(),
                votes.sums.astype("<i8").tobytes(), votes.payers.tobytes(),
            ),
        )  # fmt: skip

    def delete_before(self, clock: int) -> None:
        """Delete the votes of all blocks before `clock`, inside a transaction."""
        if clock > self.clock:
            self._database.execute("DELETE FROM carried WHERE turn < ?", (clock,))
            self._database.put(_CLOCK, str(clock))

    def begin_epoch(self) -> None:
        """Begin to count anew, inside the transaction that writes the coordinator's new epoch."""
        self._database.put(_SEQUENCE, "0")
        self.sequence = 0

    def note_charged(self, request: SumRequest) -> None:
        """Note that the transaction that wrote the votes of a request is durable."""
        self.note_durable(request.clock)
        if isinstance(request, VoteRequest):
            self.sequence = request.sequence

    def note_durable(self, clock: int) -> None:
        """Note that the transaction that passed `clock` to :meth:`delete_before` is durable."""
        self.clock = max(self.clock, clock)

    def __len__(self) -> int:
        """Return how many votes are kept."""
        return int(self._database.execute("SELECT COUNT(*) FROM carried")[0][0])
