"""What many records cost, from what few take here: `python -m benchmarks.scaling [--short]`.

Two sizes are measured; what a record more takes is the constant, of processor time and of memory.
Everything beyond is arithmetic, and says so: time grows with records, machines hold their share of
them, and a block costs a fixed time at the coordinator. The GPU is arithmetic alone: its int8
product would have to return the same integers.
"""

import argparse
import math
import time
import warnings
from dataclasses import dataclass

import numpy as np
from joblib import cpu_count

from benchmarks import parts, training
from vicinal.errors import PrivacyWarning

D, SHARE = 128, 0.003
AROUND = 40  # bytes of a record beside its features: ids, slot, label, budgets of two audiences
CORES, MEMORY, PRICE = 16, 100e9, 0.05  # of a machine: cores, bytes for records; of a core, an hour
FIXED = 0.005  # seconds of a block: messages, noise, commit of the coordinator
GPU_MEMORY, GPU_BANDWIDTH, GPU_OPERATIONS = 130e9, 4.8e12, 1e15  # bytes, a second; half the peak


@dataclass(frozen=True)
class Constants:
    """Processor seconds that one record more takes: of a block of 256 queries, of a training."""

    block: float
    training: float


def measured(few: int, many: int) -> Constants:
    """Return the constants of this machine, from two numbers of records."""
    warnings.simplefilter("ignore", PrivacyWarning)
    blocks, fits = [], []
    for n in (few, many):
        blocks.append(parts.measure(n, D, SHARE, 5)["whole prediction"] / 1e3)
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((n, D), dtype=np.float32), rng.integers(0, training.CLASSES, n)
        public, start = rng.normal(size=(training.PUBLIC, D)), time.perf_counter()
        training.fitted((X, y), public)
        fits.append(time.perf_counter() - start)
    each = cpu_count() / (many - few)
    return Constants((blocks[1] - blocks[0]) * each, (fits[1] - fits[0]) * each)


def row(n: float, constants: Constants) -> str:
    """Return a line of the table for `n` records."""
    memory = n * (D + AROUND)
    machines = math.ceil(memory / MEMORY)
    cores = machines * CORES
    block = FIXED + n * constants.block / cores
    seconds = 1e6 / parts.BLOCK * block
    price = seconds / 3600 * cores * PRICE
    fits = n * D <= GPU_MEMORY
    gpu = max(n * D / GPU_BANDWIDTH, 2 * n * D * parts.BLOCK / GPU_OPERATIONS)
    return (
        f"{n:>14,.0f}{memory / 1e9:>9.1f}{machines:>10}{1e3 * block:>12.0f}"
        f"{seconds / 3600:>16.2f}{price:>12.2f}{n * constants.training / cores / 60:>14.1f}"
        f"{f'{1e3 * (gpu + FIXED):.0f}' if fits else 'too small':>12}"
    )


def main() -> None:
    """Print the constants and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes, for a smoke test")
    few, many = (4_000, 8_000) if parser.parse_args().short else (200_000, 800_000)
    constants = measured(few, many)
    rate = D * parts.BLOCK / constants.block
    print(
        f"{D} features, {SHARE:.1%} inside the radius, blocks of {parts.BLOCK}; one core of this "
        f"machine:\n{rate:.3g} products of a search a second, with charges; "
        f"{1e6 * constants.training:.1f} us of training a record\n\n"
        f"{'records':>14}{'GB':>9}{'machines':>10}{'block, ms':>12}{'1e6 queries, h':>16}"
        f"{'their price':>12}{'training, min':>14}{'GPU, ms':>12}"
    )
    for n in (1e6, 1e7, 1e8, 1e9):
        print(row(n, constants))
    print(
        f"\nMachines of {CORES} cores with {MEMORY / 1e9:.0f} GB for records, {PRICE} a core and "
        "hour. GPU: a block on one with 141 GB,\nif its int8 product ran at half its peak; "
        "not measured."
    )


if __name__ == "__main__":
    main()
