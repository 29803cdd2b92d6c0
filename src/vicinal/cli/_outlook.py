"""`vicinal plan`, and --dry-run of other commands: costs and expected accuracy of a plan.

`feature_options` and `reference_options` are groups of options on the feature extractor and on
public rows. `json` prints one JSON object. Plan parameters are in click's context `ctx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from vicinal import __version__
from vicinal.cli._reference import FeatureOptions, PublicLabels, ReferenceOptions
from vicinal.cli.options import Json, PlanCommand, expand_groups, get_plan_arguments
from vicinal.cli.output import as_json, echo, print_note, print_warnings, show_progress_bars
from vicinal.cli.records import describe_missing_subjects, list_target_columns
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.arrays import FloatMatrix
    from vicinal.neighbours.radius import Reference
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.planning.plan_simulation import SimulationSetup

ASSUMED_PUBLIC_ROWS = 300
"""Number of public rows that a plan assumes before they are read: enough for a private model."""


@expand_groups
def plan(
    ctx: typer.Context,
    *,
    label: Annotated[str | None, Option(help="Column of labels of public rows (npz: y).")] = None,
    subject: Annotated[str | None, Option(help="Column of subject ids of public rows.")] = None,
    feature_options: FeatureOptions,
    reference_options: ReferenceOptions,
    seed: Annotated[int, Option(help="Seed of the simulation.", min=0)] = 0,
    details: Annotated[bool, Option("--details", help="Show neighbours, noise, training.")] = False,
    json: Json = False,
) -> None:
    """Show a plan, its costs and expected accuracy. Reads no private record and spends nothing.

    With --public and --label it simulates the plan on those rows. If a person may have several,
    give --subject. It compares other epsilons, releases and numbers of queries. It takes the
    options of init; --classes may also be a number.
    """
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.targets.kinds import declared_target

    reference_options.check(feature_options.features)
    arguments = get_plan_arguments(ctx)
    names = arguments.get("classes", ())
    has_class_count = len(names) == 1 and isinstance(names[0], int) and names[0] > 1
    if has_class_count:
        arguments["classes"] = range(names[0])
    checked = IndKNNPlan.of_target(declared_target(arguments), arguments)
    targets = list_target_columns(checked.target, label)
    with print_warnings():
        plain = feature_options.build_extractor(
            reference_options.public, [label, subject, *targets]
        )
        _, points, labels = feature_options.fit_extractor(reference_options, plain, label, subject)
    if label is not None and labels is None:
        raise InvalidInput("The 'label' option needs public rows that have labels.")
    if has_class_count and labels is not None:
        import numpy as np

        # Without class names, the sorted labels are numbered from 0.
        class_indices = np.unique(labels.labels, return_inverse=True)[1]
        labels = replace(labels, labels=class_indices)
    print_plan_report(checked, points, labels, seed=seed, dry_run=False, details=details, json=json)
    if subject is None:
        print_note(describe_missing_subjects(plain))


plan.command_class = PlanCommand  # type: ignore[attr-defined]


def print_plan_report(
    plan: IndKNNPlan,
    points: FloatMatrix | None,
    labels: PublicLabels | None = None,
    *,
    costs: Sequence[str] = (),
    dry_run: bool = True,
    seed: int = 0,
    details: bool = False,
    json: bool = False,
    is_store_plan: bool = True,
) -> None:
    """Print a plan with its costs, expected accuracy and noise, computed from public facts only.

    - `points` (m, d), `labels`: features and labels of the public rows; each None without any.
    - `costs`: lines on further costs of the command, printed first.
    - `dry_run`: whether this is the dry run of a command, which compares no other plans.
    - `seed`: seed of the simulation.
    - `details`: whether the text has neighbours, noise and training, too.
    - `is_store_plan`: whether advice may name options of a store's plan, such as --class-prior,
      which `label` and `transfer` lack.
    """
    from vicinal.reports.plan_report import assess_plan, evaluate_plan_options, format_plan_options

    plan = plan.choose_model_share(ASSUMED_PUBLIC_ROWS if points is None else len(points))
    reference, setup, reason = _prepare_simulation(plan, points, labels)
    with show_progress_bars(silent=json) as begin:
        options = evaluate_plan_options(
            plan,
            reference,
            setup,
            seed,
            begin,
            n_features=None if points is None else points.shape[1],
            only_requested=dry_run,
        )
    class_shares = [] if setup is None else setup.shares
    verdict, *advice = [""]
    if plan.target.is_class_vote:
        verdict, *advice = assess_plan(plan, class_shares, accepts_class_prior=is_store_plan)
    if setup is not None and labels is not None:
        has_ids = labels.subjects is not None
        advice += _advise_on_public_subjects(plan, setup, has_ids=has_ids)
    if dry_run:
        advice.append("Dry run: nothing was written, drawn or charged.")
    elif not details and not json:
        advice.append("--details shows neighbours, noise and training.")
    if not json:
        introduction = [*costs, ""] if costs else []
        report = format_plan_options(
            options, reason, verdict, details=details, accepts_class_prior=is_store_plan
        )
        echo("\n".join([*introduction, report, "", *advice]).rstrip())
        return
    requested, *alternatives = options
    result = {
        "costs": list(costs),
        "verdict": "\n".join(filter(None, [verdict, *advice])),
        "usage": asdict(requested.choice.usage),
        "plan": requested.to_dict(),
        "alternatives": [option.to_dict() for option in alternatives],
        "version": __version__,
    }
    echo(as_json(result))


_FEW_SUBJECTS = 200
"""With fewer public subjects, an accuracy of .5 is uncertain by more than .07."""

_SEVERAL_ROWS = 1.5  # mean number of public rows of a subject from which rows are not people


def _advise_on_public_subjects(
    plan: IndKNNPlan, setup: SimulationSetup, *, has_ids: bool
) -> list[str]:
    """Return advice for plans whose public rows may be several rows of the same subjects.

    `setup`: has the subject of each public row. `has_ids`: whether that is from a column of ids.
    """
    advice = []
    if not has_ids:
        if plan.records_per_subject != 1:
            advice.append(
                "the accuracy is too high if the public rows have several rows of one person, "
                "because these vote for each other. Give the ids of these persons: vicinal plan "
                "--subject, or init --subject --dry-run, with that column in the public file."
            )
        return advice
    rows_per_subject = len(setup.subjects) / setup.n_subjects
    if plan.records_per_subject == 1 and rows_per_subject >= _SEVERAL_ROWS:
        advice.append(
            f"the public rows have about {rows_per_subject:.2g} rows per subject. If the records "
            f"have as many, use --records-per-subject {rows_per_subject:.2g}."
        )
    if setup.n_subjects < min(_FEW_SUBJECTS, plan.n_subjects):
        advice.append(
            f"only {setup.n_subjects:,} public subjects have labels, so the accuracy is uncertain, "
            "and perhaps too low: the records of more subjects teach more."
        )
    return advice


def _prepare_simulation(
    plan: IndKNNPlan, points: FloatMatrix | None, labels: PublicLabels | None
) -> tuple[Reference | None, SimulationSetup | None, str]:
    """Return encoded public points, the setup of a simulation on them, and why there is no setup.

    Each is None, or the reason empty, if it does not exist. `points` (m, d), `labels`: features,
    and class names and subject ids, of the public rows; None if unknown.
    """
    import numpy as np

    from vicinal.neighbours.radius import Reference
    from vicinal.planning.engine_factory import create_kernel
    from vicinal.planning.plan_simulation import MIN_POINTS, MIN_SUBJECTS, SimulationSetup

    if points is None:
        reason = "because there are no public rows (--public), with which noise would be smaller"
        return None, None, reason
    points = np.asarray(points)
    if points.ndim != 2 or points.dtype.kind not in "iuf" or not np.isfinite(points).all():
        raise InvalidInput(
            "The 'public' parameter must hold rows of finite numbers, or --features must say how "
            "rows become numbers."
        )
    kernel = create_kernel(plan, points)
    reference = Reference(kernel, kernel.encode(points))
    has_default_neighbours = (
        plan.kernel == "cosine" and plan.min_similarity is None and not plan.has_private_count
    )
    if not has_default_neighbours or not plan.target.is_class_vote or len(points) < MIN_POINTS:
        reason = f"because it takes {MIN_POINTS} public rows and the default neighbours"
        return reference, None, reason
    if labels is None:
        reason = "because the public rows have no labels (--label)"
        if plan.model_share and not plan.noise_multiplier:
            reason += (
                ". Noise is planned for the least that training leaves of a budget; fit takes less"
            )
        return reference, None, reason
    class_indices = np.asarray(
        plan.target.encode(labels.labels, len(labels.labels)), dtype=np.int64
    )
    subjects = np.arange(len(class_indices))
    if labels.subjects is not None:
        subjects = np.unique(labels.subjects, return_inverse=True)[1]
    labelled = Reference(kernel, reference.points[labels.is_complete])
    setup = SimulationSetup(labelled, class_indices, subjects, plan.target.n_coordinates)
    if len(labelled) < MIN_POINTS or setup.n_subjects < MIN_SUBJECTS:
        reason = f"because it takes {MIN_POINTS} public rows of {MIN_SUBJECTS} subjects with labels"
        return reference, None, reason
    return reference, setup, ""
