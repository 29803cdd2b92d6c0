"""Data sets from npz files."""

from __future__ import annotations

import zipfile
import zlib
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vicinal._arrays import AnyArray
from vicinal.datasets._dataset import Dataset, subject_column
from vicinal.errors import InvalidInput, MissingExtra

Arrays = dict[str, AnyArray]


def image_npz(path: str | Path) -> Dataset:
    """Return the images of an npz file laid out as MNIST and Fashion-MNIST commonly are.

    Parameters
    ----------
    path
        A file with the keys x_train, y_train, x_test and y_test: images (n, h, w) or (n, h, w, 3)
        and their integer labels (n,).

    Returns
    -------
    Dataset
        The training part, with the test part in its `test`.

    Raises
    ------
    InvalidInput
        If the file is missing or is laid out differently.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import image_npz
    >>> images, labels = np.zeros((4, 28, 28), np.uint8), np.arange(4)
    >>> np.savez("digits.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    >>> image_npz("digits.npz").test.features.shape
    (4, 28, 28)
    """
    stored = _read(path)
    _require(path, stored, ("x_train", "y_train", "x_test", "y_test"))
    for name in ("x_train", "x_test"):
        if stored[name].ndim not in (3, 4) or stored[name].shape[3:] not in ((), (3,)):
            raise InvalidInput(f"{path}: {name!r} must hold images, (n, h, w) or (n, h, w, 3).")
    return _part(path, stored, "_train", _part(path, stored, "_test"))


def array_npz(path: str | Path) -> Dataset:
    """Return the data set of an npz file; `load_table` says which keys it may have."""
    stored = _read(path)
    if "x" in stored:
        return _part(path, stored, "")
    _require(path, stored, ("x_train",))
    test = _part(path, stored, "_test") if "x_test" in stored else None
    return _part(path, stored, "_train", test)


def _read(path: str | Path) -> Arrays:
    try:
        # Opened here, as np.load leaves a damaged file open.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise InvalidInput(
            f"{path} is not a sound npz file of numbers and strings. Python objects are not read."
        ) from None


def _part(path: str | Path, stored: Arrays, suffix: str, test: Dataset | None = None) -> Dataset:
    features = stored[f"x{suffix}"]
    if features.dtype.kind not in "buif" or features.ndim < 2 or not np.isfinite(features).all():
        raise InvalidInput(f"{path}: 'x{suffix}' must hold finite numbers, one row a record.")
    labels, subjects = stored.get(f"y{suffix}"), stored.get(f"subjects{suffix}")
    for name, field in ((f"y{suffix}", labels), (f"subjects{suffix}", subjects)):
        if field is not None and field.dtype.kind not in "iuU":
            raise InvalidInput(f"{path}: {name!r} must hold integers or strings.")
    people = None if subjects is None else subject_column(subjects)
    return Dataset(features, labels, people, test)


def _require(path: str | Path, stored: Arrays, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in stored:
            raise InvalidInput(f"{path} must have an array called {name!r}.")


def load_mnist() -> Dataset:
    """Return MNIST: 60,000 digits, and 10,000 more in the test part.

    Images are uint8 (n, 28, 28), from 0 (black) to 255 (white); labels are the digits, uint8 (n,).
    Nothing is downloaded. ``README.md`` beside the file names source and licence.

    Raises
    ------
    MissingExtra
        If this is no checkout and the extra `demo` is not installed.

    Examples
    --------
    >>> from vicinal.datasets import load_mnist
    >>> digits = load_mnist()  # doctest: +SKIP
    >>> digits.features.shape, digits.test.features.shape  # doctest: +SKIP
    ((60000, 28, 28), (10000, 28, 28))
    """
    with as_file(_mnist_file()) as path:
        return image_npz(path)


def _mnist_file() -> Traversable:
    """Return the file: in a checkout beside this module, else in a wheel of its own."""
    here = files("vicinal.datasets") / "data" / "mnist.npz"
    if here.is_file():
        return here
    if find_spec("vicinal_demo_data") is None:
        raise MissingExtra(
            "The digits are in a package of their own: pip install 'vicinal[demo]'. For images of "
            "your own: vicinal demo --data FILE.npz"
        )
    return files("vicinal_demo_data") / "mnist.npz"
