"""Random trees grown on unlabeled public rows: nonlinear features for a model of a table.

A node samples two of its public rows and a column in which they differ, and splits half-way between
the two values. The number of leaves that two rows share is a kernel that does not depend on the
scale of columns (Geurts, Ernst & Wehenkel 2006, section 5). A row's features are its kernel values
with landmarks, a sample of public rows. They follow from comparisons of whole numbers, so they are
equal on every machine and do not depend on other rows. L is the number of landmarks.

docs/decisions/0057-model-features-and-votes.md has the measurements.
"""

import numpy as np

from vicinal.arrays import FloatMatrix, Floats32, UInts8
from vicinal.compiled import compiled
from vicinal.mechanisms.noise_sources import public_draws

TREES = 100  # measured in decision 0057
DEPTH = 4  # number of splits on the way to a leaf

LANDMARKS = 150
"""Maximum number of public rows as landmarks. Twice as many lose .07 on the worst tuning table."""

_SEED = 0  # of the public random numbers: the same rows always give the same trees
_NODES = (1 << DEPTH) - 1  # inner nodes of a tree
_MAX_ROWS = 2000  # public rows that trees are grown on, at most


class RandomTrees:
    """Trees grown on public rows (m, d) of whole numbers; equal rows give equal trees.

    `columns`, int64 (trees, nodes), and `cuts`, float64: a row above the cut of node i, in the
    node's column, goes to node 2 i + 2, any other row to 2 i + 1.
    """

    def __init__(self, public: FloatMatrix) -> None:
        """Grow the trees on `public` rows (m, d)."""
        self.columns = np.zeros((TREES, _NODES), dtype=np.int64)
        self.cuts = np.full((TREES, _NODES), np.inf)  # without a split, all rows go to one side
        sample = _select_evenly(public, _MAX_ROWS).astype(np.float64)
        # Equal rows get equal ids, so that rows are compared only once.
        _, row_ids = np.unique(sample, axis=0, return_inverse=True)
        # Raw 64-bit words, since derived random numbers may change with the version of NumPy.
        random_words = public_draws(_SEED).bit_generator.random_raw((TREES, _NODES, 3))
        _grow_trees(sample, row_ids.reshape(-1), random_words, self.columns, self.cuts)
        landmarks = _select_evenly(public, LANDMARKS)
        self._landmark_leaves = self._find_leaves(landmarks).T.copy()

    def count_shared_leaves(self, rows: FloatMatrix) -> Floats32:
        """Return the number of leaves that `rows` (n, d) share with each landmark, (n, L)."""
        counts = np.zeros((len(rows), self._landmark_leaves.shape[1]), dtype=np.float32)
        _add_shared_leaves(self._find_leaves(rows), self._landmark_leaves, counts)
        return counts

    def _find_leaves(self, rows: FloatMatrix) -> UInts8:
        """Return the leaf index of each of the `rows` (n, d) in each tree, uint8 (n, trees)."""
        leaves = np.zeros((len(rows), TREES), dtype=np.uint8)
        rows32 = np.ascontiguousarray(rows, dtype=np.float32)
        _descend_trees(rows32, self.columns, self.cuts, leaves)
        return leaves


def _select_evenly(rows: FloatMatrix, max_rows: int) -> FloatMatrix:
    """Return at most `max_rows` of the `rows` (n, d), at equal distances in their order."""
    count = min(len(rows), max_rows)
    return rows[np.arange(count) * len(rows) // max(count, 1)]


@compiled
def _grow_trees(rows, row_ids, random_words, columns, cuts):  # type: ignore[no-untyped-def]
    """Write a sampled column and cut of each node to `columns` and `cuts`, (trees, nodes).

    A node keeps its infinite cut if its rows are equal. `rows`, float64 (m, d), and `row_ids`,
    (m,): public rows, with equal ids for equal rows. `random_words`, uint64 (trees, nodes, 3): they
    select a node's first row, its second row and the column.
    """
    for tree in range(len(columns)):
        row_nodes = np.zeros(len(rows), dtype=np.int64)
        for node in range(columns.shape[1]):
            indices = np.flatnonzero(row_nodes == node)
            row_nodes[indices] = 2 * node + 1
            if len(indices) == 0:
                continue
            first_word, second_word, column_word = random_words[tree, node]
            first = indices[first_word % np.uint64(len(indices))]
            different = indices[row_ids[indices] != row_ids[first]]
            if len(different) == 0:
                continue
            second = different[second_word % np.uint64(len(different))]
            split_columns = np.flatnonzero(rows[first] != rows[second])
            column = split_columns[column_word % np.uint64(len(split_columns))]
            columns[tree, node] = column
            cuts[tree, node] = (rows[first, column] + rows[second, column]) / 2
            for i in indices:
                row_nodes[i] += rows[i, column] > cuts[tree, node]


@compiled
def _descend_trees(rows, columns, cuts, leaves):  # type: ignore[no-untyped-def]
    """Write the leaf index of each row in each tree to `leaves`, uint8 (n, trees).

    `rows`, float32 (n, d). `columns`, `cuts`, (trees, nodes): the splits, see :class:`RandomTrees`.
    """
    n_nodes = columns.shape[1]
    for i in range(len(rows)):
        for tree in range(len(columns)):
            node = 0
            while node < n_nodes:
                node = 2 * node + 1 + (rows[i, columns[tree, node]] > cuts[tree, node])
            leaves[i, tree] = node - n_nodes


@compiled
def _add_shared_leaves(leaves, landmarks, counts):  # type: ignore[no-untyped-def]
    """Add the number of leaves that rows and landmarks share to `counts`, float32 (n, L).

    `leaves`, uint8 (n, trees), and `landmarks`, uint8 (trees, L): their leaf index in each tree.
    """
    for i in range(len(leaves)):
        for tree in range(len(landmarks)):
            for j in range(landmarks.shape[1]):
                counts[i, j] += landmarks[tree, j] == leaves[i, tree]
