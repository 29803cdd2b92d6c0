"""Coincidences by chance are distinguished from copied rows."""

import numpy as np
import pytest

from vicinal.datasets.coincidences import count_shared_rows


def sample_rows(size, values, seed):
    return np.random.default_rng(seed).integers(0, values, (size, 2)).astype(float)


@pytest.mark.parametrize("values", [5, 60, 10**6])
def test_public_rows_of_the_same_population_are_not_suspicious_and_copies_are(values):
    private = sample_rows(3000, values, 0)
    fresh = count_shared_rows(private, sample_rows(500, values, 1))
    assert not fresh.suspicious
    copied = count_shared_rows(private, private[:500])
    assert copied.shared == 500
    assert copied.suspicious == (values > 5), "25 distinct rows do not reveal copies"


def test_equal_numbers_are_equal_rows():
    coincidences = count_shared_rows([[0.0, 1], [2, 3], [0, 1]], np.array([[-0.0, 1.0], [7, 7]]))
    assert (coincidences.public, coincidences.shared) == (2, 1)
    assert coincidences.expected == pytest.approx(4 / 3)
    assert "1 of 2 public rows" in str(coincidences)
