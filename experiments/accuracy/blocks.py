"""A private model and a rival of any number of queries, on disjoint blocks of the same queries.

Both are trained once, whatever the number of queries: T decides which queries are counted, and
nothing else. Where one T says more than the others, its queries do, and not the method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.accuracy.methods import CONTENDERS, MODEL
from experiments.accuracy.result_cache import Place, Score
from experiments.accuracy.table import pipes
from vicinal.errors import InvalidInput

_Shares = dict[int, float]


@dataclass(frozen=True, slots=True)
class Block:
    """The model alone beside a rival on some of the queries.

    Attributes
    ----------
    data : str
        Name of the data set.
    epsilon : float
        The guarantee of both.
    first, last : int
        Numbers of the block's first and last query, from 1.
    runs : int
        Runs that have both.
    ours, rival : float
        Mean accuracies on the block.
    error : float or None
        Standard error of the difference over runs; None for one run.
    """

    data: str
    epsilon: float
    first: int
    last: int
    runs: int
    ours: float
    rival: float
    error: float | None

    @property
    def ahead(self) -> float:
        """How far the model is ahead."""
        return self.ours - self.rival

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "ahead": self.ahead}


def blocks(scores: Mapping[Place, Score], rival: str, runs: Iterable[int]) -> list[Block]:
    """Return the blocks between numbers of queries that were measured, and all queries at last.

    Parameters
    ----------
    scores : mapping
        All results; the method `model` says how its model did alone.
    rival : str
        A method that does not depend on the number of queries.
    runs : iterable of int
        Runs that count.

    Raises
    ------
    InvalidInput
        If the rival plans for a number of queries.
    """
    if rival not in CONTENDERS or CONTENDERS[rival].by_queries:
        steady = ", ".join(name for name, each in CONTENDERS.items() if not each.by_queries)
        raise InvalidInput(f"Blocks of queries need one rival of {steady}. Got {rival!r}.")
    wanted = set(runs)
    found: dict[tuple[str, float], dict[int, dict[str, _Shares]]] = {}
    for place, score in scores.items():
        if place.run in wanted and place.method in (MODEL, rival) and place.epsilon is not None:
            alone = score.accuracy if place.method == rival else score.detail.get("model_alone")
            if alone is not None:
                key = place.data, place.epsilon
                of_run = found.setdefault(key, {}).setdefault(place.run, {})
                of_run.setdefault(place.method, {})[place.n_queries] = float(alone)
    made = [_blocks(data, epsilon, found[data, epsilon], rival) for data, epsilon in sorted(found)]
    return [block for part in made for block in part]


def _blocks(
    data: str, epsilon: float, of_runs: Mapping[int, Mapping[str, _Shares]], rival: str
) -> list[Block]:
    both = [of_run for of_run in of_runs.values() if len(of_run) == 2]
    if not both:
        return []
    counts = sorted(set.intersection(*(set(part) for each in both for part in each.values())))
    edges = [*zip([0, *counts], counts, strict=False)]
    edges += [(0, counts[-1])] if len(counts) > 1 else []
    made = []
    for start, stop in edges:
        ours, its = (
            np.array([_share(each[name], start, stop) for each in both]) for name in (MODEL, rival)
        )
        means = float(ours.mean()), float(its.mean())
        made.append(Block(data, epsilon, start + 1, stop, len(both), *means, _error(ours - its)))
    return made


def _share(shares: _Shares, start: int, stop: int) -> float:
    """Return the share of right answers to queries `start` to `stop` from those to the first."""
    before = start * shares[start] if start else 0.0
    return (stop * shares[stop] - before) / (stop - start)


def _error(away: npt.NDArray[np.float64]) -> float | None:
    return float(away.std(ddof=1) / np.sqrt(len(away))) if len(away) > 1 else None


def text_table(made: Sequence[Block], rival: str) -> str:
    """Return blocks as a table."""
    heads = ["data", "epsilon", "queries", "runs", "model alone", rival, "ahead", "error"]
    return pipes([heads, *map(_line, made)])


def _line(block: Block) -> list[str]:
    means = f"{block.ours:.4f}", f"{block.rival:.4f}", f"{block.ahead:+.4f}"
    error = "" if block.error is None else f"{block.error:.4f}"
    queries = f"{block.first:,} to {block.last:,}"
    return [block.data, f"{block.epsilon:g}", queries, f"{block.runs}", *means, error]
