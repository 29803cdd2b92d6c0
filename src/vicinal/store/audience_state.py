"""The state of each audience: its plan, its engine, and its released answers."""

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
from vicinal.accounting.guarantee import Guarantee, rounded_up
from vicinal.arrays import AnyArray, Floats, Ints, Places, Shares
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
from vicinal.mechanisms.count import MOST_OF_SIZE
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.neighbours.kernels import RBF, IntegerMatrix
from vicinal.parameters import AUTO
from vicinal.planning.engine_factory import PlannedEngine, check_planning, engine_on, slack_meter
from vicinal.planning.guarantees import (
    check_renewal,
    check_under_total,
    ind_knn_guarantee,
    part_epsilon,
    refuse_weak,
    total_over,
)
from vicinal.planning.plan import IndKNNPlan
from vicinal.store.opening import OpenStore
from vicinal.store.private_models import StoredModel, load_model, settle_request, train_model
from vicinal.store.store_schema import StoreSchema


def pack_answers(answers: QueryAnswers) -> AnyArray:
    """Return new answers as one array to store.

    Class indices (q,) if labels alone are released; else votes (q, c), followed by the (q, c)
    probabilities of a private model if there is one.
    """
    if answers.votes is None:
        return answers.labels
    if answers.probabilities is None:
        return answers.votes
    return np.hstack([answers.votes, answers.probabilities])


SHARED_PARAMETERS = ("kernel", "norm_bound", "index")
"""Parameters of an estimator that a store fixes for all audiences."""


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
        """Return the guarantee of a ledger's audiences, given their plans as requested."""
        total = ledger.total
        epsilon, delta = total.guarantee if total else total_over(requested)
        return cls(epsilon, delta, total is not None)

    def to_dict(self) -> dict[str, Any]:
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        fields = {"epsilon": epsilon, "delta": self.delta, "capped": self.capped}
        return {**fields, "text": str(self)}

    def __str__(self) -> str:
        if not math.isfinite(self.epsilon):
            return "nothing"
        audiences = "all audiences ever opened" if self.capped else "the audiences opened so far"
        epsilon, delta = rounded_up(self.epsilon), rounded_up(self.delta)
        return f"epsilon {epsilon} at delta {delta}, for {audiences}"


@dataclass(eq=False)
class AudienceState:
    """Everything in memory that answers the queries of one audience.

    - `audience`: the ledger's entry of it, with the budgets of all subjects.
    - `requested`: the plan as requested, with parameters left "auto".
    - `plan`: the same plan with all automatic parameters fixed.
    - `engine`: answers queries, and charges the budgets of this audience alone.
    - `slack`: accounts for the delta that rounding to a grid costs.
    - `answers`: all released answers.
    - `budget_usage`, uint16 (m,): shares of budgets that the released answers would have cost the
      m public points of `proxies`; empty without proxies.
    - `private_model`: the private model that predicts beside the votes, or None.
    """

    audience: Audience
    requested: IndKNNPlan
    plan: IndKNNPlan
    engine: QueryEngine
    slack: DeltaSlackAccountant
    answers: AnswerLog
    budget_usage: Shares
    private_model: StoredModel | None = None

    def __post_init__(self) -> None:
        self._resume_usage()

    @property
    def proxies(self) -> ProxyLedger | None:
        """Public points charged like records, as a public estimate of used budgets, or None."""
        return self.engine.proxies

    @property
    def planned(self) -> int:
        """Number of answers that the plan allows up to the current renewal period. Public."""
        renewal = self.audience.due_renewal
        return self.plan.n_queries if renewal is None else renewal.answers

    @property
    def remaining(self) -> int:
        """Number of new answers that remain in the current renewal period. Public."""
        return self.planned - self.audience.used

    def answer(self, rows: IntegerMatrix) -> QueryAnswers:
        """Return noisy answers to queries, charged in memory but not yet durable.

        `rows` (q, width): queries as the store's integer features.
        """
        model = self.private_model
        if model is None:
            return self.engine.answer(rows)
        integers, predictions = model.map_queries(rows)
        return self.engine.answer(integers, predicted=predictions)

    def read_answers(
        self, seqs: Places, offsets: Places
    ) -> tuple[Ints, Floats | None, Floats | None]:
        """Return released labels, votes and probabilities, by block number and row in the block.

        Labels, int64 (q,), are class indices. Noisy votes and probabilities, float64 (q, c), are
        None if labels alone are released.
        """
        stored = self.answers.read(seqs, offsets)
        if stored.ndim == 1:
            return stored, None, None
        decision = self.engine.decision
        scale = self.noise_scale
        if self.private_model is None:
            labels = decision.decide_labels(stored, scale)
            return labels, stored, decision.probabilities(stored, scale)
        votes, probabilities = np.split(stored, 2, axis=1)
        if decision.is_plurality:
            labels = votes.argmax(axis=1)
        else:
            labels = decision.choose_classes(probabilities)
        return labels, votes, probabilities

    @property
    def n_asked(self) -> int | None:
        """Number of queries that a model passed on to private records; None without. Public."""
        gate = self.engine.model_gate
        return None if gate is None else gate.n_asked

    def close(self, shard: Shard) -> None:
        """Detach the model's own index of the records from the store's `shard`, if there is one."""
        own_shard = self.engine.shard
        if isinstance(own_shard, SharedShard) and own_shard.mapped is not None:
            shard.detach_index(own_shard.mapped)

    def drop_answers(self) -> None:
        """Undo what unreleased answers changed in the engine; their charges and slack stay."""
        self._resume_usage()

    def enter(self, seq: int, block: AnswerBlock) -> None:
        """Add a block of answers that became durable under the number `seq`."""
        self.answers.add_block(seq, block.digests, block.answers)
        if block.proxies is not None:
            self.budget_usage = block.proxies
        if self.private_model is not None and block.n_asked is not None:
            self.private_model = dataclasses.replace(self.private_model, n_asked=block.n_asked)

    def _resume_usage(self) -> None:
        """Set the engine's public counters to their values after the last durable block."""
        if self.proxies is not None:
            self.proxies.restore_shares(self.budget_usage)
        if self.private_model is None:
            return
        if self.proxies is not None and not len(self.budget_usage):
            self.proxies.set_used_shares(self.private_model.model.used)
        gate = self.engine.model_gate
        n_queries = self.plan.n_queries
        assert gate is not None  # noqa: S101 (there is a model)
        gate.n_asked = self.private_model.n_asked
        gate.planned = math.ceil(self.plan.n_asked * self.planned / n_queries)

    @property
    def noise_scale(self) -> float:
        """Noise standard deviation of an answer with the typical number of neighbours, in votes.

        Beside a private model, that of the combined score.
        """
        count = self.plan.typical_count(self.plan.n_neighbors)
        scale = float(self.engine.noise_multiplier * np.sqrt(count))
        if self.private_model is None:
            return scale
        model = self.private_model.model
        return float(model.loss.noise_left(scale, count, model.doubt))

    def guarantee(self, total: TotalGuarantee) -> Guarantee:
        """Return the guarantee of this audience's answers to every subject.

        `total`: the guarantee of all audiences of the store together, which the text quotes.
        """
        guarantee = ind_knn_guarantee(self.requested)
        periods = self._describe_periods()
        opened = "when the audience was opened"
        return dataclasses.replace(
            guarantee,
            periods=periods if guarantee.holds else "",
            protected=tuple(
                sentence.replace("since fit", "since the audience was opened")
                for sentence in guarantee.protected
            ),
            public=(
                *(sentence.replace("in fit", opened) for sentence in guarantee.public),
                "noisy counts of evaluations",
                "when the data changed, and how many answers are left",
            ),
            assumptions=(
                *guarantee.assumptions,
                "rows that are evaluated carry the subject id of their person",
                (
                    f"the audience {self.audience.name!r} shares no answers with another audience "
                    "of the same store (inside an audience everybody may), and nothing is done "
                    "with answers to another audience that changes records here; else only what "
                    f"all audiences guarantee together holds: {total}"
                ),
                "backups and copies of the store are not used to answer",
                *(
                    ["the machine's clock is right, for what is said of one period"]
                    if periods
                    else []
                ),
            ),
        )

    def _describe_periods(self) -> str:
        """Return sentences on the guarantee of a single period; empty if budgets do not renew."""
        renewal = self.audience.renewal
        if renewal is None:
            return ""
        first_units = UNITS - (renewal.periods - 1) * renewal.part
        first_epsilon, later_epsilon = (
            f"{math.ceil(1e4 * part_epsilon(self.requested, units / UNITS)) / 1e4:g}"
            for units in (first_units, renewal.part)
        )
        unspent = "" if renewal.loses else ", more where earlier ones left some, up to the whole"
        return (
            f"This holds for all periods together: {renewal}. Given "
            "what earlier ones told, the answers of the first period change that probability by a "
            f"factor of at most e^{first_epsilon}, those of each later period by at most "
            f"e^{later_epsilon}{unspent}. The additional probability is the same. "
        )

    def describe_plan(self) -> dict[str, Any]:
        """Return the plan as plain numbers and texts, by parameter. Public."""
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
    """Return the checked plan of a new audience as JSON, with the requested parameters.

    `parameters` are the audience's own, by name; `renew` is given if its budgets renew.

    Raises InvalidInput if a parameter is unknown, out of range or fixed by the store. Raises
    PrivacyRefused, unless `accept_weak`, if the guarantee is too weak to protect subjects.
    """
    for name in (*SHARED_PARAMETERS, *schema.target.parameter_names):
        if name in parameters:
            raise InvalidInput(f"The {name!r} parameter belongs to the store, not to an audience.")
    if renew is not None:
        renew.begin(0.0, 0)  # raises InvalidInput if the clock leaves no dates for all periods
    plan_json = "{}" if renew is None else renew.insert_into("{}")
    plan = _build_plan(schema, parameters, parse_json(plan_json))
    if renew is not None:
        check_renewal(plan)
    if not schema.target.voted and not plan.even_noise:
        raise InvalidInput(
            "The 'min_similarity' parameter must be 'adaptive', and 'neighbor_count' 'public', in "
            "a store of numbers or several labels: its answers have noise of one scale."
        )
    has_guarantee = plan.simulation_seed is None and plan.interactions
    if has_guarantee and not checks.check_boolean("accept_weak_plan", accept_weak):
        refuse_weak(plan.epsilon, plan.delta, plan.n_records)
    if plan.reuse_predictions:
        raise InvalidInput("The 'reuse_predictions' parameter must be False in a store.")
    check_planning(plan, schema.n_features, schema.public)
    # "auto" is written out, so that the plan shows where the automatic rule decides. Delta is
    # fixed now: it must not follow from a later estimate of the number of records.
    requested = {"model_share": AUTO, **parameters, "delta": plan.delta}
    return json.dumps({"asked": requested, "pinned": {}, **parse_json(plan_json)})


def parse_requested_plan(schema: StoreSchema, plan_json: str) -> IndKNNPlan:
    """Return the plan that was requested for an audience, from its JSON in the ledger."""
    fields = parse_json(plan_json)
    return _build_plan(schema, fields["asked"], fields)


def check_total(
    schema: StoreSchema, parameters: dict[str, Any], epsilon_total: float, *, accept_weak: bool
) -> tuple[float, float]:
    """Return epsilon and delta of a limit over all audiences.

    `parameters` are those of the first audience, see :func:`serialize_new_plan`: epsilon must not
    be above the limit, and delta is that of the limit. Raises as that function.
    """
    plan = _build_plan(schema, parameters)
    epsilon = checks.check_real("epsilon_total", epsilon_total, minimum=plan.epsilon)
    check_under_total(plan, epsilon, plan.delta, 1)
    if not accept_weak:
        refuse_weak(epsilon, plan.delta, None, "epsilon_total")
    return epsilon, plan.delta


def settled_plan(
    store: OpenStore,
    audience: Audience,
    train: Callable[[OpenStore, Audience, IndKNNPlan], IndKNNPlan],
) -> str:
    """Return the JSON plan of a new audience after the decision on, and training of, its model.

    `train` trains a private model, or begins to, and returns the plan with the model's share fixed.
    Call inside the change of the ledger that opens the audience: charges of the training and the
    model become durable together.
    """
    fields = parse_json(audience.plan)
    plan = _build_plan(store.schema, fields["asked"], fields)
    n_public = 0 if store.schema.public is None else len(store.schema.public)
    trains = plan.may_train(n_public)
    plan = train(store, audience, plan) if trains else plan.settled(n_public)
    pinned: dict[str, Any] = {"model_share": plan.model_share}
    if plan.n_records is not None:
        pinned["n_records"] = plan.n_records
    return json.dumps({**fields, "pinned": pinned})


def pin_plan(store: OpenStore, audience: Audience, lock: ForkSafeLock) -> None:
    """Fix all automatic parameters of an audience's plan, and charge the estimates they need.

    Call inside a change of the ledger.
    """
    state, planned = open_audience_state(store, audience, store.ledger.version + 1, lock)
    state.close(store.shard)
    audience.plan = _pin_parameters(audience.plan, state.plan, planned)
    audience.slack = state.slack.spent
    store.ledger.write_charges(audience, 0)
    audience.write(store.database)


def restore_plan(store: OpenStore, audience: Audience) -> IndKNNPlan:
    """Return the plan of an audience, with the automatic parameters that are fixed already."""
    fields = parse_json(audience.plan)
    return _build_plan(store.schema, {**fields["asked"], **fields["pinned"]}, fields)


def _pin_parameters(plan_json: str, plan: IndKNNPlan, planned: PlannedEngine) -> str:
    """Return a JSON plan with the values of all automatic parameters written out.

    So a later opening does not choose them again. `plan` and `planned` have the chosen values.
    """
    kernel = planned.engine.votes.kernel
    pinned: dict[str, Any] = {
        "n_records": planned.n_records,
        "model_share": plan.model_share,
        "noise_multiplier": planned.engine.noise_multiplier,
    }
    if planned.n_neighbors is not None:
        pinned["n_neighbors"] = planned.n_neighbors
    if isinstance(kernel, RBF):
        pinned["bandwidth"] = kernel.bandwidth
    fields = parse_json(plan_json)
    return json.dumps({**fields, "pinned": {**fields["pinned"], **pinned}})


def open_audience_state(
    store: OpenStore, audience: Audience, version: int, lock: ForkSafeLock
) -> tuple[AudienceState, PlannedEngine]:
    """Return the state of an audience, and its engine with the values of automatic parameters.

    Parameters that the plan has not fixed yet are chosen now, and private estimates for them are
    charged.

    Parameters
    ----------
    version
        Version of the data that answers will belong to.
    lock
        The store's lock, which guards the engine.
    """
    fields = parse_json(audience.plan)
    schema = store.schema
    parameters = dict(fields["asked"])
    requested = _build_plan(schema, parameters, fields)
    requested = settle_request(requested, fields["pinned"], schema)
    parameters["model_share"] = requested.model_share
    plan = _build_plan(schema, {**parameters, **fields["pinned"]}, fields)
    slack = slack_meter(plan, audience.slack)
    model = load_model(store, audience, plan)
    planned = _assemble_engine(store, audience, plan, slack, model)
    if plan.label_only:
        answer_width = None
    elif model is not None and plan.target.voted:
        # Votes, then the probabilities of the model and the votes together.
        answer_width = 2 * plan.target.n_coordinates
    else:
        answer_width = plan.target.n_coordinates
    answers = AnswerLog(store.database, audience, answer_width, version)
    engine = dataclasses.replace(planned.engine, lock=lock)
    rows = store.database.read("SELECT shares FROM shadows WHERE audience = ?", (audience.number,))
    shares = b"".join(decode_bytes(text) for (text,) in rows)
    budget_usage = np.frombuffer(shares, dtype="<u2").astype(np.uint16)
    state = AudienceState(audience, requested, plan, engine, slack, answers, budget_usage, model)
    return state, planned


def _assemble_engine(
    store: OpenStore,
    audience: Audience,
    plan: IndKNNPlan,
    slack: DeltaSlackAccountant,
    model: StoredModel | None,
) -> PlannedEngine:
    """Return an audience's engine on the store's records, or on them in the metric of a `model`."""
    schema = store.schema
    if model is None:
        shard = SharedShard(store.shard, audience.account)
        kernel = schema.kernel_of(plan.bandwidth)
        return engine_on(shard, kernel, plan, schema.width, schema.public, slack)
    return engine_on(
        model.open_shard(store, audience, plan),
        model.kernel,
        plan,
        model.public.shape[1],
        model.public,
        slack,
        model=model.model,
    )


def _build_plan(
    schema: StoreSchema,
    parameters: dict[str, Any],
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> IndKNNPlan:
    """Return the checked plan of an audience's own `parameters` under the store's schema.

    `fields` are those of the JSON plan; if budgets renew, it has a "renewal".
    """
    shared = {"kernel": schema.kernel, "norm_bound": schema.bound or "auto"}
    plan = IndKNNPlan.of_target(schema.target, {**shared, **parameters})
    renewal = fields.get("renewal")
    if renewal is None:
        return plan
    return plan.changed(periods=renewal["periods"], carries=renewal["unspent"] != LOST_PARTS)


def compute_lead(votes: np.ndarray, scale: float) -> np.ndarray:
    """Return the lead of the best class over the next, in noise standard deviations, (q,).

    `votes` (q, c) have independent noise of standard deviation `scale`, so the noise of a
    difference is sqrt(2) times as large.
    """
    top_two = np.partition(votes, -2, axis=1)[:, -2:]
    return np.asarray((top_two[:, 1] - top_two[:, 0]) / (np.sqrt(2.0) * scale))


def add_audience(store: OpenStore, lock: ForkSafeLock, name: str, plan_json: str) -> AudienceState:
    """Open an audience with a budget for every subject, and return its state.

    The charges of planning (the estimate of the number of records, the training of a private model)
    become durable in one transaction with the audience and its model. All refusals come before any
    charge. `plan_json`: from :func:`serialize_new_plan`.
    """
    requested = parse_requested_plan(store.schema, plan_json)
    with store.ledger.change("audience"):
        audience = store.ledger.open_audience(name, plan_json, requested.spendable)
        audience.plan = settled_plan(store, audience, _train_model)
        pin_plan(store, audience, lock)
        begin_periods(store, audience, 0.0 if requested.n_records else MOST_OF_SIZE)
        # Opened again, with everything pinned, as every later opening does; before the commit, so
        # that nothing is committed that an opening would refuse.
        return open_audience_state(store, audience, store.ledger.version + 1, lock)[0]


def _train_model(store: OpenStore, audience: Audience, plan: IndKNNPlan) -> IndKNNPlan:
    """Train an audience's model, and return the plan with the model's share fixed."""
    return train_model(store, audience, plan)[0]


def begin_periods(store: OpenStore, audience: Audience, size_share: float = 0.0) -> None:
    """Begin the first renewal period of an audience, if its budgets renew.

    Call inside the change that plans the audience. `size_share`: part of a full budget that the
    estimate of the number of records costs at most; the first period's part of budgets covers it.
    """
    renewal = audience.renewal
    if renewal is not None:
        plan = restore_plan(store, audience)
        first_share = max(plan.model_share or 0.0, size_share)
        store.ledger.start_period(audience, renewal.begin(first_share, plan.n_queries))


@contextmanager
def warned_after() -> Iterator[None]:
    """Hold warnings back until the body ends without an error.

    Their texts quote released values, so they must not be shown before the charges for these
    are durable.
    """
    with warnings.catch_warnings(record=True, action="always") as held_back:
        yield
    for warning in held_back:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def count_remaining_refreshes(state: AudienceState) -> int:
    """Return the number of trainings that remain for an audience's model, at least 1.

    Raises InvalidInput if it has no model. Raises PrivacyRefused if all trainings of its plan are
    done, or the grid of another one would cost too much delta. Nothing was charged.
    """
    if state.private_model is None:
        raise InvalidInput(
            f"The audience {state.audience.name!r} has no private model. Open another audience "
            "with 'model_share' and 'model_refreshes'."
        )
    refreshes = state.plan.trainings - state.private_model.trained
    if refreshes <= 0:
        raise PrivacyRefused(
            f"The audience {state.audience.name!r} has no refresh of its model left: its plan has "
            f"'model_refreshes' {state.plan.trainings - 1}. Open another audience with more."
        )
    slack = slack_meter(state.plan, state.audience.slack)
    state.plan.training.rehearse(state.private_model.model.model.features.width, slack, 1)
    return refreshes


def refresh_model(store: OpenStore, lock: ForkSafeLock, state: AudienceState) -> AudienceState:
    """Train the private model of an audience again, and return the audience's new state.

    The charges of the training become durable in one transaction with the model.
    """
    audience = state.audience
    with store.ledger.change("refresh"):
        used_shares = train_model(store, audience, state.plan)[1]
        note_training(store, state, used_shares)
        store.ledger.write_charges(audience, 0)
        audience.write(store.database)
    # After the commit: if anything fails from here on, the training stays charged.
    state.close(store.shard)
    return open_audience_state(store, audience, store.ledger.version, lock)[0]


def note_training(store: OpenStore, state: AudienceState, used_shares: Floats) -> None:
    """Charge an audience's public proxies for another training, inside a change of the ledger.

    `used_shares`, float64 (m,): the share of its budget that the training would have cost each.
    """
    if state.proxies is not None and len(state.budget_usage):
        state.proxies.restore_shares(state.budget_usage)
        state.proxies.spend_shares(used_shares)
        store.ledger.write_proxy_shares(state.audience, state.proxies.shares)
