"""Images packed into one npz file as they were encoded, JPEG say, back to back."""

from __future__ import annotations

import io
import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.datasets._dataset import Dataset
from vicinal.errors import InvalidInput


def is_packed(path: str | Path) -> bool:
    """Tell whether a file is an npz file that holds encoded images."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as parts:
        return "offsets.npy" in parts.namelist()


def packed_images(path: str | Path) -> Dataset:
    """Return the images of an npz file that holds them encoded.

    Parameters
    ----------
    path
        A file with the keys data, uint8 (b,): all encoded images; offsets, integers (n + 1,): where
        each begins, and the end of the last; labels, integers (n,).

    Returns
    -------
    Dataset
        Features are uint8 (n, h, w, 3); labels int64 (n,).

    Raises
    ------
    InvalidInput
        If the file is missing or is laid out differently, or if an image is damaged or of another
        shape than the first.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            content = stored["data"].astype(np.uint8, casting="safe").tobytes()
            offsets, labels = stored["offsets"].tolist(), stored["labels"].astype(np.int64)
        images = [_decoded(content[start:end]) for start, end in itertools.pairwise(offsets)]
        if len(images) != len(labels) or offsets[0] != 0 or offsets[-1] != len(content):
            raise ValueError("parts that do not fit together")
        return Dataset(np.stack(images), labels)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, IndexError, KeyError, TypeError, ValueError, SyntaxError,
            zipfile.BadZipFile):  # fmt: skip
        raise InvalidInput(f"{path} is not a sound npz file of packed images.") from None


def _decoded(image: bytes) -> npt.NDArray[Any]:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        return np.asarray(opened.convert("RGB"))
