"""Reference rows for tables without public rows, sampled from a schema."""

import numpy as np
import pyarrow as pa
import pytest

from vicinal.errors import InvalidInput
from vicinal.features import TableFeatures, TableSchema, draft_schema, rows_from_schema


def sample_patients(size, seed=0):
    rng = np.random.default_rng(seed)
    ill = rng.random(size) < 0.3
    return pa.table({
        "age": rng.normal(50 + 20 * ill, 8).round(), "dose": rng.choice([1, 2, 4], size),
        "sex": rng.choice(["f", "m"], size), "ward": np.where(ill, "A", "B"),
        "weight": pa.array(rng.normal(70, 9, size), mask=rng.random(size) < 0.2),
    })  # fmt: skip


SCHEMA, _ = draft_schema(sample_patients(3000, 7))


def test_made_up_rows_are_as_declared_and_repeatable():
    sampled = rows_from_schema(SCHEMA, 4000, seed=1)
    assert sampled.equals(rows_from_schema(SCHEMA, 4000, seed=1))
    assert not sampled.equals(rows_from_schema(SCHEMA, 4000))
    features, real = (
        TableFeatures(SCHEMA).transform(rows) for rows in (sampled, sample_patients(4000))
    )
    assert np.abs(features.mean(axis=0) - real.mean(axis=0)).max() < 0.3
    assert np.isfinite(features).all()
    assert abs(sampled["weight"].null_count / 4000 - 0.2) < 0.05
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
    sampled = rows_from_schema(schema, 500, seed=0)
    assert np.isfinite(TableFeatures(schema).transform(sampled)).all()
    assert set(sampled["g"].to_pylist()) == {"x"}
    assert set(sampled["f"].to_pylist()) == {"x", "(other)"}
