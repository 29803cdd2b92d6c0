"""An index in a store is the same after any restart."""

import pytest

from store_tools import PLAN, make, points
from vicinal.store import Store

Q, QY = points(700, 5)


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_an_index_is_the_same_after_a_restart_and_an_erasure(tmp_path, kernel):
    index = {"kind": "lsh", "tables": 6, "bits": 3}
    store = make(tmp_path / "store", index=index, kernel=kernel, n_queries=400, epsilon=20.0)
    assert store.facts()["index"] == index
    store.predict(Q[:20])
    store.erase(["person-3", "person-148"])
    store.add(*points(6, 9), ["person-3", *["new"] * 5])
    # So little noise that a label is wrong where neighbours are: no draw can decide this test.
    quiet = {"n_records": 300, "n_queries": 200, "epsilon": 20.0, "noise_multiplier": 0.2}
    store.open_audience("press", **{**PLAN, **quiet})
    wanted = found_by(store)
    kind = type(store._store.shard.index)
    store.close()
    store = Store.open(tmp_path / "store")
    assert type(store._store.shard.index) is kind
    assert found_by(store) == wanted
    reply = store.predict(Q[20:120], audience="press")
    assert (reply.labels == QY[20:120]).mean() > 0.7
    assert store.verify(["person-148"])
    store.close()


def found_by(store):
    """Return the rows that an index finds, as a set for each of some queries."""
    engine = store._audience_states["default"].engine
    queries = engine.votes.kernel.encode(Q[:30])
    near = store._store.shard.get_index().search(queries, engine.radius.thresholds(queries))
    return [
        set(near.rows[a:b].tolist()) for a, b in zip(near.starts, near.starts[1:], strict=False)
    ]
