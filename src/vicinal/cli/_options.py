"""Options that several commands have, each declared once, and groups of them as dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The store's folder.")]
Epsilon = Annotated[float, typer.Option(help="Bound on the privacy loss.")]
Delta = Annotated[float, typer.Option(help="Chance that the bound does not hold.")]
Data = Annotated[
    Path, typer.Option(help="Records: .parquet, .csv, .csv.gz, .npz, or a folder of images.")
]
Label = Annotated[str | None, typer.Option(help="Column of labels.")]
Subject = Annotated[str | None, typer.Option(help="Column of subject ids.")]
Audience = Annotated[str, typer.Option(help="Whose budgets and whose plan.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Leave out summaries and guarantee.")]
Ledger = Annotated[
    str | None, typer.Option(help="Keep budgets at this postgresql:// URL; default: SQLite.")
]
Witness = Annotated[
    Path | None, typer.Option(help="File that remembers how far the store came; on another disk.")
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in whose place each dataclass that it takes stands with its fields.

    The names of all parameters and fields must differ.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)
    }

    @functools.wraps(command)
    def run(**options: Any) -> None:
        for name, kind in groups.items():
            fields = [each.name for each in dataclasses.fields(kind)]
            options[name] = kind(**{field: options.pop(field) for field in fields})
        command(**options)

    parameters = [*_expanded(inspect.signature(command), hints)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _expanded(signature: inspect.Signature, hints: dict[str, Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command, fields in the place of dataclasses; all by keyword."""
    for name, each in signature.parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            continue
        of_fields = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            missing = field.default is dataclasses.MISSING
            default = inspect.Parameter.empty if missing else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default,
                annotation=of_fields[field.name],
            )  # fmt: skip
