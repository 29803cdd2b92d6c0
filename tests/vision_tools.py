"""Images that tests share."""

import numpy as np
from sklearn.datasets import load_digits


def pictures(count, seed=0, shape=(24, 32, 3)):
    """Return images of two kinds, bright above or bright below, and which they are."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, count)
    images = rng.integers(0, 60, (count, *shape))
    half = shape[0] // 2
    images[kinds == 0, :half] += 180
    images[kinds == 1, half:] += 180
    return images.astype(np.uint8), kinds


def digits():
    """Return 1,797 digits as uint8 images (n, 16, 16), and their labels (n,)."""
    data = load_digits()
    return np.kron(15 * data.images, np.ones((2, 2))).astype(np.uint8), data.target
