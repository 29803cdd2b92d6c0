"""What happens to attacks on stores and clusters: `python -m benchmarks.attacks`, as CSV.

Every attack is carried out on a store of its own. It returns what was seen: "refused", with the
first words of the error, or what was served. `--flips 2000` damages that many single bits
instead, one at a time, in everything that a user keeps (:mod:`benchmarks.flips`), and counts what
came of it.

To add attacks, append (name, function of a fresh folder) to a section of :data:`SECTIONS`.
"""

import argparse
import csv
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import store_tools as tools
from benchmarks import cluster_attacks, flips
from benchmarks.attacks_doors import ATTACKS as DOORS
from benchmarks.attacks_doors import seen
from benchmarks.attacks_identity import ATTACKS as IDENTITY
from benchmarks.attacks_refusals import ATTACKS as REFUSALS
from benchmarks.attacks_service import ATTACKS as FLOODS
from vicinal.store import Store

Attack = Callable[[Path], str]


def made(place: Path) -> Path:
    """Make a closed store that has answered, and return its folder."""
    with tools.make(place / "store") as store:
        store.predict(tools.Q[:5], idempotency_key="k")
    return place / "store"


def ask(path: Path, start: int) -> None:
    """Open a store and spend budgets."""
    with Store.open(path) as store:
        store.predict(tools.Q[start : start + 5])


def both_open(place: Path) -> str:
    """Copy the folder beside itself; both share the witness."""
    shutil.copytree(made(place), place / "copy")
    with Store.open(place / "store"):
        return seen(lambda: ask(place / "copy", 5))


def copy_behind(place: Path) -> str:
    """Use the copy, then the original."""
    shutil.copytree(made(place), place / "copy")
    ask(place / "copy", 5)
    return seen(lambda: ask(place / "store", 10))


def restored_alive(place: Path) -> str:
    """Restore a backup beside the living original, with its witness."""
    made(place)
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
        witness = place / "store.witness"
        return seen(lambda: Store.restore(place / "backup", place / "new", witness=witness))


def restored_twice(place: Path) -> str:
    """Restore a backup in the original's place, then open the original."""
    made(place)
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
    Store.restore(place / "backup", place / "new", witness=place / "store.witness").close()
    return seen(lambda: ask(place / "store", 5))


def swapped_back(place: Path) -> str:
    """Run a copy elsewhere, with a witness of its own, further than the original; swap it in."""
    made(place / "here")
    shutil.copytree(place / "here", place / "there")
    ask(place / "here" / "store", 5)
    for start in (10, 15, 20):
        ask(place / "there" / "store", start)
    shutil.rmtree(place / "here" / "store")
    shutil.copytree(place / "there" / "store", place / "here" / "store")
    return seen(lambda: ask(place / "here" / "store", 25))


def rolled_back(place: Path) -> str:
    """Put an earlier copy of the folder back."""
    shutil.copytree(made(place), place / "old")
    ask(place / "store", 5)
    shutil.rmtree(place / "store")
    shutil.copytree(place / "old", place / "store")
    return seen(lambda: ask(place / "store", 10))


def everything_back(place: Path) -> str:
    """Put an earlier copy of folder and witness back, both together."""
    made(place / "here")
    shutil.copytree(place / "here", place / "old")
    ask(place / "here" / "store", 5)
    shutil.rmtree(place / "here")
    shutil.copytree(place / "old", place / "here")
    return seen(
        lambda: ask(place / "here" / "store", 10), "NOT STOPPED: nothing on the machine knows"
    )


def audience_again(place: Path) -> str:
    """Lose an audience with an old backup, accept the loss, open it again for new budgets."""
    made(place)
    plan = {"n_queries": 5, "n_records": 300}
    with Store.open(place / "store") as store:
        store.backup(place / "backup")
        store.open_audience("press", **plan)
    witness = place / "store.witness"
    with Store.restore(place / "backup", place / "new", witness=witness, accept_loss=True) as store:
        return seen(lambda: store.open_audience("press", **plan))


def edited(table: str, change: str) -> Attack:
    """Return an attack that changes one row of the ledger."""

    def attack(place: Path) -> str:
        import sqlite3

        path = made(place)
        with sqlite3.connect(path / "ledger.db") as connection:
            connection.execute(f"UPDATE {table} SET {change}")  # noqa: S608 (an attack)
        connection.close()
        return seen(lambda: ask(path, 5))

    return attack


def overwritten(name: str) -> Attack:
    """Return an attack that flips a bit of a file."""

    def attack(place: Path) -> str:
        path = made(place)
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 4
        (path / name).write_bytes(bytes(content))
        return seen(lambda: ask(path, 5))

    return attack


def without(name: str) -> Attack:
    """Return an attack that takes a file away."""

    def attack(place: Path) -> str:
        path = made(place)
        (path / name).unlink()
        return seen(lambda: ask(path, 5))

    return attack


def emptied(name: str) -> Attack:
    """Return an attack that empties a file."""

    def attack(place: Path) -> str:
        path = made(place)
        (path / name).write_bytes(b"")
        return seen(lambda: ask(path, 5))

    return attack


def second_store(place: Path) -> str:
    """Make a second store of the same people."""
    made(place)
    return seen(
        lambda: tools.make(place / "other").close(), "NOT STOPPED: nothing links two stores"
    )


def readable(place: Path) -> str:
    """Make a store where new files are open to all, and look for one that others may read."""
    before = os.umask(0)
    try:
        path = made(place)
    finally:
        os.umask(before)
    open_to_all = [one.name for one in path.rglob("*") if one.stat().st_mode & 0o077]
    return f"OPEN TO ALL: {open_to_all}" if open_to_all else "no file, and no folder in it, is"


def password_in_url(spelt: str) -> Attack:
    """Return an attack that has a password written into `store.json`."""
    url = f"postgresql://me@nowhere/db?{spelt}=secret"
    return lambda place: seen(lambda: tools.make(place / "store", ledger=url).close())


def log_kept(place: Path) -> str:
    """Refuse an opening with a log that could be salvaged, and see what is left of it."""
    with tools.make(place / "alive" / "store") as store:
        store.predict(tools.Q[:5])
        shutil.copytree(place / "alive", place / "dead")
    (place / "dead" / "store.witness").unlink()
    log = place / "dead" / "store" / "ledger.db-wal"
    before = log.read_bytes()
    said = seen(lambda: ask(place / "dead" / "store", 5))
    return said if log.read_bytes() == before else "THE LOG IS GONE"


def alone(attacks: Sequence[tuple[str, Callable[[], str]]]) -> list[tuple[str, Attack]]:
    """Return attacks that need no folder as ones that are given one."""
    return [(name, lambda _, attack=attack: attack()) for name, attack in attacks]


SECTIONS: dict[str, list[tuple[str, Attack]]] = {
    "identities": IDENTITY,
    "copies and rollbacks of one store": [
        ("a copied folder, both open", both_open),
        ("a copied folder, the other one moved on", copy_behind),
        ("restored with the witness of the living original", restored_alive),
        ("restored, then the original opened", restored_twice),
        ("a copy that ran elsewhere, swapped back", swapped_back),
        ("an earlier folder put back", rolled_back),
        ("a lost audience opened again", audience_again),
        ("a lost witness", without("../store.witness")),
        ("a second store of the same people", second_store),
        ("folder and witness put back together", everything_back),
    ],
    "damage to one store": [
        ("a raised epsilon in a plan", edited("audiences", "plan = replace(plan, '4.0', '6.0')")),
        ("a subject's id", edited("subject_pages", "ids = replace(ids, 'person-1', 'person-0')")),
        ("a raised budget", edited("charges", "units = zeroblob(length(units))")),
        ("an answer", edited("answers", "answers = zeroblob(length(answers))")),
        ("an idempotency key", edited("requests", "body = zeroblob(32)")),
        ("the version of the data", edited("meta", "value = '9' WHERE name = 'version'")),
        ("the key", overwritten("key")),
        ("the key, emptied", emptied("key")),
        ("the public rows", overwritten("public.npy")),
        ("a record", overwritten("records/features")),
        ("a label", overwritten("records/labels")),
        ("store.json", overwritten("store.json")),
        ("the witness", overwritten("../store.witness")),
        ("a refused opening keeps the log", log_kept),
    ],
    "copies, mixtures and rollbacks of a cluster": cluster_attacks.ATTACKS,
    "rights and secrets": [
        ("files that others may read, with umask 0", readable),
        ("a password in the ledger's URL", password_in_url("password")),
        ("the same, spelt pass%77ord", password_in_url("pass%77ord")),
    ],
    "files and folders that somebody else made": DOORS,
    "refusals, and fits that are repeated": alone(REFUSALS),
    "floods of the service": alone(FLOODS),
}


def rows(only: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Carry out all attacks, or those of one section; yield (section, attack, what happened)."""
    for section, attacks in SECTIONS.items():
        for name, attack in attacks if only in (None, section) else ():
            with tempfile.TemporaryDirectory() as folder:
                yield section, name, attack(Path(folder)).replace(folder, "...")


def main() -> None:
    """Print what happened to each attack, or to flipped bits, as CSV."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("--flips", type=int, help="damage so many bits instead")
    parser.add_argument("--only", choices=SECTIONS, help="one section of the attacks")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    table = csv.writer(sys.stdout, lineterminator="\n")
    if arguments.flips:
        with tempfile.TemporaryDirectory() as folder:
            counts = flips.flips(Path(folder), arguments.flips, seed=arguments.seed)
        table.writerow(["damaged", "noticed", "changed nothing", "silent or traceback"])
        for name in flips.KEPT:
            good = [counts[name, found] for found in ("noticed", "no change")]
            others = sum(n for (kept, _), n in counts.items() if kept == name) - sum(good)
            table.writerow([name, *good, others])
        return
    table.writerow(["section", "attack", "what happened"])
    for row in rows(arguments.only):
        table.writerow(row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
