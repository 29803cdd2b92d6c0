"""Our histograms of gradients are those of scikit-image, bit for bit."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from skimage import feature as skimage_feature

from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures
from vicinal.features.hog import _sum_squares

TYPES = (np.uint8, np.int8, np.int64, np.float16, np.float32, np.float64)


def compute_expected(images, orientations, cell, block, compress):
    options: dict[str, Any] = {
        "orientations": orientations, "pixels_per_cell": (cell, cell),
        "cells_per_block": (block, block), "block_norm": "L2-Hys", "transform_sqrt": compress,
        "channel_axis": -1 if images.ndim == 4 else None,
    }  # fmt: skip
    return np.stack([skimage_feature.hog(image, **options) for image in images], dtype=np.float32)


@pytest.mark.parametrize("seed", range(40))
def test_features_are_the_same_bit_for_bit(seed):
    draw = np.random.default_rng(seed)
    orientations, cell, block = draw.integers(1, (20, 9, 5)).tolist()
    shape = (3, *(cell * block + draw.integers(0, 20, 2)), *((3,) if draw.random() < 0.3 else ()))
    kind = np.dtype(TYPES[seed % len(TYPES)])
    images = draw.random(shape) if kind.kind == "f" else draw.integers(0, (3, 100)[seed % 2], shape)
    compress = bool(draw.random() < 0.5)
    images = np.where(draw.random(shape) < 0.5, 0, images if compress else images * 2 - 3)
    chosen = {"orientations": orientations, "cell": cell, "block": block, "compress": compress}
    images = images.astype(kind) if compress or kind.kind != "u" else abs(images).astype(kind)
    assert_array_equal(HOGFeatures(**chosen).transform(images), compute_expected(images, **chosen))


@pytest.mark.parametrize("n", [1, 7, 8, 127, 128, 129, 136, 255, 256, 257, 400, 1000, 4097])
def test_sums_are_added_up_as_numpy_adds_them(n):
    values = np.random.default_rng(n).random(n)
    assert _sum_squares(values) == np.sum(np.square(values))


def test_compression_refuses_negative_values():
    images = -np.random.default_rng(0).random((2, 8, 8))
    with pytest.raises(InvalidInput, match="compress"):
        HOGFeatures().transform(images)
    assert HOGFeatures(compress=False).transform(images).shape == (2, 36)
