"""What every loader returns: records, perhaps with labels; and those of npz files and images."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
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
from vicinal.errors import InvalidInput, MissingExtra

Features: TypeAlias = AnyArray | tuple[Any, ...] | pa.Table


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records with what is known about them; row i of every field is about record i.

    Its representation tells the kind of data, never values or how many records there are, so that
    it may stand in a log.

    Attributes
    ----------
    features
        Array (n, d) of vectors, (n, h, w) or (n, h, w, 3) of images; or a tuple of n texts, or of n
        images of different shapes; or a pyarrow Table of n rows.
    labels
        Array (n,) of integers or strings; float64 (n, p) where records carry numbers; or None.
    subjects
        Array (n,) of integers or strings: the person that each record is about. None when every
        record is a person of its own.
    test
        Another data set, held out for testing, or None.
    names
        What each record is called where it came from (the file of an image), or None.

    Raises
    ------
    InvalidInput
        If labels or subjects are not as many as the records.

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
        for name in ("labels", "subjects"):
            field = getattr(self, name)
            flat = name == "subjects" or np.asarray(field).dtype.kind != "f"
            shape = (len(self),) if flat else (len(self), *np.shape(field)[1:])
            if field is not None and np.shape(field) != shape:
                raise InvalidInput(f"The {name!r} must be a flat array, one for every record.")

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
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
        """Return the chosen records, without a test part.

        Parameters
        ----------
        rows
            A slice, positions, or a mask (n,).
        """
        places = np.arange(len(self))[rows]
        if isinstance(self.features, tuple):
            features: Features = tuple(self.features[place] for place in places)
        elif isinstance(self.features, pa.Table):
            features = self.features.take(places)
        else:
            features = self.features[places]
        return Dataset(features, _rows_of(self.labels, places), _rows_of(self.subjects, places))

    def split(self) -> tuple[Dataset, Dataset]:
        """Return the records without their test part, and the test part.

        Raises
        ------
        InvalidInput
            If there is no test part.
        """
        if self.test is None:
            raise InvalidInput("This data set has no test part; take() can hold records back.")
        return replace(self, test=None), self.test


def subject_column(ids: npt.ArrayLike | Iterable[Hashable]) -> AnyArray:
    """Return ids, each in its one form, as an array (n,): int64 if all are numbers, else strings.

    In which of the two a number stands makes no difference: 5 and "5" are one id.
    """
    listed = checks.subject_ids("subjects", ids)
    are_integers = all(isinstance(subject, int) for subject in listed)
    return np.array(listed if are_integers else [str(subject) for subject in listed])


def label_column(texts: list[str]) -> AnyArray:
    """Return labels as int64 or bool (n,) if all name whole numbers, or truths; else strings.

    Strings are composed (NFC), as class names are.
    """
    composed_texts = [checks.normalize_text(text) for text in texts]
    names = list(map(checks.label_name, composed_texts))
    return np.array(names if len(set(map(type, names))) == 1 else composed_texts)


def _rows_of(field: AnyArray | None, places: AnyInts) -> AnyArray | None:
    return None if field is None else field[places]


Arrays = dict[str, AnyArray]


def array_npz(path: str | Path) -> Dataset:
    """Return the data set of an npz file; `load_table` says which keys it may have."""
    stored = _read(path)
    if "x" in stored:
        return _make_split(path, stored, "")
    if "x_train" not in stored:
        raise InvalidInput(f"{path} must have an array called 'x_train', or 'x'.")
    test = _make_split(path, stored, "_test") if "x_test" in stored else None
    return _make_split(path, stored, "_train", test)


def _read(path: str | Path) -> Arrays:
    try:
        # Opened here, as np.load leaves a damaged file open.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise InvalidInput(
            f"{path} is damaged, or is not an npz file of numbers and strings. Python objects are "
            "never read."
        ) from None


def _make_split(
    path: str | Path, stored: Arrays, suffix: str, test: Dataset | None = None
) -> Dataset:
    features = stored[f"x{suffix}"]
    if features.dtype.kind not in "buif" or features.ndim < 2 or not np.isfinite(features).all():
        raise InvalidInput(f"{path}: 'x{suffix}' must hold finite numbers, one row per record.")
    labels, subjects = stored.get(f"y{suffix}"), stored.get(f"subjects{suffix}")
    for name, field in ((f"y{suffix}", labels), (f"subjects{suffix}", subjects)):
        if field is not None and field.dtype.kind not in ("iuU" if name[0] == "s" else "biuU"):
            raise InvalidInput(f"{path}: {name!r} must hold integers or strings.")
    labels = None if labels is None else checks.composed_labels(labels)
    people = None if subjects is None else subject_column(subjects)
    return Dataset(features, labels, people, test)


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
        return array_npz(path)


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


_GREY, _COLOUR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_LABEL, _LABEL_AND_SUBJECT = 2, 3


def load_images(folder: str | Path) -> Dataset:
    """Return the images below a folder, in the order of their paths.

    Parameters
    ----------
    folder
        Images lie in it directly, which leaves them without labels; or as ``LABEL/IMAGE``; or as
        ``LABEL/PERSON/IMAGE``. All lie equally deep. Hidden files are passed over. Every format
        that Pillow reads will do; the first frame counts, turned upright.

    Returns
    -------
    Dataset
        Features are uint8 (n, h, w) or (n, h, w, 3), or a tuple of n such images where shapes
        differ. Labels and persons are int64 (n,) where all are written as whole numbers, else
        strings (n,), persons as :func:`vicinal.checks.subject_id` writes them; without folders of
        persons every image is a person of its own.

    Raises
    ------
    InvalidInput
        If there is no such folder, or no image in it; if files lie at different depths, or one is
        no image or has more than 8 bits a pixel. No message names a file: it may be a person's.

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
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.")
    places = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    paths = [place for place in places if not any(part.startswith(".") for part in place.parts)]
    depths = {len(path.parts) for path in paths}
    if len(depths) != 1 or not depths <= {1, _LABEL, _LABEL_AND_SUBJECT}:
        raise InvalidInput(
            f"{folder} must hold images, all as IMAGE, all as LABEL/IMAGE, or all as "
            "LABEL/PERSON/IMAGE."
        )
    (depth,) = depths
    labels = label_column([path.parts[0] for path in paths]) if depth >= _LABEL else None
    people = (
        subject_column([path.parts[1] for path in paths]) if depth == _LABEL_AND_SUBJECT else None
    )
    names = tuple(path.as_posix() for path in paths)
    with ThreadPoolExecutor() as pool:
        pixels = _stack_images(list(pool.map(partial(_read_image, folder), paths)))
    return Dataset(pixels, labels, people, names=names)


def _read_image(folder: Path, path: Path) -> UInts8:
    """Return one image, uint8 (h, w) or (h, w, 3)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(folder / path) as image:
            if image.mode not in (*_GREY, *_COLOUR):
                raise InvalidInput(f"{folder} holds an image of more than 8 bits a pixel.")
            upright = ImageOps.exif_transpose(image)
            return np.asarray(upright.convert("L" if image.mode in _GREY else "RGB"))
    except InvalidInput:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise InvalidInput(f"{folder} holds a file that is damaged or not an image.") from None


def _stack_images(images: list[UInts8]) -> Features:
    """Return images as one array if they have one shape."""
    same = len({image.shape for image in images}) == 1
    return np.stack(images) if same else tuple(images)
