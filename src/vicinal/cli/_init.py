"""`vicinal init`, which makes a store, and `vicinal audience`, which gives it a further plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._answers import init_summary
from vicinal.cli._options import (
    Data,
    Json,
    Label,
    Ledger,
    Quiet,
    StorePath,
    Subject,
    Text,
    Witness,
)
from vicinal.cli._output import progress_shown, say, warnings_said
from vicinal.cli._plan_options import AudiencePlanCommand, PlanCommand, default_of, plan_given
from vicinal.cli._records import (
    FROM_SCHEMA,
    ReferenceRequest,
    check_reference,
    document_column,
    naming,
    read_records,
    reference_of,
    schema_for,
    target_columns,
    vocabulary_of,
    with_names,
)
from vicinal.cli._shards import AcceptLoss, opened_at, spread
from vicinal.cli._verdicts import say_linear_model, say_thin_reference, say_verdict
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    import numpy.typing as npt

    from vicinal.predictors.ind_knn._plan_choice import PlanRequest
    from vicinal.store import StoreExtractor

Columns = Annotated[
    str | None, typer.Option(help="Feature columns, comma-separated; default: all others.")
]
Model = Annotated[
    str | None,
    typer.Option(
        help="timm architecture, folder of a text model or minilm (without torch), or .onnx file; "
        "image without it: efficientnet-lite0. Public."
    ),
]

_PLANNED = ("epsilon", "delta", "n_queries", "release", "records_per_subject")


def init(
    ctx: typer.Context,
    store: StorePath,
    data: Data,
    label: Label = None,
    subject: Subject = None,
    text: Text = None,
    keywords: Annotated[
        int | None,
        typer.Option(
            help="Instead of --vocabulary: the so many most frequent words of the public texts.",
            min=1,
        ),
    ] = None,
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
    from vicinal.predictors._common.parameter_checks import listed
    from vicinal.store import Store, StoreExtractor
    from vicinal.store._targets import CLASSES, TargetSchema

    check_reference(data, public, reference, features)
    named = None if columns is None else listed(columns)
    if features == "text" and named is None and text is not None:
        named = [text]
    plan, apart = plan_given(ctx), [label, subject, text]
    if keywords is not None:
        plan["vocabulary"] = _vocabulary(plan, public, named if text is None else [text], keywords)
    target = TargetSchema.of(plan)
    target.settings(plan)  # every value is checked before anything is said or read
    columns_of_y = target_columns(target, label)
    options = {
        "model": model,
        "weights": None if weights is None else str(weights),
        "schema": None if schema is None else schema_for(schema, [*apart, *columns_of_y]),
    }
    options_set = {name: value for name, value in options.items() if value is not None}
    plain = with_names(
        StoreExtractor(features, options_set, None, named),
        public, [*apart, *columns_of_y],
    )  # fmt: skip
    documents = document_column(target, plain, text)
    wish = ReferenceRequest(public, reference, reference_rows, reference_share, target, plan)
    with warnings_said(), progress_shown(silent=json), spread(plain, ray) as unmapped:
        if not quiet and target.kind == CLASSES:
            _say_before(plan, features, reference)
        dataset = read_records(data, unmapped, label, subject, columns_of_y, documents)
        with naming(data):
            raw, reference_cost = wish.rows_and_cost(unmapped, dataset)
        extractor, points = reference_of(raw, unmapped, components, power)
        if points is not None:
            warn_about_reference(points, _feature_names(extractor))
            if not quiet:
                _say_model(plan, points)
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            opened = Store.init(
                store, dataset.features, dataset.labels, dataset.subjects, public=points,
                extractor=extractor, ledger=ledger, witness=witness, reference_cost=reference_cost,
                **plan,
            )  # fmt: skip
        with opened:
            facts = opened.facts()
            if json or not quiet:
                say(facts, f"{init_summary(store, facts, points)}\n\n{opened.guarantee()}", json)


init.command_class = PlanCommand  # type: ignore[attr-defined]


def _vocabulary(
    plan: dict[str, Any], public: Path | None, named: list[str] | None, n_words: int
) -> dict[str, float]:
    if "vocabulary" in plan:
        raise InvalidInput("Give either --vocabulary or --keywords.")
    return vocabulary_of(public, named[0] if named else "text", n_words)


def _request(plan: dict[str, Any]) -> PlanRequest:
    from vicinal.predictors.ind_knn._plan_choice import PlanRequest

    parameters = {name: plan.get(name, default_of(name)) for name in _PLANNED}
    gate = plan.get("reuse_predictions") == "gate"
    size = plan.get("n_records") or 1
    return PlanRequest(n_records=size, n_classes=len(plan["classes"]), gate=gate, **parameters)


def _say_before(plan: dict[str, Any], features: str, reference: str | None) -> None:
    """Tell what is known of a plan for classes before anything is read."""
    n_known = bool(plan.get("n_records"))
    say_verdict(_request(plan), plan["classes"], plan.get("class_prior"), known=n_known)
    if reference == FROM_SCHEMA and features == "table":
        say_thin_reference()


def _say_model(plan: dict[str, Any], points: npt.NDArray[Any]) -> None:
    """Tell of a private linear model where it may be better than neighbours."""
    if "classes" in plan and plan.get("n_records") and not plan.get("model_share"):
        say_linear_model(_request(plan), points.shape[1])


def audience(
    ctx: typer.Context,
    store: StorePath,
    name: Annotated[str, typer.Argument(help="What to call it.")],
    accept_loss: AcceptLoss = False,
) -> None:
    """Give everybody a further budget, for people who share no answers with other audiences."""
    with opened_at(store, accept_loss=accept_loss) as opened:
        opened.open_audience(name, **plan_given(ctx))
        typer.echo(str(opened.guarantee(name)))


audience.command_class = AudiencePlanCommand  # type: ignore[attr-defined]


def _feature_names(extractor: StoreExtractor) -> list[str] | None:
    """Return the names of features that are columns of a file, or made of them; None otherwise."""
    from vicinal.features import TableSchema

    if extractor.public_map is not None:
        return None
    if extractor.kind == "table":
        return list(TableSchema.from_dict(extractor.options["schema"]).feature_names)
    return extractor.columns
