"""Commands of a store: `add`, `predict` and those that look after it; `init` is in `_init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._answers import answer_table, check_format, local_file, summary, write_answers
from vicinal.cli._options import (
    Audience,
    Data,
    Json,
    Label,
    Ledger,
    Quiet,
    StorePath,
    Subject,
    Witness,
)
from vicinal.cli._output import (
    Yes,
    as_json,
    confirm,
    progress_shown,
    say,
    warnings_said,
    write_file,
)
from vicinal.cli._records import (
    identified,
    naming,
    read_queries,
    read_records,
    target_columns,
)
from vicinal.cli._shards import AcceptLoss, Ray, ShardSeconds, opened_at
from vicinal.cli._subjects import listed_ids
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed

if TYPE_CHECKING:
    from vicinal.store import Reply


def add(
    store: StorePath,
    data: Data,
    label: Label = None,
    subject: Subject = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: sent again, added once.")
    ] = None,
    accept_loss: AcceptLoss = False,
) -> None:
    """Add records; people who are known, or were, keep the budget they have left."""
    with warnings_said(), progress_shown(), opened_at(store, accept_loss=accept_loss) as opened:
        target, extractor = opened.schema.target, opened.schema.extractor
        columns = target_columns(target, label)
        dataset = read_records(data, extractor, label, subject, columns)
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            version = opened.add(
                dataset.features, dataset.labels, dataset.subjects, idempotency_key=key
            )
    typer.echo(f"Added. The records are at version {version} now.")


def predict(
    store: StorePath,
    data: Annotated[
        str, typer.Option(help="Queries: .parquet, .csv, .csv.gz, .npz, a folder, or - (stdin).")
    ],
    name: Annotated[
        str | None, typer.Option("--id", help="Column to write beside the answers, unchanged.")
    ] = None,
    audience: Audience = "default",
    analyst: Annotated[str, typer.Option(help="Whose quota.")] = "anyone",
    key: Annotated[str | None, typer.Option(help="Idempotency key: sent again, free.")] = None,
    trend: Annotated[
        bool,
        typer.Option("--trend", help="Of numbers and labels: by a trend through these answers."),
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Write answers here: .csv, .parquet, .npy, or - (stdout).")
    ] = None,
    quiet: Quiet = False,
    ray: Ray = None,
    shard_s: ShardSeconds = 30.0,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Answer queries; new ones spend budgets, durably before they are shown."""
    from vicinal.distributed import MissingShardPolicy

    check_format(out)
    policy = MissingShardPolicy(shard_s)
    with (
        warnings_said(),
        progress_shown(silent=json),
        local_file(data) as path,
        opened_at(store, ray, policy, accept_loss=accept_loss) as opened,
    ):
        first, dataset = read_queries(path, opened.schema.extractor, name)
        with naming(path):
            rows, keys = opened.extracted(dataset.features)
        reply = opened.predict(
            rows, audience=audience, analyst=analyst, idempotency_key=key, trend=trend
        )
    table = answer_table(reply, opened.schema.target.names, first)
    if out is not None or not json:
        write_answers(table, out)
    if json:
        typer.echo(as_json({**_answers(reply), **identified(first)}))
    if not (quiet or json):
        typer.echo(summary(keys, reply, audience), err=True)


def inspect(
    store: StorePath,
    curator: Annotated[
        bool, typer.Option("--curator", help="Show private numbers too, and say so.")
    ] = False,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Show what is public about a store: plans, answers left, history, guarantees."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        facts = opened.facts(curator=curator)
    say(facts, _described(facts), json)


def export_guarantee(
    store: StorePath,
    audience: Audience = "default",
    out: Annotated[Path | None, typer.Option(help="Write it to this file.")] = None,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """State the guarantee of an audience's answers, whole."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        guarantee = opened.guarantee(audience)
    text = as_json(guarantee.to_dict()) if json else str(guarantee)
    if out is None:
        typer.echo(text)
    else:
        write_file(out, text + "\n")


def verify(
    store: StorePath,
    erased: Annotated[list[str] | None, typer.Option(help="An id that must be gone.")] = None,
    erased_list: Annotated[
        Path | None, typer.Option(help="File of ids that must be gone, one a line.")
    ] = None,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Check every invariant on the disk; with --erased, that nothing of somebody is left."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        verification = opened.verify(listed_ids(erased, erased_list))
    if json:
        typer.echo(
            as_json({"faults": list(verification.faults), "checked": list(verification.checked)})
        )
    if not verification:
        raise StorageFailed(" ".join(verification.faults))
    if not json:
        typer.echo(
            "\n".join(["All is well. Checked:", *(f"- {claim}" for claim in verification.checked)])
        )


def backup(
    store: StorePath,
    target: Annotated[Path, typer.Argument(metavar="BACKUP", help="A new folder.")],
    accept_loss: AcceptLoss = False,
) -> None:
    """Write everything into a new folder, as it is at one moment."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        opened.backup(target)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup.")],
    store: StorePath,
    ledger: Ledger = None,
    witness: Witness = None,
    accept_loss: AcceptLoss = False,
    yes: Yes = False,
) -> None:
    """Make a store of a backup; refused if more was charged since, unless the loss is accepted."""
    from vicinal.distributed import is_cluster

    cluster = is_cluster(source)
    if cluster and not (ledger is None and witness is None):
        raise InvalidInput("The options 'ledger' and 'witness' are not for clusters.")
    if accept_loss:
        confirm(f"Spends every budget of {store} for good: it never answers again.", yes=yes)
    try:
        _restore(source, store, ledger, witness, cluster=cluster, accept_loss=accept_loss)
    except PrivacyRefused as error:
        where = "" if cluster else " Where the witness lies elsewhere, name it with --witness."
        raise PrivacyRefused(f"{error}{where}") from None


def _restore(
    source: Path, store: Path, ledger: str | None, witness: Path | None, *,
    cluster: bool, accept_loss: bool,
) -> None:  # fmt: skip
    from vicinal.distributed import restore_cluster
    from vicinal.store import Store

    if cluster:
        restore_cluster(source, store, accept_loss=accept_loss)
    else:
        Store.restore(
            source, store, ledger=ledger, witness=witness, accept_loss=accept_loss
        ).close()


def allow(
    store: StorePath,
    analyst: Annotated[str, typer.Argument(help="Who.")],
    quota: Annotated[int, typer.Argument(help="How many new answers; -1: no limit of their own.")],
    audience: Audience = "default",
    accept_loss: AcceptLoss = False,
) -> None:
    """Set how many new answers an analyst may have."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        opened.allow(analyst, None if quota == -1 else quota, audience=audience)


def refresh(
    store: StorePath,
    audience: Audience = "default",
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Train the private model again on the people who are there now.

    As often as --model-refreshes planned for, paid from the same budgets. Queries that were
    answered before count as new.
    """
    from vicinal.store import Store

    with opened_at(store, accept_loss=accept_loss) as opened:
        if not isinstance(opened, Store):
            raise InvalidInput(
                "The 'store' must be a store to refresh its model: a cluster keeps the model of "
                "the store that it was split from."
            )
        refreshes = opened.refresh_model(audience)
    words = f"The model is trained on the people of now. Refreshes left: {refreshes}."
    typer.echo(as_json({"refreshes_left": refreshes}) if json else words)


def _described(facts: dict[str, Any]) -> str:
    lines = [f"Store {facts['identity']}, version {facts['version']} of the data"]
    for name, audience in facts["audiences"].items():
        counts = audience["queries"]
        lines.append(
            f"\nAudience {name}: {counts['used']} of {counts['planned']} answers given, "
            f"{counts['left']} left\n{_worn(audience['wear'])}{audience['guarantee']['text']}"
        )
    lines.append("\nHistory")
    lines += [f"  {e['at']}  {e['what']} (version {e['version']})" for e in facts["history"]]
    if "private" in facts:
        lines += ["\nPRIVATE, for the curator only", as_json(facts["private"])]
    return "\n".join(lines)


def _worn(wear: dict[str, Any] | None) -> str:
    if wear is None:
        return ""
    return (
        f"Wear, estimated on public points: {wear['mean']:.0%} of a budget used on average, "
        f"{wear['quantiles']['90%']:.0%} by the busiest tenth, {wear['retired']:.0%} retired\n"
    )


def _answers(reply: Reply) -> dict[str, Any]:
    return {name: value for name, value in reply.to_dict().items() if name != "votes"}
