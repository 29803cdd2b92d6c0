"""The handwritten digits of the demonstration: in a checkout, or in a wheel of their own."""

from __future__ import annotations

from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from importlib.util import find_spec

from vicinal.datasets._arrays import image_npz
from vicinal.datasets._dataset import Dataset
from vicinal.errors import MissingExtra


def load_mnist() -> Dataset:
    """Return MNIST: 60,000 digits, and 10,000 more in the test part.

    Images are uint8 (n, 28, 28), from 0 (black) to 255 (white); labels are the digits, uint8 (n,).
    Nothing is downloaded. ``README.md`` beside the file names source and licence.

    Raises
    ------
    MissingExtra
        If this is no checkout and the extra `demo` is not installed.
    """
    with as_file(_file()) as path:
        return image_npz(path)


def _file() -> Traversable:
    here = files("vicinal.datasets") / "data" / "mnist.npz"
    if here.is_file():
        return here
    if find_spec("vicinal_demo_data") is None:
        raise MissingExtra(
            "The digits are in a package of their own: pip install 'vicinal[demo]'. For images of "
            "your own: vicinal demo --data FILE.npz"
        )
    return files("vicinal_demo_data") / "mnist.npz"
