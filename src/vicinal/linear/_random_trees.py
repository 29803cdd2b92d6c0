"""Random trees that see public rows and no label: what a model of a table bends by.

A node draws two of the public rows in it and a column in which they differ, and cuts it half-way
between them. Rows are alike as far as they share leaves, whatever a column's scale (Geurts, Ernst &
Wehenkel 2006, section 5, on the kernel of such trees). A row's features are how many leaves it
shares with each of some public rows: Nyström's method, without a factorisation that would have to
be stored. They come of comparisons of whole numbers, alike on every machine and in any company.

docs/decisions/0053-private-model.md has what was measured.
"""

import numpy as np

from vicinal.arrays import FloatMatrix, Floats, Floats32, Places, UInts8
from vicinal.compiled import compiled
from vicinal.mechanisms.noise_sources import public_draws

TREES, DEPTH = 100, 4

LANDMARKS = 150
"""Public rows that leaves are shared with, at most."""

_SEED = 0
_NODES = (1 << DEPTH) - 1
_MOST_ROWS = 2000  # public rows that trees are grown on


class RandomTrees:
    """Trees grown on public rows (m, d) of whole numbers, always the same on the same ones.

    `columns`, int64 (trees, nodes), and `cuts`, float64: a row above node i's cut goes to node
    2 i + 2, any other to 2 i + 1.
    """

    def __init__(self, public: FloatMatrix) -> None:
        self.columns = np.zeros((TREES, _NODES), dtype=np.int64)
        self.cuts = np.full((TREES, _NODES), np.inf)  # where rows are alike, all go one way
        grown_on = _evenly(public, _MOST_ROWS)
        _, kinds = np.unique(grown_on, axis=0, return_inverse=True)  # of alike rows, compared once
        kinds = kinds.reshape(-1)
        # Raw bits: what the library makes of them elsewhere may change with its version.
        draws = public_draws(_SEED).bit_generator.random_raw((TREES, _NODES, 3)).tolist()
        for columns, cuts, drawn in zip(self.columns, self.cuts, draws, strict=True):
            inside = [np.arange(len(grown_on))]  # of every node
            for node in range(_NODES):
                places = inside[node]
                columns[node], cuts[node] = _split(grown_on, kinds, places, *drawn[node])
                right = grown_on[places, columns[node]] > cuts[node]
                inside += places[~right], places[right]
        self._landmarks = _leaves(_evenly(public, LANDMARKS), self.columns, self.cuts).T.copy()

    def shared(self, rows: FloatMatrix) -> Floats32:
        """Return in how many trees rows (n, d) share a leaf with each landmark, (n, landmarks)."""
        counts = np.zeros((len(rows), self._landmarks.shape[1]), dtype=np.float32)
        _count(_leaves(rows, self.columns, self.cuts), self._landmarks, counts)
        return counts


def _evenly(rows: FloatMatrix, most: int) -> FloatMatrix:
    count = min(len(rows), most)
    return rows[np.arange(count) * len(rows) // max(count, 1)]


def _split(
    rows: FloatMatrix, kinds: Places, places: Places, first: int, second: int, third: int
) -> tuple[int, float]:
    """Return column and cut of a node with the public rows at `places`, by three draws."""
    if len(places):
        at = places[first % len(places)]
        others = places[kinds[places] != kinds[at]]
        if len(others):
            one, other = rows[at], rows[others[second % len(others)]]
            differing = np.flatnonzero(one != other)
            column = int(differing[third % len(differing)])
            return column, (float(one[column]) + float(other[column])) / 2
    return 0, np.inf


def _leaves(rows: FloatMatrix, columns: Places, cuts: Floats) -> UInts8:
    leaves = np.zeros((len(rows), TREES), dtype=np.uint8)
    _descend(np.ascontiguousarray(rows, dtype=np.float32), columns, cuts, leaves)
    return leaves


@compiled
def _descend(rows, columns, cuts, leaves):  # type: ignore[no-untyped-def]
    """Write the leaf of every row (n, d) in every tree, (n, trees)."""
    n_nodes = columns.shape[1]
    for i in range(len(rows)):
        for tree in range(len(columns)):
            node = 0
            while node < n_nodes:
                node = 2 * node + 1 + (rows[i, columns[tree, node]] > cuts[tree, node])
            leaves[i, tree] = node - n_nodes


@compiled
def _count(leaves, landmarks, counts):  # type: ignore[no-untyped-def]
    """Add how many leaves (n, trees) are those of every landmark, (trees, landmarks)."""
    for i in range(len(leaves)):
        for tree in range(len(landmarks)):
            for j in range(landmarks.shape[1]):
                counts[i, j] += landmarks[tree, j] == leaves[i, tree]
