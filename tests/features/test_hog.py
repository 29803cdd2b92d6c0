import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures
from vision_tools import NOT_IMAGES


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (300, 28, 28), dtype=np.uint8)


def test_mnist_sized_images_give_1296_features(images: np.ndarray) -> None:
    features = HOGFeatures().transform(images[:3])
    assert features.shape == (3, 1296)
    assert features.dtype == np.float32
    assert 0 <= features.min() < features.max() <= 1


@pytest.mark.parametrize(
    ("shape", "settings", "width"),
    [
        ((28, 28), {"orientations": 8, "cell": 7, "block": 1}, 4 * 4 * 8),
        ((32, 20), {"orientations": 9, "cell": 4, "block": 3}, (8 - 2) * (5 - 2) * 9 * 9),
        ((8, 8, 3), {}, 36),
    ],
)
def test_the_number_of_features_is_the_documented_one(
    shape: tuple[int, ...], settings: dict[str, int], width: int
) -> None:
    image = np.random.default_rng(2).random((1, *shape))
    assert HOGFeatures(**settings).transform(image).shape == (1, width)


def test_a_vertical_edge_falls_into_the_bin_of_horizontal_gradients() -> None:
    image = np.zeros((8, 8))
    image[:, 4:] = 1.0
    bins = HOGFeatures().fit_transform(image[None]).reshape(4, 9)
    assert (bins.argmax(axis=1) == 0).all()
    assert not bins[:, 1:].any()


def test_an_image_has_the_same_features_in_any_company(images: np.ndarray) -> None:
    together = HOGFeatures().transform(images)
    assert_array_equal(HOGFeatures().transform(images[7:8])[0], together[7])
    assert_array_equal(HOGFeatures().transform(images[::-3]), together[::-3])


def test_the_number_of_threads_changes_nothing(images: np.ndarray) -> None:
    finished: list[int] = []
    parallel = HOGFeatures(n_jobs=2).transform(images, progress=finished.append)
    assert_array_equal(parallel, HOGFeatures().transform(images))
    assert finished == [256, 44]


def test_progress_counts_every_image_once(images: np.ndarray) -> None:
    finished: list[int] = []
    HOGFeatures(cell=14, block=1).transform(images, finished.append)
    assert sum(finished) == len(images)
    assert len(finished) > 1


def test_colour_takes_the_channel_with_the_steepest_gradient() -> None:
    ramp = np.random.default_rng(3).random((1, 16, 16))
    colour = np.stack([np.zeros_like(ramp), ramp, ramp / 2], axis=-1)
    assert_array_equal(HOGFeatures().transform(colour), HOGFeatures().transform(ramp))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *NOT_IMAGES,
        (np.full((1, 28, 28), np.nan), "finite"),
        (np.full((1, 28, 28), np.inf), "finite"),
    ],
)
def test_unusable_images_are_refused(wrong: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        HOGFeatures().transform(wrong)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["orientations", "cell", "block"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, None])
def test_unusable_parameters_are_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=name):
        HOGFeatures(**{name: value}).transform(np.zeros((1, 28, 28)))


def test_it_is_a_plain_scikit_learn_transformer() -> None:
    features = HOGFeatures(orientations=6, n_jobs=2)
    copy = clone(features)
    assert copy.get_params() == {
        "orientations": 6,
        "cell": 4,
        "block": 2,
        "compress": True,
        "n_jobs": 2,
    }
    assert features.fit() is features


def test_compression_takes_square_roots_and_refuses_negative_values() -> None:
    images = np.random.default_rng(0).random((2, 8, 8))
    squared = HOGFeatures(compress=True).transform(images**2)
    np.testing.assert_allclose(squared, HOGFeatures(compress=False).transform(images), atol=1e-6)
    with pytest.raises(InvalidInput, match="compress"):
        HOGFeatures().transform(-images)
    assert HOGFeatures(compress=False).transform(-images).shape == (2, 36)
