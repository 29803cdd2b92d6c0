"""From queries to answers: one way down, one way up, in either order of execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vicinal.arrays import AnyArray, Bools, Floats, Places
from vicinal.engine.answer_reuse import AnsweredNeighbours, PublicVotes
from vicinal.engine.proxy_ledger import ProxyLedger
from vicinal.engine.shard import Shards, TwoRounds
from vicinal.interactions.fit_registry import Interaction
from vicinal.ledger.memory import ForkSafeLock
from vicinal.linear.losses import Predictions
from vicinal.linear.private_model import ModelGate
from vicinal.mechanisms.count import NoisyCount
from vicinal.mechanisms.votes import BlockRelease, DeltaSlackAccountant, VoteMechanism
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.radius import LEAST_COUNT, Radius
from vicinal.progress import step
from vicinal.targets.class_decision import ClassDecision

BLOCK = 256
"""Queries answered together. With a private count, larger blocks would spend every count of the
block before its first vote, and lose accuracy once budgets run out."""

Released = tuple[AnyArray, Floats]


@dataclass(frozen=True, slots=True)
class QueryAnswers:
    """What leaves for a batch of queries.

    - `labels`, int64 (q,): positions of classes.
    - `votes`, float64 (q, c) or None: noisy votes, where votes leave. Beside a private model its
      probabilities, and what votes make of them, times the number of votes expected.
    - `asked`, bool (q,): whether private records were asked. Where not, a private model answered.
    - `noise`, float64 (q,): standard deviation of the noise on every vote, in votes; for queries
      not asked what it would have been.
    - `probabilities`, float64 (q, c) or None: beside a private model, where votes leave: its
      probabilities, and where private records were asked what their votes make of them. Without a
      model they follow from the votes.
    """

    labels: Places
    votes: Floats | None
    asked: Bools
    noise: Floats
    probabilities: Floats | None = None

    def __post_init__(self) -> None:
        # They are said again at no cost, and must be the same then, whatever somebody does to them.
        for each in (self.labels, self.votes, self.asked, self.noise, self.probabilities):
            if each is not None:
                each.setflags(write=False)

    @classmethod
    def joined(cls, parts: Sequence[QueryAnswers]) -> QueryAnswers:
        """Return the answers to consecutive queries as one."""
        votes = [part.votes for part in parts if part.votes is not None]
        chances = [part.probabilities for part in parts if part.probabilities is not None]
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate(votes) if votes else None,
            np.concatenate([part.asked for part in parts]),
            np.concatenate([part.noise for part in parts]),
            np.concatenate(chances) if chances else None,
        )


@dataclass(frozen=True, slots=True)
class QueryEngine:
    """Everything that a fitted classifier answers with; scales and radii are public.

    - `shard`: the private records and the accounts that answers are charged to: one shard, or
      several.
    - `radius`: which records take part.
    - `votes`: the mechanism whose noisy votes, or labels, are the answer.
    - `count`: the paper's private count; None if counts are public estimates.
    - `multiplier`: sigma2: the noise scale is sigma2 sqrt(K) votes at a count of K.
    - `reuse`: earlier answers that vote, in the published algorithm.
    - `slack`: what the grid of counts and votes costs.
    - `decision`: how noisy votes become labels and probabilities.
    - `plain`: whether the class with the most votes always wins, so that nothing has to decide.
    - `least_noise`: no vote ever has a smaller noise scale, whatever is counted.
    - `sequential`: whether queries are answered one by one where counts are private.
    - `interaction`: the claim on the records; None where none is needed, or the store remembers.
    - `model_gate`: the private model whose scores join the votes.
    - `proxies`: public points that are charged along, where there is a public reference and count.
    - `block`: queries that are answered together; earlier answers vote from the next block on.
    - `lock`: held by whoever touches the records or their budgets.
    """

    shard: Shards
    radius: Radius
    votes: VoteMechanism
    count: NoisyCount | None
    multiplier: float
    reuse: AnsweredNeighbours | None
    slack: DeltaSlackAccountant
    decision: ClassDecision
    least_noise: float
    sequential: bool = False
    interaction: Interaction | None = None
    model_gate: ModelGate | None = None
    proxies: ProxyLedger | None = None
    block: int = BLOCK
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", self.decision.plain)

    def answer(
        self, queries: IntegerMatrix, *, predicted: Predictions | None = None
    ) -> QueryAnswers:
        """Answer all queries, a block at a time.

        `predicted` is what the model of :attr:`model_gate` says of the queries.

        Raises PrivacyRefused before anything is charged or drawn, if the grid's cost of all answers
        does not fit. It is taken at the smallest count, so that no noisy count decides whether it
        does.
        """
        # Refused as a whole or not at all: a refusal half-way would depend on noisy counts.
        self.check_grid(len(queries))
        if self.interaction is not None:
            self.interaction.release()
        parts, done = [], step("answers", len(queries))
        for start in range(0, len(queries), self.block):
            block = queries[start : start + self.block]
            if predicted is None:
                parts.append(self._answer_block(block))
            else:
                part = predicted[start : start + self.block]
                parts.append(self._answer_with_model(block, part))
            if done is not None:
                done(len(block))
        return QueryAnswers.joined(parts)

    def check_grid(self, n_queries: int) -> None:
        """Raise PrivacyRefused if the most that the grid can cost in so many answers does not fit.

        It follows from the plan alone.
        """
        counted = 0.0 if self.count is None else self.count.slack
        self.slack.check(n_queries * (counted + self.votes.slack(self.least_noise)))

    def _answer_block(self, block: IntegerMatrix) -> QueryAnswers:
        released, noise = self._ask(block)
        labels, votes = released, None
        if not self.votes.label_only:
            votes = released
            labels = votes.argmax(axis=1) if self.plain else self.decision.labels(votes, noise)
        if self.reuse is not None:
            self.reuse.learn(block, labels)
        return QueryAnswers(labels, votes, np.ones(len(block), dtype=np.bool_), noise)

    def _answer_with_model(self, block: IntegerMatrix, predicted: Predictions) -> QueryAnswers:
        """Ask where the model is unsure; its votes join those of records, or stand alone."""
        assert self.model_gate is not None  # noqa: S101 (narrows the type)
        loss, said = self.model_gate.model.loss, predicted.values
        # The model is public, so which queries it leaves to private records is public as well.
        queried = self.model_gate.select_queries(said)
        expected = self.radius.expected(block)
        noise = self.multiplier * np.sqrt(expected)
        votes = loss.votes(predicted, noise, expected)
        released, noise[queried] = self._ask(block[queried], beside=votes[queried])
        if self.votes.label_only:
            labels = self.decision.chosen(said)
            labels[queried] = released
            return QueryAnswers(labels, None, queried, noise)
        joined, chances = loss.join_votes(said, votes, released, queried, expected)
        labels = joined.argmax(axis=1) if chances is None else self.decision.chosen(chances)
        noise = np.asarray(loss.noise_left(noise, expected, predicted.doubts))
        return QueryAnswers(labels, joined, queried, noise, chances)

    def _ask(self, block: IntegerMatrix, beside: Floats | None = None) -> Released:
        """Return votes (q, c), or positions of labels (q,), and the noise in them (q,)."""
        # Nobody is charged and no noise is drawn for nothing.
        if not len(block):
            shape = (0,) if self.votes.label_only else (0, self.votes.n_classes)
            return np.zeros(shape), np.zeros(0)
        thresholds = self.radius.thresholds(block)
        if self.count is None:
            release = self._priced(self.radius.expected(block))
            # Public points pay by the same release before records do, so that what they have used
            # can never be told from an answer that was broken off.
            if self.proxies is not None:
                self.proxies.charge(release, block, thresholds)
            sums = self.shard.charge_and_sum(release, block, thresholds)
            if beside is not None:
                # Public, and added after the charges: it moves no one's contribution. Rounded to
                # the grid, on which the discrete Gaussian's price holds.
                steps = release.scales / release.noise
                sums = sums + np.rint(beside * steps[:, None]).astype(np.int64)
            return release.publish(sums), release.noise
        support = None if self.reuse is None else self.reuse.support(block, thresholds)
        released = [
            self._counted(rounds, support and support.of(rounds.queries), self.count)
            for rounds in self.shard.rounds(block, thresholds, together=not self.sequential)
        ]
        votes, noise = zip(*released, strict=True)
        return np.concatenate(votes), np.concatenate(noise)

    def _counted(
        self, rounds: TwoRounds, support: PublicVotes | None, counter: NoisyCount
    ) -> Released:
        """Release the private counts of queries, then their votes, from those who paid for both."""
        counter.price(rounds.queries.stop - rounds.queries.start)
        # The floor is taken of the noisy count: no un-noised number may decide a noise scale.
        counts = np.maximum(counter.publish(rounds.charge_counts(counter)), LEAST_COUNT)
        release = self._priced(counts if support is None else counts + support.counts)
        sums = rounds.charge_and_sum(release)
        total = sums if support is None else sums + support.votes
        return release.publish(total), release.noise

    def _priced(self, counts: Floats) -> BlockRelease:
        """Return one release for all queries; nothing that was counted can get it refused."""
        # Cut to what the grid can hold: a noisy count may be anything, and must not be refused.
        noise = np.minimum(self.multiplier * np.sqrt(counts), self.votes.grid.largest)
        return self.votes.release(noise)
