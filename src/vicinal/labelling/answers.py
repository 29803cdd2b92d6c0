"""Files of released answers, which may be published: labels, margins and the guarantee."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import AnyArray, Bools, Floats, Floats32, Ints
from vicinal.errors import InvalidInput
from vicinal.ledger.output_files import write_output
from vicinal.ledger.sealed_files import pack_arrays, parse_json, read_arrays, translate_damage

_FORMAT = 2  # version of the file format

_SUM_TOLERANCE = 1e-3
"""Largest deviation of a row of soft labels from sum 1, which allows for float32 rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedLabels:
    """Released answers to queries about public examples, with their privacy guarantee.

    Attributes
    ----------
    rows : int64 (q,)
        Row indices of the queried public examples in their file.
    labels : array (q,)
        Class names that answer the queries.
    margins : float64 (q,) or None
        Noisy leads of the best classes over the second; None where labels alone were released.
    selected : bool (q,)
        Whether a student should be trained on each answer.
    classes : tuple of int or str
        All class names.
    guarantee : dict
        The guarantee, as returned by ``Guarantee.to_dict``.
    soft_labels : float32 (m, c) or None
        Class probabilities of all rows of the public file, queried or not; None without a private
        model. They are computed from the released model weights and answers, so the guarantee
        holds for them unchanged.
    examples_digest : str
        Digest of the public examples that `rows` refer to, see :func:`compute_examples_digest`.
        Empty if it is unknown; `vicinal student` then refuses the answers.
    columns : tuple of str or None
        Names of the feature columns of a table of public examples; None for other examples.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.labelling import ReleasedLabels, load_answers
    >>> from vicinal.labelling.answers import save_answers
    >>> answers = ReleasedLabels(
    ...     rows=np.array([4, 7]),
    ...     labels=np.array(["no", "yes"]),
    ...     margins=np.array([31.5, 4.0]),
    ...     selected=np.array([True, False]),
    ...     classes=("no", "yes"),
    ...     guarantee={"epsilon": 1.0, "delta": 1e-5},
    ... )
    >>> answers.rows[answers.selected]
    array([4])
    """

    rows: Ints
    labels: AnyArray
    margins: Floats | None
    selected: Bools
    classes: tuple[int | str, ...]
    guarantee: dict[str, Any]
    soft_labels: Floats32 | None = None
    examples_digest: str = ""
    columns: tuple[str, ...] | None = None


def compute_examples_digest(examples: Iterable[str | AnyArray]) -> str:
    """Return the SHA-256 of public examples in their order, in hexadecimal digits.

    `examples`: texts, or numeric arrays of one example each: vectors (d,) or images.
    """
    digest = hashlib.sha256()
    for example in examples:
        array = np.asarray(example)
        digest.update(f"{array.dtype.str} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def save_answers(answers: ReleasedLabels, path: str | Path) -> None:
    """Write released `answers` to an npz file, which holds arrays and JSON, no pickled objects.

    Raises OutputFailed if the file at `path` cannot be written.
    """
    about = {
        "format": _FORMAT,
        "classes": list(answers.classes),
        "guarantee": answers.guarantee,
        "examples_digest": answers.examples_digest,
        "columns": answers.columns,
    }
    arrays: dict[str, AnyArray] = {
        "about": np.array(json.dumps(about)),
        "rows": answers.rows,
        "labels": answers.labels,
        "kept": answers.selected,
    }
    if answers.margins is not None:
        arrays["margins"] = answers.margins
    if answers.soft_labels is not None:
        arrays["soft_labels"] = answers.soft_labels
    write_output(Path(path), pack_arrays(arrays))


def load_answers(path: str | Path) -> ReleasedLabels:
    """Return the released labels in a file that :func:`save_answers` wrote.

    Raises InvalidInput if the file is missing, damaged or laid out differently; TooLittleMemory if
    the content needs more memory than there is.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.labelling import ReleasedLabels, load_answers
    >>> from vicinal.labelling.answers import save_answers
    >>> rows, labels, selected = np.array([4, 7]), np.array([0, 1]), np.array([True, False])
    >>> save_answers(ReleasedLabels(rows, labels, None, selected, (0, 1), {}), "answers.npz")
    >>> load_answers("answers.npz").labels
    array([0, 1])
    """
    try:
        with translate_damage(f"{path} is damaged, or is not a file of answers."):
            return _unpack_answers(path, read_arrays(Path(path)))
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None


def _unpack_answers(path: str | Path, arrays: dict[str, AnyArray]) -> ReleasedLabels:
    """Return the released labels in the arrays, by name, of the file at `path`.

    Those of a damaged file can raise any error, which the caller converts to InvalidInput.
    """
    about = parse_json(str(arrays["about"]))
    checks.check_file_format(path, about["format"], _FORMAT)
    rows, labels, selected = arrays["rows"], arrays["labels"], arrays["kept"]
    columns = about["columns"]
    shapes_match = rows.ndim == 1 and rows.shape == labels.shape == selected.shape
    has_names = columns is None or all(isinstance(name, str) for name in columns)
    if not (shapes_match and rows.dtype.kind == "i" and has_names):
        raise ValueError("another layout")
    classes = tuple(about["classes"])
    soft_labels = arrays.get("soft_labels")
    if soft_labels is not None:
        soft_labels = check_soft_labels(soft_labels, len(soft_labels), len(classes))
    return ReleasedLabels(
        rows,
        labels,
        arrays.get("margins"),
        selected.astype(bool),
        classes,
        dict(about["guarantee"]),
        soft_labels,
        str(about["examples_digest"]),
        None if columns is None else tuple(columns),
    )


def check_soft_labels(soft_labels: npt.ArrayLike, n_examples: int, n_classes: int) -> Floats32:
    """Return class probabilities of public examples as float32 (`n_examples`, `n_classes`).

    Raises InvalidInput unless `soft_labels` are floats of this shape and each row, for one public
    example, is a probability distribution over the classes.
    """
    soft = np.asarray(soft_labels)
    if soft.dtype.kind != "f" or soft.shape != (n_examples, n_classes):
        raise InvalidInput(
            f"The soft labels must be floats ({n_examples}, {n_classes}), a row for each public "
            f"example and a column for each class. Got {soft.dtype} {soft.shape}."
        )
    near_one = (np.abs(soft.sum(axis=1) - 1) <= _SUM_TOLERANCE).all()
    if not (np.isfinite(soft).all() and (soft >= 0).all() and near_one):
        raise InvalidInput("Each row of the soft labels must be finite, at least 0, and sum to 1.")
    return soft.astype(np.float32)
