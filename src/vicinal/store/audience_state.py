"""The state of each audience (plan, engine, released answers), and how audiences are opened.

The plan of an audience is stored as JSON (`plan_json`): "asked" has the requested parameters,
"pinned" the decided values of automatic parameters, and "renewal" the periods of its budgets.

Everywhere in this module `schema` has the public facts that all audiences share, `parameters` are
estimator parameters of one audience by name, `requested` is its plan with automatic parameters
still open, `renew` is how its budgets renew (None: they do not), `accept_weak` accepts a guarantee
that is too weak to protect subjects, `lock` is the store's lock, which guards engines, and `slack`
is the accountant of the delta that discrete noise on a grid costs.
"""

import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from vicinal import checks
from vicinal.accounting.budget import UNITS
from vicinal.accounting.guarantee import Guarantee, format_rounded_up
from vicinal.arrays import AnyArray, Floats, Indices, Ints, Shares
from vicinal.engine.engine import QueryAnswers, QueryEngine
from vicinal.engine.proxy_ledger import ProxyLedger
from vicinal.engine.shard import Shard, SharedShard
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.answers import AnswerBlock, AnswerLog, decode_bytes
from vicinal.ledger.audiences import Audience
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.memory import ForkSafeLock
from vicinal.ledger.renewal import LOST_PARTS, Renewal
from vicinal.ledger.sealed_files import parse_json
from vicinal.mechanisms.count import MAX_SIZE_SHARE
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.neighbours.kernels import RBF, IntegerMatrix
from vicinal.parameters import AUTO
from vicinal.planning.engine_factory import (
    PlannedEngine,
    check_planning,
    create_engine,
    create_slack_accountant,
)
from vicinal.planning.guarantees import (
    check_renewal,
    check_shared_budget,
    compute_share_epsilon,
    compute_total_guarantee,
    create_ind_knn_guarantee,
    refuse_weak_plan,
)
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.inputs import issue_warnings
from vicinal.store.opening import OpenStore
from vicinal.store.private_models import StoredModel, load_model, resolve_model_share, train_model
from vicinal.store.store_schema import StoreSchema


def pack_answers(answers: QueryAnswers) -> AnyArray:
    """Return new answers as the one array that is stored.

    It has class indices (q,) if only labels are released; else noisy votes (q, c). With a private
    model, columns with the probabilities (q, c) from model and votes together follow.
    """
    if answers.votes is None:
        return answers.labels
    if answers.probabilities is None:
        return answers.votes
    return np.hstack([answers.votes, answers.probabilities])


SHARED_PARAMETERS = ("kernel", "norm_bound", "index")
"""Parameters of an estimator that have one value for all audiences of a store."""


@dataclass(frozen=True, slots=True)
class TotalGuarantee:
    """Privacy guarantee of all answers to all audiences of a store together; public.

    - `epsilon`, `delta`: hold even if records are changed in response to answers.
    - `capped`: whether one filter over all audiences enforces the guarantee, so that audiences
      opened later do not weaken it.
    """

    epsilon: float
    delta: float
    capped: bool

    @classmethod
    def from_ledger(cls, ledger: Ledger, requested: Sequence[IndKNNPlan]) -> Self:
        """Return the guarantee over all audiences of a ledger.

        `requested`: that of every audience, which is used only if no filter limits the total.
        """
        total = ledger.total
        epsilon, delta = total.guarantee if total else compute_total_guarantee(requested)
        return cls(epsilon, delta, total is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the phrase as plain values for JSON; infinite epsilon is None."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        fields = {"epsilon": epsilon, "delta": self.delta, "capped": self.capped}
        return {**fields, "text": str(self)}

    def __str__(self) -> str:
        """Return the guarantee as a phrase, with epsilon and delta rounded up."""
        if not math.isfinite(self.epsilon):
            return "nothing"
        audiences = "all audiences ever opened" if self.capped else "the audiences opened so far"
        epsilon, delta = format_rounded_up(self.epsilon), format_rounded_up(self.delta)
        return f"epsilon {epsilon} at delta {delta}, for {audiences}"


@dataclass(eq=False)
class AudienceState:
    """Everything in memory that answers the queries of one audience.

    - `audience`: the audience in the ledger, with the budgets of all subjects.
    - `plan`: the requested plan with the values of all automatic parameters.
    - `engine`: answers queries, and charges the budgets of this audience alone.
    - `answers`: all released answers.
    - `proxy_shares`, uint16 (m,): shares of budgets that the released answers would have cost m
      public points, if they were records; empty where no such points are charged.
    - `private_model`: the private model whose predictions are combined with the votes, or None.
    """

    audience: Audience
    requested: IndKNNPlan
    plan: IndKNNPlan
    engine: QueryEngine
    slack: DeltaSlackAccountant
    answers: AnswerLog
    proxy_shares: Shares
    private_model: StoredModel | None = None

    def __post_init__(self) -> None:
        self.reset_counters()

    @property
    def proxies(self) -> ProxyLedger | None:
        """Public points charged like records, as a public estimate of used budgets, or None."""
        return self.engine.proxies

    @property
    def planned_answers(self) -> int:
        """Number of answers that the plan allows up to the current renewal period. Public."""
        renewal = self.audience.due_renewal
        return self.plan.n_queries if renewal is None else renewal.answers

    @property
    def remaining_answers(self) -> int:
        """Number of new answers that remain in the current renewal period. Public."""
        return self.planned_answers - self.audience.used

    def count_remaining_answers(self, analyst: str) -> int:
        """Return the number of new answers that remain for the `analyst` of this name. Public."""
        entry = self.audience.analysts.get(analyst)
        if entry is None or entry.quota is None:
            return self.remaining_answers
        return min(self.remaining_answers, max(0, entry.quota - entry.used))

    def answer(self, rows: IntegerMatrix) -> QueryAnswers:
        """Charge subjects in memory for queries, and return the noisy answers, not yet durable.

        `rows` (q, width): queries as the store's integer features.
        """
        model = self.private_model
        if model is None:
            return self.engine.answer(rows)
        integers, predictions = model.map_queries(rows)
        return self.engine.answer(integers, predicted=predictions)

    def read_answers(
        self, block_numbers: Ints, offsets: Indices
    ) -> tuple[Ints, Floats | None, Floats | None]:
        """Return stored answers of a store of classes: labels, noisy votes and probabilities.

        Labels, int64 (q,), are class indices. Votes and probabilities, float64 (q, c), are None if
        labels alone are released. `block_numbers`, `offsets`, int64 (q,): the number of the block
        that has each answer, and the answer's row in that block.
        """
        stored = self.answers.read_answers(block_numbers, offsets)
        if stored.ndim == 1:
            return stored, None, None
        decision = self.engine.decision
        if self.private_model is None:
            scale = self.noise_scale
            labels = decision.decide_labels(stored, scale)
            return labels, stored, decision.compute_probabilities(stored, scale)
        votes, probabilities = np.split(stored, 2, axis=1)
        if decision.is_plurality:
            labels = votes.argmax(axis=1)
        else:
            labels = decision.choose_classes(probabilities)
        return labels, votes, probabilities

    @property
    def n_private_queries(self) -> int | None:
        """Number of queries for which a private model used private records, or None. Public."""
        gate = self.engine.model_gate
        return None if gate is None else gate.n_private_queries

    def detach_index(self, shard: Shard) -> None:
        """Detach the private model's own index, if there is one, from the store's `shard`.

        The index then no longer follows changes of the records.
        """
        own_shard = self.engine.shard
        if isinstance(own_shard, SharedShard) and own_shard.mapped is not None:
            shard.detach_index(own_shard.mapped)

    def add_block(self, number: int, block: AnswerBlock) -> None:
        """Append a committed block of answers, and take over the public counters stored with it.

        `number`: that of the block's commit.
        """
        self.answers.add_block(number, block.digests, block.answers)
        if block.proxy_shares is not None:
            self.proxy_shares = block.proxy_shares
        if self.private_model is not None and block.n_private_queries is not None:
            self.private_model = dataclasses.replace(
                self.private_model, n_private_queries=block.n_private_queries
            )

    def reset_counters(self) -> None:
        """Set the engine's public counters to their values after the last durable block.

        They then exclude answers that were not released; the charges and slack of these stay.
        """
        if self.proxies is not None:
            self.proxies.restore_shares(self.proxy_shares)
        if self.private_model is None:
            return
        if self.proxies is not None and not len(self.proxy_shares):
            self.proxies.set_used_shares(self.private_model.model.spent_shares)
        gate = self.engine.model_gate
        n_queries = self.plan.n_queries
        assert gate is not None  # noqa: S101 (there is a model)
        gate.n_private_queries = self.private_model.n_private_queries
        gate.max_private_queries = math.ceil(
            self.plan.n_private_answers * self.planned_answers / n_queries
        )

    @property
    def noise_scale(self) -> float:
        """Noise standard deviation of an answer with the typical number of neighbours, in votes.

        With a private model: the standard deviation of the combined score.
        """
        count = self.plan.get_typical_count(self.plan.n_neighbors)
        scale = float(self.engine.noise_multiplier * np.sqrt(count))
        if self.private_model is None:
            return scale
        model = self.private_model.model
        return float(model.loss.compute_pooled_std(scale, count, model.score_std))

    def guarantee(self, total: TotalGuarantee) -> Guarantee:
        """Return the guarantee of this audience's answers to every subject.

        `total`: the guarantee of all audiences together, which is quoted.
        """
        guarantee = create_ind_knn_guarantee(self.requested)
        periods = self._describe_periods()
        protected = [
            sentence.replace("since fit", "since the audience was opened")
            for sentence in guarantee.protected
        ]
        public = [
            *(s.replace("in fit", "when the audience was opened") for s in guarantee.public),
            "noisy counts of evaluations",
            "when the data changed, and how many answers are left",
        ]
        isolation = (
            f"the audience {self.audience.name!r} shares no answers with another audience of the "
            "same store (inside an audience everybody may), and nothing is done with answers to "
            "another audience that changes records here; else only what all audiences guarantee "
            f"together holds: {total}"
        )
        assumptions = [
            *guarantee.assumptions,
            "rows that are evaluated carry the subject id of their person",
            isolation,
            "backups and copies of the store are not used to answer",
        ]
        if periods:
            assumptions.append("the machine's clock is right, for what is said of one period")
        return dataclasses.replace(
            guarantee,
            periods=periods if guarantee.holds else "",
            protected=tuple(protected),
            public=tuple(public),
            assumptions=tuple(assumptions),
        )

    def _describe_periods(self) -> str:
        """Return text on the guarantee of one renewal period; empty if budgets do not renew."""
        renewal = self.audience.renewal
        if renewal is None:
            return ""
        first_units = UNITS - (renewal.periods - 1) * renewal.part
        first_epsilon, later_epsilon = (
            format_rounded_up(compute_share_epsilon(self.requested, units / UNITS))
            for units in (first_units, renewal.part)
        )
        unspent = ", more where earlier ones left some, up to the whole"
        if renewal.loses_unspent:
            unspent = ""
        return (
            f"This holds for all periods together: {renewal}. Given "
            "what earlier ones told, the answers of the first period change that probability by a "
            f"factor of at most e^{first_epsilon}, those of each later period by at most "
            f"e^{later_epsilon}{unspent}. The additional probability is the same. "
        )

    def describe_plan(self) -> dict[str, Any]:
        """Return the plan's parameters, with decided automatic values, as plain values. Public."""
        fields = parse_json(self.audience.plan)
        plan = self.plan
        return {
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "accounting": plan.accounting,
            "n_queries": plan.n_queries,
            "release": "label" if plan.label_only else "votes",
            "neighbor_count": plan.neighbor_count,
            "model_refreshes": plan.model_refreshes,
            "size_estimated": "n_records" not in fields["asked"],
            **fields["pinned"],
        }


def serialize_new_plan(
    schema: StoreSchema,
    parameters: dict[str, Any],
    *,
    accept_weak: bool,
    renew: Renewal | None = None,
) -> str:
    """Return the checked plan of a new audience as JSON, with the requested `parameters`.

    Raises InvalidInput if a parameter is unknown, out of range or common to all audiences. Raises
    PrivacyRefused for a weak guarantee, unless `accept_weak`.
    """
    for name in (*SHARED_PARAMETERS, *schema.target.parameter_names):
        if name in parameters:
            raise InvalidInput(f"The {name!r} parameter belongs to the store, not to an audience.")
    if renew is not None:
        checks.check_instance("renew", renew, Renewal)
        renew.begin(0.0, 0)  # raises InvalidInput if the clock leaves no dates for all periods
    plan_json = "{}" if renew is None else renew.insert_into("{}")
    plan = _build_plan(schema, parameters, parse_json(plan_json))
    if renew is not None:
        check_renewal(plan)
    if not schema.target.is_class_vote and not plan.has_equal_noise:
        raise InvalidInput(
            "The 'min_similarity' parameter must be 'adaptive', and 'neighbor_count' 'public', in "
            "a store of numbers or several labels: its answers have noise of one scale."
        )
    has_guarantee = plan.simulation_seed is None and plan.interactions
    if has_guarantee and not checks.check_boolean("accept_weak_plan", accept_weak):
        refuse_weak_plan(plan.epsilon, plan.delta, plan.n_records)
    if plan.reuse_predictions:
        raise InvalidInput("The 'reuse_predictions' parameter must be False in a store.")
    check_planning(plan, schema.n_features, schema.public)
    # "auto" is written out, so that the plan shows where the automatic rule decides. Delta is
    # fixed now: it must not follow from a later estimate of the number of records.
    requested = {"model_share": AUTO, **parameters, "delta": plan.delta}
    return json.dumps({"asked": requested, "pinned": {}, **parse_json(plan_json)})


def parse_requested_plan(schema: StoreSchema, plan_json: str) -> IndKNNPlan:
    """Return the requested plan of an audience."""
    fields = parse_json(plan_json)
    return _build_plan(schema, fields["asked"], fields)


def plan_total_limit(
    schema: StoreSchema, parameters: dict[str, Any], epsilon_total: float, *, accept_weak: bool
) -> tuple[float, float]:
    """Return epsilon and delta of a limit on the privacy loss to all audiences together.

    `parameters`: those of the first audience; their epsilon must be at most `epsilon_total`, and
    their delta is that of the limit. Raises InvalidInput if the limit or the plan is unusable;
    PrivacyRefused for a weak limit, unless `accept_weak`.
    """
    plan = _build_plan(schema, parameters)
    epsilon = checks.check_real("epsilon_total", epsilon_total, minimum=plan.epsilon)
    check_shared_budget(plan, epsilon, plan.delta, 1)
    if not accept_weak:
        refuse_weak_plan(epsilon, plan.delta, None, "epsilon_total")
    return epsilon, plan.delta


def decide_and_train_model(
    store: OpenStore,
    audience: Audience,
    train: Callable[[OpenStore, Audience, IndKNNPlan], IndKNNPlan],
) -> str:
    """Decide whether a new audience has a private model, train it, and return the plan as JSON.

    The JSON has the decided share of budgets for the model (0 for none) and the number of records.
    `train`: trains the model, or begins to, and returns the plan with the model's share filled in.

    Call it within the ledger transaction that opens the audience: the charges of the training and
    the model become durable together.
    """
    plan = parse_requested_plan(store.schema, audience.plan)
    n_public = 0 if store.schema.public is None else len(store.schema.public)
    trains = plan.may_train(n_public)
    plan = train(store, audience, plan) if trains else plan.choose_model_share(n_public)
    pinned: dict[str, Any] = {"model_share": plan.model_share}
    if plan.n_records is not None:
        pinned["n_records"] = plan.n_records
    return json.dumps({**parse_json(audience.plan), "pinned": pinned})


def pin_plan(store: OpenStore, audience: Audience, lock: ForkSafeLock) -> None:
    """Write the values of all automatic parameters into an audience's stored plan.

    A later opening then does not choose them again. Private estimates that they need (the number of
    records) are charged. Call it within a ledger transaction.
    """
    state, planned = open_audience_state(store, audience, store.ledger.version + 1, lock)
    state.detach_index(store.shard)
    pinned: dict[str, Any] = {
        "n_records": planned.plan.size,
        "model_share": state.plan.model_share,
        "noise_multiplier": planned.engine.noise_multiplier,
    }
    if planned.n_neighbors is not None:
        pinned["n_neighbors"] = planned.n_neighbors
    kernel = planned.engine.votes.kernel
    if isinstance(kernel, RBF):
        pinned["bandwidth"] = kernel.bandwidth
    fields = parse_json(audience.plan)
    audience.plan = json.dumps({**fields, "pinned": {**fields["pinned"], **pinned}})
    audience.slack = state.slack.spent
    store.ledger.write_charges(audience, 0)
    audience.write_row(store.database)


def restore_plan(store: OpenStore, audience: Audience) -> IndKNNPlan:
    """Return an audience's plan from the ledger, with the automatic values decided so far."""
    fields = parse_json(audience.plan)
    return _build_plan(store.schema, {**fields["asked"], **fields["pinned"]}, fields)


def open_audience_state(
    store: OpenStore, audience: Audience, version: int, lock: ForkSafeLock
) -> tuple[AudienceState, PlannedEngine]:
    """Return the state of an audience, and its engine with the values of automatic parameters.

    Automatic parameters without a stored value are chosen now, and private estimates for them are
    charged. `version`: version of the data on which new answers will be based.
    """
    fields = parse_json(audience.plan)
    schema = store.schema
    parameters = dict(fields["asked"])
    requested = _build_plan(schema, parameters, fields)
    requested = resolve_model_share(requested, fields["pinned"], schema)
    parameters["model_share"] = requested.model_share
    plan = _build_plan(schema, {**parameters, **fields["pinned"]}, fields)
    slack = create_slack_accountant(plan, audience.slack)
    model = load_model(store, audience, plan)
    planned = _assemble_engine(store, audience, plan, slack, model)
    answer_width = None if plan.label_only else plan.target.n_coordinates
    if answer_width is not None and model is not None and plan.target.is_class_vote:
        answer_width *= 2  # votes, then the probabilities of the model and the votes together
    answers = AnswerLog(store.database, audience, answer_width, version)
    engine = dataclasses.replace(planned.engine, lock=lock)
    rows = store.database.read("SELECT shares FROM shadows WHERE audience = ?", (audience.number,))
    shares = b"".join(decode_bytes(text) for (text,) in rows)
    proxy_shares = np.frombuffer(shares, dtype="<u2").astype(np.uint16)
    state = AudienceState(audience, requested, plan, engine, slack, answers, proxy_shares, model)
    return state, planned


def _assemble_engine(
    store: OpenStore,
    audience: Audience,
    plan: IndKNNPlan,
    slack: DeltaSlackAccountant,
    model: StoredModel | None,
) -> PlannedEngine:
    """Return the engine of an audience, which answers queries from the store's records.

    `model`: its trained private model, in whose feature space neighbours are searched, or None.
    """
    schema = store.schema
    if model is None:
        shard = SharedShard(store.shard, audience.account)
        kernel = schema.create_kernel(plan.bandwidth)
        return create_engine(shard, kernel, plan, schema.width, schema.public, slack)
    shard = model.open_shard(store, audience, plan)
    width = model.public.shape[1]
    return create_engine(shard, model.kernel, plan, width, model.public, slack, model=model.model)


def _build_plan(
    schema: StoreSchema,
    parameters: dict[str, Any],
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> IndKNNPlan:
    """Return the checked plan of an audience with the store's target, kernel and norm bound.

    `fields`: its parsed JSON plan, of which only "renewal" is read.
    """
    shared = {"kernel": schema.kernel, "norm_bound": schema.bound or "auto"}
    plan = IndKNNPlan.of_target(schema.target, {**shared, **parameters})
    renewal = fields.get("renewal")
    if renewal is None:
        return plan
    return plan.changed(n_periods=renewal["periods"], carries_over=renewal["unspent"] != LOST_PARTS)


def add_audience(store: OpenStore, lock: ForkSafeLock, name: str, plan_json: str) -> AudienceState:
    """Open the audience `name` with a budget for every subject, and return its state.

    The charges of planning (the estimate of the number of records, the training of a private model)
    become durable in one transaction with the audience and its model. All refusals come before any
    charge. `plan_json`: the checked plan, from :func:`serialize_new_plan`.
    """
    requested = parse_requested_plan(store.schema, plan_json)
    with store.ledger.change("audience"):
        audience = store.ledger.open_audience(name, plan_json, requested.interaction_budget)
        audience.plan = decide_and_train_model(store, audience, _train_model)
        pin_plan(store, audience, lock)
        begin_first_period(store, audience, 0.0 if requested.n_records else MAX_SIZE_SHARE)
        # Opened again, with everything pinned, as every later opening does; before the commit, so
        # that nothing is committed that an opening would refuse.
        return open_audience_state(store, audience, store.ledger.version + 1, lock)[0]


def _train_model(store: OpenStore, audience: Audience, plan: IndKNNPlan) -> IndKNNPlan:
    """Train an audience's model, and return `plan` with the model's share filled in."""
    return train_model(store, audience, plan)[0]


def begin_first_period(store: OpenStore, audience: Audience, size_share: float = 0.0) -> None:
    """Begin the first renewal period of an audience, if its budgets renew.

    Call it within the ledger transaction that opens the audience. `size_share`: largest share of a
    full budget that the estimate of the number of records costs; the first period releases at least
    as much of each budget.
    """
    renewal = audience.renewal
    if renewal is not None:
        plan = restore_plan(store, audience)
        first_share = max(plan.model_share or 0.0, size_share)
        store.ledger.start_period(audience, renewal.begin(first_share, plan.n_queries))


@contextmanager
def delay_warnings() -> Iterator[None]:
    """Delay warnings of the body of the context until it ends; drop them if it raises an error.

    Their texts quote released values, so they must not be shown before the charges are durable.
    """
    with warnings.catch_warnings(record=True, action="always") as held_back:
        yield
    issue_warnings(held_back)


def count_remaining_refreshes(state: AudienceState) -> int:
    """Return the number of further trainings, above 0, that an audience's plan permits.

    Raises InvalidInput if it has no model. Raises PrivacyRefused if all trainings of its plan are
    done, or the grid of another one would cost too much delta. Nothing was charged.
    """
    if state.private_model is None:
        raise InvalidInput(
            f"The audience {state.audience.name!r} has no private model. Open another audience "
            "with 'model_share' and 'model_refreshes'."
        )
    refreshes = state.plan.n_trainings - state.private_model.n_completed_trainings
    if refreshes <= 0:
        raise PrivacyRefused(
            f"The audience {state.audience.name!r} has no refresh of its model left: its plan has "
            f"'model_refreshes' {state.plan.n_trainings - 1}. Open another audience with more."
        )
    slack = create_slack_accountant(state.plan, state.audience.slack)
    state.plan.training.check_delta_slack(state.private_model.model.model.features.width, slack, 1)
    return refreshes


def refresh_model(store: OpenStore, lock: ForkSafeLock, state: AudienceState) -> AudienceState:
    """Train the private model of an audience again, and return the audience's new state.

    The charges of the training become durable in one transaction with the model. `state`: the
    present state, which must not be used afterwards.
    """
    audience = state.audience
    with store.ledger.change("refresh"):
        used_shares = train_model(store, audience, state.plan)[1]
        charge_proxies(store, state, used_shares)
        store.ledger.write_charges(audience, 0)
        audience.write_row(store.database)
    # After the commit: if anything fails from here on, the training stays charged.
    state.detach_index(store.shard)
    return open_audience_state(store, audience, store.ledger.version, lock)[0]


def charge_proxies(store: OpenStore, state: AudienceState, used_shares: Floats) -> None:
    """Charge an audience's public proxy points for another training, within a ledger transaction.

    `used_shares`, float64 (m,): share of its budget that the training would have cost each of m
    public points.
    """
    if state.proxies is not None and len(state.proxy_shares):
        state.proxies.restore_shares(state.proxy_shares)
        state.proxies.deduct_shares(used_shares)
        store.ledger.write_proxy_shares(state.audience, state.proxies.stored_shares)
