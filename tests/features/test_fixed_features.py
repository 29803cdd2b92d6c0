"""Common behaviour of image extractors: independence of other images, and refusals."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from examples.scattering import ScatteringFeatures
from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures

IMAGES = np.random.default_rng(1).integers(0, 256, (300, 28, 28), dtype=np.uint8)
BOTH = pytest.mark.parametrize("extractor", [HOGFeatures, ScatteringFeatures])


@pytest.fixture(scope="module")
def batched():
    return {kind: kind().transform(IMAGES) for kind in (HOGFeatures, ScatteringFeatures)}


@BOTH
def test_an_image_has_the_same_features_in_any_company(extractor, batched):
    for i in (0, 7, 149):
        assert_array_equal(extractor().transform(IMAGES[i : i + 1])[0], batched[extractor][i])
    assert_array_equal(extractor().transform(IMAGES[::-3]), batched[extractor][::-3])


@BOTH
def test_the_layout_in_memory_changes_no_bit(extractor, batched):
    expected = batched[extractor][:9]
    assert_array_equal(extractor().transform(np.asfortranarray(IMAGES[:9])), expected)
    wide = np.repeat(IMAGES[:9].astype(np.float64), 2, axis=2)[:, :, ::2]
    assert_array_equal(extractor().transform(wide), expected)


@pytest.mark.parametrize(
    ("extractor", "chunks"), [(HOGFeatures, [256, 44]), (ScatteringFeatures, [128, 128, 44])]
)
def test_threads_change_nothing_and_progress_counts_every_image(extractor, chunks, batched):
    for n_jobs in (None, 2):
        finished: list[int] = []
        found = extractor(n_jobs=n_jobs).transform(IMAGES, progress=finished.append)
        assert_array_equal(found, batched[extractor])
        assert finished == chunks


@pytest.mark.parametrize(
    ("extractor", "shape", "settings", "width"),
    [
        (HOGFeatures, (28, 28), {}, 1296),
        (HOGFeatures, (28, 28), {"orientations": 8, "cell": 7, "block": 1}, 4 * 4 * 8),
        (HOGFeatures, (32, 20), {"cell": 4, "block": 3}, (8 - 2) * (5 - 2) * 9 * 9),
        (HOGFeatures, (8, 8, 3), {}, 36),
        (ScatteringFeatures, (28, 28), {}, 49 * 49),
        (ScatteringFeatures, (32, 20), {"orientations": 4}, 8 * 5 * 25),
        (ScatteringFeatures, (33, 21), {"orientations": 4}, 8 * 5 * 25),
        (ScatteringFeatures, (17, 30), {"scales": 3, "orientations": 2}, 2 * 3 * (1 + 6 + 12)),
        (ScatteringFeatures, (9, 5, 3), {"scales": 1, "orientations": 3}, 3 * 4 * 2 * 4),
    ],
)
def test_the_number_of_features_is_the_documented_one(extractor, shape, settings, width):
    image = np.random.default_rng(2).random((1, *shape))
    white = {"white": 1.0} if extractor is ScatteringFeatures else {}
    features = extractor(**settings, **white).transform(image)
    assert features.shape == (1, width)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert 0 <= features.min() < features.max()


NOT_IMAGES = [
    (np.zeros((28, 28)), "Got 2 dimensions"),
    (np.zeros((1, 28, 28, 4)), r"\(n, h, w, 3\)"),
    (np.zeros((0, 28, 28)), "at least one"),
    (np.zeros((1, 28, 7)), "at least 8 pixels"),
    (np.full((1, 28, 28), "secret"), "integers or floats"),
    ([np.zeros((28, 28)), np.zeros((28, 27))], "same height and width"),
]
DARK = "from 0 to 'white'"


@pytest.mark.parametrize(
    ("extractor", "wrong", "message"),
    [
        *((kind, *case) for kind in (HOGFeatures, ScatteringFeatures) for case in NOT_IMAGES),
        (HOGFeatures, np.full((1, 28, 28), np.nan), "finite"),
        (HOGFeatures, np.full((1, 28, 28), np.inf), "finite"),
        (ScatteringFeatures, np.full((1, 28, 28), np.nan), DARK),
        (ScatteringFeatures, np.full((1, 28, 28), np.inf), DARK),
        (ScatteringFeatures, np.full((1, 28, 28), -1.0), DARK),
        (ScatteringFeatures, np.full((1, 28, 28), 256), "which is 255"),
    ],
)
def test_unusable_images_are_refused(extractor, wrong, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        extractor().transform(wrong)
    assert "secret" not in str(caught.value)


WRONG = [0, -1, "2", True, None]


@pytest.mark.parametrize(
    ("extractor", "name", "value"),
    [
        *((HOGFeatures, n, v) for n in ("orientations", "cell", "block") for v in (*WRONG, 2.5)),
        *(
            (ScatteringFeatures, name, value)
            for name in ("white", "scales", "orientations")
            for value in (*WRONG, math.nan, math.inf)
        ),
    ],
)
def test_unusable_parameters_are_refused(extractor, name, value):
    with pytest.raises(InvalidInput, match=name):
        extractor(**{name: value}).transform(np.zeros((1, 28, 28)))


@BOTH
def test_it_is_a_plain_scikit_learn_transformer(extractor):
    features = extractor(orientations=4, n_jobs=2)
    parameters = {**extractor().get_params(), "orientations": 4, "n_jobs": 2}
    assert clone(features).get_params() == features.get_params() == parameters
    assert features.fit() is features
