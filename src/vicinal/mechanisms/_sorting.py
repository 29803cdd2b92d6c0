"""A compiled sort of integers: numba's own takes seconds to compile, for texts of errors."""

from __future__ import annotations

from vicinal._compiled import compiled


@compiled
def sort_ascending(values, spare):  # type: ignore[no-untyped-def]
    """Sort `values` in place; `spare` is memory of the same length and type.

    Neighbouring runs that ascend are merged until there is one, so sorted values are read once.
    """
    source, target = values, spare
    while _run_end(source, 0) < len(values):
        first = 0
        while first < len(values):
            middle = _run_end(source, first)
            last = _run_end(source, middle)
            _merge(source, first, middle, last, target)
            first = last
        source, target = target, source
    for i in range(len(values)):
        values[i] = source[i]


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
