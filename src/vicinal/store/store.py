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
from vicinal.ledger.ledger import EnrollmentStatus
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import Renewal
from vicinal.mechanisms.tally import NoisyTally
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.guarantees import compute_total_budget
from vicinal.planning.plan import IndKNNPlan
from vicinal.store import backups, erasure, status
from vicinal.store.audience_state import (
    SHARED_PARAMETERS,
    AudienceState,
    add_audience,
    delay_warnings,
    open_audience_state,
    parse_requested_plan,
    plan_total_limit,
    refresh_model,
    serialize_new_plan,
)
from vicinal.store.base_store import DEFAULT, BaseStore
from vicinal.store.evaluation import CountedRows, charge_evaluated_subjects
from vicinal.store.folder import Folder, check_path, choose_witness_path
from vicinal.store.opening import OpenStore, create_store, open_folder
from vicinal.store.records import (
    Addition,
    StoredRecords,
    add_records,
    refuse_similar_ids,
    write_id_mode,
)
from vicinal.store.store_schema import StoreExtractor, StoreSchema, create_schema
from vicinal.tabular import check_row_order, refuse_features_as_targets
from vicinal.targets.target import CLASSES


class Store(BaseStore):
    """Private records in a folder, from which queries are answered by one process at a time.

    Create a store with :meth:`init` or open one with :meth:`open`, as a context manager. All
    methods may be called from several threads; one lock serializes them.

    A failure of the disk or the database closes the store. It gives no answers until it is opened
    again, which recovers the durable state.

    A store may limit the privacy loss of a subject to all audiences together (`epsilon_total`): a
    further filter for each subject counts the charges of every audience. The limit holds even if
    answers to one audience change the records that answer another. Every audience must have
    `release="votes"`, `accounting="gdp"` and `interactions=1` then, there are ten at most, and the
    store cannot be split. A later audience starts with the remainder of the total; subjects with
    less than 1 - `model_share` of a full budget add nothing to a model that is trained once.

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
        self._store = store
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
        """Create a store with records and one audience, :data:`DEFAULT`, and return it open.

        Parameters
        ----------
        path
            A new folder.
        X, y, subjects
            Private records, labels and subject ids, as for
            :meth:`~vicinal.predictors.IndKNNClassifier.fit`; `X` has raw records if there is an
            extractor. Later tables are matched by the names of the columns of `X`, if it has names.
        classes
            Class names, for all audiences. In place of it a store of numbers has `bounds` (`scale`,
            `typical_range`) of :class:`~vicinal.predictors.IndKNNRegressor`, and one of several
            labels has `labels` (`tau`) of :class:`~vicinal.predictors.IndKNNMultiLabelClassifier`.
            Replies are :class:`NumberReply` and :class:`LabelSetReply` then.
        public : array (m, d), optional
            Public reference, features (after extraction).
        extractor : StoreExtractor, optional
            Computes features of raw records and queries.
        ids_differ : bool
            Accept ids as those of different subjects although they differ in spelling only,
            such as "007" and 7.
        ledger : str, optional
            "sqlite" (default), or a postgresql:// URL.
        witness : path, optional
            File with the id of the last commit, by which an old copy of the folder is recognized;
            default: beside the folder.
        epsilon_total : float, optional
            Upper bound on the privacy loss of a subject to all audiences together, at this plan's
            delta (see :class:`Store`).
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
        return NewStore.from_arguments(
            (path, ledger, witness),
            (X, y, subjects),
            public,
            extractor,
            {CLASSES: classes, **plan},
            ids_differ=ids_differ,
            epsilon_total=epsilon_total,
            accept_weak_plan=accept_weak_plan,
            renew=renew,
        ).create()

    @classmethod
    def open(cls, path: str | Path, *, accept_loss: bool = False, read_only: bool = False) -> Self:
        """Open an existing store, after finishing operations that a crash interrupted.

        Parameters
        ----------
        path
            The folder.
        accept_loss
            Open the store although some charges are unknown: all budgets are spent for good, and
            new subjects get none from the existing audiences.
        read_only
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
        folder = Folder.read(check_path("path", path))
        store = open_folder(folder, accept_loss=accept_loss, read_only=read_only)
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
        """Copy the folder `backup` into a new store `path` and open it, if it has the last state.

        `ledger`, `witness`: as in :meth:`init`; the witness must be that of the copied store.
        Without `accept_loss` PrivacyRefused is raised if the witness is missing, or has a later
        commit than the backup. With it all budgets are spent, so answers to the old audiences are
        noise, and all subjects that were ever erased are erased again.
        """
        witness_path = None if witness is None else check_path("witness", witness)
        folder = backups.restore_folder(
            check_path("backup", backup),
            check_path("path", path),
            ledger,
            witness_path,
            accept_loss=accept_loss,
        )
        folder.save()
        return cls.open(path, accept_loss=accept_loss)

    def close(self) -> None:
        with self._lock:
            self._failed = True
            self._store.resources.close()

    # ------------------------------------------------------------ the data

    def _add_records(self, records: StoredRecords, addition: Addition | None) -> None:
        """Add checked records, and the request `addition` if it is not None, in one transaction."""
        database = self._store.database
        ledger = self._store.ledger
        with self._change_data():
            with ledger.change("add"):
                if addition is not None:
                    addition.write(database, ledger.version + 1)
                write_id_mode(database, has_ids=records.ids is not None)
                add_records(self._store, records)
            self._note_change()

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file; return the number of erased records, which is private.

        When this returns, features, labels and ids are removed from files, logs and free pages. The
        store keeps a keyed hash of each id with the remaining budgets, so that re-enrolment does
        not refill them; a keyed hash of the folded id, which is equal for similar spellings; the
        answers already released; and the weights of private models. Ids that are not enrolled are
        ignored.

        Raises
        ------
        NoSubjectIds
            If the first records came without ids: every row is a subject of its own then.
        StorageFailed
            If the disk fails, or if the id of an erased subject is found in the database's files
            afterwards. The store must be opened again, which continues the erasure.
        """
        ids = self._check_erasable_ids(subjects)
        store = self._store
        with self._hold_exclusively(), self._change_data(), store.database.delay_checkpoints():
            n_erased = erasure.decide_erasure(store.ledger, store.shard, ids)
            self._note_change()
            erasure.finish_erasure(store.database, store.record_files, store.witness)
            traces = list(status.find_id_traces(store))
            if traces:
                raise StorageFailed(" ".join(traces))
        return n_erased

    # ------------------------------------------------------------ answers

    def _find_statuses(self, subjects: list[SubjectId]) -> list[EnrollmentStatus]:
        return self._store.ledger.find_statuses(subjects)

    def _count_similar_ids(self, subjects: list[SubjectId]) -> int:
        return len(self._store.ledger.find_similar_unknown_ids(subjects))

    @contextmanager
    def _charge_evaluation(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> Iterator[Steps]:
        ledger = self._store.ledger
        with ledger.release(audience):
            yield charge_evaluated_subjects(ledger, audience, tally, counted)

    # ------------------------------------------------------------ operation

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        with self._hold_exclusively(read_only=True):
            facts = status.collect_public_facts(self._store, self._audience_states)
            if curator:
                facts["private"] = status.collect_private_facts(self._store)
        return facts

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the store into a new folder `path`, for :meth:`restore`."""
        with self._hold_exclusively(read_only=True):
            backups.write_backup(self._store, check_path("path", path))

    # ------------------------------------------------------------ called with the lock held

    def _retrain_model(self, state: AudienceState) -> None:
        """Train an audience's private model again, durably, and replace its `state`."""
        name = state.audience.name
        with self._change_data():
            refreshed = refresh_model(self._store, self._lock, state)
            self._audience_states = {**self._audience_states, name: refreshed}
            self._note_change()

    def _open_audience(self, name: str, plan_json: str) -> None:
        """Open the audience `name` durably, with its private model and the checked plan."""
        with delay_warnings(), self._change_data():
            state = add_audience(self._store, self._lock, name, plan_json)
            self._audience_states = {**self._audience_states, name: state}
            self._note_change()

    def _verify_files(
        self, erased: list[SubjectId], rows: IntegerMatrix | None
    ) -> status.Verification:
        return status.verify(self._store, erased, rows)

    def _note_change(self) -> None:
        """Report a committed change of data to the witness; make answered queries count as new."""
        for state in self._audience_states.values():
            state.answers.forget_queries()
        self._store.report_change()


@dataclass(frozen=True, eq=False)
class NewStore:
    """A store to be created: arguments are checked, but nothing is written, sampled or charged yet.

    - `locations`: folder, kind or URL of the ledger, and file of the witness; None for the defaults
      of the last two.
    - `schema`: public facts that all audiences share.
    - `plan_json`: the checked plan of the first audience.
    - `total`: epsilon and delta of the limit over all audiences, or None.
    """

    locations: tuple[Path, str | None, Path | None]
    schema: StoreSchema
    records: StoredRecords
    plan_json: str
    total: tuple[float, float] | None

    @classmethod
    def from_arguments(
        cls,
        locations: tuple[str | Path, str | None, str | Path | None],
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
        """Check the arguments of :meth:`Store.init`, and return the store that they describe.

        `locations`: path, ledger and witness. `data`: `X`, `y` and `subjects`. `plan`: estimator
        parameters by name, with the classes. Raises InvalidInput or PrivacyRefused if an argument
        is unusable or refused.
        """
        path, ledger, witness = locations
        X, y, subjects = data
        folder_path = check_path("path", path)
        witness_path = None if witness is None else check_path("witness", witness)
        check_row_order(X, y=y, subjects=subjects)
        schema, X = create_schema(X, public, extractor, plan)
        refuse_features_as_targets(schema.extractor.column_names, y=y, subjects=subjects)
        records = StoredRecords.from_features(schema, X, y, subjects)
        if not checks.check_boolean("ids_differ", ids_differ):
            refuse_similar_ids(len(find_similar_ids(records.ids or ())))
        store_parameters = {*SHARED_PARAMETERS, CLASSES, *schema.target.parameter_names}
        options = {name: value for name, value in plan.items() if name not in store_parameters}
        plan_json = serialize_new_plan(schema, options, accept_weak=accept_weak_plan, renew=renew)
        total = None
        if epsilon_total is not None:
            total = plan_total_limit(schema, options, epsilon_total, accept_weak=accept_weak_plan)
        choose_witness_path(folder_path, witness_path)
        return cls((folder_path, ledger, witness_path), schema, records, plan_json, total)

    @property
    def plan(self) -> IndKNNPlan:
        """The requested plan of the first audience, with automatic parameters undecided."""
        return parse_requested_plan(self.schema, self.plan_json)

    def create(self) -> Store:
        """Write the store and return it open; remove the folder if that fails."""
        path, ledger, witness = self.locations
        folder = Folder.create(path, ledger, witness)
        store = None
        is_complete = False
        try:
            with delay_warnings():
                store = Store(create_store(folder, self.schema))
                if self.total is not None:
                    with store._change_data(), store._store.ledger.change("total"):
                        total_budget = compute_total_budget(*self.total)
                        store._store.ledger.limit_total(*self.total, total_budget)
                store._add_records(self.records, None)
                store._open_audience(DEFAULT, self.plan_json)
                folder.save()
                is_complete = True
        except BaseException:
            if store is not None:
                store.close()
            if not is_complete:  # else a warning was raised as an error: the store can be opened
                folder.discard()
            raise
        return store
