"""What the tests of image extractors share: images, and what is none."""

import numpy as np

NOT_IMAGES = [
    (np.zeros((28, 28)), "Got 2 dimensions"),
    (np.zeros((1, 28, 28, 4)), r"\(n, h, w, 3\)"),
    (np.zeros((0, 28, 28)), "at least one"),
    (np.zeros((1, 28, 7)), "at least 8 pixels"),
    (np.full((1, 28, 28), "secret"), "integers or floats"),
    ([np.zeros((28, 28)), np.zeros((28, 27))], "same height and width"),
]
"""What every extractor that needs eight pixels refuses, with words of the refusal."""


def pictures(count, seed=0, shape=(24, 32, 3)):
    """Return images of two kinds, bright above or bright below, and which they are."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, count)
    images = rng.integers(0, 60, (count, *shape))
    half = shape[0] // 2
    images[kinds == 0, :half] += 180
    images[kinds == 1, half:] += 180
    return images.astype(np.uint8), kinds
