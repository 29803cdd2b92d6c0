"""Commands of a store: `add`, `predict`, `evaluate`, `erase` and those that look after it."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option, echo

from vicinal.cli import options, records
from vicinal.cli import output as console
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from vicinal.store.evaluation import NoisyFigures
    from vicinal.store.requests import Reply


NOBODY = 2
"""Exit code of an erasure whose ids were never there: the list is most likely a wrong one."""

MODEL_STAYS = (
    "The private model was trained before and keeps its weights, which the guarantee covers, as it "
    "covers the answers given. If the plan has refreshes, `vicinal refresh` trains it again."
)
FORMATS = (".csv", ".parquet")
_FIGURE_NAMES = {
    "accuracy": "Accuracy", "balanced_accuracy": "Balanced accuracy", "auc": "AUC", "rmse": "RMSE",
    "r2": "R2", "mean_error": "Mean error",
}  # fmt: skip


def add(
    store: options.StorePath,
    data: options.Data,
    label: options.Label = None,
    subject: options.Subject = None,
    ids_differ: options.IdsDiffer = False,
    key: Annotated[str | None, Option(help="Idempotency key: a repeat adds nothing.")] = None,
    accept_loss: options.AcceptLoss = False,
) -> None:
    """Add records. Subjects keep the budgets they have left, also those who come back.

    A folder of .parquet files is added file by file, in the order of their names, so that together
    they need not fit into memory. It needs a --key; repeating the command then adds nothing twice.
    """
    parts = sorted(data.glob("*.parquet")) if data.is_dir() else []
    if parts and key is None:
        raise InvalidInput("The 'key' option must be given for a folder of .parquet files.")
    version, n_added = 0, 0
    with (
        console.warnings_said(),
        console.progress_shown(),
        records.opened_at(store, accept_loss=accept_loss) as opened,
    ):
        schema = opened.schema
        for part in parts or [data]:
            with records.naming(part, f" Files added before it: {n_added}." if n_added else ""):
                given = records.read_labelled(part, schema.extractor, schema.target, label, subject)
                version = opened.add(
                    given[0].features, given[1], given[0].subjects, ids_differ=ids_differ,
                    idempotency_key=f"{key} {part.name}" if parts else key,
                )  # fmt: skip
            n_added += 1
    echo(f"Added. The data are now at version {version}.")


def predict(
    store: options.StorePath,
    data: Annotated[
        str, Option(help="Queries: .parquet, .csv, .csv.gz, .npz, a folder, or - for stdin.")
    ],
    name: Annotated[
        str | None, Option("--id", help="Column of the queries to copy beside the answers.")
    ] = None,
    audience: options.Audience = "default",
    analyst: Annotated[str, Option(help="Analyst whose quota to use.")] = "anyone",
    key: Annotated[str | None, Option(help="Idempotency key: a repeat is free.")] = None,
    out: Annotated[str | None, Option(help="Output file: .csv, .parquet, or - for stdout.")] = None,
    quiet: options.Quiet = False,
    shard_s: options.ShardSeconds = 30.0,
    json: options.Json = False,
    accept_loss: options.AcceptLoss = False,
) -> None:
    """Answer queries. New ones are charged, and charges are on disk before answers show."""
    import pyarrow as pa

    out_path = None if out in (None, records.STREAM) else Path(str(out))
    if out_path is not None and out_path.suffix not in FORMATS:
        raise InvalidInput(f"The 'out' option must end in {' or '.join(FORMATS)}, or be -.")
    data_path = None if data == records.STREAM else Path(data)
    console.check_outputs({"out": out_path}, {"data": data_path, "STORE": store})
    with (
        console.warnings_said(),
        console.progress_shown(silent=json or quiet),
        records.local_file(data) as path,
        records.opened_at(store, shard_s=shard_s, accept_loss=accept_loss) as opened,
    ):
        answer_columns = opened.schema.target.answer_columns
        first, dataset = records.read_queries(path, opened.schema.extractor, name, answer_columns)
        with records.naming(path, public=True):
            rows, keys = opened.extracted(dataset.features)
        reply = opened.predict(rows, audience=audience, analyst=analyst, idempotency_key=key)
    if out is not None or not json:
        # A list of arrays, as a dictionary would let an answer replace a column of the queries.
        columns = [*first.items(), *reply.columns(answer_columns).items()]
        names, arrays = [name for name, _ in columns], [array for _, array in columns]
        _write_answers(pa.table(arrays, names=names), out)
    if json:
        answers = {name: value for name, value in reply.to_dict().items() if name != "votes"}
        echo(console.as_json({**answers, **_ids_of_queries(first)}))
    if not (quiet or json):
        echo(_summary(keys, reply, audience), err=True)


def _write_answers(table: pa.Table, out: str | None) -> None:
    if out is None or out == records.STREAM:
        echo(_as_csv(table), nl=False)
    elif out.endswith(".csv"):
        console.write_file(Path(out), _as_csv(table))
    else:
        from pyarrow import parquet

        parquet.write_table(table, content := io.BytesIO())
        console.write_file(Path(out), content.getvalue())


def _as_csv(table: pa.Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    writer.writerows([["" if v is None else v for v in row] for row in zip(*columns, strict=True)])
    return text.getvalue()


def _ids_of_queries(first: dict[str, Any]) -> dict[str, Any]:
    values = next(iter(first.values()), None)
    listed = values if values is None or isinstance(values, list) else values.to_pylist()
    plain = int | float | str | None
    return (
        {} if listed is None else {"ids": [v if isinstance(v, plain) else str(v) for v in listed]}
    )


def _summary(keys: list[bytes], reply: Reply, audience: str) -> str:
    """Return lines on the answers: how many, how many look alike if any, what is left.

    `keys` are what the store sees of each query; equal for queries that it cannot tell apart.
    """
    different = len(set(keys))
    free, alike = different - reply.charged, len(keys) - different
    again = f", and {free} answered before at no cost" if free else ""
    noun = "query" if len(keys) == 1 else "queries"
    have = "query has" if alike == 1 else "queries have"
    same = f"{alike} {have} the features of an earlier one and got its answer.\n" if alike else ""
    return (
        f"{len(keys)} {noun}: {reply.charged} new{again}.\n"
        f"{same}"
        f"Audience {audience!r} has {reply.left} planned answers left."
    )


def evaluate(
    store: options.StorePath,
    data: Annotated[Path, Option(help="Labelled rows: .parquet, .csv, .csv.gz or .npz.")],
    label: options.Label = None,
    subject: options.Subject = None,
    ids_differ: options.IdsDiffer = False,
    audience: Annotated[str, Option(help="Audience whose answers to evaluate.")] = "default",
    share: Annotated[
        float, Option(help="Largest share of its budget that a subject pays.", min=0.001, max=1)
    ] = 0.05,
    largest_error: Annotated[
        float,
        Option(
            help="Numbers: cut errors off at this share of the distance between the bounds.",
            min=0.01,
            max=1,
        ),
    ] = 0.25,
    accept_noise: Annotated[
        bool, Option("--accept-noise", help="Pay for and show figures that are all noise.")
    ] = False,
    json: options.Json = False,
    accept_loss: options.AcceptLoss = False,
) -> None:
    """Score answers against private labels. The subjects who are evaluated pay for the scores.

    A row counts if its features were a query before, in `vicinal predict` or in the service.
    """
    with console.warnings_said(), records.opened_at(store, accept_loss=accept_loss) as opened:
        schema = opened.schema
        dataset, labels = records.read_labelled(
            data, schema.extractor, schema.target, label, subject
        )
        with records.naming(data):
            figures = opened.evaluate(
                dataset.features, labels, dataset.subjects, ids_differ=ids_differ,
                audience=audience, share=share, largest_error=largest_error,
                accept_noise=accept_noise,
            )  # fmt: skip
    found = figures.to_dict()
    for told in found["figures"].values():
        told["noise"] &= not accept_noise
    echo(console.as_json(found) if json else _evaluation_text(figures, found))


def _evaluation_text(figures: NoisyFigures, found: dict[str, Any]) -> str:
    from vicinal.store.evaluation import Evaluation, NumberEvaluation

    lines = [
        (
            f"About {figures.people:.0f} subjects have rows that were queries, and paid at most "
            f"{figures.share:.3g} of their budgets. Each count has noise of {figures.noise:.1f}."
        ),
        *_figure_lines(found),
    ]
    if isinstance(figures, Evaluation):
        width = max(len(str(name)) for name in figures.classes)
        wide = max(8, width)
        lines += ["", "Subjects by true class (rows) and answer (columns)"]
        lines += [f"{'':>{width}} " + " ".join(f"{name!s:>{wide}}" for name in figures.classes)]
        for name, counts in zip(figures.classes, figures.confusion, strict=True):
            lines += [f"{name!s:>{width}} " + " ".join(f"{count:>{wide}.1f}" for count in counts)]
        if figures.calibration:
            lines += ["", "Predicted probability -> observed share (subjects)"]
        for mean, true, people in figures.calibration:
            known = "unknown" if math.isnan(true) else f"{true:.3f}"
            lines += [f"{mean:.3f} -> {known} ({people:.0f})"]
    if isinstance(figures, NumberEvaluation):
        units = "logarithms" if figures.scale == "log" else "units of the numbers"
        edges = zip(figures.targets, figures.error_edges, strict=True)
        beyond = ", ".join(f"{name} {of_name[-1]:.4g}" for name, of_name in edges)
        lines += ["", f"Errors are in {units}, cut off at: {beyond}."]
    return "\n".join(lines)


def _figure_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, told in found["figures"].items():
        about, _, figure = name.rpartition(" ")
        words = f"{about}: {_FIGURE_NAMES[figure]}" if about else _FIGURE_NAMES[figure]
        if told["low"] is None:
            shown = "unknown, because the noise is too large for so few subjects"
        elif told["noise"]:
            shown = f"all noise ({told['low']:.3f} to {told['high']:.3f}); see --accept-noise"
        else:
            shown = f"{told['value']:.3f} ({told['low']:.3f} to {told['high']:.3f})"
        lines.append(f"{words}: {shown}")
    return lines


def erase(
    store: options.StorePath,
    subject: options.SubjectIds = None,
    subjects: options.SubjectFile = None,
    curator: Annotated[
        bool, Option("--curator", help="Print how many records were erased. Private.")
    ] = False,
    accept_loss: options.AcceptLoss = False,
    yes: options.Yes = False,
) -> None:
    """Erase subjects from every file for good. Answers and trained models stay.

    The exit code is 2 if none of the ids was ever in the store.
    """
    ids = records.listed_ids(subject, subjects)
    if not ids:
        raise InvalidInput("The 'subject' option needs at least one id.")
    n_ids = "1 id" if len(ids) == 1 else f"{len(ids)} ids"
    console.confirm(f"This erases {n_ids} and all their records for good.", yes=yes)
    with records.opened_at(store, accept_loss=accept_loss) as opened:
        before = opened.presence(ids)
        n_erased = opened.erase(ids)
        verification, trained = opened.verify(ids), opened.models_stay
    if not verification:
        raise StorageFailed(" ".join(verification.faults))
    done = "Erased."
    if not before.enrolled:
        ever = "is in the store any more" if before.erased else "was ever in the store"
        done = f"Nobody was erased: none of these ids {ever}."
    echo(
        f"{done} Of {n_ids}, {before.enrolled} enrolled, {before.erased} already erased and "
        f"{before.unknown} unknown. These numbers are private."
    )
    if trained:
        echo(MODEL_STAYS)
    if curator:
        echo(f"Private: {n_erased} records were erased.")
    if not before.enrolled and not before.erased:
        raise typer.Exit(NOBODY)


def inspect(
    store: options.StorePath,
    curator: Annotated[
        bool, Option("--curator", help="Show private numbers too, marked as private.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what is public about a store. --curator adds private numbers."""
    with records.looked_at(store, reading=True) as opened:
        facts = opened.facts(curator=curator)
    echo(console.as_json(facts) if json else _facts_text(facts))


def _facts_text(facts: dict[str, Any]) -> str:
    lines = [
        f"Store {facts['identity']}, data version {facts['version']}",
        f"All audiences together: {facts['total']['text']}",
    ]
    for name, audience in facts["audiences"].items():
        counts = audience["queries"]
        lines.append(
            f"\nAudience {name}: {counts['used']} of {counts['planned']} planned answers given"
        )
        if renewal := audience["renewal"]:
            then = f"the next comes on {renewal['next']}" if renewal["next"] else "it is the last"
            lines.append(f"Part {renewal['period']} of {renewal['text']}: {then}")
        lines += _usage_lines(audience["usage"])
    lines.append("\nHistory")
    lines += [f"  {e['at']}  {e['what']} (version {e['version']})" for e in facts["history"]]
    for name, audience in facts["audiences"].items():
        lines.append(f"\nGuarantee of audience {name}")
        lines.append(console.in_paragraphs(audience["guarantee"]["text"]))
    if "private" in facts:
        lines += ["\nPRIVATE: for the curator only", console.as_json(facts["private"])]
    return "\n".join(lines)


def _usage_lines(used: dict[str, Any] | None) -> list[str]:
    if used is None:
        return []
    line = (
        f"Budgets used, estimated from public rows: {used['mean']:.0%} on average, "
        f"{used['quantiles']['90%']:.0%} in the busiest tenth; {used['retired']:.0%} of all spent"
    )
    return [line]


def export_guarantee(
    store: options.StorePath,
    audience: options.Audience = "default",
    out: Annotated[Path | None, Option(help="Write it to this file.")] = None,
    json: options.Json = False,
) -> None:
    """Print the full guarantee of an audience's answers."""
    console.check_outputs({"out": out}, {"STORE": store})
    with records.looked_at(store, reading=True) as opened:
        guarantee = opened.guarantee(audience)
    text = console.as_json(guarantee.to_dict()) if json else console.in_paragraphs(guarantee)
    if out is None:
        echo(text)
    else:
        console.write_file(out, text + "\n")


def verify(
    store: options.StorePath,
    erased: Annotated[list[str] | None, Option(help="An id that must be gone.")] = None,
    erased_list: Annotated[
        Path | None, Option(help="File of ids that must be gone, one per line.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check every invariant on disk. --erased also looks for traces of a subject."""
    with records.looked_at(store, reading=True) as opened:
        verification = opened.verify(records.listed_ids(erased, erased_list))
    faults, checked = list(verification.faults), list(verification.checked)
    if json:
        echo(console.as_json({"faults": faults, "checked": checked}))
    if not verification:
        raise StorageFailed(" ".join(faults))
    if not json:
        echo("\n".join(["All is well. Checked:", *(f"- {claim}" for claim in checked)]))


def backup(
    store: options.StorePath,
    target: Annotated[Path, Argument(metavar="BACKUP", help="A new folder.")],
    accept_loss: options.AcceptLoss = False,
) -> None:
    """Write the store, as it is now, into a new folder. A service may go on running."""
    with records.looked_at(store, accept_loss=accept_loss) as opened:
        opened.backup(target)
    echo(f"Wrote {target}.")


def restore(
    source: Annotated[Path, Argument(metavar="BACKUP", help="Folder of a backup.")],
    store: options.StorePath,
    ledger: options.Ledger = None,
    witness: options.Witness = None,
    accept_loss: options.AcceptLoss = False,
    yes: options.Yes = False,
) -> None:
    """Restore a backup. Refused if the store was charged since, unless you --accept-loss."""
    from vicinal.distributed.cluster_backups import restore_cluster
    from vicinal.distributed.folders import is_cluster
    from vicinal.store.store import Store

    cluster = is_cluster(source)
    if cluster and not (ledger is None and witness is None):
        raise InvalidInput("Clusters take neither --ledger nor --witness.")
    if accept_loss:
        console.confirm(
            f"This spends every budget of {store} for good: it never answers again.", yes=yes
        )
    try:
        if cluster:
            restore_cluster(source, store, accept_loss=accept_loss)
        else:
            places: dict[str, Any] = {"ledger": ledger, "witness": witness}
            Store.restore(source, store, accept_loss=accept_loss, **places).close()
    except PrivacyRefused as error:
        where = "" if cluster else " If the witness is elsewhere, name it with --witness."
        raise PrivacyRefused(f"{error}{where}") from None
    echo(f"Restored {store}.")


def allow(
    store: options.StorePath,
    analyst: Annotated[str, Argument(help="Name of the analyst.")],
    quota: Annotated[int, Argument(help="How many new answers; -1 for no limit.")],
    audience: options.Audience = "default",
    accept_loss: options.AcceptLoss = False,
) -> None:
    """Set how many new answers an analyst may get."""
    with records.opened_at(store, accept_loss=accept_loss) as opened:
        opened.allow(analyst, None if quota == -1 else quota, audience=audience)
    echo(f"{analyst} may get {'any number of' if quota == -1 else quota} new answers.")


def refresh(
    store: options.StorePath,
    audience: options.Audience = "default",
    json: options.Json = False,
    accept_loss: options.AcceptLoss = False,
) -> None:
    """Train the private model again on today's subjects.

    The plan's --model-refreshes says how often. The same budgets pay for it, and queries that were
    answered before count as new.
    """
    with records.opened_at(store, accept_loss=accept_loss) as opened:
        refreshes = opened.refresh_model(audience)
    words = f"Trained the model on the subjects enrolled now. Refreshes left: {refreshes}."
    echo(console.as_json({"refreshes_left": refreshes}) if json else words)
