"""Time the noise: `python -m benchmarks.noise`. Single thread, medians; needs the extra `dev`.

Exact discrete Gaussian noise from OpenDP (scalar calls, one vector call a query, one a block of 256
queries) and from our own sampler, interleaved; what time tells about the noise; and coins.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as opendp
from scipy.stats import spearmanr

from vicinal.noise import SystemNoise, bernoulli
from vicinal.noise._gaussian import fill_gaussian
from vicinal.noise._gaussian_exact import gaussian_round
from vicinal.noise._uniform_bits import BitBuffer

SCALE, CLASSES, BLOCK = 1 << 22, 10, 256
TURNS, TIMED = 300, 20_000
COINS = 50_000

Work = Callable[[], object]


def interleaved(works: dict[str, Work], turns: int) -> dict[str, tuple[float, float]]:
    """Return (median, mean) microseconds of every work, run in turn after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 5):
        for name, work in works.items():
            work()  # the work before it has emptied the caches
            start = time.perf_counter()
            work()
            if turn >= 5:
                times[name].append(1e6 * (time.perf_counter() - start))
    return {name: (statistics.median(all_), statistics.mean(all_)) for name, all_ in times.items()}


def opendp_vector(scale: int) -> Any:
    """Return OpenDP's measurement for a vector of integers."""
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    return opendp.m.make_gaussian(*space, scale=float(scale))


def opendp_scalar(scale: int) -> Any:
    """Return OpenDP's measurement for one integer."""
    opendp.enable_features("contrib")
    space = opendp.atom_domain(T="i64"), opendp.absolute_distance(T="f64")
    return opendp.m.make_gaussian(*space, scale=float(scale))


def direct(size: int) -> Callable[[], np.ndarray]:
    """Return our sampler without a pool: every call waits for its own draws."""
    bits, out = BitBuffer(os.urandom, 8192), np.zeros(size, dtype=np.int64)

    def draw() -> np.ndarray:
        bits.fill(fill_gaussian, out, SCALE, gaussian_round)
        return out.copy()

    return draw


def speed() -> None:
    """Print microseconds a draw and a query."""
    vector, scalar, ours = opendp_vector(SCALE), opendp_scalar(SCALE), SystemNoise()
    blocks, new = SystemNoise(), SystemNoise()
    scales = iter(range(SCALE, 2 * SCALE))
    query, block = [0] * CLASSES, [0] * (CLASSES * BLOCK)
    rows: dict[str, tuple[int, Work]] = {
        "OpenDP, scalar calls": (1, lambda: [scalar(0) for _ in query]),
        "OpenDP, one vector call a query": (1, lambda: vector(query)),
        "OpenDP, one vector call a block": (BLOCK, lambda: vector(block)),
        "ours, a query": (1, lambda: ours.discrete_gaussian(SCALE, CLASSES)),
        "ours, a block": (BLOCK, lambda: blocks.discrete_gaussian(SCALE, CLASSES * BLOCK)),
        "ours, another scale every query": (1, lambda: new.discrete_gaussian(next(scales), 10)),
        "ours, without a pool": (1, direct(CLASSES)),
    }
    found = interleaved({name: work for name, (_, work) in rows.items()}, TURNS)
    print(f"discrete Gaussian, scale 2^22, {CLASSES} classes, {TURNS} turns; microseconds")
    print(f"{'':34} {'a draw':>9} {'a query':>9} {'mean':>9}")
    for name, (queries, _) in rows.items():
        middle, mean = (value / queries for value in found[name])
        print(f"{name:34} {middle / CLASSES:>9.3f} {middle:>9.3f} {mean:>9.3f}")


def revealed(draw: Callable[[], Any]) -> float:
    """Return the rank correlation of a call's time with the size of the noise it returns."""
    times, sizes = [], []
    for _ in range(TIMED):
        start = time.perf_counter_ns()
        noise = draw()
        times.append(time.perf_counter_ns() - start)
        sizes.append(float(np.abs(noise).sum()))
    return float(spearmanr(times[100:], sizes[100:]).statistic)


def timing() -> None:
    """Print what the duration of a call tells about its own noise."""
    scalar, ours = opendp_scalar(SCALE), SystemNoise()
    works = {
        "OpenDP, a scalar call": lambda: scalar(0),
        "ours without a pool, one draw": direct(1),
        "ours, one draw": lambda: ours.discrete_gaussian(SCALE, 1),
        "ours, a query": lambda: ours.discrete_gaussian(SCALE, CLASSES),
    }
    print(f"rank correlation of time with the size of the noise, {TIMED:,} calls (by chance .007)")
    for name, work in works.items():
        print(f"{name:34} {revealed(work):>9.3f}")


def tossing() -> None:
    """Print nanoseconds a coin."""
    works: dict[str, Work] = {
        f"gamma = {gamma:g}": lambda gamma=gamma: bernoulli(gamma, COINS)
        for gamma in (0.001, 0.03, 0.15, 0.5)
    }
    found = interleaved(works, TURNS)
    print(f"coins, {COINS:,} a call; nanoseconds a coin")
    for name, (middle, _) in found.items():
        print(f"{name:34} {1000 * middle / COINS:>9.2f}")


def main() -> None:
    """Print all tables."""
    for table in (speed, timing, tossing):
        table()
        print()


if __name__ == "__main__":
    main()
