"""A student in a file, with its guarantee: weights, and a JSON text that says everything else.

The file is torch's zip of tensors. It is read with ``weights_only=True``, which builds tensors and
plain values and runs nothing; a file from somebody else cannot run code.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import torch

from vicinal.errors import InvalidInput
from vicinal.students._networks import build
from vicinal.students._student import Preprocessing, Student

FORMAT = "vicinal-student-1"


def save(student: Student, path: str | Path) -> None:
    """Write a student so that a kill leaves the whole file or none.

    Raises
    ------
    InvalidInput
        If the file cannot be written.
    """
    content = io.BytesIO()
    torch.save({"about": json.dumps(about(student)), **_tensors(student)}, content)
    target = Path(path)
    fresh = target.with_name(target.name + ".new")
    try:
        with fresh.open("wb") as file:
            file.write(content.getvalue())
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
        If the file is missing, holds no student, or one whose parts do not fit together.
    """
    try:
        with Path(path).open("rb") as file:
            stored = torch.load(file, map_location="cpu", weights_only=True)
        about = json.loads(stored.pop("about"))
        if about["format"] != FORMAT:
            raise ValueError("another format")
        return _student(about, stored)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except MemoryError:
        raise
    # torch raises whatever its unpickler meets.
    except Exception as error:
        raise InvalidInput(f"{path} is not a sound student file.") from error


def about(student: Student) -> dict[str, Any]:
    """Return all that a student is but its weights, as plain values for JSON."""
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
    }


def _student(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Student:
    given = about["preprocessing"]
    preprocessing = Preprocessing(
        tuple(given["shape"]), tuple(given["mean"]), tuple(given["deviation"])
    )
    classes = tuple(about["classes"])
    network = build(about["network"], preprocessing.input_shape, len(classes))
    network.load_state_dict(tensors)
    if not all(bool(value.isfinite().all()) for value in network.state_dict().values()):
        raise ValueError("weights that are no numbers")
    return Student(
        network.eval(), about["network"], classes, preprocessing, tuple(about["ranges"]),
        about["guarantee"],
    )  # fmt: skip


def _tensors(student: Student) -> dict[str, torch.Tensor]:
    return {name: value.contiguous() for name, value in student.network.state_dict().items()}
