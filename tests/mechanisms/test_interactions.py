"""Digests of records, by which a second fit to the same ones is noticed."""

import numpy as np

from vicinal.mechanisms import _interactions as module
from vicinal.mechanisms import id_digests
from vicinal.mechanisms._interactions import row_digests


def test_digests_know_rows_and_ids_only():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 7))
    found = row_digests(rows)
    mixed = rng.permutation(50)
    np.testing.assert_array_equal(row_digests(rows[mixed]), found[mixed])
    for changed in (1.0001 * rows, 7 * rows, rows.astype(np.float32), rows + 1e-9):
        assert (row_digests(changed) == found).mean() > 0.9
    assert not (row_digests(-rows) == found).any()
    zeros = np.zeros((1, 3))
    assert row_digests(zeros) == row_digests(-zeros)
    assert len(np.unique(row_digests(np.arange(4e4).reshape(-1, 1)))) == 40_000
    ids = id_digests([5, "5", "05", "é", "x" * 1000, "x" * 1001])
    assert ids[0] == ids[1]
    assert len(np.unique(ids)) == 5
    assert id_digests(["5"])[0] == ids[0]
    assert len(id_digests([])) == 0


def test_another_process_has_other_digests(monkeypatch):
    rows = np.ones((1, 2))
    before = row_digests(rows)
    monkeypatch.setattr(module, "_key", lambda: b"another")
    module._keys.cache_clear()
    after = row_digests(rows)
    module._keys.cache_clear()
    assert before != after
