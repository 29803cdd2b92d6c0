"""Students (networks trained on released answers), their files and their ONNX form."""

from __future__ import annotations

import io
import json
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
from vicinal.declared_sizes import read_bytes, require_zip_memory
from vicinal.errors import InvalidInput
from vicinal.features.hog import HOGFeatures
from vicinal.lazy import import_from_extra
from vicinal.ledger.output_files import write_output
from vicinal.ledger.sealed_files import check_archive, seal_archive, translate_damage
from vicinal.students._exact import ExactBody
from vicinal.students._networks import (
    KERNEL,
    Network,
    Shape,
    build_empty_kernel_network,
    build_network,
)
from vicinal.tabular import is_table

Examples = AnyArray
"""Raw images (n, h, w) or (n, h, w, 3), or vectors (n, d)."""

IMAGE_NETWORK_WEIGHT = 0.7
"""Weight of an image network in the geometric mean with a second student; tuned on Fashion-MNIST.

See docs/decisions/0028-students.md.
"""

VECTOR_NETWORK_WEIGHT = 0.5
"""Weight of a vector network in the geometric mean with a second student (decision 0028)."""

_MIN_PROBABILITY = 1e-12
"""Floor of probabilities in a geometric mean, so that a single student cannot exclude a class."""

_BATCH_SIZE = 256
"""Number of examples that a network takes at a time, to bound memory."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Normalisation of raw examples for a network, with statistics of public examples.

    `shape`: of a raw example: (h, w), (h, w, 3) or (d,). `mean`, `deviation`: mean and standard
    deviation of every channel of images or feature of vectors, in raw units.
    """

    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def from_examples(cls, pool: Examples) -> Preprocessing:
        """Return the normalisation for public examples (m, h, w), (m, h, w, 3) or (m, d)."""
        checked = _check_examples(pool)
        if checked.ndim not in (2, 3, 4) or checked.shape[3:] not in ((), (3,)):
            raise InvalidInput(
                "The examples must be images (m, h, w) or (m, h, w, 3), or vectors (m, d). Got "
                f"{checked.shape}."
            )
        values = checked.astype(np.float64)
        axes = 0 if checked.ndim == 2 else (0, 1, 2)
        mean = np.atleast_1d(values.mean(axes))
        deviation = np.atleast_1d(values.std(axes))
        deviation = np.where(deviation > 0, deviation, 1.0)
        return cls(checked.shape[1:], tuple(mean.tolist()), tuple(deviation.tolist()))

    @property
    def input_shape(self) -> Shape:
        """Shape of the network's input: (c, h, w), or (d,)."""
        if len(self.shape) == 1:
            return self.shape
        return (len(self.mean), *self.shape[:2])

    def __call__(self, examples: Examples) -> Tensor:
        """Return normalised examples, float32 (n, *input_shape).

        Raises InvalidInput if they are not finite or their shape is not `shape`.
        """
        checked = _check_examples(examples)
        if checked.shape[1:] != self.shape:
            raise InvalidInput(
                f"The examples must have shape {self.shape}. Got {checked.shape[1:]}."
            )
        return self.normalise(torch.from_numpy(checked.astype(np.float32))).contiguous()

    def normalise(self, raw: Tensor) -> Tensor:
        """Return the normalised examples (n, *input_shape) of raw examples (n, *shape), float32."""
        mean = torch.tensor(self.mean, dtype=torch.float32)
        deviation = torch.tensor(self.deviation, dtype=torch.float32)
        if len(self.shape) == 2:
            raw = raw[..., None]
        values = (raw - mean) / deviation
        return values if values.ndim == 2 else values.permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Student:
    """A trained network that may be published under its guarantee.

    Attributes
    ----------
    network : Network
        In evaluation mode.
    name : str
        The kind of network: "kernel", or one of :data:`vicinal.students._networks.NETWORKS`.
    classes : tuple of int or str
        Class names, in the order of the outputs.
    preprocessing : Preprocessing
        The normalisation of raw examples.
    ranges : tuple of float
        Largest inputs of the network's layers on public examples, see
        :func:`vicinal.students._exact.measure_largest_inputs`.
    guarantee : dict or None
        The guarantee of its training answers, in the form of ``Guarantee.to_dict``. It holds for
        the student too, because post-processing of released answers weakens no guarantee.
    second : Student or None
        A student that takes the images' histograms of gradients, or the same vectors. Its
        probabilities and the network's are combined by weighted geometric means.

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

        def compute_probabilities(batch: Tensor) -> Tensor:
            logits: Tensor = self.network(batch)
            return logits.softmax(dim=1)

        first = self._apply(compute_probabilities, examples)
        if self.second is None:
            return first
        if len(self.preprocessing.shape) > 1:
            examples = HOGFeatures(n_jobs=-1).transform(examples)
        second = self.second.predict_proba(examples)
        weight = self.network_weight
        means = np.maximum(first, _MIN_PROBABILITY) ** weight * np.maximum(
            second, _MIN_PROBABILITY
        ) ** (1 - weight)
        return np.asarray(means / means.sum(axis=1, keepdims=True))

    @property
    def network_weight(self) -> float:
        """Weight of the network in the geometric mean with the second student, from 0 to 1."""
        takes_vectors = len(self.preprocessing.shape) == 1
        return VECTOR_NETWORK_WEIGHT if takes_vectors else IMAGE_NETWORK_WEIGHT

    def predict(self, examples: Examples) -> AnyArray:
        """Return class names (n,) for raw examples."""
        class_indices = self.predict_proba(examples).argmax(axis=1)
        return np.asarray(np.array(self.classes)[class_indices])

    def transform(self, examples: Examples) -> Floats32:
        """Return the inputs of the network's linear head, float32 (n, f), for raw examples.

        Row i depends only on example i and on the network, bit for bit, and not on the number or
        order of other examples (:mod:`vicinal.students._exact`). So private records may be
        transformed. The second student is not used.

        Raises
        ------
        InvalidInput
            If the examples have another shape or are not finite; if the network has no exact form.
        """
        return self._apply(ExactBody(self.network.body, self.ranges), examples)

    def _apply(self, function: Callable[[Tensor], Tensor], examples: Examples) -> Floats32:
        """Normalise raw examples, apply `function` batch by batch, and concatenate its values."""
        blocks = []
        with torch.no_grad():
            for start in range(0, len(examples), _BATCH_SIZE):
                batch = self.preprocessing(examples[start : start + _BATCH_SIZE])
                blocks.append(function(batch).numpy())
        if not blocks:
            raise InvalidInput("There must be at least one example. Got none.")
        return np.concatenate(blocks)


def _check_examples(examples: npt.ArrayLike) -> Examples:
    """Return examples as an array of finite numbers; raise InvalidInput for tables and others."""
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


# A file is torch's zip archive of tensors. It is read with weights_only=True, which builds tensors
# and plain values only, so a file from another source cannot run code. The archive's comment is a
# SHA-256 of all bytes before it, because one flipped bit could change the stated epsilon; it
# detects damage, not forgery.

FORMAT = 1
"""Version of the file format."""

_SECOND_PREFIX = "second."
"""Prefix of the second student's tensors in a file."""


def save(student: Student, path: str | Path) -> None:
    """Write a student to a file, atomically and durably.

    Raises
    ------
    OutputFailed
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
    torch.save(
        {"about": json.dumps(describe_student(student)), **_collect_tensors(student)}, content
    )
    write_output(Path(path), seal_archive(content.getvalue()))


def load(path: str | Path) -> Student:
    """Read a student from a file.

    Raises
    ------
    InvalidInput
        If the file is missing or damaged, or holds no student or an inconsistent one.
    TooLittleMemory
        If the content needs more memory than there is.

    Examples
    --------
    >>> from vicinal.students import load
    >>> load("student.pt").classes  # doctest: +SKIP
    ('a', 'b')
    """
    try:
        content = read_bytes(Path(path))
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
    check_archive(Path(path), content)
    with translate_damage(f"{path} is damaged, or is not a student file."):
        require_zip_memory(path, io.BytesIO(content))
        stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        description = json.loads(stored.pop("about"))
        checks.check_file_format(path, description["format"], FORMAT)
        return _build_student(description, stored)


def describe_student(student: Student) -> dict[str, Any]:
    """Return the description of a student for its files, as plain values, without weights."""
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


def _build_student(description: dict[str, Any], tensors: dict[str, Tensor]) -> Student:
    """Return the student of a `description` (:func:`describe_student`) and its weights by name.

    Names of the second student's weights have the prefix "second.".
    """
    statistics = description["preprocessing"]
    preprocessing = Preprocessing(
        tuple(statistics["shape"]), tuple(statistics["mean"]), tuple(statistics["deviation"])
    )
    classes = tuple(description["classes"])
    second = None
    if description["second"] is not None:
        second_tensors = {
            name.removeprefix(_SECOND_PREFIX): tensor
            for name, tensor in tensors.items()
            if name.startswith(_SECOND_PREFIX)
        }
        second = _build_student(description["second"], second_tensors)
        tensors = {
            name: tensor for name, tensor in tensors.items() if not name.startswith(_SECOND_PREFIX)
        }
    if description["network"] == KERNEL:
        network = build_empty_kernel_network(tensors)
    else:
        network = build_network(description["network"], preprocessing.input_shape, len(classes))
    network.load_state_dict(tensors)
    if not all(bool(tensor.isfinite().all()) for tensor in network.state_dict().values()):
        raise ValueError("weights that are not finite")
    return Student(
        network=network.eval(),
        name=description["network"],
        classes=classes,
        preprocessing=preprocessing,
        ranges=tuple(description["ranges"]),
        guarantee=description["guarantee"],
        second=second,
    )


def _collect_tensors(student: Student) -> dict[str, Tensor]:
    """Return the weights of a student and of its second student, by their names in a file."""
    tensors = {name: tensor.contiguous() for name, tensor in student.network.state_dict().items()}
    if student.second is None:
        return tensors
    second = _collect_tensors(student.second)
    return tensors | {_SECOND_PREFIX + name: tensor for name, tensor in second.items()}


def save_onnx(student: Student, path: str | Path) -> None:
    """Write a student as an ONNX file.

    The input "examples" is float32 (n, h, w), (n, h, w, 3) or (n, d), not normalised; the output
    "probabilities" is float32 (n, c). Classes and guarantee are in the metadata, as JSON.

    Raises
    ------
    MissingExtra
        If onnx is not installed.
    InvalidInput
        If the student takes images and has a second one.
    OutputFailed
        If the file cannot be written.

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
    library = import_from_extra("students", "onnx", "Writing ONNX")
    content = io.BytesIO()
    examples = torch.zeros(2, *student.preprocessing.shape)
    with warnings.catch_warnings():
        # Torch recommends its newer exporter, which needs further packages.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _PublishedModel(student).eval(),
            (examples,),
            content,
            dynamo=False,
            opset_version=17,
            dynamic_axes={"examples": {0: "n"}, "probabilities": {0: "n"}},
            input_names=["examples"],
            output_names=["probabilities"],
        )
    model = library.load_from_string(content.getvalue())
    properties = {name: json.dumps(value) for name, value in describe_student(student).items()}
    library.helper.set_model_props(model, properties)
    library.checker.check_model(model, full_check=True)
    write_output(Path(path), model.SerializeToString())


class _PublishedModel(nn.Module):
    """The network of a student's ONNX file, combined with its second student, if any.

    The normalised geometric mean of softmaxes is the softmax of the mean logits.
    """

    def __init__(self, student: Student) -> None:
        super().__init__()
        self._students = [student]
        self._weights = [1.0]
        if student.second is not None:
            self._students.append(student.second)
            self._weights = [student.network_weight, 1 - student.network_weight]
        self._networks = nn.ModuleList(student.network for student in self._students)

    def forward(self, raw: Tensor) -> Tensor:
        """Return class probabilities (n, c) for raw examples (n, *shape)."""
        logits = [
            network(student.preprocessing.normalise(raw))
            for student, network in zip(self._students, self._networks, strict=True)
        ]
        means = torch.tensordot(torch.tensor(self._weights), torch.stack(logits), dims=1)
        probabilities: Tensor = means.softmax(dim=1)
        return probabilities
