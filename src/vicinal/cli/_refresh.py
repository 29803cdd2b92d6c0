"""`vicinal refresh`: train the private model of a store again."""

from __future__ import annotations

import typer

from vicinal.cli._options import Audience, Json, StorePath
from vicinal.cli._output import as_json
from vicinal.cli._shards import AcceptLoss, opened_at
from vicinal.errors import InvalidInput


def refresh(
    store: StorePath,
    audience: Audience = "default",
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Train the private model again on the people who are there now.

    As often as --model-refreshes planned for, paid from the same budgets. Queries that were
    answered before count as new.
    """
    from vicinal.store import Store

    with opened_at(store, accept_loss=accept_loss) as opened:
        if not isinstance(opened, Store):
            raise InvalidInput(
                "The 'store' must be a store to refresh its model: a cluster keeps the model of "
                "the store that it was split from."
            )
        left = opened.refresh_model(audience)
    words = f"The model is trained on the people of now. Refreshes left: {left}."
    typer.echo(as_json({"refreshes_left": left}) if json else words)
