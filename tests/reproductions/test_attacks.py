"""The table of attacks: every row still runs, ends as its file says, and catches its control.

The short form plays the attacks on refusals, whose controls patch what the attacks lean on. A row
on copies, damage or ids that has come to say something else is seen by the soak alone; what it
guards has tests of its own. Floods are not played here, but in `test_serving_floods.py`.
"""

import csv
from pathlib import Path

import pytest

from benchmarks import flips
from benchmarks.attacks import SECTIONS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def kept(name):
    """Return the rows of a file of the reference."""
    with (REFERENCE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FOUND = {(row["section"], row["attack"]): row["what happened"] for row in kept("attacks.csv")}
REFUSALS = "refusals, and fits that are repeated"
OTHERS = {name for name in SECTIONS if name not in (REFUSALS, "floods of the service")}


@pytest.mark.counts_interactions
@pytest.mark.parametrize("row", SECTIONS[REFUSALS], ids=lambda row: row[0])
def test_a_refusal_tells_nothing_and_its_control_does(row, tmp_path):
    """Fails if an attack gets through, or has become one that would not notice."""
    name, attack = row
    assert FOUND[REFUSALS, name].startswith("stopped;")
    assert attack(tmp_path).startswith("stopped; the control is caught")


def test_no_bit_that_flips_beside_stores_is_silent(tmp_path):
    """Fails if a backup, keys, a student, a journal, labels or a receipt say something else."""
    pytest.importorskip("cryptography", reason="receipts need it (extra `receipts`)")
    pytest.importorskip("torch", reason="students need it (extra `students`)")
    names, said = [name for name in flips.KEPT if name not in ("store", "cluster")], list[str]()
    counts = flips.flips(tmp_path, 10 * len(names), names, report=said.append)
    assert not said
    assert all(counts[name, "noticed"] > 5 for name in names)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("section", "name", "attack"),
    [(section, *row) for section in sorted(OTHERS) for row in SECTIONS[section]],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_attack_ends_as_the_file_says(section, name, attack, tmp_path):
    """Fails if a row of the file is not what happens."""
    assert attack(tmp_path).replace(str(tmp_path), "...") == FOUND[section, name]


def test_the_page_says_what_the_files_say():
    page = " ".join((REFERENCE / "attacks.md").read_text(encoding="utf-8").split())
    assert list(FOUND) == [(part, row[0]) for part, rows in SECTIONS.items() for row in rows]
    passed = [found for found in FOUND.values() if found.startswith("NOT STOPPED")]
    assert f"in {len(FOUND)} ways" in page
    assert (len(FOUND) - len(passed), len(passed)) == (70, 4)
    assert "Seventy attacks were refused or had no effect. [Four succeed]" in page
    flips = kept("attack-flips.csv")
    noticed, unchanged = (
        sum(int(row[name]) for row in flips) for name in ("noticed", "changed nothing")
    )
    assert all(row["silent or traceback"] == "0" for row in flips)
    assert f"{noticed:,} flips were noticed, and the other {unchanged}" in page
    assert f"The worst of the {len(kept('attack-faults.csv'))} faults" in page
