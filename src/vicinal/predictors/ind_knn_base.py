"""What all Ind-KNN estimators share: records, budgets, queries, and what they guarantee."""

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import FloatMatrix
from vicinal.engine.engine import QueryAnswers
from vicinal.engine.proxy_ledger import BudgetUsage, ProxyLedger
from vicinal.engine.shard import Shard
from vicinal.errors import InvalidInput, PrivacyRefused, PrivacyWarning
from vicinal.features.table_drafts import rows_from_schema
from vicinal.features.table_features import TableFeatures, as_schema
from vicinal.features.table_schema import TableSchema
from vicinal.interactions.fit_registry import REGISTRY
from vicinal.interactions.row_matching import RecordDigests
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.engine_factory import PlannedEngine, convert_to_float, plan_engine
from vicinal.planning.guarantees import ind_knn_guarantee
from vicinal.planning.parameter_tables import IndKNNParameters
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors import inputs
from vicinal.predictors.fixed_plan import GuaranteeDisplay
from vicinal.tabular import check_row_order

_LOOKED_AT = 256
"""Queries that are compared with the public reference, to warn where they are unlike it."""


_RECENT = 8
"""Calls whose answers are remembered."""


def _digest(queries: FloatMatrix) -> bytes:
    return hashlib.sha256(f"{queries.dtype} {queries.shape}".encode() + queries.tobytes()).digest()


class IndKNNEstimator(GuaranteeDisplay, IndKNNParameters):
    """Answers queries from private records; every subject has a budget of its own.

    A subclass says what it makes of the noisy sums that leave.
    """

    _settings: IndKNNPlan

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None = None,
        public: npt.ArrayLike | None = None,
        schema: TableSchema | Mapping[str, Any] | str | Path | None = None,
    ) -> Self:
        """Fit on private records; plan the radius and the noise from public facts.

        Parameters
        ----------
        X : array or table (n, d); with `schema` a table of any columns
            Private features: finite numbers. Later queries and records need the same column names.
        y : array (n,)
            What the records carry, private: labels, each one of `classes`. The columns of a table
            of several targets are found by name.
        subjects : array (n,), optional
            Integer or string id of the subject behind each record; the guarantee is for a subject
            with all its records. The number 5 and the text "5" are one id. Without it every record
            is a subject, its id its row number.
        public : array or table (m, d), optional
            Public, unlabelled reference points; needed for everything that is "adaptive",
            "public" or "auto". Columns are found by name where `X` has names, too. With `schema` a
            table, and made up from it if left out.
        schema : TableSchema, dict or path, optional
            The public schema of a table. `X`, `public`, and later queries and records are tables
            then, as :class:`~vicinal.features.TableFeatures` takes them.

        Raises
        ------
        InvalidInput
            Before anything is changed; the message names the argument and the fix.
        PrivacyRefused
            If records took part in an earlier interaction of this process.
        """
        with inputs.restore_on_error(self):
            inputs.refuse_same_memory(X, public)
            check_row_order(X, y=y, subjects=subjects)
            self._table: TableFeatures | None = None
            if schema is not None:
                declared = as_schema(schema)
                self._table = TableFeatures(declared)
                rows = rows_from_schema(declared, seed=0) if public is None else public
                public = self._table.transform(rows)
            self._take_in(X, y, subjects, public)
        return self

    def _take_in(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        public: npt.ArrayLike | None,
    ) -> None:
        settings = IndKNNPlan.of(self)
        records = inputs.check_fit_inputs(self, X, subjects, public)
        targets = settings.target.encode(y, len(records))
        claimed = inputs.claim_records(self, settings, records)
        assembled = plan_engine(
            settings, records.features, targets, records.names, records.reference, claimed
        )
        if settings.model_share is None:
            settled = assembled.plan
            settings = settings.changed(
                model_share=settled.model_share, why_no_model=settled.why_no_model
            )
        self._install(assembled, settings, records)
        self.n_answers_ = 0

    def _install(
        self, assembled: PlannedEngine, settings: IndKNNPlan, records: inputs.FitInputs
    ) -> None:
        self._engine, self._settings = assembled.engine, settings
        self._recent: dict[bytes, QueryAnswers] = {}
        self._encoder = assembled.encoder
        if len(settings.class_names):
            self.classes_ = settings.class_names
        self._model = assembled.model
        self.model_share_ = (settings.model_share or 0.0) if self._model else 0.0
        # Beside a model, noise is set such that budgets last.
        self._planned_answers = None if assembled.model is not None else settings.n_queries
        self._next_number = len(records) if records.ids is None else 0
        self._subjects_given = records.ids is not None
        self.n_records_ = assembled.n_records
        self.n_neighbors_ = assembled.n_neighbors
        self.noise_multiplier_ = assembled.engine.multiplier
        self.budget_ = assembled.engine.votes.budget

    def add(
        self, X: npt.ArrayLike, y: npt.ArrayLike, subjects: npt.ArrayLike | None = None
    ) -> Self:
        """Add records; a known or erased subject keeps what is left of its budget.

        Arguments are those of :meth:`fit`. Give `subjects` exactly if you gave them there. Without
        them every record is a new subject, whose id continues the row numbers. The radius and the
        noise stay as planned.
        """
        check_is_fitted(self)
        check_row_order(X, y=y, subjects=subjects)
        X = inputs.checked_features(self, X)
        targets = self._settings.target.encode(y, len(X))
        inputs.check_subjects_given(subjects is not None, before=self._subjects_given)
        ids = None if subjects is None else inputs.checked_subjects(subjects, len(X))
        records = inputs.FitInputs(X, ids, None)
        if self._interaction is not None:
            added = RecordDigests.from_records(records.features, records.ids)
            REGISTRY.extend(self._interaction, added, same_records=False)
        with self._engine.lock:
            self._recent.clear()
            integers = self._encoded(X)
            self._shard.add(integers, targets, ids or self._new_numbers(len(X)))
        return self

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase all records of `subjects`; return how many records went.

        Features, labels and ids are overwritten. What stays is a keyed hash of each id with what
        was left of its budget, so that coming back does not refill it. Answers already given stay
        as they are, and so do the weights of a private model. Ids that are not there are passed
        over.
        """
        check_is_fitted(self)
        ids = checks.subject_ids("subjects", subjects)
        with self._engine.lock:
            self._recent.clear()
            return self._shard.erase(ids)

    def query(self, X: npt.ArrayLike) -> QueryAnswers:
        """Return answers with all that was released; spends budget, also for the same rows again.

        Other methods remember the answers to the very same rows, and repeat them at no cost.

        Returns
        -------
        QueryAnswers
            With ``labels`` (q,), positions in ``classes_``; ``votes`` (q, c), the noisy votes, or
            None where they are not released; ``noise`` (q,), their standard deviation; ``asked``
            (q,), whether private records were used, for otherwise the answer cost nothing; and
            ``probabilities`` (q, c), or None.
        """
        check_is_fitted(self)
        queries = inputs.checked_features(self, X)
        engine = self._engine
        with engine.lock:
            self._warn_beyond_plan(len(queries))
            integers, predicted = self._encoder.encode(queries), None
            if self._model is not None:
                rows, predicted = self._model.mapped(convert_to_float(integers))
                integers = engine.votes.kernel.encode(rows)
            self._warn_of_far_queries(integers)
            answers = engine.answer(integers, predicted=predicted)
            self.n_answers_ += len(queries)
            self._recent[_digest(queries)] = answers
            while len(self._recent) > _RECENT:
                self._recent.pop(next(iter(self._recent)))
        return answers

    def _answered(self, X: npt.ArrayLike) -> QueryAnswers:
        """Return what the very same rows, all in this order, were answered, or :meth:`query` them.

        Answers are public. They are forgotten as the records change.
        """
        check_is_fitted(self)
        queries = inputs.checked_features(self, X)
        with self._engine.lock:
            known = self._recent.get(_digest(queries))
        return self.query(X) if known is None else known

    def budget_usage(self) -> BudgetUsage:
        """Return a public estimate of how much of their budgets subjects have used.

        The true budgets are private. The estimate charges public points as if they were records, so
        you may publish it. It is for subjects present since ``fit``; later ones have used less.

        Returns
        -------
        BudgetUsage
            With ``used``, the mean share of a budget, ``quantiles`` of that share, and ``retired``,
            the share of subjects whose budgets are spent.

        Raises
        ------
        InvalidInput
            Without a public reference, or with private counts.
        """
        check_is_fitted(self)
        proxies = self._proxies("Budget usage is estimated")
        with self._engine.lock:
            return proxies.budget_usage()

    def _proxies(self, noun: str) -> ProxyLedger:
        proxies = self._engine.proxies
        if proxies is None:
            raise InvalidInput(
                f"{noun} on the public reference, with public counts. Pass 'public' to fit, and "
                "neighbor_count='public'."
            )
        return proxies

    def guarantee(self) -> Guarantee:
        """Return what all answers since `fit` guarantee to every subject; costs nothing.

        ``str()`` of it reads as a paragraph: the bound, what is protected, what is public, and what
        is assumed.

        Returns
        -------
        Guarantee
            With `epsilon` and `delta`, among others.
        """
        check_is_fitted(self)
        return ind_knn_guarantee(self._settings)

    def _encoded(self, X: FloatMatrix) -> IntegerMatrix:
        """Return integer features, in the metric of the private model if there is one."""
        integers = self._encoder.encode(X)
        if self._model is None:
            return integers
        return self._engine.votes.kernel.encode(self._model.features(convert_to_float(integers)))

    @property
    def _shard(self) -> Shard:
        shard = self._engine.shard
        assert isinstance(shard, Shard)  # noqa: S101 (assemble made it)
        return shard

    def _new_numbers(self, size: int) -> list[checks.SubjectId]:
        """Return ids for new subjects: the next numbers that nobody has, or had."""
        numbers: list[checks.SubjectId] = []
        while len(numbers) < size:
            if self._next_number not in self._shard.ledger:
                numbers.append(self._next_number)
            self._next_number += 1
        return numbers

    def _warn_of_far_queries(self, queries: IntegerMatrix) -> None:
        """Warn, when the first are asked, if queries lie elsewhere than the public set."""
        if self.n_answers_ == 0 and not self._engine.radius.covers(queries[:_LOOKED_AT]):
            warnings.warn(
                "The queries do not look like the public reference set: they are further from it "
                "than its own points are. Radius and noise were planned for other queries, so "
                "answers may be poor, and budgets may run out early. Use public rows that are "
                "like the queries, for example past queries.",
                UserWarning,
                stacklevel=4,
            )

    def _warn_beyond_plan(self, size: int) -> None:
        """Warn once that budgets will run out."""
        planned = self._planned_answers
        if planned is not None and self.n_answers_ <= planned < self.n_answers_ + size:
            warnings.warn(
                f"These are more answers than the {planned} that were planned. The guarantee "
                "still holds, but answers turn into noise as budgets run out; "
                "plan with a larger 'n_queries'.",
                PrivacyWarning,
                stacklevel=4,
            )

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "_engine"):
            raise PrivacyRefused(
                "A fitted classifier cannot be copied or pickled: every copy could spend the same "
                "budgets again. Copy it before fit (sklearn.base.clone), or share the one object."
            )
        return dict(super().__getstate__())
