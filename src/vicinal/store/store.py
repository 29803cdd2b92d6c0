"""The store: private records, subjects' budgets and released answers in one folder, crash-safe.

Order of durability (theory.md, section 7): charge and answer become durable together, then the
answer is returned. See store.md for the contents of the folder.
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
    SHARED_PARAMETERS,
    AudienceState,
    add_audience,
    check_total,
    open_audience_state,
    parse_requested_plan,
    refresh_model,
    serialize_new_plan,
    warned_after,
)
from vicinal.store.base_store import DEFAULT, BaseStore
from vicinal.store.evaluation import CountedRows, charge_people
from vicinal.store.folder import Folder, free_witness
from vicinal.store.opening import OpenStore, create_store, open_folder
from vicinal.store.records import (
    Addition,
    StoredRecords,
    add_records,
    refuse_similar_ids,
    write_naming,
)
from vicinal.store.request_batch import RequestBatch
from vicinal.store.store_schema import StoreExtractor, StoreSchema, new_schema
from vicinal.tabular import check_row_order
from vicinal.targets.target import CLASSES


class Store(BaseStore):
    """Private records in a folder, from which queries are answered by one process at a time.

    Make a store with :meth:`init` or open one with :meth:`open`, as a context manager. All methods
    may be called from several threads, which take turns.

    A failure of the disk or the database closes the store. It gives no answers until it is opened
    again, which recovers the durable state.

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

    def __init__(self, store: OpenStore) -> None:
        self._parts = store
        self._lock = ForkSafeLock()
        self._failed = False
        self._audience_states = {
            name: open_audience_state(store, audience, store.ledger.version, self._lock)[0]
            for name, audience in store.ledger.audiences.items()
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
            Computes features of raw records and queries.
        ids_differ : bool
            As in :meth:`add`.
        ledger : str, optional
            "sqlite" (default), or a postgresql:// URL.
        witness : path, optional
            File of the last commit, by which an old copy of the folder is recognized; default:
            beside the folder.
        epsilon_total : float, optional
            Upper bound on the privacy loss of a subject to all audiences together, at this plan's
            delta: a further filter for each subject counts the charges of every audience. It holds
            even if answers to one audience change the records that answer another. Every audience
            must have `release="votes"`, `accounting="gdp"` and `interactions=1` then, there are
            ten at most, and the store cannot be split. A later audience starts with the remainder
            of the total; subjects with less than 1 - `model_share` of a full budget add nothing to
            a model that is trained once.
        renew : Renewal, optional
            Release budgets and answers in parts, one per period: epsilon, delta and `n_queries`
            are those of all periods together. An audience's model is trained in the first period,
            with nine tenths of that period's part unless `model_share` gives a share of the whole
            budget; `model_refreshes` is 0.
        accept_weak_plan
            Accept a plan with hardly any protection: epsilon (or `epsilon_total`) above 20, or
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
        new_store = NewStore.checked(
            (path, ledger, witness),
            (X, y, subjects),
            public,
            extractor,
            {CLASSES: classes, **plan},
            ids_differ=ids_differ,
            epsilon_total=epsilon_total,
            accept_weak_plan=accept_weak_plan,
            renew=renew,
        )
        return new_store.made()

    @classmethod
    def _create(
        cls,
        folder: Folder,
        schema: StoreSchema,
        records: StoredRecords,
        plan_json: str,
        total: tuple[float, float] | None,
    ) -> Self:
        """Return a new open store in a new folder, with its first records and audience.

        `plan_json`: plan of the audience. `total`: epsilon and delta over all audiences, or None.
        """
        store = cls(create_store(folder, schema))
        try:
            if total is not None:
                with store._changing_data(), store._parts.ledger.change("total"):
                    store._parts.ledger.limit_total(*total, total_budget(*total))
            store._add(records, None)
            with store._changing_data():
                state = add_audience(store._parts, store._lock, DEFAULT, plan_json)
                store._audience_states[DEFAULT] = state
                store._changed()
            folder.save()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: str | Path, *, accept_loss: bool = False, reading: bool = False) -> Self:
        """Open an existing store, after finishing operations that a crash interrupted.

        Parameters
        ----------
        path
            The folder.
        accept_loss
            Open the store although some charges are unknown: all budgets are spent for good, and
            new subjects get none from the existing audiences.
        reading
            Write to no file: refuse a store with an interrupted operation.

        Raises
        ------
        InvalidInput
            If there is no store.
        PrivacyRefused
            If another process has it open; if it is a backup or an old copy, or was split.
        StorageFailed
            If a file or the database is damaged.
        """
        folder = Folder.read(Path(path))
        store = open_folder(folder, accept_loss=accept_loss, reading=reading)
        try:
            return cls(store)
        except BaseException:
            store.resources.close()
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
        """Copy a backup into a new store and open it, if it has the store's last state.

        Parameters as in :meth:`init` and :meth:`open`. Without `accept_loss` PrivacyRefused is
        raised if the witness is missing, or has seen later commits than the backup. With it all
        budgets are spent, so answers to the old audiences are noise, and all subjects that were
        ever erased are erased again.
        """
        witness_path = None if witness is None else Path(witness)
        folder = backups.unpack(
            Path(backup), Path(path), ledger, witness_path, accept_loss=accept_loss
        )
        folder.save()
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
        """Erase subjects from every file; return the number of erased records, which is private.

        When this returns, features, labels and ids are removed from files, logs and free pages. The
        store keeps a keyed hash of each id with the remaining budgets, so that re-enrolment does
        not refill them; a keyed hash of the id without zeros, case and blanks; the answers already
        released; and the weights of private models. Ids that are not enrolled are ignored.

        Raises
        ------
        NoSubjectIds
            If the first records came without ids: every row is a subject of its own then.
        StorageFailed
            If the disk fails, or if the id of an erased subject is found in the database's files
            afterwards. The store must be opened again, which continues the erasure.
        """
        ids = self._erasable(subjects)
        store = self._parts
        with self._exclusive(), self._changing_data(), store.database.delay_log_writes():
            n_erased = erasure.decide_erasure(store.ledger, store.shard, ids)
            self._changed()
            erasure.finish_erasure(store.database, store.record_files, store.witness)
            traces = list(status.find_id_traces(store))
            if traces:
                raise StorageFailed(" ".join(traces))
        return n_erased

    def presence(self, subjects: npt.ArrayLike) -> status.Presence:
        ids = checks.subject_ids("subjects", subjects)
        with self._exclusive():
            return status.Presence.from_standings(self._parts.ledger.find_statuses(set(ids)))

    # ------------------------------------------------------------ answers

    def _batch(self) -> RequestBatch:
        return RequestBatch(self._parts.ledger, self._parts.schema, self._audience_states)

    def _alike(self, subjects: list[SubjectId]) -> int:
        return len(self._parts.ledger.find_similar_unknown_ids(subjects))

    @contextmanager
    def _collect(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> Iterator[Steps]:
        ledger = self._parts.ledger
        with ledger.release(audience):
            yield charge_people(ledger, audience, tally, counted)

    # ------------------------------------------------------------ operation

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        with self._exclusive(looking=True):
            facts = status.public_facts(self._parts, self._audience_states)
            if curator:
                facts["private"] = status.curator_facts(self._parts)
        return facts

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the store into a new folder, for :meth:`restore`."""
        with self._exclusive(looking=True):
            backups.pack(self._parts, Path(path))

    # ------------------------------------------------------------ called with the lock held

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
        """Make earlier queries count as new after a change of the data, and notify the witness."""
        for state in self._audience_states.values():
            state.answers.forget_queries()
        self._parts.mark_change()


@dataclass(frozen=True, eq=False)
class NewStore:
    """A store that can be made: its input is checked, but nothing is written, drawn or charged yet.

    - `place`: folder, URL of the ledger, and file of the witness; the last two may be None.
    - `schema`: public facts of the store.
    - `records`: its first records.
    - `written`: the plan of its first audience, as JSON.
    - `total`: epsilon and delta of the limit over all audiences, or None.
    """

    place: tuple[Path, str | None, Path | None]
    schema: StoreSchema
    records: StoredRecords
    written: str
    total: tuple[float, float] | None

    @classmethod
    def checked(
        cls,
        place: tuple[str | Path, str | None, str | Path | None],
        data: tuple[Any, npt.ArrayLike, npt.ArrayLike | None],
        public: npt.ArrayLike | None,
        extractor: StoreExtractor | None,
        plan: dict[str, Any],
        *,
        ids_differ: bool,
        epsilon_total: float | None,
        accept_weak_plan: bool,
        renew: Renewal | None,
    ) -> Self:
        """Return a new store from checked arguments of :meth:`Store.init`, with its errors.

        `place`: path, ledger and witness. `data`: records, their labels or targets, and subject
        ids. `plan`: all further parameters, with the classes.
        """
        path, ledger, witness = place
        X, y, subjects = data
        folder_path = Path(path)
        witness_path = None if witness is None else Path(witness)
        check_row_order(X, y=y, subjects=subjects)
        schema, X = new_schema(X, public, extractor or StoreExtractor(), plan)
        records = StoredRecords.from_features(schema, X, y, subjects)
        if not checks.check_boolean("ids_differ", ids_differ):
            refuse_similar_ids(len(find_similar_ids(records.ids or ())))
        store_parameters = {*SHARED_PARAMETERS, CLASSES, *schema.target.parameter_names}
        audience_parameters = {
            name: value for name, value in plan.items() if name not in store_parameters
        }
        plan_json = serialize_new_plan(
            schema, audience_parameters, accept_weak=accept_weak_plan, renew=renew
        )
        total = None
        if epsilon_total is not None:
            total = check_total(
                schema, audience_parameters, epsilon_total, accept_weak=accept_weak_plan
            )
        free_witness(folder_path, witness_path)
        return cls((folder_path, ledger, witness_path), schema, records, plan_json, total)

    @property
    def plan(self) -> IndKNNPlan:
        """The requested plan of the first audience."""
        return parse_requested_plan(self.schema, self.written)

    def made(self) -> Store:
        """Write the store and return it open; if that fails, the folder is removed."""
        path, ledger, witness = self.place
        folder = Folder.create(path, ledger, witness)
        store = None
        try:
            with warned_after():
                store = Store._create(folder, self.schema, self.records, self.written, self.total)
        except BaseException:
            if store is None:
                folder.discard()
            else:
                # The store is complete, and a warning was raised as an error: it can be opened.
                store.close()
            raise
        return store
