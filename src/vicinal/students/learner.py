"""Students for the rounds of knowledge transfer: train, keep, take up again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, Floats32, Places
from vicinal.errors import InvalidInput
from vicinal.features.hog import HOGFeatures
from vicinal.labelling.answers import checked_soft_labels
from vicinal.progress import Begin, Step
from vicinal.students import _networks as networks
from vicinal.students import student as _files
from vicinal.students._exact import ranges
from vicinal.students.student import Examples, Preprocessing, Student
from vicinal.students.training import Recipe, train
from vicinal.tabular import read_column

_RANGED = 1000
"""Public examples that tell how large a layer's inputs are."""

_WIDE = Recipe(
    "plain", "wide", steps=500, labelled=256, rate=3e-3, decay=1e-2, trust=1.0, soft_share=1.0
)
"""The second student of vectors, which errs on other rows than the first."""


def train_student(
    pool: Examples,
    rows: Places,
    labels: npt.ArrayLike,
    classes: Sequence[Any],
    recipe: Recipe,
    progress: Step | None = None,
    soft_labels: npt.ArrayLike | None = None,
) -> Student:
    """Return a student trained on released answers and on public examples without any.

    Parameters
    ----------
    pool : array (m, h, w), (m, h, w, 3) or (m, d)
        Public examples, raw.
    rows : int64 (a,)
        Which of them were answered.
    labels : array (a,)
        The answers, each one of `classes`.
    classes : sequence of int or str
        All class names.
    recipe : Recipe
        How it is trained. Two trainings with one seed give the same student, bit for bit, on the
        same machine with as many threads.
    progress : callable, optional
        Called with the number of steps just done.
    soft_labels : float (m, c), optional
        How likely every class is for all public examples; rows sum to 1. A recipe with a
        `soft_share` learns from them, and one that leaves it open if they are there.

    Raises
    ------
    InvalidInput
        If there is no answer, or if shapes, labels or classes do not fit together; if the soft
        labels are no distributions, or are missing where the recipe has a `soft_share`.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.students import Recipe, train_student
    >>> pool, rows = np.eye(8, dtype=np.float32), np.array([0, 5])
    >>> recipe = Recipe(network="mlp", method="plain", steps=20)
    >>> train_student(pool, rows, ["a", "b"], ["a", "b"], recipe).predict(pool[rows])
    array(['a', 'b'], dtype='<U1')
    """
    names = checks.class_names(classes)
    answers = np.asarray(read_column("labels", labels))
    places = torch.from_numpy(checks.label_indices(answers, names).astype(np.int64))
    chosen = np.asarray(rows)
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1 or len(chosen) != len(places):
        raise InvalidInput("The 'rows' parameter must hold one position for each answer.")
    if len(chosen) < 2 or chosen.min() < 0 or chosen.max() >= len(pool):
        raise InvalidInput(
            "The answers must be at least two, about rows of the public examples. Got "
            f"{len(chosen)} answers and {len(pool)} examples."
        )
    soft = _soft_labels(soft_labels, recipe, len(pool), len(names))
    lesson = torch.from_numpy(chosen.astype(np.int64)), places
    learnt = soft if recipe.soft else None
    second = _train_on_soft_labels(pool, lesson, names, recipe, soft) if recipe.ensemble else None
    return replace(_train_student(pool, *lesson, names, recipe, progress, learnt), second=second)


def _train_on_soft_labels(
    pool: Examples,
    lesson: tuple[Tensor, Tensor],
    names: AnyArray,
    recipe: Recipe,
    soft: Tensor | None,
) -> Student:
    """Return the student that learns from soft labels alone: of gradients, or of vectors."""
    if np.ndim(pool) < 3:
        wide = replace(_WIDE, seed=recipe.seed)
        return _train_student(pool, *lesson, names, wide, None, soft)
    features = HOGFeatures(n_jobs=-1).transform(pool)
    kernel = Recipe("plain", networks.KERNEL, seed=recipe.seed)
    return _train_student(features, *lesson, names, kernel, None, soft, networks.FIT_OF_GRADIENTS)


def _train_student(
    pool: Examples,
    rows: Tensor,
    labels: Tensor,
    names: AnyArray,
    recipe: Recipe,
    progress: Step | None,
    soft: Tensor | None,
    fit: networks.HeadFit = networks.FIT_OF_VECTORS,
) -> Student:
    """Return one student; `labels`, int64 (a,), are places of classes."""
    preprocessing = Preprocessing.of(pool)
    examples = preprocessing(pool)
    targets = torch.nn.functional.one_hot(labels, len(names)).float()
    learnt_from = examples[rows], targets
    if recipe.method == "plain":
        learnt_from = _joined_targets(examples, rows, targets, soft, recipe.soft)
    if recipe.network == networks.KERNEL:
        network = networks.build_kernel(np.asarray(pool), preprocessing.deviation, len(names))
        trained = networks.fit_head(network, *learnt_from, fit)
        if progress is not None:
            progress(recipe.steps)
    else:
        # torch's global generator gives weights and dropout; it is put back afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            network = networks.build(recipe.network, preprocessing.input_shape, len(names))
            trained = train(network, *learnt_from, examples, recipe, progress, soft)
    largest = ranges(trained.body, examples[:_RANGED])
    return Student(trained, recipe.network, tuple(names.tolist()), preprocessing, largest)


def _soft_labels(
    soft_labels: npt.ArrayLike | None, recipe: Recipe, n_examples: int, n_classes: int
) -> Tensor | None:
    if soft_labels is None and (recipe.soft_share or recipe.ensemble):
        raise InvalidInput(
            "The recipe's 'soft_share' and 'ensemble' need soft labels: a row for each public "
            "example."
        )
    if soft_labels is None or not (recipe.soft or recipe.ensemble):
        return None
    return torch.from_numpy(checked_soft_labels(soft_labels, n_examples, n_classes))


def _joined_targets(
    examples: Tensor, rows: Tensor, targets: Tensor, soft: Tensor | None, share: float
) -> tuple[Tensor, Tensor]:
    if soft is None:
        return examples[rows], targets
    joined = soft.clone()
    joined[rows] = targets.lerp(soft[rows], share)
    return examples, joined


class StudentLearner:
    """Trains a network in every round, by a recipe for each.

    Parameters
    ----------
    classes : sequence of int or str
        All class names.
    recipes : sequence of Recipe
        One a round; the last serves all later rounds.

    Examples
    --------
    >>> from vicinal.students import Recipe, StudentLearner
    >>> learner = StudentLearner(["a", "b"], [Recipe(network="mlp", method="vat")])
    """

    def __init__(self, classes: Sequence[Any], recipes: Sequence[Recipe]) -> None:
        if not recipes:
            raise InvalidInput("There must be at least one recipe.")
        self._classes = checks.class_names(classes)
        self._recipes = tuple(recipes)

    def learn(
        self,
        examples: Examples,
        rows: Places,
        labels: Places,
        number: int,
        begin: Begin,
        soft_labels: Floats32 | None,
    ) -> Student:
        """Return the student of round `number`, see ``vicinal.labelling.labellers.Learner``."""
        recipe = self._recipes[min(number, len(self._recipes) - 1)]
        if soft_labels is None:
            recipe = replace(recipe, soft_share=None, ensemble=False)
        step = begin(f"round {number + 1}: student", recipe.steps)
        names = self._classes[labels]
        classes = self._classes.tolist()
        return train_student(examples, rows, names, classes, recipe, step, soft_labels)

    def save(self, student: Student, path: Path, guarantee: Guarantee) -> None:
        """Write a student with the guarantee of all its answers."""
        _files.save(replace(student, guarantee=guarantee.to_dict()), path)

    def load(self, path: Path) -> Student:
        """Return the student in a file."""
        return _files.load(path)
