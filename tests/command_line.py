"""Commands as their users call them, in this process."""

import click
from typer.main import get_command
from typer.testing import CliRunner

from vicinal.cli.main import app


def invoked(*arguments, code=0, program=app, stdin=None):
    """Return what became of a command that ends with an exit code."""
    result = CliRunner().invoke(program, [str(each) for each in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def printed(*arguments, code=0, program=app):
    """Return what a command prints; of one that is refused also what it says of that."""
    result = invoked(*arguments, code=code, program=program)
    return result.stdout if code == 0 else result.output


def shown(*arguments, code=0, program=app):
    """Return all that a command shows: what it prints, and what it says beside that."""
    return invoked(*arguments, code=code, program=program).output


def commands(program, path="vicinal"):
    """Yield all commands of a program, or below a group of them, with their full names."""
    group = program if hasattr(program, "list_commands") else get_command(program)
    for name in group.list_commands(context := click.Context(group)):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command
