"""Changes of the data: each is one transaction of the ledger, with the files written before it."""

from __future__ import annotations

from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger import ForkSafeLock
from vicinal.store._audience_state import (
    AudienceState,
    open_audience_state,
    pinned_plan,
    settled_plan,
)
from vicinal.store._opening import OpenStore
from vicinal.store._private_models import retrain_model
from vicinal.store._store_schema import learnt_index


def add_audience(parts: OpenStore, lock: ForkSafeLock, name: str, plan: str) -> AudienceState:
    """Give every subject a budget for a new audience, plan for it, and return its state.

    What planning costs (the estimate of the size, the training of a private model) is charged in
    the same transaction; a model becomes durable with what it cost.
    """
    with parts.ledger.change("audience"):
        audience = parts.ledger.open_audience(name, plan)
        audience.plan = settled_plan(parts, audience)
        args = (parts, audience, parts.ledger.version + 1, lock)
        state, assembled = open_audience_state(*args)
        state.close(parts.shard)
        audience.plan = pinned_plan(audience.plan, state.settings, assembled)
        audience.slack = state.slack.spent
        parts.ledger.write_charges(audience, 0)
        audience.write(parts.database)
    # Opened again, with everything pinned, it is the desk that every later opening finds.
    return open_audience_state(*args)[0]


def refreshes_left(state: AudienceState) -> int:
    """Return how often an audience's model may still be trained again, at least once.

    Raises InvalidInput if it has no model. Raises PrivacyRefused if all trainings of its plan are
    done.
    """
    if state.private_model is None:
        raise InvalidInput(
            f"The audience {state.audience.name!r} has no private model. Open another audience "
            "with 'model_share' and 'model_refreshes'."
        )
    refreshes = state.settings.trainings - state.private_model.trained
    if refreshes <= 0:
        raise PrivacyRefused(
            f"The audience {state.audience.name!r} has no refresh of its model left: its plan has "
            f"'model_refreshes' {state.settings.trainings - 1}. Open another audience with more."
        )
    return refreshes


def refresh_model(parts: OpenStore, lock: ForkSafeLock, state: AudienceState) -> AudienceState:
    """Train the private model of an audience again, and return the audience's new state.

    What the training charges becomes durable in the same transaction as the model.
    """
    audience, settings, model = state.audience, state.settings, state.private_model
    assert model is not None  # noqa: S101 (checked by the caller)
    with parts.ledger.change("refresh"):
        used = retrain_model(parts, audience, settings, model)
        if state.proxies is not None and len(state.budget_usage):
            state.proxies.resume(state.budget_usage)
            state.proxies.spend(used)
            parts.ledger.write_proxies(audience, state.proxies.shares)
        parts.ledger.write_charges(audience, 0)
        audience.write(parts.database)
    state.close(parts.shard)
    return open_audience_state(parts, audience, parts.ledger.version, lock)[0]


def start_index(parts: OpenStore, state: AudienceState) -> None:
    """Learn what the index of a new store still needs, and move its records there.

    The radius is that of its first audience; others may find a little more or less with it.
    """
    schema = parts.schema
    kernel, radius = schema.kernel_of(state.settings.bandwidth), state.engine.radius
    index = learnt_index(schema.index, kernel, schema.public, radius, parts.folder.path)
    if index is not None:
        parts.shard.replace_index(index)
