"""A shard with its own folder: integer tiles, budgets, and a journal of the blocks it has charged.

It is the shard of one machine (:class:`vicinal.predictors.ind_knn._shard.Shard`) on the files and
the ledger of a store. It adds no noise and gives no answers. Order of durability: the charge, and
the votes that it pays for, are durable before the votes leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from vicinal.distributed import _messages as tasks
from vicinal.distributed._folders import ShardFolder
from vicinal.distributed._membership import known_epoch, links_after, member_of, write_epoch
from vicinal.distributed._messages import Message, ShardAnswer, TallyRequest, Task, VoteRequest
from vicinal.distributed._shard_tasks import ShardTasks, another_shard
from vicinal.errors import InvalidInput, StoreOutdated
from vicinal.store._opening import open_folder


class ShardServer(ShardTasks):
    """One shard of a cluster, open: the only process that charges its subjects.

    A failure of the disk closes it. Opened again, it knows what was durable.

    Parameters
    ----------
    parts : OpenStore
        What the folder holds.
    cluster : str
        The id of the cluster that it says it belongs to.

    Examples
    --------
    >>> from vicinal.distributed import ShardServer
    >>> server = ShardServer.open("cluster/shard-0")  # doctest: +SKIP
    >>> server.is_consistent  # doctest: +SKIP
    True
    >>> server.close()  # doctest: +SKIP
    """

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the shard that lies in a folder.

        Raises
        ------
        InvalidInput
            If there is none.
        PrivacyRefused
            StoreOutdated if it is an old copy; StoreInUse if another process has it open.
        StorageFailed
            If a file or the database is damaged.
        """
        parts = open_folder(ShardFolder.read(Path(path)).folder)
        try:
            return cls(parts)
        except BaseException:
            parts.resources.close()
            raise

    def close(self) -> None:
        """Let go of files, database and lock. Closing twice does no harm."""
        with self._lock:
            self._failed = True
            self._parts.resources.close()

    def handle(self, task: Message | Task) -> Any:
        """Do a task of a coordinator: in a message that is for this shard as it is, or unchecked.

        Raises
        ------
        StoreOutdated
            If this shard is another one, or an old copy, or one that ran elsewhere; or if that is
            true of the coordinator. Nothing was done.
        InvalidInput
            If the task needs a message, or is none that this version knows.
        """
        if not isinstance(task, Message):
            if not isinstance(task, tasks.Ping):  # it charges, changes and shows nothing
                raise InvalidInput("The task must come in a message, which says for which shard.")
            return self._do(task)
        with self._serving():
            self._check(task)
        value = self._do(task.task)
        if isinstance(task.task, tasks.ReplaceLedger):  # it must be opened again
            return ShardAnswer(value, ())
        with self._serving():
            return ShardAnswer(value, links_after(self._parts.database, task.known) or ())

    def _do(self, task: Task) -> Any:
        return _METHODS[type(task)](self, task)

    def _check(self, message: Message) -> None:
        """Raise PrivacyRefused unless a message is for this shard, from its coordinator."""
        number, database = message.number, self._parts.database
        mine = (member_of(database), self._parts.folder.identity)
        if mine != ((message.cluster, number), message.shard):
            raise another_shard(number)
        if links_after(database, message.known) is None:
            raise StoreOutdated(
                f"Shard {number} is an old copy, or a copy that ran elsewhere: it never was where "
                "the coordinator saw it last. Nothing was charged. Bring back the folder that "
                "belongs there, or accept the loss, which spends every budget for good."
            )
        epoch = known_epoch(database) or message.epochs[0]
        if message.clock < self._journal.clock or epoch not in message.epochs:
            raise StoreOutdated(
                f"The coordinator is an old copy, or another one has asked shard {number} since. "
                "Nothing was charged. Bring back the coordinator that belongs to the shards."
            )
        if known_epoch(database) != message.epochs[-1]:
            with self._durable():
                write_epoch(database, message.epochs[-1])
                self._journal.begin_epoch()
            self._staging.end()


_METHODS: Mapping[type, Callable[[ShardServer, Any], Any]] = {
    VoteRequest: ShardServer.charge_and_sum,
    TallyRequest: ShardServer.charge_and_sum,
    tasks.SearchAhead: ShardServer.search_ahead,
    tasks.DeleteVotes: ShardServer.delete_votes,
    tasks.Add: ShardServer.add,
    tasks.Stage: ShardServer.stage,
    tasks.IsStaging: ShardServer.is_staging,
    tasks.AddStaged: ShardServer.add_staged,
    tasks.Erase: ShardServer.erase,
    tasks.OpenAudience: ShardServer.open_audience,
    tasks.Ping: ShardServer.ping,
    tasks.KnownSubjects: ShardServer.known,
    tasks.Verify: ShardServer.verify,
    tasks.Facts: ShardServer.facts,
    tasks.Backup: ShardServer.backup,
    tasks.ReadLedger: ShardServer.read_ledger,
    tasks.ReplaceLedger: ShardServer.replace_ledger,
}
