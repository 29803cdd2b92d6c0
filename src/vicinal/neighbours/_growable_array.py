"""Growing memory in blocks: adding copies nothing that is there, erasing wipes physically."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vicinal.neighbours._integer_features import IntegerMatrix
from vicinal.neighbours._kernels import Kernel
from vicinal.neighbours.engines import ScanRecords

BLOCK_BYTES = 1 << 25
"""Memory taken at a time; pages of it that hold nothing yet are not touched."""

Positions = npt.NDArray[np.int64]


class GrowableArray:
    """Rows of one width and type, in blocks of equal length.

    Parameters
    ----------
    width : int or None
        Numbers in a row; None for a plain column of numbers.
    dtype
        Their type.
    block : int
        Rows of a block.
    """

    def __init__(self, width: int | None, dtype: npt.DTypeLike, block: int) -> None:
        self._tail = () if width is None else (width,)
        self._dtype = np.dtype(dtype)
        self._block = block
        self.blocks: list[npt.NDArray] = []  # type: ignore[type-arg]

    def write(self, start: int, values: npt.NDArray) -> None:  # type: ignore[type-arg]
        """Write consecutive rows from position `start` on, making room as needed."""
        stop = start + len(values)
        while len(self.blocks) * self._block < stop:
            self.blocks.append(np.zeros((self._block, *self._tail), dtype=self._dtype))
        at = start
        while at < stop:
            number, first = divmod(at, self._block)
            some = values[at - start : at - start + self._block - first]
            self.blocks[number][first : first + len(some)] = some
            at += len(some)

    def take(self, positions: Positions) -> npt.NDArray:  # type: ignore[type-arg]
        """Return a copy of the rows at `positions`."""
        out = np.empty((len(positions), *self._tail), dtype=self._dtype)
        for chosen, block, places in self._where(positions):
            out[chosen] = block[places]
        return out

    def put(self, positions: Positions, values: npt.NDArray) -> None:  # type: ignore[type-arg]
        """Overwrite the rows at `positions`."""
        for chosen, block, places in self._where(positions):
            block[places] = values[chosen]

    def cut(self, size: int, used: int) -> None:
        """Wipe the rows from position `size` to `used`, and give back blocks that are empty.

        Rows from `used` on have never been written, or were wiped before.
        """
        kept = -(-size // self._block)
        for number, block in enumerate(self.blocks[size // self._block :], size // self._block):
            first = number * self._block
            block[max(0, size - first) : max(0, used - first)] = 0
        del self.blocks[kept:]

    def _where(self, positions: Positions) -> Iterator[tuple[Positions, npt.NDArray, Positions]]:  # type: ignore[type-arg]
        """Yield for every block that is met: which of `positions`, the block, places in it."""
        numbers = positions // self._block
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            yield chosen, self.blocks[number], positions[chosen] - number * self._block


class FeatureRows:
    """Integer features with offsets and names, ready to be scanned.

    Parameters
    ----------
    kernel : Kernel
        Its precision and its offsets.
    n_features : int
        d; rows of int8 are stored a multiple of 4 wide, for the engines.
    block : int, optional
        Records of a block of memory; without it, what fills :data:`BLOCK_BYTES`.
    """

    def __init__(self, kernel: Kernel, n_features: int, block: int | None = None) -> None:
        dtype = np.dtype(kernel.precision.dtype)
        self.stride = n_features if dtype.itemsize > 1 else -(-n_features // 4) * 4
        self.n_features = n_features
        self.block = block or max(1, BLOCK_BYTES // (self.stride * dtype.itemsize))
        self._kernel = kernel
        self._features = GrowableArray(self.stride, dtype, self.block)
        self._offsets = GrowableArray(None, np.int32, self.block)
        self._names = GrowableArray(None, np.int32, self.block)
        self._size = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return self._size

    @property
    def features(self) -> IntegerMatrix:
        """A copy of all integer features, (n, d)."""
        rows = self._features.take(np.arange(self._size))
        return rows[:, : self.n_features]

    def add(self, integers: IntegerMatrix, names: npt.NDArray[np.int32]) -> None:
        """Append records, (m, d) integers and int32 (m,) names."""
        step = max(1, min(self.block, BLOCK_BYTES // max(1, self.stride)))
        for start in range(0, len(integers), step):
            part = integers[start : start + step]
            at = self._size
            self._offsets.write(at, self._kernel.offsets(part))
            self._features.write(at, _widened(part, self.stride))
            self._names.write(at, names[start : start + step])
            self._size += len(part)

    def remove(self, holes: Positions, movers: Positions, kept: int, *, names: bool) -> None:
        """Move the records at `movers` into `holes`, then wipe everything from `kept` on.

        With `names` the records take their names along; without, the names stay with the places.
        """
        columns = [self._features, self._offsets] + [self._names] * names
        for column in columns:
            column.put(holes, column.take(movers))
        for column in (self._features, self._offsets, self._names):
            column.cut(kept, self._size)
        self._size = kept

    def name(self, positions: Positions) -> npt.NDArray[np.int32]:
        """Return the names of the records at `positions`."""
        return self._names.take(positions)

    def rename(self, positions: Positions, names: npt.NDArray[np.int32]) -> None:
        """Give the records at `positions` other names."""
        self._names.put(positions, names)

    def parts(self, rows: int) -> Iterator[ScanRecords]:
        """Yield all records, at most `rows` at a time, in order of position."""
        columns = (self._features.blocks, self._offsets.blocks, self._names.blocks)
        for number, (features, offsets, names) in enumerate(zip(*columns, strict=True)):
            size = min(self.block, self._size - number * self.block)
            whole = ScanRecords(features[:size], offsets[:size], names[:size])
            for start in range(0, size, rows):
                yield whole[start : min(start + rows, size)]


def _widened(integers: IntegerMatrix, stride: int) -> IntegerMatrix:
    """Return rows filled up with zeros to the stored width."""
    if integers.shape[1] == stride:
        return integers
    wide = np.zeros((len(integers), stride), dtype=integers.dtype)
    wide[:, : integers.shape[1]] = integers
    return wide
