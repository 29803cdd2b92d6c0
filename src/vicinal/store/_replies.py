"""What answers of a store say, read off what was stored of them: post-processing, at no cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Places
from vicinal.errors import InvalidInput
from vicinal.neighbours import IntegerMatrix
from vicinal.planning import IndKNNSettings
from vicinal.store._audience_state import AudienceState, ReleasedAnswers, lead
from vicinal.store._requests import LabelSetReply, NumberReply, Reply
from vicinal.store._store_schema import StoreSchema
from vicinal.targets import LabelAnswers, answers_of, check_enough

_QUARTILES = (0.25, 0.5, 0.75)


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
    settings = state.settings
    if isinstance(settings, IndKNNSettings):
        return StoredAnswers(Reply, _class_fields(schema, state, state.read(seqs, places)), {})
    stored = state.answers.read(seqs, places)
    assert state.noise_scale is not None  # noqa: S101 (new_plan: even noise only)
    noise = np.full(len(stored), state.noise_scale)
    plain = {"votes": stored, "confidence": None, "probabilities": None}
    names = {"names": schema.target.names}
    answers = answers_of(settings, stored, noise)
    fields: dict[str, AnyArray | None] = {**plain, **answers.fields}
    if isinstance(answers, LabelAnswers):
        return StoredAnswers(LabelSetReply, fields, names)
    with_quartiles = answers.settings.n_thresholds and len(stored)
    fields["quartiles"] = answers.quantiles(_QUARTILES) if with_quartiles else None
    return StoredAnswers(NumberReply, fields, names)


def trend_rows(schema: StoreSchema, state: AudienceState, queries: Any) -> IntegerMatrix:
    """Return queries as integers, or raise InvalidInput where no trend can be fitted to them."""
    if isinstance(state.settings, IndKNNSettings):
        raise InvalidInput(
            "The 'trend' parameter is for numbers and several labels: there are no averages to fit "
            "a trend to."
        )
    rows = schema.kernel_of(None).encode(schema.vectors(queries))
    check_enough(len(rows))
    return rows


def along_trend(state: AudienceState, rows: IntegerMatrix, reply: Reply) -> Reply:
    """Return a reply whose answers are those of a trend through them; rows are its queries."""
    settings, votes, proxies = state.settings, state.engine.votes, state.proxies
    assert proxies is not None  # noqa: S101 (vectors have a public count)
    assert reply.votes is not None  # noqa: S101 (sums are stored)
    around = proxies.surroundings(rows, votes.kernel, votes.weights)
    noise = np.full(len(rows), state.noise_scale)
    fields: dict[str, Any] = answers_of(settings, reply.votes, noise).along_trend(around).fields
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
