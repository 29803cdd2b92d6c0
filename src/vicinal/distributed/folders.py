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

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from vicinal.ledger.files import replace_file
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.folder import KEY, Folder, private_folder, refuse_links

MOST_SHARDS = 1024
COORDINATOR = "coordinator"
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
        for folder in (path.parent, path, witness.parent.resolve()):
            private_folder(folder)
        replace_file(path / KEY, key)
        return cls(Folder(path, fresh_key(16).hex(), "sqlite", witness.absolute()), cluster)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the folder of a shard that is there, or raise InvalidInput."""
        kinds = dict.fromkeys(("id", "cluster", "witness"), str)
        content = read_sealed(path / _SHARD, FORMAT, kinds, f"There is no shard at {path}.")
        folder = Folder(path, content["id"], "sqlite", Path(content["witness"]))
        return cls(folder, content["cluster"])

    def save(self) -> None:
        """Write who it is, which makes the folder a part of the cluster."""
        witness = str(self.folder.witness)
        content = {"id": self.folder.identity, "cluster": self.cluster, "witness": witness}
        write_sealed(self.folder.path / _SHARD, FORMAT, content)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """What is public about a cluster.

    - `identity`: the cluster's id, in hexadecimal digits.
    - `shards`: how many there are.
    - `source`: folder of the store that its budgets come from; empty once that has retired.
    """

    identity: str
    shards: int
    source: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the cluster that lies at `path`, or raise InvalidInput."""
        refuse_links(path)
        missing = f"There is no cluster at {path}."
        kinds = {"identity": str, "shards": int, "source": str}
        return cls(**read_sealed(path / _CLUSTER, FORMAT, kinds, missing))

    def folders(self, path: Path) -> list[Path]:
        """Return the folders of all shards of the cluster at `path`."""
        return shard_paths(path, self.shards)

    def save(self, path: Path) -> None:
        write_sealed(path / _CLUSTER, FORMAT, asdict(self))


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
    """Return where all shards of a cluster lie."""
    return [path / f"shard-{number}" for number in range(shards)]


def witness_of(path: Path, part: str) -> Path:
    """Return where the witness of a part of the cluster at `path` lies."""
    absolute = path.absolute()
    return absolute.with_name(absolute.name + ".witnesses") / part
