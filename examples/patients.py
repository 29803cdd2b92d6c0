"""Write three made-up tables of a clinic: patients (private), volunteers (public), visitors.

Usage: python examples/patients.py FOLDER. The rows are drawn from a seeded generator; nobody is in
them. A third of the patients come several times.
"""

import datetime as dt
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet


def people(rng: np.random.Generator, size: int) -> dict[str, object]:
    """Return columns of `size` visits, and who of them is ill."""
    ill = rng.random(size) < 0.3
    age = np.clip(rng.normal(52 + 12 * ill, 15), 18, 95).round().astype(int)
    platelets = np.exp(rng.normal(12.4 - 0.5 * ill, 0.35)).round(-3)
    smoker = rng.random(size) < 0.2 + 0.3 * ill
    grade = np.clip(np.digitize(rng.normal(1 + 1.2 * ill), [0.5, 1.5, 2.5]), 0, 3)
    first = dt.date(2020, 1, 1)
    return {
        "age": age,
        "sex": rng.choice(["f", "m"], size),
        "dose": rng.choice([0.1, 0.2, 0.5, 1.0, 2.0], size),
        "platelets": pa.array(platelets, mask=rng.random(size) < 0.08),
        "smoker": smoker,
        "pain": np.array(["none", "mild", "strong", "severe"])[grade],
        "ward": rng.choice(["north", "south", "west"], size, p=[0.5, 0.3, 0.2]),
        "seen": [first + dt.timedelta(days=int(day)) for day in rng.integers(0, 2000, size)],
        "diagnosis": np.where(ill, "ill", "healthy"),
    }


def main(folder: Path) -> None:
    """Write patients.parquet, volunteers.parquet and visitors.parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    patients = people(rng, 12_000)
    who = [f"P{number:05d}" for number in rng.integers(0, 10_000, 12_000)]
    parquet.write_table(pa.table({"patient": who, **patients}), folder / "patients.parquet")
    volunteers = people(rng, 2_000)
    volunteers.pop("diagnosis")
    parquet.write_table(pa.table(volunteers), folder / "volunteers.parquet")
    visitors = {"visit": [f"V{i}" for i in range(300)], **people(rng, 300)}
    truth = {"visit": visitors["visit"], "diagnosis": visitors.pop("diagnosis")}
    parquet.write_table(pa.table(visitors), folder / "visitors.parquet")
    parquet.write_table(pa.table(truth), folder / "truth.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
