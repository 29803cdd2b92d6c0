"""References for tables without public rows: made up from a schema, or drawn from marginals."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from vicinal import IndKNNClassifier
from vicinal.accounting._budget import budget, gdp_delta
from vicinal.errors import InvalidInput
from vicinal.features import (
    TableFeatures,
    TableSchema,
    draft_schema,
    rows_from_marginals,
    rows_from_schema,
)
from vicinal.features._table_marginals import shares, tree
from vicinal.mechanisms import noisy_marginals, public_draws, randomness
from vicinal.mechanisms._marginals import SLACK_SHARE_OF_MARGINALS
from vicinal.noise import NoiseSource
from vicinal.predictors.ind_knn._parameters import IndKNNSettings


class Silence(NoiseSource):
    exact = False

    def __init__(self):
        self.scales = []

    def discrete_gaussian(self, scale, size):
        self.scales.append(scale)
        return np.zeros(size, dtype=np.int64)


def people(size, seed=0):
    rng = np.random.default_rng(seed)
    ill = rng.random(size) < 0.3
    return pa.table({
        "age": rng.normal(50 + 20 * ill, 8).round(), "dose": rng.choice([1, 2, 4], size),
        "sex": rng.choice(["f", "m"], size), "ward": np.where(ill, "A", "B"),
        "weight": pa.array(rng.normal(70, 9, size), mask=rng.random(size) < 0.2),
    })  # fmt: skip


SCHEMA, _ = draft_schema(people(3000, 7))


def marginals(cells, slots, noise, cost=0.01, sizes=(2, 3)):
    cells, slots = np.asarray(cells), np.asarray(slots)
    return noisy_marginals(cells, sizes, slots, cost, 1e-5, noise)


def test_made_up_rows_are_as_declared_and_repeatable():
    made = rows_from_schema(SCHEMA, 4000, seed=1)
    assert made.equals(rows_from_schema(SCHEMA, 4000, seed=1))
    assert not made.equals(rows_from_schema(SCHEMA, 4000))
    found, real = (TableFeatures(SCHEMA).transform(rows) for rows in (made, people(4000)))
    assert np.abs(found.mean(axis=0) - real.mean(axis=0)).max() < 0.3
    assert np.isfinite(found).all()
    assert abs(made["weight"].null_count / 4000 - 0.2) < 0.05
    with pytest.raises(InvalidInput, match="size"):
        rows_from_schema(SCHEMA, 0)


def test_every_kind_makes_cells_that_read_as_declared():
    schema = TableSchema.from_dict({"format": "vicinal table schema", "version": 1, "columns": {
        "a": {"kind": "number", "low": 0, "center": 3.0, "spread": 1.0, "log": True},
        "b": {"kind": "whole", "low": -3, "high": 3}, "c": {"kind": "yes_no"},
        "d": {"kind": "date", "low": "2020-01-01", "high": "2021-01-01"},
        "e": {"kind": "category", "values": [1, 2]}, "f": {"kind": "category", "values": ["x"]},
        "g": {"kind": "levels", "values": ["x", "y"], "shares": [1, 0]},
        "h": {"kind": "number", "center": -1e6, "spread": 1e3, "missing": 0.5},
    }})  # fmt: skip
    made = rows_from_schema(schema, 500, seed=0)
    assert np.isfinite(TableFeatures(schema).transform(made)).all()
    assert set(made["g"].to_pylist()) == {"x"}
    assert set(made["f"].to_pylist()) == {"x", "(other)"}
    drawn = rows_from_marginals(schema, made, cost=100.0, delta=1e-5, size=300, simulation_seed=1)
    assert np.isfinite(TableFeatures(schema).transform(drawn.rows)).all()


def test_a_subject_weighs_at_most_one_in_every_marginal():
    """The sensitivity that the proof note claims, on the very sums that are released."""
    silent = Silence()
    for m in (1, 2, 3, 7):
        alone = marginals([[0, 0]] * 5, range(5), silent)
        cells = [[0, 0]] * 5 + [[i % 2, i % 3] for i in range(m)]
        more = marginals(cells, [*range(5), *[5] * m], silent)
        moved = [b - a for a, b in zip(alone.one_way, more.one_way, strict=True)]
        moved.append(more.two_way[0, 1] - alone.two_way[0, 1])
        assert all((part >= 0).all() for part in moved)
        assert all(part.sum() <= 1 for part in moved)
        squared = sum(float(np.square(part).sum()) for part in moved)
        assert squared / (2 * more.noise**2) <= more.cost


def test_the_noise_pays_for_the_cost():
    silent = Silence()
    released = marginals([[0, 0]], [0], silent, cost=0.02)
    assert 3 / (2 * released.noise**2) <= 0.02
    assert 3 / (2 * released.noise**2) > 0.0199
    assert len(silent.scales) == 1
    tiny = marginals([[0, 0]], [0], silent, cost=1e6)
    assert tiny.noise >= 1, "the slack of the grid needs shifts below one scale"
    with pytest.raises(InvalidInput, match="too many cells"):
        marginals([[0, 0]], [0], silent, sizes=(3000, 3000))


@pytest.mark.parametrize("release", ["votes", "label"])
@pytest.mark.parametrize("method", ["gdp", "rdp"])
def test_what_the_reference_cost_is_taken_off_every_budget(release, method):
    plain = IndKNNClassifier([0, 1], release=release, accounting=method)
    whole = IndKNNSettings.of(plain).spendable
    cost = 0.1 * whole
    less = IndKNNSettings.of(plain.set_params(reference_cost=cost)).spendable
    assert less <= whole - cost
    assert less > (whole - cost) * (1 - 1e-9)
    if release == "votes" and method == "gdp":
        assert gdp_delta(math.sqrt(2 * (less + cost)), 1.0) <= 0.99e-5
        assert less + cost <= budget(1.0, 0.99e-5)
    with pytest.raises(InvalidInput, match="reference has cost all"):
        _ = IndKNNSettings.of(plain.set_params(reference_cost=1.01 * whole)).spendable


def test_the_guarantee_says_what_the_reference_cost():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    plain = IndKNNClassifier([0, 1], n_records=300)
    cost = 0.1 * IndKNNSettings.of(plain).spendable
    fitted = plain.set_params(reference_cost=cost).fit(X, y, public=rng.normal(size=(50, 4)))
    text = str(fitted.guarantee())
    assert "0.1 of every budget" in text
    assert "noisy marginals of the records" in text
    assert "the reference set holds no private record" not in text
    slack = fitted._engine.votes._slack
    assert slack._limit == pytest.approx(0.01 * 1e-5 * (1 - SLACK_SHARE_OF_MARGINALS))


def test_shares_are_the_nearest_law():
    found = shares(np.array([[5.0, -1.0], [3.0, 1.0]]), 6.0)
    assert found.sum() == pytest.approx(1)
    assert found.min() >= 0
    np.testing.assert_allclose(found * 6, [[4, 0], [2, 0]])


def test_the_tree_joins_what_belongs_together_and_leaves_noise_alone():
    table = people(3000)
    codes = TableFeatures(SCHEMA).codes(table)
    sizes = tuple(c.n_bins(8) + 1 for c in SCHEMA.columns)
    bins = [c.bins(np.nan_to_num(codes[:, i]), 8) for i, c in enumerate(SCHEMA.columns)]
    source = randomness(3)
    released = noisy_marginals(np.column_stack(bins), sizes, np.arange(3000), 1.0, 1e-5, source)
    laws = [shares(t, 3000) for t in released.one_way]
    order = dict(tree(released, laws, 3000.0, public_draws(1)))
    age, ward = SCHEMA.names.index("age"), SCHEMA.names.index("ward")
    assert order[ward] == age or order[age] == ward
    assert sum(parent is not None for parent in order.values()) == 1


def test_rows_from_marginals_keep_what_columns_say_about_each_other():
    table = people(4000)
    drawn = rows_from_marginals(SCHEMA, table, cost=0.5, delta=1e-5, size=4000, simulation_seed=2)
    assert drawn.cost == 0.5
    assert drawn.rows.column_names == table.column_names
    found, real = (TableFeatures(SCHEMA).transform(rows) for rows in (drawn.rows, table))
    assert np.abs(found.mean(axis=0) - real.mean(axis=0)).max() < 0.15
    names = list(SCHEMA.feature_names)
    pair = [names.index("age"), names.index("ward=A")]
    apart = np.corrcoef(found[:, pair].T)[0, 1] - np.corrcoef(real[:, pair].T)[0, 1]
    assert abs(apart) < 0.15
    subjects = [f"p{i // 4}" for i in range(4000)]
    rows_from_marginals(SCHEMA, table, subjects, cost=0.5, delta=1e-5, size=5)
    with pytest.raises(InvalidInput, match="'subjects'"):
        rows_from_marginals(SCHEMA, table, subjects[:3], cost=0.5, delta=1e-5)
