"""Programs of many commands: a command's module is imported when the command is named."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from vicinal.cli._flags import with_flags
from vicinal.errors import PrivacyRefused, VicinalError

BAD_INPUT = 2
REFUSED = 3
INTERRUPTED = 130

PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    # A traceback with local variables would show private records.
    "pretty_exceptions_enable": False,
}
"""How every program and every group of commands shows itself."""


class CommandGroup(TyperGroup):
    """Commands that are imported when named, and whose errors end the program with a sentence.

    `places` says where each command stands: ``module:function``, or ``module:app`` for a group.
    """

    places: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names of all commands, sorted."""
        return sorted(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command, or None if there is none of that name."""
        place = self.places.get(cmd_name)
        return None if place is None else _command(cmd_name, place)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _stop("interrupted.", INTERRUPTED)
        except VicinalError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            code = REFUSED if isinstance(error, PrivacyRefused) else BAD_INPUT
            _stop(with_flags(str(error), command), code)


def _command(name: str, place: str) -> TyperCommand | TyperGroup:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, **PLAIN)
        app.command(name)(found)
        found = app
    command = typer.main.get_command(found)
    command.name = name
    return command  # type: ignore[return-value]


def _stop(words: str, code: int) -> NoReturn:
    typer.echo("vicinal: " + " ".join(words.split()), err=True)
    raise typer.Exit(code)
