"""What answers of a store say, read off what was stored of them: post-processing, at no cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Floats, Places
from vicinal.errors import InvalidInput
from vicinal.neighbours import IntegerMatrix
from vicinal.store._audience_state import AudienceState, ReleasedAnswers, lead
from vicinal.store._requests import REPLIES, LabelSetReply, NumberReply, Reply
from vicinal.store._store_schema import StoreSchema
from vicinal.targets import VectorAnswers, VectorTarget, check_enough


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """Fields of a `kind` of reply, by name: rows of answers, or None; and those that are shared."""

    kind: type[Reply]
    fields: dict[str, AnyArray | None]
    shared: dict[str, Any]

    def reply(self, part: slice, **paid: Any) -> Reply:
        """Return the reply to a request whose answers these rows are, and what it paid."""
        rows: dict[str, Any] = {
            name: None if every is None else every[part] for name, every in self.fields.items()
        }
        return self.kind(**rows, **self.shared, **paid)


def stored_answers(
    schema: StoreSchema, state: AudienceState, seqs: Places, places: Places
) -> StoredAnswers:
    """Return what the answers of these blocks and places say in an audience's own words."""
    kind = REPLIES[schema.target.kind]
    if schema.target.voted:
        return StoredAnswers(kind, _class_fields(schema, state, state.read(seqs, places)), {})
    sums = state.answers.read(seqs, places)
    fields = {"sums": sums, **_said(state, sums).fields}
    return StoredAnswers(kind, fields, {"names": schema.target.names})


def _said(state: AudienceState, sums: Floats) -> VectorAnswers:
    """Return what noisy sums say."""
    target = state.settings.target
    assert isinstance(target, VectorTarget)  # noqa: S101 (narrows the type)
    assert state.noise_scale is not None  # noqa: S101 (new_plan: even noise only)
    return target.answers(sums, np.full(len(sums), state.noise_scale))


def trend_rows(schema: StoreSchema, queries: Any) -> IntegerMatrix:
    """Return queries as integers, or raise InvalidInput where no trend can be fitted to them."""
    if schema.target.voted:
        raise InvalidInput(
            "The 'trend' parameter is for numbers and several labels: there are no averages to fit "
            "a trend to."
        )
    rows = schema.kernel_of(None).encode(schema.vectors(queries))
    check_enough(len(rows))
    return rows


def along_trend(state: AudienceState, rows: IntegerMatrix, reply: Reply) -> Reply:
    """Return a reply whose answers are those of a trend through them; rows are its queries."""
    votes, proxies = state.engine.votes, state.proxies
    assert proxies is not None  # noqa: S101 (vectors have a public count)
    assert isinstance(reply, NumberReply | LabelSetReply)  # noqa: S101 (of these queries)
    around = proxies.surroundings(rows, votes.kernel, votes.weights)
    fields: dict[str, Any] = _said(state, reply.sums).along_trend(around).fields
    return replace(reply, **fields)


def _class_fields(
    schema: StoreSchema, state: AudienceState, answers: ReleasedAnswers
) -> dict[str, AnyArray | None]:
    votes, scale = answers.votes, state.noise_scale
    return {
        "labels": np.asarray(schema.classes)[answers.labels],
        "votes": votes,
        "confidence": None if votes is None or scale is None else lead(votes, scale),
        "probabilities": answers.probabilities,
    }
