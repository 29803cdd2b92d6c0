"""Bits that flip on the disk: each is noticed, or changes nothing that anybody reads.

Of everything that a user keeps: a store, a cluster, a backup, keys, a student, a labelling journal,
released answers, a receipt. A bit is flipped in a fresh copy, in a byte that is not zero, as most
of a small database is empty; then all of it is opened and read. **Silent** is a flip after which
everything opens without a word, and yet something differs: budgets, answers, ids, plans, quotas,
records, guarantees, who was erased with how much, who is let in, a student's predictions, what was
labelled, what a receipt says.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import store_tools as tools
from benchmarks import cluster_flips, store_flips
from vicinal.errors import VicinalError
from vicinal.labelling import FileJournal, ReleasedLabels, load_answers
from vicinal.labelling.answers import save_answers
from vicinal.labelling.journal import JournalEntry, RoundAnswers
from vicinal.ledger.sealed_files import read_json
from vicinal.serving.keys import KeyFile
from vicinal.store import Store
from vicinal.store.receipts import SigningKey, check_receipt, create_erasure_receipt

Reading = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """Something that a user keeps.

    `fill`: makes it below a folder, in a folder for each state that it can be in. `read_only`: what
    it says and decides, in the copy of such a folder. `damaged`: which of its files are damaged.
    """

    fill: Callable[[Path], None]
    read_only: Callable[[Path], Reading]
    damaged: str = "*"


def keep_backup(place: Path) -> None:
    """A backup, and the witness that it is restored with."""
    store_flips.filled(place / "made")
    with Store.open(place / "made/closed/store") as store:
        store.backup(place / "made/backup")
    (place / "closed").mkdir()
    shutil.copytree(place / "made/backup", place / "closed/backup")
    shutil.copy(place / "made/closed/store.witness", place / "closed/store.witness")
    shutil.rmtree(place / "made")


def read_backup(here: Path) -> Reading:
    """Restore it and read the store."""
    Store.restore(here / "backup", here / "store", witness=here / "store.witness").close()
    return store_flips.read_only(here / "store")


def keep_keys(place: Path) -> None:
    """Keys of all roles, one of them revoked."""
    tools.make(place / "closed" / "store").close()
    keys = KeyFile(place / "closed" / "store")
    for name, role in (("anna", "analyst"), ("carl", "curator"), ("prom", "monitor")):
        keys.add(name, role, "default")
    keys.revoke(keys.load_keys()[0].id)


def keep_student(place: Path) -> None:
    """A student."""
    from vicinal import students

    place.joinpath("closed").mkdir(parents=True)
    recipe = students.Recipe(network="mlp", method="plain", steps=1)
    student = students.train_student(POOL, np.arange(2), ["a", "b"], ["a", "b"], recipe)
    students.save(student, place / "closed/student.pt")


def read_student(here: Path) -> Reading:
    """Load it and predict."""
    from vicinal import students
    from vicinal.students import student as students_student

    student = students.load(here / "student.pt")
    about = {name: str(value) for name, value in students_student.describe_student(student).items()}
    return about | {"says": student.predict_proba(POOL).tobytes()}


def keep_journal(place: Path) -> None:
    """A journal of two commits, with its witness."""
    asked = RoundAnswers(np.array([3, 1, 2]), np.array([0, 1]), np.array([0.5, -1.0]))
    with FileJournal(place / "closed" / "run") as journal:
        for left in (7, 5):
            journal.commit(JournalEntry("run", (asked,), {"remaining": np.arange(left)}))


def read_journal(here: Path) -> Reading:
    """Read what it would go on from."""
    with FileJournal(here / "run") as journal:
        entry = journal.read()
    if entry is None:
        return {"entry": None}
    rounds = [repr([getattr(one, name) for name in one.__slots__]) for one in entry.rounds]
    state = {name: value.tobytes() for name, value in entry.state.items()}
    return {"entry": entry.input_digest, "rounds": rounds, "state": state}


def keep_answers(place: Path) -> None:
    """Labels that were released."""
    place.joinpath("closed").mkdir(parents=True)
    rows, margins, soft = np.arange(5), np.linspace(1, 2, 5), np.full((9, 2), 0.5, np.float32)
    stated = {"epsilon": 1.0, "delta": 1e-5}
    labels = ReleasedLabels(rows, rows % 2, margins, rows > 1, (0, 1), stated, soft)
    save_answers(labels, place / "closed/answers.npz")


def read_answers(here: Path) -> Reading:
    """Load them."""
    found = load_answers(here / "answers.npz")
    return {name: repr(getattr(found, name)) for name in found.__slots__}


def keep_receipt(place: Path) -> None:
    """A receipt of an erasure, and the public key of who signed it."""
    place.joinpath("closed").mkdir(parents=True)
    key = SigningKey.create(place / "signing")
    with tools.make(place / "store") as store:
        store.erase(tools.PEOPLE[:1])
        receipt = create_erasure_receipt(store._store, tools.PEOPLE[:1], key)
    (place / "closed/receipt.json").write_text(json.dumps(receipt, indent=2))
    (place / "closed/public").write_text(key.public_key)
    shutil.rmtree(place / "store")


def read_receipt(here: Path) -> Reading:
    """Check it."""
    public = (here / "public").read_text()
    return check_receipt(read_json(here / "receipt.json", "receipt"), public)


POOL = np.eye(8, dtype=np.float32)
KEPT = {
    "store": Kept(store_flips.filled, lambda here: store_flips.read_only(here / "store")),
    "cluster": Kept(cluster_flips.filled, lambda here: cluster_flips.read_only(here / "cluster")),
    "backup": Kept(keep_backup, read_backup),
    "keys": Kept(
        keep_keys, lambda here: {"keys": KeyFile(here / "store").load_keys()}, "store/keys.json"
    ),
    "student": Kept(keep_student, read_student),
    "journal": Kept(keep_journal, read_journal),
    "answers": Kept(keep_answers, read_answers),
    "receipt": Kept(keep_receipt, read_receipt, "receipt.json"),
}


def flips(
    place: Path,
    count: int,
    names: Sequence[str] = tuple(KEPT),
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> Counter[tuple[str, str]]:
    """Flip `count` bits, each in a fresh copy, in all of `names` in turn.

    Returns
    -------
    Counter
        Of (what was damaged, outcome without its reason).
    """
    rng, counts = np.random.default_rng(seed), Counter[tuple[str, str]]()
    truths: dict[Path, Reading] = {}
    for name in names:
        KEPT[name].fill(place / name)
        for state in states(place / name):
            truths[state] = KEPT[name].read_only(copied(state))
            again = KEPT[name].read_only(copied(state))
            assert again == truths[state], f"{name} is not read the same twice"
    for number in range(count):
        name = names[number % len(names)]
        several = states(place / name)
        state = several[number // len(names) % len(several)]
        here = copied(state)
        files = files_of(here, KEPT[name].damaged)
        file = files[int(rng.integers(len(files)))]
        flip(file, rng)
        found = outcome(here, truths[state], KEPT[name].read_only)
        counts[name, found.split(":")[0]] += 1
        if ":" in found:
            report(f"flip {number}: {name} {state.name} {file.relative_to(here)}: {found}")
    return counts


def states(place: Path) -> list[Path]:
    """Return the folders that were made, one for each state."""
    return sorted(one for one in place.iterdir() if one.name in ("closed", "killed"))


def copied(state: Path) -> Path:
    """Return a fresh copy of a folder, where it was made to be opened."""
    here = state.with_name("work")
    shutil.rmtree(here, ignore_errors=True)
    return shutil.copytree(state, here)


def files_of(place: Path, pattern: str) -> list[Path]:
    """Return all files below `place` that hold anything."""
    return [one for one in sorted(place.rglob(pattern)) if one.is_file() and any(one.read_bytes())]


def flip(path: Path, rng: np.random.Generator) -> None:
    """Flip one bit of a byte of a file that is not zero."""
    content = bytearray(path.read_bytes())
    used = np.flatnonzero(np.frombuffer(content, dtype=np.uint8))
    content[int(rng.choice(used))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(content))


def outcome(here: Path, truth: Reading, read_only: Callable[[Path], Reading]) -> str:
    """Read what is damaged; return "noticed", "no change", "SILENT" or "TRACEBACK", and why."""
    try:
        found = read_only(here)
    except VicinalError as error:
        return "noticed" if str(error) and "\n" not in str(error) else "TRACEBACK: several lines"
    except Exception as error:  # noqa: BLE001 (that there is none is what is measured)
        return f"TRACEBACK: {type(error).__name__}: {error}"
    changed = [name for name in truth | found if found.get(name) != truth.get(name)]
    return f"SILENT: {', '.join(changed)}" if changed else "no change"
