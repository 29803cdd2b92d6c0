"""`vicinal student`: from released answers to a model that can be published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._label import Public, Seed, extractor_of, load
from vicinal.cli._options import Json
from vicinal.cli._output import as_json, progress
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vicinal.labelling import ReleasedLabels
    from vicinal.students import Recipe, Student

Out = Annotated[Path, typer.Option(help="Where to write the student. Publishable.")]
Onnx = Annotated[Path | None, typer.Option(help="Write it as ONNX, too.")]
Method = Annotated[str, typer.Option(help="plain, vat, uda, or both.")]
Network = Annotated[str, typer.Option(help="small, mnist, svhn, cifar10, or mlp for vectors.")]
Augmentation = Annotated[str, typer.Option(help="none, digits, clothes or objects.")]
Steps = Annotated[int, typer.Option(help="Steps of training in a round.")]
Overlapping = Annotated[
    bool, typer.Option("--overlapping", help="Classes overlap: soft targets, by class.")
]


def student(
    answers: Annotated[Path, typer.Argument(help="What `vicinal label` wrote.")],
    public: Public,
    out: Out,
    onnx: Onnx = None,
    method: Method = "vat",
    network: Network = "small",
    augmentation: Augmentation = "none",
    steps: Steps = 800,
    overlapping: Overlapping = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a student on answers and public examples; nothing private is read.

    The guarantee of the answers is the student's, and is written into its file.
    """
    import numpy as np

    from vicinal.labelling import load_answers
    from vicinal.students import train_student

    answers_given, pool = load_answers(answers), np.asarray(load(public).features)
    recipe = make_recipe(
        pool.ndim, method, network, augmentation, steps, seed, overlapping=overlapping
    )
    rows, labels = (
        answers_given.rows[answers_given.selected],
        answers_given.labels[answers_given.selected],
    )
    with progress(silent=json) as begin:
        guided = _guide(answers_given, pool) if recipe.guided else None
        step = begin("student", recipe.steps)
        trained = train_student(pool, rows, labels, answers_given.classes, recipe, step, guided)
    trained = replace(trained, guarantee=answers_given.guarantee)
    write_student(trained, out, onnx)
    agreement = np.mean(trained.predict(pool[rows]) == labels)
    result = {
        "answers": len(rows),
        "agreement": round(float(agreement), 4),
        "out": str(out),
        "onnx": None if onnx is None else str(onnx),
        "guarantee": answers_given.guarantee,
    }
    typer.echo(as_json(result) if json else _text(result))


def _guide(answers_given: ReleasedLabels, pool: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return what all answers say of all examples, by the features that they were given on."""
    import numpy as np

    from vicinal.features import PublicMap
    from vicinal.labelling import soft_labels

    features = extractor_of(pool).transform(pool)
    place_of = {name: place for place, name in enumerate(answers_given.classes)}
    places = np.array([place_of[name] for name in answers_given.labels.tolist()], dtype=np.int64)
    mapped = PublicMap().fit(features).transform(features)
    return soft_labels(mapped, answers_given.rows, places, len(answers_given.classes))


def make_recipe(
    dimensions: int,
    method: str,
    network: str,
    augmentation: str,
    steps: int,
    seed: int,
    *,
    overlapping: bool = False,
) -> Recipe:
    """Return the recipe that options describe; vectors get the network for vectors."""
    from vicinal.students import Recipe, for_overlapping

    if overlapping and method not in ("uda", "both"):
        raise InvalidInput("The option --overlapping needs --method uda, or both.")

    if dimensions == 2:
        if method in ("uda", "both"):
            raise InvalidInput("Vectors cannot be augmented: use --method vat or plain.")
        network, augmentation = "mlp", "none"
    recipe = Recipe(method, network, augmentation, steps, seed=seed)
    return for_overlapping(recipe) if overlapping else recipe


def write_student(trained: Student, out: Path, onnx: Path | None) -> None:
    """Write a student, and perhaps its ONNX form."""
    from vicinal.students import save, save_onnx

    save(trained, out)
    if onnx is not None:
        save_onnx(trained, onnx)


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"Trained on {result['answers']:,} answers; agrees with {result['agreement']:.1%} of them.",
        f"Student    {result['out']}",
    ]
    if result["onnx"] is not None:
        lines.append(f"ONNX       {result['onnx']}")
    return "\n".join([*lines, "", result["guarantee"]["text"]])
