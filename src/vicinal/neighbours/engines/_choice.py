"""Which engine a process uses: the fastest that is there and proves itself.

Every engine returns the same hits, so the choice changes no answer, charge or vote. It is made once
a process, and an engine that does not return exactly what the plain definition says is passed over.
The compiled engines are timed on made-up records; torch and float32 are taken only without them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.neighbours._kernels import INT8_LIMIT, Precision
from vicinal.neighbours._scan import HitBudget, ScanEngine, ScanRecords
from vicinal.neighbours.engines._amx import AMXEngine
from vicinal.neighbours.engines._products import Float32Engine, TorchEngine
from vicinal.neighbours.engines._vnni import VNNIEngine

# All engines for int8 features, those that are fastest as a rule first.
ENGINES: dict[str, Callable[[], ScanEngine]] = {
    "amx": AMXEngine,
    "vnni": VNNIEngine,
    "torch": TorchEngine,
    "float32": Float32Engine,
}

COMPILED = ("amx", "vnni")  # engines that cost nothing to have; which of them is faster is measured


def engine_for(precision: Precision, name: str | None = None) -> ScanEngine:
    """Return the engine for features of `precision`.

    - `precision`: int8 features take the fastest engine of this machine, float32 ones the float32
      engine.
    - `name`, optional: one of :data:`ENGINES`, to compare them.

    Raises InvalidInput if the engine named is unknown, is not there, or is not exact on this
    machine.
    """
    if precision.limit > INT8_LIMIT:
        return _float32()
    if name is None:
        return _fastest(os.getpid())
    engine = _proven(_checks.choice("engine", name, tuple(ENGINES)))
    if engine is None:
        raise InvalidInput(
            f"The engine {name!r} is not to be had on this machine. Leave the choice to vicinal."
        )
    return engine


def proven_engines() -> list[str]:
    """Return the names of all engines that work on this machine, fastest first."""
    return [name for name in ENGINES if _proven(name) is not None]


@cache
def _fastest(process: int) -> ScanEngine:  # noqa: ARG001 (a forked process chooses for itself)
    """Return the fastest compiled engine, or the first other that is there; float32 is always."""
    compiled = [engine for engine in map(_proven, COMPILED) if engine is not None]
    if len(compiled) > 1:
        return min(compiled, key=seconds)
    others = (_proven(name) for name in ENGINES if name not in COMPILED)
    return compiled[0] if compiled else next(engine for engine in others if engine is not None)


@cache
def _float32() -> ScanEngine:
    return Float32Engine()


@cache
def _proven(name: str) -> ScanEngine | None:
    """Return an engine if it can be had and returns what the definition says."""
    if name == "torch" and find_spec("torch") is None:
        return None
    try:
        engine = ENGINES[name]()
        return engine if is_exact(engine) else None
    except Exception:  # noqa: BLE001 (whatever is wrong with an engine, another one does its work)
        return None


def seconds(engine: ScanEngine) -> float:
    """Return the least time of five scans: 64 queries among 2,048 records of 256 features."""
    x, q = _pattern(2048, 256, 31, INT8_LIMIT), _pattern(64, 256, 17, INT8_LIMIT)
    block = engine.prepare(q, np.full(64, 1 << 30), 1)
    records = ScanRecords(x, np.zeros(2048, np.int32), np.arange(2048, dtype=np.int32))
    times = []
    for _ in range(5):  # the first compiles or loads, others may be interrupted: the least counts
        start = time.perf_counter()
        engine.scan(block, records, HitBudget(1))
        times.append(time.perf_counter() - start)
    return min(times)


def is_exact(engine: ScanEngine) -> bool:
    """Tell whether `engine` finds exactly the hits of the definition, on patterns that test it.

    All sizes of blocks, rows of odd widths, the largest coordinates of either sign, offsets, and
    radii at the rim, compared with int64 arithmetic.
    """
    return all(
        _agrees(engine, size, queries, width, factor)
        for size, queries, width, factor in (
            (5, 1, 4, 1), (70, 3, 132, 2), (13, 17, 8, 1), (129, 64, 64, 2), (40, 150, 260, 1),
        )
    )  # fmt: skip


def _agrees(engine: ScanEngine, size: int, queries: int, width: int, factor: int) -> bool:
    largest = min(INT8_LIMIT, int(4095 / width**0.5))
    x = _pattern(size, width, 31, largest)
    q = _pattern(queries, width, 17, largest)
    x[: size // 4], q[: queries // 4] = largest, -largest
    offsets = (np.arange(size, dtype=np.int32) * 7919) % 1000
    similarities = factor * (q.astype(np.int64) @ x.astype(np.int64).T) - offsets
    floors = np.sort(similarities, axis=1)[:, size // 2].copy()
    names = np.arange(size, dtype=np.int32) + 100
    block = engine.prepare(q, floors, factor)
    hits = engine.scan(block, ScanRecords(x, offsets, names), HitBudget(size * queries))
    who, where = np.nonzero(similarities >= floors[:, None])
    expected = np.bincount(who, minlength=queries), names[where], similarities[who, where]
    return hits is not None and all(np.array_equal(hits[k], expected[k]) for k in range(3))


def _pattern(rows: int, width: int, step: int, largest: int) -> npt.NDArray[np.int8]:
    """Return numbers in -largest..largest without any order to speak of, int8."""
    numbers = (np.arange(rows * width, dtype=np.int64) ** 2 * step) % 1009
    spread = numbers * (2 * largest + 1) // 1009 - largest
    return spread.reshape(rows, width).astype(np.int8)
