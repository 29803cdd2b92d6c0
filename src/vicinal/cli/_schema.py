"""`vicinal schema`: draft a schema from a public table, or check a private table against one.

Of the options, `out` and `csv_options` are for drafts alone; `schema`, `reference`, `classes`,
`curator` and `json` for checks alone.
"""

from __future__ import annotations

import json as jsonlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from vicinal.cli.options import Json, expand_groups, parse_class_names
from vicinal.cli.output import as_json, check_outputs, echo, print_note, write_file
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    from vicinal.datasets.coincidences import Coincidences
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_features import Misfit
    from vicinal.features.table_schema import TableSchema

_MAX_SHOWN = 20  # column names of an error and row numbers of a misfit that are printed


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """Format of a public CSV file."""

    delimiter: Annotated[str | None, Option(help="Field separator. Default: detected.")] = None
    decimal: Annotated[str | None, Option(help="Decimal mark. Default: detected.")] = None
    encoding: Annotated[str | None, Option(help="Encoding. Default: detected.")] = None
    quote: Annotated[str, Option(help="Character around fields. Not detected. Empty: none.")] = '"'
    escape: Annotated[str, Option(help="Character that escapes a quote, such as \\.")] = ""
    comment: Annotated[str, Option(help="Start of comment lines, such as #. Not detected.")] = ""

    def detect_form(self, public: Path) -> CsvForm:
        """Return the format of the file `public`, detected as far as the options leave it open."""
        from vicinal.datasets.tables import detect_csv_format
        from vicinal.features.csv_form import CsvForm

        marks = CsvForm(quote=self.quote, escape=self.escape, comment=self.comment)
        return detect_csv_format(public, self.delimiter, self.decimal, self.encoding, marks)


@expand_groups
def schema(
    *,
    public: Annotated[
        Path | None, Argument(metavar="[PUBLIC]", help="Public table: .parquet, .csv or .xlsx.")
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write the draft to this file.")] = None,
    csv_options: CsvOptions,
    check: Annotated[Path | None, Option(help="Private table to compare with --schema.")] = None,
    schema: Annotated[Path | None, Option(help="Schema to check the table against.")] = None,
    reference: Annotated[
        Path | None, Option(help="Public table: count its rows that equal a private row.")
    ] = None,
    label: Annotated[
        list[str] | None, Option(help="Column of labels; several, by semicolons or repeated.")
    ] = None,
    target: Annotated[
        list[str] | None,
        Option(help="Numbers to predict, as for init.", metavar="NAME=LOW..HIGH,..."),
    ] = None,
    classes: Annotated[list[str] | None, Option(help="Class names, to check the labels.")] = None,
    subject: Annotated[str | None, Option(help="Column of subject ids.")] = None,
    curator: Annotated[bool, Option("--curator", help="List the row numbers. Private.")] = False,
    json: Json = False,
) -> None:
    """Describe a public table, or check a private one."""
    from vicinal.datasets.tables import normalize_column_name
    from vicinal.features.table_features import check_table

    label_names = label[0].split(";") if label and len(label) == 1 else label or []
    if target:
        if label or classes:
            raise InvalidInput(
                "The --target option is for numbers: leave out --label and --classes."
            )
        label_names = _parse_target_names(target)
    labels = [normalize_column_name(name) for name in label_names]
    subject = None if subject is None else normalize_column_name(subject)
    role_columns = [*labels, *([] if subject is None else [subject])]
    if len(set(role_columns)) != len(role_columns):
        raise InvalidInput(
            "The --label and --subject options must name different columns, each once: a column "
            "has one role."
        )
    if public is not None and check is None:
        check_outputs({"out": out}, {"PUBLIC": public})
        _draft_schema_file(public, csv_options.detect_form(public), labels, role_columns, out)
        return
    if check is None or public is not None:
        raise InvalidInput("Give either a public table to draft from, or --check DATA.")
    if schema is None:
        raise InvalidInput("The 'check' option needs a --schema to check the table against.")
    class_names = parse_class_names(classes) if classes else None
    number_labels = labels if target or len(labels) > 1 else []  # several labels are 0 and 1
    declared, table = _read_private_table(check, schema, number_labels, role_columns)
    class_labels = [name for name in labels if name not in number_labels]
    misfits = check_table(table, declared, class_labels, subject, class_names, number_labels)
    is_refused = any(misfit.stops for misfit in misfits)
    coincidences = None
    if reference is not None and not is_refused:
        coincidences = _find_coincidences(table, reference, declared)
    _print_schema_check(check, misfits, coincidences, curator=curator, json=json)
    if is_refused:
        raise InvalidInput(
            f"{check} does not fit the schema. Correct the errors, or edit the schema."
        )


def _parse_target_names(texts: Sequence[str]) -> list[str]:
    """Return the names of the targets in --target, whose bounds are checked as `init` does."""
    from vicinal.parameters import split_list
    from vicinal.targets.numbers import BoundsOfTargets

    check = BoundsOfTargets()
    items = [item for text in texts for item in split_list(text)]
    return list(check("target", check.parse_items(items)).names or ())


def _read_private_table(
    path: Path, schema: Path, number_labels: Sequence[str], role_columns: Sequence[str]
) -> tuple[TableSchema, pa.Table]:
    """Return the schema and the private table from their files `schema` and `path`.

    The schema must not describe `role_columns`, those of labels and subject ids. `number_labels`:
    the columns of labels that are numbers.
    """
    from vicinal.datasets.tables import read_table
    from vicinal.features.table_schema import TableSchema

    declared = TableSchema.load(schema).require_features()
    declared.refuse_features(role_columns)
    number_columns = {*filter(declared.reads_numbers, declared.names), *number_labels}
    return declared, read_table(path, declared.file, number_columns.__contains__)


def _find_coincidences(table: pa.Table, reference: Path, table_schema: TableSchema) -> Coincidences:
    """Return the number of rows of a public file that equal a private row; private.

    `table`: the private table. `reference`: the public file. `table_schema`: of both tables.
    """
    from vicinal.datasets.coincidences import count_shared_rows
    from vicinal.datasets.tables import detect_csv_format, read_table
    from vicinal.features.table_features import TableFeatures

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the check has reported further columns
        transform = TableFeatures(table_schema).transform
        form = detect_csv_format(reference, base_format=table_schema.file)
        points = read_table(reference, form, table_schema.reads_numbers)
        return count_shared_rows(transform(table), transform(points))


def _draft_schema_file(
    public: Path,
    form: CsvForm,
    label_columns: Sequence[str],
    role_columns: Sequence[str],
    out: Path | None,
) -> None:
    """Draft a schema from a public table, and write it to the file `out`; None writes to stdout.

    `public`: file of the table. `form`: its format if it is a CSV file. `label_columns`: columns
    given as labels, which must be present. `role_columns`: all columns of labels and subject ids,
    which are no features.
    """
    from vicinal.datasets.tables import read_table
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_drafts import draft_schema

    table = read_table(public, form)
    columns = table.column_names
    for name in label_columns:
        if name not in columns:
            raise InvalidInput(
                f"The 'label' option must name a column of {public}, or be left out. There is "
                f"no {name!r}, only {_list_first(columns)}."
            )
    rows = [str(row) for row in table.column(0).to_pylist()] if len(columns) == 1 else [""]
    # Every row has a delimiter, yet one column was found: the first line is probably a title.
    if any(all(mark in row for row in rows) for mark in ",;\t|"):
        print_note("only the first line has no delimiters. Delete a title; declare --comment.")
    drafted, notes = draft_schema(table, role_columns, form)
    if drafted.file != CsvForm():
        echo(
            f"The file has {drafted.file}; private files are read the same way. To change that, "
            "use --delimiter, --decimal, --encoding, --quote, --escape or --comment.",
            err=True,
        )
    for note in notes:
        echo(note, err=True)
    text = jsonlib.dumps(drafted.to_dict(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        echo(text, nl=False)
        return
    write_file(out, text)
    echo(
        f"Wrote {out} with {len(drafted.columns)} feature columns. Check its kinds, bounds and "
        "values before you use it: they come from the table, and they become public. If a column "
        "is the label or an id, draft again with --label or --subject.",
        err=True,
    )


def _print_schema_check(
    path: Path,
    misfits: Sequence[Misfit],
    coincidences: Coincidences | None,
    *,
    curator: bool,
    json: bool,
) -> None:
    """Print the result of a check of the private table at `path`, as text or as `json`.

    Row numbers, which are private, are printed for the `curator` only. `misfits`: errors and notes
    from the comparison with the schema. `coincidences`: rows of a public table that equal a private
    row; None without a public table.
    """
    if json:
        result = {
            "private": True,
            "fits": not any(misfit.stops for misfit in misfits),
            "misfits": [
                {
                    **asdict(misfit),
                    "rows": misfit.rows and len(misfit.rows),
                    **({"at": misfit.rows} if curator else {}),
                }
                for misfit in misfits
            ],
            "coincidences": coincidences
            and {**asdict(coincidences), "suspicious": coincidences.suspicious},
        }
        echo(as_json(result))
        return
    lines = ["Show this only to the owner of the table, because the numbers of rows are private."]
    for misfit in misfits:
        lines.append(f"{'error' if misfit.stops else 'note'}: {misfit}")
        if curator and misfit.rows:
            lines.append(f"      rows {_list_first(misfit.rows)}")
    if curator:
        lines.append("Row 1 is the first row below the header. Use --json to list all rows.")
    echo("\n".join(lines) if misfits else f"{path} fits.")
    if coincidences is not None:
        echo(str(coincidences))


def _list_first(items: Sequence[object]) -> str:
    """Return the first :data:`_MAX_SHOWN` of `items` as text, and an ellipsis if there are more."""
    ellipsis = ", ..." if len(items) > _MAX_SHOWN else ""
    return ", ".join(map(str, items[:_MAX_SHOWN])) + ellipsis
