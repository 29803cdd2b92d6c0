"""Products of int16 matrices: both engines equal int64 arithmetic for any neighbouring rows."""

import numpy as np
import pytest

from vicinal.neighbours.engines import int16
from vicinal.neighbours.engines._intrinsics import is_supported
from vicinal.neighbours.engines.int16 import Float64Products, VNNIProducts, get_int16_products

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(0)
ENGINES = [Float64Products(), *([VNNIProducts()] if is_supported() else [])]
SHAPES = [(1, 1, 1), (3, 2, 16), (23, 301, 93), (11, 258, 17), (65, 64, 64), (130, 7, 33)]


engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


def make_numbers(*shape):
    return RNG.integers(-32768, 32768, shape).astype(np.int16)


@engines
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_products_are_exact_and_wrap_around(engine, n, k, m):
    left, right = make_numbers(n, k), make_numbers(k, m)
    expected = (left.astype(np.int64) @ right.astype(np.int64)).astype(np.int32)
    products = engine.multiply(left, engine.prepare(right))
    assert products.dtype == np.int32
    assert (products == expected).all()


@engines
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_outer_products_are_added_exactly(engine, n, k, m):
    left, right = np.full((m, n), -4096, np.int16), np.full((n, k), 8191, np.int16)
    left[0], right[-1] = 4095, -8192
    sums = np.full((m, k), 1 << 40, dtype=np.int64)
    engine.add_product(left, right, sums)
    assert (sums == (1 << 40) + left.astype(np.int64) @ right.astype(np.int64)).all()


@engines
def test_factors_that_do_not_fit_are_refused(engine):
    if engine.name == "float64":
        pytest.skip("numpy checks its own")
    right = engine.prepare(make_numbers(6, 2))
    for left in (make_numbers(3, 7), make_numbers(6, 3).T, make_numbers(3, 6).astype(np.int32)):
        with pytest.raises(ValueError, match="int16"):
            engine.multiply(left, right)
    with pytest.raises(ValueError, match="shape"):
        engine.add_product(make_numbers(2, 3), make_numbers(3, 4), np.zeros((2, 5), np.int64))


def test_an_engine_that_is_wrong_is_passed_over(monkeypatch):
    class Wrong(Float64Products):
        name = "wrong"

        def multiply(self, left, right):
            return super().multiply(left, right) + np.int32(1)

    monkeypatch.setattr(int16, "VNNIProducts", Wrong)
    assert get_int16_products.__wrapped__().name == "float64"
