"""`vicinal plan`: what a classifier would choose, what to expect, and what else there is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._options import Delta, Epsilon, Json, grouped
from vicinal.cli._output import as_json, picture_format, progress, write_file
from vicinal.cli._plan_vectors import TargetOptions, carried_words, plan_vectors
from vicinal.cli._verdicts import linear_model_lines, numbers, verdict_lines
from vicinal.errors import InvalidInput

AUTO = "auto"

if TYPE_CHECKING:
    from vicinal.planning import PlanRequest, SimulationSetup
    from vicinal.reports import Option


@dataclass(frozen=True, slots=True)
class ClassOptions:
    """What a plan for classes may set besides."""

    release: Annotated[str, typer.Option(help="What leaves: votes, or label.")] = "votes"
    gate: Annotated[
        bool, typer.Option("--gate", help="Let a model of earlier answers give those it knows.")
    ] = False
    model_share: Annotated[
        str, typer.Option(help="Share of budgets for a private model: a number, 0, or auto.")
    ] = "auto"
    labels: Annotated[
        str | None,
        typer.Option(help="Column of the points' labels, if they have real ones (.npz: y)."),
    ] = None
    class_prior: Annotated[
        str | None, typer.Option(help="How common each class is, as .95,.05; warns of rare ones.")
    ] = None
    plot: Annotated[
        Path | None, typer.Option(help="Draw the choices into this file (.png, .svg).")
    ] = None


@grouped
def plan(
    records: Annotated[int, typer.Option(help="Declared number of private records.")],
    queries: Annotated[int, typer.Option(help="Answers wanted.")],
    *,
    classes: Annotated[int | None, typer.Option(help="Number of classes.")] = None,
    target_options: TargetOptions,
    records_per_subject: Annotated[
        float, typer.Option(help="Public mean number of records of a subject.")
    ] = 1.0,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    class_options: ClassOptions,
    public: Annotated[
        Path | None,
        typer.Option(help="Public points, mapped as records will be: .npz (x), .csv or .parquet."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the simulation.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Show the plan, its reasons, and what to expect. No private record is read, nothing is spent.

    With public points the plan is played through on them, and beside it other releases, more and
    fewer queries, and other guarantees.
    """
    from vicinal.planning import PlanRequest, VectorPlanRequest

    carried = target_options.parameters()
    if bool(carried) == (classes is not None):
        raise InvalidInput("Give one of --classes, --target and --label-count: what records carry.")
    if classes is not None:
        wish = PlanRequest(
            records, queries, epsilon, delta, classes, class_options.release, class_options.gate,
            records_per_subject=records_per_subject,
        )  # fmt: skip
        _plan_classes(wish, class_options, public, seed, json=json)
        return
    for name, default in asdict(ClassOptions()).items():
        if getattr(class_options, name) != default:
            raise InvalidInput(
                f"The {name!r} option is for classes, and records carry {carried_words(carried)} "
                "here. Leave it out."
            )
    vectors = VectorPlanRequest(
        records, queries, epsilon, delta, 2, records_per_subject=records_per_subject, target=carried
    )
    vectors.settings()  # refuses what an estimator would, before points are read
    reference = None if public is None else _stage(public, None, 2).reference
    plan_vectors(vectors, reference, json=json)


def _plan_classes(
    wish: PlanRequest, options: ClassOptions, public: Path | None, seed: int, *, json: bool
) -> None:
    from vicinal.reports import as_text, plan_options, work

    kind = None if options.plot is None else _kind(options.plot, public)
    shares = numbers("class_prior", options.class_prior)
    wish.settings()  # refuses what a classifier would, before points are read
    stage = None if public is None else _stage(public, options.labels, wish.n_classes)
    wish = wish.on(None if stage is None else stage.reference)
    wish = _with_model(wish, options.model_share)
    lines = verdict_lines(wish, range(wish.n_classes), shares, known=True)
    if wish.n_public and not wish.model_share and not wish.no_model:
        lines += linear_model_lines(wish)
    with progress(silent=json) as begin:
        step = begin("simulation", work(wish))
        choices = plan_options(wish, stage, seed, step)
    if options.plot is not None and kind is not None:
        from vicinal.reports import draw_options

        write_file(options.plot, draw_options(choices, kind))
    real = stage is not None and stage.real
    if json:
        typer.echo(as_json({"verdict": "\n".join(lines), **_result(choices, real)}))
    else:
        typer.echo(f"{as_text(choices)}\n\n" + "\n".join(lines))


def _with_model(wish: PlanRequest, option: str) -> PlanRequest:
    """Return the wish with its share for a private model; "auto" goes by public points."""
    if option == AUTO:
        return wish.with_model_by_rule()
    try:
        share = float(option)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InvalidInput(
            "The 'model_share' parameter must be a number from 0 to below 1, or auto. "
            f"Got {option!r}."
        )
    return replace(wish, model_share=share)


def _kind(plot: Path, public: Path | None) -> str:
    """Return the kind of picture, before any work is done for it."""
    kind = picture_format(plot, "png", "svg")
    if public is None:
        raise InvalidInput("The 'plot' parameter needs --public: without points nothing is played.")
    return kind


def _stage(public: Path, labels: str | None, classes: int) -> SimulationSetup:
    """Return public points from a file, as the classifier would take them in."""
    import numpy as np

    from vicinal.datasets import load_table
    from vicinal.neighbours import Cosine, int8_precision
    from vicinal.planning import SimulationSetup

    keyed = public.suffix.lower() == ".npz"
    data = load_table(public, None if keyed else labels)
    points = np.asarray(data.features)
    if points.ndim != 2 or points.dtype.kind not in "iuf" or not np.isfinite(points).all():
        raise InvalidInput(
            "The 'public' parameter must hold rows of finite numbers: features as the classifier "
            "will see them."
        )
    kernel = Cosine(int8_precision(points))
    places = None if labels is None else _places(data.labels, classes)
    return SimulationSetup.of(kernel, kernel.encode(points), classes, places)


def _places(labels: Any, classes: int) -> Any:
    """Return labels as positions; names in their order stand for the classes."""
    import numpy as np

    if labels is None:
        raise InvalidInput("The 'labels' parameter is given, but the public points have none.")
    names, places = np.unique(labels, return_inverse=True)
    if len(names) > classes:
        raise InvalidInput(
            f"The 'classes' parameter must be at least the {len(names)} classes of the public "
            f"labels. Got {classes}."
        )
    return places.astype(np.int64)


def _result(options: list[Option], real: bool) -> dict[str, Any]:
    from vicinal import __version__

    return {
        "real_labels": real,
        "usage": asdict(options[0].choice.usage),
        "plan": options[0].to_dict(),
        "alternatives": [option.to_dict() for option in options[1:]],
        "version": __version__,
    }
