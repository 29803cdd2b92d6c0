"""Components of a kernel of public rows: what they are, and that each is of its record alone."""

from functools import cache

import numpy as np
import pytest

from vicinal.linear import kernel_map
from vicinal.linear.kernel_map import KernelMap
from vicinal.linear.model_features import MAX_KERNEL_RECORDS, MIN_KERNEL_FEATURES, ModelFeatures
from vicinal.linear.private_model import LinearModel
from vicinal.mechanisms.gradients import round_weights
from vicinal.neighbours.kernels import FLOAT32, quantise_directions

D, M, WIDTH = 70, 600, 40
RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(M, D)) * np.linspace(3, 0.5, D)
X = RNG.normal(size=(900, D)) * np.linspace(3, 0.5, D)


@cache
def fit_map():
    """Return the map of the public rows, at the first use: collection does not wait for it."""
    return KernelMap.from_public_rows(PUBLIC, WIDTH)


def compute_components():
    return fit_map().compute_components(quantise_directions(X))


@pytest.mark.parametrize("power", [0.0, 0.25])
def test_components_are_those_of_the_centred_kernel(power):
    """An independent computation in floats: kernel PCA by scikit-learn, half whitened or not."""
    from sklearn.decomposition import KernelPCA

    def likeness(rows):
        unit, others = (
            quantise_directions(each) / FLOAT32.compute_unit_norm(D) for each in (rows, PUBLIC)
        )
        return ((1 + unit @ others.T) / 2) ** 8

    pca = KernelPCA(WIDTH, kernel="precomputed").fit(likeness(PUBLIC))
    variances = pca.eigenvalues_ / pca.eigenvalues_[0]
    expected = pca.transform(likeness(X)) * variances**-power
    kernel_map = KernelMap.from_public_rows(PUBLIC, WIDTH, power=power)
    found = kernel_map.compute_components(quantise_directions(X)) / 2**12
    found *= np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found[:, :20], expected[:, :20], atol=5e-4)


def alone_or_together(components):
    """Tell whether components of a record are the same in any company."""
    unit = quantise_directions(X)
    parts = (slice(0, 1), slice(5, 6), slice(3, 800, 7), slice(None, None, -1))
    whole = components(unit)
    return all((components(unit[part]) == whole[part]).all() for part in parts)


def test_a_record_does_not_depend_on_others_and_private_means_are_caught(monkeypatch):
    fitted = fit_map()
    components = compute_components()
    assert alone_or_together(fitted.compute_components)
    monkeypatch.setattr(kernel_map, "_CHUNK", 64)
    assert (compute_components() == components).all()
    assert not alone_or_together(
        lambda unit: fitted.compute_components(unit) - fitted.compute_components(unit).mean(0)
    )


def test_a_stored_map_is_the_same():
    arrays = fit_map().to_arrays()
    again = KernelMap(**arrays)
    assert (again.compute_components(quantise_directions(X)) == compute_components()).all()
    assert all(array.dtype == np.int16 for array in arrays.values())


@pytest.mark.parametrize("scale", [1, 1000])
def test_no_likenesses_have_sums_beyond_32_bits(scale):
    """Of all columns, also of one whose entries have one sign, under any likenesses up to 1."""
    projection = np.abs(RNG.normal(size=(2000, 3))) * scale * [1, -1, 16] // 1
    fitting, shifts = kernel_map._coarsen_projection(
        projection.astype(np.int16), np.zeros(3, np.int16)
    )
    for sign in (1, -1):
        ends = np.maximum(sign * fitting.astype(np.int64), 0).sum(axis=0) << 12
        assert ends.max() < 2**31
    assert scale == 1 or shifts.any()


def test_public_rows_that_are_few_or_alike_give_fewer_components():
    d_min, n_max = MIN_KERNEL_FEATURES, MAX_KERNEL_RECORDS
    facts = (d_min, 60_000), (d_min - 1, 60_000), (d_min, n_max + 1)
    made = [ModelFeatures.for_training(PUBLIC[:50, :d], n, lifted=False).kernel for d, n in facts]
    assert [kernel is not None for kernel in made] == [True, False, False]
    assert made[0].width <= 50
    alike = KernelMap.from_public_rows(np.repeat(PUBLIC[:5], 200, axis=0), WIDTH)
    assert 1 <= alike.width <= 5
    assert np.abs(alike.compute_components(quantise_directions(X))).max() < 2**40


@pytest.mark.parametrize("row", [np.zeros(D), np.ones(D), PUBLIC[0]])
def test_public_rows_that_are_all_alike_leave_a_model_to_train(row):
    kernel = KernelMap.from_public_rows(np.tile(row, (M, 1)), WIDTH)
    rows = ModelFeatures.from_rows(PUBLIC, kernel, lifted=False).compute_rows(X)
    assert kernel.width == 1
    assert np.isfinite(rows).all()


@cache
def make_features():
    return ModelFeatures.from_rows(PUBLIC, fit_map(), lifted=False)


@pytest.mark.parametrize("rows", [X, np.zeros((2, D)), -X, PUBLIC])
def test_rows_are_whole_and_short_enough(rows):
    features = make_features()
    found = features.compute_rows(rows)
    assert found.shape == (len(rows), features.width)
    assert (found == np.rint(found)).all()
    assert np.linalg.norm(found.astype(np.float64), axis=1).max() < 8191


def test_scores_do_not_depend_on_other_records():
    weights = round_weights(RNG.normal(size=(WIDTH + 1, 3)))
    model = LinearModel(weights, make_features())
    scores = model.compute_scores(X)
    assert (model.compute_scores(X[7:9]) == scores[7:9]).all()
    assert (model.compute_scores(X[::3]) == scores[::3]).all()
