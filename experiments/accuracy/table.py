"""The great table as text and plain values, and where one method overtakes another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.accuracy.methods import CONTENDERS, contender_of
from experiments.accuracy.result_cache import Cells, Place, Score
from experiments.spread import mean_and_spread

SGD = "noisy-sgd"


@dataclass(frozen=True, slots=True)
class Entry:
    """One method in one setting, over all runs that are there.

    - `place`: where it stands; its run is -1.
    - `scores`: one for every run.
    """

    place: Place
    scores: tuple[Score, ...]

    @property
    def accuracy(self) -> tuple[float, float]:
        """Mean over the runs, and standard deviation of one run."""
        return mean_and_spread([score.accuracy for score in self.scores])

    def share(self, name: str) -> float:
        """Return the mean of ``answered`` or ``asked``."""
        return mean_and_spread([getattr(score, name) for score in self.scores])[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        mean, spread = self.accuracy
        fields = self.place._asdict()
        del fields["run"]
        return {
            **fields,
            "accuracy_mean": mean,
            "accuracy_spread": spread,
            "accuracies": [score.accuracy for score in self.scores],
            "answered": self.share("answered"),
            "asked": self.share("asked"),
            "seconds": [score.seconds for score in self.scores],
            "detail": [dict(score.detail) for score in self.scores],
        }


def entries(cells: Cells) -> list[Entry]:
    """Return all results, the runs of a place together."""
    return [Entry(place, tuple(scores)) for place, scores in cells.runs().items()]


def text_tables(found: Sequence[Entry]) -> str:
    """Return one table for each data set and number of queries, readable as Markdown too.

    A method that left queries unanswered has their share in brackets; the accuracy before it
    counts these as wrong.
    """
    blocks: dict[tuple[str, int, int, int], list[Entry]] = {}
    for entry in found:
        place = entry.place
        where = place.data, place.n_records, place.n_reference, place.n_queries
        blocks.setdefault(where, []).append(entry)
    first = {data: rank for rank, data in enumerate(dict.fromkeys(e.place.data for e in found))}
    order = sorted(blocks, key=lambda where: (first[where[0]], *where[1:]))
    return "\n\n".join(_block(*where, blocks[where]) for where in order)


def _block(
    data: str, n_records: int, n_reference: int, n_queries: int, found: Sequence[Entry]
) -> str:
    runs = sorted({len(entry.scores) for entry in found})
    columns: list[float | None] = [
        *sorted({e.place.epsilon for e in found if e.place.epsilon is not None})
    ] or [None]
    heading = (
        f"{data}: T = {n_queries:,}, {n_records:,} private records, {n_reference:,} public rows, "
        f"{' or '.join(map(str, runs))} runs"
    )
    lines = [["epsilon", *("none" if epsilon is None else f"{epsilon:g}" for epsilon in columns)]]
    order = list(CONTENDERS)
    methods = dict.fromkeys(entry.place.method for entry in found)
    for method in sorted(methods, key=lambda m: order.index(m) if m in order else len(order)):
        line = {e.place.epsilon: e for e in found if e.place.method == method}
        every = line.get(None)
        cells = [line.get(epsilon, every) for epsilon in columns]
        lines.append([contender_of(method).words, *map(cell, cells)])
    return f"{heading}\n\n{pipes(lines)}"


def cell(entry: Entry | None) -> str:
    """Return accuracy and spread, and the share that was answered if it was not all."""
    if entry is None:
        return ""
    mean, spread = entry.accuracy
    answered = entry.share("answered")
    return f"{mean:.3f} ± {spread:.3f}" + (f" ({answered:.0%})" if answered < 1 else "")


def pipes(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as a table of plain text that Markdown reads, too."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([rows[0], rule, *rows[1:]])


def crossings(found: Iterable[Entry]) -> list[str]:
    """Return for each data set and epsilon at which T a NoisySGD model is ahead of Ind-KNN.

    Ind-KNN is taken at its best of all that is in the table.
    """
    lines: dict[tuple[str, int, float], dict[int, dict[str, float]]] = {}
    for entry in found:
        place = entry.place
        if place.epsilon is not None:
            curve = lines.setdefault((place.data, place.n_reference, place.epsilon), {})
            curve.setdefault(place.n_queries, {})[place.method] = entry.accuracy[0]
    return [
        f"{data}, epsilon {epsilon:g}: {_ahead(curve)}"
        for (data, _, epsilon), curve in sorted(lines.items())
        if any(SGD in methods for methods in curve.values())
    ]


def _ahead(curve: Mapping[int, Mapping[str, float]]) -> str:
    ahead, tried = [], []
    for count, methods in sorted(curve.items()):
        rivals = [methods[name] for name in _IND_KNN if name in methods]
        if SGD in methods and rivals:
            tried.append(f"{count:,}")
            if methods[SGD] > max(rivals):
                ahead.append(f"{count:,}")
    if not tried:
        return "not compared"
    where = f"at T = {', '.join(ahead)}" if ahead else "nowhere"
    return f"NoisySGD is ahead of the best Ind-KNN {where}, of T = {', '.join(tried)}"


_IND_KNN = ("zhu2023", "default", "labels", "hashing")
