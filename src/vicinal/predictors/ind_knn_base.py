"""The base class of Ind-KNN estimators: records, budgets, queries and the guarantee.

A *private model* is a linear model that ``fit`` trains with noise, for a share of every budget
(`model_share`; with "auto" planning decides whether there is one). Its predictions are joined with
the votes, and neighbours are searched in its *metric*: the vectors that consist of an encoded row,
scaled to norm 1, and the model's scaled scores of it.
"""

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
from vicinal.engine.proxy_ledger import BudgetUsage
from vicinal.engine.shard import Shard
from vicinal.errors import InvalidInput, PrivacyRefused, PrivacyWarning, warn_caller
from vicinal.features.table_drafts import rows_from_schema
from vicinal.features.table_features import (
    TableFeatures,
    as_schema,
    refuse_rows_without_values,
    warn_of_unexpected_values,
)
from vicinal.features.table_schema import TableSchema
from vicinal.interactions.fit_registry import REGISTRY
from vicinal.interactions.row_matching import RecordDigests
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.planning.engine_factory import PlannedEngine, build_engine, convert_to_float32
from vicinal.planning.guarantees import create_ind_knn_guarantee, describe_weak_plan
from vicinal.planning.parameter_tables import IndKNNParameters
from vicinal.planning.plan import IndKNNPlan
from vicinal.planning.required_records import warn_about_small_data
from vicinal.predictors import inputs
from vicinal.predictors.fixed_plan import GuaranteeDisplay
from vicinal.tabular import check_row_order, read_names, refuse_features_as_targets

_MAX_COMPARED_QUERIES = 256  # number of first queries compared with the public reference
_MAX_CACHED_CALLS = 8  # number of latest calls of `query` whose answers are cached


def _hash_queries(queries: FloatMatrix) -> bytes:
    """Return a SHA-256 digest of the type, shape and values of queries (q, d): a cache key."""
    return hashlib.sha256(f"{queries.dtype} {queries.shape}".encode() + queries.tobytes()).digest()


class IndKNNEstimator(GuaranteeDisplay, IndKNNParameters):
    """Answers queries from private records; every subject has a separate privacy budget.

    A subclass converts the released noisy sums into predictions.
    """

    _plan: IndKNNPlan
    """The declared plan, with the choice of a private model. Unlike the plan of the engine
    (:class:`PlannedEngine`), it has no estimated number of records."""

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
        y : array (n,), or (n, c) for several labels or numbers
            Private targets: labels, each one of `classes`, or numbers, which are clipped to
            `bounds`; 0s and 1s for several labels. The columns of a table of several targets are
            matched by name.
        subjects : array (n,), optional
            Integer or string id of the subject behind each record; the guarantee is for a subject
            with all its records. The number 5 and the text "5" are one id. Without it every record
            is a subject, its id its row number.
        public : array or table (m, d), optional
            Public, unlabelled reference points; required by every parameter that is "adaptive",
            "public" or "auto". Columns are matched by name if `X` has names, too. With `schema` a
            table, which is generated from the schema if left out.
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
            declared = None if schema is None else as_schema(schema)
            names = read_names("X", X) if declared is None else declared.names
            refuse_features_as_targets(names or (), y=y, subjects=subjects)
            if declared is not None:
                self._table = TableFeatures(declared)
                rows = rows_from_schema(declared, seed=0) if public is None else public
                public = self._table.transform(rows)
            fit_warnings = self._fit_arrays(X, y, subjects, public)
        inputs.issue_warnings(fit_warnings)
        return self

    def _fit_arrays(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subjects: npt.ArrayLike | None,
        public: npt.ArrayLike | None,
    ) -> list[warnings.WarningMessage]:
        """Check and claim the records, plan the engine, and set the fitted attributes.

        The arguments are those of :meth:`fit`, with `public` as features. Warns of a weak guarantee
        before the claim. Returns the warnings of planning, to issue after the fit: one that a
        filter turns into an error must not discard a fit that has been charged.
        """
        plan = IndKNNPlan.from_estimator(self)
        has_guarantee = plan.simulation_seed is None and plan.interactions
        weakness = describe_weak_plan(plan.epsilon, plan.delta, plan.n_records)
        if has_guarantee and weakness:
            warn_caller(f"{weakness} Choose a smaller one.", PrivacyWarning)
        records = inputs.read_fit_inputs(self, X, subjects, public)
        targets = plan.target.encode(y, len(records))
        claimed = inputs.claim_records(self, plan, records)
        with warnings.catch_warnings(record=True, action="always") as fit_warnings:
            planned = build_engine(
                plan, records.features, targets, records.subject_ids, records.reference, claimed
            )
            warn_about_small_data(planned)
        if plan.model_share is None:
            # "auto": planning has decided whether a private model is trained.
            plan = plan.changed(
                model_share=planned.plan.model_share, no_model_reason=planned.plan.no_model_reason
            )
        self._set_fitted_state(planned, plan, records)
        self.n_answers_ = 0
        return fit_warnings

    def _set_fitted_state(
        self, planned: PlannedEngine, plan: IndKNNPlan, records: inputs.FitInputs
    ) -> None:
        """Set the fitted attributes from a planned engine, which answers queries from now on.

        `plan`: the one to keep (`_plan`). `records`: the checked arguments of ``fit``.
        """
        self._engine = planned.engine
        self._plan = plan
        self._recent_answers: dict[bytes, QueryAnswers] = {}
        self._encoder = planned.encoder
        if len(plan.class_names):
            self.classes_ = plan.class_names
        self._model = planned.model
        self.model_share_ = (plan.model_share or 0.0) if self._model else 0.0
        # With a private model the noise is adapted so that budgets last: no plan can be exceeded.
        self._planned_answers = None if planned.model is not None else plan.n_queries
        self._next_subject_id = len(records) if records.ids is None else 0
        self._has_subject_ids = records.ids is not None
        self.n_records_ = planned.plan.size
        self.n_neighbors_ = planned.n_neighbors
        self.noise_multiplier_ = planned.engine.noise_multiplier
        self.budget_ = planned.engine.votes.budget

    def add(
        self, X: npt.ArrayLike, y: npt.ArrayLike, subjects: npt.ArrayLike | None = None
    ) -> Self:
        """Add private records; an enrolled or erased subject keeps its remaining budget.

        `X` (n, d), `y` (n,), or (n, c) for several labels or numbers, and `subjects` (n,) have the
        form that :meth:`fit` takes. Pass `subjects` if and only if `fit` received them. Without
        them every record is a new subject, whose id is the next row number that no subject had. The
        radius and the noise stay as planned.
        """
        check_is_fitted(self)
        check_row_order(X, y=y, subjects=subjects)
        X = inputs.read_features(self, X)
        targets = self._plan.target.encode(y, len(X))
        inputs.check_subjects_given(subjects is not None, given_before=self._has_subject_ids)
        ids = None if subjects is None else inputs.read_subject_list(subjects, len(X))
        if ids is not None and self._shard.ledger.has_similar_unknown_ids(ids):
            inputs.warn_of_similar_ids()
        records = inputs.FitInputs(X, ids, None)
        if self._interaction is not None:
            digests = RecordDigests.from_records(records.features, records.ids)
            REGISTRY.extend_claim(self._interaction, digests, same_records=False)
        with self._engine.lock:
            self._recent_answers.clear()
            integers = self._encode_features(X)
            if ids is None:
                ids = []
                while len(ids) < len(X):
                    if self._next_subject_id not in self._shard.ledger:  # no subject ever had it
                        ids.append(self._next_subject_id)
                    self._next_subject_id += 1
            self._shard.add(integers, targets, ids)
        return self

    def erase(self, subjects: npt.ArrayLike) -> int:
        """Erase all records of `subjects`; return the number of erased records.

        Features, labels and ids are overwritten. A keyed hash of each id is kept with its remaining
        budget, so that re-enrolment does not refill it. Released answers and the weights of a
        private model do not change. Ids without records are ignored.
        """
        check_is_fitted(self)
        ids = checks.check_subject_ids("subjects", subjects)
        with self._engine.lock:
            self._recent_answers.clear()
            return self._shard.erase(ids)

    def query(self, X: npt.ArrayLike) -> QueryAnswers:
        """Return all released values for queries `X` (q, d); repeated rows are charged again.

        The other methods use cached answers for identical arrays `X`, without a charge.

        Returns
        -------
        QueryAnswers
            With ``labels`` (q,), indices into ``classes_``; ``votes`` (q, c), the noisy votes, or
            None if they are not released; ``noise`` (q,), their standard deviation; ``asked``
            (q,), whether private records were used (otherwise the answer is not charged); and
            ``probabilities`` (q, c), or None.
        """
        return self._answer(self._check_queries(X))

    def _check_queries(self, X: npt.ArrayLike) -> FloatMatrix:
        """Return the features (q, d) of queries `X`, which are public; warn of doubtful values."""
        check_is_fitted(self)
        queries = inputs.read_features(self, X)
        table: TableFeatures | None = vars(self).get("_table")
        if table is not None:
            refuse_rows_without_values(queries, table.transform_empty_row())
            warn_of_unexpected_values("The queries", X, as_schema(table.schema))
        return queries

    def _answer(self, queries: FloatMatrix) -> QueryAnswers:
        """Return all released values for queries (q, d), charged, and cache them."""
        engine = self._engine
        with engine.lock:
            self._warn_of_unplanned_answers(len(queries))
            integers = self._encoder.encode(queries)
            predicted = None
            if self._model is not None:
                rows, predicted = self._model.map_rows(convert_to_float32(integers))
                integers = engine.votes.kernel.encode(rows)
            self._warn_of_far_queries(integers)
            answers = engine.answer(integers, predicted=predicted)
            self.n_answers_ += len(queries)
            self._recent_answers[_hash_queries(queries)] = answers
            while len(self._recent_answers) > _MAX_CACHED_CALLS:
                self._recent_answers.pop(next(iter(self._recent_answers)))
        return answers

    def _query_cached(self, X: npt.ArrayLike) -> QueryAnswers:
        """Return the cached answers to an identical array `X` (q, d), else those of :meth:`query`.

        Repeating released answers is not charged. The cache is cleared when records change.
        """
        queries = self._check_queries(X)
        with self._engine.lock:
            cached_answers = self._recent_answers.get(_hash_queries(queries))
        return self._answer(queries) if cached_answers is None else cached_answers

    def budget_usage(self) -> BudgetUsage:
        """Return a public estimate of the used share of the subjects' budgets.

        The true budgets are private. The estimate charges public points as if they were records, so
        you may publish it. It holds for subjects enrolled by ``fit``; those added later have used
        less. Raises InvalidInput without a public reference, or with private counts.

        Returns
        -------
        BudgetUsage
            With ``used``, the mean share of a budget, ``quantiles`` of that share, and ``retired``,
            the share of subjects with spent budgets.
        """
        check_is_fitted(self)
        proxies = self._engine.proxies
        if proxies is None:
            raise InvalidInput(
                "Budget usage is estimated on the public reference, with public counts. Pass "
                "'public' to fit, and neighbor_count='public'."
            )
        with self._engine.lock:
            return proxies.budget_usage()

    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of all answers since `fit` for every subject; not charged.

        Its ``str()`` is a paragraph with the bound, the protected data, the public data and the
        assumptions.
        """
        check_is_fitted(self)
        return create_ind_knn_guarantee(self._plan)

    def _encode_features(self, X: FloatMatrix) -> IntegerMatrix:
        """Return the integers that the index stores for features `X` (n, d) of records.

        With a private model they are those of the vectors in its metric.
        """
        integers = self._encoder.encode(X)
        if self._model is None:
            return integers
        return self._engine.votes.kernel.encode(
            self._model.compute_metric_rows(convert_to_float32(integers))
        )

    @property
    def _shard(self) -> Shard:
        """The private records with the subjects' budgets, from the engine."""
        shard = self._engine.shard
        assert isinstance(shard, Shard)  # noqa: S101 (narrows the type)
        return shard

    def _warn_of_far_queries(self, queries: IntegerMatrix) -> None:
        """Warn at the first call if queries (q, d), integer features, are far from public rows.

        Only the first :data:`_MAX_COMPARED_QUERIES` are compared.
        """
        if self.n_answers_ == 0 and not self._engine.radius.covers(queries[:_MAX_COMPARED_QUERIES]):
            warn_caller(
                "The queries do not look like the public reference set: they are further from it "
                "than its own points are. Radius and noise were planned for other queries, so "
                "answers may be poor, and budgets may run out early. Use public rows that are "
                "like the queries, for example past queries."
            )

    def _warn_of_unplanned_answers(self, n_queries: int) -> None:
        """Warn when `n_queries` further queries first exceed the planned number of answers."""
        planned = self._planned_answers
        if planned is not None and self.n_answers_ <= planned < self.n_answers_ + n_queries:
            warn_caller(
                f"These are more answers than the {planned} that were planned. The guarantee "
                "still holds, but answers turn into noise as budgets run out; "
                "plan with a larger 'n_queries'.",
                PrivacyWarning,
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle; raise PrivacyRefused after ``fit``."""
        if hasattr(self, "_engine"):
            raise PrivacyRefused(
                "A fitted classifier cannot be copied or pickled: every copy could spend the same "
                "budgets again. Copy it before fit (sklearn.base.clone), or share the one object. "
                "To keep the records beyond this process, create a vicinal.Store from them."
            )
        return dict(super().__getstate__())
