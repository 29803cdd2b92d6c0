"""Selection of the largest values in compiled code, compared with sorting."""

import numpy as np
import pytest

from vicinal.neighbours.radius import select_largest, select_rank


@pytest.mark.parametrize("size", [1, 2, 3, 10, 300])
@pytest.mark.parametrize("distinct", [1, 3, 1 << 40])
def test_the_largest_stand_last_and_the_least_of_them_first(size, distinct):
    rng = np.random.default_rng([size, distinct])
    for count in {1, 2, size // 2, size - 1, size} & set(range(1, size + 1)):
        values = rng.integers(-distinct, distinct, size)
        for ordered in (values, np.sort(values), np.sort(values)[::-1].copy()):
            selected = ordered.copy()
            select_largest(selected, count)
            assert (np.sort(selected[-count:]) == np.sort(values)[-count:]).all()
            assert selected[size - count] == selected[-count:].min()
            assert (np.sort(selected) == np.sort(values)).all()


@pytest.mark.parametrize("rank", [1, 2, 20, 64, 65])
@pytest.mark.parametrize("distinct", [1, 3, 1 << 31])
def test_a_rank_is_as_by_sorting(rank, distinct):
    """Few largest values are kept in order, more are selected; none is smaller than int32 holds."""
    rng = np.random.default_rng([rank, distinct])
    sizes = [0, rank - 1, rank, rank + 1, 200]
    values = rng.integers(-distinct, distinct, sum(sizes)).astype(np.int32)
    selected = select_rank(np.concatenate([[0], np.cumsum(sizes)]), values, rank)
    for query_values, value in zip(np.split(values, np.cumsum(sizes)[:-1]), selected, strict=True):
        assert value == (np.sort(query_values)[-rank] if len(query_values) >= rank else 0)
