"""What asks and runs a store sees of it, whether its records are here or on shards."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy.typing as npt

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import Steps
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput, NoSubjectIds, ShardMissing, StorageFailed, VicinalError
from vicinal.ledger.answers import digests_of
from vicinal.ledger.audiences import Audience
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import Renewal
from vicinal.ledger.sealed_files import parse_json
from vicinal.mechanisms.tally import NoisyTally
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.guarantees import check_under_total
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.inputs import check_subjects_given
from vicinal.store.audience_state import (
    AudienceState,
    TotalGuarantee,
    new_plan,
    refreshes_left,
    requested_plan,
)
from vicinal.store.evaluation import LARGEST_ERROR, SHARE, CountedRows, NoisyFigures, evaluate
from vicinal.store.opening import OpenStore
from vicinal.store.records import Addition, StoredRecords, came_with_ids, refuse_alike
from vicinal.store.request_batch import RequestBatch, audience_state
from vicinal.store.requests import ANYONE, Query, Reply, checked_name
from vicinal.store.status import Presence, Quota, Verification, remaining_quota
from vicinal.store.store_schema import ExtractedRows, StoreSchema
from vicinal.tabular import check_row_order

DEFAULT = "default"
"""The audience that a new store has."""


class BaseStore(ABC):
    """Requests, checked and carried out in turn; a subclass knows where the records are."""

    _parts: OpenStore
    _audience_states: dict[str, AudienceState]
    _lock: ForkSafeLock
    _failed: bool
    _kind: ClassVar[str]

    # ------------------------------------------------------------ what a subclass does, in its turn

    @abstractmethod
    def _batch(self) -> RequestBatch:
        """Return an empty batch."""

    def _note_answered(self) -> None:  # noqa: B027 (not every store has to)
        """Take note that the answers of a batch are durable, before they leave."""

    @abstractmethod
    def _add(self, records: StoredRecords, addition: Addition | None) -> None:
        """Add checked records durably."""

    @abstractmethod
    def _alike(self, subjects: list[SubjectId]) -> int:
        """Return how many unknown `subjects` have ids like known or other ones."""

    @abstractmethod
    def _collect(
        self, audience: Audience, tally: NoisyTally, counted: CountedRows
    ) -> AbstractContextManager[Steps]:
        """Charge people for an evaluation, see ``Collect`` of ``_evaluation``."""

    @abstractmethod
    def _open_audience(self, name: str, written: str) -> None:
        """Open an audience durably, given its checked plan as JSON."""

    @abstractmethod
    def _refresh(self, state: AudienceState) -> None:
        """Train an audience's model again, durably."""

    def _completed(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Return a plan with what this kind of store adds to it."""
        return plan

    @abstractmethod
    def _verify(self, erased: list[SubjectId], rows: IntegerMatrix | None) -> Verification:
        """Check everything on the disk."""

    def _finish_pending(self) -> None:  # noqa: B027 (not every store has to)
        """Finish what was begun before."""

    def _renew(self) -> bool:
        """Release the parts of budgets that have come since; tell whether any had."""
        return self._parts.ledger.renew()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Take the turn for a moment, in which nothing is changed."""
        with self._lock:
            if self._failed:
                raise StorageFailed(f"The {self._kind} is closed, or has failed. Open it again.")
            self._parts.ledger.check()
            yield

    @contextmanager
    def _exclusive(self, *, looking: bool = False) -> Iterator[None]:
        """Take the turn, mark commits, and close everything if the body meets a failure.

        A body that is only `looking` changes nothing: whatever it meets, a full disk of a backup
        say, answers go on.
        """
        with self._turn():
            try:
                with self._parts.marking():
                    self._finish_pending()
                    if not looking and self._renew():
                        for state in self._audience_states.values():
                            state.drop_answers()  # there are none: it plans for the new period
                        self._parts.ledger.complete_change()
                    yield
            except ShardMissing:
                raise  # it may be back for the next call
            except BaseException as error:
                # Whatever happens inside a change, or between it and memory, has closed everything;
                # else memory is as it was.
                failure = isinstance(error, OSError) or not isinstance(error, Exception)
                self._failed |= failure and not looking
                # A change that is not complete can only be completed by an opening.
                self._failed |= not self._parts.ledger.is_between_changes
                raise

    @contextmanager
    def _changing_data(self) -> Iterator[None]:
        """Run one change of the data from its first line to its last; complete it at the end.

        The whole operation belongs into the body: the commit, and everything that makes files and
        memory agree with it. An exception at any line of the body closes the store.
        """
        try:
            yield
            self._parts.ledger.complete_change()
        except BaseException:
            self._failed = True
            raise

    @abstractmethod
    def close(self) -> None:
        """Let go of files, database and lock. Closing twice does no harm."""

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
    ) -> Reply:
        """Answer queries; new ones spend budgets, durably before this returns.

        Parameters
        ----------
        queries : array (q, d), or raw records
            As the store's extractor takes them. They are public.
        audience, analyst : str
            Whose budgets, and whose quota.
        idempotency_key : str, optional
            The same key gets the same answers, at no cost.

        Raises
        ------
        InvalidInput
            If a query is unusable, or the key was used for others.
        PrivacyRefused
            If the plan, or the quota, has too few answers left. Nothing was charged.
        StorageFailed
            If the charges could not be made durable. The store must be opened again.
        ShardMissing
            If a shard of a cluster is missing. It can be asked again.
        """
        (reply,) = self.predict_many([Query(queries, audience, analyst, idempotency_key)])
        if isinstance(reply, VicinalError):
            raise reply
        return reply

    def extracted(self, raw: Any) -> tuple[ExtractedRows, list[bytes]]:
        """Return raw queries or records as features, and a key of what is seen of each.

        Rows of one key cannot be told apart by the store, and queries of one key are one query.
        Nothing is charged. What is returned may take the place of raw rows.
        """
        vectors = self.schema.vectors(raw)
        return ExtractedRows(vectors), digests_of(self.schema.kernel_of(None).encode(vectors))

    def predict_many(self, queries: Sequence[Query]) -> list[Reply | VicinalError]:
        """Answer many requests in one block an audience and one commit.

        A request that cannot be answered gets the error that is its own, and the others their
        answers. Raises StorageFailed if nothing could be made durable; then nobody gets anything.
        """
        with self._exclusive():
            before = self._parts.ledger.clock
            replies = self._batch().run(queries)
            if self._parts.ledger.clock > before:
                self._note_answered()
        return replies

    def evaluate(
        self,
        X: Any,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        *,
        ids_differ: bool = False,
        audience: str = DEFAULT,
        share: float = SHARE,
        largest_error: float = LARGEST_ERROR,
        accept_noise: bool = False,
    ) -> NoisyFigures:
        """Return how good released answers were, as noisy counts that labelled people pay for.

        A row counts where the same features were asked before: its label is compared with the
        answer. Rows that were never asked count for nothing.

        Parameters
        ----------
        X, y, subjects
            Rows as the store's extractor takes them, a label for each, and whose they are. People
            need not have records here; what they pay is kept.
        ids_differ : bool
            As of :meth:`add`.
        audience : str
            Whose answers, and whose budgets.
        share : float
            Part of a full budget that a person pays at most. Noise falls with its square root.
        largest_error : float
            Of numbers: the share of the distance between the bounds that errors are counted up to.
            Larger ones count as this large. Noise on RMSE and R2 grows with its square.
        accept_noise : bool
            Spend the share although no figure would come out of the noise.

        Returns
        -------
        Evaluation, NumberEvaluation or LabelSetEvaluation
            As the records carry classes, numbers or several labels.

        Raises
        ------
        InvalidInput
            If anything is unusable, or the store's records have no ids. Nothing was charged.
        IdsAlike
            As of :meth:`add`.
        PrivacyRefused
            If the grid's cost does not fit, or all figures would be noise.
        ShardMissing
            If a shard of a cluster is missing. The same can be asked again: whoever was charged is
            charged once.
        """
        check_row_order(X, y=y, subjects=subjects)
        with self._exclusive():
            state = audience_state(self._audience_states, audience)
            if subjects is not None and not checks.check_boolean("ids_differ", ids_differ):
                refuse_alike(self._alike(checks.subject_ids("subjects", subjects)))
            figures = evaluate(
                self._parts, state, X, y, subjects, share=share, largest_error=largest_error,
                accept_noise=accept_noise, collect=self._collect,
            )  # fmt: skip
            self._note_answered()
            return figures

    def guarantee(self, audience: str = DEFAULT) -> Guarantee:
        """Return what all answers to an audience guarantee, to every subject."""
        state = audience_state(self._audience_states, audience)
        return state.guarantee(
            TotalGuarantee.of(
                self._parts.ledger, [each.requested for each in self._audience_states.values()]
            )
        )

    def quota(self, analyst: str | None = None, *, audience: str = DEFAULT) -> Quota:
        """Return what an audience's plan, and an analyst of it, have left. Public."""
        return remaining_quota(audience_state(self._audience_states, audience), analyst)

    def allow(self, analyst: str, quota: int | None, *, audience: str = DEFAULT) -> None:
        """Set how many new answers an analyst may have; None for what the audience has left."""
        state = audience_state(self._audience_states, audience)
        name = checked_name("analyst", analyst)
        most = None if quota is None else checks.check_integer("quota", quota, least=0)
        with self._exclusive():
            self._parts.ledger.allow(state.audience, name, most)

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
        """Add records durably; a subject that is known, or was, keeps what it has left.

        The records become current together, between two answers. The data get a new version, which
        is returned: earlier queries are asked anew. In a cluster a subject goes to the shard that
        knows it, or did; others by a keyed hash of their id.

        Parameters
        ----------
        X, y, subjects
            Records as the store's extractor takes them, a label for each, and whose they are,
            exactly if the store's first records came with subjects; without, each is a new subject.
        ids_differ : bool
            Take new ids as those of new people although they differ from known ones, or from each
            other, by leading zeros, case, blanks or width only, as "007" from 7.
        curator, idempotency_key : str
            The same curator's same key adds the same records once, and returns the version that
            they made.

        Raises
        ------
        InvalidInput
            If anything is unusable; KeyReused if the key was used for other records, or somebody
            was erased since.
        IdsAlike
            If new ids differ so little, without `ids_differ`.
        ShardMissing
            If a shard of a cluster is missing. If the change was decided before, it is finished
            later.
        """
        schema, ledger = self._parts.schema, self._parts.ledger
        name = checked_name("curator", curator)
        key = None if idempotency_key is None else checked_name("idempotency_key", idempotency_key)
        check_row_order(X, y=y, subjects=subjects)
        records = StoredRecords.of(schema, schema.vectors(X), y, subjects)
        addition = None if key is None else Addition.of(ledger, name, key, records)
        with self._exclusive():
            done = None if addition is None else addition.done(self._parts.database)
            if done is not None:
                return done
            before = came_with_ids(self._parts.database)
            check_subjects_given(records.ids is not None, before=before)
            if records.ids is not None and not checks.check_boolean("ids_differ", ids_differ):
                refuse_alike(self._alike(records.ids))
            self._add(records, addition)
            return ledger.version

    def _erasable(self, subjects: npt.ArrayLike) -> list[SubjectId]:
        """Return checked ids of people to erase; NoSubjectIds if no record has an id."""
        ids = checks.subject_ids("subjects", subjects)
        with self._turn():
            named = came_with_ids(self._parts.database)
        if not named:
            raise NoSubjectIds(
                "Nobody can be erased by id here: the first records came without subject ids, so "
                "every row is a subject of its own, and nobody knows which rows belong together. "
                "Make a new store from records with ids (init with --subject), then delete this "
                "one."
            )
        return ids

    @abstractmethod
    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase subjects from every file; return how many records were erased. Private."""

    @abstractmethod
    def presence(self, subjects: npt.ArrayLike) -> Presence:
        """Return how many of some ids are enrolled, were erased, or never were. Private."""

    def open_audience(
        self,
        name: str,
        *,
        accept_weak_plan: bool = False,
        renew: Renewal | None = None,
        **plan: Any,
    ) -> None:
        """Give every subject a further budget, for an audience that shares no answers with others.

        In a cluster a plan without `n_records` takes the number that the first audience was
        planned with, and shards train its private model.

        Parameters
        ----------
        name
            What it is called.
        accept_weak_plan, renew
            As of :meth:`Store.init`.
        **plan
            Parameters of :class:`~vicinal.predictors.IndKNNClassifier`, without those that belong
            to the store.
        """
        name = checked_name("name", name)
        completed = self._completed(plan)
        written = new_plan(self.schema, completed, accept_weak=accept_weak_plan, renew=renew)
        with self._exclusive():
            self._requested_plan(name, written)
            self._open_audience(name, written)

    def audience_plan(
        self,
        name: str,
        *,
        accept_weak_plan: bool = False,
        renew: Renewal | None = None,
        **plan: Any,
    ) -> IndKNNPlan:
        """Return the plan of :meth:`open_audience`, or raise its error; change nothing.

        Without a number of records it has that of another audience.
        """
        name = checked_name("name", name)
        completed = self._completed(plan)
        written = new_plan(self.schema, completed, accept_weak=accept_weak_plan, renew=renew)
        with self._turn():
            requested = self._requested_plan(name, written)
        known = (state.settings.n_records for state in self._audience_states.values())
        return requested.changed(n_records=requested.n_records or next(known, None))

    def _requested_plan(self, name: str, written: str) -> IndKNNPlan:
        """Return the plan of an audience that can be opened, or raise why it cannot."""
        ledger, requested = self._parts.ledger, requested_plan(self.schema, written)
        if name in ledger.audiences:
            raise InvalidInput(
                "The 'name' parameter must be new. There is already such an audience."
            )
        ledger.check_name(name)
        if ledger.total is not None:
            check_under_total(requested, *ledger.total.guarantee, 1 + len(ledger.audiences))
        return requested

    def refresh_model(self, audience: str = DEFAULT) -> int:
        """Train an audience's private model again, on the people who are here now.

        Who left is not in the new model (earlier weights and answers stay what they are), who came
        is. The same budgets pay, as planned with `model_refreshes`. As after every change of the
        data, a query that was answered before counts as new.

        Parameters
        ----------
        audience
            Whose model.

        Returns
        -------
        int
            How many refreshes are left.

        Raises
        ------
        InvalidInput
            If the audience has no private model.
        PrivacyRefused
            If its plan has no refresh left.
        ShardMissing
            If a shard of a cluster is missing. A training that was begun is finished later.
        """
        with self._exclusive():
            state = audience_state(self._audience_states, audience)
            refreshes = refreshes_left(state)
            self._refresh(state)
        return refreshes - 1

    def verify(
        self, erased: Sequence[SubjectId] = (), features: npt.ArrayLike | None = None
    ) -> Verification:
        """Check every invariant on all disks, and that nothing of `erased` subjects is left.

        Parameters
        ----------
        erased
            Ids that must not be found in any file.
        features : array (m, d), optional
            Records that must not be found either.
        """
        ids = checks.subject_ids("erased", list(erased))
        with self._exclusive(looking=True):
            kernel = self._parts.shard.index.kernel
            rows = None if features is None else kernel.encode(self.schema.vectors(features))
            return self._verify(ids, rows)

    @abstractmethod
    def backup(self, path: str | Path) -> None:
        """Write everything into a new folder, as it is at one moment."""

    # ------------------------------------------------------------ public facts

    @abstractmethod
    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        """Return public facts as plain values; with `curator` also private ones."""

    @property
    def audiences(self) -> tuple[str, ...]:
        """The names of all audiences."""
        return tuple(self._audience_states)

    @property
    def plans(self) -> tuple[dict[str, Any], ...]:
        """The parameters of every audience's plan, as they were asked for. Public."""
        return tuple(
            parse_json(state.audience.plan)["asked"] for state in self._audience_states.values()
        )

    @property
    def models_stay(self) -> bool:
        """Whether an audience has a private model, which no erasure changes. Public."""
        return any(state.private_model for state in self._audience_states.values())

    @property
    def schema(self) -> StoreSchema:
        """Classes, kernel, extractor and reference. Public."""
        return self._parts.schema

    @property
    def version(self) -> int:
        """How often the data changed. Public."""
        return self._parts.ledger.version

    @property
    def is_consistent(self) -> bool:
        """Whether it answers; once it does not, it must be opened again. Public."""
        return not self._failed and self._parts.ledger.is_consistent
