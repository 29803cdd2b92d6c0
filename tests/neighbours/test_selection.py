"""The largest of some values, in compiled code: as by sorting them."""

import numpy as np
import pytest

from vicinal.neighbours._radius import insert, select_largest


@pytest.mark.parametrize("size", [1, 2, 3, 10, 300])
@pytest.mark.parametrize("distinct", [1, 3, 1 << 40])
def test_the_largest_stand_last_and_the_least_of_them_first(size, distinct):
    rng = np.random.default_rng([size, distinct])
    for count in {1, 2, size // 2, size - 1, size} & set(range(1, size + 1)):
        values = rng.integers(-distinct, distinct, size)
        for given in (values, np.sort(values), np.sort(values)[::-1].copy()):
            selected = given.copy()
            select_largest(selected, count)
            assert (np.sort(selected[-count:]) == np.sort(values)[-count:]).all()
            assert selected[size - count] == selected[-count:].min()
            assert (np.sort(selected) == np.sort(values)).all()


def test_values_are_put_in_their_places():
    values = np.random.default_rng(0).integers(-5, 5, 40).astype(np.int32)
    ascending = np.empty(40, dtype=np.int32)
    for size, value in enumerate(values):
        insert(ascending, size, value)
        assert (ascending[: size + 1] == np.sort(values[: size + 1])).all()
