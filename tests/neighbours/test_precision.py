"""int8 features: rounding, clipping and the length learnt from public rows."""

import math

import numpy as np
import pytest

from vicinal.errors import InvalidInput
from vicinal.neighbours import RBF, Cosine, kernels
from vicinal.neighbours.kernels import INTEGER_NORM, LEVELS, Precision, quantise_directions


def test_int8_rounds_like_the_definition():
    x = np.array([[3.0, 4.0], [0.0, -2.0]])
    length = 200 - math.sqrt(2) / 2
    expected = np.clip(np.rint(x / [[5], [2]] * length), -127, 127)
    np.testing.assert_array_equal(quantise_directions(x, Precision(200, 127)), expected)


@pytest.mark.parametrize("d", [3, 64, 768])
def test_the_learnt_length_bends_least(d):
    """Fails if a much longer or shorter length fits the public rows better."""
    rng = np.random.default_rng(d)
    public = rng.normal(size=(300, d)) * rng.lognormal(sigma=0.5, size=d)
    public[:, 0] *= 3
    units = public / np.linalg.norm(public, axis=1, keepdims=True)

    def compute_error(precision):
        coded = quantise_directions(public, precision) / precision.compute_unit_norm(d)
        return np.square(coded - units).sum()

    learnt = kernels.int8_precision(public)
    for factor in (0.5, 0.7, 1.4, 2.0):
        other = Precision(max(1, min(INTEGER_NORM, round(learnt.norm * factor))), 127)
        assert compute_error(learnt) < compute_error(other) * 1.02


def test_a_bound_on_norms_is_learnt_in_its_own_units():
    public = np.random.default_rng(0).normal(size=(200, 30))
    wide, narrow = (
        kernels.int8_precision(public, bound=60.0),
        kernels.int8_precision(public, bound=6.0),
    )
    assert wide.norm > 5 * narrow.norm


@pytest.mark.parametrize(
    "kernel", [Cosine(Precision(300, 127)), RBF(1.5, 6.0, Precision(300, 127))], ids=["cos", "rbf"]
)
def test_levels_cover_every_similarity_of_the_precision(kernel):
    """Fails if a similarity falls off the table, or if its level's value is above its own."""
    max_similarity = 300**2 if kernel.name == "cosine" else 0
    min_similarity = 0 if kernel.name == "cosine" else -4 * 300**2
    similarity = np.unique(np.linspace(min_similarity, max_similarity, 5001).astype(np.int32))
    levels = kernel.levels(similarity)
    assert levels.min() >= 0
    assert levels.max() < LEVELS
    table = kernel.table(6)
    assert (table[levels] <= kernel.value(similarity.astype(float), 6) + 1e-12).all()
    assert table[levels[-1]] > 0.99


def test_offsets_of_int8_rows_do_not_overflow():
    rows = np.full((2, 900), 127, dtype=np.int8)
    np.testing.assert_array_equal(RBF(1.0, 2.5).offsets(rows), [127 * 127 * 900] * 2)


@pytest.mark.parametrize(
    ("norm", "limit", "name"),
    [(0, 127, "norm"), (4096, 127, "norm"), (10, 0, "limit"), (10.5, 9, "norm")],
)
def test_impossible_precisions_are_refused(norm, limit, name):
    with pytest.raises(InvalidInput, match=name):
        Precision(norm, limit)


def test_lengths_of_nothing_and_norms_of_too_many_features_are_refused():
    with pytest.raises(InvalidInput, match="'public'"):
        kernels.int8_precision(np.zeros((0, 4)))
    with pytest.raises(InvalidInput, match="columns"):
        Precision(5, 127).compute_unit_norm(100)
