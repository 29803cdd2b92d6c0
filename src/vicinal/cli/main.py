"""The program `vicinal`: its commands, each imported when it is named, and how they end.

Exit codes: 0 done, 2 bad usage or input, 3 refused for privacy, 130 interrupted. What went wrong is
one line on stderr. Messages name parameters as Python does; here they name the command's flag
instead. A command's module imports nothing heavy at its top: what it takes from other packages it
takes by attribute (`reports.verdict`), as faces load a name when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from vicinal import __version__
from vicinal.cli.options import FLAG_OF, PanelCommand
from vicinal.cli.output import compiling_said
from vicinal.errors import PrivacyRefused, VicinalError
from vicinal.progress import compile_watchers

BAD_INPUT, REFUSED, INTERRUPTED = 2, 3, 130

# A traceback with local variables would show private records.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
"""How every program and every group of commands shows itself."""

_ARGUMENT_OF = {
    "accept_weak_plan": "yes",
    "deadline": "shard_s",
    "labels": "label",
    "subjects": "subject",
}
"""Arguments of methods whose option has another name, and that option's name in a command."""

_WORDS = {"y": "records' labels", "classes": "store's classes"}
"""What else parameters are called that are no options of a command."""

_LOSS = "accept the loss"
_NAMED = re.compile(r"'(\w+)' (?:parameter|option|argument)\b")


def with_flags(message: str, command: Any) -> str:
    """Return a message that names the command's flags, where it has one for the parameter."""
    flags, option_of = dict(_flags(command)), FLAG_OF | _ARGUMENT_OF

    def flag(match: re.Match[str]) -> str:
        flag_name = flags.get(match[1]) or flags.get(option_of.get(match[1], ""))
        return _WORDS.get(match[1], match[0]) if flag_name is None else f"{flag_name} option"

    of = "" if "accept_loss" in flags else " of a command that writes"
    return _NAMED.sub(flag, message.replace(_LOSS, f"{_LOSS} (--accept-loss{of})"))


def _flags(command: Any) -> Iterator[tuple[str, str]]:
    for option in getattr(command, "params", ()):
        flags = [flag for flag in option.opts if flag.startswith("--")]
        if flags:
            yield option.name, flags[0]
            yield flags[0].removeprefix("--").replace("-", "_"), flags[0]
    for inner in getattr(command, "commands", {}).values():
        yield from _flags(inner)


class CommandGroup(TyperGroup):
    """Commands that are imported when named, and whose errors end the program with a sentence.

    `places` says where each command stands: ``module:function``, or ``module:app`` for a group.
    `tasks` says what help puts together: a heading, and the commands under it. Others come last.
    """

    places: ClassVar[Mapping[str, str]] = {}
    tasks: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (click's signature)
        return sorted(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        place = self.places.get(cmd_name)
        return None if place is None else _command(cmd_name, place)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
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
        compile_watchers[:] = [compiling_said()]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _stop("interrupted.", INTERRUPTED)
        except VicinalError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            code = REFUSED if isinstance(error, PrivacyRefused) else BAD_INPUT
            _stop(with_flags(str(error), command), code)


def group_of(help_text: str) -> typer.Typer:
    # With a callback, a group of one command stays a group.
    return typer.Typer(
        help=help_text, no_args_is_help=True, add_completion=False, callback=lambda: None, **PLAIN
    )


def _command(name: str, place: str) -> TyperCommand | TyperGroup:
    module, _, attribute = place.partition(":")
    member = getattr(import_module(module), attribute)
    if not isinstance(member, typer.Typer):
        app = typer.Typer(add_completion=False, **PLAIN)
        app.command(name, cls=getattr(member, "command_class", PanelCommand))(member)
        member = app
    command = typer.main.get_command(member)
    command.name = name
    return command  # type: ignore[return-value]


def _stop(words: str, code: int) -> NoReturn:
    typer.echo("vicinal: " + " ".join(words.split()), err=True)
    raise typer.Exit(code)


_MODULES = {
    "audit": ("audit", "certificate"),
    "_init": ("audience", "init", "schema"),
    "labelling": ("label", "student", "transfer"),
    "_machine": ("demo", "doctor"),
    "_outlook": ("plan",),
    "_plan": ("account", "calibrate"),
    "_serving": ("serve", "shard"),
    "_store": (
        *("add", "allow", "backup", "erase", "evaluate", "export-guarantee", "inspect"),
        *("predict", "refresh", "restore", "verify"),
    ),
}


class Commands(CommandGroup):
    """The commands of `vicinal`."""

    places: ClassVar = {
        name: f"vicinal.cli.{module}:{name.replace('-', '_')}"
        for module, names in _MODULES.items()
        for name in names
    } | {
        "keys": "vicinal.cli._serving:keys",
        "receipt": "vicinal.cli.audit:receipt",
        "smoothed": "vicinal.cli._plan:smoothed",
    }
    tasks: ClassVar = {
        "Start here": ("demo", "doctor"),
        "Make a store and query it": ("schema", "init", "predict", "evaluate"),
        "Change the records": ("add", "erase", "refresh"),
        "Serve others": ("serve", "keys", "audience", "allow"),
        "Look after a store": ("inspect", "verify", "backup", "restore", "shard"),
        "Plan before you spend": ("plan", "account", "calibrate", "smoothed"),
        "Show that it is private": ("export-guarantee", "audit", "certificate", "receipt"),
        "Publish a model": ("transfer", "label", "student"),
    }


app = typer.Typer(
    cls=Commands,
    help="Differentially private prediction by nearest neighbours.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **PLAIN,
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"vicinal {__version__}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
]


@app.callback()
def _main(version: _Version = False) -> None:
    """Differentially private prediction by nearest neighbours."""
