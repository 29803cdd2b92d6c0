"""An ONNX network as extractor: each record by itself, and nothing but what it takes."""

import pickle

import numpy as np
import pytest

from onnx_tools import save_network
from vicinal.errors import InvalidInput
from vicinal.features import OnnxFeatures


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return OnnxFeatures(str(save_network(tmp_path_factory.mktemp("onnx") / "n.onnx", (6,))))


def test_rows_are_computed_alone(features):
    rows = np.random.default_rng(1).normal(size=(7, 6))
    together = features.transform(rows)
    assert together.shape == (7, 4)
    alone = np.concatenate([features.transform(rows[[i]]) for i in reversed(range(7))])
    np.testing.assert_array_equal(together, alone[::-1])
    weights = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    np.testing.assert_allclose(together, np.tanh(rows @ weights), rtol=1e-4, atol=1e-5)


def test_images_and_other_numbers(tmp_path):
    images = OnnxFeatures(str(save_network(tmp_path / "i.onnx", (3, 2))))
    assert images.input_shape == (3, 2)
    assert images.transform(np.ones((2, 3, 2), dtype=np.uint8)).shape == (2, 4)
    small = OnnxFeatures(str(save_network(tmp_path / "u.onnx", (3,), "uint8")))
    assert small.transform([[0, 128.0, 255]]).shape == (1, 4)
    for wrong in (0.5, 256, -1):
        with pytest.raises(InvalidInput, match="uint8"):
            small.transform([[0, 1, wrong]])


BAD = {
    "none": np.zeros((0, 6)), "narrow": np.zeros((2, 5)), "flat": np.zeros(6),
    "deep": np.zeros((1, 6, 1)), "nan": np.full((1, 6), np.nan),
    "too large": np.full((1, 6), 1e300), "text": [["canary"] * 6], "ragged": [[1.0] * 6, [1.0]],
    "number": 3.0,
}  # fmt: skip


@pytest.mark.parametrize("rows", BAD.values(), ids=BAD)
def test_anything_else_is_refused(features, rows):
    with pytest.raises(InvalidInput) as caught:
        features.transform(rows)
    assert "canary" not in str(caught.value)


def test_files_that_are_no_such_network_and_numbers_that_are_not_finite(tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"canary")
    two = save_network(tmp_path / "two.onnx", (6,), inputs=2)
    for file, words in ((damaged, "not an ONNX"), (tmp_path / "none", "no"), (two, "one input")):
        with pytest.raises(InvalidInput, match=words):
            OnnxFeatures(str(file)).transform(np.zeros((1, 6)))
    features = OnnxFeatures(str(save_network(tmp_path / "log.onnx", (2,), last="Log")))
    with pytest.raises(InvalidInput, match="finite"):
        features.transform([[0.0, 0.0]])


def test_a_pickle_leaves_the_session_behind(features):
    features.transform(np.zeros((1, 6)))
    assert pickle.loads(pickle.dumps(features)).transform(np.ones((1, 6))).shape == (1, 4)
