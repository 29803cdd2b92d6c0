"""`vicinal keys`: who may use the service. Works while the service runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from vicinal.cli._group import group_of
from vicinal.cli._options import Json, StorePath
from vicinal.cli._output import as_json

app = group_of("Keys of the service: add, list, revoke.")


@app.command()
def add(
    store: StorePath,
    name: Annotated[str, typer.Argument(help="Who it is for; whose quota it uses.")],
    role: Annotated[str, typer.Option(help="analyst or curator.")] = "analyst",
    audience: Annotated[str, typer.Option(help="Whose budgets it spends.")] = "default",
) -> None:
    """Make a key and print it: this once, it is kept nowhere."""
    from vicinal.serving import KeyFile

    typer.echo(KeyFile(store).add(name, role, audience))


@app.command("list")
def list_keys(store: StorePath, json: Json = False) -> None:
    """Show ids, names and roles of all keys; never a key."""
    from vicinal.serving import KeyFile

    keys = KeyFile(store).all()
    if json:
        shown = [{k: v for k, v in asdict(key).items() if k != "digest"} for key in keys]
        typer.echo(as_json({"keys": shown}))
        return
    for key in keys:
        state = "active" if key.revoked is None else f"revoked {key.revoked}"
        typer.echo(f"{key.id}  {key.role:<8}  {key.audience}  {key.name}  {key.created}  {state}")


@app.command()
def revoke(
    store: StorePath,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")],
) -> None:
    """Let a key in no more, at once."""
    from vicinal.serving import KeyFile

    KeyFile(store).revoke(key_id)
