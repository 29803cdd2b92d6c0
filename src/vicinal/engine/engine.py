"""Engine that answers queries: search, charge and sum votes, add noise, decide on labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vicinal.arrays import AnyArray, Bools, Floats, Ints
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
from vicinal.neighbours.radius import MIN_COUNT, Radius
from vicinal.progress import begin_progress
from vicinal.targets.class_decision import ClassDecision

BLOCK_SIZE = 256
"""Queries answered together. With private counts, all counts of a block are charged before its
first vote, so larger blocks lose accuracy once budgets run out."""

ReleasedAndNoise = tuple[AnyArray, Floats]
"""Noisy votes, float64 (q, c), or class indices, int64 (q,); and the standard deviation of the
noise on every vote, float64 (q,), in votes."""


@dataclass(frozen=True, slots=True)
class QueryAnswers:
    """Released answers to a batch of queries.

    - `labels`, int64 (q,): indices of classes.
    - `votes`, float64 (q, c): noisy votes; None if only labels are released. With a private model:
      pooled votes, that is, probabilities times the expected number of votes.
    - `asked`, bool (q,): whether private records voted. If not, the private model answered alone.
    - `noise`, float64 (q,): standard deviation of the noise on every vote, in votes; that which it
      would have had if no records voted.
    - `probabilities`, float64 (q, c): class probabilities of the private model, pooled with private
      votes where there are any. None without a model, or if only labels are released.
    """

    labels: Ints
    votes: Floats | None
    asked: Bools
    noise: Floats
    probabilities: Floats | None = None

    def __post_init__(self) -> None:
        """Make all arrays read-only: cached answers are returned again without a charge."""
        for array in (self.labels, self.votes, self.asked, self.noise, self.probabilities):
            if array is not None:
                array.setflags(write=False)

    @classmethod
    def concatenate(cls, blocks: Sequence[QueryAnswers]) -> QueryAnswers:
        """Return the answers to consecutive blocks of queries as one object."""
        votes = [block.votes for block in blocks if block.votes is not None]
        probabilities = [block.probabilities for block in blocks if block.probabilities is not None]
        return cls(
            np.concatenate([block.labels for block in blocks]),
            np.concatenate(votes) if votes else None,
            np.concatenate([block.asked for block in blocks]),
            np.concatenate([block.noise for block in blocks]),
            np.concatenate(probabilities) if probabilities else None,
        )


@dataclass(frozen=True, slots=True)
class QueryEngine:
    """Answers queries from private records; noise scales and radii are public.

    Arguments of methods: `queries`, integer features (q, d); `block`, those of at most
    `block_size` consecutive queries; `predicted`, the private model's predictions for them.

    - `shard`: the private records, on one shard or several, and the accounts that are charged.
    - `radius`: selects the records that vote on a query.
    - `votes`: the mechanism that releases noisy votes, or labels only.
    - `counter`: the private count of neighbours (ZZGW23); None if counts are public estimates.
    - `noise_multiplier`: sigma2: the noise on each vote has standard deviation sigma2 sqrt(K)
      votes, where K is the public estimate or the noisy count of the voting records.
    - `answered_neighbours`: earlier answers that vote, in the algorithm of ZZGW23; else None.
    - `slack`: accountant of the delta that rounding counts and votes to the grid costs.
    - `decision`: converts noisy votes into labels and probabilities.
    - `min_noise`: lower bound of every vote's noise standard deviation, for any noisy count.
    - `sequential`: whether queries with private counts are answered one by one.
    - `interaction`: registration of this use of the records; None if the store keeps track of it.
    - `model_gate`: the private model, and the rule that selects queries for private votes, or None.
    - `proxies`: public points with virtual budgets, if there are a public reference and count.
    - `block_size`: queries answered together; earlier answers vote from the next block on.
    - `lock`: must be held while records or budgets are used.
    """

    shard: Shards
    radius: Radius
    votes: VoteMechanism
    counter: NoisyCount | None
    noise_multiplier: float
    answered_neighbours: AnsweredNeighbours | None
    slack: DeltaSlackAccountant
    decision: ClassDecision
    min_noise: float
    sequential: bool = False
    interaction: Interaction | None = None
    model_gate: ModelGate | None = None
    proxies: ProxyLedger | None = None
    block_size: int = BLOCK_SIZE
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def answer(
        self, queries: IntegerMatrix, *, predicted: Predictions | None = None
    ) -> QueryAnswers:
        """Return the answers to all `queries`, computed block by block.

        `predicted` is None without a private model. Raises PrivacyRefused, before anything is
        charged or sampled, if the delta reserved for rounding does not cover all answers.
        """
        # Refused as a whole or not at all: a refusal half-way would depend on noisy counts. The
        # delta is that at the smallest possible noise, which depends on the plan alone.
        count_slack = 0.0 if self.counter is None else self.counter.slack_per_count
        vote_slack = self.votes.bound_slack(self.min_noise)
        self.slack.check_slack(len(queries) * (count_slack + vote_slack))
        if self.interaction is not None:
            self.interaction.begin_release()
        answers = []
        report_progress = begin_progress("answers", len(queries))
        for start in range(0, len(queries), self.block_size):
            block = queries[start : start + self.block_size]
            if predicted is None:
                answers.append(self._answer_block(block))
            else:
                predictions = predicted[start : start + self.block_size]
                answers.append(self._answer_with_model(block, predictions))
            if report_progress is not None:
                report_progress(len(block))
        return QueryAnswers.concatenate(answers)

    def _answer_block(self, block: IntegerMatrix) -> QueryAnswers:
        """Return answers to a `block` of queries by private votes.

        In the algorithm of ZZGW23 (section 3.1) these answers vote on the queries of later blocks.
        """
        released, noise = self._release_votes(block)
        votes = None if self.votes.label_only else released
        labels = released if votes is None else self.decision.decide_labels(votes, noise)
        if self.answered_neighbours is not None:
            self.answered_neighbours.add_answers(block, labels)
        return QueryAnswers(labels, votes, np.ones(len(block), dtype=np.bool_), noise)

    def _answer_with_model(self, block: IntegerMatrix, predicted: Predictions) -> QueryAnswers:
        """Return answers by the model, pooled with private votes where the model is uncertain."""
        assert self.model_gate is not None  # noqa: S101 (narrows the type)
        loss = self.model_gate.model.loss
        values = predicted.values
        # The model is public, so the selection of queries for the private vote is public as well.
        queried = self.model_gate.select_queries(values)
        expected = self.radius.estimate_counts(block)
        noise = self.noise_multiplier * np.sqrt(expected)
        votes = loss.convert_to_votes(predicted, noise, expected)
        released, noise[queried] = self._release_votes(block[queried], votes[queried])
        if self.votes.label_only:
            labels = self.decision.choose_classes(values)
            labels[queried] = released
            return QueryAnswers(labels, None, queried, noise)
        pooled, probabilities = loss.pool_votes(values, votes, released, queried, expected)
        if probabilities is None:
            labels = pooled.argmax(axis=1)
        else:
            labels = self.decision.choose_classes(probabilities)
        noise = np.asarray(loss.compute_pooled_std(noise, expected, predicted.score_std))
        return QueryAnswers(labels, pooled, queried, noise, probabilities)

    def _release_votes(
        self, queries: IntegerMatrix, model_votes: Floats | None = None
    ) -> ReleasedAndNoise:
        """Charge the neighbours; return noisy votes or labels, and noise standard deviations.

        `model_votes`, float64 (q, c): votes of the public model, to add to the private votes. None
        without a model; private counts exclude one.
        """
        # Without queries, no subject is charged and no noise is sampled.
        if not len(queries):
            shape = (0,) if self.votes.label_only else (0, self.votes.n_coordinates)
            return np.zeros(shape), np.zeros(0)
        thresholds = self.radius.thresholds(queries)
        if self.counter is None:
            release = self._plan_release(self.radius.estimate_counts(queries))
            # Proxies are charged before the records, so that their public usage does not depend on
            # whether the private charges were interrupted.
            if self.proxies is not None:
                self.proxies.charge(release, queries, thresholds)
            sums = self.shard.charge_and_sum(release, queries, thresholds)
            if model_votes is not None:
                # Model votes are public and added after the charges, so they change no subject's
                # contribution. They are rounded to the grid, as the discrete Gaussian requires.
                steps = release.scales / release.noise
                sums = sums + np.rint(model_votes * steps[:, None]).astype(np.int64)
            return release.publish(sums), release.noise
        earlier = self.answered_neighbours
        public = None if earlier is None else earlier.sum_votes(queries, thresholds)
        searched = self.shard.search_for_two_rounds(
            queries, thresholds, together=not self.sequential
        )
        released = [self._release_after_count(rounds, public, self.counter) for rounds in searched]
        votes, noise = zip(*released, strict=True)
        return np.concatenate(votes), np.concatenate(noise)

    def _release_after_count(
        self, rounds: TwoRounds, public: PublicVotes | None, counter: NoisyCount
    ) -> ReleasedAndNoise:
        """Charge neighbours for a count and a vote; return noisy votes or labels, and their noise.

        The noisy counts determine the noise of the votes. `rounds`: queries with their neighbours;
        those that cannot pay for the count do not vote. `public`: votes of earlier answers on all
        queries of the block, or None. `counter`: the private count mechanism.
        """
        queries = rounds.queries
        counter.charge_slack(queries.stop - queries.start)
        # The minimum applies to the noisy count: no exact count may decide a noise scale.
        counts = np.maximum(counter.publish(rounds.charge_counts(counter)), MIN_COUNT)
        if public is not None:
            counts = counts + public.counts[queries]
        release = self._plan_release(counts)
        sums = rounds.charge_and_sum(release)
        if public is not None:
            sums = sums + public.votes[queries]
        return release.publish(sums), release.noise

    def _plan_release(self, counts: Floats) -> BlockRelease:
        """Return the prepared release of a block, with the noise that each of `counts` determines.

        `counts`, float64 (q,): public or noisy number of records that vote on each query.
        """
        # Clipped to the range of the grid, as a release must not be refused by a noisy count.
        noise = np.minimum(self.noise_multiplier * np.sqrt(counts), self.votes.grid.max_noise)
        return self.votes.prepare_release(noise)
