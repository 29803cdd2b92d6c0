"""What cannot be undone is confirmed: at the terminal, or with --yes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vicinal.errors import InvalidInput

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")]


def confirm(consequence: str, *, yes: bool) -> None:
    """Return if somebody agrees to a consequence, which is a sentence; end the program if not.

    Without a terminal to ask at, it is refused.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{consequence} There is no terminal to confirm this at: pass --yes.")
    if not typer.confirm(f"{consequence} Go on?", err=True):
        typer.echo("vicinal: nothing was changed.", err=True)
        raise typer.Exit(1)
