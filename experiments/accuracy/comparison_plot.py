"""The picture of a comparison: what the tables of `python -m experiments` look like."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.accuracy.comparison import LABELS, PUBLISHED, Row
from vicinal.reports import DEFAULT, NOT_PRIVATE, Curve, Outcome, accuracy_by_epsilon


def comparison_picture(rows: Sequence[Row]) -> bytes:
    """Draw accuracy against epsilon for the last feature map of a table, all its runs pooled.

    Parameters
    ----------
    rows
        Rows of :meth:`experiments.accuracy.comparison.Comparison.rows`; of the numbers of
        queries the smallest is drawn, which is the one that was run at several epsilons.
    """
    features, fewest = rows[-1].features, min(row.n_queries for row in rows)
    drawn = [row for row in rows if row.features == features and row.n_queries == fewest]
    curves = [_curve(name, drawn) for name in (DEFAULT, LABELS, PUBLISHED)]
    (baseline,) = [row for row in drawn if row.method == NOT_PRIVATE]
    return accuracy_by_epsilon(curves, (NOT_PRIVATE, _pooled(baseline)), "png")


def _curve(name: str, rows: Sequence[Row]) -> Curve:
    """Return a method's curve, in the order of the epsilons."""
    points = sorted(
        ((row.setting.epsilon, _pooled(row)) for row in rows if row.method == name and row.setting),
        key=lambda point: point[0],
    )
    return Curve(name, [epsilon for epsilon, _ in points], [outcome for _, outcome in points])


def _pooled(row: Row) -> Outcome:
    """Return the queries of all runs together."""
    total = row.n_queries * len(row.accuracies)
    return Outcome(round(sum(row.accuracies) * row.n_queries), total)
