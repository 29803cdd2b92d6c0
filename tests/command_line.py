"""Commands as their users call them: in this process, or in one of their own."""

import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from typer.main import get_command
from typer.testing import CliRunner

from vicinal.cli.main import app


def invoked(*arguments, code=0, program=app, stdin=None, **options):
    """Return the result of a command, which must end with an exit code.

    `options`: `model_share=0` is `--model-share 0`, True a flag without a value, and a list the
    same option once for each item.
    """
    words = [*arguments, *option_words(**options)]
    result = CliRunner().invoke(program, [str(word) for word in words], input=stdin)
    assert result.exit_code == code, result.output
    return result


def printed(*arguments, code=0, **more):
    """Return the standard output of a command; for one that is refused, all that it shows."""
    result = invoked(*arguments, code=code, **more)
    return result.stdout if code == 0 else result.output


def shown(*arguments, **more):
    """Return all that a command shows, on standard output and on standard error."""
    return invoked(*arguments, **more).output


def option_words(**options):
    """Return the words of command-line options, as `invoked` takes them."""
    words = []
    for name, value in options.items():
        for item in value if isinstance(value, list) else [value]:
            words += ["--" + name.replace("_", "-"), *([] if item is True else [item])]
    return words


def run_vicinal(*arguments, **options):
    """Return a finished process of the program, with its outputs as text."""
    return run_python("-m", "vicinal", *arguments, **options)


def run_python(*arguments, **options):
    """Return a finished process of Python, with its outputs as text.

    `options`: of `subprocess.run`; an output that they do not redirect is captured.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, text=True, check=False, **{**streams, **options})


def make_table(features, **columns):
    """Return an Arrow table of features (n, d) called a, b, c, ..., and of further columns."""
    names = "abcdefghij"[: np.shape(features)[1]]
    return pa.table({**dict(zip(names, np.transpose(features), strict=True)), **columns})


def write_table(path, features, **columns):
    """Write the table of `make_table` as .csv or .parquet, and return its path."""
    table = make_table(features, **columns)
    if Path(path).suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    return path


def commands(program, path="vicinal"):
    """Yield all commands of a program, or below a group of them, with their full names."""
    group = program if hasattr(program, "list_commands") else get_command(program)
    for name in group.list_commands(context := click.Context(group)):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command
