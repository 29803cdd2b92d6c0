"""Attacks on identity: a second spelling of an id, for a second budget or a failed erasure.

`python -m benchmarks.attacks_identity` carries each out on a small store of its own, and prints
what happens; :data:`ATTACKS` lists them for a table of all attacks.
"""

import tempfile
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from vicinal import IndKNNClassifier
from vicinal.datasets import load_table
from vicinal.datasets.id_lists import read_ids
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.store import Store

N, D, CLASSES = 60, 4, 3
PEOPLE = [*range(1, N - 1), "Zo\u00eb", "A7"]
PLAN = {"epsilon": 1.0, "n_queries": 40, "n_neighbors": 20, "noise_multiplier": 8.0}


def _points(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, D))


X, Y, R, Q = _points(N, 0), np.arange(N) % CLASSES, _points(40, 1), _points(10, 2)


def _made(folder: Path) -> Store:
    store = Store.init(
        folder / "store", X, Y, PEOPLE, classes=range(CLASSES), public=R, n_records=N, **PLAN
    )
    store.predict(Q)
    return store


def _left(store: Store, subject: int | str) -> int:
    book = store._store.ledger
    return int(book.audiences["default"].account.remaining[book.list_slots([subject])][0])


def _refusal(work: Callable[[], object]) -> str:
    """Return why something is refused, or that it is not."""
    try:
        work()
    except (InvalidInput, PrivacyRefused) as error:
        return f"refused: {error}"
    return "NOT STOPPED"


def _verdict(stopped: bool, words: str) -> str:
    return words if stopped else "NOT STOPPED"


def odd_id_in_a_table(folder: Path) -> str:
    """Add known people by a table that one odd id turns into text."""
    path = folder / "more.csv"
    path.write_text("x,who\n0,5\n0,6\n0,B7\n")
    with _made(folder) as store:
        store.add(X[:3], Y[:3], load_table(path, subject="who").subjects)
        known = store.facts(curator=True)["private"]["subjects"]
    return _verdict(known == N + 1, "no effect: one new person, two known ones")


def return_as_text(folder: Path) -> str:
    """Be erased as the number 5 and come back as the text "5", for a full budget."""
    with _made(folder) as store:
        before = _left(store, 5)
        store.erase(["5"])
        store.add(X[:1], Y[:1], ["5"])
        return _verdict(_left(store, 5) == before, "no effect: what was left comes back")


def other_form_of_unicode(folder: Path) -> str:
    """Come a second time in Unicode's decomposed form."""
    with _made(folder) as store:
        before = _left(store, "Zo\u00eb")
        store.add(X[:1], Y[:1], [unicodedata.normalize("NFD", "Zo\u00eb")])
        same = store.facts(curator=True)["private"]["subjects"] == N
        return _verdict(same and _left(store, "Zo\u00eb") == before, "no effect: the same person")


def lists_that_erase_nobody(folder: Path) -> str:
    """Hand in a list with a header, blanks, commas, quotes or decimal points."""
    refused = 0
    contents = ("id\n5\n", "5 \n6\n", "5,6\n", '"5"\n"6"\n', "5.0\n6.0\n", "5\n\n6\n")
    for content in contents:
        (folder / "ids").write_text(content)
        refused += _refusal(lambda: read_ids(folder / "ids")).startswith("refused: Line")
    words = f"refused with the line's number: {refused} of {len(contents)}"
    return _verdict(refused == len(contents), words)


def lists_of_other_systems(folder: Path) -> str:
    """Hand in a list with a byte order mark, or the line ends of Windows."""
    with _made(folder) as store:
        (folder / "ids").write_bytes(b"\xef\xbb\xbf5\r\n6\r\n")
        store.erase(read_ids(folder / "ids"))
        return _verdict(store.presence([5, 6]).erased == 2, "no effect: both are erased")


def records_without_ids(folder: Path) -> str:
    """Add known people without a column of subjects, as new ones."""
    with _made(folder) as store:
        return _refusal(lambda: store.add(X[:5], Y[:5]))


def classifier_without_ids(_: Path) -> str:
    """The same in memory."""
    classifier = IndKNNClassifier(range(CLASSES), n_records=N, **PLAN)
    classifier.fit(X, Y, PEOPLE, public=R)
    return _refusal(lambda: classifier.add(X[:5], Y[:5]))


def id_out_of_reach(folder: Path) -> str:
    """Add an id that no path and no list can name."""
    with _made(folder) as store:
        return _refusal(lambda: store.add(X[:1], Y[:1], ["a\nb"]))


def ids_without_zeros(folder: Path) -> str:
    """Add known people by ids as another program writes whole numbers."""
    with _made(folder) as store:
        return _refusal(lambda: store.add(X[:5], Y[:5], ["007", "0008", "a7", "A 7", "zo\u00eb"]))


def people_behind_a_mask(folder: Path) -> str:
    """Add people of whom some are masked, which NumPy makes one."""
    people = np.ma.masked_array([100, 101, 102], [False, True, True])
    with _made(folder) as store:
        return _refusal(lambda: store.add(X[:3], Y[:3], people))


def copied_reference(folder: Path) -> str:
    """Take a sample of the records as the public reference."""
    make = partial(Store.init, folder / "store", X, Y, PEOPLE, classes=range(CLASSES), n_records=N)
    return _refusal(lambda: make(public=X[::3].copy(), **PLAN))


ATTACKS: list[tuple[str, Callable[[Path], str]]] = [
    ("one odd id turns a table's column into text", odd_id_in_a_table),
    ("erased as 5, back as '5'", return_as_text),
    ("the same name in another form of Unicode", other_form_of_unicode),
    ("lists with header, blank, comma, quotes, decimal point", lists_that_erase_nobody),
    ("lists with byte order mark and Windows' line ends", lists_of_other_systems),
    ("records without subjects, into a store that has them", records_without_ids),
    ("records without subjects, into a classifier", classifier_without_ids),
    ("an id with a line break", id_out_of_reach),
    ("known people as 007, 'A 7' or 'zo\u00eb'", ids_without_zeros),
    ("people behind a mask", people_behind_a_mask),
    ("a sample of the records as the public reference", copied_reference),
]
"""Name of every attack, and what carries it out in an empty folder and returns what happened."""


def main() -> None:
    """Print every attack with what happens."""
    for name, attack in ATTACKS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {attack(Path(folder))}")


if __name__ == "__main__":
    main()
