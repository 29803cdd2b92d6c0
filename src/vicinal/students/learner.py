"""Training of students on released answers, once or in every round of labelling.

Soft labels are class probabilities of all m public examples, by a private model. They are optional,
and have two independent uses, both chosen by the recipe:

- `soft_weight` above 0: the first student's targets are mixed with them. The method "plain" then
  trains on all examples, and mixes them with the answer where there is one; the method "uda" mixes
  them with the averaged student's predictions. If it is 0, the first student has answers alone.
- `ensemble`: a second student learns from them alone, and its predictions are averaged with the
  first's.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, Floats32, Ints
from vicinal.errors import InvalidInput
from vicinal.features.hog import HOGFeatures
from vicinal.labelling.answers import check_soft_labels
from vicinal.progress import Begin, Step
from vicinal.students import _networks as networks
from vicinal.students._exact import measure_largest_inputs
from vicinal.students.student import Examples, Preprocessing, Student
from vicinal.students.student import load as load_student
from vicinal.students.student import save as save_student
from vicinal.students.training import Recipe, train_network
from vicinal.tabular import read_column

_N_MEASURED_EXAMPLES = 1000
"""Number of public examples from which the largest inputs of layers are measured."""

_SECOND_VECTOR_RECIPE = Recipe(
    "plain", "wide", steps=500, labelled=256, rate=3e-3, decay=1e-2, trust=1.0, soft_share=1.0
)
"""Recipe of the second student for vectors; its errors are less correlated with the first's."""


def train_student(
    pool: Examples,
    rows: Ints,
    labels: npt.ArrayLike,
    classes: Sequence[Any],
    recipe: Recipe,
    progress: Step | None = None,
    soft_labels: npt.ArrayLike | None = None,
) -> Student:
    """Return a student trained on released answers and on public examples without answers.

    Parameters
    ----------
    pool : array (m, h, w), (m, h, w, 3) or (m, d)
        All public examples, with or without answers, not normalised.
    rows : int64 (a,)
        Row indices of the answered examples.
    labels : array (a,)
        The released answers, each one of `classes`.
    classes : sequence of int or str
        All class names.
    recipe : Recipe
        Options of training. The same seed gives the same student, bit for bit, on the same
        machine with the same number of threads.
    progress : callable, optional
        Called with the number of steps completed since its last call.
    soft_labels : float (m, c), optional
        Class probabilities of all public examples; rows sum to 1. The recipe's `soft_share` gives
        their weight for the first student, and its `ensemble` trains a second one on them.

    Raises
    ------
    InvalidInput
        If there are fewer than two answers; if shapes, labels or classes are inconsistent; if the
        soft labels are no distributions, or are missing although the recipe needs them.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.students import Recipe, train_student
    >>> pool, rows = np.eye(8, dtype=np.float32), np.array([0, 5])
    >>> recipe = Recipe(network="mlp", method="plain", steps=20)
    >>> train_student(pool, rows, ["a", "b"], ["a", "b"], recipe).predict(pool[rows])
    array(['a', 'b'], dtype='<U1')
    """
    names = checks.check_class_names(classes)
    answers = _Answers.from_names(rows, labels, names, len(pool))
    if soft_labels is None and (recipe.soft_share or recipe.ensemble):
        raise InvalidInput(
            "The recipe's 'soft_share' and 'ensemble' need soft labels: a row for each public "
            "example."
        )
    checked_soft_labels = None
    if soft_labels is not None and (recipe.soft_weight or recipe.ensemble):
        checked = check_soft_labels(soft_labels, len(pool), len(names))
        checked_soft_labels = torch.from_numpy(checked)
    second = None
    if recipe.ensemble:
        second = _train_second(pool, answers, names, recipe.seed, checked_soft_labels)
    first_soft_labels = checked_soft_labels if recipe.soft_weight else None
    first = _train_single(pool, answers, names, recipe, progress, first_soft_labels)
    return replace(first, second=second)


class _Answers(NamedTuple):
    """Released answers: row indices in the pool and class indices, both int64 (a,)."""

    rows: Tensor
    class_indices: Tensor

    @classmethod
    def from_names(
        cls, rows: Ints, labels: npt.ArrayLike, class_names: AnyArray, n_examples: int
    ) -> Self:
        """Return the answers `labels` (a,), named as in `class_names`, to `rows` (a,) of a pool.

        `n_examples`: size of the pool. Raises InvalidInput if the arguments are inconsistent, or if
        there are fewer than two answers.
        """
        answer_names = np.asarray(read_column("labels", labels))
        class_indices = checks.find_label_indices(answer_names, class_names).astype(np.int64)
        indices = np.asarray(rows)
        is_complete = indices.ndim == 1 and len(indices) == len(class_indices)
        if indices.dtype.kind not in "iu" or not is_complete:
            raise InvalidInput("The 'rows' parameter must hold one position for each answer.")
        if len(indices) < 2 or indices.min() < 0 or indices.max() >= n_examples:
            raise InvalidInput(
                "The answers must be at least two, about rows of the public examples. Got "
                f"{len(indices)} answers and {n_examples} examples."
            )
        return cls(torch.from_numpy(indices.astype(np.int64)), torch.from_numpy(class_indices))


def _train_second(
    pool: Examples, answers: _Answers, class_names: AnyArray, seed: int, soft_labels: Tensor | None
) -> Student:
    """Return the second student of an ensemble, which learns soft labels alone.

    It learns from the vectors of the pool, or from histograms of its images' gradients. `seed`: of
    the recipe. Other arguments as for :func:`_train_single`; `soft_labels` are not None.
    """
    if np.ndim(pool) < 3:
        recipe = replace(_SECOND_VECTOR_RECIPE, seed=seed)
        return _train_single(pool, answers, class_names, recipe, None, soft_labels)
    features = HOGFeatures(n_jobs=-1).transform(pool)
    recipe = Recipe("plain", networks.KERNEL, seed=seed)
    fit = networks.GRADIENT_FIT
    return _train_single(features, answers, class_names, recipe, None, soft_labels, fit)


def _train_single(
    pool: Examples,
    answers: _Answers,
    class_names: AnyArray,
    recipe: Recipe,
    progress: Step | None,
    soft_labels: Tensor | None,
    head_fit: networks.HeadFit = networks.VECTOR_FIT,
) -> Student:
    """Return a student without a second one, trained by `recipe`.

    `pool`: raw public examples (m, ...). `answers`: those to rows of the pool. `class_names` (c,):
    names of the outputs. `progress`: called with the number of steps completed since its last call,
    once for the network "kernel". `soft_labels` (m, c): class probabilities of the pool for the
    method "plain" or "uda", or None to train on answers alone. `head_fit`: for "kernel" only.
    """
    rows, class_indices = answers
    preprocessing = Preprocessing.from_examples(pool)
    examples = preprocessing(pool)
    n_classes = len(class_names)
    targets = torch.nn.functional.one_hot(class_indices, n_classes).float()
    training_set = examples[rows], targets
    if recipe.method == "plain" and soft_labels is not None:
        # All examples, with soft labels as targets; in answered rows these are mixed with answers.
        mixed = soft_labels.clone()
        mixed[rows] = targets.lerp(soft_labels[rows], recipe.soft_weight)
        training_set = examples, mixed
    if recipe.network == networks.KERNEL:
        network = networks.build_kernel_network(
            np.asarray(pool), preprocessing.deviation, n_classes
        )
        trained = networks.fit_head(network, *training_set, head_fit)
        if progress is not None:
            progress(recipe.steps)
    else:
        # Weights and dropout use torch's global generator; its state is restored afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            network = networks.build_network(recipe.network, preprocessing.input_shape, n_classes)
            # Soft labels are passed on for the method "uda"; the others ignore them here.
            trained = train_network(network, *training_set, examples, recipe, progress, soft_labels)
    largest_inputs = measure_largest_inputs(trained.body, examples[:_N_MEASURED_EXAMPLES])
    return Student(
        trained, recipe.network, tuple(class_names.tolist()), preprocessing, largest_inputs
    )


class StudentLearner:
    """Train a student in every round of labelling, with one recipe per round.

    Parameters
    ----------
    classes : sequence of int or str
        All class names.
    recipes : sequence of Recipe
        One per round; the last is used in all later rounds.

    Examples
    --------
    >>> from vicinal.students import Recipe, StudentLearner
    >>> learner = StudentLearner(["a", "b"], [Recipe(network="mlp", method="vat")])
    """

    def __init__(self, classes: Sequence[Any], recipes: Sequence[Recipe]) -> None:
        if not recipes:
            raise InvalidInput("There must be at least one recipe.")
        self._classes = checks.check_class_names(classes)
        self._recipes = tuple(recipes)

    def learn(
        self,
        examples: Examples,
        rows: Ints,
        labels: Ints,
        round_index: int,
        begin: Begin,
        soft_labels: Floats32 | None,
    ) -> Student:
        """Train and return the student of the round `round_index`, from 0.

        `rows` and `labels` (a,): indices of the answered `examples`, and class indices of their
        answers. `begin(title, n_steps)` starts a progress bar and returns its update function.
        `soft_labels` (m, c): class probabilities of all examples, if there are any.
        """
        recipe = self._recipes[min(round_index, len(self._recipes) - 1)]
        if soft_labels is None:
            recipe = replace(recipe, soft_share=None, ensemble=False)
        step = begin(f"round {round_index + 1}: student", recipe.steps)
        names = self._classes[labels]
        classes = self._classes.tolist()
        return train_student(examples, rows, names, classes, recipe, step, soft_labels)

    def save(self, student: Student, path: Path, guarantee: Guarantee) -> None:
        """Write a student to a file with `guarantee`, that of all answers released up to now.

        Raises InvalidInput if the file cannot be written.
        """
        save_student(replace(student, guarantee=guarantee.to_dict()), path)

    def load(self, path: Path) -> Student:
        """Read a student from a file; raise InvalidInput if it contains none."""
        return load_student(path)
