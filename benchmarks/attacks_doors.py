"""Attacks by whoever made a file or a folder that you open, for :mod:`benchmarks.attacks`."""

import dataclasses
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np

import serving_tools
import shard_tools
import store_tools as tools
from vicinal.distributed.folders import ClusterDescription
from vicinal.errors import VicinalError
from vicinal.features import SentenceFeatures
from vicinal.labelling import FileJournal
from vicinal.labelling.journal import JournalEntry
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.serving.keys import KeyCache, KeyFile
from vicinal.store import Store
from vicinal.store.receipts import check_receipt

FIELDS = {"id": str, "ledger": str, "witness": str, "backup": bool}


def seen(work: Callable[[], object], served: str = "SERVED") -> str:
    """Return how a step ended: refused with which words, or `served`."""
    try:
        work()
    except VicinalError as error:
        return f"refused: {str(error).split('. ')[0].replace(chr(10), ' ')}"
    return served


def _with(mine: Path, work: Callable[[], object]) -> str:
    """Return how a step ended that must leave a file of the user's as it is."""
    mine.write_bytes(b"a thesis")
    found = seen(work)
    return found if mine.read_bytes() == b"a thesis" else "A FILE OF THE USER IS LOST"


def _describe(place: Path, **changes: str) -> Path:
    """Return a store whose description is a stranger's, digest and all."""
    tools.make(place / "store").close()
    path = place / "store" / "store.json"
    write_sealed(path, 1, {**read_sealed(path, 1, FIELDS, ""), **changes})
    return place / "store"


def own_server(place: Path) -> str:
    """Name a server that listens, to hear a password."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = str(listener.getsockname()[1])
        store = _describe(place, ledger=f"postgresql://me@127.0.0.1:{port}/db")
        found = seen(lambda: Store.open(store)).replace(port, "PORT")
        try:
            listener.accept()
        except TimeoutError:
            return found
    return "IT WAS ASKED"


def other_witness(place: Path) -> str:
    """Name a file of the user's as the witness, for a loss that is accepted."""
    store = _describe(place, witness=str(place / "thesis"))
    return _with(place / "thesis", lambda: Store.open(store, accept_loss=True))


def link(place: Path) -> str:
    """Lead the labels of a store without records to a file of the user's."""
    with tools.make(place / "store") as store:
        store.erase(sorted(set(tools.PEOPLE)))
    path = place / "store" / "records" / "labels"
    path.unlink()
    path.symlink_to(place / "thesis")
    return _with(place / "thesis", lambda: Store.open(place / "store"))


def link_in_a_backup(place: Path) -> str:
    """Lead a backup's file to one of the user's, which restoring would copy."""
    with tools.make(place / "store") as store:
        store.backup(place / "backup")
    (place / "backup" / "map.npz").symlink_to(place / "thesis")
    witness = place / "store.witness"
    restored = lambda: Store.restore(place / "backup", place / "new", witness=witness)  # noqa: E731
    return _with(place / "thesis", restored)


def deep(place: Path) -> str:
    """Nest a cluster's description."""
    path = shard_tools.clustered(place, 1)
    (path / "cluster.json").write_bytes(b"[" * 10**6)
    return seen(lambda: ClusterDescription.read(path))


def huge(place: Path) -> str:
    """Let a store's description have no end."""
    tools.make(place / "store").close()
    with (place / "store" / "store.json").open("r+b") as file:
        file.truncate(1 << 40)
    return seen(lambda: Store.open(place / "store"))


def revoked(place: Path) -> str:
    """Let a revoked key in again: `null` in place of when it was revoked."""
    tools.make(place / "store").close()
    keys = KeyFile(place / "store")
    keys.add("anna", "analyst", "default")
    keys.revoke(keys.load_keys()[0].id)
    content = json.loads(keys.path.read_text())
    content["keys"][0]["revoked"] = None
    keys.path.write_text(json.dumps(content))
    return seen(keys.load_keys)


def earlier_keys(place: Path) -> str:
    """Put yesterday's keys back, whole."""
    tools.make(place / "store").close()
    keys = KeyFile(place / "store")
    token = keys.add("anna", "analyst", "default")
    before = keys.path.read_bytes()
    keys.revoke(keys.load_keys()[0].id)
    keys.path.write_bytes(before)
    return (
        "NOT STOPPED: who was revoked since is let in" if KeyCache(keys).find(token) else "refused"
    )


def model(place: Path) -> str:
    """Name a class beside a text model."""
    part = {"idx": 0, "name": "0", "path": "", "type": "evil.Module"}
    (place / "modules.json").write_text(json.dumps([part]))
    return seen(lambda: SentenceFeatures(str(place)).transform(["a"]))


def student(place: Path) -> str:
    """Set the epsilon that a student's file states to 0."""
    from vicinal import students

    pool = np.eye(8, dtype=np.float32)
    recipe = students.Recipe(network="mlp", method="plain", steps=1)
    trained = students.train_student(pool, np.arange(2), ["a", "b"], ["a", "b"], recipe)
    stated = dataclasses.replace(trained, guarantee={"epsilon": 1.0, "delta": 1e-5})
    students.save(stated, place / "student.pt")
    content = (place / "student.pt").read_bytes()
    (place / "student.pt").write_bytes(content.replace(b'"epsilon": 1.0', b'"epsilon": 0.0'))
    return seen(lambda: students.load(place / "student.pt"))


def journal(place: Path) -> str:
    """Swap back a labelling journal that went further elsewhere."""

    def commit(folder: Path, *lefts: int) -> None:
        with FileJournal(folder) as held:
            held.read()
            for left in lefts:
                held.commit(JournalEntry("run", (), {"remaining": np.arange(left)}))

    commit(place / "here" / "run", 9, 8)
    shutil.copytree(place / "here", place / "there")
    commit(place / "here" / "run", 1)
    commit(place / "there" / "run", 7, 7, 7)
    shutil.copy(place / "there/run/journal.npz", place / "here/run/journal.npz")
    return seen(lambda: commit(place / "here" / "run"))


def receipt(_: Path) -> str:
    """Sign with a key under which one signature fits every receipt."""
    identity = (1).to_bytes(32, "little")
    forged = {"format": 1, "kind": "erasure", "public_key": identity.hex()}
    signature = (identity + bytes(32)).hex()
    return seen(lambda: check_receipt({**forged, "signature": signature}, identity.hex()))


def metrics(place: Path) -> str:
    """Read how long the request of somebody else took, with no key and with an analyst's."""
    with serving_tools.running(place / "store") as service:
        service.predict(tools.Q[:1].tolist())
        found = [service.call("GET", "/metrics", key=key).status for key in (None, "analyst")]
        text = service.call("GET", "/metrics", key="curator").body
    sums = "no sum" if "vicinal_predict_seconds_sum" not in text else "A SUM"
    return f"refused: {found[0]} and {found[1]}; {sums} among a monitor's figures"


def bytes_in_a_path(place: Path) -> str:
    """Erase a subject by a name in another encoding than UTF-8."""
    with serving_tools.running(place / "store") as service:
        reply = service.call("DELETE", "/v1/subjects/M%FCller", key="curator")
    return f"refused: {reply.status}"


ATTACKS: list[tuple[str, Callable[[Path], str]]] = [
    ("`store.json` names a server, to get PGPASSWORD", own_server),
    ("`store.json` names a file of yours as its witness, loss accepted", other_witness),
    ("a link from the records to a file of yours, to be cut to nothing", link),
    ("a link in a backup to a file of yours, to be copied", link_in_a_backup),
    ("a `cluster.json` of a million levels", deep),
    ("a `store.json` of a terabyte", huge),
    ("a revoked key, written back into `keys.json`", revoked),
    ("yesterday's whole `keys.json`, put back", earlier_keys),
    ("a text model that names its own code", model),
    ("a student whose epsilon became 0", student),
    ("a labelling journal that ran elsewhere, swapped back", journal),
    ("a receipt under a public key of small order", receipt),
    ("`/metrics`, to time the requests of others", metrics),
    ("`DELETE /v1/subjects/M%FCller`", bytes_in_a_path),
]
