"""Where a cluster lies: the folders of coordinator and shards, and which belong together.

=================  =============================================================================
cluster.json       how many shards there are; written last, so half a cluster is none
coordinator/       a store without records: plans, answers, quotas, idempotency keys
shard-0/ ...       records, budgets and the journal of charged blocks; may lie on other machines
NAME.witnesses/    beside the cluster: how far each of them had come, and in no backup of it
=================  =============================================================================

None of these folders is a store by itself, and none is opened as one: a shard that answered alone
would spend budgets on answers that are never summed.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from vicinal import _checks
from vicinal.errors import InvalidInput, StoreDamaged
from vicinal.ledger import replace_file
from vicinal.mechanisms import fresh_key
from vicinal.store import KEY, Folder, check_of, private_folder

MOST_SHARDS = 1024
COORDINATOR = "coordinator"
SPLITTING, READY = "splitting", "ready"
_CLUSTER = "cluster.json"
_SHARD = "shard.json"
FORMAT = 1
"""The format of `cluster.json` and `shard.json`."""


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """The folder of one part of a cluster: of a shard, or of the coordinator.

    `folder`: where it lies, who it is, and its witness. `cluster`: the id of the cluster, in
    hexadecimal digits.
    """

    folder: Folder
    cluster: str

    @classmethod
    def create(cls, path: Path, cluster: str, key: bytes, witness: Path) -> Self:
        """Make a new folder that keeps hashes under `key`."""
        for folder in (path.parent, path, witness.parent):
            private_folder(folder)
        replace_file(path / KEY, key)
        return cls(Folder(path, fresh_key(16).hex(), "sqlite", witness.absolute()), cluster)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of a shard that is there, or raise InvalidInput."""
        content = _read(
            path / _SHARD, {"id", "cluster", "witness"}, f"There is no shard at {path}."
        )
        folder = Folder(path, content["id"], "sqlite", Path(content["witness"]))
        return cls(folder, content["cluster"])

    def save(self) -> None:
        """Write who it is, which makes the folder a part of the cluster."""
        witness = str(self.folder.witness)
        content = {"id": self.folder.identity, "cluster": self.cluster, "witness": witness}
        _write(self.folder.path / _SHARD, content)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """What is public about a cluster.

    - `identity`: the cluster's id, in hexadecimal digits.
    - `shards`: how many there are.
    - `state`: :data:`SPLITTING` until the store that it was made of has retired, then
      :data:`READY`.
    - `source`: that store's folder.
    """

    identity: str
    shards: int
    state: str
    source: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the cluster that lies at `path`, or raise InvalidInput."""
        names = {field.name for field in fields(cls)}
        return cls(**_read(path / _CLUSTER, names, f"There is no cluster at {path}."))

    def save(self, path: Path) -> None:
        _write(path / _CLUSTER, asdict(self))


def is_cluster(path: Path) -> bool:
    """Tell whether a cluster lies at `path`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal.distributed import is_cluster
    >>> is_cluster(Path("nothing-here"))
    False
    """
    return (path / _CLUSTER).is_file()


def shard_paths(path: Path, shards: int) -> list[Path]:
    """Return the folders of all shards of a cluster."""
    return [path / f"shard-{number}" for number in range(shards)]


def witness_of(path: Path, part: str) -> Path:
    """Return where the witness of a part of the cluster at `path` lies."""
    absolute = path.absolute()
    return absolute.with_name(absolute.name + ".witnesses") / part


def _write(path: Path, described: dict[str, Any]) -> None:
    """Write a description with its digest: for damage; against an editor there is the ledger."""
    content = {"format": FORMAT, **described, "digest": check_of(described)}
    replace_file(path, json.dumps(content, indent=2).encode())


def _read(path: Path, names: set[str], missing: str) -> dict[str, Any]:
    """Return what a description says.

    Raises InvalidInput with the sentence `missing`, if there is none; or if it has another format.
    Raises StorageFailed if it is damaged.
    """
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        file_format = content.pop("format")
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(missing) from None
    _checks.file_format(path, file_format, FORMAT)
    digest = content.pop("digest", None)
    if set(content) != names or digest != check_of(content):
        raise StoreDamaged(f"{path} is not what was written. Restore a backup.")
    return content
