"""Write made-up notes of a clinic: private ones, each somebody's, and public ones without owners.

Usage: python examples/notes.py FOLDER. A seeded generator puts them together; nobody is in them.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

COMPLAINTS = {
    "knee": ["swelling after stairs", "meniscus torn in the left knee", "ligament loose, brace"],
    "chest": ["wheezing at night", "asthma spray helps", "cough with fever, antibiotic"],
    "skin": ["rash on both arms", "itching after the new detergent", "eczema, cream twice a day"],
}
OPENINGS = ["seen today:", "second visit,", "came with the daughter,", "by phone:", "referred,"]
ENDINGS = ["will call again", "rest and water", "control in two weeks", "no fever", "sleeps badly"]


def notes(rng: np.random.Generator, size: int) -> list[str]:
    """Return notes of a few words on one complaint each."""
    said = []
    for part in rng.choice(list(COMPLAINTS), size):
        two = ", ".join(rng.choice(COMPLAINTS[part], 2, replace=False))
        said.append(f"{rng.choice(OPENINGS)} {part}: {two}, {rng.choice(ENDINGS)}")
    return said


def main(folder: Path) -> None:
    """Write notes.parquet (text, owner) and public.parquet (text)."""
    rng = np.random.default_rng(4)
    folder.mkdir(parents=True, exist_ok=True)
    owners = [f"P{number}" for number in rng.integers(0, 900, 1200)]
    table = pa.table({"text": notes(rng, 1200), "owner": owners})
    parquet.write_table(table, folder / "notes.parquet")
    parquet.write_table(pa.table({"text": notes(rng, 400)}), folder / "public.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
