"""Arrays that grow in blocks: adding copies nothing, and what is cut off is wiped."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, Places


class GrowableArray:
    """Rows of one width (None: plain numbers) and type, in blocks of `block` rows."""

    def __init__(self, width: int | None, dtype: npt.DTypeLike, block: int) -> None:
        self._tail = () if width is None else (width,)
        self._dtype = np.dtype(dtype)
        self._block = block
        self._used = 0
        self.blocks: list[AnyArray] = []

    def __deepcopy__(self, _: object) -> Self:
        """Copy the rows that are in use: the rest of a block takes no memory until it is."""
        copied = type(self)(self._tail[0] if self._tail else None, self._dtype, self._block)
        for first in range(0, self._used, self._block):
            copied.write(first, self.blocks[first // self._block][: self._used - first])
        return copied

    def reserve(self, start: int, stop: int) -> None:
        """Have memory for the rows from `start` to before `stop`; they stay what they are.

        Others may read, write and cut rows meanwhile: nothing is written here.
        """
        self._make_room(stop)
        for first in range(start // self._block * self._block, stop, self._block):
            for block in self.blocks[first // self._block : first // self._block + 1]:
                _touch(block, max(0, start - first), min(self._block, stop - first))

    def _make_room(self, stop: int) -> None:
        while len(self.blocks) * self._block < stop:
            self.blocks.append(_zeros((self._block, *self._tail), self._dtype))

    def write(self, start: int, values: AnyArray) -> None:
        """Write consecutive rows from position `start` on, making room as needed."""
        stop = start + len(values)
        self._make_room(stop)
        self._used = max(self._used, stop)
        at = start
        while at < stop:
            number, first = divmod(at, self._block)
            some = values[at - start : at - start + self._block - first]
            self.blocks[number][first : first + len(some)] = some
            at += len(some)

    def take(self, positions: Places) -> AnyArray:
        """Return a copy of the rows at `positions`."""
        out = np.empty((len(positions), *self._tail), dtype=self._dtype)
        for chosen, block, places in self._where(positions):
            out[chosen] = block[places]
        return out

    def put(self, positions: Places, values: AnyArray) -> None:
        """Overwrite the rows at `positions`."""
        for chosen, block, places in self._where(positions):
            block[places] = values[chosen]

    def cut(self, size: int, used: int) -> None:
        """Wipe the rows from position `size` to `used`, and give back blocks that are empty.

        Rows from `used` on have never been written, or were wiped before.
        """
        for number, block in enumerate(self.blocks[size // self._block :], size // self._block):
            first = number * self._block
            block[max(0, size - first) : max(0, used - first)] = 0
        del self.blocks[-(-size // self._block) :]
        self._used = min(self._used, size)

    def _where(self, positions: Places) -> Iterator[tuple[Places, AnyArray, Places]]:
        """Yield for every block that is met: which of `positions`, the block, places in it."""
        numbers = positions // self._block
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            yield chosen, self.blocks[number], positions[chosen] - number * self._block


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return zeros of whose pages only those are there that are written.

    An allocator fills memory that it has had before, megabytes for each small data set.
    """
    size = math.prod(shape) * dtype.itemsize
    if not size or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)


_POPULATE_WRITE = 23  # Linux's MADV_POPULATE_WRITE, which Python has no name for
_TOUCHED = 1 << 20  # bytes that the system is asked for at a time, as the interpreter waits


def _touch(block: AnyArray, first: int, stop: int) -> None:
    """Have the pages of some rows there, where the system can do it; a write needs them later."""
    pages = getattr(getattr(block.base, "base", None), "obj", None)
    if sys.platform != "linux" or not isinstance(pages, mmap.mmap):
        return
    row = block.nbytes // len(block)
    start = first * row // mmap.PAGESIZE * mmap.PAGESIZE
    with suppress(OSError):
        for at in range(start, stop * row, _TOUCHED):
            pages.madvise(_POPULATE_WRITE, at, min(_TOUCHED, stop * row - at))
