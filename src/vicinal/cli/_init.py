"""`vicinal init` and `audience`: create a store, and open an audience with a plan of its own.

The parameters of the plan are not in the signatures of the commands: :class:`options.PlanCommand`
adds their options and keeps the values in click's context `ctx`.

Shared options: `store`, folder of the store; `data`, file of private records; `label` and
`subject`, its columns of labels and of subject ids; `ids_differ`, accept ids that differ in
spelling only; `ledger`, URL of a PostgreSQL database for the budgets; `witness`, file that detects
old copies of the store; `yes`, accept a weak guarantee; `dry_run`, show costs and change nothing;
`quiet` and `json`, print no summary, or one JSON object. `accept_lost_charges` opens a store that
has lost its newest charges, and counts all its budgets as spent. `feature_options`,
`reference_options` and `renewal_options` are groups of options: the feature extractor, the public
rows, and the schedule of budgets of which every period makes a part available.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from vicinal.cli import options, output, records
from vicinal.cli._outlook import ASSUMED_PUBLIC_ROWS, print_plan_report
from vicinal.cli._reference import FROM_SCHEMA, FeatureOptions, ReferenceOptions
from vicinal.cli.output import echo
from vicinal.errors import InvalidInput
from vicinal.store import input_files

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.store.store import Store

_GENERATED_ROWS_NOTE = (
    "rows generated from a schema lie further apart than real ones, so more records take part in "
    "an answer than planned. On five tables this cost neighbours alone up to .09 of AUC, and a "
    "private model beside them up to .012. Use --model-share auto."
)
_GENERATED_ROWS_WITH_MODEL_NOTE = (
    "rows generated from a schema cost a private model up to .012 of AUC on five tables."
)

_CHECK_NOTE = (
    "a value in another spelling than in the schema counts as other or missing. Run vicinal schema "
    "--check first: it counts such rows, and fails if a whole column is lost."
)
"""Printed for every table, because a note on the values of private rows would reveal them."""

_NEW_VERSION_NOTE = (
    "A new audience begins a new version of the data. Repeated queries of all audiences count as "
    "new, and predict --coverage needs a new evaluation."
)


@options.expand_groups
def init(
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
    epsilon_total: Annotated[float | None, Option(help="Limit on epsilon over audiences.")] = None,
    renewal_options: options.RenewalOptions,
    yes: options.AcceptWeakPlan = False,
    dry_run: options.DryRun = False,
) -> None:
    """Create a store from private records. Prints its guarantee.

    For example: vicinal init store --data patients.parquet --label diagnosis --subject patient
    --features table --schema schema.json --public volunteers.parquet --classes healthy,ill
    """
    from vicinal.store.folder import choose_witness_path
    from vicinal.store.store import NewStore

    # All options are checked before anything is printed or read.
    reference_options.check(feature_options.features, data)
    choose_witness_path(store, witness)
    arguments = options.get_plan_arguments(ctx)
    renew = renewal_options.build_renewal()
    plan = _build_plan(arguments, 1 if renew is None else renew.periods, reference_options)
    targets = records.list_target_columns(plan.target, label)
    unfitted = feature_options.build_extractor(
        reference_options.public, [label, subject, *targets], data
    )
    with output.print_warnings(), output.show_announced_progress(silent=json or quiet):
        if feature_options.features == "table" and not quiet:
            output.print_note(_CHECK_NOTE)
        lacks_subjects = subject is None and input_files.is_table(data)
        if lacks_subjects:
            output.print_note(records.describe_missing_subjects(unfitted))
        if plan.target.is_class_vote and not quiet and not dry_run:
            _print_advice(plan, feature_options, reference_options)
        dataset = input_files.read_records(data, unfitted, label, subject, targets)
        if dataset.subjects is None and not lacks_subjects:
            output.print_note(records.describe_missing_subjects(unfitted))
        # Only a dry run uses public labels, to simulate the plan.
        may_use_labels = dry_run and plan.target.is_class_vote
        has_labels = may_use_labels and reference_options.public_has_column(label, unfitted)
        has_ids = has_labels and reference_options.public_has_column(subject, unfitted)
        extractor, points, public_labels = feature_options.fit_extractor(
            reference_options, unfitted, label if has_labels else None, subject if has_ids else None
        )
        labels = records.require_labels(dataset)
        with input_files.add_file_to_errors(data):
            new_store = NewStore.from_arguments(
                (store, ledger, witness),
                (dataset.features, labels, dataset.subjects),
                points,
                extractor,
                arguments,
                ids_differ=ids_differ,
                epsilon_total=epsilon_total,
                accept_weak_plan=yes,
                renew=renew,
            )
            if dry_run:
                costs = renewal_options.describe_costs()
                print_plan_report(new_store.plan, points, public_labels, costs=costs, json=json)
                return
            opened = new_store.create()
        with opened:
            if json:
                echo(output.as_json(opened.facts()))
            elif not quiet:
                echo(_format_summary(opened, store, points))


init.command_class = options.PlanCommand  # type: ignore[attr-defined]


@options.expand_groups
def audience(
    ctx: typer.Context,
    store: options.StorePath,
    name: Annotated[str, Argument(help="Name of the new audience.")],
    *,
    renewal_options: options.RenewalOptions,
    accept_lost_charges: options.AcceptLoss = False,
    yes: options.AcceptWeakPlan = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
) -> None:
    """Add an audience of analysts with budgets of its own."""
    plan = {"renew": renewal_options.build_renewal(), **options.get_plan_arguments(ctx)}
    with records.open_store(
        store, accept_lost_charges=accept_lost_charges, read_only=dry_run
    ) as opened:
        if dry_run:
            planned = opened.audience_plan(name, accept_weak_plan=yes, **plan)
            costs = [_NEW_VERSION_NOTE, *renewal_options.describe_costs()]
            print_plan_report(planned, opened.schema.public, costs=costs, json=json)
            return
        opened.open_audience(name, accept_weak_plan=yes, **plan)
        guarantee = opened.guarantee(name)
    if not json:
        output.print_note(_NEW_VERSION_NOTE)
    echo(output.as_json(guarantee.to_dict()) if json else output.format_guarantee(guarantee))


audience.command_class = options.AudiencePlanCommand  # type: ignore[attr-defined]


def _build_plan(
    arguments: dict[str, Any], n_periods: int, reference_options: ReferenceOptions
) -> IndKNNPlan:
    """Return the plan of a new store, before any file is read.

    `arguments`: plan parameters given on the command line. `n_periods`: number of renewal periods;
    1 if budgets do not renew. Raises InvalidInput for unusable parameters, and for a plan that
    needs public rows if the options name none.
    """
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.targets.kinds import declared_target

    plan = IndKNNPlan.of_target(declared_target(arguments), arguments).changed(n_periods=n_periods)
    if reference_options.public is not None or reference_options.reference is not None:
        return plan
    try:
        plan.check_kernel(has_public=False)
    except InvalidInput as error:
        raise InvalidInput(
            "The 'public' option must name a file of public rows: the same columns, without labels "
            "and ids. If you have none, use --reference from-schema with --features table and "
            "--schema."
        ) from error
    return plan


def _print_advice(
    plan: IndKNNPlan, feature_options: FeatureOptions, reference_options: ReferenceOptions
) -> None:
    """Print notes if a plan for classes may have too few records, judged by the options alone."""
    from vicinal.reports.plan_report import assess_plan

    is_generated = (
        reference_options.reference == FROM_SCHEMA and feature_options.features == "table"
    )
    has_public = is_generated or reference_options.public is not None
    plan = plan.choose_model_share(ASSUMED_PUBLIC_ROWS if has_public else 0)
    for line in assess_plan(plan, brief=True):
        output.print_note(line)
    if is_generated:
        cost = _GENERATED_ROWS_WITH_MODEL_NOTE if plan.model_share else _GENERATED_ROWS_NOTE
        output.print_note(
            f"{cost} If you have past queries, pass them as --public: queries are public."
        )


def _format_summary(store: Store, path: Path, points: AnyArray | None) -> str:
    """Return the text on a new store: its plan, features, noise, model and guarantee.

    `path`: its folder. `points` (m, d): features of the public rows, None if there are none.
    """
    facts = store.facts()
    n_public_rows = 0 if points is None else len(points)
    plan = facts["audiences"]["default"]["plan"]
    features = facts["features"]
    multiplier = plan.get("noise_multiplier")
    n_neighbors = plan.get("n_neighbors")
    votes = ""
    if multiplier is not None and n_neighbors is not None:
        noise_std = multiplier * math.sqrt(n_neighbors)
        votes = f"; about {n_neighbors} neighbours per query, and noise of {noise_std:.1f} votes"
    lines = [
        f"Made {path} for {plan['n_queries']} answers of {store.schema.target.describe()}.",
        f"{features['number']} features ({features['kind']}), {n_public_rows} public rows.",
        f"Epsilon {plan['epsilon']:g}, delta {plan['delta']:g}{votes}.",
    ]
    model_share = plan.get("model_share")
    if model_share:
        lines.append(
            f"A private model was trained with at most {model_share:.0%} of each budget. "
            "Erasing a subject does not\nchange it. To have none, use --model-share 0."
        )
    elif "model_share" in plan:
        lines.append("The store has no private model.")
    return "\n".join([*lines, "", output.format_guarantee(store.guarantee())])
