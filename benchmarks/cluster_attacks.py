"""Attacks on a cluster for :mod:`benchmarks.attacks`: parts copied, put back, mixed or left out.

Each works on a cluster of two shards that has answered; some of them on another one beside it.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import shard_tools
import store_tools as tools
from benchmarks.attacks_doors import seen
from shard_tools import COORDINATOR, get_witness_path
from vicinal.distributed import Coordinator
from vicinal.distributed.transports import local_transports

SOON = 0.5


def made(place: Path) -> Path:
    """Make a closed cluster that has answered."""
    place.mkdir(exist_ok=True)
    path = shard_tools.clustered(place, 2)
    ask(path, 0)
    return path


def ask(path: Path, start: int) -> None:
    """Open a cluster and spend budgets."""
    with Coordinator.open(path, local_transports, SOON) as cluster:
        cluster.predict(tools.Q[start : start + 5])


def replace(path: Path, part: str, source: Path, witness: Path) -> None:
    """Put a folder in the place of a part, with a copy of a witness in the place of its own."""
    shutil.rmtree(path / part)
    shutil.copytree(source, path / part)
    shard_tools.moved(path / part, witness, get_witness_path(path, part))


def copied(place: Path) -> str:
    """Use a copy of the whole folder, then the original."""
    shutil.copytree(made(place), place / "copy")
    ask(place / "copy", 5)
    return seen(lambda: ask(place / "cluster", 10))


def both_open(place: Path) -> str:
    """Open the original and a copy beside it."""
    shutil.copytree(made(place), place / "copy")
    with shard_tools.local(place / "cluster"):
        return seen(lambda: ask(place / "copy", 5))


def twice(place: Path) -> str:
    """Put a copy of shard 0 in the place of shard 1."""
    path = made(place)
    replace(path, "shard-1", path / "shard-0", get_witness_path(path, "shard-0"))
    return seen(lambda: ask(path, 5))


def foreign(place: Path) -> str:
    """Put a shard of another cluster in the place of shard 1."""
    path, other = made(place), made(place / "other")
    replace(path, "shard-1", other / "shard-1", get_witness_path(other, "shard-1"))
    return seen(lambda: ask(path, 5))


def put_back(part: str) -> Callable[[Path], str]:
    """Return an attack that puts a part and its witness back to an earlier state."""

    def attack(place: Path) -> str:
        path = made(place)
        shutil.copytree(path / part, place / "old")
        shutil.copy(get_witness_path(path, part), place / "old.witness")
        ask(path, 5)
        replace(path, part, place / "old", place / "old.witness")
        return seen(lambda: ask(path, 10))

    return attack


def fewer(sealed: bool) -> Callable[[Path], str]:
    """Return an attack that takes a shard out of cluster.json, by hand or with a right digest."""

    def attack(place: Path) -> str:
        path = made(place)
        if sealed:
            shard_tools.resealed(path, shards=1)
        else:
            said = json.loads((path / "cluster.json").read_text())
            (path / "cluster.json").write_text(json.dumps({**said, "shards": 1}))
        return seen(lambda: erase_all(path))

    return attack


def absent(place: Path) -> str:
    """Erase everybody while a shard's folder is away."""
    path = made(place)
    (path / "shard-1").rename(place / "away")
    return seen(lambda: erase_all(path))


def erase_all(path: Path) -> None:
    """Open a cluster and erase all people."""
    with Coordinator.open(path, local_transports, SOON) as cluster:
        cluster.erase(sorted(set(tools.PEOPLE)))


def second_machine(place: Path) -> str:
    """Let a copy of a shard's folder answer, with its own witness, after the original has."""
    path = made(place)
    elsewhere = place / "elsewhere"
    shutil.copytree(path / "shard-0", elsewhere)
    shard_tools.moved(elsewhere, get_witness_path(path, "shard-0"), place / "elsewhere.witness")
    ask(path, 5)
    links = lambda paths: local_transports([elsewhere, *paths[1:]])  # noqa: E731 (short)

    def work() -> None:
        with Coordinator.open(path, links, SOON) as cluster:
            cluster.predict(tools.Q[10:15])

    return seen(work)


def everything_back(place: Path) -> str:
    """Put the whole cluster and all witnesses back, together."""
    made(place / "here")
    shutil.copytree(place / "here", place / "old")
    ask(place / "here" / "cluster", 5)
    shutil.rmtree(place / "here")
    shutil.copytree(place / "old", place / "here")
    found = seen(lambda: ask(place / "here" / "cluster", 10))
    return found.replace("SERVED", "NOT STOPPED: nothing on the machine knows")


ATTACKS: list[tuple[str, Callable[[Path], str]]] = [
    ("a copied cluster, both open", both_open),
    ("a copied cluster, the other one moved on", copied),
    ("shard 1 replaced by a copy of shard 0", twice),
    ("a shard of another cluster", foreign),
    ("a shard and its witness put back", put_back("shard-1")),
    ("the coordinator and its witness put back", put_back(COORDINATOR)),
    ("a copied shard on a second machine", second_machine),
    ('"shards": 2 -> 1 in cluster.json, all erased', fewer(sealed=False)),
    ("the same with a right digest", fewer(sealed=True)),
    ("an erasure while a shard's folder is away", absent),
    ("cluster and all witnesses put back together", everything_back),
]
"""Name, and function of a fresh folder that returns what was seen."""
