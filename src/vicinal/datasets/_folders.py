"""Data sets from folders of images: the folders' names are labels and persons."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from vicinal._arrays import AnyArray, UInts8
from vicinal.datasets._dataset import Dataset, Features, subject_column
from vicinal.errors import InvalidInput

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
        strings (n,), persons as :func:`vicinal._checks.subject_id` writes them; without folders of
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
    labels = _names([path.parts[0] for path in paths]) if depth >= _LABEL else None
    people = (
        subject_column([path.parts[1] for path in paths]) if depth == _LABEL_AND_SUBJECT else None
    )
    names = tuple(path.as_posix() for path in paths)
    with ThreadPoolExecutor() as pool:
        pixels = _together(list(pool.map(partial(_pixels, folder), paths)))
    return Dataset(pixels, labels, people, names=names)


def _names(names: list[str]) -> AnyArray:
    """Return names as an array: integers if all are written so, as a column of a table is read."""
    plain = all(
        name.isascii() and name.isdecimal() and len(name) < 19 and str(int(name)) == name
        for name in names
    )
    return np.array([int(name) for name in names] if plain else names)


def _pixels(folder: Path, path: Path) -> UInts8:
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
        raise InvalidInput(f"{folder} holds a file that is no image, or a damaged one.") from None


def _together(images: list[UInts8]) -> Features:
    """Return images as one array if they have one shape."""
    same = len({image.shape for image in images}) == 1
    return np.stack(images) if same else tuple(images)
