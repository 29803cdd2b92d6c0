"""`vicinal schema`, `init` and `audience`: describe a table, make a store, add a further plan."""

from __future__ import annotations

import json as jsonlib
import math
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option, echo

from vicinal.cli import options
from vicinal.cli._outlook import show_outlook
from vicinal.cli._reference import FROM_SCHEMA, FeatureOptions, ReferenceOptions
from vicinal.cli.output import (
    as_json,
    check_outputs,
    in_paragraphs,
    progress_shown,
    warnings_said,
    write_file,
)
from vicinal.cli.records import naming, opened_at, read_records, target_columns
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_schema import TableSchema
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.store.store_schema import StoreExtractor
    from vicinal.targets.target import Target

_ROWS_SHOWN = 20
_SOME_ROWS = 300  # of a reference that was not read yet: enough for a private model
_EVERY_ROW = (
    "without --subject, every row counts as a person of its own. Somebody with several rows is not "
    "protected as one person, and nobody can be erased by id."
)
_MADE_UP = (
    "rows made up from a schema lie further apart than real ones, so more records take part in an "
    "answer than planned. On five tables this cost neighbours alone up to .09 of AUC, and a "
    "private model beside them up to .012. Use --model-share auto."
)
_MADE_UP_BESIDE_MODEL = (
    "rows made up from a schema cost a private model up to .012 of AUC on five tables."
)


@options.grouped
def init(  # noqa: PLR0915 (imports among them)
    ctx: typer.Context,
    store: options.StorePath,
    data: options.Data,
    *,
    label: options.Label = None,
    subject: options.Subject = None,
    ids_differ: options.IdsDiffer = False,
    feature_options: FeatureOptions,
    reference_options: ReferenceOptions,
    ledger: options.Ledger = None,
    witness: options.Witness = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    epsilon_total: Annotated[
        float | None, Option(help="Limit on epsilon over all audiences together. Default: none.")
    ] = None,
    renewal_options: options.RenewalOptions,
    yes: options.AcceptWeakPlan = False,
    dry_run: options.DryRun = False,
) -> None:
    """Make a store from private records. Prints its guarantee.

    For example: vicinal init store --data patients.parquet --label diagnosis --subject patient
    --features table --schema schema.json --public volunteers.parquet --classes healthy,ill
    """
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.store.folder import free_witness
    from vicinal.store.store import NewStore
    from vicinal.targets.kinds import declared_target

    reference_options.check(feature_options.features, data)
    free_witness(store, witness)
    plan, renew = options.plan_given(ctx), renewal_options.renewal()
    target = declared_target(plan)
    # Every value is checked before anything is said or read.
    periods = 1 if renew is None else renew.periods
    checked = IndKNNPlan.of_target(target, plan).changed(periods=periods)
    if reference_options.public is None and reference_options.reference is None:
        _check_without_public(checked)
    columns_of_y = target_columns(target, label)
    plain = feature_options.extractor(reference_options.public, [label, subject, *columns_of_y])
    _check_names_of_columns(plain, data)
    with warnings_said(), progress_shown(silent=json or quiet):
        if not (quiet or dry_run) and target.voted:
            made_up = reference_options.reference == FROM_SCHEMA
            made_up = made_up and feature_options.features == "table"
            beside = made_up or reference_options.public is not None
            _say_before(checked.settled(_SOME_ROWS if beside else 0), made_up=made_up)
        dataset = read_records(data, plain, label, subject, columns_of_y)
        if dataset.subjects is None:
            _say([_EVERY_ROW])
        labelled = dry_run and target.voted and reference_options.has_column(label, plain)
        extractor, points, labels = feature_options.read(
            reference_options, plain, label if labelled else None
        )
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            rows = dataset.features, dataset.labels, dataset.subjects
            new = NewStore.checked(
                (store, ledger, witness), rows, points, extractor, plan, ids_differ=ids_differ,
                epsilon_total=epsilon_total, accept_weak_plan=yes, renew=renew,
            )  # fmt: skip
            if dry_run:
                show_outlook(new.plan, points, labels, costs=renewal_options.words, json=json)
                return
            opened = new.made()
        with opened:
            facts = opened.facts()
            if json:
                echo(as_json(facts))
            elif not quiet:
                size = 0 if points is None else len(points)
                stated = in_paragraphs(opened.guarantee())
                echo(f"{_summary(store, facts, target, size)}\n\n{stated}")


init.command_class = options.PlanCommand  # type: ignore[attr-defined]


@options.grouped
def audience(
    ctx: typer.Context,
    store: options.StorePath,
    name: Annotated[str, Argument(help="Name of the new audience.")],
    *,
    renewal_options: options.RenewalOptions,
    accept_loss: options.AcceptLoss = False,
    yes: options.AcceptWeakPlan = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
) -> None:
    """Open further budgets for a group of its own."""
    plan = {"renew": renewal_options.renewal(), **options.plan_given(ctx)}
    with opened_at(store, accept_loss=accept_loss, reading=dry_run) as opened:
        if dry_run:
            planned = opened.audience_plan(name, accept_weak_plan=yes, **plan)
            show_outlook(planned, opened.schema.public, costs=renewal_options.words, json=json)
            return
        opened.open_audience(name, accept_weak_plan=yes, **plan)
        guarantee = opened.guarantee(name)
    echo(as_json(guarantee.to_dict()) if json else in_paragraphs(guarantee))


audience.command_class = options.AudiencePlanCommand  # type: ignore[attr-defined]


def _check_without_public(plan: IndKNNPlan) -> None:
    try:
        plan.check_kernel(has_public=False)
    except InvalidInput as error:
        raise InvalidInput(
            "The 'public' option must name a file of public rows: the same columns, without labels "
            "and ids. If you have none, use --reference from-schema with --features table."
        ) from error


def _check_names_of_columns(extractor: StoreExtractor, data: Path) -> None:
    """Refuse a table without names for its features: later tables could have another order."""
    is_table = not data.is_dir() and data.suffix != ".npz"
    if extractor.kind == "columns" and extractor.columns is None and is_table:
        raise InvalidInput(
            "The 'columns' option must name the feature columns, because there is no --public "
            "table that names them. Queries and added records are put into that order by name."
        )


def _say(lines: list[str]) -> None:
    for line in lines:
        echo(f"vicinal: {line}", err=True)


def _say_before(plan: IndKNNPlan, *, made_up: bool) -> None:
    """Tell what is known of a plan for classes before anything is read.

    `made_up`: whether the reference's rows are made up from a schema.
    """
    from vicinal.reports.plan_report import assess_plan

    _say(assess_plan(plan, brief=True))
    if made_up:
        expected = _MADE_UP_BESIDE_MODEL if plan.model_share else _MADE_UP
        _say([
            f"{expected} If you have past queries, pass them as --public: queries are public."
        ])  # fmt: skip


def _summary(store: Path, facts: dict[str, Any], target: Target, n_reference: int) -> str:
    plan, made_of = facts["audiences"]["default"]["plan"], facts["features"]
    multiplier, count = plan.get("noise_multiplier"), plan.get("n_neighbors")
    votes = ""
    if multiplier is not None and count is not None:
        noise = multiplier * math.sqrt(count)
        votes = f"; about {count} neighbours per query, and noise of {noise:.1f} votes"
    lines = [
        f"Made {store} for {plan['n_queries']} answers of {target.described()}.",
        f"{made_of['number']} features ({made_of['kind']}), {n_reference} public rows.",
        f"Epsilon {plan['epsilon']:g}, delta {plan['delta']:g}{votes}.",
    ]
    if "model_share" in plan and not plan["model_share"]:
        lines.append("The store has no private model.")
    elif "model_share" in plan:
        lines.append(
            f"A private model was trained with at most {plan['model_share']:.0%} of each budget. "
            "Erasing a subject does not\nchange it. To have none, use --model-share 0."
        )
    return "\n".join(lines)


def schema(
    public: Annotated[
        Path | None, Argument(metavar="[PUBLIC]", help="Public table: .parquet, .csv or .xlsx.")
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write the draft to this file.")] = None,
    delimiter: Annotated[
        str | None, Option(help="Field separator of a CSV file. Default: detected in PUBLIC.")
    ] = None,
    decimal: Annotated[str | None, Option(help="Its decimal mark. Default: detected.")] = None,
    encoding: Annotated[str | None, Option(help="Its encoding. Default: detected.")] = None,
    check: Annotated[
        Path | None, Option(help="Private table: report what in it does not fit --schema.")
    ] = None,
    schema: Annotated[Path | None, Option(help="Schema to check the table against.")] = None,
    reference: Annotated[
        Path | None,
        Option(help="Public table: report how many of its rows equal a row of the private one."),
    ] = None,
    quote: Annotated[
        str, Option(help="Its character around fields. Empty: none. It is not detected.")
    ] = '"',
    escape: Annotated[
        str, Option(help="Its character before one that means itself, such as a backslash.")
    ] = "",
    comment: Annotated[
        str, Option(help="What begins its lines that are comments, such as #. It is not detected.")
    ] = "",
    label: Annotated[
        list[str] | None,
        Option(help="Column of labels, or several: separated by semicolons, or repeat the option."),
    ] = None,
    classes: Annotated[
        list[str] | None, Option(help="All class names, as in init, to check the labels against.")
    ] = None,
    subject: Annotated[str | None, Option(help="Column of subject ids.")] = None,
    curator: Annotated[
        bool, Option("--curator", help="List the rows that do not fit. The list is private.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Describe a public table, or check a private one."""
    from vicinal.datasets.tables import column_name, csv_form, read_table
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_features import check_table
    from vicinal.features.table_schema import TableSchema
    from vicinal.parameters import ClassNames

    given_labels = label or []
    labels = given_labels[0].split(";") if len(given_labels) == 1 else given_labels
    labels = [column_name(name) for name in labels]
    subject = None if subject is None else column_name(subject)
    apart = [*labels, *([] if subject is None else [subject])]
    if len(set(apart)) != len(apart):
        raise InvalidInput(
            "The --label and --subject options must name different columns, each once: a column "
            "has one role."
        )
    if (public is None) == (check is None):
        raise InvalidInput("Give either a public table to draft from, or --check DATA.")
    if public is not None:
        check_outputs({"out": out}, {"PUBLIC": public})
        marks = CsvForm(quote=quote, escape=escape, comment=comment)
        form = csv_form(public, delimiter, decimal, encoding, marks)
        _write_draft(public, form, labels, apart, out)
        return
    assert check is not None  # noqa: S101 (one of the two)
    if schema is None:
        raise InvalidInput("The 'check' option needs a --schema to check the table against.")
    names = ClassNames()("classes", ClassNames().parsed_option(classes)) if classes else None
    declared = TableSchema.load(schema).usable()
    declared.refuse(apart, "labels or subjects")
    numeric = {*filter(declared.reads_numbers, declared.names), *(labels if labels[1:] else ())}
    table = read_table(check, declared.file, numeric.__contains__)
    class_names = None if names is None else names.tolist()
    misfits = check_table(table, declared, labels, subject, class_names)
    stops = any(misfit.stops for misfit in misfits)
    shared = None if reference is None or stops else _shared_rows(table, reference, declared)
    _show_check(check, misfits, shared, curator=curator, json=json)
    if stops:
        raise InvalidInput(
            f"{check} does not fit the schema. Correct the errors, or edit the schema."
        )


def _shared_rows(table: Any, reference: Path, declared: TableSchema) -> Any:
    """Return how many rows of a public table equal a row of the private one. Private."""
    from vicinal.datasets.coincidences import compare_rows
    from vicinal.datasets.tables import csv_form, read_table
    from vicinal.features.table_features import TableFeatures

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the check has told of further columns
        transform = TableFeatures(declared).transform
        form = csv_form(reference, marks=declared.file)
        points = read_table(reference, form, declared.reads_numbers)
        return compare_rows(transform(table), transform(points))


def _write_draft(
    public: Path, form: CsvForm, labels: list[str], apart: list[str], out: Path | None
) -> None:
    """Draft a schema from a public table, and write it to a file or to stdout."""
    from vicinal.datasets.tables import read_table
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_drafts import draft_schema

    table = read_table(public, form)
    columns = table.column_names
    for name in labels:
        if name not in columns:
            more = ", ..." if len(columns) > _ROWS_SHOWN else ""
            raise InvalidInput(
                f"The 'label' option must name a column of {public}, or be left out. There is "
                f"no {name!r}, only {', '.join(columns[:_ROWS_SHOWN])}{more}."
            )
    rows = [str(row) for row in table.column(0).to_pylist()] if len(columns) == 1 else [""]
    if any(all(mark in row for row in rows) for mark in ",;\t|"):
        _say(["only the first line has no delimiters. Delete a title; declare --comment."])
    drafted, notes = draft_schema(table, apart, form)
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


def _show_check(data: Path, misfits: list[Any], shared: Any, *, curator: bool, json: bool) -> None:
    stops = any(misfit.stops for misfit in misfits)
    if json:
        listed = [asdict(m) | {"rows": m.rows and len(m.rows)} for m in misfits]
        if curator:
            listed = [each | {"at": m.rows} for each, m in zip(listed, misfits, strict=True)]
        suspected = shared and {**asdict(shared), "suspicious": shared.suspicious}
        result = {"private": True, "fits": not stops, "misfits": listed, "coincidences": suspected}
        echo(as_json(result))
        return
    lines = ["Show this only to the owner of the table, because the numbers of rows are private."]
    for m in misfits:
        lines.append(f"{'error' if m.stops else 'note'}: {m}")
        if curator and m.rows:
            more = ", ..." if len(m.rows) > _ROWS_SHOWN else ""
            lines.append(f"      rows {', '.join(map(str, m.rows[:_ROWS_SHOWN]))}{more}")
    if curator:
        lines.append("Row 1 is the first row below the header. Use --json to list them all.")
    echo("\n".join(lines) if misfits else f"{data} fits.")
    if shared is not None:
        echo(str(shared))
