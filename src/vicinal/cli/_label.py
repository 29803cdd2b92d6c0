"""`vicinal label`: private records answer about public examples, once, durably."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._labellers import LabelOptions, Price, tell_price
from vicinal.cli._options import Json, grouped
from vicinal.cli._output import as_json, progress
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray, Floats32, Ints
    from vicinal.datasets import Dataset
    from vicinal.labelling import (
        AskedRound,
        FeatureExtractor,
        FixedPlanLabeller,
        IndKNNLabeller,
        LabellingTask,
        ReleasedLabels,
    )
    from vicinal.reports import ClassFigures

Public = Annotated[
    Path,
    typer.Option(
        help="npz with x: public examples of the same kind. With y, answers are compared with it."
    ),
]
Seed = Annotated[int, typer.Option(help="Of the public order of questions and of training.")]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Who is asked, about what, and where answers are kept."""

    private: Annotated[Path, typer.Option(help="npz with x and y, perhaps subjects: the records.")]
    public: Public
    classes: Annotated[str, typer.Option(help="All class names: '0-9', or 'cat,dog,horse'.")]
    folder: Annotated[
        Path, typer.Option(help="Private folder of the run; the same command goes on from there.")
    ]

    def read(self) -> tuple[list[Any], Dataset, Dataset, AnyArray | None]:
        """Return class names, private records, public examples, and what these truly are."""
        names, dataset, pool = class_names(self.classes), load(self.private), load(self.public)
        return names, dataset, pool, truth_of(pool, names)


@grouped
def label(
    *,
    task: TaskOptions,
    out: Annotated[Path, typer.Option(help="Where to write the answers, npz. Publishable.")],
    questions: Annotated[int | None, typer.Option(help="How many; 30 % if left out.")] = None,
    keep: Annotated[float, typer.Option(help="Share to learn from, by noisy margin.")] = 0.75,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Keep that share of each class: if they overlap.")
    ] = False,
    choice: LabelOptions,
    price: Price = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Label public examples by the noisy votes of private records.

    What it costs is known before the first question, and never more than epsilon. Answers are on
    the disk, with what they cost, before they are used: after a crash the same command goes on
    where it stopped, and nothing is asked or paid for twice.
    """
    from vicinal import labelling

    names, dataset, pool, truth = task.read()
    size = questions or labelling.default_plan(1, len(pool)).questions
    plan = labelling.LabellingPlan((labelling.Round(size, 1.0, keep, by_class=by_class),), seed)
    answering = choice.labeller_of(dataset, names, plan)
    if price:
        tell_price(answering, plan, json=json)
        return
    with progress(silent=json) as begin, labelling.FileJournal(task.folder) as journal:
        asked_round, selected = labelling.label(
            labelling_task(dataset, pool), answering, plan, journal, begin
        )
    answers = released(answering, asked_round, selected)
    labelling.save_answers(answers, out)
    scores = None if truth is None else figures(answers.labels, truth[answers.rows], names)
    result = {
        **summary(asked_round, answers),
        "figures": scores and scores.to_dict(),
        "out": str(out),
    }
    typer.echo(as_json(result) if json else _text(result, scores))


def class_names(text: str) -> list[int] | list[str]:
    """Return class names from '0-9', '1,2,5' or 'cat,dog'."""
    first, dash, last = text.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        numbers = list(range(int(first), int(last) + 1))
    else:
        names = [name.strip() for name in text.split(",")]
        if not all(name.removeprefix("-").isdecimal() for name in names):
            return _checked_names(names, text)
        numbers = [int(name) for name in names]
    return _checked_names(numbers, text)


def _checked_names(names: list[Any], text: str) -> list[Any]:
    if len(names) < 2 or len(set(names)) != len(names) or "" in names:
        raise InvalidInput(f"The 'classes' option must name two classes or more. Got {text!r}.")
    return names


def load(path: Path) -> Dataset:
    """Return the records of an npz file, or of its training part."""
    from vicinal.datasets import load_table

    if path.suffix != ".npz":
        raise InvalidInput(f"{path} must be an npz file.")
    return load_table(path)


def truth_of(pool: Dataset, names: Sequence[Any]) -> AnyArray | None:
    """Return the public examples' own labels, if the file has some; nothing is learnt from them."""
    import numpy as np

    if pool.labels is None:
        return None
    truth = np.asarray(pool.labels)
    if not np.isin(truth, np.asarray(names)).all():
        raise InvalidInput(
            "The 'public' option's y must hold names of classes: answers are compared with it. "
            "Leave y out of the file, or name all classes."
        )
    return truth


def figures(
    answers: AnyArray, truth: AnyArray, names: Sequence[Any], chances: Floats32 | None = None
) -> ClassFigures:
    """Return how good answers about public examples are, over all and for every class."""
    from vicinal.reports import ClassFigures

    return ClassFigures.of(answers, truth, names, chances)


def labelling_task(dataset: Dataset, pool: Dataset) -> LabellingTask:
    """Return private and public examples, with the features of the first round."""
    import numpy as np

    from vicinal.labelling import LabellingTask

    records, public = np.asarray(dataset.features), np.asarray(pool.features)
    return LabellingTask(records, public, extractor_of(records))


def extractor_of(examples: AnyArray) -> FeatureExtractor:
    """Return histograms of gradients for images; vectors are taken as they are."""
    from sklearn.preprocessing import FunctionTransformer

    from vicinal.features import HOGFeatures

    return HOGFeatures(n_jobs=-1) if examples.ndim > 2 else FunctionTransformer()


def released(
    labeller: IndKNNLabeller | FixedPlanLabeller, asked_round: AskedRound, selected: Ints
) -> ReleasedLabels:
    """Return answers as they may be published; questions without an answer are left out."""
    import numpy as np

    from vicinal.labelling import ABSTAINED, ReleasedLabels

    chosen = np.zeros(len(asked_round.labels), dtype=bool)
    chosen[selected] = True
    answered = asked_round.labels != ABSTAINED
    return ReleasedLabels(
        asked_round.questions[answered],
        labeller.classes[asked_round.labels[answered]],
        None if asked_round.margins is None else asked_round.margins[answered],
        chosen[answered],
        tuple(labeller.classes.tolist()),
        labeller.guarantee().to_dict(),
        asked_round.soft_labels,
    )


def summary(asked_round: AskedRound, answers: ReleasedLabels) -> dict[str, Any]:
    """Return what may be told about answers, for JSON."""
    return {
        "questions": len(asked_round.questions),
        "answered": len(answers.rows),
        "kept": int(answers.selected.sum()),
        "answers_by_class": {
            str(name): int((answers.labels == name).sum()) for name in answers.classes
        },
        "guarantee": answers.guarantee,
    }


def _text(result: dict[str, Any], scores: ClassFigures | None) -> str:
    shares = ", ".join(f"{name} {size:,}" for name, size in result["answers_by_class"].items())
    first = (
        f"{result['questions']:,} questions, {result['answered']:,} answered, {result['kept']:,} "
        f"kept to learn from; written to {result['out']}"
    )
    lines = [first, f"Answers by class: {shares}", *([] if scores is None else scores.lines())]
    return "\n".join([*lines, "", result["guarantee"]["text"]])
