import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.features import PublicMap, fixed

D = 333  # no power of two, so that vectorised loops have ragged ends


@pytest.fixture(scope="module")
def public():
    draw = np.random.default_rng(1)
    return 3 + draw.normal(size=(400, D)) @ (draw.normal(size=(D, D)) * np.geomspace(1, 1e-4, D))


@pytest.fixture(scope="module")
def private():
    draw = np.random.default_rng(2)
    rows = draw.normal(size=(1001, D)) * draw.lognormal(sigma=3, size=(1001, 1))
    return (3 + rows).astype(np.float32)


MAPS = [PublicMap(n_components=50), PublicMap(n_components=None), PublicMap(20, 1.0)]
each_map = pytest.mark.parametrize("unfitted", MAPS, ids=["half-whitened", "plain", "uncentred"])


@each_map
def test_a_row_is_bitwise_the_same_alone_in_subsets_and_in_permutations(unfitted, public, private):
    fitted = unfitted.fit(public)
    together = fitted.transform(private)
    for i in range(0, len(private), 37):
        assert_array_equal(fitted.transform(private[i : i + 1])[0], together[i])
    draw = np.random.default_rng(3)
    for size in (2, 3, 5, 17, 64, 255, 500, 1000, 1001):
        rows = draw.permutation(len(private))[:size]
        assert_array_equal(fitted.transform(private[rows]), together[rows])


def test_company_shows_not_even_where_sums_cancel(public, private):
    # Rows almost at right angles to all components: rounding errors are all that a projection in
    # floating point would leave of them, and those depend on the company.
    fitted = PublicMap(n_components=5).fit(public)
    directions = fitted.components_
    rows = private.astype(np.float64) - fitted.mean_
    rows -= (rows @ directions) @ np.linalg.pinv(directions)
    together = fitted.transform(rows + fitted.mean_)
    for i in range(0, len(rows), 11):
        assert_array_equal(fitted.transform(rows[i : i + 1] + fitted.mean_)[0], together[i])


@each_map
def test_the_layout_in_memory_and_the_chunks_change_no_bit(unfitted, public, private, monkeypatch):
    fitted = unfitted.fit(public)
    together = fitted.transform(private)
    assert_array_equal(fitted.transform(np.asfortranarray(private)), together)
    assert_array_equal(fitted.transform(np.repeat(private, 2, axis=1)[:, ::2]), together)
    monkeypatch.setattr("vicinal.features.public_map._CHUNK", 7)
    assert_array_equal(fitted.transform(private), together)


# The result is float32, in which a float64 sum hides most of its last bits. So the sums themselves
# are compared, with Python's integers, which are exact at any size.


def _python_integers(numbers):
    assert_array_equal(numbers, np.rint(numbers))
    return numbers.astype(np.int64).astype(object)


def test_projections_are_exact_and_not_only_alike(public, private):
    fitted = PublicMap(n_components=5).fit(public)
    rows = private.astype(np.float64) - fitted.mean_
    bits = fixed._compute_factor_bits(D)
    integers, _ = fixed.round_to_grid(rows, bits)
    steps = fitted.components_ * 2**bits
    found = fixed.project_exactly(rows, fitted.components_) * 2**bits
    assert (_python_integers(found) == _python_integers(integers) @ _python_integers(steps)).all()


@pytest.mark.parametrize("width", [1, 5, 333, 1024])
def test_norms_are_exact_and_not_only_alike(width):
    rows = np.random.default_rng(7).uniform(-1, 1, (50, width))
    rows[0] = np.nextafter(1.0, 0)  # the largest sum there can be
    grid, _ = fixed.round_to_grid(rows, fixed._compute_square_bits(width))
    expected = (_python_integers(grid) ** 2).sum(axis=1)
    assert (_python_integers(fixed._sum_squares(grid)) == expected).all()


def test_lengths_are_taken_from_the_exact_norms(monkeypatch):
    monkeypatch.setattr(fixed, "_sum_squares", lambda grid: np.full(len(grid), 4.0))
    grid, scaled = fixed.round_to_grid(np.array([[3.0, -1.0]]), fixed._compute_square_bits(2))
    result = fixed.scale_to_unit_length(np.array([[3.0, -1.0]]))
    assert_array_equal(result, scaled.astype(np.float32) / 2)
    assert_array_equal(grid, scaled)


@given(st.integers(1, 2**30))
def test_the_grids_leave_room_for_every_partial_sum(width):
    # Squares, so that the claim is decided in integers.
    b = fixed._compute_factor_bits(width)
    root = math.isqrt(width - 1) + 1
    assert root * 2**b * (2 * 2**b + root) <= 2 * 2**53
    assert width * 4 ** fixed._compute_square_bits(width) <= 2**53
    assert b >= 18


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_it_agrees_with_principal_components_in_floating_point(power, public, private):
    centred = public - public.mean(axis=0)
    _, strengths, directions = np.linalg.svd(centred, full_matrices=False)
    expected = (private - public.mean(axis=0)) @ directions[:50].T / strengths[:50] ** power
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = PublicMap(n_components=50, power=power).fit(public).transform(private)
    # Inner products, since the sign of a component is arbitrary.
    assert_allclose(found @ found[:20].T, expected @ expected[:20].T, atol=2e-6)
    assert_allclose(np.abs(found), np.abs(expected), atol=3e-6)


def test_every_row_has_length_one_but_one_without_direction(public, private):
    for unfitted in MAPS:
        mapped = unfitted.fit(public).transform(private).astype(np.float64)
        assert_allclose(np.linalg.norm(mapped, axis=1), 1.0, atol=1e-6)
    for unfitted in (PublicMap(n_components=5), PublicMap(n_components=None)):
        fitted = unfitted.fit(public)
        assert not fitted.transform(fitted.mean_[None]).any()


def test_components_with_near_zero_deviation_are_dropped():
    public = np.random.default_rng(5).normal(size=(60, 3)) * [1.0, 1e-3, 1e-9]
    fitted = PublicMap(n_components=3).fit(public)
    assert fitted.scale_ is not None
    assert fitted.scale_.shape == (2,)
    assert fitted.scale_[0] == 1.0
    assert_allclose(fitted.scale_[1], np.sqrt(1e-3), rtol=0.3)


@pytest.mark.parametrize("rows", [np.full((9, 5), 0.1), np.full((3, 5), 1e9 / 7), np.zeros((9, 5))])
def test_public_rows_that_are_all_alike_are_refused(rows):
    with pytest.raises(InvalidInput, match="all alike"):
        PublicMap(n_components=2).fit(rows)


def test_a_pipeline_cannot_fit_the_map_on_private_records():
    draw = np.random.default_rng(6)
    X, y = draw.normal(size=(40, 6)), np.arange(40) % 2
    with pytest.raises(PrivacyRefused, match="FrozenEstimator"):
        make_pipeline(PublicMap(3), KNeighborsClassifier()).fit(X, y)
    fitted = PublicMap(3).fit(draw.normal(size=(30, 6)))
    mean = fitted.mean_.copy()
    pipeline = make_pipeline(FrozenEstimator(fitted), KNeighborsClassifier()).fit(X, y)
    assert pipeline.predict(X).shape == (40,)
    assert_array_equal(fitted.mean_, mean)


@parametrize_with_checks(
    [PublicMap(n_components=2), PublicMap(n_components=None)],
    expected_failed_checks=lambda _: dict.fromkeys(
        [
            "check_fit_score_takes_y",
            "check_pipeline_consistency",
            "check_transformer_data_not_an_array",
            "check_transformer_general",
            "check_transformer_preserve_dtypes",
        ],
        "fit_transform refuses labels: public rows have none",
    ),
)
def test_scikit_learn(estimator, check, request):
    try:
        check(estimator)
    except Exception as error:
        if request.node.get_closest_marker("xfail") is None:
            raise
        raise error.with_traceback(None) from None  # no report of files that take seconds to read


def test_distances_from_the_mean_must_be_finite():
    fitted = PublicMap(None).fit(np.full((1, 2), -1e308))
    with pytest.raises(InvalidInput, match="from the mean is finite"):
        fitted.transform(np.full((1, 2), 1.7e308))


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_components": 0}, {"n_components": 2.0}, {"power": -0.1}, {"power": 1.1},
        {"power": math.nan},
    ],
)  # fmt: skip
def test_unusable_parameters_are_refused(parameters, public):
    with pytest.raises(InvalidInput, match=next(iter(parameters))):
        PublicMap(**parameters).fit(public)


@each_map
def test_a_saved_map_comes_back_bit_for_bit(unfitted, public, private, tmp_path):
    fitted = unfitted.fit(public)
    fitted.save(tmp_path / "map")
    loaded = PublicMap.load(tmp_path / "map")
    assert loaded.get_params() == fitted.get_params()
    assert_array_equal(loaded.transform(private), fitted.transform(private))


def test_a_map_replaces_no_read_only_file(public, unprivileged):
    path = unprivileged / "map"
    path.touch(mode=0o444)
    with pytest.raises(InvalidInput, match="Permission denied"):
        PublicMap().fit(public).save(path)
    assert not path.read_bytes()


def test_an_unfitted_map_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        PublicMap().save(tmp_path / "map.npz")
    assert not (tmp_path / "map.npz").exists()


@pytest.mark.parametrize(
    "broken",
    [
        {"components": np.full((3, 2), 5.0)}, {"components": np.eye(3)[:, :1]},
        {"components": np.linalg.qr(np.arange(9.0).reshape(3, 3) + np.eye(3))[0][:, :2]},
        {"scale": np.zeros(2)}, {"scale": np.array([1.0, np.nan])}, {"mean": np.zeros(4)},
        {"mean": np.full(3, np.inf)}, {"mean": np.array(["a", "b", "c"])},
        {"mean": np.array([None, None, None])}, {"power": np.float64(7.0)}, {"power": np.zeros(2)},
        {"n_components": np.float64(2.0)},
    ],
)  # fmt: skip
def test_a_map_that_does_not_fit_together_is_not_loaded(broken, tmp_path):
    sound = {
        "n_components": 2, "power": 0.5, "mean": np.zeros(3),
        "components": np.eye(3)[:, :2], "scale": np.ones(2),
    }  # fmt: skip
    np.savez(tmp_path / "sound.npz", **sound)
    assert PublicMap.load(tmp_path / "sound.npz").n_components == 2
    np.savez(tmp_path / "broken.npz", **(sound | broken))
    with pytest.raises(InvalidInput):
        PublicMap.load(tmp_path / "broken.npz")


def test_files_of_another_kind_are_not_loaded(tmp_path):
    (tmp_path / "text.npz").write_text("not an npz file")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({"mean": 0}))
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    for name in ("text.npz", "pickle.npz", "other.npz", "array.npy", "absent.npz"):
        with pytest.raises(InvalidInput, match=name.split(".", maxsplit=1)[0]):
            PublicMap.load(tmp_path / name)


def test_a_damaged_compressed_map_is_not_loaded(tmp_path):
    """Of the damaged bytes zlib reports some, the checksum of the archive the others."""
    rng = np.random.default_rng(0)
    path = tmp_path / "map.npz"
    np.savez_compressed(path, mean=rng.normal(size=64))
    content = path.read_bytes()
    for position in range(60, 300):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput):
            PublicMap.load(path)
