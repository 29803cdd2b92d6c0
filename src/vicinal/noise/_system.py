"""Exact noise from the operating system's entropy: the only source that carries a guarantee."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.noise._cks20 import fill_gaussian, fill_laplace
from vicinal.noise._presampled import PresampledNoise
from vicinal.noise._source import NoiseSource, checked
from vicinal.noise._uniform_bits import BitBuffer

ENTROPY_BLOCK = 8192
"""Bytes asked of the operating system at a time: some five hundred draws."""

LAWS_READY = 256
"""Laws (kind and scale) for which draws are kept ready; the one unused for longest goes."""


class SystemNoise(NoiseSource):
    """Exact sampling (Canonne, Kamath & Steinke 2020; proof note cks20.md).

    Bits come from the operating system, in blocks, each bit used for one draw and then zeroed.
    Draws are made ahead; see :class:`~vicinal.noise._presampled.PresampledNoise` for what time
    reveals.

    Threads may share a source: one lock guards bits and draws. A forked child starts with neither,
    and so does a copy or an unpickled source: no two of them ever hand out the same draw. What
    copies a whole running machine (a snapshot that is resumed twice) copies the draws, too.
    """

    exact = True

    def __init__(self) -> None:
        self._start_afresh()
        _SOURCES.add(self)

    def discrete_gaussian(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return exact draws."""
        return self._take(fill_gaussian, *checked(scale, size))

    def discrete_laplace(self, scale: int, size: int) -> npt.NDArray[np.int64]:
        """Return exact draws."""
        return self._take(fill_laplace, *checked(scale, size))

    def __reduce__(self) -> tuple[type[SystemNoise], tuple[()]]:
        """Copy the source without its bits and draws."""
        return type(self), ()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._bits = BitBuffer(os.urandom, ENTROPY_BLOCK)
        self._pools: OrderedDict[tuple[int, int], PresampledNoise] = OrderedDict()

    def _take(self, law: Callable[..., Any], scale: int, size: int) -> npt.NDArray[np.int64]:
        with self._lock:
            key = (id(law), scale)
            pool = self._pools.pop(key, None) or PresampledNoise(partial(self._draw, law, scale))
            self._pools[key] = pool
            if len(self._pools) > LAWS_READY:
                self._pools.popitem(last=False)
            return pool.take(size)

    def _draw(self, law: Callable[..., Any], scale: int, size: int) -> npt.NDArray[np.int64]:
        out = np.zeros(size, dtype=np.int64)
        self._bits.fill(law, out, scale)
        return out


_SOURCES: weakref.WeakSet[SystemNoise] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child: leave bits, draws and a lock that somebody may hold to the parent."""
    for source in list(_SOURCES):
        source._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
