"""The program `vicinal`: commands that are imported when first used, exit codes and error messages.

Exit codes: 0 success, 2 bad usage or input, 3 refused for privacy, 130 interrupted. An error is one
line on stderr. The package's errors name Python parameters; the program replaces these names by the
command's flags. Modules of commands import other packages inside functions, so that help is fast.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from vicinal import __version__
from vicinal.cli.options import FLAG_OF, PanelCommand
from vicinal.cli.output import (
    check_standard_output,
    make_compile_reporter,
    print_note,
    redirect_to_null,
)
from vicinal.errors import OutputFailed, PrivacyRefused, VicinalError
from vicinal.progress import compile_watchers

BAD_INPUT = 2
REFUSED = 3
INTERRUPTED = 130  # as shells report a process that SIGINT ended
_UNNAMED_ERRNOS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""Error numbers of failed reads and writes of open files, whose errors have no file name."""

_CHANGED = "If vicinal inspect lists the change, it was made: do not repeat it."
_RESUMED = "A repeated command resumes from its folder and charges nothing again."
_AFTER_LOST_OUTPUT = {
    "predict": "A store keeps its answers. Repeat the command with another output: nothing is "
    "charged again.",
    "evaluate": "The figures are stored: vicinal inspect --json shows them. A repeated evaluation "
    "is charged again.",
    **dict.fromkeys(("label", "transfer"), _RESUMED),
    **dict.fromkeys(("add", "allow", "audience", "erase", "init", "refresh"), _CHANGED),
}
"""State of the store after a command whose output could not be written, by command."""

# Typer's formatted tracebacks show local variables, which may hold private records.
TYPER_ARGUMENTS: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
"""Arguments of :class:`typer.Typer` for every program and group of commands."""

_OPTION_OF_ARGUMENT = {
    "accept_weak_plan": "yes",
    "deadline": "shard_s",
    "labels": "label",
    "subjects": "subject",
}
"""Method arguments whose command-line option has another name, and the name of that option."""

_PHRASE_OF_PARAMETER = {"y": "records' labels", "classes": "store's classes"}
"""Phrases for parameters that are not options of the command whose error names them."""

_ACCEPT_LOSS_PHRASE = "accept the loss"
"""Words of errors about lost charges, to which the program appends its option."""
_NAMED_PARAMETER = re.compile(r"'(\w+)' (?:parameter|option|argument)\b")


def insert_flags(message: str, command: Any) -> str:
    """Return an error message in which the flags of click's `command` replace Python parameters."""
    flags = dict(_list_flags(command))
    option_of = FLAG_OF | _OPTION_OF_ARGUMENT

    def replace_parameter(match: re.Match[str]) -> str:
        """Return the flag of the parameter in `match`; its text unchanged if there is no flag."""
        name = match[1]
        flag = flags.get(name) or flags.get(option_of.get(name, ""))
        return _PHRASE_OF_PARAMETER.get(name, match[0]) if flag is None else f"{flag} option"

    suffix = "" if "accept_loss" in flags else " of a command that writes"
    message = message.replace(_ACCEPT_LOSS_PHRASE, f"{_ACCEPT_LOSS_PHRASE} (--accept-loss{suffix})")
    return _NAMED_PARAMETER.sub(replace_parameter, message)


def _list_flags(command: Any) -> Iterator[tuple[str, str]]:
    """Yield pairs (Python parameter, flag) of click's `command`, or of all commands of a group.

    Each option gives two pairs: with its Python parameter, and with the flag's name written as one.
    """
    for option in getattr(command, "params", ()):
        flags = [flag for flag in option.opts if flag.startswith("--")]
        if flags:
            yield option.name, flags[0]
            yield flags[0].removeprefix("--").replace("-", "_"), flags[0]
    for subcommand in getattr(command, "commands", {}).values():
        yield from _list_flags(subcommand)


class CommandGroup(TyperGroup):
    """Group of commands that are imported when first used; errors end the program with one line.

    `import_paths` maps each command to ``module:function``, or ``module:app`` for a group of
    commands. `commands_by_heading` has the headings of the help; other commands come last. The
    methods override those of click's groups; `ctx` is click's context of the program.
    """

    import_paths: ClassVar[Mapping[str, str]] = {}
    commands_by_heading: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Names that typer suggests for a misspelt command; `get_command` imports the commands.
        self.commands = dict.fromkeys(self.import_paths)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names of all commands, sorted."""
        return sorted(self.import_paths)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return the imported command or group called `cmd_name`; None if there is none."""
        import_path = self.import_paths.get(cmd_name)
        return None if import_path is None else _import_command(cmd_name, import_path)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with descriptions, under headings, into click's help `formatter`."""
        with_heading = {name for names in self.commands_by_heading.values() for name in names}
        remaining = [name for name in self.list_commands(ctx) if name not in with_heading]
        width = formatter.width - 6 - max(map(len, self.import_paths))
        for heading, names in (*self.commands_by_heading.items(), ("Commands", remaining)):
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(width)) for name, command in commands]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=30)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program, if its standard output can be written.

        This is checked first: a command must not charge for answers that would be lost.
        """
        if sys.stdout is None:
            print_note("standard output is closed. Redirect it to a file, or to /dev/null.")
            sys.exit(BAD_INPUT)
        try:
            check_standard_output()
        except OSError as error:
            print_note(f"the output cannot be written: {error.strerror}.")
            sys.exit(BAD_INPUT)
        try:
            return super().main(*args, **extra)
        except OSError as error:  # also while help is shown, before any command
            _report_unnamed_error(error)
            sys.exit(BAD_INPUT)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; print an expected error as one line and exit with its code."""
        compile_watchers[:] = [make_compile_reporter()]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_note("interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except VicinalError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            message = insert_flags(str(error), command)
            if isinstance(error, OutputFailed):
                message += f" {_AFTER_LOST_OUTPUT.get(ctx.invoked_subcommand, '')}"
            print_note(" ".join(message.split()))
            code = REFUSED if isinstance(error, PrivacyRefused) else BAD_INPUT
            raise typer.Exit(code) from None
        except MemoryError:  # its text states sizes, which may be those of private records
            print_note(
                "there is not enough memory for this command. Process fewer rows at a time, or "
                "free memory."
            )
            raise typer.Exit(BAD_INPUT) from None
        except OSError as error:
            _report_unnamed_error(error)
            raise typer.Exit(BAD_INPUT) from None


def _report_unnamed_error(error: OSError) -> None:
    """Print one line on a failed read or write of an open file; raise any other error again.

    A broken pipe is raised too: click ends the program silently if the output's reader has gone.
    """
    if error.filename is not None or error.errno not in _UNNAMED_ERRNOS:
        raise error
    print_note(f"an input or output without a name cannot be used: {error.strerror}.")
    redirect_to_null(1)


def create_command_group(help_text: str) -> typer.Typer:
    """Return an empty group, such as `vicinal keys`, whose commands are added by its decorators."""
    # With a callback, a group of one command stays a group.
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        callback=lambda: None,
        **TYPER_ARGUMENTS,
    )


def _import_command(name: str, import_path: str) -> TyperCommand | TyperGroup:
    """Return the object at `import_path`, ``module:object``, as click's command called `name`."""
    module, _, attribute = import_path.partition(":")
    app = getattr(import_module(module), attribute)
    if not isinstance(app, typer.Typer):
        function = app
        app = typer.Typer(add_completion=False, **TYPER_ARGUMENTS)
        app.command(name, cls=getattr(function, "command_class", PanelCommand))(function)
    command = typer.main.get_command(app)
    command.name = name
    return command  # type: ignore[return-value]


_COMMANDS_OF_MODULE = {
    "audit": ("audit", "certificate", "receipt"),
    "_init": ("audience", "init"),
    "labelling": ("label", "student", "transfer"),
    "_machine": ("demo", "doctor"),
    "_outlook": ("plan",),
    "_plan": ("account", "calibrate", "smoothed"),
    "_schema": ("schema",),
    "_serving": ("keys", "serve", "shard"),
    "_store": (
        *("add", "allow", "backup", "erase", "evaluate", "export-guarantee", "inspect"),
        *("predict", "refresh", "restore", "verify"),
    ),
}


class Commands(CommandGroup):
    """The commands of `vicinal`."""

    import_paths: ClassVar = {
        name: f"vicinal.cli.{module}:{name.replace('-', '_')}"
        for module, names in _COMMANDS_OF_MODULE.items()
        for name in names
    }
    commands_by_heading: ClassVar = {
        "Start here": ("demo", "doctor"),
        "Create a store and query it": ("schema", "init", "predict", "evaluate"),
        "Change the records": ("add", "erase", "refresh"),
        "Run a service": ("serve", "keys", "audience", "allow"),
        "Maintain a store": ("inspect", "verify", "backup", "restore", "shard"),
        "Plan before you spend": ("plan", "account", "calibrate", "smoothed"),
        "Show that it is private": ("export-guarantee", "audit", "certificate", "receipt"),
        "Publish a model": ("transfer", "label", "student"),
    }


_SUMMARY = "Differentially private prediction by nearest neighbours."

app = typer.Typer(
    cls=Commands,
    help=_SUMMARY,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **TYPER_ARGUMENTS,
)


def _show_version(requested: bool) -> None:
    """Print the version and end the program, if --version was `requested`."""
    if requested:
        typer.echo(f"vicinal {__version__}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
]


@app.callback(help=_SUMMARY)
def _accept_program_options(version: _Version = False) -> None:
    """Declare the options of the program itself; the version's callback handles it."""
