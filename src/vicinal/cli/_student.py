"""`vicinal student`: from released answers to a model that can be published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._label import Public, Seed, extractor_of, figures, load, truth_of
from vicinal.cli._options import Json, grouped
from vicinal.cli._output import as_json, progress
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray, Floats32
    from vicinal.labelling import ReleasedLabels
    from vicinal.reports import ClassFigures
    from vicinal.students import Recipe, Student

Overlapping = Annotated[
    bool, typer.Option("--overlapping", help="Classes overlap: soft targets, by class.")
]


@dataclass(frozen=True, slots=True)
class StudentOptions:
    """How a student is trained, and where it is written."""

    out: Annotated[Path, typer.Option(help="Where to write the student. Publishable.")]
    onnx: Annotated[Path | None, typer.Option(help="Write it as ONNX, too.")] = None
    method: Annotated[str, typer.Option(help="plain, vat, uda, or both.")] = "vat"
    network: Annotated[
        str | None, typer.Option(help="small or deep; mlp, wide or kernel for vectors.")
    ] = None
    augmentation: Annotated[str, typer.Option(help="none, digits, clothes or objects.")] = "none"
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of training in a round: 800, or 1600 of digits with soft labels."),
    ] = None
    overlapping: Overlapping = False
    ensemble: Annotated[
        bool | None,
        typer.Option(
            help="Join a second student; so where soft labels are released. Of images, it is one "
            "of gradients, and cannot go with --onnx."
        ),
    ] = None
    soft_share: Annotated[
        float | None,
        typer.Option(help="Share of targets from soft labels, 0 to 1; else what is best measured."),
    ] = None

    def recipe(self, dimensions: int, seed: int, *, released: bool = False) -> Recipe:
        """Return the recipe that options describe, and what fits where they are silent.

        `released`: whether a private model's soft labels are there to learn from.
        """
        from vicinal.students import Recipe, for_digits, for_overlapping

        method, augmentation = self.method, self.augmentation
        network = self.network or "small"
        if self.overlapping and self.method not in ("uda", "both"):
            raise InvalidInput("The option --overlapping needs --method uda, or both.")
        if dimensions == 2:
            if self.method in ("uda", "both"):
                raise InvalidInput("Vectors cannot be augmented: use --method vat or plain.")
            augmentation = "none"
            if network not in ("mlp", "wide", "kernel"):
                network = "kernel" if released and self.soft_share != 0 else "mlp"
        if network == "kernel":
            method = "plain"
        ensemble = self.ensemble
        if ensemble is None:
            fits = network == "kernel" if dimensions == 2 else self.onnx is None
            ensemble = released and fits
        if ensemble and dimensions > 2 and self.onnx is not None:
            raise InvalidInput(
                "The option --ensemble cannot go with --onnx, which has no gradients of images."
            )
        recipe = Recipe(
            method,
            network,
            augmentation,
            self.steps or 800,
            ensemble=ensemble,
            seed=seed,
        )
        if released and self.network is None and augmentation == "digits" and not self.overlapping:
            deep = for_digits(recipe)
            recipe = replace(deep, steps=self.steps or deep.steps)
        recipe = for_overlapping(recipe) if self.overlapping else recipe
        return recipe if self.soft_share is None else replace(recipe, soft_share=self.soft_share)

    def write(self, trained: Student) -> dict[str, str | None]:
        """Write a student, and perhaps its ONNX form; return where, for JSON."""
        from vicinal.students import save, save_onnx

        save(trained, self.out)
        if self.onnx is not None:
            save_onnx(trained, self.onnx)
        return {"out": str(self.out), "onnx": None if self.onnx is None else str(self.onnx)}


@grouped
def student(
    answers: Annotated[Path, typer.Argument(help="What `vicinal label` wrote.")],
    *,
    public: Public,
    options: StudentOptions,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a student on answers and public examples; nothing private is read.

    The guarantee of the answers is the student's, and is written into its file.
    """
    import numpy as np

    from vicinal.labelling import load_answers
    from vicinal.students import train_student

    answers_given, dataset = load_answers(answers), load(public)
    names, pool = answers_given.classes, np.asarray(dataset.features)
    truth = truth_of(dataset, names)
    soft = answers_given.soft_labels
    recipe = options.recipe(pool.ndim, seed, released=soft is not None)
    rows, labels = (
        answers_given.rows[answers_given.selected],
        answers_given.labels[answers_given.selected],
    )
    with progress(silent=json) as begin:
        if soft is None and recipe.soft_share:
            soft = _soft_labels(answers_given, pool)
        learns_soft = soft is not None and bool(recipe.soft or recipe.ensemble)
        step = begin("student", recipe.steps)
        trained = train_student(pool, rows, labels, names, recipe, step, soft)
    trained = replace(trained, guarantee=answers_given.guarantee)
    places = options.write(trained)
    agreement = figures(trained.predict(pool[rows]), labels, names)
    scores = None if truth is None else student_figures(trained, pool, truth, answers_given.rows)
    result = {
        "answers": len(rows),
        "soft_labels": len(pool) if learns_soft else 0,
        "agreement": round(agreement.overall.accuracy, 4),
        "agreement_by_class": {name: one.to_dict() for name, one in agreement.by_class.items()},
        "figures": scores and scores.to_dict(),
        **places,
        "guarantee": answers_given.guarantee,
    }
    typer.echo(as_json(result) if json else _text(result, agreement, scores))


def student_figures(
    trained: Student, pool: AnyArray, truth: AnyArray, queried: AnyArray
) -> ClassFigures:
    """Return how good a student is on public examples that nobody was asked about."""
    import numpy as np

    others = np.setdiff1d(np.arange(len(pool)), queried)
    chances = trained.predict_proba(pool[others])
    answers = np.array(trained.classes)[chances.argmax(axis=1)]
    return figures(answers, truth[others], trained.classes, chances)


def _soft_labels(answers_given: ReleasedLabels, pool: AnyArray) -> Floats32:
    """Return soft labels made of all answers, by the features that they were given on."""
    import numpy as np

    from vicinal.features import PublicMap
    from vicinal.labelling import soft_labels

    features = extractor_of(pool).transform(pool)
    place_of = {name: place for place, name in enumerate(answers_given.classes)}
    places = np.array([place_of[name] for name in answers_given.labels.tolist()], dtype=np.int64)
    mapped = PublicMap().fit(features).transform(features)
    return soft_labels(mapped, answers_given.rows, places, len(answers_given.classes))


def _text(result: dict[str, Any], agreement: ClassFigures, scores: ClassFigures | None) -> str:
    shares = "; ".join(
        f"{name} {one.accuracy:.1%} of {one.total:,}" if one.total else f"{name}: none"
        for name, one in agreement.by_class.items()
    )
    lines = [
        f"Trained on {result['answers']:,} answers; agrees with {result['agreement']:.1%} of them.",
        *(
            [f"Learnt from soft labels of {result['soft_labels']:,} public examples, too."]
            if result["soft_labels"]
            else []
        ),
        f"By class: {shares}",
        *([] if scores is None else ["On examples not asked about:", *scores.lines()]),
        f"Student    {result['out']}",
    ]
    if result["onnx"] is not None:
        lines.append(f"ONNX       {result['onnx']}")
    return "\n".join([*lines, "", result["guarantee"]["text"]])
