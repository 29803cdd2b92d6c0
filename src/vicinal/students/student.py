"""A student: a network trained on released answers, with what it takes to use and to publish it."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vicinal import checks
from vicinal.arrays import AnyArray, Floats32
from vicinal.errors import InvalidInput, OtherFormat
from vicinal.features.hog import HOGFeatures
from vicinal.lazy import of_extra
from vicinal.ledger.sealed_files import check_archive, sealed_archive
from vicinal.students._exact import ExactBody
from vicinal.students._networks import KERNEL, Network, Shape, build, kernel_of
from vicinal.tabular import is_table

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

    `shape`: of a raw example: (h, w), (h, w, 3) or (d,). `mean`, `deviation`: of every channel (of
    every feature, for vectors), in raw units.
    """

    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, pool: Examples) -> Preprocessing:
        """Learn mean and deviation from public examples (m, h, w), (m, h, w, 3) or (m, d)."""
        checked = _flatten_examples(pool)
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
        checked = _flatten_examples(examples)
        if checked.shape[1:] != self.shape:
            raise InvalidInput(
                f"The examples must have shape {self.shape}. Got {checked.shape[1:]}."
            )
        return self.normalised(torch.from_numpy(checked.astype(np.float32))).contiguous()

    def normalised(self, raw: Tensor) -> Tensor:
        """Return raw examples (n, *shape), float32, as (n, *input_shape)."""
        mean, deviation = (
            torch.tensor(v, dtype=torch.float32) for v in (self.mean, self.deviation)
        )
        values = ((raw[..., None] if len(self.shape) == 2 else raw) - mean) / deviation
        return values if values.ndim == 2 else values.permute(0, 3, 1, 2)


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
        second, weight = self.second.predict_proba(examples), self.first_weight
        # Weighted geometric means, scaled to add up to 1.
        means = np.maximum(chances, _LEAST) ** weight * np.maximum(second, _LEAST) ** (1 - weight)
        return np.asarray(means / means.sum(axis=1, keepdims=True))

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


def _flatten_examples(examples: npt.ArrayLike) -> Examples:
    if is_table(examples):
        raise InvalidInput(
            "The examples must be an array: a student keeps no names of columns. Pass "
            "table.to_numpy(), always with the columns in one order."
        )
    array = np.asarray(examples)
    if array.dtype.kind not in "buif" or array.ndim == 0 or not array.size:
        raise InvalidInput("The examples must be an array of numbers, and at least one.")
    if not np.isfinite(array).all():
        raise InvalidInput("The examples must hold finite numbers only.")
    return array


# ---------------------------------------------------------------- in a file
# Torch's zip of tensors, read with weights_only=True, which builds tensors and plain values and
# runs nothing: a file from somebody else cannot run code. The zip's comment is a SHA-256 of all
# bytes before it, as one flipped bit could state another epsilon; it finds damage, not forgery.

FORMAT = 1


def save(student: Student, path: str | Path) -> None:
    """Write a student so that a kill leaves the whole file or none.

    Raises
    ------
    InvalidInput
        If the file cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.students import Recipe, load, save, train_student
    >>> recipe = Recipe(network="mlp", method="plain", steps=1)
    >>> pool = np.eye(8, dtype=np.float32)
    >>> save(train_student(pool, np.arange(2), ["a", "b"], ["a", "b"], recipe), "student.pt")
    >>> load("student.pt").classes
    ('a', 'b')
    """
    content = io.BytesIO()
    torch.save({"about": json.dumps(describe_student(student)), **_list_tensors(student)}, content)
    target = Path(path)
    fresh = target.with_name(target.name + ".new")
    try:
        with fresh.open("wb") as file:
            file.write(sealed_archive(content.getvalue()))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror}.") from None


def load(path: str | Path) -> Student:
    """Return the student in a file.

    Raises
    ------
    InvalidInput
        If the file is missing or damaged, holds no student, or one whose parts do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.students import Recipe, load, save, train_student
    >>> recipe = Recipe(network="mlp", method="plain", steps=1)
    >>> pool = np.eye(8, dtype=np.float32)
    >>> student = train_student(pool, np.arange(2), ["a", "b"], ["a", "b"], recipe)
    >>> save(student, "student.pt")
    >>> bool((load("student.pt").predict(pool) == student.predict(pool)).all())
    True
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
    check_archive(Path(path), content)
    try:
        stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        about = json.loads(stored.pop("about"))
        checks.file_format(path, about["format"], FORMAT)
        return _restore_student(about, stored)
    except (MemoryError, OtherFormat):
        raise
    # torch raises whatever its unpickler meets.
    except Exception as error:
        raise InvalidInput(f"{path} is damaged, or is not a student file.") from error


def describe_student(student: Student) -> dict[str, Any]:
    preprocessing = student.preprocessing
    return {
        "format": FORMAT,
        "network": student.name,
        "classes": list(student.classes),
        "preprocessing": {
            "shape": list(preprocessing.shape),
            "mean": list(preprocessing.mean),
            "deviation": list(preprocessing.deviation),
        },
        "ranges": list(student.ranges),
        "guarantee": student.guarantee,
        "second": None if student.second is None else describe_student(student.second),
    }


def _restore_student(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Student:
    images = about["preprocessing"]
    preprocessing = Preprocessing(
        tuple(images["shape"]), tuple(images["mean"]), tuple(images["deviation"])
    )
    classes = tuple(about["classes"])
    second = None
    if about["second"] is not None:
        of_second = {name for name in tensors if name.startswith(_SECOND)}
        named = {name.removeprefix(_SECOND): tensors[name] for name in of_second}
        second = _restore_student(about["second"], named)
        tensors = {name: part for name, part in tensors.items() if name not in of_second}
    if about["network"] == KERNEL:
        network = kernel_of(tensors)
    else:
        network = build(about["network"], preprocessing.input_shape, len(classes))
    network.load_state_dict(tensors)
    if not all(bool(value.isfinite().all()) for value in network.state_dict().values()):
        raise ValueError("weights that are no numbers")
    return Student(
        network.eval(), about["network"], classes, preprocessing, tuple(about["ranges"]),
        about["guarantee"], second,
    )  # fmt: skip


_SECOND = "second."


def _list_tensors(student: Student) -> dict[str, torch.Tensor]:
    parts = {name: value.contiguous() for name, value in student.network.state_dict().items()}
    if student.second is None:
        return parts
    second = {_SECOND + name: part for name, part in _list_tensors(student.second).items()}
    return parts | second


def save_onnx(student: Student, path: str | Path) -> None:
    """Write a student as ONNX.

    The input "examples" is float32 (n, h, w), (n, h, w, 3) or (n, d), raw as in training; the
    output "probabilities" is float32 (n, c). Classes and guarantee are in the metadata, as JSON.

    Raises
    ------
    MissingExtra
        If onnx is not installed.
    InvalidInput
        If the file cannot be written, or the student is of images and has a second one.

    Examples
    --------
    >>> from vicinal.students import save_onnx
    >>> save_onnx(student, "student.onnx")  # doctest: +SKIP
    """
    if student.second is not None and len(student.preprocessing.shape) > 1:
        raise InvalidInput(
            "A student of images with a second one cannot be written as ONNX, which has no "
            "histograms of gradients. Train it without 'ensemble'."
        )
    library = of_extra("students", "onnx", "Writing ONNX")
    content, example = io.BytesIO(), torch.zeros(2, *student.preprocessing.shape)
    names = {"input_names": ["examples"], "output_names": ["probabilities"]}
    with warnings.catch_warnings():
        # Torch asks for its newer exporter, which needs packages of its own.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Published(student).eval(), (example,), content, dynamo=False, opset_version=17,
            dynamic_axes={"examples": {0: "n"}, "probabilities": {0: "n"}}, **names,
        )  # fmt: skip
    model = library.load_from_string(content.getvalue())
    properties = {name: json.dumps(value) for name, value in describe_student(student).items()}
    library.helper.set_model_props(model, properties)
    library.checker.check_model(model, full_check=True)
    try:
        Path(path).write_bytes(model.SerializeToString())
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


class _Published(nn.Module):
    """From raw examples (n, ...) to probabilities, for a student without gradients of images."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        first = 1.0 if student.second is None else student.first_weight
        self._students = (student, *(() if student.second is None else (student.second,)))
        self._weights = (first, 1 - first)[: len(self._students)]
        self._networks = nn.ModuleList(one.network for one in self._students)

    def forward(self, raw: Tensor) -> Tensor:
        """Return probabilities (n, c); geometric means of softmaxes are softmaxes of means."""
        logits = [
            network(one.preprocessing.normalised(raw))
            for one, network in zip(self._students, self._networks, strict=True)
        ]
        joined = torch.tensordot(torch.tensor(self._weights), torch.stack(logits), dims=1)
        probabilities: Tensor = joined.softmax(dim=1)
        return probabilities
