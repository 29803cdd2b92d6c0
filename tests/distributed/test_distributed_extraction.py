"""Features made on Ray: those of one process, bit for bit, and nothing private in what fails."""

from functools import partial

import numpy as np
import pytest

from vicinal.distributed import SpreadExtractor
from vicinal.distributed._ray_cluster import _features, resources_of
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.store import Store, StoreExtractor

PICTURES = np.random.default_rng(3).integers(0, 256, (700, 12, 12), dtype=np.uint8)


def test_features_are_those_of_one_process(ray_engine):
    """Fails if rows come back in another order, or depend on where they were cut."""
    plain, many = StoreExtractor("hog"), SpreadExtractor("hog", engine=ray_engine)
    np.testing.assert_array_equal(many.transform(PICTURES), plain.transform(PICTURES))
    assert many.spec() == plain.spec()
    few = many.transform(PICTURES[:3])
    np.testing.assert_array_equal(few, plain.transform(PICTURES[:3]))


def test_a_store_that_was_made_on_ray_is_any_store(ray_engine, tmp_path):
    y = np.arange(700) % 2
    plan = {"classes": [0, 1], "n_records": 700, "n_neighbors": 20, "n_queries": 50}
    public = StoreExtractor("hog").transform(PICTURES[:200][::-1] // 2)
    many = SpreadExtractor("hog", engine=ray_engine)
    Store.init(tmp_path / "store", PICTURES, y, public=public, extractor=many, **plan).close()
    with Store.open(tmp_path / "store") as store:
        assert store.predict(PICTURES[:3]).charged == 3


def test_a_shard_runs_where_its_name_is_offered():
    assert list(resources_of("shard-3", {"CPU": 2.0, "vicinal-shard-3": 1.0})) == [
        "vicinal-shard-3"
    ]
    assert resources_of("shard-3", {"CPU": 2.0, "vicinal-shard-1": 1.0}) == {}


def test_what_goes_wrong_quotes_nothing(ray_engine):
    with pytest.raises(InvalidInput, match="image"):
        ray_engine.map(partial(_features, StoreExtractor("hog")), [np.full((2, 12, 12), np.nan)])
    with pytest.raises(StorageFailed, match="A shard failed") as caught:
        ray_engine.map(partial(_features, "no extractor"), [PICTURES[:2]])
    assert "no extractor" not in str(caught.value)
