"""The state of each audience: its plan, its engine, and the answers it has given."""

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
from vicinal.ledger.answers import AnswerBlock, AnswerLog, bytes_of
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
from vicinal.store.private_models import StoredModel, settled_request, stored_model, train_model
from vicinal.store.store_schema import StoreSchema


def released(answers: QueryAnswers) -> AnyArray:
    """Return answers as they are stored: labels, or votes, and probabilities of a model."""
    if answers.votes is None:
        return answers.labels
    if answers.probabilities is None:
        return answers.votes
    return np.hstack([answers.votes, answers.probabilities])


SHARED = ("kernel", "norm_bound", "index")


@dataclass(frozen=True, slots=True)
class TotalGuarantee:
    """What all audiences of a store guarantee together; public.

    `epsilon`, `delta`: of all answers to all of them, whatever is done with answers meanwhile.
    `capped`: whether one filter enforces it, and audiences opened later change nothing.
    """

    epsilon: float
    delta: float
    capped: bool

    @classmethod
    def of(cls, ledger: Ledger, requested: Sequence[IndKNNPlan]) -> Self:
        total = ledger.total
        return cls(*(total.guarantee if total else total_over(requested)), total is not None)

    def to_dict(self) -> dict[str, Any]:
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        fields = {"epsilon": epsilon, "delta": self.delta, "capped": self.capped}
        return {**fields, "text": str(self)}

    def __str__(self) -> str:
        if not math.isfinite(self.epsilon):
            return "nothing"
        until = (
            ", for all audiences ever opened"
            if self.capped
            else ", for the audiences opened so far"
        )
        return f"epsilon {rounded_up(self.epsilon)} at delta {rounded_up(self.delta)}{until}"


@dataclass(eq=False)
class AudienceState:
    """Everything that answers one audience.

    - `audience`: its row in the ledger, with budgets.
    - `requested`: the plan as it was asked for.
    - `settings`: the same with everything automatic fixed.
    - `engine`: charges this audience's budgets only.
    - `slack`: what the grid costs.
    - `answers`: what was released.
    - `budget_usage`, uint16 (m,): how far the public points of its proxies are worn by what was
      released.
    - `private_model`: the private model beside its votes, if it has one.
    """

    audience: Audience
    requested: IndKNNPlan
    settings: IndKNNPlan
    engine: QueryEngine
    slack: DeltaSlackAccountant
    answers: AnswerLog
    budget_usage: Shares
    private_model: StoredModel | None = None

    def __post_init__(self) -> None:
        self._resume_usage()

    @property
    def proxies(self) -> ProxyLedger | None:
        """Public points that are charged along, where there is a public reference and count."""
        return self.engine.proxies

    @property
    def planned(self) -> int:
        """How many answers there may have been by now. Public."""
        renewal = self.audience.due
        return self.settings.n_queries if renewal is None else renewal.answers

    @property
    def remaining(self) -> int:
        """How many answers the plan has left for now. Public."""
        return self.planned - self.audience.used

    def answer(self, rows: IntegerMatrix) -> QueryAnswers:
        """Answer queries given as the store's integers (q, d): charge in memory, and add noise."""
        if (model := self.private_model) is None:
            return self.engine.answer(rows)
        mapped, predicted = model.mapped(rows)
        return self.engine.answer(mapped, predicted=predicted)

    def read(self, seqs: Places, places: Places) -> tuple[Ints, Floats | None, Floats | None]:
        """Return what was released, by block and place in it: labels, votes, and probabilities.

        Labels, int64 (q,), are positions of classes. Noisy votes and probabilities, float64 (q, c),
        are None where labels alone leave.
        """
        stored = self.answers.read(seqs, places)
        if stored.ndim == 1:
            return stored, None, None
        decision, scale = self.engine.decision, self.noise_scale
        if self.private_model is None:
            return decision.labels(stored, scale), stored, decision.probabilities(stored, scale)
        votes, chances = np.split(stored, 2, axis=1)
        labels = votes.argmax(axis=1) if self.engine.plain else decision.chosen(chances)
        return labels, votes, chances

    @property
    def n_asked(self) -> int | None:
        """How many queries a private model has put to the records; None without one. Public."""
        gate = self.engine.model_gate
        return None if gate is None else gate.n_asked

    def close(self, shard: Shard) -> None:
        own = self.engine.shard
        if isinstance(own, SharedShard) and own.mapped is not None:
            shard.unfollow(own.mapped)

    def drop_answers(self) -> None:
        """Forget answers that nobody will see; their charges and their slack stay."""
        self._resume_usage()

    def enter(self, seq: int, block: AnswerBlock) -> None:
        self.answers.enter(seq, block.digests, block.answers)
        if block.proxies is not None:
            self.budget_usage = block.proxies
        if self.private_model is not None and block.n_asked is not None:
            self.private_model = dataclasses.replace(self.private_model, n_asked=block.n_asked)

    def _resume_usage(self) -> None:
        if self.proxies is not None:
            self.proxies.resume(self.budget_usage)
        if self.private_model is None:
            return
        if self.proxies is not None and not len(self.budget_usage):
            self.proxies.start(self.private_model.model.used)
        gate, planned = self.engine.model_gate, self.settings.n_queries
        assert gate is not None  # noqa: S101 (there is a model)
        gate.n_asked = self.private_model.n_asked
        gate.planned = math.ceil(self.settings.n_asked * self.planned / planned)

    @property
    def noise_scale(self) -> float:
        """Noise of an answer of typical count, in votes."""
        count = self.settings.typical_count(self.settings.n_neighbors)
        scale = float(self.engine.multiplier * np.sqrt(count))
        if self.private_model is None:
            return scale
        model = self.private_model.model
        return float(model.loss.noise_left(scale, count, model.doubt))

    def guarantee(self, together: TotalGuarantee) -> Guarantee:
        """Return what this audience's answers guarantee to every subject.

        `together`: what all audiences of the store do.
        """
        plain, periods = ind_knn_guarantee(self.requested), self._periods()
        opened = "when the audience was opened"
        return dataclasses.replace(
            plain,
            periods=periods if plain.holds else "",
            protected=tuple(
                words.replace("since fit", "since the audience was opened")
                for words in plain.protected
            ),
            public=(
                *(words.replace("in fit", opened) for words in plain.public),
                "noisy counts of evaluations",
                "when the data changed, and how many answers are left",
            ),
            assumptions=(
                *plain.assumptions,
                "rows that are evaluated carry the subject id of their person",
                (
                    f"the audience {self.audience.name!r} shares no answers with another audience "
                    "of the same store (inside an audience everybody may), and nothing is done "
                    "with answers to another audience that changes records here; else only what "
                    f"all audiences guarantee together holds: {together}"
                ),
                "backups and copies of the store are not used to answer",
                *(
                    ["the machine's clock is right, for what is said of one period"]
                    if periods
                    else []
                ),
            ),
        )

    def _periods(self) -> str:
        """Say what the guarantee is of one period, where budgets renew."""
        if (renewal := self.audience.renewal) is None:
            return ""
        first, later = (
            f"{math.ceil(1e4 * part_epsilon(self.requested, units / UNITS)) / 1e4:g}"
            for units in (UNITS - (renewal.periods - 1) * renewal.part, renewal.part)
        )
        unspent = "" if renewal.loses else ", more where earlier ones left some, up to the whole"
        return (
            f"This holds for all periods together: {renewal}. Given "
            "what earlier ones told, the answers of the first period change that probability by a "
            f"factor of at most e^{first}, those of each later period by at most e^{later}{unspent}"
            ". The additional probability is the same. "
        )

    def plan(self) -> dict[str, Any]:
        """Return the plan in numbers. Public."""
        written, settings = parse_json(self.audience.plan), self.settings
        return {
            "epsilon": settings.epsilon,
            "delta": settings.delta,
            "accounting": settings.accounting,
            "n_queries": settings.n_queries,
            "release": "label" if settings.label_only else "votes",
            "neighbor_count": settings.neighbor_count,
            "model_refreshes": settings.model_refreshes,
            "size_estimated": "n_records" not in written["asked"],
            **written["pinned"],
        }


def new_plan(
    schema: StoreSchema,
    parameters: dict[str, Any],
    *,
    accept_weak: bool,
    renew: Renewal | None = None,
) -> str:
    """Return the plan of a new audience as JSON, checked.

    Raises InvalidInput if a parameter is unknown or out of range, or is not each audience's own;
    PrivacyRefused, unless `accept_weak`, if it protects next to nobody.
    """
    for name in (*SHARED, *schema.target.own):
        if name in parameters:
            raise InvalidInput(f"The {name!r} parameter belongs to the store, not to an audience.")
    if renew is not None:
        renew.begin(0.0, 0)  # raises InvalidInput if the clock leaves no dates for all periods
    plan = "{}" if renew is None else renew.within("{}")
    settings = _settings(schema, parameters, parse_json(plan))
    if renew is not None:
        check_renewal(settings)
    if not schema.target.voted and not settings.even_noise:
        raise InvalidInput(
            "The 'min_similarity' parameter must be 'adaptive', and 'neighbor_count' 'public', in "
            "a store of numbers or several labels: its answers have noise of one scale."
        )
    counts = settings.simulation_seed is None and settings.interactions
    if counts and not checks.check_boolean("accept_weak_plan", accept_weak):
        refuse_weak(settings.epsilon, settings.delta, settings.n_records)
    if settings.reuse_predictions:
        raise InvalidInput("The 'reuse_predictions' parameter must be False in a store.")
    check_planning(settings, schema.n_features, schema.public)
    # What is written says so where the rule decides. Delta is fixed: no estimate may move it.
    asked = {"model_share": AUTO, **parameters, "delta": settings.delta}
    return json.dumps({"asked": asked, "pinned": {}, **parse_json(plan)})


def requested_plan(schema: StoreSchema, written: str) -> IndKNNPlan:
    plan = parse_json(written)
    return _settings(schema, plan["asked"], plan)


def checked_total(
    schema: StoreSchema, parameters: dict[str, Any], epsilon_total: float, *, accept_weak: bool
) -> tuple[float, float]:
    """Return epsilon and delta of a total over audiences; that of :func:`new_plan` is the first."""
    settings = _settings(schema, parameters)
    total = (
        checks.check_real("epsilon_total", epsilon_total, least=settings.epsilon),
        settings.delta,
    )
    check_under_total(settings, *total, 1)
    if not accept_weak:
        refuse_weak(*total, None, "epsilon_total")
    return total


def settled_plan(
    parts: OpenStore,
    audience: Audience,
    train: Callable[[OpenStore, Audience, IndKNNPlan], IndKNNPlan],
) -> str:
    """Return the plan of a new audience with its private model settled, as far as `train` goes.

    Inside the change of the ledger that opens the audience: what training charged and the model
    become durable together.
    """
    plan = parse_json(audience.plan)
    pinned: dict[str, Any] = {}
    settings = _settings(parts.schema, plan["asked"], plan)
    n_public = 0 if parts.schema.public is None else len(parts.schema.public)
    trains = settings.may_train(n_public)
    settings = train(parts, audience, settings) if trains else settings.settled(n_public)
    pinned["model_share"] = settings.model_share
    if settings.n_records is not None:
        pinned["n_records"] = settings.n_records
    return json.dumps({**plan, "pinned": pinned})


def pin_plan(parts: OpenStore, audience: Audience, lock: ForkSafeLock) -> None:
    """Plan what is left open of an audience, charge it, and fix it; inside a change."""
    state, planned = open_audience_state(parts, audience, parts.ledger.version + 1, lock)
    state.close(parts.shard)
    audience.plan = _pinned(audience.plan, state.settings, planned)
    audience.slack = state.slack.spent
    parts.ledger.write_charges(audience, 0)
    audience.write(parts.database)


def settings_of(parts: OpenStore, audience: Audience) -> IndKNNPlan:
    """Return the plan of an audience, with all that is fixed of it."""
    plan = parse_json(audience.plan)
    return _settings(parts.schema, {**plan["asked"], **plan["pinned"]}, plan)


def _pinned(plan: str, settings: IndKNNPlan, assembled: PlannedEngine) -> str:
    """Return a plan with everything fixed that was automatic, so that it stays what it was."""
    pinned: dict[str, Any] = {"n_records": assembled.n_records}
    pinned["model_share"] = settings.model_share
    pinned["noise_multiplier"] = assembled.engine.multiplier
    if assembled.n_neighbors is not None:
        pinned["n_neighbors"] = assembled.n_neighbors
    if isinstance(assembled.engine.votes.kernel, RBF):
        pinned["bandwidth"] = assembled.engine.votes.kernel.bandwidth
    fields = parse_json(plan)
    return json.dumps({**fields, "pinned": {**fields["pinned"], **pinned}})


def open_audience_state(
    parts: OpenStore, audience: Audience, version: int, lock: ForkSafeLock
) -> tuple[AudienceState, PlannedEngine]:
    """Return the state of an audience; what its plan leaves open is planned now, and charged."""
    plan, schema, database = parse_json(audience.plan), parts.schema, parts.database
    chosen = dict(plan["asked"])
    requested = _settings(schema, chosen, plan)
    requested = settled_request(requested, plan["pinned"], schema)
    chosen["model_share"] = requested.model_share
    settings = _settings(schema, {**chosen, **plan["pinned"]}, plan)
    slack = slack_meter(settings, audience.slack)
    model = stored_model(parts, audience, settings)
    assembled = _engine(parts, audience, settings, slack, model)
    n_classes = None if settings.label_only else settings.target.n_coordinates
    # Beside a model of classes its probabilities follow the votes.
    chances = model is not None and settings.target.voted
    width = n_classes if n_classes is None or not chances else 2 * n_classes
    answers = AnswerLog(database, audience, width, version)
    engine = dataclasses.replace(assembled.engine, lock=lock)
    rows = database.read("SELECT shares FROM shadows WHERE audience = ?", (audience.number,))
    shares = b"".join(bytes_of(text) for (text,) in rows)
    usage = np.frombuffer(shares, dtype="<u2").astype(np.uint16)
    return AudienceState(
        audience, requested, settings, engine, slack, answers, usage, model
    ), assembled


def _engine(
    parts: OpenStore,
    audience: Audience,
    settings: IndKNNPlan,
    slack: DeltaSlackAccountant,
    model: StoredModel | None,
) -> PlannedEngine:
    schema = parts.schema
    if model is None:
        return engine_on(
            SharedShard(parts.shard, audience.account), schema.kernel_of(settings.bandwidth),
            settings, schema.width, schema.public, slack,
        )  # fmt: skip
    return engine_on(
        model.shard(parts, audience, settings), model.kernel, settings, model.public.shape[1],
        model.public, slack, model=model.model,
    )  # fmt: skip


def _settings(
    schema: StoreSchema, parameters: dict[str, Any], plan: Mapping[str, Any] = MappingProxyType({})
) -> IndKNNPlan:
    """Return checked settings; `plan` says whether budgets renew."""
    shared = {"kernel": schema.kernel, "norm_bound": schema.bound or "auto"}
    settings = IndKNNPlan.of_target(schema.target, {**shared, **parameters})
    if (renewal := plan.get("renewal")) is None:
        return settings
    return settings.changed(periods=renewal["periods"], carries=renewal["unspent"] != LOST_PARTS)


def lead(votes: np.ndarray, scale: float) -> np.ndarray:
    """Return the lead of the best class over the next, in noise standard deviations, (q,)."""
    top = np.partition(votes, -2, axis=1)[:, -2:]
    return np.asarray((top[:, 1] - top[:, 0]) / (np.sqrt(2.0) * scale))


def add_audience(parts: OpenStore, lock: ForkSafeLock, name: str, plan: str) -> AudienceState:
    """Give every subject a budget for a new audience, plan for it, and return its state.

    What planning costs (the estimate of the size, the training of a private model) is charged in
    the same transaction; a model becomes durable with what it cost. What can be refused is, before.
    """
    settings = requested_plan(parts.schema, plan)
    with parts.ledger.change("audience"):
        audience = parts.ledger.open_audience(name, plan, settings.spendable)
        audience.plan = settled_plan(parts, audience, lambda *each: train_model(*each)[0])
        pin_plan(parts, audience, lock)
        begin_periods(parts, audience, 0.0 if settings.n_records else MOST_OF_SIZE)
        # Opened again, with everything pinned, as every later opening does; before the commit, so
        # that nothing is committed that an opening would refuse.
        return open_audience_state(parts, audience, parts.ledger.version + 1, lock)[0]


def begin_periods(parts: OpenStore, audience: Audience, size_share: float = 0.0) -> None:
    """Begin the first period, inside the change that plans an audience, if its budgets renew.

    `size_share`: of a budget, for the estimate of the size.
    """
    if (renewal := audience.renewal) is not None:
        pinned = settings_of(parts, audience)
        first = max(pinned.model_share or 0.0, size_share)
        parts.ledger.set_period(audience, renewal.begin(first, pinned.n_queries))


@contextmanager
def warned_after() -> Iterator[None]:
    """Give warnings once the body is through: what they tell was released, and is paid for."""
    with warnings.catch_warnings(record=True, action="always") as held:
        yield
    for each in held:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def refreshes_left(state: AudienceState) -> int:
    """Return how often an audience's model may still be trained again, at least once.

    Raises InvalidInput if it has no model. Raises PrivacyRefused if all trainings of its plan are
    done, or if what the grid costs does not fit: before anything is begun.
    """
    if state.private_model is None:
        raise InvalidInput(
            f"The audience {state.audience.name!r} has no private model. Open another audience "
            "with 'model_share' and 'model_refreshes'."
        )
    refreshes = state.settings.trainings - state.private_model.trained
    if refreshes <= 0:
        raise PrivacyRefused(
            f"The audience {state.audience.name!r} has no refresh of its model left: its plan has "
            f"'model_refreshes' {state.settings.trainings - 1}. Open another audience with more."
        )
    slack = slack_meter(state.settings, state.audience.slack)
    state.settings.training.rehearse(state.private_model.model.model.features.width, slack, 1)
    return refreshes


def refresh_model(parts: OpenStore, lock: ForkSafeLock, state: AudienceState) -> AudienceState:
    """Train the private model of an audience again, and return the audience's new state.

    What the training charges becomes durable in the same transaction as the model.
    """
    audience = state.audience
    with parts.ledger.change("refresh"):
        note_training(parts, state, train_model(parts, audience, state.settings)[1])
        parts.ledger.write_charges(audience, 0)
        audience.write(parts.database)
    # After the commit: what the training charged stays charged, whatever goes wrong from here on.
    state.close(parts.shard)
    return open_audience_state(parts, audience, parts.ledger.version, lock)[0]


def note_training(parts: OpenStore, state: AudienceState, used: Floats) -> None:
    """Charge public points along for another training, inside a change; `used`: their shares."""
    if state.proxies is not None and len(state.budget_usage):
        state.proxies.resume(state.budget_usage)
        state.proxies.spend(used)
        parts.ledger.write_proxies(state.audience, state.proxies.shares)
