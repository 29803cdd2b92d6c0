"""Time the smoothed wing: `python -m benchmarks.smoothed [--short]`. One process, compiled before.

What one answer costs, how that grows with records, types and worlds, and how the published method
(Monte Carlo over samples, two neighbours, 32 multisets) differs from the exact answer.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from vicinal.smoothed import (
    LEVELS,
    Average,
    FixedSize,
    Heterogeneous,
    Histogram,
    Vertices,
    database_delta,
    drawn,
    edge_profile,
    gradient_law,
    power_of_ten,
    profile,
    smoothed_delta,
)

DC = 18586 / 335909
Row = tuple[str, str, float]


def timed(work: Callable[[], object]) -> tuple[object, float]:
    """Return a result and the seconds that it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def gradients(n: int, seed: int) -> np.ndarray:
    """Return a database of n quantised gradients."""
    population = Vertices([gradient_law("gaussian")])
    return next(drawn(Average(LEVELS, round(math.sqrt(n))), population, n, 1, seed))


def single_answers(short: bool) -> Iterator[Row]:
    """Yield what the issue asks for."""
    top = 10**5 if short else 10**6
    for epsilon in (0.04, 0.5, 2.0):
        _, seconds = timed(
            lambda e=epsilon: profile(Histogram(FixedSize(round(0.998 * top))), top, e)
        )
        yield f"profile of all {top + 1:,} databases, .2 % lost", f"epsilon {epsilon}", seconds
    _, seconds = timed(lambda: profile(Histogram(FixedSize(top // 2)), top, 0.5))
    yield f"profile of all {top + 1:,} databases, half lost", "epsilon 0.5", seconds
    n = 10**7 if short else 10**8
    for share, epsilon in ((0.998, 0.05), (0.998, 0.5), (0.5, 0.5)):
        mechanism = Histogram(FixedSize(round(share * n)))
        found, seconds = timed(
            lambda m=mechanism, e=epsilon: smoothed_delta(m, Vertices([[DC, 1 - DC]]), n, e)
        )
        yield f"smoothed delta, n = {n:,}, T/n {share}", f"epsilon {epsilon}: {found}", seconds
    database = gradients(250, 1)
    found, seconds = timed(lambda: database_delta(Average(LEVELS, 16), database, 2.0))
    yield "8-bit SGD, N = 250, T = 16, all replacements", str(found), seconds
    counts = np.random.default_rng(0).integers(1000, 2500, 57)
    groups = [(int(c), [p, 1 - p]) for c, p in zip(counts, np.linspace(0.05, 0.5, 57), strict=True)]
    n = int(counts.sum())
    mechanism = Histogram(FixedSize(round(0.998 * n)))
    found, seconds = timed(lambda: smoothed_delta(mechanism, Heterogeneous(groups), n, 1.0))
    yield f"57 groups of voters, n = {n:,}", str(found), seconds


def growth(short: bool) -> Iterator[Row]:
    """Yield Algorithm 1 by listing, against Theorem 2's n^(m + l - 2) log n."""
    sizes = {(2, 2): (20, 40, 80, 160), (3, 2): (6, 12, 24), (2, 3): (10, 20, 40, 80)}
    for (types, worlds), records in sizes.items():
        rng = np.random.default_rng(types + worlds)
        population = Vertices(rng.dirichlet(np.ones(types), worlds))
        for n in records[:2] if short else records:
            mechanism = Histogram(FixedSize(n - 2))
            found, seconds = timed(
                lambda m=mechanism, k=n, p=population: smoothed_delta(m, p, k, 1.0)
            )
            yield f"Algorithm 1, m = {types}, l = {worlds}, n = {n}", str(found), seconds
    for n in (10**3, 10**4, 10**5) if short else (10**3, 10**4, 10**5, 10**6):
        mechanism = Histogram(FixedSize(round(0.998 * n)))
        pair = Vertices([[DC, 1 - DC], [0.466, 0.534]])
        found, seconds = timed(lambda m=mechanism, k=n, p=pair: smoothed_delta(m, p, k, 1.0))
        yield f"two types, two worlds, n = {n:,}", str(found), seconds


def published_method(short: bool) -> Iterator[tuple[str, float, float]]:
    """Yield name, published method's answer and the exact one."""
    database = gradients(250, 3)
    exact = database_delta(Average(LEVELS, 16), database, 2.0).value
    for draws in (10**4, 10**5) if short else (10**4, 10**5, 10**6):
        yield f"8-bit SGD, N = 250: {draws:,} samplings", sampled(database, 16, 2.0, draws), exact
    worst = 0.0
    for seed in range(5 if short else 60):
        one = gradients(100, 100 + seed)
        all_of_them = database_delta(Average(LEVELS, 10), one, 2.0).value
        worst = max(worst, all_of_them / two_neighbours(one, 10, 2.0))
    yield "8-bit SGD, N = 100: two neighbours only, worst ratio", 1.0, worst
    yield "n = 40, T = 3, epsilon 0: unmixed worlds only", *multisets([0, 40])
    yield "n = 40, T = 3, epsilon 0: 32 multisets", *multisets(np.linspace(0, 40, 32).round())
    for n, lost in ((40, 3), (200, 4), (1000, 20)):
        one, both = one_neighbour(n, lost)
        yield f"{lost} of {n} votes lost, epsilon 1: only the neighbour farther out", one, both


def multisets(evaluated: Iterable[float]) -> tuple[float, float]:
    """Return the largest expected delta over some mixtures of two worlds, and over all."""
    mechanism, pair = Histogram(FixedSize(3)), [[0.4, 0.6], [0.6, 0.4]]
    mixed = [Heterogeneous([(40 - int(k), pair[0]), (int(k), pair[1])]) for k in evaluated]
    some = max(smoothed_delta(mechanism, world, 40, 0.0).value for world in mixed)
    return some, smoothed_delta(mechanism, Vertices(pair), 40, 0.0).value


def one_neighbour(n: int, lost: int) -> tuple[float, float]:
    """Return deltas of the database for which leaving out one neighbour matters most."""
    edges = np.exp(edge_profile(n, n - lost, math.e)[1])
    half = n // 2
    outer, inner = edges[: half - 1], edges[1:half]
    worst = int(np.argmax(inner / outer))
    return float(outer[worst]), float(max(outer[worst], inner[worst]))


def sampled(database: np.ndarray, size: int, epsilon: float, draws: int) -> float:
    """Return delta as the paper estimates it: both laws as frequencies, two neighbours."""
    rng = np.random.default_rng(0)
    values = np.repeat(np.arange(-127, 129), database)
    changed = [values.copy(), values.copy()]
    changed[0][0], changed[1][-1] = 128, -127
    laws = [frequencies(v, size, draws, rng) for v in (values, *changed)]
    e = math.exp(epsilon)
    return max(
        max(np.maximum(laws[0] - e * law, 0).sum(), np.maximum(law - e * laws[0], 0).sum())
        for law in laws[1:]
    )


def frequencies(values: np.ndarray, size: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return frequencies of the rounded mean of random samples."""
    counts = np.zeros(256)
    for start in range(0, draws, 10_000):
        order = rng.random((min(10_000, draws - start), len(values))).argpartition(size, axis=1)
        sums = values[order[:, :size]].sum(axis=1)
        means = np.sign(sums) * ((2 * np.abs(sums) + size) // (2 * size))
        counts += np.bincount(means + 127, minlength=256)
    return counts / draws


def two_neighbours(database: np.ndarray, size: int, epsilon: float) -> float:
    """Return the exact delta over the paper's two neighbours: smallest up, largest down."""
    mechanism = Average(LEVELS, size)
    held = np.flatnonzero(database)
    wanted = {f"{held[0] - 127} -> 128", f"{held[-1] - 127} -> -127"}
    losses = [loss for loss in mechanism.losses(database, epsilon) if loss.change in wanted]
    return max(math.exp(max(loss.forward.high, loss.backward.high)) for loss in losses)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.smoothed", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller sizes, for a smoke test")
    short = parser.parse_args().short
    smoothed_delta(Histogram(FixedSize(1900)), Vertices([[0.1, 0.9], [0.3, 0.7]]), 2000, 1.0)
    database_delta(Average(LEVELS, 3), gradients(10, 0), 1.0)
    for title, rows in (("Single answers", single_answers), ("How cost grows", growth)):
        print(f"\n{title}")
        for name, found, seconds in rows(short):
            print(f"{seconds:9.3f} s  {name:60} {found}")
    print("\nThe published method against the exact answer")
    print(f"{'published':>12} {'exact':>12} {'ratio':>9}")
    for name, published, exact in published_method(short):
        logs = [power_of_ten(math.log(v)) if v > 0 else "0" for v in (published, exact)]
        print(f"{logs[0]:>12} {logs[1]:>12} {published / exact:9.3g}  {name}")


if __name__ == "__main__":
    main()
