"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

_HEAD = """# Commands

`vicinal COMMAND --help` prints what stands here. Exit codes: 0 done, 1 not as claimed (`audit`,
`verify`), 2 bad usage or input, 3 refused for privacy, 4 inconclusive (`audit`), 130 interrupted.

"""


def pages(root: Path) -> Iterator[tuple[str, str]]:  # noqa: ARG001 (every part has this signature)
    """Yield the page of all commands."""
    from vicinal.cli.main import app

    yield "commands.md", _HEAD + "".join(_group(typer.main.get_command(app), "vicinal"))


def _group(group: Any, name: str) -> Iterator[str]:
    for verb in group.list_commands(None):
        command = group.get_command(None, verb)
        if hasattr(command, "list_commands"):
            yield from _group(command, f"{name} {verb}")
        elif not command.hidden:
            yield _command(command, f"{name} {verb}")


def _command(command: Any, name: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([name, *(_metavar(argument) for argument in arguments), "[OPTIONS]"])
    rows = [_row(_metavar(p), p) for p in arguments]
    rows += [_row(", ".join([*p.opts, *p.secondary_opts]), p) for p in options]
    table = "| | | default |\n|---|---|---|\n" + "".join(rows)
    return f"## {name}\n\n{_plain(command.help)}\n\n```text\n{usage}\n```\n\n{table}\n"


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return f"{name}" if argument.required else f"[{name}]"


def _row(name: str, parameter: Any) -> str:
    needed = "needed" if parameter.required else _default(parameter.default)
    return f"| `{name}` | {_cell(parameter.help or '')} | {needed} |\n"


def _default(value: Any) -> str:
    if value is None or value is False or value == () or callable(value):
        return ""
    if isinstance(value, list | tuple):
        return f"`{','.join(map(str, value))}`" if value else ""
    return f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _plain(text: str | None) -> str:
    return (text or "").replace("<", "&lt;")
