"""The handwritten digits of the demonstration, which lie inside the package."""

from __future__ import annotations

from importlib.resources import as_file, files

from vicinal.datasets._arrays import image_npz
from vicinal.datasets._dataset import Dataset


def load_mnist() -> Dataset:
    """Return MNIST: 60,000 digits, and 10,000 more in the test part.

    Images are uint8 (n, 28, 28), from 0 (black) to 255 (white); labels are the digits, uint8 (n,).
    Nothing is downloaded. ``data/README.md`` beside this file names source and licence.
    """
    with as_file(files("vicinal.datasets") / "data" / "mnist.npz") as path:
        return image_npz(path)
