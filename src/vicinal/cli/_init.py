"""`vicinal schema`, `init` and `audience`: describe a table, make a store, add a further plan."""

from __future__ import annotations

import json as jsonlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option, echo

from vicinal import datasets, features, planning, predictors, targets
from vicinal import store as stores
from vicinal.cli._options import (
    AcceptLoss,
    AcceptWeakPlan,
    AudiencePlanCommand,
    Data,
    Json,
    Label,
    Ledger,
    PlanCommand,
    Quiet,
    StorePath,
    Subject,
    Witness,
    grouped,
    plan_given,
)
from vicinal.cli._output import as_json, progress_shown, warnings_said, write_file
from vicinal.cli._plan import linear_model_lines, verdict_lines
from vicinal.cli._records import naming, opened_at, read_records, spread, target_columns
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray, FloatMatrix

FROM_SCHEMA = "from-schema"

FEW_ROWS = 50
"""Fewer reference rows place a neighbourhood's border too roughly to be of use."""

_SHOWN = 5
_ROWS_SHOWN = 20
_SOME_ROWS = 300  # of a reference that was not read yet: enough for a private model
_EVERY_ROW = (
    "without --subject every row is a person: nobody with several rows is protected as one person, "
    "and nobody can be erased by id."
)
_MADE_UP = (
    "made-up rows lie further apart than real ones, so more records take part in an answer "
    "than planned: neighbours alone lost up to .09 of AUC by it, a private model beside them "
    "up to .012. Take --model-share auto."
)
_MADE_UP_BESIDE_MODEL = (
    "made-up rows cost a private model up to .012 of AUC, measured on five questions."
)


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """What makes the vectors of a store."""

    columns: Annotated[
        str | None, Option(help="Feature columns, comma-separated; default: all others.")
    ] = None
    schema: Annotated[
        Path | None, Option(help="The table's public schema, for --features table.")
    ] = None
    features: Annotated[
        str,
        Option(
            help="columns, table, hog, scattering, image, text or onnx: what makes the vectors."
        ),
    ] = "columns"
    model: Annotated[
        str | None, Option(help="For text the folder of a model, for onnx the file. Public.")
    ] = None
    components: Annotated[
        int | None,
        Option(
            help="Reduce features to so many by a map learnt from the reference; 0: none. "
            "Default: 100 for tables, else none."
        ),
    ] = None
    power: Annotated[
        float, Option(help="How much of each component's strength the map takes away.")
    ] = 0.5

    def extractor(self, public: Path | None, others: Sequence[str | None]) -> stores.StoreExtractor:
        """Return the extractor; `others` are the columns that hold no features.

        It knows its columns by name, from the public file if not from options. The private file's
        own header is never taken: where there is none, it is somebody's record.
        """
        from vicinal._parameters import listed

        options: dict[str, Any] = {}
        if self.model is not None:
            options["model"] = self.model
        if self.schema is not None:
            schema = features.TableSchema.load(self.schema).usable()
            schema.refuse(others, "labels or subjects")
            options["schema"] = schema.to_dict()
        columns = None if self.columns is None else listed(self.columns)
        named = public is not None and not public.is_dir() and public.suffix != ".npz"
        if columns is None and self.features == "columns" and public is not None and named:
            names = datasets.read_table(public).column_names
            columns = [name for name in names if name not in others]
        return stores.StoreExtractor(self.features, options, None, columns)

    def reference_points(
        self, rows: Any, extractor: stores.StoreExtractor
    ) -> tuple[stores.StoreExtractor, AnyArray | None]:
        """Return the extractor, with a map learnt from public rows if wanted, and their features.

        Unless told, table features go through one if there are enough public rows to learn it.
        """
        components = self.components
        if rows is None:
            if components:
                raise InvalidInput(
                    "The 'components' option needs a reference to learn the map from."
                )
            return extractor, None
        if components is None:
            points = extractor.transform(rows)
            components = features.map_components(points) if extractor.kind == "table" else 0
            if not components:
                return extractor, points
        if not components:
            return extractor, extractor.transform(rows)
        return extractor.fitted(rows, components, self.power)


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """Where the public reference comes from: a file, or rows made up from the schema."""

    public: Annotated[
        Path | None, Option(help="Public, unlabelled records, in the same columns.")
    ] = None
    reference: Annotated[
        str | None, Option(help="Without --public: from-schema, which costs nothing.")
    ] = None
    reference_rows: Annotated[
        int, Option(help="Rows that --reference makes up.", min=1, max=100_000)
    ] = 2000

    def check(self, data: Path, kind: str) -> None:
        """Raise InvalidInput if the reference is the private file, or cannot be made."""
        public, reference = self.public, self.reference
        if public is not None and reference is not None:
            raise InvalidInput("Give either --public or --reference.")
        if reference not in (None, FROM_SCHEMA):
            raise InvalidInput(f"The 'reference' option must be {FROM_SCHEMA}.")
        if reference is not None and kind != "table":
            raise InvalidInput(
                "The 'reference' option needs --features table, whose schema it uses."
            )
        if public is not None and public.exists() and data.exists() and public.samefile(data):
            raise InvalidInput(
                "The 'public' option must name another file than 'data': the reference is not "
                "protected. Take rows from another source, or --reference from-schema."
            )

    def rows(self, extractor: stores.StoreExtractor) -> Any:
        """Return raw public rows, or None."""
        if self.public is not None:
            return read_records(self.public, extractor, public=True).features
        if self.reference is None:
            return None
        schema = features.TableSchema.from_dict(extractor.options["schema"])
        return features.rows_from_schema(schema, self.reference_rows)


@grouped
def init(
    ctx: typer.Context,
    store: StorePath,
    data: Data,
    *,
    label: Label = None,
    subject: Subject = None,
    feature_options: FeatureOptions,
    reference_options: ReferenceOptions,
    ledger: Ledger = None,
    witness: Witness = None,
    ray: Annotated[
        str | None, Option(help="Make features on Ray: auto, an address, or local.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    epsilon_total: Annotated[
        float | None,
        Option(help="Most that everybody can lose to all audiences together; default: no limit."),
    ] = None,
    yes: AcceptWeakPlan = False,
) -> None:
    """Make a store of private records; print its guarantee."""
    reference_options.check(data, feature_options.features)
    plan = plan_given(ctx)
    target = targets.declared_target(plan)
    # Every value is checked before anything is said or read.
    checked = planning.IndKNNPlan.of_target(target, plan)
    columns_of_y = target_columns(target, label)
    plain = feature_options.extractor(reference_options.public, [label, subject, *columns_of_y])
    with warnings_said(), progress_shown(silent=json), spread(plain, ray) as unmapped:
        if not quiet and target.voted:
            made_up = reference_options.reference == FROM_SCHEMA
            made_up = made_up and feature_options.features == "table"
            beside = made_up or reference_options.public is not None
            _say_before(checked.settled(_SOME_ROWS if beside else 0), made_up=made_up)
        dataset = read_records(data, unmapped, label, subject, columns_of_y)
        if dataset.subjects is None:
            _say([_EVERY_ROW])
        with naming(data):
            rows = reference_options.rows(unmapped)
        extractor, points = feature_options.reference_points(rows, unmapped)
        if points is not None:
            warn_about_reference(points, _feature_names(extractor))
            on_points = checked.settled(len(points))
            wanted = target.voted and plan.get("model_share") == 0
            if wanted and on_points.n_records and not quiet:
                _say(linear_model_lines(on_points))
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            opened = stores.Store.init(
                store, dataset.features, dataset.labels, dataset.subjects, public=points,
                extractor=extractor, ledger=ledger, witness=witness, epsilon_total=epsilon_total,
                accept_weak_plan=yes, **plan,
            )  # fmt: skip
        with opened:
            facts = opened.facts()
            if json:
                echo(as_json(facts))
            elif not quiet:
                size = 0 if points is None else len(points)
                echo(f"{_summary(store, facts, target, size)}\n\n{opened.guarantee()}")


init.command_class = PlanCommand  # type: ignore[attr-defined]


def audience(
    ctx: typer.Context,
    store: StorePath,
    name: Annotated[str, Argument(help="What to call it.")],
    accept_loss: AcceptLoss = False,
    yes: AcceptWeakPlan = False,
) -> None:
    """Give everybody a further budget, for people who share no answers with other audiences."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        opened.open_audience(name, accept_weak_plan=yes, **plan_given(ctx))
        echo(str(opened.guarantee(name)))


audience.command_class = AudiencePlanCommand  # type: ignore[attr-defined]


def _say(lines: list[str]) -> None:
    for line in lines:
        echo(f"vicinal: {line}", err=True)


def _say_before(plan: planning.IndKNNPlan, *, made_up: bool) -> None:
    """Tell what is known of a plan for classes before anything is read.

    `made_up`: whether the reference's rows are made up from a schema.
    """
    known = bool(plan.n_records)
    sized = plan if known else plan.changed(n_records=1)
    names, shares = plan.class_names.tolist(), plan.class_prior
    _say(verdict_lines(sized, names, shares, known=known))
    if made_up:
        expected = _MADE_UP_BESIDE_MODEL if plan.model_share else _MADE_UP
        _say([
            f"{expected} Queries are public: where some are at hand, take their file as --public."
        ])  # fmt: skip


def _summary(store: Path, facts: dict[str, Any], target: targets.Target, n_reference: int) -> str:
    """Return lines on a new store: what it answers, from what, how noisy, with which model."""
    plan, made_of = facts["audiences"]["default"]["plan"], facts["features"]
    multiplier, count = plan.get("noise_multiplier"), plan.get("n_neighbors")
    votes = ""
    # Where answers are reused, noise changes with them.
    if plan["reuse_predictions"] == "none" and multiplier is not None and count is not None:
        noise = multiplier * math.sqrt(count)
        votes = f", about {count} neighbours a query, noise of {noise:.1f} votes"
    lines = [
        f"{store}: {plan['n_queries']} answers of {target.described()}.",
        f"{made_of['number']} features ({made_of['kind']}); a reference of {n_reference} rows.",
        f"epsilon {plan['epsilon']:g}, delta {plan['delta']:g}{votes}.",
    ]
    if "model_share" in plan and not plan["model_share"]:
        lines.append("Private model: none.")
    elif "model_share" in plan:
        lines.append(
            f"Private model: trained, from at most {plan['model_share']:.0%} of every budget. "
            "Erasing somebody does not\nchange it; --model-share 0 makes a store without one."
        )
    return "\n".join(lines)


def _feature_names(extractor: stores.StoreExtractor) -> list[str] | None:
    """Return the names of features that are columns of a file, or made of them; None otherwise."""
    if extractor.public_map is not None:
        return None
    if extractor.kind == "table":
        return list(features.TableSchema.from_dict(extractor.options["schema"]).feature_names)
    return extractor.columns


def warn_about_reference(points: FloatMatrix, names: Sequence[str] | None) -> None:
    """Warn of few rows, constant features, and one feature that swamps the others.

    Features without names are numbered from 1.
    """
    import numpy as np

    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        return
    names = names or [str(i) for i in range(1, rows.shape[1] + 1)]
    if len(rows) < FEW_ROWS:
        _warn(
            f"The reference has {len(rows)} rows: with fewer than {FEW_ROWS} neighbourhoods are "
            "guesses. Take some hundreds of public rows."
        )
    constant = [names[i] for i in np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()]
    if constant and len(rows) > 1:
        more = ", ..." if len(constant) > _SHOWN else ""
        _warn(
            f"Constant in the reference, so of no use there: feature "
            f"{', '.join(constant[:_SHOWN])}{more}. Check that the reference is like the records."
        )
    if (swamping := predictors.swamping_feature(rows)) is not None:
        _warn(
            f"Feature {names[swamping[0]]} swamps the others: it has {swamping[1]:.0%} of the "
            "reference's variance, and alone decides who is near. Give a schema (--features "
            "table), which standardises columns."
        )


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=3)


def schema(
    public: Annotated[
        Path | None,
        Argument(metavar="[PUBLIC]", help="Public table to draft from: .parquet, .csv, .xlsx."),
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write the draft to this file.")] = None,
    delimiter: Annotated[
        str | None, Option(help="Between a CSV file's fields; default: found in PUBLIC.")
    ] = None,
    decimal: Annotated[str | None, Option(help="Its decimal mark; default: found.")] = None,
    encoding: Annotated[str | None, Option(help="Its encoding; default: found.")] = None,
    check: Annotated[
        Path | None, Option(help="The owner's table: say what of it will not fit.")
    ] = None,
    schema: Annotated[Path | None, Option(help="The schema to check against.")] = None,
    reference: Annotated[
        Path | None,
        Option(help="Public reference: say how many of its rows equal one of the owner's."),
    ] = None,
    label: Annotated[
        str | None, Option(help="Column of labels, or several with semicolons: no features.")
    ] = None,
    classes: Annotated[
        str | None, Option(help="All class names, as init takes them: labels are checked too.")
    ] = None,
    subject: Annotated[str | None, Option(help="Column of subject ids: no feature.")] = None,
    curator: Annotated[
        bool, Option("--curator", help="List the rows that do not fit: private.")
    ] = False,
    json: Json = False,
) -> None:
    """Draft a schema from a public table; or, with --check, tell an owner what does not fit."""
    from vicinal._parameters import ClassNames

    labels = [] if label is None else label.split(";")
    apart = [*labels, *([] if subject is None else [subject])]
    if (public is None) == (check is None):
        raise InvalidInput("Give either a public table to draft from, or --check DATA.")
    if public is not None:
        form = datasets.csv_form(public, delimiter, decimal, encoding)
        drafted, notes = features.draft_schema(datasets.read_table(public, form), apart, form)
        _write_draft(drafted, notes, out)
        return
    assert check is not None  # noqa: S101 (one of the two)
    if schema is None:
        raise InvalidInput("The 'check' option needs --schema, drafted from a public table.")
    declared = features.TableSchema.load(schema).usable()
    declared.refuse(apart, "labels or subjects")
    numeric = {*filter(declared.reads_numbers, declared.names), *(labels if labels[1:] else ())}
    table = datasets.read_table(check, declared.file, numeric.__contains__)
    names = None if classes is None else ClassNames().parsed(classes)
    misfits = features.check_table(table, declared, labels, subject, names)
    stops = any(misfit.stops for misfit in misfits)
    shared = None
    if reference is not None and not stops:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the check has told of further columns
            transform = features.TableFeatures(declared).transform
            points = datasets.read_table(
                reference, datasets.csv_form(reference), declared.reads_numbers
            )
            shared = datasets.coincidences(transform(table), transform(points))
    _show_check(check, misfits, shared, curator=curator, json=json)
    if stops:
        raise InvalidInput(f"{check} does not fit. Mend what is marked, or edit the schema.")


def _write_draft(drafted: features.TableSchema, notes: list[str], out: Path | None) -> None:
    if drafted.file != features.CsvForm():
        echo(
            f"Written with {drafted.file}, as records are taken to be; others: --delimiter, "
            "--decimal, --encoding.",
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
        f"{out}: {len(drafted.columns)} columns with features. Look through bounds, kinds and "
        "values: they are public, and the table's own.",
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
    lines = ["For the owner of the table only: counts of rows are private."]
    for m in misfits:
        lines.append(f"{'MEND' if m.stops else 'note'}  {m}")
        if curator and m.rows:
            more = ", ..." if len(m.rows) > _ROWS_SHOWN else ""
            lines.append(f"      rows {', '.join(map(str, m.rows[:_ROWS_SHOWN]))}{more}")
    if curator:
        lines.append("Row 1 is the first below the header; --json lists all.")
    echo("\n".join(lines) if misfits else f"{data} fits.")
    if shared is not None:
        echo(str(shared))
