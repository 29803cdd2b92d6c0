"""Programs of many commands: a command's module is imported when the command is named.

Messages name parameters as Python does; here they name the command's flag instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from operator import itemgetter
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from vicinal.cli._output import sign_of_life
from vicinal.errors import PrivacyRefused, VicinalError

FLAG_OF = {
    "bounds": "target",
    "id": "name",
    "n_features": "features",
    "n_neighbors": "neighbors",
    "n_queries": "queries",
    "n_records": "records",
    "n_shards": "shards",
    "n_thresholds": "thresholds",
    "reuse_predictions": "reuse",
}
"""Parameters of plans whose option has another one, and that option's name in a command."""

_ARGUMENT_OF = {"deadline": "shard_s", "labels": "label", "subjects": "subject"}
"""The same of arguments of methods."""

_OPTION_OF = FLAG_OF | _ARGUMENT_OF

_LOSS = "accept the loss"
_NAMED = re.compile(r"'(\w+)' (?:parameter|option|argument)\b")


def with_flags(message: str, command: Any) -> str:
    """Return a message that names the command's flags, where it has one for the parameter."""
    flags = dict(_flags(command))

    def flag(match: re.Match[str]) -> str:
        name = match[1]
        flag_name = flags.get(name) or flags.get(_OPTION_OF.get(name, ""))
        return match[0] if flag_name is None else f"{flag_name} option"

    if "accept_loss" in flags:
        message = message.replace(_LOSS, f"{_LOSS} ({flags['accept_loss']})")
    return _NAMED.sub(flag, message)


def _flags(command: Any) -> Iterator[tuple[str, str]]:
    """Yield each option's name and its longest flag; of a group those of all its commands."""
    for option in getattr(command, "params", ()):
        flags = [flag for flag in option.opts if flag.startswith("--")]
        if flags:
            yield option.name, flags[0]
            yield flags[0].removeprefix("--").replace("-", "_"), flags[0]
    for inner in getattr(command, "commands", {}).values():
        yield from _flags(inner)


BAD_INPUT = 2
REFUSED = 3
INTERRUPTED = 130

PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    # A traceback with local variables would show private records.
    "pretty_exceptions_enable": False,
}
"""How every program and every group of commands shows itself."""


USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # typer gives it no public name
_RESULTS = frozenset({"onnx", "out", "plot", "report"})
_SHOWN = 2


def with_hint(error: Any) -> None:
    """Add to a complaint of an extra argument which of the command's options it may belong to.

    Options that may be repeated come first, as ids do; files that a command writes are left out.
    """
    if error.ctx is None or "extra argument" not in error.message:
        return
    options = [
        (not each.multiple, each.opts[0], each.help or "")
        for each in error.ctx.command.params
        if each.opts[0].startswith("--") and not each.is_flag and each.name not in _RESULTS
        if error.ctx.get_parameter_source(each.name).name != "COMMANDLINE" or each.multiple
    ]
    likeliest = sorted(options, key=itemgetter(0))[:_SHOWN]
    flags = [f"{flag} ({text.removesuffix('.')})" for _, flag, text in likeliest]
    if flags:
        error.message += f". Put the option's name before it: {', or '.join(flags)}."


class CommandGroup(TyperGroup):
    """Commands that are imported when named, and whose errors end the program with a sentence.

    `places` says where each command stands: ``module:function``, or ``module:app`` for a group.
    `tasks` says what help puts together: a heading, and the commands under it. Others come last.
    """

    places: ClassVar[Mapping[str, str]] = {}
    tasks: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names of all commands, sorted."""
        return sorted(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command, or None if there is none of that name."""
        place = self.places.get(cmd_name)
        return None if place is None else _command(cmd_name, place)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help, those of one task together."""
        grouped = {name for names in self.tasks.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in grouped]
        width = formatter.width - 6 - max(map(len, self.places))
        for heading, names in (*self.tasks.items(), ("Commands", others)):
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(width)) for name, command in commands]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=30)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            with sign_of_life(next(iter((*ctx._protected_args, *ctx.args)), "command")):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            _stop("interrupted.", INTERRUPTED)
        except USAGE_ERROR as error:
            with_hint(error)
            raise
        except VicinalError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            code = REFUSED if isinstance(error, PrivacyRefused) else BAD_INPUT
            _stop(with_flags(str(error), command), code)


def group_of(help_text: str) -> typer.Typer:
    """Return a group of commands, still empty."""
    return typer.Typer(help=help_text, no_args_is_help=True, add_completion=False, **PLAIN)


def _command(name: str, place: str) -> TyperCommand | TyperGroup:
    module, _, attribute = place.partition(":")
    member = getattr(import_module(module), attribute)
    if not isinstance(member, typer.Typer):
        app = typer.Typer(add_completion=False, **PLAIN)
        app.command(name, cls=getattr(member, "command_class", None))(member)
        member = app
    command = typer.main.get_command(member)
    command.name = name
    return command  # type: ignore[return-value]


def _stop(words: str, code: int) -> NoReturn:
    typer.echo("vicinal: " + " ".join(words.split()), err=True)
    raise typer.Exit(code)
