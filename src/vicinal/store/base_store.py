"""The interface of a store, whether its records are on this machine or on shards of a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import Steps
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput, NoSubjectIds, ShardMissing, StorageFailed, VicinalError
from vicinal.ledger.answers import digest_queries
from vicinal.ledger.audiences import Audience
from vicinal.ledger.id_encoding import fold_ids
from vicinal.ledger.ledger import EnrollmentStatus
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import Renewal
from vicinal.ledger.sealed_files import parse_json
from vicinal.mechanisms.tally import NoisyTally
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.guarantees import check_shared_budget
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.inputs import check_subjects_given
from vicinal.store.audience_state import (
    AudienceState,
    TotalGuarantee,
    count_remaining_refreshes,
    parse_requested_plan,
    serialize_new_plan,
)
from vicinal.store.evaluation import (
    DEFAULT_LARGEST_ERROR,
    DEFAULT_SHARE,
    CountedRows,
    NoisyEvaluation,
    evaluate,
    preview_evaluation,
)
from vicinal.store.opening import OpenStore
from vicinal.store.records import Addition, StoredRecords, has_subject_ids, refuse_similar_ids
from vicinal.store.request_batch import RequestBatch, check_analyst, get_audience_state
from vicinal.store.requests import ANYONE, NumberReply, Query, Reply, normalize_name
from vicinal.store.status import Presence, Quota, Verification, compute_quota
from vicinal.store.store_schema import ExtractedRows, StoreSchema
from vicinal.tabular import check_row_order
from vicinal.targets.numbers import warn_of_noise

DEFAULT = "default"
"""Name of the audience of a new store."""


class BaseStore(ABC):
    """A store of private records: methods check their input, and one lock serializes them.

    Subclasses have the records on one machine, or on the shards of a cluster. They define `_kind`,
    the noun for the store in messages, and set `_store`, the open store with its files; its
    `_audience_states`, by the audiences' names (replaced, never changed, as other threads read
    it); the `_lock`; and `_failed`, whether it is closed or has failed.

    Everywhere in this class `addition` is a request to add records, None without an idempotency
    key; `plan` the parameters of an audience by name, and `plan_json` its checked plan as JSON;
    `name` the name of an audience, and `state` its state.
    """

    _store: OpenStore
    _audience_states: Mapping[str, AudienceState]
    _lock: ForkSafeLock
    _failed: bool
    _kind: ClassVar[str]

    # ------------------------------------------------------------ for subclasses, with lock held

    def _create_batch(self) -> RequestBatch:
        """Return an empty batch that can answer requests to the audiences of the store."""
        return RequestBatch(self._store.ledger, self._store.schema, self._audience_states)

    def _finish_answers(self) -> None:  # noqa: B027 (optional for subclasses)
        """Finish work that depends on durable answers, before these are returned."""

    @abstractmethod
    def _add_records(self, records: StoredRecords, addition: Addition | None) -> None:
        """Add checked records durably, in one transaction with the request `addition`."""

    @abstractmethod
    def _find_statuses(self, subjects: list[SubjectId]) -> Sequence[int]:
        """Return the :class:`EnrollmentStatus` of each of `subjects`, which are distinct ids."""

    @abstractmethod
    def _count_similar_ids(self, subjects: list[SubjectId]) -> int:
        """Return how many unknown ids among `subjects` differ from another id in spelling only.

        The other id is a known one, or another one of `subjects`.
        """

    @abstractmethod
    def _charge_evaluation(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> AbstractContextManager[Steps]:
        """Charge the subjects of an evaluation, and yield the private sum of each table cell.

        `tally`: the noisy counter of the cells. `counted`: the labelled rows that were queried.
        Charges, and whatever the body of the context writes, become durable when the body ends.
        """

    @abstractmethod
    def _open_audience(self, name: str, plan_json: str) -> None:
        """Open an audience durably, with its private model."""

    @abstractmethod
    def _retrain_model(self, state: AudienceState) -> None:
        """Train the private model of an audience again, durably."""

    def _complete_parameters(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of an audience with those that the store fixes."""
        return plan

    @abstractmethod
    def _verify_files(self, erased: list[SubjectId], rows: IntegerMatrix | None) -> Verification:
        """Check all files and databases, and search for traces of erased data.

        `erased`: subject ids that no file may contain. `rows`, integers (m, width): encoded
        features that the record files may not contain, or None.
        """

    def _finish_pending(self) -> None:  # noqa: B027 (optional for subclasses)
        """Finish operations that an earlier call began and could not complete, as with shards."""

    def _begin_due_periods(self) -> bool:
        """Begin due renewal periods, which add parts of budgets; return whether there were any."""
        return self._store.ledger.renew()

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock while the body of the context reads the store.

        Raises StorageFailed if the store is closed or has failed.
        """
        with self._lock:
            if self._failed:
                raise StorageFailed(f"The {self._kind} is closed, or has failed. Open it again.")
            try:
                self._store.ledger.check_usable()
            except StorageFailed:
                self._failed = True  # also for health checks, which do not hold the lock
                raise
            yield

    @contextmanager
    def _hold_exclusively(self, *, read_only: bool = False) -> Iterator[None]:
        """Hold the lock, report commits to the witness, and close the store if the body fails.

        An error in a `read_only` body, such as a full disk during a backup, leaves the store open.
        """
        with self._hold_lock():
            try:
                with self._store.report_commits_at_end():
                    self._finish_pending()
                    if not read_only and self._begin_due_periods():
                        for state in self._audience_states.values():
                            state.reset_counters()  # counters follow the plan of the new period
                        self._store.ledger.complete_change()
                    yield
            except ShardMissing:
                raise  # it may be back for the next call
            except BaseException as error:
                # Any error inside a change, or before memory agrees with it, has closed the store
                # already. After any other error memory is unchanged.
                failure = isinstance(error, OSError) or not isinstance(error, Exception)
                self._failed |= failure and not read_only
                # Only opening the store again can complete an incomplete change.
                self._failed |= not self._store.ledger.is_between_changes
                raise

    @contextmanager
    def _change_data(self) -> Iterator[None]:
        """Run a change of the data as a whole, and mark it complete in the ledger at the end.

        The body contains the commit, and everything that makes files and memory agree with it. An
        exception anywhere in the body closes the store.
        """
        try:
            yield
            self._store.ledger.complete_change()
        except BaseException:
            self._failed = True
            raise

    @abstractmethod
    def close(self) -> None:
        """Close files and database, and release the lock on the folder; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ answers

    def predict(
        self,
        queries: Any,
        *,
        audience: str = DEFAULT,
        analyst: str = ANYONE,
        idempotency_key: str | None = None,
        coverage: float | None = None,
    ) -> Reply:
        """Return answers to queries; new answers are charged durably before this returns.

        Parameters
        ----------
        queries : array (q, d), or raw records
            As the store's extractor takes them. They are public.
        audience : str
            The audience that is charged.
        analyst : str
            The analyst with the quota that is charged. If the audience has quotas, other names
            than those of :meth:`allow` are refused; queries without a name are not.
        idempotency_key : str, optional
            A repeated request with the same key gets the same answers and is not charged.
        coverage : float, optional
            Share of future outcomes, in (0, 1), that the sets or intervals of the reply must
            contain; see :meth:`predict_set` and :meth:`predict_interval`.

        Raises
        ------
        InvalidInput
            If a query is unusable, or the key was used for other queries.
        PrivacyRefused
            If the plan, or the quota, has too few answers left. Nothing was charged.
        StorageFailed
            If the charges could not be made durable. The store must be opened again.
        ShardMissing
            If a shard of a cluster is missing. The request can be repeated.
        """
        check_analyst(self._audience_states, audience, analyst)
        self.schema.extractor.warn_of_unexpected_values(queries)
        (reply,) = self.predict_many([Query(queries, audience, analyst, idempotency_key, coverage)])
        if isinstance(reply, VicinalError):
            raise reply
        if isinstance(reply, NumberReply):
            warn_of_noise(reply.names, reply.labels, reply.errors)
        return reply

    def predict_set(self, queries: Any, *, coverage: float, **options: Any) -> Reply:
        """Return answers with the set of classes that are not excluded, as ``reply.sets``.

        The sets contain at least the share `coverage`, in (0, 1), of future outcomes, with 95 %
        confidence, if the assumption in ``reply.promise`` holds. They cost nothing beyond the
        answers, but require an earlier :meth:`evaluate` with `coverage`, after the last change of
        the data. `options` and errors are those of :meth:`predict`.
        """
        return self._predict_covered(queries, coverage, options, of_classes=True)

    def predict_interval(self, queries: Any, *, coverage: float, **options: Any) -> Reply:
        """Return answers with an interval for each number, as ``reply.low`` and ``reply.high``.

        Arguments, promise and errors are those of :meth:`predict_set`. Numbers beyond the declared
        bounds count as at the bounds.
        """
        return self._predict_covered(queries, coverage, options, of_classes=False)

    def _predict_covered(
        self, queries: Any, coverage: float, options: dict[str, Any], *, of_classes: bool
    ) -> Reply:
        """Return answers with sets (`of_classes`) or intervals; `options`: those of predict()."""
        if self.schema.target.is_class_vote != of_classes:
            method = "predict_interval for numbers" if of_classes else "predict_set for classes"
            raise InvalidInput(f"This store has other targets. Call {method}.")
        # None would be a request without sets.
        level = checks.check_real("coverage", coverage, above=0, below=1)
        return self.predict(queries, coverage=level, **options)

    def extract_features(self, raw: Any) -> tuple[ExtractedRows, list[bytes]]:
        """Return features of `raw` queries, and a digest of each row's integer features.

        Queries with equal digests are one query. The features are accepted wherever raw rows are.
        Nothing is charged.
        """
        vectors = self.schema.extract_queries(raw)
        return ExtractedRows(vectors), digest_queries(self.schema.create_kernel().encode(vectors))

    def predict_many(self, queries: Sequence[Query]) -> list[Reply | VicinalError]:
        """Return the reply to each request of `queries`, or the error that refuses it.

        All answers are made durable in one commit. An error refuses one request only, unless the
        whole commit fails: then StorageFailed is raised, and no request gets an answer.
        """
        with self._hold_exclusively():
            previous_clock = self._store.ledger.clock
            replies = self._create_batch().answer_requests(queries)
            if self._store.ledger.clock > previous_clock:
                self._finish_answers()
        return replies

    def evaluate(
        self,
        X: Any,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        *,
        ids_differ: bool = False,
        audience: str = DEFAULT,
        share: float = DEFAULT_SHARE,
        largest_error: float = DEFAULT_LARGEST_ERROR,
        n_subjects: int | None = None,
        accept_noise: bool = False,
        coverage: str | None = None,
    ) -> NoisyEvaluation:
        """Return noisy metrics of the accuracy of released answers, on private labelled rows.

        A row counts if a query with the same features was answered: its label is compared with the
        answer. All other rows are ignored. The subjects of the rows are charged.

        Parameters
        ----------
        X, y, subjects
            Rows as the store's extractor takes them, with the label and the subject id of each.
            Ids are required. Subjects need not have records in the store; their charges are kept.
        ids_differ : bool
            Accept ids although they resemble known ids, or each other (:meth:`add`).
        audience : str
            The audience with the evaluated answers, and the budgets that are charged.
        share : float
            Largest part of a full budget that a subject pays. Noise grows with 1 / sqrt(share).
        largest_error : float
            For numbers: the largest counted error, as a share of the distance between the bounds.
            Larger errors count as this large. Noise on RMSE and R2 grows with its square.
        n_subjects : int, optional
            A public number of subjects, never counted in private rows: if every metric would be
            noise for that number, the call is refused before a charge. None is the number of
            answers / `records_per_subject`.
        accept_noise : bool
            Charge subjects even if every metric would be noise.
        coverage : {"overall", "per-class"}, optional
            Also calibrate sets or intervals, for all outcomes together or for those of each class.
            Charges and noise stay the same. Only answers since the last change of the data count
            then, and the probabilities of more than two classes are not evaluated.

        Returns
        -------
        Evaluation, NumberEvaluation or LabelSetEvaluation
            For a store of classes, numbers or several labels.

        Raises
        ------
        InvalidInput
            If an argument is unusable, or the store's records have no ids. Nothing was charged.
        IdsAlike
            If new ids are too similar, without `ids_differ`.
        PrivacyRefused
            If the delta slack of the noise grid does not fit, or all metrics would be noise.
        ShardMissing
            If a shard of a cluster is missing. A repeated evaluation charges no subject twice.
        """
        check_row_order(X, y=y, subjects=subjects)
        with self._hold_exclusively():
            if subjects is not None:
                ids = checks.check_subject_ids("subjects", subjects)
                self._refuse_similar(ids, ids_differ=ids_differ)
            figures = evaluate(
                self._store,
                get_audience_state(self._audience_states, audience),
                X,
                y,
                subjects,
                share=share,
                largest_error=largest_error,
                n_subjects=n_subjects,
                accept_noise=accept_noise,
                coverage=coverage,
                charge_evaluation=self._charge_evaluation,
            )
            self._finish_answers()
            return figures

    def preview_evaluation(
        self,
        *,
        audience: str = DEFAULT,
        share: float = DEFAULT_SHARE,
        largest_error: float = DEFAULT_LARGEST_ERROR,
        n_subjects: int | None = None,
        coverage: str | None = None,
    ) -> NoisyEvaluation:
        """Return the evaluation that :meth:`evaluate` would give if every answer were right.

        Its intervals are the narrowest that can be expected. It depends on public values only, and
        charges nothing. The arguments are those of :meth:`evaluate`. With `coverage`, it also has
        the number of outcomes with which each coverage level could be certified.
        """
        with self._hold_exclusively():
            return preview_evaluation(
                self._store,
                get_audience_state(self._audience_states, audience),
                share=share,
                largest_error=largest_error,
                n_subjects=n_subjects,
                coverage=coverage,
            )

    def guarantee(self, audience: str = DEFAULT) -> Guarantee:
        """Return the guarantee of all answers to an audience, to every subject. Public."""
        state = get_audience_state(self._audience_states, audience)
        plans = [opened.requested for opened in self._audience_states.values()]
        return state.guarantee(TotalGuarantee.from_ledger(self._store.ledger, plans))

    def quota(self, analyst: str | None = None, *, audience: str = DEFAULT) -> Quota:
        """Return used and remaining answers of an audience, and of `analyst` if given. Public."""
        return compute_quota(get_audience_state(self._audience_states, audience), analyst)

    def allow(self, analyst: str, quota: int | None, *, audience: str = DEFAULT) -> None:
        """Set the `quota` of an analyst (name): the largest number of new answers.

        Those already given are included. None: only the limit of the audience applies.
        """
        state = get_audience_state(self._audience_states, audience)
        name = normalize_name("analyst", analyst)
        max_answers = None if quota is None else checks.check_integer("quota", quota, minimum=0)
        with self._hold_exclusively():
            self._store.ledger.set_quota(state.audience, name, max_answers)

    # ------------------------------------------------------------ the data

    def add(
        self,
        X: Any,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        *,
        ids_differ: bool = False,
        curator: str = "anyone",
        idempotency_key: str | None = None,
    ) -> int:
        """Add records durably, all at once between two answers, and return the new data version.

        Subjects that are or were enrolled keep their remaining budgets. Queries that were answered
        on an earlier version of the data count as new. In a cluster, the records of a subject go to
        the shard that has or had the subject; those of a new subject to one chosen by a keyed hash
        of the id.

        Parameters
        ----------
        X, y, subjects
            Records as the store's extractor takes them, with the label and the subject id of each.
            Ids are required if the store's first records had ids, and refused otherwise: then each
            record is a new subject.
        ids_differ : bool
            Accept new ids as those of new subjects although they differ from known ids, or from
            each other, in spelling only, such as "007" and 7.
        curator, idempotency_key : str
            A repeated request of the same curator with the same key adds nothing, and returns the
            version that the first one made.

        Raises
        ------
        InvalidInput
            If an argument is unusable; KeyReused if the key was used for other records, or subjects
            were erased since.
        IdsAlike
            If new ids are too similar, without `ids_differ`.
        ShardMissing
            If a shard of a cluster is missing. A change that was decided is finished later.
        """
        schema, ledger = self._store.schema, self._store.ledger
        name = normalize_name("curator", curator)
        key = idempotency_key
        if key is not None:
            key = normalize_name("idempotency_key", key)
        check_row_order(X, y=y, subjects=subjects)
        records = StoredRecords.from_features(schema, schema.extract(X), y, subjects)
        addition = None if key is None else Addition.from_records(ledger, name, key, records)
        with self._hold_exclusively():
            if addition is not None:
                earlier_version = addition.find_data_version(self._store.database)
                if earlier_version is not None:
                    return earlier_version
            had_ids = has_subject_ids(self._store.database)
            check_subjects_given(records.ids is not None, given_before=had_ids)
            if records.ids is not None:
                self._refuse_similar(records.ids, ids_differ=ids_differ)
            self._add_records(records, addition)
            return ledger.version

    def _refuse_similar(self, ids: list[SubjectId], *, ids_differ: bool) -> None:
        """Raise IdsAlike if new `ids` resemble known ids or each other, unless `ids_differ`."""
        if not checks.check_boolean("ids_differ", ids_differ):
            refuse_similar_ids(self._count_similar_ids(ids))

    def _check_erasable_ids(self, subjects: npt.ArrayLike) -> list[SubjectId]:
        """Return the checked ids of `subjects` to erase.

        Raises NoSubjectIds if the store's records came without ids.
        """
        ids = checks.check_subject_ids("subjects", subjects)
        with self._hold_lock():
            had_ids = has_subject_ids(self._store.database)
        if not had_ids:
            raise NoSubjectIds(
                "Nobody can be erased by id here: the first records came without subject ids, so "
                "every row is a subject of its own, and nobody knows which rows belong together. "
                "Make a new store from records with ids (init with --subject), then delete this "
                "one."
            )
        return ids

    @abstractmethod
    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file; return the number of erased records. Private."""

    def presence(self, subjects: npt.ArrayLike) -> Presence:
        """Return the numbers of enrolled, erased and unknown subjects among `subjects`. Private."""
        ids = list(dict.fromkeys(checks.check_subject_ids("subjects", subjects)))
        with self._hold_exclusively():
            statuses = self._find_statuses(ids)
            unknown = list(compress(ids, np.equal(statuses, EnrollmentStatus.UNKNOWN)))
            # One of several similar unknown ids, so that they are not found similar to each other.
            distinct = list(dict(zip(fold_ids(unknown), unknown, strict=True)).values())
            n_similar = self._count_similar_ids(distinct) if distinct else 0
        n_enrolled = statuses.count(EnrollmentStatus.ENROLLED)
        n_erased = statuses.count(EnrollmentStatus.ERASED)
        return Presence(n_enrolled, n_erased, len(ids) - n_enrolled - n_erased, n_similar)

    def open_audience(
        self,
        name: str,
        *,
        accept_weak_plan: bool = False,
        renew: Renewal | None = None,
        **plan: Any,
    ) -> None:
        """Open an audience that shares no answers with other ones, with new budgets.

        Every subject gets a further budget for it. In a cluster a plan without `n_records` takes
        the number that the first audience was planned with, and shards train its private model.

        Parameters
        ----------
        name
            Name of the audience, which must be new.
        accept_weak_plan
            Accept a plan with hardly any protection: epsilon above 20, or delta above 1/n for the
            declared `n_records`.
        renew
            How budgets and answers are released in parts, one per period; None: all at once.
        **plan
            Parameters of :class:`~vicinal.predictors.IndKNNClassifier`, except those that the store
            fixes for all audiences.
        """
        name = normalize_name("name", name)
        plan_json = self._serialize_plan(plan, accept_weak_plan, renew)
        with self._hold_exclusively():
            self._parse_new_plan(name, plan_json)
            self._open_audience(name, plan_json)

    def audience_plan(
        self,
        name: str,
        *,
        accept_weak_plan: bool = False,
        renew: Renewal | None = None,
        **plan: Any,
    ) -> IndKNNPlan:
        """Return the plan that :meth:`open_audience` would use with the same arguments.

        It raises the same errors and changes nothing. A plan without a number of records gets that
        of another audience.
        """
        name = normalize_name("name", name)
        plan_json = self._serialize_plan(plan, accept_weak_plan, renew)
        with self._hold_lock():
            requested = self._parse_new_plan(name, plan_json)
        planned_sizes = (state.plan.n_records for state in self._audience_states.values())
        return requested.changed(n_records=requested.n_records or next(planned_sizes, None))

    def _serialize_plan(
        self, plan: dict[str, Any], accept_weak_plan: bool, renew: Renewal | None
    ) -> str:
        """Return the checked plan of a new audience; arguments as in :meth:`open_audience`."""
        completed = self._complete_parameters(plan)
        return serialize_new_plan(self.schema, completed, accept_weak=accept_weak_plan, renew=renew)

    def _parse_new_plan(self, name: str, plan_json: str) -> IndKNNPlan:
        """Return the requested plan of a new audience, after checks against other audiences.

        Raises InvalidInput if the name is in use; PrivacyRefused if the name was lost with an old
        copy, or the plan does not fit the limit over all audiences.
        """
        ledger = self._store.ledger
        requested = parse_requested_plan(self.schema, plan_json)
        if name in ledger.audiences:
            raise InvalidInput(
                "The 'name' parameter must be new. There is already such an audience."
            )
        ledger.refuse_lost_audience(name)
        if ledger.total is not None:
            check_shared_budget(requested, *ledger.total.guarantee, 1 + len(ledger.audiences))
        return requested

    def refresh_model(self, audience: str = DEFAULT) -> int:
        """Train an audience's private model again, on the records enrolled now.

        Returns the number of refreshes that remain. Earlier weights and answers are not changed,
        also where they depend on subjects erased since. The same budgets are charged, as planned
        with `model_refreshes`. As after every change of the data, a query that was answered before
        counts as new.

        Raises
        ------
        InvalidInput
            If the audience has no private model.
        PrivacyRefused
            If its plan has no refresh left, or another training would cost too much delta.
        ShardMissing
            If a shard of a cluster is missing. A training that was begun is finished later.
        """
        with self._hold_exclusively():
            state = get_audience_state(self._audience_states, audience)
            refreshes = count_remaining_refreshes(state)
            self._retrain_model(state)
        return refreshes - 1

    def verify(
        self, erased: Sequence[SubjectId] = (), features: npt.ArrayLike | None = None
    ) -> Verification:
        """Check all files and databases, and search for traces of erased data.

        `erased`: subject ids that must not be in any file. `features`: m raw erased records, before
        extraction, whose features must not be in the record files.
        """
        ids = checks.check_subject_ids("erased", list(erased))
        with self._hold_exclusively(read_only=True):
            kernel = self._store.shard.index.kernel
            rows = None if features is None else kernel.encode(self.schema.extract(features))
            return self._verify_files(ids, rows)

    @abstractmethod
    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the whole store into a new folder `path`."""

    # ------------------------------------------------------------ public facts

    @abstractmethod
    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        """Return public facts as plain values, by name; with `curator` also private ones."""

    @property
    def audiences(self) -> tuple[str, ...]:
        """The names of all audiences."""
        return tuple(self._audience_states)

    @property
    def plans(self) -> tuple[dict[str, Any], ...]:
        """The requested plan of every audience, as parameters by name. Public."""
        return tuple(
            parse_json(state.audience.plan)["asked"] for state in self._audience_states.values()
        )

    @property
    def models_stay(self) -> bool:
        """Whether an audience has a private model, whose weights no erasure changes. Public."""
        return any(state.private_model for state in self._audience_states.values())

    @property
    def schema(self) -> StoreSchema:
        """Target, kernel, extractor and public reference, which all audiences share. Public."""
        return self._store.schema

    @property
    def version(self) -> int:
        """Number of changes of the data since the store was made. Public."""
        return self._store.ledger.version

    @property
    def is_consistent(self) -> bool:
        """Whether the store can answer; if not, it must be opened again. Public."""
        return not self._failed and self._store.ledger.is_consistent
