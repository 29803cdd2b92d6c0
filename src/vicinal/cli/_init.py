"""`vicinal init`: a store of private records, with its first audience."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._answers import init_summary
from vicinal.cli._labellers import share_of
from vicinal.cli._options import (
    ClassPrior,
    Cost,
    Data,
    Delta,
    Epsilon,
    Json,
    Label,
    Ledger,
    ModelShare,
    Queries,
    Quiet,
    Release,
    Reuse,
    StorePath,
    Subject,
    Witness,
)
from vicinal.cli._output import say, warnings_said
from vicinal.cli._records import (
    FROM_SCHEMA,
    ReferenceWish,
    check_reference,
    listed,
    naming,
    read_records,
    reference_of,
    reused,
    schema_for,
    with_names,
)
from vicinal.cli._shards import spread
from vicinal.cli._verdicts import (
    class_numbers,
    say_linear_model,
    say_thin_reference,
    say_verdict,
    warn_about_reference,
)
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    import numpy.typing as npt

    from vicinal.predictors.ind_knn._plan_choice import PlanRequest
    from vicinal.store import StoreExtractor

Classes = Annotated[str, typer.Option(help="All class names, comma-separated. Public.")]
Columns = Annotated[
    str | None, typer.Option(help="Feature columns, comma-separated; default: all others.")
]
Public = Annotated[
    Path | None, typer.Option(help="Public, unlabelled records, in the same columns.")
]
Schema = Annotated[
    Path | None, typer.Option(help="The table's public schema, for --features table.")
]
Reference = Annotated[
    str | None,
    typer.Option(help="Without --public: from-schema, or from-marginals (costs budget)."),
]
ReferenceRows = Annotated[
    int, typer.Option(help="Rows that --reference makes up.", min=1, max=100_000)
]
ReferenceShare = Annotated[
    float, typer.Option(help="Part of every budget that from-marginals costs.", min=0.001, max=0.9)
]
Features = Annotated[
    str,
    typer.Option(
        help="columns, table, hog, scattering, image, text or onnx: what makes the vectors."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="timm architecture, folder of a text model, or .onnx file; image without it: "
        "efficientnet-lite0. Public."
    ),
]
Weights = Annotated[Path | None, typer.Option(help="File of a timm network's weights.")]
Components = Annotated[
    int | None,
    typer.Option(
        help="Reduce features to so many by a map learnt from the reference; 0: none. "
        "Default: 100 for tables, else none."
    ),
]
Power = Annotated[
    float, typer.Option(help="How much of each component's strength the map takes away.")
]
Kernel = Annotated[str, typer.Option(help="cosine or rbf.")]
Records = Annotated[
    int | None, typer.Option(help="Public number of records; default: estimated, with noise.")
]
Index = Annotated[str, typer.Option(help="exact, lsh or centroids; all audiences'.")]
Ray = Annotated[str | None, typer.Option(help="Make features on Ray: auto, an address, or local.")]


def init(
    store: StorePath,
    data: Data,
    classes: Classes,
    label: Label = None,
    subject: Subject = None,
    columns: Columns = None,
    public: Public = None,
    schema: Schema = None,
    reference: Reference = None,
    reference_rows: ReferenceRows = 2000,
    reference_share: ReferenceShare = 0.1,
    features: Features = "columns",
    model: Model = None,
    weights: Weights = None,
    components: Components = None,
    power: Power = 0.5,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    queries: Queries = 1000,
    release: Release = "votes",
    class_prior: ClassPrior = None,
    cost: Cost = None,
    kernel: Kernel = "cosine",
    records: Records = None,
    index: Index = "exact",
    reuse: Reuse = "none",
    model_share: ModelShare = "0",
    ledger: Ledger = None,
    witness: Witness = None,
    ray: Ray = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a store of private records; print its guarantee."""
    from vicinal.store import Store

    check_reference(data, public, reference, features)
    plain = _extractor(features, model, weights, schema, columns, public, label, subject)
    names, numbers = _class_names(classes), class_numbers(class_prior, cost)
    planned: dict[str, Any] = {
        "classes": names,
        "epsilon": epsilon,
        "delta": delta,
        "release": release,
    }
    wish = ReferenceWish(public, reference, reference_rows, reference_share, planned)
    with warnings_said(), spread(plain, ray) as unmapped:
        request = _plan_request(records, queries, len(names), reuse, planned)
        if not quiet:
            say_verdict(request, names, numbers.get("class_prior"), known=bool(records))
        dataset = read_records(data, unmapped, label, subject)
        with naming(data):
            raw, reference_cost = wish.found(unmapped, dataset)
        if reference == FROM_SCHEMA and not quiet:
            say_thin_reference()
        extractor, points = reference_of(raw, unmapped, components, power)
        plan = request if records and model_share == "0" and not quiet else None
        _say_about_reference(points, extractor, plan)
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            made = Store.init(
                store, dataset.features, dataset.labels, dataset.subjects, public=points,
                extractor=extractor, ledger=ledger, witness=witness, kernel=kernel, index=index,
                reuse_predictions=reused(reuse), n_records=records, n_queries=queries,
                reference_cost=reference_cost, model_share=share_of(model_share), **planned,
                **numbers,
            )  # fmt: skip
        with made:
            facts = made.facts()
            if json or not quiet:
                say(facts, f"{init_summary(store, facts, points)}\n\n{made.guarantee()}", json)


def _extractor(
    features: str, model: str | None, weights: Path | None, schema: Path | None,
    columns: str | None, public: Path | None, label: str | None, subject: str | None,
) -> StoreExtractor:  # fmt: skip
    """Return what makes features, before any map is learnt."""
    from vicinal.store import StoreExtractor

    options = {
        "model": model,
        "weights": None if weights is None else str(weights),
        "schema": None if schema is None else schema_for(schema, label, subject),
    }
    given = {name: value for name, value in options.items() if value is not None}
    return with_names(
        StoreExtractor(features, given, None, listed(columns)), public, label, subject
    )


def _plan_request(
    records: int | None, queries: int, n_classes: int, reuse: str, planned: dict[str, Any]
) -> PlanRequest:
    from vicinal.predictors.ind_knn._plan_choice import PlanRequest

    epsilon, delta, release = (planned[name] for name in ("epsilon", "delta", "release"))
    return PlanRequest(records or 1, queries, epsilon, delta, n_classes, release, reuse == "gate")


def _say_about_reference(
    points: npt.NDArray[Any] | None, extractor: StoreExtractor, plan: PlanRequest | None
) -> None:
    """Warn of a poor reference; say where a plan's rival may be ahead."""
    if points is not None:
        warn_about_reference(points, _feature_names(extractor))
        if plan is not None:
            say_linear_model(plan, points.shape[1])


def _feature_names(extractor: StoreExtractor) -> list[str] | None:
    """Return the names of features that are columns of a file, or made of them; None otherwise."""
    from vicinal.features import TableSchema

    if extractor.public_map is not None:
        return None
    if extractor.kind == "table":
        return list(TableSchema.from_dict(extractor.options["schema"]).feature_names)
    return extractor.columns


def _class_names(classes: str) -> list[Any]:
    """Return class names: integers if all of them are, as a column of a table is read."""
    texts = listed(classes) or []
    if all(text.removeprefix("-").isdecimal() and str(int(text)) == text for text in texts):
        return [int(text) for text in texts]
    return texts
