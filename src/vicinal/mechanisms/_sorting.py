"""A compiled sort of integers: numba's own takes seconds to compile, for texts of errors."""

from __future__ import annotations

import numpy as np

from vicinal._compiled import compiled


@compiled
def sort_ascending(values):  # type: ignore[no-untyped-def]
    """Sort all of `values`, int64 (n,), in place.

    Neighbouring runs that ascend are merged until there is one, so sorted values are read once.
    The memory for merging is taken here and is as long as `values`: a caller's longer buffer would
    let entries beyond `values` in, which belong to somebody else.
    """
    if _run_end(values, 0) == len(values):
        return
    source, target = values, np.empty(len(values), dtype=np.int64)
    while _run_end(source, 0) < len(source):
        first = 0
        while first < len(source):
            middle = _run_end(source, first)
            last = _run_end(source, middle)
            _merge(source, first, middle, last, target)
            first = last
        source, target = target, source
    values[:] = source


@compiled
def _run_end(values, first):  # type: ignore[no-untyped-def]
    """Return where the values that ascend from `first` on end."""
    if first >= len(values):
        return len(values)
    last = first + 1
    while last < len(values) and values[last - 1] <= values[last]:
        last += 1
    return last


@compiled
def _merge(source, first, middle, last, target):  # type: ignore[no-untyped-def]
    """Merge two sorted runs of `source` into the same places of `target`."""
    one, other, to = first, middle, first
    while one < middle and other < last:
        left = source[one] <= source[other]
        target[to] = min(source[one], source[other])  # without a branch: no order is foreseen
        one += left
        other += not left
        to += 1
    while one < middle:
        target[to] = source[one]
        one, to = one + 1, to + 1
    while other < last:
        target[to] = source[other]
        other, to = other + 1, to + 1
