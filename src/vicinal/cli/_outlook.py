"""`vicinal plan`, and --dry-run of other commands: costs and expected accuracy of a plan.

`feature_options` and `reference_options` are groups of options on the feature extractor and on
public rows. `json` prints one JSON object. Plan parameters are in click's context `ctx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from vicinal import __version__
from vicinal.cli._reference import FeatureOptions, ReferenceOptions
from vicinal.cli.options import Json, PlanCommand, expand_groups, get_plan_arguments
from vicinal.cli.output import as_json, echo, print_warnings, show_progress_bars
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray, FloatMatrix
    from vicinal.neighbours.radius import Reference
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.planning.plan_simulation import SimulationSetup

ASSUMED_PUBLIC_ROWS = 300
"""Number of public rows that a plan assumes before they are read: enough for a private model."""


@expand_groups
def plan(
    ctx: typer.Context,
    *,
    label: Annotated[
        str | None, Option(help="Column that holds labels of the public rows (y in .npz).")
    ] = None,
    feature_options: FeatureOptions,
    reference_options: ReferenceOptions,
    seed: Annotated[int, Option(help="Seed of the simulation.", min=0)] = 0,
    details: Annotated[
        bool, Option("--details", help="Show neighbours, noise and training, too.")
    ] = False,
    json: Json = False,
) -> None:
    """Show a plan, its costs and expected accuracy. Reads no private record and spends nothing.

    With --public and --label it simulates the plan on those rows. It compares other epsilons,
    releases and numbers of queries. It takes the options of init; --classes may also be a number.
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
    with print_warnings():
        plain = feature_options.build_extractor(reference_options.public, [label])
        _, points, labels = feature_options.fit_extractor(reference_options, plain, label)
    if label is not None and labels is None:
        raise InvalidInput("The 'label' option needs public rows that have labels.")
    if has_class_count and labels is not None:
        import numpy as np

        # Without class names, the sorted labels are numbered from 0.
        labels = np.unique(labels, return_inverse=True)[1]
    show_outlook(checked, points, labels, seed=seed, dry_run=False, details=details, json=json)


plan.command_class = PlanCommand  # type: ignore[attr-defined]


def show_outlook(
    plan: IndKNNPlan,
    points: FloatMatrix | None,
    labels: AnyArray | None = None,
    *,
    costs: Sequence[str] = (),
    dry_run: bool = True,
    seed: int = 0,
    details: bool = False,
    json: bool = False,
) -> None:
    """Print a plan with its costs, expected accuracy and noise, computed from public facts only.

    - `points`, array (m, d): public features, with class names `labels` (m,); None without any.
    - `costs`: lines on further costs of the command, printed first.
    - `dry_run`: whether this is the dry run of a command, which compares no other plans.
    - `seed`: seed of the simulation.
    - `details`: whether the text has neighbours, noise and training, too.
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
    verdict, *advice = assess_plan(plan, class_shares) if plan.target.is_class_vote else [""]
    if dry_run:
        advice.append("Dry run: nothing was written, drawn or charged.")
    elif not details and not json:
        advice.append("--details shows neighbours, noise and training.")
    if not json:
        introduction = [*costs, ""] if costs else []
        report = format_plan_options(options, reason, verdict, details=details)
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


def _prepare_simulation(
    plan: IndKNNPlan, points: FloatMatrix | None, labels: AnyArray | None
) -> tuple[Reference | None, SimulationSetup | None, str]:
    """Return encoded public points, the setup of a simulation on them, and why there is no setup.

    Each is None, or the reason empty, if it does not exist. `points`, array (m, d), `labels` (m,):
    public features and their class names, or None.
    """
    import numpy as np

    from vicinal.neighbours.radius import Reference
    from vicinal.planning.engine_factory import create_kernel
    from vicinal.planning.plan_simulation import MIN_POINTS, SimulationSetup

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
    label_indices = np.asarray(plan.target.encode(labels, len(points)), dtype=np.int64)
    return reference, SimulationSetup(reference, label_indices, plan.target.n_coordinates), ""
