"""`vicinal init`, which makes a store, and `vicinal audience`, which gives it a further plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._answers import init_summary
from vicinal.cli._feature_options import FROM_SCHEMA, FeatureOptions, ReferenceOptions
from vicinal.cli._options import (
    Data,
    Json,
    Label,
    Ledger,
    Quiet,
    StorePath,
    Subject,
    Witness,
    grouped,
)
from vicinal.cli._output import progress_shown, say, warnings_said
from vicinal.cli._plan_options import AudiencePlanCommand, PlanCommand, default_of, plan_given
from vicinal.cli._records import naming, read_records, target_columns
from vicinal.cli._shards import AcceptLoss, opened_at, spread
from vicinal.cli._verdicts import say_linear_model, say_thin_reference, say_verdict
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray
    from vicinal.planning import PlanRequest
    from vicinal.store import StoreExtractor

_PLANNED = ("epsilon", "delta", "n_queries", "release", "records_per_subject")


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
        str | None, typer.Option(help="Make features on Ray: auto, an address, or local.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a store of private records; print its guarantee."""
    from vicinal.planning import IndKNNPlan
    from vicinal.store import Store
    from vicinal.targets import declared_target

    public = reference_options.public
    reference_options.check(data, feature_options.features)
    plan = plan_given(ctx)
    target = declared_target(plan)
    IndKNNPlan.of_target(target, plan)  # every value is checked before anything is said or read
    columns_of_y = target_columns(target, label)
    plain = feature_options.extractor(public, [label, subject, *columns_of_y])
    with warnings_said(), progress_shown(silent=json), spread(plain, ray) as unmapped:
        if not quiet and target.voted:
            _say_before(plan, feature_options.features, reference_options.reference)
        dataset = read_records(data, unmapped, label, subject, columns_of_y)
        with naming(data):
            rows = reference_options.rows(unmapped)
        extractor, points = feature_options.reference_points(rows, unmapped)
        if points is not None:
            _say_of_reference(plan, points, extractor, quiet=quiet)
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            opened = Store.init(
                store, dataset.features, dataset.labels, dataset.subjects, public=points,
                extractor=extractor, ledger=ledger, witness=witness, **plan,
            )  # fmt: skip
        with opened:
            facts = opened.facts()
            if json or not quiet:
                say(
                    facts,
                    f"{init_summary(store, facts, target, points)}\n\n{opened.guarantee()}",
                    json,
                )


init.command_class = PlanCommand  # type: ignore[attr-defined]


def _request(plan: dict[str, Any]) -> PlanRequest:
    from vicinal.planning import PlanRequest

    parameters = {name: plan.get(name, default_of(name)) for name in _PLANNED}
    gate = plan.get("reuse_predictions") == "gate"
    size = plan.get("n_records") or 1
    return PlanRequest(n_records=size, n_classes=len(plan["classes"]), gate=gate, **parameters)


def _say_before(plan: dict[str, Any], features: str, reference: str | None) -> None:
    """Tell what is known of a plan for classes before anything is read."""
    n_known = bool(plan.get("n_records"))
    say_verdict(_request(plan), plan["classes"], plan.get("class_prior"), known=n_known)
    if reference == FROM_SCHEMA and features == "table":
        say_thin_reference(with_model=plan.get("model_share") != 0)


def _say_of_reference(
    plan: dict[str, Any], points: AnyArray, extractor: StoreExtractor, *, quiet: bool
) -> None:
    """Warn of a weak reference; tell of a private model where it may be better than neighbours."""
    from vicinal.cli._verdicts import warn_about_reference

    warn_about_reference(points, _feature_names(extractor))
    known = "classes" in plan and plan.get("n_records") and plan.get("model_share") == 0
    if known and not quiet:
        n_public, n_features = points.shape
        say_linear_model(replace(_request(plan), n_features=n_features, n_public=n_public))


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
