"""Data sets of records with labels and subjects, and their loaders from npz files and images."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal import checks
from vicinal.arrays import AnyArray, AnyInts, Bools, UInts8
from vicinal.declared_sizes import open_npz, require_memory
from vicinal.errors import InvalidInput, MissingExtra

Features: TypeAlias = AnyArray | tuple[Any, ...] | pa.Table


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records with labels and subjects; row i of every field belongs to record i.

    ``repr()`` shows the kind of data, never values or the number of records, so that it may be
    logged. Raises InvalidInput if the numbers of records and of labels or subjects differ.

    Attributes
    ----------
    features
        Array (n, d) of vectors, (n, h, w) or (n, h, w, 3) of images; or a tuple of n texts, or of n
        images of different shapes; or a pyarrow Table of n rows.
    labels
        Array (n,) of integers or strings; float64 (n, p) for numeric targets; or None.
    subjects
        Array (n,) of integers or strings: the subject id of each record. None if every record is a
        subject of its own.
    test
        Another data set, held out for testing, or None.
    names
        The source of each record (relative path of an image file), or None.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import Dataset
    >>> patients = Dataset(np.eye(3), labels=np.array([0, 1, 1]), subjects=np.array([7, 7, 9]))
    >>> patients.take(slice(2)).subjects
    array([7, 7])
    """

    features: Features
    labels: AnyArray | None = None
    subjects: AnyArray | None = None
    test: Dataset | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput unless there is one label and one subject for every record, if any."""
        for name in ("labels", "subjects"):
            field = getattr(self, name)
            has_targets = name == "labels" and np.asarray(field).dtype.kind == "f"
            shape = (len(self), *np.shape(field)[1:]) if has_targets else (len(self),)
            if field is not None and np.shape(field) != shape:
                raise InvalidInput(f"The {name!r} must be a flat array, one for every record.")

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.features)

    def __repr__(self) -> str:
        """Return the kind of data and the fields that are present, without values and numbers."""
        if isinstance(self.features, tuple):
            kind = "texts" if isinstance(self.features[0], str) else "images"
        elif isinstance(self.features, pa.Table):
            kind = "a table"
        else:
            kind = f"{self.features.dtype} records of shape {self.features.shape[1:]}"
        extras = [
            name for name in ("labels", "subjects", "test") if getattr(self, name) is not None
        ]
        return f"Dataset({', '.join([kind, *extras])})"

    def take(self, rows: slice | AnyInts | Bools) -> Dataset:
        """Return the records at `rows`: a slice, indices or a mask (n,); without names and test."""
        indices = np.arange(len(self))[rows]
        if isinstance(self.features, tuple):
            features: Features = tuple(self.features[index] for index in indices)
        elif isinstance(self.features, pa.Table):
            features = self.features.take(indices)
        else:
            features = self.features[indices]
        labels = None if self.labels is None else self.labels[indices]
        subjects = None if self.subjects is None else self.subjects[indices]
        return Dataset(features, labels, subjects)

    def split(self) -> tuple[Dataset, Dataset]:
        """Return the records without their test part, and the test part.

        Raises InvalidInput if there is no test part.
        """
        if self.test is None:
            raise InvalidInput("This data set has no test part; take() can hold records back.")
        return replace(self, test=None), self.test


def build_subject_column(ids: npt.ArrayLike | Iterable[Hashable]) -> AnyArray:
    """Return canonical `ids` (n,), such as 5 for "5": int64 if all are whole numbers, else str."""
    canonical_ids = checks.check_subject_ids("subjects", ids)
    are_integers = all(isinstance(subject_id, int) for subject_id in canonical_ids)
    return np.array(canonical_ids if are_integers else list(map(str, canonical_ids)))


def build_label_column(texts: list[str]) -> AnyArray:
    """Return labels (n,): int64 or bool if all texts are whole numbers or truth values, else str.

    Strings are composed (NFC), as class names are.
    """
    composed_texts = [checks.normalize_text(text) for text in texts]
    names = list(map(checks.parse_label, composed_texts))
    return np.array(names if len(set(map(type, names))) == 1 else composed_texts)


def load_npz(path: str | Path) -> Dataset:
    """Return the data set in an npz file, with the keys that `load_table` describes, such as x."""
    arrays = _read_npz(path)
    if "x" in arrays:
        return _build_dataset(path, arrays, "")
    if "x_train" not in arrays:
        raise InvalidInput(f"{path} must have an array called 'x_train', or 'x'.")
    test = _build_dataset(path, arrays, "_test") if "x_test" in arrays else None
    return _build_dataset(path, arrays, "_train", test)


def _read_npz(path: str | Path) -> dict[str, AnyArray]:
    """Return all arrays of an npz file by key; raise InvalidInput for other files."""
    try:
        with Path(path).open("rb") as file, open_npz(path, file) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise InvalidInput(
            f"{path} is damaged, or is not an npz file of numbers and strings. Python objects are "
            "never read."
        ) from None


def _build_dataset(
    path: str | Path, arrays: dict[str, AnyArray], suffix: str, test: Dataset | None = None
) -> Dataset:
    """Return the data set of the arrays with a key suffix: "", "_train" or "_test".

    `arrays`: all arrays of a file by key, such as "x_train". `path`: the file, for messages.
    `test`: the test part of the result.
    """
    features = arrays[f"x{suffix}"]
    if features.dtype.kind not in "buif" or features.ndim < 2 or not np.isfinite(features).all():
        raise InvalidInput(f"{path}: 'x{suffix}' must hold finite numbers, one row per record.")
    labels, subjects = arrays.get(f"y{suffix}"), arrays.get(f"subjects{suffix}")
    for name, field, kinds in (("y", labels, "biuU"), ("subjects", subjects, "iuU")):
        if field is not None and field.dtype.kind not in kinds:
            raise InvalidInput(f"{path}: '{name}{suffix}' must hold integers or strings.")
    return Dataset(
        features,
        None if labels is None else checks.normalize_labels(labels),
        None if subjects is None else build_subject_column(subjects),
        test,
    )


def load_mnist() -> Dataset:
    """Return MNIST: 60,000 digits, and 10,000 more in the test part.

    Images are uint8 (n, 28, 28), from 0 (black) to 255 (white); labels are the digits, uint8 (n,).
    Nothing is downloaded. ``README.md`` beside the file names source and licence. Raises
    MissingExtra if this is no checkout and the extra `demo` is not installed.

    Examples
    --------
    >>> from vicinal.datasets import load_mnist
    >>> digits = load_mnist()  # doctest: +SKIP
    >>> digits.features.shape, digits.test.features.shape  # doctest: +SKIP
    ((60000, 28, 28), (10000, 28, 28))
    """
    with as_file(_find_mnist_file()) as path:
        return load_npz(path)


def _find_mnist_file() -> Traversable:
    """Return the file of the digits: in a checkout, else in the package `vicinal_demo_data`."""
    file_of_checkout = files("vicinal.datasets") / "data" / "mnist.npz"
    if file_of_checkout.is_file():
        return file_of_checkout
    if find_spec("vicinal_demo_data") is None:
        raise MissingExtra(
            "The digits are in a package of their own: pip install 'vicinal[demo]'. For images of "
            "your own: vicinal demo --data FILE.npz"
        )
    return files("vicinal_demo_data") / "mnist.npz"


_GREY_MODES = ("1", "L", "LA")
_COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
"""Pillow's modes of at most 8 bits per channel."""

_LABEL_DEPTH = 2  # number of components of the relative path LABEL/IMAGE
_SUBJECT_DEPTH = 3  # number of components of the relative path LABEL/PERSON/IMAGE


def load_images(folder: str | Path) -> Dataset:
    """Return the images below a folder, in the order of their paths.

    Raises InvalidInput if there is no such folder, or no image in it; if files lie at different
    depths; if a file is no image or has more than 8 bits per channel (no message names a file,
    because its name may be private); TooLittleMemory if the images need more memory than there is.

    Parameters
    ----------
    folder
        Holds images without labels, all as ``IMAGE``; or all as ``LABEL/IMAGE``; or all as
        ``LABEL/PERSON/IMAGE``. Hidden files are ignored. Every format that Pillow reads is
        accepted; the first frame is used, turned upright.

    Returns
    -------
    Dataset
        Features are uint8 (n, h, w) or (n, h, w, 3), or a tuple of n such images if shapes
        differ. Labels and subjects are int64 (n,) if all are whole numbers, else strings (n,);
        subjects are written as :func:`vicinal.checks.check_subject_id` does. Without folders of
        persons every image is a subject of its own.

    Examples
    --------
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from vicinal.datasets import load_images
    >>> for label in ("cat", "dog"):
    ...     Path("pets", label).mkdir(parents=True)
    ...     Image.new("L", (8, 8)).save(f"pets/{label}/1.png")
    >>> load_images("pets").labels
    array(['cat', 'dog'], dtype='<U3')
    """
    from PIL import Image

    folder = Path(folder)
    with warnings.catch_warnings():
        # Sizes are compared with the memory, where Pillow would only warn.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        count_bytes = partial(_count_image_bytes, folder)
        dataset = _load_folder(folder, partial(_read_image, folder), count_bytes, "images")
    images = tuple(dataset.features)
    if len({image.shape for image in images}) > 1:
        return dataset
    # Images of one shape are copied into one array.
    require_memory(folder, sum(image.nbytes for image in images))
    return replace(dataset, features=np.stack(images))


def load_texts(folder: str | Path) -> Dataset:
    """Return the texts in the UTF-8 files below a folder, in the order of their paths.

    `folder`: holds files as for :func:`load_images`, each with one text. Features are a tuple of n
    texts; labels and subjects are as for images. Raises InvalidInput for another folder, and for a
    file that is not UTF-8; TooLittleMemory if the texts need more memory than there is.
    """
    folder = Path(folder)
    return _load_folder(
        folder, partial(_read_text, folder), lambda path: (folder / path).stat().st_size, "texts"
    )


def _load_folder(
    folder: Path, read_file: Callable[[Path], Any], count_bytes: Callable[[Path], int], content: str
) -> Dataset:
    """Return the records in the files below `folder`; features are a tuple of n records.

    Folders below it are labels and subjects (:func:`load_images`). `read_file` returns the record
    in a file, given its path relative to `folder`; `count_bytes` returns the memory in bytes that
    the record needs. `content`: "images" or "texts", for messages.
    """
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.")
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    paths = [path for path in paths if not any(name.startswith(".") for name in path.parts)]
    depths = {len(path.parts) for path in paths}
    if depths not in ({1}, {_LABEL_DEPTH}, {_SUBJECT_DEPTH}):
        name = content.removesuffix("s").upper()
        raise InvalidInput(
            f"{folder} must hold {content}, all as {name}, all as LABEL/{name}, or all as "
            f"LABEL/PERSON/{name}."
        )
    (depth,) = depths
    labels = subjects = None
    if depth >= _LABEL_DEPTH:
        labels = build_label_column([path.parts[0] for path in paths])
    if depth == _SUBJECT_DEPTH:
        subjects = build_subject_column([path.parts[1] for path in paths])
    with ThreadPoolExecutor() as pool:
        require_memory(folder, sum(pool.map(count_bytes, paths)))
        records = tuple(pool.map(read_file, paths))
    return Dataset(records, labels, subjects, names=tuple(path.as_posix() for path in paths))


def _read_text(folder: Path, path: Path) -> str:
    """Return the text in the UTF-8 file at a `path` relative to `folder`."""
    try:
        return (folder / path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(f"{folder} holds a file that is damaged or not a UTF-8 text.") from None


def _count_image_bytes(folder: Path, path: Path) -> int:
    """Return the bytes that the pixels of the image at `path`, relative to `folder`, need."""
    with _open_image(folder, path) as image:
        n_bands = 1 if image.mode in _GREY_MODES else 3
        return int(image.width * image.height * n_bands)


def _read_image(folder: Path, path: Path) -> UInts8:
    """Return the image at a `path` relative to `folder`, upright, uint8 (h, w) or (h, w, 3)."""
    from PIL import ImageOps

    with _open_image(folder, path) as image:
        upright = ImageOps.exif_transpose(image)
        return np.asarray(upright.convert("L" if image.mode in _GREY_MODES else "RGB"))


@contextmanager
def _open_image(folder: Path, path: Path) -> Iterator[Any]:
    """Yield the Pillow image at a `path` relative to `folder`, before its pixels are read.

    Raises InvalidInput for a file that is no image or has more than 8 bits per channel.
    """
    from PIL import Image

    try:
        with Image.open(folder / path) as image:
            if image.mode not in (*_GREY_MODES, *_COLOUR_MODES):
                raise InvalidInput(f"{folder} holds an image of more than 8 bits per channel.")
            yield image
    except InvalidInput:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise InvalidInput(f"{folder} holds a file that is damaged or not an image.") from None
