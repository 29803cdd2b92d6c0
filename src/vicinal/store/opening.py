"""Opening a store's folder: lock, check, finish interrupted operations, load.

The *witness* is the rollback guard, a file outside the folder with the store's last commit. It is
written after the ledger's commit, so an interruption at any moment leaves one of these states.

=====================  ===========================================================================
state of the ledger    effect of opening
=====================  ===========================================================================
ahead of the witness   continues: the later charges and changes were committed, but not reported
has an erasure         the erasure was decided: it is finished
accepted a loss        continues, if the loss is that of this witness: all budgets are spent
is retired             its budgets moved to a cluster: only that cluster opens it, for the split
any other              refused, until the loss is accepted
=====================  ===========================================================================

A store that is opened for reading is refused instead of finished: no file is written then.

Everywhere in this module, `folder` is that of the store, `database` that of its ledger, and `state`
the content of the witness. `resources` gets the callbacks that close files and release locks;
`read_only` means that nothing is written, so that files and folders are accepted that this process
may not write; `allow_excess` allows rows of the record files beyond the committed ones, which an
interrupted operation left; and `accept_loss` opens a store that may lack charges, with all budgets
spent.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal import checks
from vicinal.engine.shard import Shard
from vicinal.errors import DamagedWitness, PrivacyRefused, StoreDamaged, StoreInUse, StoreOutdated
from vicinal.ledger.audiences import find_budget_faults
from vicinal.ledger.database import Database, has_commit
from vicinal.ledger.files import Lock, translate_os_errors
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.renewal import RENEWAL
from vicinal.ledger.rollback_guard import RollbackGuard, WitnessState
from vicinal.ledger.tables import FORMAT
from vicinal.planning.parameter_tables import create_index_factory
from vicinal.store import erasure
from vicinal.store.folder import KEY, RECORDS, Folder, refuse_links
from vicinal.store.record_files import (
    OTHER_RECORDS,
    RecordFiles,
    check_file_digests,
    find_file_faults,
    slots_match_enrolment,
    write_file_digests,
)
from vicinal.store.store_schema import StoreSchema

LOSS_ACCEPTED = "loss accepted"
"""Kind of change in the history, and database key of the hash of the witness's last commit, whose
charges were accepted as lost."""

RETIRED_FOR = "retired"
"""Database key of the identity of the cluster to which the budgets of a retired store moved."""


@dataclass(frozen=True, eq=False)
class OpenStore:
    """All components of an open store.

    - `folder`: location and identity.
    - `database`: that of the ledger.
    - `witness`: the rollback guard, a file with the last commit.
    - `schema`: public facts that all audiences share.
    - `ledger`: subjects, audiences and budgets.
    - `record_files`: features, labels and slots of all records.
    - `shard`: the records in memory, with their index.
    - `resources`: closes files and database, and releases locks.
    """

    folder: Folder
    database: Database
    witness: RollbackGuard
    schema: StoreSchema
    ledger: Ledger
    record_files: RecordFiles
    shard: Shard
    resources: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resources.close()

    def report_commit(self) -> None:
        """Report the ledger's last commit to the witness."""
        self.witness.record_commit(*self.ledger.last_commit)

    @contextmanager
    def report_commits_at_end(self) -> Iterator[None]:
        """Report the commits of the body to the witness when the body ends, also with an error."""
        try:
            yield
        finally:
            # An open transaction means that its commit was interrupted: it is rolled back.
            if not self.database.in_transaction:
                self.report_commit()

    def report_change(self) -> None:
        """Report the ledger's last commit and its audiences to the witness, durably."""
        # If the ledger is inconsistent, memory may have audiences that were never committed.
        if self.ledger.is_consistent:
            self.witness.add_audiences(self.ledger.audiences, self.ledger.clock)
        self.report_commit()
        self.witness.sync()


def create_store(folder: Folder, schema: StoreSchema) -> OpenStore:
    """Write a new, empty store into a folder from :meth:`Folder.create`, and return it open."""
    with ExitStack() as resources:
        database = _open_database(folder, resources, create=True)
        refuse_used_database(database)
        ledger = Ledger.create(database, folder.read_key())
        schema.save_arrays(folder.path)
        with database.transaction():
            database.put("identity", folder.identity)
            database.put("schema", schema.to_json())
            write_file_digests(database, folder.path)
        record_files = RecordFiles(folder.path / RECORDS, schema, create=True)
        resources.callback(record_files.close)
        witness = _create_witness(folder, database, resources)
        _finish_interrupted(ledger, record_files, witness)
        return _load_store(folder, witness, schema, ledger, record_files, resources)


def open_folder(
    folder: Folder,
    *,
    accept_loss: bool = False,
    read_only: bool = False,
    cluster: str | None = None,
    check: Callable[[Database], object] = lambda _: None,
) -> OpenStore:
    """Return the open store of a folder, after finishing interrupted operations.

    Everything is checked before anything is written: a refused store is not changed.

    `read_only`: also refuse a store with an interrupted operation, and accept no loss. `cluster`:
    identity of the only cluster that may open a retired store, to finish the split. `check`: a
    further check of the database, which raises its own errors. Raises PrivacyRefused if another
    process has the store open, or if it is behind its witness and `accept_loss` is False. Raises
    StorageFailed if a file or the database is damaged.
    """
    with ExitStack() as resources:
        database = _open_database(folder, resources, read_only=read_only)
        accept_loss = accept_loss and not read_only
        with translate_os_errors(folder.witness):
            witness_exists = folder.witness.is_file()
        witness = _open_witness(
            folder,
            database,
            resources,
            exists=witness_exists,
            accept_loss=accept_loss,
            read_only=read_only,
        )
        ledger = _load_ledger(folder, database)
        check(database)
        if database.get(RETIRED_FOR) not in (None, cluster):
            raise StoreOutdated(
                "The store was split: its budgets now belong to its cluster, which answers. "
                "Delete this folder once the cluster is backed up."
            )
        is_current = witness is not None and _is_current(
            database, witness.state, accept_loss=accept_loss
        )
        schema = StoreSchema.load(database.get("schema") or "", folder.path)
        record_files = RecordFiles(folder.path / RECORDS, schema, accept_unwritable=read_only)
        resources.callback(record_files.close)
        is_erasing = database.get(erasure.PENDING) is not None
        if not is_erasing:
            _check_records(database, record_files, allow_excess=True)
        if witness is None or not read_only:
            database.recover()
            witness = witness or _create_witness(
                folder, database, resources, overwrite=witness_exists, owner=folder.read_owner()
            )
            if not is_current:
                _accept_loss(ledger, record_files, witness)
            _finish_interrupted(ledger, record_files, witness)
        else:
            pending = _list_pending(ledger, record_files, witness.state)
            if pending:
                raise create_interrupted_error(*pending)
        return _load_store(folder, witness, schema, ledger, record_files, resources)


def _load_ledger(folder: Folder, database: Database) -> Ledger:
    """Return the ledger of a database, after checking it, its budgets and the folder's small files.

    Raises StoreDamaged if one of these is damaged; InvalidInput if the ledger has another format.
    """
    if list(database.find_faults()):
        raise StoreDamaged("The ledger's database is damaged. Restore a backup.")
    if database.get("identity") != folder.identity:
        raise StoreDamaged("The ledger's database belongs to another store.")
    checks.check_file_format("The ledger", database.get_integer("format"), FORMAT)
    check_file_digests(database, folder.path, [KEY])  # first, because digests of rows need the key
    ledger = Ledger(database, folder.read_key())
    check_file_digests(database, folder.path)
    unused_slots = ledger.slot_table.find_unused()
    for audience in ledger.accounts:
        faults = list(find_budget_faults(database, audience, unused_slots))
        if faults:
            raise StoreDamaged(" ".join([*faults, "Restore a backup."]))
    return ledger


def refuse_used_database(database: Database) -> None:
    """Raise PrivacyRefused if a database for a new ledger has tables already."""
    if database.read_columns():
        raise PrivacyRefused(
            "The database for the ledger must be empty. It belongs to another store, or an "
            "interrupted command left it. In that case, drop its tables."
        )


def _check_records(
    database: Database, record_files: RecordFiles, *, allow_excess: bool = False
) -> None:
    """Raise StoreDamaged if the record files do not agree with the ledger's `database`."""
    size = database.get_integer("records")
    faults = find_file_faults(database, record_files, size, allow_excess=allow_excess)
    if not faults and not slots_match_enrolment(database, record_files, size):
        faults = [OTHER_RECORDS]
    if faults:
        raise StoreDamaged(" ".join([*faults, "Restore a backup."]))


def _open_database(
    folder: Folder, resources: ExitStack, *, create: bool = False, read_only: bool = False
) -> Database:
    """Return the database, which is created if `create`; lock it and the folder for this process.

    Raises StoreInUse if another process has locked them.
    """
    refuse_links(folder.path)
    lock = Lock(folder.path / "lock", owner=folder.read_owner(), accept_unwritable=read_only)
    resources.callback(lock.release)
    database = folder.connect(create=create)
    resources.callback(database.close)
    if not database.lock():
        raise StoreInUse(
            "Another process has this ledger open; two could spend the same budgets. Close that "
            "one first."
        )
    return database


def _open_witness(
    folder: Folder,
    database: Database,
    resources: ExitStack,
    *,
    exists: bool,
    accept_loss: bool,
    read_only: bool,
) -> RollbackGuard | None:
    """Return the witness, locked; None with `accept_loss` if it is missing or damaged.

    `exists`: whether the file of the witness exists. Without `accept_loss` StoreOutdated is raised
    for a missing witness, DamagedWitness for a damaged one.
    """
    if not exists:
        if not accept_loss:
            raise _create_outdated_error(f"Its witness {folder.witness} is missing.")
        return None
    try:
        witness = RollbackGuard(
            folder.witness,
            bytes.fromhex(folder.identity),
            database.check_committed,
            accept_unwritable=read_only,
        )
    except DamagedWitness:
        if not accept_loss:
            raise
        return None
    resources.callback(witness.close)
    return witness


def _create_witness(
    folder: Folder,
    database: Database,
    resources: ExitStack,
    *,
    overwrite: bool = False,
    owner: int | None = None,
) -> RollbackGuard:
    """Create a witness and return it, locked; `overwrite`: replace a damaged one.

    `owner`: user id of the owner of an existing store whose witness is missing.
    """
    identity = bytes.fromhex(folder.identity)
    witness = RollbackGuard.create(
        folder.witness, identity, database.check_committed, replace_existing=overwrite, owner=owner
    )
    resources.callback(witness.close)
    return witness


def _is_current(database: Database, state: WitnessState, *, accept_loss: bool) -> bool:
    """Return whether a ledger continues the witness's last commit, or has accepted its loss.

    Raises StoreOutdated if neither holds, unless `accept_loss`.
    """
    is_current = (
        has_commit(database, state.clock, state.head)
        or database.get(LOSS_ACCEPTED) == state.head.hex()
    )
    if not is_current and not accept_loss:
        is_behind = database.get_integer("clock") < state.clock
        reason = "more was charged than it knows of" if is_behind else "its history differs"
        raise _create_outdated_error(f"It is an old copy, or a copy that ran elsewhere: {reason}.")
    return is_current


_CHANGES = {
    "add": "an addition of records",
    "audience": "a new audience",
    "erase": "an erasure",
    LOSS_ACCEPTED: "an accepted loss",
    "model": "a new audience with a model",
    "refresh": "a refreshed model",
    RENEWAL: "a new period",
    "split": "a split into shards",
    "total": "a limit on all audiences together",
}
"""Descriptions of the changes in the history, by kind."""


def create_interrupted_error(*pending: str) -> PrivacyRefused:
    """Return the error for a store that is opened for reading after an interrupted operation.

    `pending`: kinds of changes, as in the history, or descriptions of other unfinished work.
    """
    descriptions = ", ".join(dict.fromkeys(_CHANGES.get(kind, kind) for kind in pending))
    outcome = "" if LOSS_ACCEPTED in pending else " Nothing was lost."
    return PrivacyRefused(
        f"A command was interrupted here.{outcome} To be completed: {descriptions}. This command "
        "only reads. In a writable folder, vicinal serve, predict or backup completes it. "
        "Repeat the interrupted command only if the history of vicinal inspect lacks its change."
    )


def _list_pending(ledger: Ledger, record_files: RecordFiles, state: WitnessState) -> list[str]:
    """Return the kinds, or descriptions, of all changes that an interruption left unfinished."""
    database = ledger.database
    pending = ["erase"] if database.get(erasure.PENDING) is not None else []
    if ledger.last_commit != (state.clock, state.head):
        query = "SELECT what FROM history WHERE clock > ? ORDER BY clock"
        kinds = [kind for (kind,) in database.read(query, (state.clock,))]
        if LOSS_ACCEPTED in kinds:
            kinds = [LOSS_ACCEPTED]  # the new witness lacks all earlier changes, which are complete
        pending += kinds or ["a commit of answers, charges or a quota"]
    if not pending and record_files.are_longer_than(database.get_integer("records")):
        pending.append("the removal of records that were not added")
    return pending


def _create_outdated_error(reason: str) -> StoreOutdated:
    """Return the error for a store that may lack charges. `reason`: a sentence with the cause."""
    return StoreOutdated(
        f"The store cannot tell what has been charged. {reason} Bring back what belongs to it, or "
        "accept the loss, which spends every unknown budget for good."
    )


def _finish_interrupted(ledger: Ledger, record_files: RecordFiles, witness: RollbackGuard) -> None:
    """Finish a pending erasure, truncate uncommitted rows, and bring the witness up to date.

    The new epoch keeps a store that opened the witness earlier from writing it any more.
    """
    database = ledger.database
    witness.begin_epoch(*ledger.last_commit)
    is_erasing = database.get(erasure.PENDING) is not None
    erasure.finish_erasure(database, record_files, witness)
    record_files.truncate(database.get_integer("records"))
    if is_erasing:
        _check_records(database, record_files)
    witness.add_audiences(ledger.audiences, ledger.clock)
    witness.record_commit(*ledger.last_commit)
    witness.sync()


def _load_store(
    folder: Folder,
    witness: RollbackGuard,
    schema: StoreSchema,
    ledger: Ledger,
    record_files: RecordFiles,
    resources: ExitStack,
) -> OpenStore:
    """Load all records into memory; return the open store, which closes `resources` from now on."""
    database = ledger.database
    size = database.get_integer("records")
    index = create_index_factory(schema.index)
    shard = Shard(schema.create_kernel(), schema.width, index, ledger)
    targets = schema.target.decode_rows(record_files.labels.map_rows(size))
    slots = record_files.read_slots(size)
    shard.load_enrolled(record_files.read_feature_chunks(size), targets, slots)
    return OpenStore(
        folder, database, witness, schema, ledger, record_files, shard, resources.pop_all()
    )


def _accept_loss(ledger: Ledger, record_files: RecordFiles, witness: RollbackGuard) -> None:
    """Spend all budgets, and repeat all erasures that the witness has recorded, in one commit.

    The commit contains the last commit of the witness, which is updated afterwards: after an
    interruption in between, the next opening recognizes the accepted loss and continues.
    """
    database = ledger.database
    lost = witness.state
    # Only one erasure can be pending, and a new one may follow below.
    erasure.finish_erasure(database, record_files, witness)
    _check_records(database, record_files, allow_excess=True)
    # All erasures that the witness has recorded are repeated, because a diverging copy gives no
    # information on which of them it contains.
    erased_hashes = lost.erased
    entries = ledger.slot_table.iterate_slots() if erased_hashes else ()
    erased_again = [subject for subject, _ in entries if ledger.hash_id(subject) in erased_hashes]
    slots, hashes, folded = ledger.list_enrolled(erased_again)
    size = database.get_integer("records")
    slot_of_row = record_files.read_slots(size)
    rows = np.flatnonzero(np.isin(slot_of_row, slots))
    ledger.clock = max(ledger.clock, lost.clock)
    with ledger.change(LOSS_ACCEPTED):
        ledger.spend_all_budgets()
        ledger.record_lost_audiences(lost.audiences)
        database.put(LOSS_ACCEPTED, lost.head.hex())
        if erased_again:
            ledger.erase_slots(slots, hashes, folded)
            erasure.write_erasure(ledger, rows, slot_of_row[rows], size, hashes)
    ledger.complete_change()  # after an interruption here no change is left open
