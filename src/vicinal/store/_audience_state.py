"""The state of each audience: its plan, its engine, and the answers it has given."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import Floats, Ints, Places, Shares
from vicinal._parameters import AUTO
from vicinal.accounting import Guarantee
from vicinal.engine import ProxyLedger, QueryAnswers, QueryEngine, Shard, SharedShard
from vicinal.errors import InvalidInput
from vicinal.ledger import AnswerBlock, AnswerLog, Audience, Database, ForkSafeLock, bytes_of
from vicinal.linear import ModelRule
from vicinal.mechanisms import DeltaSlackAccountant
from vicinal.neighbours import RBF, IntegerMatrix
from vicinal.planning import (
    GATE,
    NEIGHBORS,
    IndKNNPlan,
    PlannedEngine,
    engine_on,
    ind_knn_guarantee,
    slack_meter,
)
from vicinal.store._opening import OpenStore
from vicinal.store._private_models import StoredModel, settled_request, stored_model, train_model
from vicinal.store._reuse_replay import ReuseReplay, mask_unasked
from vicinal.store._store_schema import StoreSchema

_RULE = "model_rule"
"""In a pinned plan: how the private model of an audience is used, for as long as it lives."""

_SHARED = ("kernel", "norm_bound", "index")


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedAnswers:
    """Stored answers as they leave.

    `labels`, int64 (q,): positions of classes. `votes`, float64 (q, c) or None: noisy votes; NaN
    where nobody was asked. None where labels alone leave. `probabilities`, float64 (q, c) or None:
    None where votes do not tell them: behind a gate.
    """

    labels: Ints
    votes: Floats | None = None
    probabilities: Floats | None = None


@dataclass(eq=False)
class AudienceState:
    """Everything that answers one audience.

    - `audience`: its row in the ledger, with budgets.
    - `requested`: the plan as it was asked for.
    - `settings`: the same with everything automatic fixed.
    - `engine`: charges this audience's budgets only.
    - `slack`: what the grid costs.
    - `answers`: what was released.
    - `reuse_replay`: what the engine's memory learns from, if it has one.
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
    reuse_replay: ReuseReplay | None
    budget_usage: Shares
    private_model: StoredModel | None = None

    def __post_init__(self) -> None:
        self._resume_usage()

    @property
    def proxies(self) -> ProxyLedger | None:
        """Public points that are charged along, where there is a public reference and count."""
        return self.engine.proxies

    @property
    def remaining(self) -> int:
        """How many answers the plan has left. Public."""
        return self.settings.n_queries - self.audience.used

    def answer(self, rows: IntegerMatrix) -> QueryAnswers:
        """Answer queries given as the store's integers (q, d): charge in memory, and add noise."""
        if (model := self.private_model) is None:
            return self.engine.answer(rows)
        mapped, prior = model.mapped(rows)
        return self.engine.answer(mapped, prior=prior)

    def read(self, seqs: Places, places: Places) -> ReleasedAnswers:
        """Return what was released, by block and place in it."""
        stored = self.answers.read(seqs, places)
        if stored.ndim == 1:
            return ReleasedAnswers(stored)
        decision, scale = self.engine.decision, self.noise_scale
        if self.private_model is None:
            votes, labels = mask_unasked(stored), decision.labels(stored, scale or np.nan)
            probabilities = None if scale is None else decision.probabilities(votes, scale)
            return ReleasedAnswers(labels, votes, probabilities)
        votes, chances = np.split(stored, 2, axis=1)
        labels = votes.argmax(axis=1) if self.engine.plain else decision.chosen(chances)
        return ReleasedAnswers(labels, votes, chances)

    @property
    def n_asked(self) -> int | None:
        """How many queries a private model has put to the records; None without one. Public."""
        gate = self.engine.model_gate
        return None if gate is None else gate.n_asked

    def close(self, shard: Shard) -> None:
        """Let go of the records in this audience's own metric, if it has one."""
        own = self.engine.shard
        if isinstance(own, SharedShard) and own.mapped is not None:
            shard.unfollow(own.mapped)

    def drop_answers(self) -> None:
        """Forget answers that nobody will see; their charges and their slack stay."""
        if self.reuse_replay is not None:
            self.engine = self.reuse_replay.engine_with_reuse()
        self._resume_usage()

    def enter(self, seq: int, block: AnswerBlock) -> None:
        """Take note that a block of answers is durable."""
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
        assert self.engine.model_gate is not None  # noqa: S101 (there is a model)
        self.engine.model_gate.n_asked = self.private_model.n_asked

    @property
    def noise_scale(self) -> float | None:
        """Noise of an answer of typical count, in votes; None if a gate sets it from day to day."""
        if self.settings.noise_multiplier is None:
            return None
        count = self.settings.typical_count(self.settings.n_neighbors)
        return float(self.settings.noise_multiplier * np.sqrt(count))

    def guarantee(self) -> Guarantee:
        """Return what this audience's answers guarantee to every subject."""
        plain = ind_knn_guarantee(self.requested)
        opened = "when the audience was opened"
        return dataclasses.replace(
            plain,
            protected=tuple(
                words.replace("since fit", "since the audience was opened")
                for words in plain.protected
            ),
            public=(
                *(words.replace("in fit", opened) for words in plain.public),
                "noisy counts of evaluations",
                "that and when the data changed, and how many answers are left",
            ),
            assumptions=(
                *plain.assumptions,
                "rows that are evaluated carry the subject id of their person",
                (
                    f"the audience {self.audience.name!r} shares no answers with another audience "
                    "of the same store (inside an audience everybody may)"
                ),
                "backups and copies of the store are not used to answer",
            ),
        )

    def plan(self) -> dict[str, Any]:
        """Return the plan in numbers. Public."""
        pinned: dict[str, Any] = json.loads(self.audience.plan)["pinned"]
        pinned.pop(_RULE, None)
        settings = self.settings
        return {
            "epsilon": settings.epsilon,
            "delta": settings.delta,
            "accounting": settings.accounting,
            "n_queries": settings.n_queries,
            "release": "label" if settings.label_only else "votes",
            "reuse_predictions": settings.reuse_predictions,
            "neighbor_count": settings.neighbor_count,
            **pinned,
        }


def new_plan(schema: StoreSchema, parameters: dict[str, Any]) -> str:
    """Return the plan of a new audience as JSON, checked.

    Raises InvalidInput if a parameter is unknown or out of range, or is not each audience's own.
    """
    for name in (*_SHARED, *schema.target.own):
        if name in parameters:
            raise InvalidInput(f"The {name!r} parameter belongs to the store, not to an audience.")
    settings = _settings(schema, parameters)
    if not schema.target.voted and not settings.even_noise:
        raise InvalidInput(
            "The 'min_similarity' parameter must be 'adaptive', and 'neighbor_count' 'public', in "
            "a store of numbers or several labels: its answers have noise of one scale."
        )
    if settings.reuse_predictions == NEIGHBORS:
        raise InvalidInput("The 'reuse_predictions' parameter must be False or 'gate' in a store.")
    # What is written says so where the rule decides.
    share = {"model_share": AUTO} if schema.target.voted else {}
    return json.dumps({"asked": {**share, **parameters}, "pinned": {}})


def settled_plan(parts: OpenStore, audience: Audience) -> str:
    """Return the plan of a new audience with its private model settled, and trained if it has one.

    Inside the change of the ledger that opens the audience: what training charged and the model
    become durable together.
    """
    plan = json.loads(audience.plan)
    pinned: dict[str, Any] = {}
    settings = _settings(parts.schema, plan["asked"])
    if parts.schema.target.voted:
        settings = train_model(parts, audience, settings)
        pinned["model_share"] = settings.model_share
        if settings.model_share:
            pinned[_RULE] = dataclasses.asdict(settings.model_rule)
    if settings.n_records is not None:
        pinned["n_records"] = settings.n_records
    return json.dumps({**plan, "pinned": pinned})


def pinned_plan(plan: str, settings: IndKNNPlan, assembled: PlannedEngine) -> str:
    """Return a plan with everything fixed that was automatic, so that it stays what it was.

    But for the noise behind a gate: it follows what is asked, from the same public facts.
    """
    gated = settings.reuse_predictions == GATE and settings.noise_multiplier is None
    pinned: dict[str, Any] = {"n_records": assembled.n_records}
    if settings.target.voted:
        pinned["model_share"] = settings.model_share
    if not gated:
        pinned["noise_multiplier"] = assembled.engine.schedule.multiplier
    if assembled.n_neighbors is not None:
        pinned["n_neighbors"] = assembled.n_neighbors
    if isinstance(assembled.engine.votes.kernel, RBF):
        pinned["bandwidth"] = assembled.engine.votes.kernel.bandwidth
    fields = json.loads(plan)
    return json.dumps({**fields, "pinned": {**fields["pinned"], **pinned}})


def open_audience_state(
    parts: OpenStore, audience: Audience, version: int, lock: ForkSafeLock
) -> tuple[AudienceState, PlannedEngine]:
    """Return the state of an audience; what its plan leaves open is planned now, and charged."""
    plan, schema, database = json.loads(audience.plan), parts.schema, parts.database
    chosen = dict(plan["asked"])
    requested = _settings(schema, chosen)
    if schema.target.voted:
        requested = settled_request(requested, plan["pinned"], schema)
        chosen["model_share"] = requested.model_share
    pinned = {name: value for name, value in plan["pinned"].items() if name != _RULE}
    settings = _settings(schema, {**chosen, **pinned})
    if settings.model_share:
        settings = settings.changed(settled_rule=ModelRule(**plan["pinned"][_RULE]))
    slack = slack_meter(settings, audience.slack)
    model = stored_model(parts, audience, settings)
    assembled = _engine(parts, audience, settings, slack, model)
    n_classes = None if settings.label_only else settings.target.n_coordinates
    width = n_classes if n_classes is None or model is None else 2 * n_classes
    answers = AnswerLog(database, audience, width, version)
    engine = dataclasses.replace(assembled.engine, lock=lock)
    reuse_replay = None
    if settings.reuse_predictions == GATE:
        reuse_replay = ReuseReplay(database, audience, schema, engine, n_classes)
        engine = reuse_replay.engine_with_reuse()
    usage = _stored_usage(database, audience)
    return AudienceState(
        audience, requested, settings, engine, slack, answers, reuse_replay, usage, model
    ), assembled


def _engine(
    parts: OpenStore,
    audience: Audience,
    settings: IndKNNPlan,
    slack: DeltaSlackAccountant,
    model: StoredModel | None,
) -> PlannedEngine:
    """Return the engine of an audience, in the store's features or in the metric of its model."""
    schema = parts.schema
    if model is None:
        return engine_on(
            SharedShard(parts.shard, audience.account), schema.kernel_of(settings.bandwidth),
            settings, schema.n_features, schema.public, slack,
        )  # fmt: skip
    return engine_on(
        model.shard(parts, audience, settings), model.kernel, settings, model.public.shape[1],
        model.public, slack, model=model.model,
    )  # fmt: skip


def _stored_usage(database: Database, audience: Audience) -> Shares:
    rows = database.read("SELECT shares FROM shadows WHERE audience = ?", (audience.number,))
    content = b"".join(bytes_of(text) for (text,) in rows)
    return np.frombuffer(content, dtype="<u2").astype(np.uint16)


def _settings(schema: StoreSchema, parameters: dict[str, Any]) -> IndKNNPlan:
    shared = {
        "kernel": schema.kernel,
        "norm_bound": schema.bound or "auto",
    }
    return IndKNNPlan.of_target(schema.target, {**shared, **parameters})


def lead(votes: np.ndarray, scale: float) -> np.ndarray:
    """Return the lead of the best class over the next, in noise standard deviations, (q,)."""
    top = np.partition(votes, -2, axis=1)[:, -2:]
    return np.asarray((top[:, 1] - top[:, 0]) / (np.sqrt(2.0) * scale))
