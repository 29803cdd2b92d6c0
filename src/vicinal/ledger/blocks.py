"""What one commit writes besides charges: answers, and where those of a request are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.ledger.audiences import Audience
from vicinal.ledger.database import Value


@dataclass(frozen=True, slots=True)
class Block:
    """Answers of one audience that are to be released together.

    Attributes
    ----------
    audience : Audience
        Whose account was charged.
    digests : bytes
        Digests of the queries, one after the other.
    answers : float64 (q, c) or int64 (q,)
        What the mechanism released for each.
    slack : float
        What the grid has cost this audience by now.
    asked : mapping of str to int
        Queries of the block by analyst.
    """

    audience: Audience
    digests: bytes
    answers: npt.NDArray[np.float64] | npt.NDArray[np.int64]
    slack: float
    asked: Mapping[str, int]

    def row(self, seq: int, version: int) -> tuple[Value, ...]:
        """Return the columns of the table `answers`."""
        kind = "<f8" if self.answers.ndim == 2 else "<i8"
        answers = self.answers.astype(kind).tobytes()
        return seq, self.audience.number, version, self.digests, answers


@dataclass(frozen=True, slots=True)
class Request:
    """A request with an idempotency key, and where its answers are.

    Attributes
    ----------
    name, body : bytes
        Digests of audience, analyst and key, and of the queries.
    seqs, places : int64 (q,)
        The block that holds the answer to each query, and its place in that block.
    """

    name: bytes
    body: bytes
    seqs: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    def row(self) -> tuple[Value, ...]:
        """Return the columns of the table `requests`."""
        seqs, places = (part.astype("<i8").tobytes() for part in (self.seqs, self.places))
        return self.name, self.body, seqs, places
