"""What promises of privacy are worth: eight methods, what each proves, and what an attack finds.

The game: the attacker knows every record, picks one, asks T times beside it, and says from all that
left whether it was there. Half of the games are played with it and half without. One interaction a
game, of the installed code with seeded noise. The attacker's rule is linear in what each answer
says for the record's label, over the first queries and over all, and in how the answers vary; it is
learnt on one half of the games and counted on the other, and the other way round.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from experiments.accuracy import calibrated
from experiments.accuracy.methods import silenced
from experiments.trials import Setting
from vicinal.accounting import Plan
from vicinal.accounting.budget import zcdp_budget
from vicinal.baselines import NoisySGDClassifier, PATEClassifier
from vicinal.predictors import IndKNNClassifier, PrivateKNNClassifier
from vicinal.reports.demo import Trial
from vicinal.reports.deployment_certificate import compute_certified_success
from vicinal.reports.text import bound_attack_success

Array = npt.NDArray[Any]

ACCURACY_RUNS, PILOTS = 5, 60
FEW, HALVES, FREQUENCIES = 10, 32, 256
"""Neighbours of an answer without noise; pairs of random halves; random Fourier features."""


class Game(NamedTuple):
    """One interaction: who is there, what is asked, and the public plan.

    `there` tells whether the last record is in; None where nobody asks.
    """

    trial: Trial
    setting: Setting
    n_records: int
    seed: int
    there: bool | None = None

    @property
    def facts(self) -> calibrated.Facts:
        """What plans may know of the data."""
        return calibrated.Facts(self.n_records, len(self.trial.classes))


def _ind_knn(game: Game, **options: Any) -> Array:
    trial, n_queries = game.trial, game.setting.n_queries
    model = IndKNNClassifier(
        trial.classes, game.setting.epsilon, n_queries=n_queries, n_records=game.n_records,
        delta=game.setting.delta, simulation_seed=game.seed, **options,
    ).fit(trial.records, trial.labels, public=trial.reference)  # fmt: skip
    return np.asarray(model.query(trial.queries).votes)


def _noisy_sgd(game: Game) -> Array:
    model = NoisySGDClassifier(
        game.trial.classes,
        game.setting.epsilon,
        n_records=game.n_records,
        delta=game.setting.delta,
        simulation_seed=game.seed,
    ).fit(game.trial.records, game.trial.labels, public=game.trial.reference)
    return np.log(model.predict_proba(game.trial.queries) + 1e-9)


def _pate(game: Game) -> Array:
    from sklearn.linear_model import RidgeClassifier

    options = calibrated.pate(game.setting, game.facts, False)
    model = PATEClassifier(
        game.trial.classes, teacher=RidgeClassifier(), simulation_seed=game.seed, **options
    ).fit(game.trial.records, game.trial.labels)
    return np.eye(len(game.trial.classes))[model.predict(game.trial.queries)]


def _private_knn(game: Game) -> Array:
    options = calibrated.private_knn(game.setting, game.facts, False)
    model = PrivateKNNClassifier(game.trial.classes, simulation_seed=game.seed, **options)
    model.fit(game.trial.records, game.trial.labels, public=game.trial.reference)
    return np.eye(len(game.trial.classes))[model.predict(game.trial.queries)]


def _kernel_sums(game: Game) -> Array:
    """Answer by kernel sums of each class, released once with Gaussian noise.

    Random Fourier features of length 1 (Rahimi & Recht 2007), the width the median distance of
    public rows: a record moves one class's sum by 1, and queries are free.
    """
    trial = game.trial
    gaps = np.linalg.norm(trial.reference[:200, None] - trial.reference[None, :200], axis=2)
    public = np.random.default_rng(0)  # noqa: TID251 (public frequencies)
    frequencies = public.normal(size=(trial.reference.shape[1], FREQUENCIES)) / np.median(gaps)

    def features(rows: Array) -> Array:
        angles = rows @ frequencies
        return np.hstack([np.cos(angles), np.sin(angles)]) / math.sqrt(FREQUENCIES)

    sums = np.eye(len(trial.classes))[trial.labels].T @ features(trial.records)
    noise = np.random.default_rng(game.seed)  # noqa: TID251 (a simulated rival)
    sums += noise.normal(scale=1 / shift(game.setting), size=sums.shape)
    return features(trial.queries) @ sums.T


def _nearest(trial: Trial, among: int) -> Array:
    """Return the nearest records of each query, nearest first, (q, among)."""
    squares = (trial.records**2).sum(axis=1) - 2 * trial.queries @ trial.records.T
    near = np.argpartition(squares, among, axis=1)[:, :among]
    order = np.argsort(np.take_along_axis(squares, near, axis=1), axis=1)
    return np.take_along_axis(near, order, axis=1)


def _pac(game: Game) -> Array:
    """Answer as PAC privacy does: from a random half, noise by the variance over such halves.

    The answer is the majority of 5 neighbours, one-hot. Noise along each axis of its covariance
    keeps the information about the half in one answer below a T-th of all that the promised guess
    allows (arXiv 2601.14033 composes them so). Where all halves agree there is no noise.
    """
    trial = game.trial
    draws = np.random.default_rng(game.seed)  # noqa: TID251 (a simulated rival)
    ranks = np.array([draws.permutation(len(trial.records)) for _ in range(HALVES)])
    first = ranks < len(trial.records) / 2
    near, halves = _nearest(trial, 12 * 5), np.concatenate([first, ~first])
    inside = halves[:, near]
    inside &= inside.cumsum(axis=2) <= 5  # (halves, q, near)
    votes = np.eye(len(trial.classes))[trial.labels[near]]
    said = np.eye(len(trial.classes))[np.einsum("hqk,qkc->hqc", inside, votes).argmax(axis=2)]
    spread = said - said.mean(axis=0)
    values, axes = np.linalg.eigh(np.einsum("hqc,hqd->qcd", spread, spread) / len(halves))
    roots = np.sqrt(values.clip(1e-12))
    roots[values < 1e-9] = 0
    per_answer = _information(average_case(game)) / game.setting.n_queries
    scales = np.sqrt(roots * roots.sum(axis=1, keepdims=True) / (2 * per_answer))
    noise = np.einsum("qcd,qd->qc", axes, scales * draws.normal(size=scales.shape))
    whose = np.ones(len(halves)) if game.there is None else halves[:, -1] == game.there
    return np.asarray(said[draws.choice(len(halves), p=whose / whose.sum())] + noise)


def _information(guess: float) -> float:
    """Return how many nats let a coin be guessed so often, at most."""
    return guess * math.log(2 * guess) + (1 - guess) * math.log(2 * (1 - guess))


def _k_anonymous(game: Game) -> Array:
    votes = np.eye(len(game.trial.classes))[game.trial.labels[_nearest(game.trial, FEW)]]
    return np.asarray(votes.mean(axis=1))


def shift(setting: Setting) -> float:
    """Return the Gaussian shift mu of a setting."""
    return math.sqrt(2 * zcdp_budget(setting.epsilon, setting.delta, "gdp"))


def gaussian(game: Game) -> float:
    """Return the worst-case guess that Gaussian noise allows, as certificates have it."""
    return compute_certified_success(game.setting.epsilon, game.setting.delta, gaussian=True)


def average_case(game: Game) -> float:
    """Return what PAC prediction promises here: as much as a Gaussian shift would allow."""
    return NormalDist().cdf(shift(game.setting) / 2)


@lru_cache
def _of_plan(told: str) -> float:
    plan = Plan.from_dict(json.loads(told))
    prices = ((plan.composition().compute_min_epsilon(d), d) for d in (1e-5, 0.02, 0.05, 0.1, 0.2))
    return min(bound_attack_success(max(epsilon, 1e-9), d) for epsilon, d in prices)


def planned(game: Game, make: Callable[[Game], Any]) -> float:
    """Return the least guess that a fixed plan allows, by its trade-off at several deltas."""
    return _of_plan(json.dumps(make(game).plan()))


def nothing(_game: Game) -> float:
    """Return what holds without a proof."""
    return 1.0


@dataclass(frozen=True)
class Method:
    """How a method answers, what it proves of anybody, and what else it promises."""

    answer: Callable[[Game], Array]
    proven: Callable[[Game], float]
    promised: Callable[[Game], float] | None = None
    own_game: bool = False


METHODS = {
    "Ind-KNN votes": Method(partial(_ind_knn, model_share=0), gaussian),
    "vicinal, default": Method(_ind_knn, gaussian),
    "NoisySGD": Method(
        _noisy_sgd,
        partial(planned, make=lambda g: NoisySGDClassifier(
            g.trial.classes, g.setting.epsilon, n_records=g.n_records, delta=g.setting.delta)),
    ),
    "PATE": Method(_pate, partial(planned, make=lambda g: PATEClassifier(
        g.trial.classes, **calibrated.pate(g.setting, g.facts, False)))),
    "Private-kNN": Method(_private_knn, partial(planned, make=lambda g: PrivateKNNClassifier(
        g.trial.classes, **calibrated.private_knn(g.setting, g.facts, False)))),
    "kernel sums": Method(_kernel_sums, gaussian),
    "PAC prediction": Method(_pac, nothing, average_case),
    "PAC prediction, its own game": Method(_pac, nothing, average_case, own_game=True),
    "10 neighbours, no noise": Method(_k_anonymous, nothing),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One method on one data set; shares of right answers, and of right guesses."""

    data: str
    method: str
    epsilon: float
    accuracy: float
    promised: float
    proven: float
    measured: float
    at_least: float
    games: int


def measured(name: str, trial: Trial, epsilon: float, n_queries: int, games: int) -> Iterator[Row]:
    """Yield all methods on a data set."""
    setting, n_records = Setting(epsilon, n_queries), len(trial.records)
    for words, method in METHODS.items():
        with silenced():
            honest = Game(trial, setting, n_records, 0)
            runs = [method.answer(honest._replace(seed=run)) for run in range(ACCURACY_RUNS)]
            right = np.mean([scores.argmax(axis=1) == trial.truth for scores in runs])
            pilots = {t: _guessed(method, honest, t, range(PILOTS)) for t in _targets(trial)}
            target = max(pilots, key=lambda t: pilots[t].mean())
            hits = _guessed(method, honest, target, range(PILOTS, PILOTS + games))
            proven = method.proven(honest)
        promised = (method.promised or method.proven)(honest)
        least = float(beta.ppf(0.05, hits.sum(), len(hits) - hits.sum() + 1))
        yield Row(
            name, words, epsilon, float(right), promised, proven, float(hits.mean()), least, games
        )


def _targets(trial: Trial) -> list[int]:
    """Return records to attack: one that no neighbour agrees with, and one among mixed ones."""
    agree = (trial.labels[_nearest(replace(trial, queries=trial.records), 21)][:, 1:]
             == trial.labels[:, None]).mean(axis=1)  # fmt: skip
    return [int(agree.argmin()), int(np.abs(agree - 0.3).argmin())]


def _guessed(method: Method, honest: Game, target: int, seeds: range) -> Array:
    """Return which games the attacker wins."""
    trial, n_queries = honest.trial, honest.setting.n_queries
    order = np.append(np.delete(np.arange(len(trial.records)), target), target)
    row, label = trial.records[target], int(trial.labels[target])
    draws = np.random.default_rng(target)  # noqa: TID251 (the attacker's)
    beside = draws.normal(size=(n_queries, len(row)))
    beside *= 0.02 * np.linalg.norm(row) / np.linalg.norm(beside, axis=1, keepdims=True)
    asked = (row + beside).astype(trial.records.dtype)

    def play(seed: int) -> Array:
        there = seed % 2 == 1
        rows = order if there or method.own_game else order[:-1]
        world = replace(trial, records=trial.records[rows], labels=trial.labels[rows],
                        queries=asked)  # fmt: skip
        game = honest._replace(trial=world, seed=1000 + seed)
        said = method.answer(game._replace(there=there if method.own_game else None))[:, label]
        means = [said[:size].mean() for size in (5, 25, 100, len(said))]
        return np.array([*means, math.log(said.std() + 1e-9)])

    return _won(np.array([play(seed) for seed in seeds]), np.array(seeds) % 2 == 1)


def _won(seen: Array, there: Array) -> Array:
    """Return which games a linear rule wins that was learnt on the other half."""
    won = np.zeros(len(seen), dtype=bool)
    half = np.arange(len(seen)) // 2 % 2 == 0
    for learn in (half, ~half):
        with_it, without = seen[learn & there], seen[learn & ~there]
        within = np.cov(np.concatenate([with_it - with_it.mean(0), without - without.mean(0)]).T)
        within += np.diag(1e-3 * within.diagonal() + 1e-12)
        rule = np.linalg.solve(within, with_it.mean(0) - without.mean(0))
        middle = rule @ (with_it.mean(0) + without.mean(0)) / 2
        won[~learn] = (seen[~learn] @ rule > middle) == there[~learn]
    return won


def drawn(rows: list[Row]) -> bytes:
    """Return a PNG: accuracy against guesses, measured (full) and proven (empty)."""
    # Imported here, because tests of the games draw nothing.
    from matplotlib.figure import Figure

    from vicinal.reports.plots import COLOURS, encode_figure

    names = list(dict.fromkeys(row.data for row in rows))
    methods = [name for name, method in METHODS.items() if not method.own_game]
    figure = Figure(figsize=(4.2 * len(names), 4.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for place, method in enumerate(methods):
            colour, marker = COLOURS[place % len(COLOURS)], "osD^v<P>"[place]
            for row in (row for row in rows if (row.data, row.method) == (name, method)):
                axes.plot([row.measured, row.proven], [row.accuracy] * 2, color=colour, lw=0.8)
                axes.plot(row.proven, row.accuracy, marker, color=colour, mfc="white", ms=8)
                axes.plot(row.measured, row.accuracy, marker, color=colour, label=method)
        axes.set(title=name, xlim=(0.45, 1.02), xlabel="right guesses who is in the data")
        axes.grid(color="#e4e7eb")
    figure.axes[0].set_ylabel("accuracy")
    handles = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=4)
    return encode_figure(figure, dpi=100)


def to_dict(row: Row) -> dict[str, Any]:
    """Return a row with shares of three digits."""
    return {n: round(v, 3) if isinstance(v, float) else v for n, v in asdict(row).items()}
