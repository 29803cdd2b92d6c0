"""Time the accounting: `python -m benchmarks.accounting`. Single process, medians of 5.

A plan of 10 different releases with 10,000 repetitions each, by all methods together, with the
lower bound; every run has other parameters, so that nothing is remembered from the run before.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from experiments.accounting.table import as_text, table
from vicinal.accounting import account, calibrate

COUNT = 10_000
RUNS = 5


def ten_releases(shift: float) -> dict[str, Any]:
    """Return the plan; `shift` moves every noise scale a little."""
    screenings = [
        {
            "kind": "screening",
            "k": 300,
            "threshold": 150 + 15 * i,
            "sigma": 80 + 10 * i + shift,
            "gamma": 0.1 + 0.02 * i,
        }
        for i in range(4)
    ]
    maxima = [
        {"kind": "noisy_max", "sigma": 60 + 10 * i + shift, "gamma": 0.1 + 0.03 * i}
        for i in range(4)
    ]
    others = [
        {"kind": "gaussian", "sigma": 300 + shift},
        {"kind": "multilabel", "tau": 10, "sigma": 400 + shift, "gamma": 0.1},
    ]
    releases = [{**release, "count": COUNT} for release in (*screenings, *maxima, *others)]
    return {"delta": 1e-5, "releases": releases}


def one_plan(shift: float) -> dict[str, Any]:
    """Return the MNIST plan of the paper's Table 1."""
    screening = {"kind": "screening", "k": 300, "threshold": 180, "sigma": 75 + shift}
    maximum = {"kind": "noisy_max", "sigma": 25, "gamma": 0.15, "count": 735}
    return {
        "delta": 1e-5,
        "releases": [{**screening, "gamma": 0.15, "count": 1000}, maximum],
    }


def median(work: Callable[[float], object]) -> float:
    """Return the median seconds of `work`, called with a new shift each time."""
    times = []
    for run in range(RUNS + 1):
        start = time.perf_counter()
        work(0.01 * run)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    """Print the figures and the reproduction table."""
    print(f"10 releases x {COUNT:,}: {median(lambda s: account(ten_releases(s))):.2f} s")
    print(f"MNIST plan of Table 1: {median(lambda s: account(one_plan(s))):.2f} s")
    seconds = median(lambda s: calibrate(one_plan(s), 1.0, "sigma", 1))
    print(f"calibrate one sigma of it: {seconds:.2f} s")
    print()
    print(as_text(table()))


if __name__ == "__main__":
    main()
