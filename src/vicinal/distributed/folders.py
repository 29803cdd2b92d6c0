"""Where a cluster lies: a folder for the coordinator, one for every shard, and who belongs to whom.

=================  =============================================================================
cluster.json       how many shards there are; written last, so half a cluster is none
coordinator/       a store without records: plans, answers, quotas, idempotency keys
shard-0/ ...       records, budgets and the journal of carried blocks; may lie on other machines
NAME.witnesses/    beside the cluster: how far each of them had come, and in no backup of it
=================  =============================================================================

None of these folders is a store by itself, and none is opened as one: a shard that answered alone
would spend budgets on answers that nobody summed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from vicinal.errors import InvalidInput
from vicinal.ledger.files import PRIVATE_FOLDER, guarded, replace_file
from vicinal.mechanisms import fresh_key
from vicinal.store.folder import KEY, Folder

MOST_SHARDS = 1024
COORDINATOR = "coordinator"
SPLITTING, READY = "splitting", "ready"
_CLUSTER = "cluster.json"
_SHARD = "shard.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """The folder of one part of a cluster: of a shard, or of the coordinator.

    Attributes
    ----------
    folder : Folder
        Where it lies, who it is, and its witness.
    cluster : str
        The id of the cluster, in hexadecimal digits.
    """

    folder: Folder
    cluster: str

    @classmethod
    def create(cls, path: Path, cluster: str, key: bytes, witness: Path) -> Self:
        """Make a new folder that keeps hashes under `key`."""
        with guarded(path):
            path.mkdir(mode=PRIVATE_FOLDER, parents=True)
            witness.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        replace_file(path / KEY, key)
        return cls(Folder(path, fresh_key(16).hex(), "sqlite", witness.absolute()), cluster)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of a shard that is there, or raise InvalidInput."""
        found = _read(path / _SHARD, f"There is no shard at {path}.")
        folder = Folder(path, found["id"], "sqlite", Path(found["witness"]))
        return cls(folder, found["cluster"])

    def save(self) -> None:
        """Write who it is, which makes the folder a part of the cluster."""
        described = {
            "format": _FORMAT, "id": self.folder.identity, "cluster": self.cluster,
            "witness": str(self.folder.witness),
        }  # fmt: skip
        replace_file(self.folder.path / _SHARD, json.dumps(described, indent=2).encode())


@dataclass(frozen=True, slots=True)
class Cluster:
    """What everybody may know about a cluster.

    Attributes
    ----------
    identity : str
        The cluster's id, in hexadecimal digits.
    shards : int
        How many there are.
    state : str
        :data:`SPLITTING` until the store that it was made of has retired, then :data:`READY`.
    source : str
        That store's folder.
    clock : int
        How far that store had come.
    """

    identity: str
    shards: int
    state: str
    source: str
    clock: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the cluster that lies at `path`, or raise InvalidInput."""
        found = _read(path / _CLUSTER, f"There is no cluster at {path}.")
        del found["format"]
        return cls(**found)

    def save(self, path: Path) -> None:
        """Write it down."""
        described = {"format": _FORMAT, **asdict(self)}
        replace_file(path / _CLUSTER, json.dumps(described, indent=2).encode())


def is_cluster(path: Path) -> bool:
    """Tell whether a cluster lies at `path`."""
    return (path / _CLUSTER).is_file()


def shard_paths(path: Path, shards: int) -> list[Path]:
    """Return the folders of all shards of a cluster."""
    return [path / f"shard-{number}" for number in range(shards)]


def witness_of(path: Path, part: str) -> Path:
    """Return where the witness of a part of the cluster at `path` lies."""
    whole = path.absolute()
    return whole.with_name(whole.name + ".witnesses") / part


def _read(path: Path, missing: str) -> dict[str, Any]:
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
        known = found["format"] == _FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(missing) from None
    if not known:
        raise InvalidInput(f"{path.parent} was written by a later version of vicinal.")
    return found
