"""Commands on a store: records, answers, evaluation, erasure, verification and backups.

Shared options: `store`, folder of the store; `data`, file of records; `label` and `subject`, its
columns of labels and of subject ids (in `erase`: ids, with more in the file `subjects`);
`audience`, the group of analysts whose plan and budgets are used; `quiet` and `json`, print no
summary, or one JSON object; `yes`, do not ask; `ledger`, URL of a PostgreSQL database for the
budgets; `witness`, file that detects old copies of the store. `accept_lost_charges` opens a store
that has lost its newest charges, and counts all budgets as spent. `shard_timeout_s` is the time in
seconds to wait for a cluster's shards. `ids_differ`: new ids that differ from known ones in
spelling only, as 007 and 7, are other subjects.

A *figure* is a score with its confidence interval, such as "accuracy", or "weight rmse" for one of
several targets. In `facts` and other JSON objects, names are keys.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Argument, Option

from vicinal.cli import options, output, records
from vicinal.cli.output import echo
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.ledger.files import is_writable
from vicinal.store import input_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from vicinal.store.base_store import BaseStore
    from vicinal.store.evaluation import NoisyEvaluation
    from vicinal.store.requests import Reply

UNKNOWN_IDS = 2
"""Exit code of an erasure whose ids were never in the store: the list is probably a wrong one."""

_MODEL_NOTE = (
    "The private model was trained before and keeps its weights. The guarantee covers them, as it "
    "covers past answers. If the plan has refreshes, `vicinal refresh` trains the model again."
)
_CSV_SUFFIXES = {".csv", ".tsv", ".txt"}
_FORMATS = (".csv", ".parquet")
_FIGURE_NAMES = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "auc": "AUC",
    "rmse": "RMSE",
    "r2": "R2",
    "mean_error": "Mean error",
}


def add(
    store: options.StorePath,
    data: options.Data,
    label: options.Label = None,
    subject: options.Subject = None,
    ids_differ: options.IdsDiffer = False,
    key: Annotated[str | None, Option(help="Idempotency key: a repeat adds nothing.")] = None,
    accept_lost_charges: options.AcceptLoss = False,
) -> None:
    """Add records. Subjects keep their remaining budgets, also after an erasure.

    A folder of .parquet files is added file by file, in the order of their names, so that together
    they need not fit into memory. It needs a --key; repeating the command then adds nothing twice.
    """
    files = sorted(data.glob("*.parquet")) if data.is_dir() else []
    if files and key is None:
        raise InvalidInput("The 'key' option must be given for a folder of .parquet files.")
    version = 0
    with (
        output.print_warnings(),
        output.show_announced_progress(),
        records.open_store(
            store,
            accept_lost_charges=accept_lost_charges,
            http_request="POST /v1/records with the key of a curator",
        ) as opened,
    ):
        schema = opened.schema
        for n_added, path in enumerate(files or [data]):
            suffix = f" Files added before it: {n_added}." if n_added else ""
            with input_files.add_file_to_errors(path, suffix):
                dataset, labels = records.read_labelled(
                    path, schema.extractor, schema.target, label, subject
                )
                version = opened.add(
                    dataset.features,
                    labels,
                    dataset.subjects,
                    ids_differ=ids_differ,
                    idempotency_key=f"{key} {path.name}" if files else key,
                )
    echo(f"Added. The data are now at version {version}.")


def predict(
    store: Annotated[
        Path, Argument(metavar="STORE", help="Folder of a store or cluster, or file of a student.")
    ],
    data: Annotated[
        str, Option(help="Queries: .parquet, .csv, .csv.gz, .xlsx, .npz, a folder, or - for stdin.")
    ],
    id_column: Annotated[str | None, Option("--id", help="Column to copy to the answers.")] = None,
    audience: options.Audience = "default",
    analyst: Annotated[str, Option(help="Analyst whose quota to use.")] = "anyone",
    key: Annotated[str | None, Option(help="Idempotency key: a repeat is free.")] = None,
    model: Annotated[str | None, Option(help="Folder of a student's text model.")] = None,
    coverage: Annotated[
        float | None, Option(help="Add sets or intervals that contain this share of outcomes.")
    ] = None,
    out: Annotated[str | None, Option(help="Output file: .csv, .parquet, or - for stdout.")] = None,
    quiet: options.Quiet = False,
    shard_timeout_s: options.ShardSeconds = 30.0,
    json: options.Json = False,
    accept_lost_charges: options.AcceptLoss = False,
) -> None:
    """Answer queries. New ones are charged, and charges are on disk before an answer is output.

    A student's file answers any number of queries without a charge.
    """
    import pyarrow as pa

    # Standard streams are no paths.
    data_path = None if data == records.STREAM else Path(data)
    out_path = None if out in (None, records.STREAM) else Path(str(out))
    if out_path is not None and out_path.suffix not in _FORMATS:
        raise InvalidInput(f"The 'out' option must end in {' or '.join(_FORMATS)}, or be -.")
    model_path = None if model is None else Path(model)
    inputs = {"data": data_path, "STORE": store, "model": model_path}
    output.check_outputs({"out": out_path}, inputs)
    is_student = store.is_file()
    account = _Account(audience, analyst, key, accept_lost_charges)
    if is_student and (account, coverage) != (_Account("default", "anyone", None, False), None):
        raise InvalidInput(
            "Audiences, analysts, keys, charges and coverage are of stores, not of students."
        )
    if model is not None and not is_student:
        raise InvalidInput("The 'model' option is for a student's file.")
    with (
        output.print_warnings(),
        output.show_announced_progress(silent=json or quiet),
        records.provide_input_path(data) as path,
    ):
        if is_student:
            copied, columns, result = _answer_with_student(store, model, path, id_column)
            summary = "Answers of a student are not charged."
        else:
            copied, columns, result, summary = _answer_with_store(
                store,
                path,
                id_column,
                shard_timeout_s,
                account,
                coverage,
                writes_table=out is not None or not json,
            )
    if out is not None or not json:
        # Lists instead of a dictionary, in which an answer could replace the copied column.
        arrays = [*copied.values(), *columns.values()]
        _write_answers(pa.table(arrays, names=[*copied, *columns]), out_path)
    if json:
        for column in copied.values():
            ids = column if isinstance(column, list) else column.to_pylist()
            is_json = int | float | str | None
            result["ids"] = [value if isinstance(value, is_json) else str(value) for value in ids]
        echo(output.as_json(result))
    if not (quiet or json):
        echo(summary, err=True)


class _Account(NamedTuple):
    """Budgets that pay for queries: audience, analyst with a quota, and idempotency key.

    `accept_lost_charges`: whether lost charges are accepted, which exhausts every budget.
    """

    audience: str
    analyst: str
    idempotency_key: str | None
    accept_lost_charges: bool


def _answer_with_store(
    store: Path,
    path: Path,
    id_column: str | None,
    shard_timeout_s: float,
    account: _Account,
    coverage: float | None,
    *,
    writes_table: bool,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    """Answer the queries in the file `path`, charged to `account`, by a store or cluster.

    Return the copied column (:func:`input_files.read_queries`) and the columns of answers, by
    name; the JSON object of the reply; and a summary. `id_column`: name of the column to copy.
    `coverage`: requested level of sets or intervals, or None. `writes_table`: whether the columns
    are written, and must therefore not be ambiguous.
    """
    from vicinal.store.requests import name_coverage_columns

    route = "predict-csv" if _CSV_SUFFIXES.intersection(path.suffixes) else "predict"
    with records.open_store(
        store,
        shard_timeout_s=shard_timeout_s,
        accept_lost_charges=account.accept_lost_charges,
        http_request=f"POST /v1/{route} with the key of an analyst",
    ) as opened:
        target = opened.schema.target
        answer_columns = target.answer_columns
        has_coverage_columns = coverage is not None and writes_table
        coverage_columns = name_coverage_columns(target) if has_coverage_columns else []
        copied, dataset = input_files.read_queries(
            path, opened.schema.extractor, id_column, [*answer_columns, *coverage_columns]
        )
        with input_files.add_file_to_errors(path, public=True):
            rows, keys = opened.extract_features(dataset.features)
        reply = opened.predict(
            rows,
            audience=account.audience,
            analyst=account.analyst,
            idempotency_key=account.idempotency_key,
            coverage=coverage,
        )
    result = {name: value for name, value in reply.to_dict().items() if name != "votes"}
    summary = _format_reply(keys, reply, account)
    return copied, reply.build_columns(answer_columns), result, summary


def _answer_with_student(
    student_path: Path, model: str | None, path: Path, id_column: str | None
) -> tuple[dict[str, Any], dict[str, list[Any]], dict[str, Any]]:
    """Return the answers of the student in a file to the queries in the file `path`.

    These are the copied column (:func:`input_files.read_queries`) and the columns of answers, by
    name, and the JSON object of labels, probabilities and guarantee. `model`: folder of the
    student's text model; None for the packaged one. `id_column`: name of the column to copy.
    """
    from vicinal.store.requests import ClassReply
    from vicinal.store.store_schema import StoreExtractor
    from vicinal.students.student import load
    from vicinal.targets.kinds import declared_target

    student = load(student_path, model)
    takes_images = len(student.preprocessing.shape) > 1
    extractor = student.extractor or StoreExtractor("hog" if takes_images else "columns")
    target = declared_target({"classes": student.classes})
    copied, dataset = input_files.read_queries(
        path, extractor, id_column, target.answer_columns, warn=False
    )
    with input_files.add_file_to_errors(path, public=True):
        # In float64, rounded values are short decimal numbers.
        probabilities = student.predict_proba(dataset.features).astype(float)
    labels = target.class_names[probabilities.argmax(axis=1)]
    reply = ClassReply(
        labels=labels, votes=None, confidence=None, probabilities=probabilities, charged=0, left=0
    )
    facts = {name: reply.to_dict()[name] for name in ("labels", "probabilities")}
    columns = reply.build_columns(target.answer_columns)
    return copied, columns, {**facts, "guarantee": student.guarantee}


def _write_answers(table: pa.Table, path: Path | None) -> None:
    """Write a table of answers as CSV to stdout (`path` None), or to a .csv or .parquet file."""
    if path is not None and path.suffix == ".parquet":
        from pyarrow import parquet

        content = io.BytesIO()
        parquet.write_table(table, content)
        output.write_file(path, content.getvalue())
        return
    text = input_files.format_answers_csv(table)
    if path is None:
        output.echo_data(text)
    else:
        output.write_file(path, text)


def _format_reply(keys: list[bytes], reply: Reply, account: _Account) -> str:
    """Return the text on a reply: numbers of new, repeated, equal and remaining answers.

    `keys`: one for each query, equal for queries with equal features.
    """
    n_distinct = len(set(keys))
    n_cached = n_distinct - reply.charged
    n_equal = len(keys) - n_distinct
    cached = f", and {n_cached} answered before at no cost" if n_cached else ""
    lines = [
        f"{len(keys)} {'query' if len(keys) == 1 else 'queries'}: {reply.charged} new{cached}."
    ]
    if n_equal:
        verb = "query has" if n_equal == 1 else "queries have"
        lines.append(f"{n_equal} {verb} the features of an earlier one and got its answer.")
    if account.analyst == "anyone":
        lines.append(f"Audience {account.audience!r} has {reply.left} planned answers left.")
    else:
        lines.append(f"Analyst {account.analyst!r} has {reply.left} answers left.")
    if reply.promise is not None:
        lines.append(reply.promise)
        sets = getattr(reply, "sets", [])
        example = next((list(map(str, names)) for names in sets if len(names) > 1), None)
        if example is not None:
            lines.append(f"The set {';'.join(example)} means {' or '.join(example)}: not excluded.")
        n_outside = sum(
            label not in names for label, names in zip(reply.labels, sets, strict=False)
        )
        if n_outside:
            verb = "label is not in its set" if n_outside == 1 else "labels are not in their sets"
            lines.append(
                f"{n_outside} {verb}: with --cost, a label need not be the most probable class."
            )
    return "\n".join(lines)


def evaluate(
    store: options.StorePath,
    data: Annotated[
        Path | None, Option(help="Labelled rows: .parquet, .csv, .csv.gz, .xlsx or .npz.")
    ] = None,
    label: options.Label = None,
    subject: options.Subject = None,
    ids_differ: options.IdsDiffer = False,
    audience: options.Audience = "default",
    share: Annotated[float, Option(help="Largest paid share of budgets.", min=0.001, max=1)] = 0.05,
    largest_error: Annotated[
        float, Option(help="Numbers: largest error, as share of the range.", min=0.01, max=1)
    ] = 0.25,
    accept_noise: Annotated[
        bool, Option("--accept-noise", help="Pay even if all is noise.")
    ] = False,
    people: Annotated[
        int | None,
        Option(help="Public number of subjects. Default: answers / --records-per-subject.", min=1),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the narrowest intervals; read and charge nothing.")
    ] = False,
    coverage: Annotated[
        str | None, Option(help="Also calibrate sets: overall or per-class.", metavar="KIND")
    ] = None,
    json: options.Json = False,
    accept_lost_charges: options.AcceptLoss = False,
) -> None:
    """Score answers against private labels. The evaluated subjects' budgets pay for the scores.

    A row counts if its features were queried before, by `vicinal predict` or the service.
    --dry-run prints how wide the intervals will be at least, and with --coverage the number of
    outcomes that each level requires.
    """
    if data is None and not dry_run:
        raise InvalidInput("The 'data' option must name the file of labelled rows.")
    with (
        output.print_warnings(),
        records.open_store(
            store, accept_lost_charges=accept_lost_charges, read_only=dry_run
        ) as opened,
    ):
        arguments: dict[str, Any] = {
            "audience": audience,
            "share": share,
            "largest_error": largest_error,
            "n_subjects": people,
            "coverage": coverage,
        }
        if data is None or dry_run:
            preview = opened.preview_evaluation(**arguments)
            echo(output.as_json(preview.to_dict()) if json else _format_preview(preview))
            return
        arguments |= {"accept_noise": accept_noise, "ids_differ": ids_differ}
        evaluation = _evaluate_file(opened, data, label, subject, arguments)
    result = evaluation.to_dict()
    for figure in result["figures"].values():
        figure["noise"] &= not accept_noise
    echo(output.as_json(result) if json else _format_evaluation(evaluation, result["figures"]))


def _evaluate_file(
    store: BaseStore, path: Path, label: str | None, subject: str | None, arguments: dict[str, Any]
) -> NoisyEvaluation:
    """Return the evaluation of an open store on the labelled rows of the file at `path`.

    `arguments`: the keyword arguments of :meth:`Store.evaluate`. A note on earlier evaluations is
    printed before subjects are charged.
    """
    schema = store.schema
    dataset, labels = records.read_labelled(path, schema.extractor, schema.target, label, subject)
    audiences = store.facts()["audiences"]
    earlier = audiences.get(arguments["audience"], {}).get("evaluations", [])
    if earlier:
        output.print_note(
            f"Earlier: {_describe_shares(earlier)}. Subjects who were in them may have nothing "
            "left to pay with, and then they do not count."
        )
    with input_files.add_file_to_errors(path):
        return store.evaluate(dataset.features, labels, dataset.subjects, **arguments)


def _format_evaluation(evaluation: NoisyEvaluation, figures: dict[str, Any]) -> str:
    """Return the text of an evaluation; `figures`: JSON objects by name."""
    from vicinal.store.evaluation import Evaluation, NumberEvaluation

    n_subjects, std = evaluation.subject_count_and_std
    introduction = (
        f"About {max(n_subjects, 0):.0f} subjects (± {2 * std:.0f}) have rows that were queries, "
        f"and paid at most {evaluation.share:.3g} of their budgets. Each count has noise of "
        f"{evaluation.noise:.1f}."
    )
    lines = [introduction]
    for name, figure in figures.items():
        score = "unknown, because the noise is too large for so few subjects"
        if figure["low"] is not None:
            noise = ", mostly noise" if figure["noise"] else ""
            score = f"{figure['value']:.3f} ({figure['low']:.3f} to {figure['high']:.3f}){noise}"
        lines.append(f"{_format_title(name)}: {score}")
    if isinstance(evaluation, Evaluation):
        name_width = max(len(str(name)) for name in evaluation.classes)
        cell_width = max(8, name_width)
        header = " ".join(f"{name!s:>{cell_width}}" for name in evaluation.classes)
        lines += ["", "Subjects by true class (rows) and answer (columns)"]
        lines += [f"{'':>{name_width}} {header}"]
        for name, counts in zip(evaluation.classes, evaluation.confusion, strict=True):
            cells = " ".join(f"{max(count, 0):>{cell_width}.1f}" for count in counts)
            lines += [f"{name!s:>{name_width}} {cells}"]
        bins = [
            f"{predicted:.3f} -> {observed:.3f} ({n_subjects:.0f})"
            for predicted, observed, n_subjects in evaluation.calibration
            if not math.isnan(observed)
        ]
        if bins:
            lines += ["", "Predicted probability -> observed share (subjects)", *bins]
    if isinstance(evaluation, NumberEvaluation):
        unit = "logarithms" if evaluation.scale == "log" else "units of the numbers"
        edges = zip(evaluation.targets, evaluation.error_edges, strict=True)
        limits = ", ".join(f"{name} {target_edges[-1]:.4g}" for name, target_edges in edges)
        lines += ["", f"Errors are in {unit}, cut off at: {limits}."]
    lines += _format_coverage(evaluation)
    return "\n".join(lines)


def _format_preview(preview: NoisyEvaluation) -> str:
    """Return the text of the narrowest intervals of an evaluation that has not been made."""
    if not preview.people:
        return "No query was answered yet, so no row can be evaluated."
    introduction = (
        f"With {preview.people:.0f} subjects who pay at most {preview.share:.3g} of their budgets, "
        f"each count has noise of {preview.noise:.1f}. Intervals are at least this wide, and wider "
        "the more answers are wrong:"
    )
    lines = [introduction]
    for name, (_, low, high) in preview.figures.items():
        width = "unknown, because the noise is too large for so few subjects"
        if not math.isnan(low):
            noise = ", mostly noise" if preview.is_uninformative(name) else ""
            width = f"{high - low:.3f}{noise}"
        lines.append(f"{_format_title(name)}: {width}")
    lines += _format_coverage(preview)
    return "\n".join([*lines, "", "Dry run: nothing was read, drawn or charged."])


def _describe_shares(evaluations: Sequence[dict[str, Any]]) -> str:
    """Return a clause on the shares of budgets that `evaluations`, as JSON objects, offered."""
    shares = [evaluation["share"] for evaluation in evaluations]
    listed = ", ".join(f"{share:.3g}" for share in shares)
    if len(shares) == 1:
        return f"1 evaluation, which offered a share of {listed} of each budget"
    return (
        f"{len(shares)} evaluations, which offered shares of {listed} of each budget, "
        f"{sum(shares):.3g} in total"
    )


def _format_title(name: str) -> str:
    """Return the title of a figure, such as "weight: RMSE".

    `name`: its key, such as "rmse", or "weight rmse" for one of several targets.
    """
    target, _, kind = name.rpartition(" ")
    return f"{target}: {_FIGURE_NAMES[kind]}" if target else _FIGURE_NAMES[kind]


def _format_coverage(evaluation: NoisyEvaluation) -> list[str]:
    """Return the lines on certified sets or intervals, and on drift, of an evaluation."""
    from vicinal.store.coverage import ASSUMPTION, CONFIDENCE, MAX_REQUIRED_OUTCOMES, OVERALL_CAVEAT
    from vicinal.store.evaluation import Evaluation

    calibration = evaluation.coverage
    if calibration is None:
        return []
    lines = ["", "Certified coverage of sets and intervals (vicinal predict --coverage LEVEL)"]
    for histogram in calibration.histograms:
        prefix = "" if histogram.name is None else f"{histogram.name}: "
        for certified in histogram.to_dict()["levels"]:
            outcome = f"needs at least {certified['required_outcomes']} outcomes at this noise"
            if certified["threshold"] is not None:
                outcome = f"yes, threshold {certified['threshold']:.3g}"
            elif certified["required_outcomes"] is None:
                outcome = f"no number of outcomes up to {MAX_REQUIRED_OUTCOMES} suffices"
            lines.append(f"{prefix}{certified['level']:g}: {outcome}")
    lines.append(f"Each level by itself has {CONFIDENCE:.0%} confidence. {ASSUMPTION}")
    if isinstance(evaluation, Evaluation) and len(calibration.histograms) == 1:
        lines.append(f"{OVERALL_CAVEAT} --coverage per-class calibrates each class.")
    if calibration.drifted_levels:
        levels = ", ".join(f"{level:g}" for level in calibration.drifted_levels)
        lines.append(
            f"Drift: outcomes are less often in the sets than an earlier evaluation certified, "
            f"at coverage {levels}. Sets follow this evaluation from now on."
        )
    return lines


def erase(
    store: options.StorePath,
    subject: options.SubjectIds = None,
    subjects: options.SubjectFile = None,
    curator: Annotated[bool, Option("--curator", help="Print the number erased. Private.")] = False,
    accept_lost_charges: options.AcceptLoss = False,
    yes: options.Yes = False,
) -> None:
    """Erase subjects from every file for good. Answers and trained models stay.

    The exit code is 2 if none of the ids was ever in the store.
    """
    ids = records.collect_subject_ids(subject, subjects)
    if not ids:
        raise InvalidInput("The 'subject' option needs at least one id.")
    n_ids = "1 id" if len(ids) == 1 else f"{len(ids)} ids"
    output.confirm(f"This erases {n_ids} and all their records for good.", yes=yes)
    with records.open_store(
        store,
        accept_lost_charges=accept_lost_charges,
        http_request="DELETE /v1/subjects/ID with the key of a curator",
    ) as opened:
        presence = opened.presence(ids)
        n_erased = opened.erase(ids)
        verification = opened.verify(ids)
        keeps_model = opened.models_stay
    if not verification:
        raise StorageFailed(" ".join(verification.faults))
    outcome = "Erased."
    if not presence.enrolled:
        status = "is in the store any more" if presence.erased else "was ever in the store"
        outcome = f"Nothing was erased: none of these ids {status}."
    echo(
        f"{outcome} Of {n_ids}, {presence.enrolled} enrolled, {presence.erased} already erased and "
        f"{presence.unknown} unknown. These numbers are private."
    )
    if presence.similar:
        verb = "differs" if presence.similar == 1 else "differ"
        echo(
            f"Of the unknown ids, {presence.similar} {verb} only in spelling from an id that is "
            "enrolled, or was erased or evaluated. Check it: these records may still be in the "
            "store."
        )
    if keeps_model and presence.enrolled:
        echo(_MODEL_NOTE)
    if curator:
        echo(f"Private: {n_erased} records were erased.")
    if not presence.enrolled and not presence.erased:
        raise typer.Exit(UNKNOWN_IDS)


def inspect(
    store: options.StorePath,
    curator: Annotated[bool, Option("--curator", help="Show private numbers, too.")] = False,
    json: options.Json = False,
) -> None:
    """Show the public facts of a store. --curator adds private numbers."""
    with records.open_store_or_service(store, read_only=True) as opened:
        facts = opened.facts(curator=curator)
    echo(output.as_json(facts) if json else _format_facts(facts))


def _format_facts(facts: dict[str, Any]) -> str:
    """Return the text of `inspect` on the JSON object `facts`, which ``Store.facts()`` returns."""
    lines = [
        f"Store {facts['identity']}, data version {facts['version']}",
        f"All audiences together: {facts['total']['text']}",
    ]
    for name, audience in facts["audiences"].items():
        counts = audience["queries"]
        lines.append(
            f"\nAudience {name}: {counts['used']} of {counts['planned']} planned answers given"
        )
        renewal = audience["renewal"]
        if renewal:
            following = (
                f"the next comes on {renewal['next']}" if renewal["next"] else "it is the last"
            )
            lines.append(f"Part {renewal['period']} of {renewal['text']}: {following}")
        if audience["evaluations"]:
            lines.append(f"{_describe_shares(audience['evaluations'])}.")
        usage = audience["usage"]
        if usage is not None:
            training = usage["training"]
            cause = ""
            if training is not None:
                cause = f" ({training:.0%} by the latest training of the private model)"
            lines.append(
                f"Budgets used, estimated from public rows: {usage['mean']:.0%} on average{cause}, "
                f"{usage['quantiles']['90%']:.0%} in the busiest tenth; {usage['retired']:.0%} of "
                "all budgets are spent"
            )
    lines.append("\nHistory")
    lines += [f"  {e['at']}  {e['what']} (version {e['version']})" for e in facts["history"]]
    for name, audience in facts["audiences"].items():
        lines.append(f"\nGuarantee of audience {name}")
        lines.append(output.format_guarantee(audience["guarantee"]["text"]))
    if "private" in facts:
        lines += ["\nPRIVATE: for the curator only", output.as_json(facts["private"])]
    return "\n".join(lines)


def export_guarantee(
    store: options.StorePath,
    audience: options.Audience = "default",
    out: Annotated[Path | None, Option(help="Write it to this file.")] = None,
    json: options.Json = False,
) -> None:
    """Print the full guarantee of an audience's answers."""
    output.check_outputs({"out": out}, {"STORE": store})
    with records.open_store_or_service(store, read_only=True) as opened:
        guarantee = opened.guarantee(audience)
    text = output.as_json(guarantee.to_dict()) if json else output.format_guarantee(guarantee)
    output.echo_or_write(text, out)


def verify(
    store: options.StorePath,
    erased: Annotated[list[str] | None, Option(help="Subject id that must be erased.")] = None,
    erased_list: Annotated[Path | None, Option(help="File of such ids, one per line.")] = None,
    json: options.Json = False,
) -> None:
    """Check every invariant on disk. --erased also looks for traces of a subject."""
    with records.open_store_or_service(store, read_only=True) as opened:
        verification = opened.verify(records.collect_subject_ids(erased, erased_list))
    errors = list(verification.faults)
    checked = list(verification.checked)
    if json:
        echo(output.as_json({"faults": errors, "checked": checked}))
    if not verification:
        raise StorageFailed(" ".join(errors))
    if not json:
        echo("\n".join(["All is well. Checked:", *(f"- {claim}" for claim in checked)]))


def backup(
    store: options.StorePath,
    target: Annotated[Path, Argument(metavar="BACKUP", help="A new folder.")],
    accept_lost_charges: options.AcceptLoss = False,
) -> None:
    """Copy the store, in its present state, into a new folder. A running service continues."""
    # A read-only store is copied unchanged, unless an unfinished change must be completed first.
    read_only = store.is_dir() and not is_writable(store) and not accept_lost_charges
    with records.open_store_or_service(
        store, accept_lost_charges=accept_lost_charges, read_only=read_only
    ) as opened:
        opened.backup(target)
    echo(f"Wrote {target}.")


def restore(
    source: Annotated[Path, Argument(metavar="BACKUP", help="Folder of a backup.")],
    store: options.StorePath,
    ledger: options.Ledger = None,
    witness: options.Witness = None,
    accept_lost_charges: options.AcceptLoss = False,
    yes: options.Yes = False,
) -> None:
    """Restore a backup. Refused if the store was charged since, unless you --accept-loss."""
    from vicinal.distributed.cluster_backups import restore_cluster
    from vicinal.distributed.folders import is_cluster
    from vicinal.store.store import Store

    is_cluster_backup = is_cluster(source)
    if is_cluster_backup and not (ledger is None and witness is None):
        raise InvalidInput("Clusters take neither --ledger nor --witness.")
    if accept_lost_charges:
        output.confirm(
            f"This spends every budget of {store} for good: it never answers again.", yes=yes
        )
    if is_cluster_backup:
        restore_cluster(source, store, accept_loss=accept_lost_charges)
    else:
        Store.restore(
            source, store, ledger=ledger, witness=witness, accept_loss=accept_lost_charges
        ).close()
    echo(f"Restored {store}.")


def allow(
    store: options.StorePath,
    analyst: Annotated[str, Argument(help="Name of the analyst.")],
    quota: Annotated[int, Argument(help="Number of new answers; -1 for no limit.")],
    audience: options.Audience = "default",
    accept_lost_charges: options.AcceptLoss = False,
) -> None:
    """Set an analyst's quota of new answers, those already given included. Repeats are free."""
    with records.open_store(store, accept_lost_charges=accept_lost_charges) as opened:
        opened.allow(analyst, None if quota == -1 else quota, audience=audience)
    number = "any number of" if quota == -1 else quota
    echo(f"{analyst} may get {number} new answers, past ones included.")


def refresh(
    store: options.StorePath,
    audience: options.Audience = "default",
    json: options.Json = False,
    accept_lost_charges: options.AcceptLoss = False,
) -> None:
    """Train the private model again. It learns from the subjects enrolled now.

    The plan's --model-refreshes is the number of possible refreshes. Each is charged to the same
    budgets, and repeated queries count as new.
    """
    with records.open_store(store, accept_lost_charges=accept_lost_charges) as opened:
        refreshes = opened.refresh_model(audience)
    text = f"Trained the model on the subjects enrolled now. Refreshes left: {refreshes}."
    echo(output.as_json({"refreshes_left": refreshes}) if json else text)
