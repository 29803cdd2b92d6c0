"""`vicinal schema`: draft the public schema of a table, and check a table against it."""

from __future__ import annotations

import json as jsonlib
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._options import Json
from vicinal.cli._output import as_json, write_file
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.datasets import Coincidences
    from vicinal.features import Misfit, TableSchema


def schema(
    public: Annotated[
        Path | None,
        typer.Argument(metavar="[PUBLIC]", help="Public table to draft from: .parquet, .csv."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the draft to this file.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="The owner's table: say what of it will not fit.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="The schema to check against.")] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Public reference: say how many of its rows equal one of the owner's."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of labels, or several with semicolons: no features.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Column of subject ids: no feature.")] = None,
    json: Json = False,
) -> None:
    """Draft a schema from a public table; or, with --check, tell an owner what does not fit."""
    labels = [] if label is None else label.split(";")
    apart = [*labels, *([] if subject is None else [subject])]
    if (public is None) == (check is None):
        raise InvalidInput("Give either a public table to draft from, or --check DATA.")
    if check is not None:
        _check(check, schema, reference, apart, json=json)
    elif public is not None:
        _draft(public, out, apart)


def _draft(public: Path, out: Path | None, apart: list[str]) -> None:
    from vicinal.datasets import read_table
    from vicinal.features import draft_schema

    drafted, notes = draft_schema(read_table(public), apart)
    text = jsonlib.dumps(drafted.to_dict(), indent=2, ensure_ascii=False) + "\n"
    for note in notes:
        typer.echo(note, err=True)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_file(out, text)
    typer.echo(
        f"{out}: {len(drafted.columns)} columns with features. Look through bounds, kinds and "
        "values: they are public, and the table's own.",
        err=True,
    )


def _check(
    data: Path, schema: Path | None, reference: Path | None, apart: list[str], *, json: bool
) -> None:
    from vicinal.datasets import read_table
    from vicinal.features import TableSchema, check_table

    if reference is not None and schema is None:
        raise InvalidInput("The 'reference' option needs --schema.")

    declared = None if schema is None else TableSchema.load(schema).usable()
    if declared is not None:
        declared.refuse(apart, "labels or subjects")
    table = read_table(data)
    misfits = check_table(table, declared, apart)
    stops = any(misfit.stops for misfit in misfits)
    shared = None
    if reference is not None and declared is not None and not stops:
        shared = _shared(declared, table, read_table(reference))
    if json:
        counted = None if shared is None else {**asdict(shared), "suspicious": shared.suspicious}
        typer.echo(as_json({**_plain(misfits, fits=not stops), "coincidences": counted}))
    else:
        typer.echo(_report(data, misfits))
        typer.echo("" if shared is None else str(shared), nl=shared is not None)
    if stops:
        raise InvalidInput(f"{data} does not fit. Mend what is marked, or edit the schema.")


def _shared(schema: TableSchema, table: Any, reference: Any) -> Coincidences:
    """Compare what the schema sees of two tables."""
    from vicinal.datasets import coincidences
    from vicinal.features import TableFeatures

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the check has told of further columns
        private, public = map(TableFeatures(schema).transform, (table, reference))
    return coincidences(private, public)


def _report(data: Path, misfits: list[Misfit]) -> str:
    if not misfits:
        return f"{data} fits."
    lines = ["For the owner of the table only: counts of rows are private."]
    return "\n".join([*lines, *(f"{'MEND' if m.stops else 'note'}  {m}" for m in misfits)])


def _plain(misfits: list[Misfit], *, fits: bool) -> dict[str, Any]:
    listed = [
        {"column": m.column, "what": m.fault, "rows": m.rows, "fix": m.fix, "stops": m.stops}
        for m in misfits
    ]
    return {"private": True, "fits": fits, "misfits": listed}
