"""The folders of a cluster and the descriptions that assign coordinator and shards to it.

=================  =============================================================================
cluster.json       the number of shards; written last, so an incomplete cluster has none
coordinator/       a store without records: plans, answers, quotas, idempotency keys
shard-0/ ...       records, budgets and the journal of charged blocks; may be on other machines
NAME.witnesses/    beside the cluster: the last state of each folder; not in its backups
=================  =============================================================================

None of these folders can be opened as a store: a shard that answered alone would spend budgets on
votes that are never summed. Everywhere in this module, `cluster` is the id of the cluster in
hexadecimal digits.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from vicinal.ledger.files import replace_file
from vicinal.ledger.sealed_files import read_sealed, write_sealed
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.folder import KEY, Folder, create_private_folder, refuse_links

MAX_SHARDS = 1024
"""Largest number of shards of a cluster."""

COORDINATOR = "coordinator"
"""Name of the coordinator's folder."""

_CLUSTER_FILE = "cluster.json"
_MEMBER_FILE = "shard.json"
FORMAT = 1
"""The format of `cluster.json` and `shard.json`."""


@dataclass(frozen=True, slots=True)
class MemberFolder:
    """The folder of a shard or of the coordinator, with its path, id and witness."""

    folder: Folder
    cluster: str

    @classmethod
    def create(cls, path: Path, cluster: str, key: bytes, witness: Path) -> Self:
        """Create the folder `path` without `shard.json`, and return it with a new id.

        `key`: secret key of all keyed hashes, which all folders of a cluster share. `witness`: path
        of the witness file.
        """
        for folder in (path.parent, path, witness.parent.resolve()):
            create_private_folder(folder)
        replace_file(path / KEY, key, owner=os.geteuid())
        return cls(Folder(path, fresh_key(16).hex(), "sqlite", witness.absolute()), cluster)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the member folder at `path` from its `shard.json`; raise InvalidInput if none."""
        kinds = dict.fromkeys(("id", "cluster", "witness"), str)
        content = read_sealed(path / _MEMBER_FILE, FORMAT, kinds, f"There is no shard at {path}.")
        folder = Folder(path, content["id"], "sqlite", Path(content["witness"]))
        return cls(folder, content["cluster"])

    def save(self) -> None:
        """Write `shard.json`, which makes the folder a member of the cluster."""
        witness = str(self.folder.witness)
        content = {"id": self.folder.identity, "cluster": self.cluster, "witness": witness}
        write_sealed(self.folder.path / _MEMBER_FILE, FORMAT, content)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The content of `cluster.json`; public."""

    identity: str  # id of the cluster, in hexadecimal digits
    shards: int  # number of shards
    source: str = ""  # folder of the store that was split; empty once it is closed for good

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the description of the cluster at `path`; raise InvalidInput if there is none."""
        refuse_links(path)
        missing = f"There is no cluster at {path}."
        kinds = {"identity": str, "shards": int, "source": str}
        return cls(**read_sealed(path / _CLUSTER_FILE, FORMAT, kinds, missing))

    def save(self, path: Path) -> None:
        """Write the description into the folder `path`."""
        write_sealed(path / _CLUSTER_FILE, FORMAT, asdict(self))


def is_cluster(path: Path) -> bool:
    """Return whether there is a cluster at `path`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal.distributed import is_cluster
    >>> is_cluster(Path("nothing-here"))
    False
    """
    return (path / _CLUSTER_FILE).is_file()


def list_shard_folders(path: Path, n_shards: int) -> list[Path]:
    """Return the folders of the `n_shards` shards of a cluster at `path`, by number."""
    return [path / f"shard-{number}" for number in range(n_shards)]


def get_witness_path(path: Path, member: str) -> Path:
    """Return the path of the witness file of a member of the cluster at `path`.

    `member`: name of the member's folder, such as :data:`COORDINATOR` or "shard-0".
    """
    absolute = path.absolute()
    return absolute.with_name(absolute.name + ".witnesses") / member
