"""Commands of a store: `init`, `add`, `erase`, `predict` and those that look after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._answers import (
    answer_table,
    check_format,
    init_summary,
    local_file,
    summary,
    write_answers,
)
from vicinal.cli._labellers import share_of
from vicinal.cli._options import Json, StorePath
from vicinal.cli._output import Yes, as_json, confirm, warnings_said, write_file
from vicinal.cli._records import (
    FROM_SCHEMA,
    ReferenceWish,
    check_reference,
    identified,
    naming,
    read_queries,
    read_records,
    reference_of,
    schema_for,
    with_names,
)
from vicinal.cli._shards import AcceptLoss, Ray, opened_at, spread
from vicinal.cli._subjects import listed_ids
from vicinal.cli._verdicts import class_numbers, say_linear_model, say_thin_reference, say_verdict
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed

if TYPE_CHECKING:
    from vicinal.store import Reply, StoreExtractor

Data = Annotated[
    Path, typer.Option(help="Records: .parquet, .csv, .csv.gz, .npz, or a folder of images.")
]
Label = Annotated[str | None, typer.Option(help="Column of labels.")]
Subject = Annotated[str | None, typer.Option(help="Column of subject ids.")]
Columns = Annotated[
    str | None, typer.Option(help="Feature columns, comma-separated; default: all others.")
]
Audience = Annotated[str, typer.Option(help="Whose budgets and whose plan.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="timm architecture, folder of a text model, or .onnx file; image without it: "
        "efficientnet-lite0. Public."
    ),
]
Reuse = Annotated[
    str, typer.Option(help="none, neighbors or gate: what earlier answers do for later queries.")
]
ClassPrior = Annotated[
    str | None,
    typer.Option(help="How common each class is, in the order of --classes, as .95,.05. Public."),
]
Cost = Annotated[
    str | None,
    typer.Option(help="What missing a record of each class costs, as 1,20; or balanced."),
]
ModelShare = Annotated[
    str,
    typer.Option(
        help="Share of budgets that trains a private model: 0 (none) to 1, or auto (public facts)."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Leave out summaries and guarantee.")]
Ledger = Annotated[
    str | None, typer.Option(help="Keep budgets at this postgresql:// URL; default: SQLite.")
]
Witness = Annotated[
    Path | None, typer.Option(help="File that remembers how far the store came; on another disk.")
]


def init(
    store: StorePath,
    data: Data,
    classes: Annotated[str, typer.Option(help="All class names, comma-separated. Public.")],
    label: Label = None,
    subject: Subject = None,
    columns: Columns = None,
    public: Annotated[
        Path | None, typer.Option(help="Public, unlabelled records, in the same columns.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The table's public schema, for --features table.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Without --public: from-schema, or from-marginals (costs budget)."),
    ] = None,
    reference_rows: Annotated[
        int, typer.Option(help="Rows that --reference makes up.", min=1, max=100_000)
    ] = 2000,
    reference_share: Annotated[
        float,
        typer.Option(help="Part of every budget that from-marginals costs.", min=0.001, max=0.9),
    ] = 0.1,
    features: Annotated[
        str,
        typer.Option(
            help="columns, table, hog, scattering, image, text or onnx: what makes the vectors."
        ),
    ] = "columns",
    model: Model = None,
    weights: Annotated[Path | None, typer.Option(help="File of a timm network's weights.")] = None,
    components: Annotated[
        int | None,
        typer.Option(
            help="Reduce features to so many by a map learnt from the reference; 0: none. "
            "Default: 100 for tables, else none."
        ),
    ] = None,
    power: Annotated[
        float, typer.Option(help="How much of each component's strength the map takes away.")
    ] = 0.5,
    epsilon: Annotated[float, typer.Option(help="Bound on the privacy loss.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance that the bound does not hold.")] = 1e-5,
    queries: Annotated[int, typer.Option(help="How many answers to plan for.")] = 1000,
    release: Annotated[str, typer.Option(help="votes or label: what leaves.")] = "votes",
    class_prior: ClassPrior = None,
    cost: Cost = None,
    kernel: Annotated[str, typer.Option(help="cosine or rbf.")] = "cosine",
    records: Annotated[
        int | None, typer.Option(help="Public number of records; default: estimated, with noise.")
    ] = None,
    index: Annotated[str, typer.Option(help="exact, lsh or centroids; all audiences'.")] = "exact",
    reuse: Reuse = "none",
    model_share: ModelShare = "0",
    ledger: Ledger = None,
    witness: Witness = None,
    ray: Annotated[
        str | None, typer.Option(help="Make features on Ray: auto, an address, or local.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a store of private records; print its guarantee."""
    from vicinal.cli._verdicts import warn_about_reference
    from vicinal.predictors.ind_knn._plan_choice import PlanRequest
    from vicinal.store import Store, StoreExtractor

    check_reference(data, public, reference, features)
    options = {
        "model": model,
        "weights": None if weights is None else str(weights),
        "schema": None if schema is None else schema_for(schema, label, subject),
    }
    given = {name: value for name, value in options.items() if value is not None}
    plain = with_names(
        StoreExtractor(features, given, None, _listed(columns)), public, label, subject
    )
    planned = {"classes": _names(classes), "epsilon": epsilon, "delta": delta, "release": release}
    wish = ReferenceWish(public, reference, reference_rows, reference_share, planned)
    with warnings_said(), spread(plain, ray) as unmapped:
        request = PlanRequest(
            records or 1, queries, epsilon, delta, len(_names(classes)), release, reuse == "gate"
        )
        numbers = class_numbers(class_prior, cost)
        if not quiet:
            say_verdict(request, _names(classes), numbers.get("class_prior"), known=bool(records))
        dataset = read_records(data, unmapped, label, subject)
        with naming(data):
            raw, reference_cost = wish.found(unmapped, dataset)
        if reference == FROM_SCHEMA and not quiet:
            say_thin_reference()
        extractor, points = reference_of(raw, unmapped, components, power)
        if points is not None:
            warn_about_reference(points, _feature_names(extractor))
            if features == "table" and records and model_share == "0" and not quiet:
                say_linear_model(request, points.shape[1])
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            made = Store.init(
                store, dataset.features, dataset.labels, dataset.subjects, classes=_names(classes),
                public=points, extractor=extractor, ledger=ledger, witness=witness, kernel=kernel,
                index=index, reuse_predictions=_reused(reuse), release=release, n_records=records,
                epsilon=epsilon, delta=delta, n_queries=queries, reference_cost=reference_cost,
                model_share=share_of(model_share), **numbers,
            )  # fmt: skip
        with made:
            facts = made.facts()
            if json or not quiet:
                text = f"{init_summary(store, facts, points)}\n\n{made.guarantee()}"
                _say(facts, text, json)


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
    with warnings_said(), opened_at(store, accept_loss=accept_loss) as opened:
        dataset = read_records(data, opened.schema.extractor, label, subject)
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            opened.add(dataset.features, dataset.labels, dataset.subjects, idempotency_key=key)


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
    out: Annotated[
        str | None, typer.Option(help="Write answers here: .csv, .parquet, .npy, or - (stdout).")
    ] = None,
    quiet: Quiet = False,
    ray: Ray = None,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Answer queries; new ones spend budgets, durably before they are shown."""
    check_format(out)
    with (
        warnings_said(),
        local_file(data) as path,
        opened_at(store, ray, accept_loss=accept_loss) as opened,
    ):
        first, dataset = read_queries(path, opened.schema.extractor, name)
        with naming(path):
            rows, keys = opened.extracted(dataset.features)
        reply = opened.predict(rows, audience=audience, analyst=analyst, idempotency_key=key)
    table = answer_table(reply, opened.schema.classes, first)
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
    _say(facts, _described(facts), json)


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
        found = opened.verify(listed_ids(erased, erased_list))
    if json:
        typer.echo(as_json({"faults": list(found.faults), "checked": list(found.checked)}))
    if not found:
        raise StorageFailed(" ".join(found.faults))
    if not json:
        typer.echo("\n".join(["All is well. Checked:", *(f"- {what}" for what in found.checked)]))


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
        raise PrivacyRefused(f"{error}{where} --accept-loss accepts the loss.") from None


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


def audience(
    store: StorePath,
    name: Annotated[str, typer.Argument(help="What to call it.")],
    epsilon: Annotated[float, typer.Option(help="Bound on the privacy loss.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance that the bound does not hold.")] = 1e-5,
    queries: Annotated[int, typer.Option(help="How many answers to plan for.")] = 1000,
    release: Annotated[str, typer.Option(help="votes or label: what leaves.")] = "votes",
    class_prior: ClassPrior = None,
    cost: Cost = None,
    reuse: Reuse = "none",
    model_share: ModelShare = "0",
    accept_loss: AcceptLoss = False,
) -> None:
    """Give everybody a further budget, for people who share no answers with other audiences."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        opened.open_audience(
            name, epsilon=epsilon, delta=delta, n_queries=queries, release=release,
            reuse_predictions=_reused(reuse), model_share=share_of(model_share),
            **class_numbers(class_prior, cost),
        )  # fmt: skip
        typer.echo(str(opened.guarantee(name)))


def _feature_names(extractor: StoreExtractor) -> list[str] | None:
    """Return the names of features that are columns of a file, or made of them; None otherwise."""
    from vicinal.features import TableSchema

    if extractor.public_map is not None:
        return None
    if extractor.kind == "table":
        return list(TableSchema.from_dict(extractor.options["schema"]).feature_names)
    return extractor.columns


def _reused(reuse: str) -> bool | str:
    return False if reuse == "none" else reuse


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def _names(classes: str) -> list[Any]:
    """Return class names: integers if all of them are, as a column of a table is read."""
    texts = _listed(classes) or []
    if all(text.removeprefix("-").isdecimal() and str(int(text)) == text for text in texts):
        return [int(text) for text in texts]
    return texts


def _say(facts: dict[str, Any], text: str, json: bool) -> None:
    typer.echo(as_json(facts) if json else text)


def _described(facts: dict[str, Any]) -> str:
    lines = [f"Store {facts['identity']}, version {facts['version']} of the data"]
    for name, audience in facts["audiences"].items():
        asked = audience["queries"]
        lines.append(
            f"\nAudience {name}: {asked['used']} of {asked['planned']} answers given, "
            f"{asked['left']} left\n{_worn(audience['wear'])}{audience['guarantee']['text']}"
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
