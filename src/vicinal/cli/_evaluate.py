"""`vicinal evaluate`: how good a store's answers were, on labelled rows of people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli._options import Json, StorePath
from vicinal.cli._output import as_json, warnings_said
from vicinal.cli._records import naming, read_records, target_columns
from vicinal.cli._shards import AcceptLoss, opened_at
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.store import Evaluation, NoisyFigures

_NAMES = {
    "accuracy": "Accuracy", "balanced_accuracy": "Balanced accuracy", "auc": "AUC", "rmse": "RMSE",
    "r2": "R2", "mean_error": "Mean error",
}  # fmt: skip


def evaluate(
    store: StorePath,
    data: Annotated[Path, typer.Option(help="Labelled rows: .parquet, .csv, .csv.gz or .npz.")],
    label: Annotated[str | None, typer.Option(help="Column of labels.")] = None,
    subject: Annotated[str | None, typer.Option(help="Column of subject ids.")] = None,
    audience: Annotated[str, typer.Option(help="Whose answers, and whose budgets.")] = "default",
    share: Annotated[
        float,
        typer.Option(help="Part of a full budget that a person evaluated pays.", min=0.001, max=1),
    ] = 0.05,
    largest_error: Annotated[
        float,
        typer.Option(
            help="Of numbers: errors beyond this share of the distance between the bounds count as "
            "this large.",
            min=0.01,
            max=1,
        ),
    ] = 0.25,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Compare answers with labels, privately: noisy counts, which the people evaluated pay for.

    Rows count where the same features were asked before, by `vicinal predict` or the service.
    """
    with warnings_said(), opened_at(store, accept_loss=accept_loss) as opened:
        schema = opened.schema
        columns = target_columns(schema.target, label)
        dataset = read_records(data, schema.extractor, label, subject, columns)
        if dataset.labels is None:
            raise InvalidInput("The 'label' option must name the column of labels.")
        with naming(data):
            figures = opened.evaluate(
                dataset.features, dataset.labels, dataset.subjects, audience=audience, share=share,
                largest_error=largest_error,
            )  # fmt: skip
    typer.echo(as_json(figures.to_dict()) if json else described(figures))


def described(figures: NoisyFigures) -> str:
    """Return an evaluation in words and tables."""
    from vicinal.store import Evaluation, NumberEvaluation

    first = (
        f"About {figures.people:.0f} people with rows that were asked before; every count has "
        f"noise of {figures.noise:.1f}. Each paid at most {figures.share:.3g} of their budget."
    )
    lines = [first, *map(_figure, figures.figures, figures.figures.values())]
    if isinstance(figures, Evaluation):
        lines += ["", "true class -> answer: people", *_confusion(figures)]
        if figures.calibration:
            lines += ["", "probability -> share that came true (people)", *_bins(figures)]
    if isinstance(figures, NumberEvaluation):
        units = "logarithms" if figures.scale == "log" else "units of the numbers"
        beyond = ", ".join(
            f"{name} {edges[-1]:.4g}"
            for name, edges in zip(figures.targets, figures.error_edges, strict=True)
        )
        lines += ["", f"Errors in {units}; larger ones count as: {beyond}."]
    return "\n".join(lines)


def _figure(name: str, shown: tuple[float, float, float]) -> str:
    """Return a figure in words; names are those of targets or labels, then of the figure."""
    about, _, figure = name.rpartition(" ")
    words = _NAMES[figure] if not about else f"{about}: {_NAMES[figure]}"
    value, low, high = shown
    if math.isnan(value):
        return f"{words}: unknown: too few people for the noise"
    return f"{words}: {value:.3f} ({low:.3f} to {high:.3f})"


def _confusion(evaluation: Evaluation) -> list[str]:
    width = max(len(str(name)) for name in evaluation.classes)
    head = " ".join(f"{name!s:>{max(8, width)}}" for name in evaluation.classes)
    rows = [
        f"{name!s:>{width}} " + " ".join(f"{count:>{max(8, width)}.1f}" for count in counts)
        for name, counts in zip(evaluation.classes, evaluation.confusion, strict=True)
    ]
    return [f"{'':>{width}} {head}", *rows]


def _bins(evaluation: Evaluation) -> list[str]:
    return [
        f"{mean:.3f} -> " + ("unknown" if math.isnan(true) else f"{true:.3f}") + f" ({people:.0f})"
        for mean, true, people in evaluation.calibration
    ]
