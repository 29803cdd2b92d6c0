"""A student: a network trained on released answers, with what it takes to use and to publish it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vicinal._arrays import AnyArray, Floats32
from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures
from vicinal.students._exact import ExactBody
from vicinal.students._networks import Network, Shape

Examples = AnyArray
Part = Callable[[Tensor], Tensor]

FIRST_OF_IMAGES, FIRST_OF_VECTORS = 0.7, 0.5
"""What a network weighs beside a second student (docs/decisions/0028-students.md)."""

_LEAST = 1e-12
"""A probability where two students are averaged: neither rules a class out."""

_BATCH = 256
"""Examples at a time, to bound memory."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """From raw examples to what a network takes; learnt from public examples.

    Attributes
    ----------
    shape : tuple of int
        Of a raw example: (h, w), (h, w, 3) or (d,).
    mean, deviation : tuple of float
        Of every channel (of every feature, for vectors), in raw units.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.students import Recipe, train_student
    >>> recipe = Recipe(network="mlp", method="plain", steps=1)
    >>> pool = np.eye(8, dtype=np.float32)
    >>> student = train_student(pool, np.arange(2), ["a", "b"], ["a", "b"], recipe)
    >>> type(student.preprocessing).__name__
    'Preprocessing'
    """

    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, pool: Examples) -> Preprocessing:
        """Learn mean and deviation from public examples (m, h, w), (m, h, w, 3) or (m, d).

        Raises
        ------
        InvalidInput
            If they have another shape, are none, or are not finite numbers.
        """
        checked = _numbers(pool)
        if checked.ndim not in (2, 3, 4) or checked.shape[3:] not in ((), (3,)):
            raise InvalidInput(
                "The examples must be images (m, h, w) or (m, h, w, 3), or vectors (m, d). Got "
                f"{checked.shape}."
            )
        values = checked.astype(np.float64)
        axes = 0 if checked.ndim == 2 else (0, 1, 2)
        mean, deviation = np.atleast_1d(values.mean(axes)), np.atleast_1d(values.std(axes))
        deviation = np.where(deviation > 0, deviation, 1.0)
        return cls(checked.shape[1:], tuple(mean.tolist()), tuple(deviation.tolist()))

    @property
    def input_shape(self) -> Shape:
        """What the network takes: (c, h, w), or (d,)."""
        if len(self.shape) == 1:
            return self.shape
        return (len(self.mean), *self.shape[:2])

    def __call__(self, examples: Examples) -> Tensor:
        """Return normalised examples, float32 (n, *input_shape).

        Raises InvalidInput if they have another shape than those that were learnt from, or are not
        finite.
        """
        checked = _numbers(examples)
        if checked.shape[1:] != self.shape:
            raise InvalidInput(
                f"The examples must have shape {self.shape}. Got {checked.shape[1:]}."
            )
        mean, deviation = (np.array(v, dtype=np.float32) for v in (self.mean, self.deviation))
        if len(self.shape) == 2:
            checked = checked[..., None]
        values = torch.from_numpy((checked.astype(np.float32) - mean) / deviation)
        return values if values.ndim == 2 else values.permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True, slots=True, eq=False)
class Student:
    """A trained network that may be published, as far as its guarantee goes.

    Attributes
    ----------
    network : Network
        In evaluation mode.
    name : str
        Which network it is, see :data:`vicinal.students._networks.NETWORKS`.
    classes : tuple of int or str
        Class names, in the order of the outputs.
    preprocessing : Preprocessing
        What is done to raw examples first.
    ranges : tuple of float
        Largest inputs of its layers on public examples, see :func:`vicinal.students._exact.ranges`.
    guarantee : dict or None
        The guarantee of the answers that it was trained on, as ``Guarantee.to_dict`` gives it. What
        is done with answers weakens no guarantee, so it is the student's too.
    second : Student or None
        Of images' histograms of gradients, or of the same vectors. Its probabilities are joined
        with the network's, by weighted geometric means.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.students import Recipe, train_student
    >>> pool, rows = np.eye(8, dtype=np.float32), np.array([0, 5])
    >>> recipe = Recipe(network="mlp", method="plain", steps=1)
    >>> student = train_student(pool, rows, ["a", "b"], ["a", "b"], recipe)
    >>> student.predict_proba(pool).shape
    (8, 2)
    """

    network: Network
    name: str
    classes: tuple[int | str, ...]
    preprocessing: Preprocessing
    ranges: tuple[float, ...]
    guarantee: dict[str, Any] | None = None
    second: Student | None = None

    def predict_proba(self, examples: Examples) -> Floats32:
        """Return the probability of every class, float32 (n, c), for raw examples."""

        def part(batch: Tensor) -> Tensor:
            logits: Tensor = self.network(batch)
            return logits.softmax(dim=1)

        chances = self._passed(examples, part)
        if self.second is None:
            return chances
        if len(self.preprocessing.shape) > 1:
            examples = HOGFeatures(n_jobs=-1).transform(examples)
        return _joined(chances, self.second.predict_proba(examples), self.first_weight)

    @property
    def first_weight(self) -> float:
        """What the network weighs beside the second student, from 0 to 1."""
        vectors = len(self.preprocessing.shape) == 1
        return FIRST_OF_VECTORS if vectors else FIRST_OF_IMAGES

    def predict(self, examples: Examples) -> AnyArray:
        """Return class names (n,) for raw examples."""
        best = self.predict_proba(examples).argmax(axis=1)
        return np.asarray(np.array(self.classes)[best])

    def transform(self, examples: Examples) -> Floats32:
        """Return the features of the last layer but one, float32 (n, f), for raw examples.

        Row i depends on example i and on the network, bit for bit: other examples, their number
        and their order change nothing (:mod:`vicinal.students._exact`). So private records may be
        transformed. They are the network's own; a second student has no part in them.

        Raises
        ------
        InvalidInput
            If the examples do not fit, or the network's weights are too large.
        """
        return self._passed(examples, ExactBody(self.network.body, self.ranges))

    def _passed(self, examples: Examples, part: Part) -> Floats32:
        parts = []
        with torch.no_grad():
            for start in range(0, len(examples), _BATCH):
                batch = self.preprocessing(examples[start : start + _BATCH])
                parts.append(part(batch).numpy())
        if not parts:
            raise InvalidInput("The examples must be at least one. Got none.")
        return np.concatenate(parts)


def _joined(first: Floats32, second: Floats32, weight: float) -> Floats32:
    """Return weighted geometric means of probabilities (n, c), scaled to add up to 1."""
    means = np.maximum(first, _LEAST) ** weight * np.maximum(second, _LEAST) ** (1 - weight)
    return np.asarray(means / means.sum(axis=1, keepdims=True))


def _numbers(examples: npt.ArrayLike) -> Examples:
    array = np.asarray(examples)
    if array.dtype.kind not in "buif" or array.ndim == 0 or not array.size:
        raise InvalidInput("The examples must be an array of numbers, and at least one.")
    if not np.isfinite(array).all():
        raise InvalidInput("The examples must hold finite numbers only.")
    return array
