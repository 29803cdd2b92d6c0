"""Selection of the largest values in compiled code.

numba's own partition and sort bring texts of errors with them, and take seconds to compile.
"""

from __future__ import annotations

from vicinal._compiled import compiled


@compiled
def select_largest(values, count):  # type: ignore[no-untyped-def]
    """Move the `count` largest of some integers to their end, in place; 1 <= count <= their number.

    The least of them stands first there. Hoare's selection about the median of three.
    """
    place = len(values) - count
    low, high = 0, len(values) - 1
    while low < high:
        pivot = _median(values[low], values[(low + high) // 2], values[high])
        first, last = low, high
        while first <= last:
            while values[first] < pivot:
                first += 1
            while values[last] > pivot:
                last -= 1
            if first <= last:
                values[first], values[last] = values[last], values[first]
                first, last = first + 1, last - 1
        if place <= last:
            high = last
        elif place >= first:
            low = first
        else:
            return


@compiled
def _median(one, two, three):  # type: ignore[no-untyped-def]
    return max(min(one, two), min(max(one, two), three))


@compiled
def insert(ascending, size, value):  # type: ignore[no-untyped-def]
    """Put a value in its place among the first `size`, which ascend, and take up one place more."""
    at = size
    while at > 0 and ascending[at - 1] > value:
        ascending[at] = ascending[at - 1]
        at -= 1
    ascending[at] = value
