"""Audiences of a coordinator: planned here, with engines that work on the shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from vicinal.distributed._remote_shards import RemoteShards
from vicinal.errors import InvalidInput
from vicinal.ledger._audiences import Audience
from vicinal.ledger._memory import ForkSafeLock
from vicinal.predictors._common.parameter_checks import AUTO
from vicinal.store._audience_state import AudienceState, open_audience_state, pinned_plan
from vicinal.store._opening import OpenStore


def open_sharded_state(
    parts: OpenStore, audience: Audience, shards: RemoteShards, lock: ForkSafeLock
) -> AudienceState:
    """Return the state of an audience whose engine works on the shards."""
    state, _ = open_audience_state(parts, audience, parts.ledger.version, lock)
    if state.reuse_replay is None:
        return dataclasses.replace(state, engine=dataclasses.replace(state.engine, shard=shards))
    engine = dataclasses.replace(state.reuse_replay.initial_engine, shard=shards)
    reuse_replay = dataclasses.replace(state.reuse_replay, initial_engine=engine)
    return dataclasses.replace(
        state, reuse_replay=reuse_replay, engine=reuse_replay.engine_with_reuse()
    )


def plan_audience(parts: OpenStore, name: str, written: str, lock: ForkSafeLock) -> Audience:
    """Open an audience in the coordinator's ledger, with everything planned, inside a change."""
    audience = parts.ledger.open_audience(name, written)
    state, planned = open_audience_state(parts, audience, parts.ledger.version + 1, lock)
    state.close(parts.shard)
    audience.plan = pinned_plan(written, state.settings, planned)
    audience.slack = state.slack.spent
    audience.write(parts.database)
    return audience


def check_no_model(plan: Mapping[str, Any]) -> None:
    """Refuse a plan that must train a model; "auto" trains none in a cluster."""
    if plan.get("model_share", AUTO) not in (0, AUTO):
        raise InvalidInput(
            "The 'model_share' parameter must be 0 or 'auto' in a cluster, which trains no private "
            "model. Open the audience in the store, then split it: its model comes along."
        )
