"""Where a method is behind the best private rival, and by how much."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.accuracy.methods import contender_of
from experiments.accuracy.result_cache import Place, Score
from experiments.accuracy.table import pipes

BEHIND = 0.002
"""Differences from here on are called a loss."""


class Setting(NamedTuple):
    """A cell without its method and run."""

    data: str
    n_records: int
    n_reference: int
    epsilon: float
    n_queries: int


@dataclass(frozen=True, slots=True)
class Standing:
    """One setting: a method beside its best private rival, over the runs that all have.

    - `setting`: where.
    - `runs`: runs that the method and all its rivals have.
    - `ours`, `best`: mean accuracies.
    - `rival`: name of the best rival; of the one that is best for most runs.
    - `error`: standard error of the difference; None for one run.
    """

    setting: Setting
    runs: int
    ours: float
    rival: str
    best: float
    error: float | None

    @property
    def ahead(self) -> float:
        """How far the method is ahead; below 0 behind."""
        return self.ours - self.best

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), **self.setting._asdict(), "ahead": self.ahead}


def standings(
    scores: Mapping[Place, Score],
    ours: str,
    rivals: Sequence[str],
    runs: Iterable[int],
    *,
    by_other_runs: bool = False,
) -> list[Standing]:
    """Return every setting in which the method and any of its rivals were measured.

    - `scores`: all results.
    - `ours`: the method.
    - `rivals`: methods that it is compared with.
    - `runs`: runs that count.
    - `by_other_runs`: whether the rival of each run is the best of the other runs, and not of all
      in hindsight: then it has no luck in the runs that it is shown on. Settings of one run are
      left out.
    """
    wanted = set(runs)
    found: dict[Setting, dict[str, dict[int, float]]] = {}
    for place, score in scores.items():
        if place.epsilon is not None and place.run in wanted and place.method in (ours, *rivals):
            setting = Setting(*place[:3], place.epsilon, place.n_queries)
            method = found.setdefault(setting, {}).setdefault(place.method, {})
            method[place.run] = score.accuracy
    made = [_standing(each, found[each], ours, by_other_runs) for each in sorted(found)]
    return [standing for standing in made if standing is not None]


def _standing(
    setting: Setting, methods: Mapping[str, Mapping[int, float]], ours: str, by_other_runs: bool
) -> Standing | None:
    shared = sorted(set.intersection(*(set(runs) for runs in methods.values())))
    if ours not in methods or len(methods) < 2 or len(shared) < 1 + by_other_runs:
        return None
    rows = {name: np.array([runs[run] for run in shared]) for name, runs in methods.items()}
    own = rows.pop(ours)
    chosen = _chosen(rows, by_other_runs)
    its = np.array([rows[name][place] for place, name in enumerate(chosen)])
    away = own - its
    error = float(away.std(ddof=1) / np.sqrt(len(away))) if len(away) > 1 else None
    rival = max(rows, key=chosen.count)
    return Standing(setting, len(shared), float(own.mean()), rival, float(its.mean()), error)


def _chosen(rows: Mapping[str, npt.NDArray[np.float64]], by_other_runs: bool) -> list[str]:
    """Return the name of the best rival for each run."""
    n_runs = len(next(iter(rows.values())))
    counted = ~np.eye(n_runs, dtype=bool) if by_other_runs else np.ones((n_runs, n_runs), bool)
    return [max(rows, key=lambda name: rows[name][which].mean()) for which in counted]


def summary(found: Sequence[Standing]) -> str:
    """Return how often the method is behind, and how far it is ahead on average, by data set."""
    lines = [["data", "cells", f"behind by more than {BEHIND:g}", "worst", "ahead on average"]]
    for name in [*dict.fromkeys(standing.setting.data for standing in found), None]:
        part = [standing for standing in found if name in (None, standing.setting.data)]
        away = np.array([standing.ahead for standing in part])
        lost = int((away < -BEHIND).sum())
        worst, mean = f"{away.min():+.4f}", f"{away.mean():+.4f}"
        lines.append([name or "all", f"{len(part)}", f"{lost}", worst, mean])
    return pipes(lines)


def text_table(found: Sequence[Standing], *, every: bool = False) -> str:
    """Return the settings in which the method is behind, or all of them."""
    heads = ["data", "epsilon", "T", "runs", "accuracy", "best rival", "its", "ahead", "error"]
    lines = [heads]
    for each in found:
        if every or each.ahead < -BEHIND:
            place = each.setting
            lines.append([
                place.data, f"{place.epsilon:g}", f"{place.n_queries:,}", f"{each.runs}",
                f"{each.ours:.4f}", contender_of(each.rival).words, f"{each.best:.4f}",
                f"{each.ahead:+.4f}", "" if each.error is None else f"{each.error:.4f}",
            ])  # fmt: skip
    return pipes(lines)
