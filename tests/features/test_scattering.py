"""Scattering features: averages, invariance, and independence of other images."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from examples import scattering
from examples.scattering import FLOORS, ScatteringFeatures

SHAPE = (32, 32)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (150, 28, 28), dtype=np.uint8)


def averages(images, **settings):
    """Return the averages of orders 0, 1 and 2 with two scales: the logarithm taken back."""
    features = ScatteringFeatures(white=1.0, **settings).transform(images)
    directions = int(settings.get("orientations", 6))
    cells = features.shape[1] // (1 + 2 * directions + directions**2)
    orders = np.split(features, [cells, (1 + 2 * directions) * cells], axis=1)
    return [np.expm1(order) * floor for order, floor in zip(orders, FLOORS, strict=True)]


def test_a_spectrum_is_that_of_the_wavelet_in_space():
    """The published definition, pixel by pixel, periodic and without this code's spectra."""
    scale, turn, slant, width = 1, math.pi / 8, 0.5, 1.6
    pixels = np.arange(-96, 96)
    y, x = np.meshgrid(pixels, pixels, indexing="ij")
    along = x * math.cos(turn) + y * math.sin(turn)
    across = y * math.cos(turn) - x * math.sin(turn)
    envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
    wave = envelope * np.exp(1j * 3 * math.pi / 8 * along)
    wavelet = (wave - wave.sum() / envelope.sum() * envelope) / (2 * math.pi * width**2 / slant)
    periodic = np.roll(wavelet.reshape(6, 32, 6, 32).sum(axis=(0, 2)), 0)
    expected = np.fft.fft2(periodic)
    assert_allclose(scattering.wavelets(SHAPE, scale, 8)[1], expected, atol=1e-6)


def test_averages_are_those_of_full_size_convolutions(images):
    """Nothing is subsampled here but the result; subsampling early leaves small aliases."""
    plane = np.pad(images[0] / 255, 2, mode="reflect")
    pooling = scattering.low_pass(SHAPE, 2)

    def moduli(planes, scale):
        bank = scattering.wavelets(SHAPE, scale, 8)
        return np.abs(np.fft.ifft2(np.fft.fft2(planes)[..., None, :, :] * bank))

    def cells(planes):
        return np.fft.ifft2(np.fft.fft2(planes) * pooling).real[..., 4:29:4, 4:29:4].ravel()

    first = [moduli(plane, 0), moduli(plane, 1)]
    expected = [cells(plane), np.concatenate([*map(cells, first)]), cells(moduli(first[0], 1))]
    found = averages(images[:1] / 255, orientations=8)
    for mine, theirs, tolerance in zip(found, expected, (1e-6, 4e-3, 4e-3), strict=True):
        assert_allclose(mine[0], theirs, rtol=0.02, atol=tolerance)


def test_colours_are_scattered_one_by_one():
    colour = np.random.default_rng(3).random((2, 16, 16, 3))
    features = ScatteringFeatures(white=1.0)
    apart = [features.transform(colour[..., channel]) for channel in range(3)]
    assert_array_equal(features.transform(colour), np.concatenate(apart, axis=1))


def test_images_are_transformed_one_by_one():
    """Fails if a library whose last bits follow from company gets several at a time."""
    seen = []
    planes = np.random.default_rng(4).random((16, 4, 4), dtype=np.float32)
    found = scattering._transformed(lambda each: seen.append(len(each)) or each, planes, 8)
    assert seen == [2] * 8
    assert_array_equal(found, planes)


@pytest.mark.parametrize("step", [1, 2, 4])
def test_aliases_add_up_in_one_order_bit_for_bit(step):
    rng = np.random.default_rng(step)
    spectra, filters = (rng.normal(size=(k, 12, 24)).astype(np.float32) for k in (3, 2))
    products = spectra[:, None] * filters
    rows = sum(np.split(products, step, axis=2), np.float32(0))
    expected = sum(np.split(rows, step, axis=3), np.float32(0))
    found = scattering.folded(spectra, filters, step)
    assert_array_equal(found, expected.reshape(6, 12 // step, 24 // step))


@pytest.mark.parametrize(
    ("shape", "cells"), [((16, 16), (7, 7)), ((18, 22), (9, 3)), ((5, 7), (2, 1))]
)
def test_planes_are_averaged_along_both_axes(shape, cells):
    rng = np.random.default_rng(0)
    planes = rng.normal(size=(3, *shape)).astype(np.float32)
    down = rng.normal(size=(cells[0], shape[0])).astype(np.float32)
    right = rng.normal(size=(cells[1], shape[1])).astype(np.float32)
    expected = down @ planes @ right.T
    assert_allclose(scattering.pooled(planes, down, right), expected, rtol=1e-5, atol=1e-5)
