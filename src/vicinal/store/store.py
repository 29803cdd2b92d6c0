"""The store: private records on disk, budgets that outlive the process, answers that are paid for.

Order of durability (theory.md, section 7): charge and answer become durable together, then the
answer is returned. See store.md for what a reader of the folder finds where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from vicinal import checks
from vicinal.arrays import Steps
from vicinal.checks import SubjectId
from vicinal.errors import StorageFailed
from vicinal.ledger.audiences import Audience
from vicinal.ledger.id_encoding import find_similar_ids
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import Renewal
from vicinal.mechanisms.tally import NoisyTally
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.guarantees import total_budget
from vicinal.planning.plan import IndKNNPlan
from vicinal.store import backups, erasure, status
from vicinal.store.audience_state import (
    SHARED,
    AudienceState,
    add_audience,
    checked_total,
    new_plan,
    open_audience_state,
    refresh_model,
    requested_plan,
    warned_after,
)
from vicinal.store.base_store import DEFAULT, BaseStore
from vicinal.store.evaluation import CountedRows, charge_people
from vicinal.store.folder import Folder, free_witness
from vicinal.store.opening import OpenStore, create_store, open_folder
from vicinal.store.records import Addition, StoredRecords, add_records, refuse_alike, write_naming
from vicinal.store.request_batch import RequestBatch
from vicinal.store.store_schema import StoreExtractor, StoreSchema, new_schema
from vicinal.tabular import check_row_order
from vicinal.targets.target import CLASSES


class Store(BaseStore):
    """A folder that answers from private records, one process at a time.

    Make one with :meth:`init`, open one with :meth:`open`; use it as a context manager. All methods
    may be called from several threads, which take turns.

    A failure of the disk or the database closes the store: it answers nothing any more, until it
    is opened again and finds out what had become durable.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import Store
    >>> rng = np.random.default_rng(0)
    >>> X, y, R = rng.normal(size=(500, 3)), rng.integers(0, 2, 500), rng.normal(size=(80, 3))
    >>> plan = {"n_queries": 20, "n_records": 500}
    >>> with Store.init("store", X, y, classes=[0, 1], public=R, **plan) as store:
    ...     reply = store.predict([[0.5, 0.1, -0.3]])
    >>> reply.charged, reply.left
    (1, 19)
    """

    _kind = "store"

    def __init__(self, parts: OpenStore) -> None:
        self._parts = parts
        self._lock = ForkSafeLock()
        self._failed = False
        self._audience_states = {
            name: open_audience_state(parts, audience, parts.ledger.version, self._lock)[0]
            for name, audience in parts.ledger.audiences.items()
        }

    # ------------------------------------------------------------ making and opening

    @classmethod
    def init(
        cls,
        path: str | Path,
        X: Any,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        *,
        classes: Sequence[Any] | None = None,
        public: npt.ArrayLike | None = None,
        extractor: StoreExtractor | None = None,
        ids_differ: bool = False,
        ledger: str | None = None,
        witness: str | Path | None = None,
        epsilon_total: float | None = None,
        renew: Renewal | None = None,
        accept_weak_plan: bool = False,
        **plan: Any,
    ) -> Store:
        """Make a store with records and one audience, :data:`DEFAULT`, and return it open.

        Parameters
        ----------
        path
            A new folder.
        X, y, subjects
            Private records, labels and subject ids, as for
            :meth:`~vicinal.predictors.IndKNNClassifier.fit`; `X` raw if there is an extractor. The
            store keeps the names of a table's columns, and matches later tables by them.
        classes
            As for :class:`~vicinal.predictors.IndKNNClassifier`; for all audiences. In place of it
            a store of numbers has `bounds` (`scale`, `typical_range`) of
            :class:`~vicinal.predictors.IndKNNRegressor`, and one of several labels has `labels`
            (`tau`) of :class:`~vicinal.predictors.IndKNNMultiLabelClassifier`.
            Replies are :class:`NumberReply` and :class:`LabelSetReply` then.
        public : array (m, d), optional
            Public reference, features (after extraction).
        extractor : StoreExtractor, optional
            What makes features of raw records and queries.
        ids_differ : bool
            As of :meth:`add`.
        ledger : str, optional
            "sqlite" (default), or a postgresql:// URL.
        witness : path, optional
            Where to remember how far the store had come; default: beside the folder.
        epsilon_total : float, optional
            The most that a subject can lose to all audiences together, at this plan's delta: one
            more filter for each subject, which counts the charges of every audience. It holds even
            if answers to one audience change records that answer another. Every audience is planned
            with `release="votes"`, `accounting="gdp"` and `interactions=1` then, ten at most; the
            store cannot be split. A late audience starts with what the total leaves; who has less
            than 1 - `model_share` of a full budget adds nothing to a model that is trained once.
        renew : Renewal, optional
            Let budgets and answers come in parts, one a period: epsilon, delta and `n_queries` are
            of all periods together. An audience's model is trained in its first period, with nine
            tenths of that unless `model_share` says what of the whole; `model_refreshes` is 0.
        accept_weak_plan
            Accept a plan that protects hardly anybody: epsilon (or `epsilon_total`) above 20, or
            delta above 1/n for the declared `n_records`.
        **plan
            Further parameters of :class:`~vicinal.predictors.IndKNNClassifier`: `epsilon`,
            `delta`, `n_queries` and so on; `kernel`, `norm_bound` and `index` are for all
            audiences.

        Raises
        ------
        InvalidInput, PrivacyRefused
            Before anything is written.
        """
        return NewStore.checked(
            (path, ledger, witness), (X, y, subjects), public, extractor,
            {CLASSES: classes, **plan}, ids_differ=ids_differ, epsilon_total=epsilon_total,
            accept_weak_plan=accept_weak_plan, renew=renew,
        ).made()  # fmt: skip

    @classmethod
    def _filled(
        cls, folder: Folder, schema: StoreSchema, records: StoredRecords, plan: str,
        total: tuple[float, float] | None,
    ) -> Self:  # fmt: skip
        store = cls(create_store(folder, schema))
        try:
            if total is not None:
                with store._changing_data(), store._parts.ledger.change("total"):
                    store._parts.ledger.limit_total(*total, total_budget(*total))
            store._add(records, None)
            with store._changing_data():
                state = add_audience(store._parts, store._lock, DEFAULT, plan)
                store._audience_states[DEFAULT] = state
                store._changed()
            folder.save()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: str | Path, *, accept_loss: bool = False, reading: bool = False) -> Self:
        """Open a store that is there, after finishing what a crash has left undone.

        Parameters
        ----------
        path
            The folder.
        accept_loss
            Go on although it is not known what was charged: every budget is spent, for good, and
            newcomers get none from the audiences that there are.
        reading
            Write nothing, to no file: refuse a store in which a command was broken off.

        Raises
        ------
        InvalidInput
            If there is no store.
        PrivacyRefused
            If another process has it open; if it is a backup or an old copy, or was split.
        StorageFailed
            If a file or the database is damaged.
        """
        parts = open_folder(Folder.read(Path(path)), accept_loss=accept_loss, reading=reading)
        try:
            return cls(parts)
        except BaseException:
            parts.resources.close()
            raise

    @classmethod
    def restore(
        cls,
        backup: str | Path,
        path: str | Path,
        *,
        ledger: str | None = None,
        witness: str | Path | None = None,
        accept_loss: bool = False,
    ) -> Self:
        """Make a store of a backup and open it; refused unless it is known to be the last state.

        Parameters as in :meth:`init` and :meth:`open`. Refused without `accept_loss` if the
        witness is missing, or further than the backup. What `accept_loss` restores answers no
        more than noise for the old audiences; those ever erased are erased again.
        """
        place = None if witness is None else Path(witness)
        from_backup = Path(backup), Path(path), ledger, place
        backups.unpack(*from_backup, accept_loss=accept_loss).save()
        return cls.open(path, accept_loss=accept_loss)

    def close(self) -> None:
        with self._lock:
            self._failed = True
            self._parts.resources.close()

    # ------------------------------------------------------------ the data

    def _add(self, records: StoredRecords, addition: Addition | None) -> None:
        database, ledger = self._parts.database, self._parts.ledger
        with self._changing_data():
            with ledger.change("add"):
                if addition is not None:
                    addition.write(database, ledger.version + 1)
                write_naming(database, by_holder=records.ids is not None)
                add_records(self._parts, records)
            self._changed()

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file; return how many records went, which is private.

        When this returns, features, labels and ids are gone from files, logs and free pages. What
        stays is a keyed hash of each id with what was left of its budgets, so that coming back
        does not refill them, one of the id without zeros, case and blanks, the answers already
        released, and the weights of private models.
        Ids that are not there are passed over.

        Raises
        ------
        NoSubjectIds
            If the first records came without ids: every row is a person of its own then.
        StorageFailed
            If the disk fails, or if an id of somebody who left is found in the database's files
            after all. The store must be opened again, which goes on with the erasure.
        """
        ids, parts = self._erasable(subjects), self._parts
        with self._exclusive(), self._changing_data(), parts.database.scrubbed_soon():
            n_erased = erasure.decide_erasure(parts.ledger, parts.shard, ids)
            self._changed()
            erasure.finish_erasure(parts.database, parts.record_files, parts.witness)
            if remains := list(status.find_id_traces(parts)):
                raise StorageFailed(" ".join(remains))
        return n_erased

    def presence(self, subjects: npt.ArrayLike) -> status.Presence:
        ids = checks.subject_ids("subjects", subjects)
        with self._exclusive():
            return status.Presence.of(self._parts.ledger.standings(set(ids)))

    # ------------------------------------------------------------ answers

    def _batch(self) -> RequestBatch:
        return RequestBatch(self._parts.ledger, self._parts.schema, self._audience_states)

    def _alike(self, subjects: list[SubjectId]) -> int:
        return len(self._parts.ledger.alike(subjects))

    @contextmanager
    def _collect(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> Iterator[Steps]:
        ledger = self._parts.ledger
        with ledger.release(audience):
            yield charge_people(ledger, audience, tally, counted)

    # ------------------------------------------------------------ care

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        with self._exclusive(looking=True):
            facts = status.public_facts(self._parts, self._audience_states)
            if curator:
                facts["private"] = status.curator_facts(self._parts)
        return facts

    def backup(self, path: str | Path) -> None:
        """Write everything into a new folder, as it is at one moment, for :meth:`restore`."""
        with self._exclusive(looking=True):
            backups.pack(self._parts, Path(path))

    # ------------------------------------------------------------ inside

    def _refresh(self, state: AudienceState) -> None:
        name = state.audience.name
        with self._changing_data():
            self._audience_states[name] = refresh_model(self._parts, self._lock, state)
            self._changed()

    def _open_audience(self, name: str, written: str) -> None:
        with warned_after(), self._changing_data():
            self._audience_states[name] = add_audience(self._parts, self._lock, name, written)
            self._changed()

    def _verify(self, erased: list[SubjectId], rows: IntegerMatrix | None) -> status.Verification:
        return status.verify(self._parts, erased, rows)

    def _changed(self) -> None:
        """Look up nothing of earlier versions, and tell the witness."""
        for state in self._audience_states.values():
            state.answers.forget_queries()
        self._parts.mark_change()


@dataclass(frozen=True, eq=False)
class NewStore:
    """A store that could be made: all is checked, and nothing of it is written, drawn or charged.

    `place`: folder, ledger and witness. `written`: the plan of its first audience, as JSON.
    `total`: epsilon and delta of all audiences together, if they are limited.
    """

    place: tuple[Path, str | None, Path | None]
    schema: StoreSchema
    records: StoredRecords
    written: str
    total: tuple[float, float] | None

    @classmethod
    def checked(
        cls, place: tuple[str | Path, str | None, str | Path | None],
        data: tuple[Any, npt.ArrayLike, npt.ArrayLike | None],
        public: npt.ArrayLike | None, extractor: StoreExtractor | None, plan: dict[str, Any], *,
        ids_differ: bool, epsilon_total: float | None, accept_weak_plan: bool,
        renew: Renewal | None,
    ) -> Self:  # fmt: skip
        """Check everything that :meth:`Store.init` takes, with its errors.

        `place`: path, ledger and witness. `data`: records, what they carry, and subjects.
        """
        (path, ledger, witness), (X, y, subjects) = place, data
        where = Path(path), ledger, None if witness is None else Path(witness)
        check_row_order(X, y=y, subjects=subjects)
        schema, X = new_schema(X, public, extractor or StoreExtractor(), plan)
        records = StoredRecords.of(schema, X, y, subjects)
        refuse_alike(
            0
            if checks.check_boolean("ids_differ", ids_differ)
            else len(find_similar_ids(records.ids or ()))
        )
        shared = {*SHARED, CLASSES, *schema.target.own}
        own = {name: value for name, value in plan.items() if name not in shared}
        written = new_plan(schema, own, accept_weak=accept_weak_plan, renew=renew)
        total = None
        if epsilon_total is not None:
            total = checked_total(schema, own, epsilon_total, accept_weak=accept_weak_plan)
        free_witness(where[0], where[2])
        return cls(where, schema, records, written, total)

    @property
    def plan(self) -> IndKNNPlan:
        return requested_plan(self.schema, self.written)

    def made(self) -> Store:
        folder = Folder.create(*self.place)
        store = None
        try:
            with warned_after():
                store = Store._filled(folder, self.schema, self.records, self.written, self.total)
        except BaseException:
            if store is None:
                folder.discard()
            else:  # it is made, and warnings are errors: it can be opened
                store.close()
            raise
        return store
