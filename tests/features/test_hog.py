import numpy as np
import pytest
from numpy.testing import assert_array_equal

from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures


def test_a_vertical_edge_falls_into_the_bin_of_horizontal_gradients():
    image = np.zeros((8, 8))
    image[:, 4:] = 1.0
    bins = HOGFeatures().fit_transform(image[None]).reshape(4, 9)
    assert (bins.argmax(axis=1) == 0).all()
    assert not bins[:, 1:].any()


def test_colour_takes_the_channel_with_the_steepest_gradient():
    ramp = np.random.default_rng(3).random((1, 16, 16))
    colour = np.stack([np.zeros_like(ramp), ramp, ramp / 2], axis=-1)
    assert_array_equal(HOGFeatures().transform(colour), HOGFeatures().transform(ramp))


def test_compression_takes_square_roots_and_refuses_negative_values():
    images = np.random.default_rng(0).random((2, 8, 8))
    squared = HOGFeatures(compress=True).transform(images**2)
    np.testing.assert_allclose(squared, HOGFeatures(compress=False).transform(images), atol=1e-6)
    with pytest.raises(InvalidInput, match="compress"):
        HOGFeatures().transform(-images)
    assert HOGFeatures(compress=False).transform(-images).shape == (2, 36)
