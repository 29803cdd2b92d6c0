"""The table of attacks: every row still runs, ends as its page says, and catches its control.

The short form plays the attacks on refusals, whose controls patch what the attacks lean on. A row
on copies, damage or ids that has come to say something else is seen by the soak alone; what it
guards has tests of its own. Floods are not played here, but in `test_serving_floods.py`.
"""

from pathlib import Path

import pytest

from benchmarks import flips
from benchmarks.attacks import SECTIONS

PAGE = (Path(__file__).parents[2] / "docs/reference/attacks.md").read_text(encoding="utf-8")
REFUSALS = "refusals, and fits that are repeated"
OTHERS = {name for name in SECTIONS if name not in (REFUSALS, "floods of the service")}


@pytest.mark.counts_interactions
@pytest.mark.parametrize("row", SECTIONS[REFUSALS], ids=lambda row: row[0])
def test_a_refusal_tells_nothing_and_its_control_does(row, tmp_path):
    """Fails if an attack gets through, or has become one that would not notice."""
    name, attack = row
    assert f"| {name} | stopped;" in PAGE
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
    "row", [row for section in sorted(OTHERS) for row in SECTIONS[section]], ids=lambda row: row[0]
)
def test_an_attack_ends_as_the_page_says(row, tmp_path):
    """Fails if a row of the page is not what happens."""
    name, attack = row
    found = attack(tmp_path).replace(str(tmp_path), "...")
    assert f"| {name} | {found} |" in PAGE
