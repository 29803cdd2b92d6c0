"""The one home of argument checks, and of their one sentence shape.

Every check either returns the value in the type that the code works with, or raises
:class:`~vicinal.errors.InvalidInput`: "The 'sigma' parameter must be a finite number > 0. Got nan."
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput

SubjectId = int | str


def _reject(name: str, must: str, got: object) -> InvalidInput:
    return InvalidInput(f"The {name!r} parameter must be {must}. Got {got!r}.")


def real(
    name: str,
    value: object,
    *,
    above: float | None = None,
    below: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> float:
    """Return `value` as a finite float inside the stated bounds.

    `above` and `below` are strict, `least` and `most` are not. Booleans are not numbers here.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise _reject(name, _finite(above, least, below, most), value)
    number = float(value)
    inside = (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    if not inside:
        raise _reject(name, _finite(above, least, below, most), value)
    return number


def _finite(
    above: float | None, least: float | None, below: float | None, most: float | None
) -> str:
    """Return bounds in words; made for errors only, as checks run for every query."""
    bounds = [("> ", above), (">= ", least), ("< ", below), ("<= ", most)]
    words = " and ".join(f"{sign}{bound:g}" for sign, bound in bounds if bound is not None)
    return f"a finite number {words}".rstrip()


def integer(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return `value` as an int with ``least <= value <= most``."""
    must = f"an integer >= {least}" + ("" if most is None else f" and <= {most}")
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise _reject(name, must, value)
    number = int(value)
    if number < least or (most is not None and number > most):
        raise _reject(name, must, value)
    return number


def boolean(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise _reject(name, "True or False", value)
    return bool(value)


def choice(name: str, value: object, options: Sequence[str]) -> str:
    """Return `value` if it is one of `options`."""
    if not isinstance(value, str) or value not in options:
        raise _reject(name, "one of " + ", ".join(map(repr, options)), value)
    return value


def class_names(classes: object) -> npt.NDArray[Any]:
    """Return the declared class names as a 1-d array (c,), in the order given.

    Class names are public and an input: they are never read off private labels.
    """
    if classes is None or isinstance(classes, str) or not isinstance(classes, Iterable):
        raise _reject("classes", "the public list of all class names, as range(10)", classes)
    names = np.asarray(list(classes))
    if names.ndim != 1 or names.dtype.kind not in "iuUb":
        raise _reject("classes", "a flat list of integers or of strings", classes)
    if len(names) < 2 or len(np.unique(names)) != len(names):
        raise _reject("classes", "at least two different names", classes)
    return names


def label_indices(y: npt.ArrayLike, classes: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return the position of every label in `classes`; the labels themselves are never echoed."""
    position_of = {name: position for position, name in enumerate(classes.tolist())}
    try:
        positions = [position_of[label] for label in np.asarray(y).tolist()]
    except (KeyError, TypeError):
        raise InvalidInput(
            "The 'y' parameter must hold only labels named in 'classes'. Got a label that is "
            "not; declare every class (also those without records) when making the classifier."
        ) from None
    return np.array(positions, dtype=np.int32)


def subject_ids(name: str, subjects: npt.ArrayLike | Iterable[Hashable]) -> list[SubjectId]:
    """Return subject ids as a list of Python ints or strings; ids are never echoed."""
    must = f"The {name!r} parameter must be a flat list of integer or string ids."
    if isinstance(subjects, str | bytes) or not isinstance(subjects, Iterable):
        raise InvalidInput(f"{must} Got a single value; put it into a list.")
    values = subjects.tolist() if hasattr(subjects, "tolist") else list(subjects)
    if not isinstance(values, list):
        raise InvalidInput(f"{must} Got a single value; put it into a list.")
    ids: list[SubjectId] = []
    for value in values:
        if isinstance(value, str):
            ids.append(_storable_text(value, must))
        elif isinstance(value, Integral) and not isinstance(value, bool | np.bool_):
            ids.append(_storable_number(int(value), must))
        else:
            raise InvalidInput(f"{must} Got a {type(value).__name__}.")
    return ids


def _storable_text(value: str, must: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{must} Got text that is not valid Unicode.") from None
    return value


def _storable_number(value: int, must: str) -> int:
    if not -(2**63) <= value < 2**63:
        raise InvalidInput(f"{must} Got an integer of more than 64 bits; pass it as text.")
    return value
