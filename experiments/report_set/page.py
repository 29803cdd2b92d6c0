"""Cells, measured once and kept in a file, and the page that is printed from them."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
from sklearn.metrics import roc_auc_score

from experiments.report_set.data import MOST_RECORDS, Matrix, Question, Split, questions
from experiments.report_set.methods import (
    BY_SUBJECT,
    EBM_NAME,
    FREE,
    MADE_UP,
    METHODS,
    OF_NUMBERS,
    OURS,
    RIVALS,
    Plan,
    Scores,
)

QUERIES = (500, 2000)
PLANS = f"Means over tables, T = {QUERIES[-1]:,}:"
SAME = f"Means over the tables with every number of records, epsilon 1, T = {QUERIES[-1]:,}:"
TABLES = f"Every table, epsilon 1, T = {QUERIES[-1]:,}, all its records:"
MARGIN = 0.003
"""A lead or a lag that counts."""


class Place(NamedTuple):
    """What was asked on a table: `records` and `queries` at most, `epsilon` 0 without privacy."""

    table: str
    public: int
    records: int
    queries: int
    epsilon: float


@dataclass(frozen=True)
class Cell:
    """One method on one split.

    - `score`: AUC, the mean of all classes' where there are several; of numbers R squared.
    - `accuracy`: NaN for numbers.
    """

    table: str
    public: int
    records: int
    queries: int
    epsilon: float
    method: str
    run: int
    score: float
    accuracy: float

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.table, self.public, self.records, self.queries, self.epsilon)


def read(path: Path) -> list[Cell]:
    """Return the cells of a file; none if it is not there."""
    if not path.is_file():
        return []
    kinds = get_type_hints(Cell).values()
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))[1:]
    return [Cell(*(kind(value) for kind, value in zip(kinds, row, strict=True))) for row in rows]


def write(path: Path, cells: Iterable[Cell]) -> None:
    """Write cells into a file, in an order that does not hang on who was measured when."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(field.name for field in fields(Cell))
        rows.writerows(map(_row, sorted(cells, key=astuple)))


def _row(cell: Cell) -> list[object]:
    *place, score, accuracy = astuple(cell)
    return [*place, f"{score:.4f}", f"{accuracy:.4f}"]


@dataclass(frozen=True)
class Run:
    """What is measured: methods by name, splits, and the plans of each."""

    group: str
    methods: tuple[str, ...]
    runs: int
    public: int
    records: tuple[int, ...]
    epsilons: tuple[float, ...]

    def measure(self, path: Path, *, anew: bool = False) -> None:
        """Measure the cells that the file lacks, and add each to it at once.

        `anew`: the group's cells of these methods are dropped first.
        """
        asked, cells = questions(self.group), read(path)
        if anew:
            names = {one.name for one in asked}
            cells = [c for c in cells if c.table not in names or c.method not in self.methods]
        write(path, cells)
        known = {(cell.place, cell.method, cell.run) for cell in cells}
        with path.open("a", encoding="utf-8", newline="") as lines:
            for one in product(range(self.runs), self.records, asked, self.methods):
                for cell in self._cells(*one, known):
                    csv.writer(lines, lineterminator="\n").writerow(_row(cell))
                    lines.flush()
        write(path, read(path))

    def _cells(
        self, run: int, records: int, question: Question, method: str,
        known: set[tuple[Place, str, int]],
    ) -> Iterator[Cell]:  # fmt: skip
        if not question.of_classes and method not in OF_NUMBERS:
            return
        # A model is trained once, whatever the number of queries; ours hangs on it.
        plans = [(size,) for size in QUERIES] if method in {OURS, MADE_UP} else [QUERIES]
        for epsilon, sizes in product((0.0,) if method in FREE else self.epsilons, plans):
            places = [Place(question.name, self.public, records, q, epsilon) for q in sizes]
            if all((place, method, run) in known for place in places):
                continue
            split = Split.of(question, run, self.public)
            if len(split.private) < records < MOST_RECORDS:
                return
            split = split.first(records, one_each=method not in BY_SUBJECT)
            scores = METHODS[method](Plan(split, epsilon, max(sizes), run))
            if scores is None:
                return
            for place in places:
                some = scores[: place.queries]
                truth = split.answers[split.queries][: place.queries]
                yield Cell(*place, method, run, *_figures(some, truth, split.n_classes))


def _figures(scores: Scores, truth: Matrix, n_classes: int) -> tuple[float, float]:
    if not n_classes:
        return 1 - float(np.mean((scores - truth) ** 2) / np.var(truth)), float("nan")
    places = [1] if n_classes == 2 else range(n_classes)
    members = [(place, truth == place) for place in places]
    areas = [roc_auc_score(own, scores[:, p]) for p, own in members if 0 < own.sum() < own.size]
    return float(np.mean(areas)), float((scores.argmax(axis=1) == truth).mean())


# ---------------------------------------------------------------- the page

Means = dict[Place, dict[str, float]]


def as_text(cells: Iterable[Cell], group: str, public: int) -> str:
    """Return the page's tables, in Markdown: where the default is behind, first."""
    found = [cell for cell in cells if cell.public == public]
    asked = questions(group)
    text = []
    for title, of_classes in (("Classes: AUC", True), ("Numbers: R squared", False)):
        names = [one.name for one in asked if one.of_classes == of_classes]
        means = _means(cell for cell in found if cell.table in names)
        if means:
            text += [f"## {title}", _behind(means), PLANS, _by_plan(means)]
            text += [SAME, _by_records(means), TABLES, _by_table(means, names)]
    return "\n\n".join(text)


def _means(cells: Iterable[Cell]) -> Means:
    """Return mean scores over the splits that everybody at a place was measured on.

    Those without privacy stand beside each epsilon.
    """
    scores: dict[Place, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        scores[cell.place][cell.method][cell.run] = cell.score
    means: Means = {}
    for place, private in sorted(scores.items()):
        if place.epsilon:
            methods = {**private, **scores.get(place._replace(epsilon=0.0), {})}
            if runs := set.intersection(*map(set, methods.values())):
                means[place] = {
                    name: float(np.mean([of[run] for run in runs])) for name, of in methods.items()
                }
    return means


def _behind(means: Means) -> str:
    """Return how the default stands beside the rival that is best on each table, worst first."""
    leads: dict[str, dict[str, dict[Place, float]]] = defaultdict(lambda: defaultdict(dict))
    for place, methods in means.items():
        for rival in RIVALS.keys() & methods.keys() if OURS in methods else ():
            leads[place.table][rival][place] = methods[OURS] - methods[rival]
    if not leads:
        return "The default is not measured yet."
    rows: list[tuple[float, tuple[str, ...]]] = []
    for table, rivals in leads.items():
        lead, rival = min((float(np.mean([*of.values()])), name) for name, of in rivals.items())
        of = rivals[rival]
        worst = min(of, key=of.__getitem__)
        behind = f"{sum(one < -MARGIN for one in of.values())} of {len(of)}"
        pair = (f"{means[worst][name]:.3f}" for name in (OURS, rival))
        rows.append((lead, (table, rival, f"{lead:+.3f}", behind, *_plan(worst), *pair)))
    lost = sum(lead < -MARGIN for lead, _ in rows)
    heads = ("table", "closest rival", "mean lead", "plans behind", *_WORST, OURS, "rival")
    told = (
        f"In the mean over plans more than {MARGIN} behind a rival on {lost} of {len(rows)} tables."
    )
    return f"{told}\n\n{_markdown(heads, [row for _, row in sorted(rows)])}"


_WORST = ("the worst: records", "T", "epsilon")


def _plan(place: Place) -> tuple[str, str, str]:
    return f"{place.records:,}", f"{place.queries:,}", f"{place.epsilon:g}"


def _by_plan(means: Means) -> str:
    """Return means over all tables on which everybody was measured, by plan, at most queries.

    Of the gap between the best private rival and each table's best without privacy, "closed" is our
    share. DP-EBM takes two classes only, so that others stand apart.
    """
    by_plan: dict[tuple[bool, int, float], list[dict[str, float]]] = defaultdict(list)
    names = [name for name in METHODS if any(name in methods for methods in means.values())]
    for place, methods in means.items():
        if place.queries == QUERIES[-1] and {*names} - {EBM_NAME} <= methods.keys():
            by_plan[EBM_NAME not in methods, place.records, place.epsilon].append(methods)
    closed = ["closed"] if {OURS, *FREE} <= set(names) else []
    rows = []
    for (several, records, epsilon), those in sorted(by_plan.items(), key=lambda one: one[0]):
        there = [name if name in those[0] else "" for name in names]
        shown = [f"{np.mean([one[m] for one in those]):.3f}" if m else "" for m in there]
        if closed:
            rival = max(np.mean([one[name] for one in those]) for name in there if name in RIVALS)
            most = np.mean([max(one[name] for name in FREE) for one in those])
            shown.append(f"{(np.mean([one[OURS] for one in those]) - rival) / (most - rival):.0%}")
        tables = f"{len(those)}{f' without {EBM_NAME}' * several}"
        rows.append((f"{records:,}", f"{epsilon:g}", tables, *shown))
    return _markdown(("records", "epsilon", "tables", *names, *closed), rows)


def _by_records(means: Means) -> str:
    """Return means by number of records at epsilon 1, over the same tables in every row.

    A table has no cells for more records than it has, so means over all tables of two sizes differ
    by the tables, too. Methods that lack one of these tables, as DP-EBM does, are left out.
    """
    chosen = {
        (place.table, place.records): scores
        for place, scores in means.items()
        if (place.queries, place.epsilon) == (QUERIES[-1], 1.0)
    }
    sizes = sorted({records for _, records in chosen})
    names = {name for name, _ in chosen}
    names = {name for name in names if all((name, records) in chosen for records in sizes)}
    complete = [[chosen[name, records] for name in sorted(names)] for records in sizes]
    methods = [
        method
        for method in METHODS
        if names and all(method in scores for row in complete for scores in row)
    ]
    rows = [
        (
            f"{records:,}",
            str(len(row)),
            *(f"{np.mean([scores[method] for scores in row]):.3f}" for method in methods),
        )
        for records, row in zip(sizes, complete, strict=True)
    ]
    return _markdown(("private records", "tables", *methods), rows)


def _by_table(means: Means, names: list[str]) -> str:
    """Return all tables at epsilon 1, with all records and most queries."""
    most = max(place.records for place in means)
    there = {
        p.table: m for p, m in means.items() if (p.records, *p[3:]) == (most, QUERIES[-1], 1.0)
    }
    methods = [name for name in METHODS if any(name in m for m in there.values())]
    rows = [
        (name, *(f"{there[name][m]:.3f}" if m in there[name] else "" for m in methods))
        for name in names
        if name in there
    ]
    return _markdown(("table", *methods), rows)


def _markdown(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])
