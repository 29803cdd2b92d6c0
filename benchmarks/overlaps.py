"""Measure how reliably a second fit on the same records is recognised by equal rows.

`python -m benchmarks.overlaps FOLDER [--repeats N]`. The folder holds tables of people and images
(`tables/*.parquet`, `mnist.npz`). For each data set the program prints how often two tables of
different records count as overlapping (disjoint halves and thirds of up to 10,000 records, and a
table next to one of a tenth of its size), and how often a table is recognised that shares some of
its records. `--times` measures digests and comparisons of made-up data instead.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as parquet

from vicinal.interactions.row_matching import compute_row_digests, overlap_exceeds_chance

_COLUMNS = {
    "nassCDS": ["ageOFocc", "yearacc", "yearVeh"],
    "rwm5yr": ["age", "educ", "hhninc"],
    "gss_wages": ["age", "year", "realrinc"],
    "Fertility": ["age", "work", "morekids"],
    "diamonds": ["carat", "depth", "table"],
}
_NOT_FEATURES = {"row", "id", "caseid", "weight"}
_MAX_RECORDS = 10_000
_SHARES = (1, 2, 5, 10, 50, 100)

Digests = npt.NDArray[np.uint64]


def _encode_numbers(column: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Return a column as numbers: text as the index of its value, missing numbers as -1."""
    if column.dtype.kind in "biuf":
        return np.nan_to_num(column.astype(np.float64), nan=-1.0)
    return np.unique(column.astype(np.str_), return_inverse=True)[1].astype(np.float64)


def _data_sets(folder: Path) -> Iterator[tuple[str, Digests]]:
    for name, columns in _COLUMNS.items():
        table = parquet.read_table(folder / "tables" / f"{name}.parquet")
        arrays = {column: table[column].to_numpy() for column in table.column_names}
        if "id" in arrays:  # One record for each person: the first.
            first = np.unique(arrays["id"], return_index=True)[1]
            arrays = {column: values[first] for column, values in arrays.items()}
        every = [column for column in arrays if column not in _NOT_FEATURES]
        for selected in (columns, every):
            rows = np.column_stack([_encode_numbers(arrays[column]) for column in selected])
            yield f"{name}, {len(selected)} columns", compute_row_digests(rows)
    images = np.load(folder / "mnist.npz", allow_pickle=False)["x_train"]
    pixels = images.reshape(len(images), -1)
    yield "MNIST", compute_row_digests(pixels.astype(np.float32))
    rng = np.random.default_rng(0)
    mean, deviation = [50, 75, 170], [18, 14, 10]
    yield (
        "made-up age, kg, cm",
        compute_row_digests(rng.normal(mean, deviation, (60_000, 3)).round()),
    )
    yield "one column, 77 values", compute_row_digests(rng.integers(0, 77, (60_000, 1)) * 1.0)
    yield "one-hot, 6 values", compute_row_digests(np.eye(6)[rng.integers(0, 6, 60_000)])


def _compare(first: Digests, second: Digests) -> bool:
    return overlap_exceeds_chance(np.sort(first), np.sort(second))


def _run_trial(
    digests: Digests, size: int, rng: np.random.Generator
) -> tuple[list[bool], dict[str, bool]]:
    """Return false alarms, and which pairs of overlapping tables of `size` are recognised."""
    mixed = rng.permutation(digests)
    table, rest = mixed[:size], mixed[size:]
    third = size * 2 // 3
    alarms = [
        _compare(table, rest[:size]),
        _compare(mixed[:third], mixed[third : 2 * third]),
        _compare(table, rest[: size // 10]),
    ]
    recognised = {}
    for share in _SHARES:
        common = size * share // 100
        recognised[f"{share} %"] = _compare(table, np.r_[table[:common], rest[: size - common]])
    recognised["tenth"] = _compare(table, table[: size // 10])
    recognised["half"] = _compare(table, table[: size // 2])
    recognised["bootstrap"] = _compare(table, rng.choice(table, size))
    return alarms, recognised


def report(folder: Path, repeats: int) -> Iterator[str]:
    """Yield the lines of the table."""
    heads = [f"{share} %" for share in _SHARES] + ["tenth", "half", "bootstrap"]
    yield f"{'data':26} {'records':>7} {'distinct':>8} {'alarms':>9}  " + " ".join(
        f"{head:>9}" for head in heads
    )
    for name, digests in _data_sets(folder):
        for size in (1000, min(_MAX_RECORDS, len(digests) // 2)):
            rng = np.random.default_rng(size)
            trials = [_run_trial(digests, size, rng) for _ in range(repeats)]
            alarms = [alarm for trial_alarms, _ in trials for alarm in trial_alarms]
            distinct = len(np.unique(rng.choice(digests, size, replace=False))) / size
            shares = [np.mean([recognised[head] for _, recognised in trials]) for head in heads]
            yield (
                f"{name:26} {size:7} {distinct:8.3f} {sum(alarms):4}/{len(alarms):4}  "
                + " ".join(f"{share:9.2f}" for share in shares)
            )


def measure_times() -> Iterator[str]:
    """Yield seconds for digests of made-up rows, and for one comparison of two tables."""
    rng = np.random.default_rng(0)
    for shape in ((1_000_000, 10), (60_000, 324)):
        rows = rng.normal(size=shape).astype(np.float32)
        start = time.perf_counter()
        digests = np.sort(compute_row_digests(rows))
        digested = time.perf_counter()
        overlap_exceeds_chance(digests, digests[1:])
        compared = time.perf_counter()
        yield f"{shape}: digests {digested - start:.3f} s, comparison {compared - digested:.3f} s"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlaps", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of data sets")
    parser.add_argument("--repeats", type=int, default=50, help="random splits of each data set")
    parser.add_argument("--times", action="store_true", help="measure the time")
    arguments = parser.parse_args()
    lines = measure_times() if arguments.times else report(arguments.folder, arguments.repeats)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
