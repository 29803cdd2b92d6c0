"""`vicinal plan`, and --dry-run of other commands: what it would cost whom, and what to expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option, echo

from vicinal import __version__
from vicinal.cli._reference import FeatureOptions, ReferenceOptions
from vicinal.cli.options import Json, PlanCommand, grouped, plan_given
from vicinal.cli.output import as_json, show_progress_bars, warnings_said
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray, FloatMatrix
    from vicinal.neighbours.radius import Reference
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.planning.plan_simulation import SimulationSetup

_SOME_ROWS = 300
"""Public rows that are planned for where none are given: enough for a private model."""

_UNLABELLED = "because the public rows have no labels (--label)"
_LEAST = "Noise is planned for the least that training leaves of a budget; fit takes less"


@grouped
def plan(
    ctx: typer.Context,
    *,
    label: Annotated[
        str | None, Option(help="Column that holds labels of the public rows (y in .npz).")
    ] = None,
    feature_options: FeatureOptions,
    reference_options: ReferenceOptions,
    seed: Annotated[int, Option(help="Seed of the simulation.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Show a plan and what to expect of it. Reads no private record and spends nothing.

    With --public and --label it simulates the plan on those rows. It compares other epsilons,
    releases and numbers of queries. It takes the options of init; --classes may also be a number.
    """
    from vicinal.planning.plan import IndKNNPlan
    from vicinal.targets.kinds import declared_target

    reference_options.check(feature_options.features)
    given = plan_given(ctx)
    names = given.get("classes", ())
    numbered = len(names) == 1 and isinstance(names[0], int) and names[0] > 1
    if numbered:
        given["classes"] = range(names[0])
    checked = IndKNNPlan.of_target(declared_target(given), given)
    with warnings_said():
        plain = feature_options.extractor(reference_options.public, [label])
        _, points, labels = feature_options.read(reference_options, plain, label)
    if label is not None and labels is None:
        raise InvalidInput("The 'label' option needs public rows that have labels.")
    if numbered and labels is not None:
        import numpy as np

        labels = np.unique(labels, return_inverse=True)[1]  # names stand in their order
    show_outlook(checked, points, labels, seed=seed, alone=False, json=json)


plan.command_class = PlanCommand  # type: ignore[attr-defined]


def show_outlook(
    plan: IndKNNPlan,
    points: FloatMatrix | None,
    labels: AnyArray | None = None,
    *,
    costs: Sequence[str] = (),
    alone: bool = True,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Print what a plan costs whom, how right and how noisy its answers will be; public facts only.

    - `points`, array (m, d): public features; `labels` (m,), if they have some.
    - `costs`: what else is to be said of a command's costs, first.
    - `alone`: whether this is the dry run of a command; else other plans stand beside it.
    """
    from vicinal.reports.plan_report import as_text, assess_plan, plan_options

    plan = plan.settled(_SOME_ROWS if points is None else len(points))
    reference, stage, why = _staged(plan, points, labels)
    with show_progress_bars(silent=json) as begin:
        options = plan_options(plan, reference, stage, seed, begin, alone=alone)
    shares = [] if stage is None else stage.shares
    lines = assess_plan(plan, shares) if plan.target.voted else []
    lines += ["Dry run: nothing was written, drawn or charged."] * alone
    if not json:
        text = as_text(options, why)
        echo("\n".join([*costs, *[""] * bool(costs), text, "", *lines]).rstrip())
        return
    first, *others = options
    result = {
        "costs": list(costs),
        "verdict": "\n".join(lines),
        "usage": asdict(first.choice.usage),
        "plan": first.to_dict(),
        "alternatives": [choice.to_dict() for choice in others],
        "version": __version__,
    }
    echo(as_json(result))


def _staged(
    plan: IndKNNPlan, points: FloatMatrix | None, labels: AnyArray | None
) -> tuple[Reference | None, SimulationSetup | None, str]:
    """Return public points as fit would take them in, and where a plan is played on them.

    Or why it cannot be.
    """
    import numpy as np

    from vicinal.neighbours.radius import Reference
    from vicinal.planning.engine_factory import kernel_for
    from vicinal.planning.plan_simulation import LEAST_POINTS, SimulationSetup

    if points is None:
        words = "because there are no public rows (--public), with which noise would be smaller"
        return None, None, words
    points = np.asarray(points)
    if points.ndim != 2 or points.dtype.kind not in "iuf" or not np.isfinite(points).all():
        raise InvalidInput(
            "The 'public' parameter must hold rows of finite numbers, or --features must say how "
            "rows become numbers."
        )
    kernel = kernel_for(plan, points)
    reference = Reference(kernel, kernel.encode(points))
    usual = plan.kernel == "cosine" and plan.min_similarity is None and not plan.private_count
    if not usual or not plan.target.voted or len(points) < LEAST_POINTS:
        words = f"because it takes {LEAST_POINTS} public rows and the default neighbours"
        return reference, None, words
    if labels is None:
        planned = plan.model_share and not plan.noise_multiplier
        return reference, None, f"{_UNLABELLED}. {_LEAST}" if planned else _UNLABELLED
    places = np.asarray(plan.target.encode(labels, len(points)), dtype=np.int64)
    stage = SimulationSetup.of(kernel, reference.points, plan.target.n_coordinates, places)
    return reference, stage, ""
