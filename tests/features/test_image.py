"""Image embeddings: each image by itself, weights from a file, and errors that repeat no pixel."""

import pickle

import numpy as np
import pytest

from vicinal.errors import InvalidInput
from vicinal.features import ImageFeatures
from vision_tools import NETWORK, pictures, save_weights, timm_or_skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return save_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def features(weights):
    return ImageFeatures(NETWORK, str(weights))


def test_an_embedding_does_not_depend_on_company(features):
    images, _ = pictures(5)
    together = features.transform(images)
    assert together.shape == (5, 96)
    assert together.dtype == np.float32
    assert (together.std(axis=0) > 0).any(), "images are told apart"
    alone = np.concatenate([features.transform(images[[i]]) for i in reversed(range(5))])
    np.testing.assert_array_equal(together, alone[::-1])


def test_images_of_any_size_type_and_colour(features):
    images, _ = pictures(2)
    grey = images[1][:, :, 0]
    mixed = [images[0], grey.astype(np.float64), np.zeros((1, 400)), np.full((7, 5, 3), 255)]
    found = features.transform(mixed)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[1], features.transform(np.stack([grey] * 3, -1)[None])[0])


def test_the_network_is_that_of_timm_with_these_weights(weights):
    """On an image of the input's own size, the embedding is timm's own, normalised as it says."""
    timm = timm_or_skip()
    import torch
    from safetensors.torch import load_file

    network = timm.create_model(NETWORK, pretrained=False, num_classes=5).eval()
    network.load_state_dict(load_file(weights))
    _, height, width = network.pretrained_cfg["input_size"]
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3))
    mean, deviation = (np.array(network.pretrained_cfg[name]) for name in ("mean", "std"))
    pixels = torch.tensor(((image / 255 - mean) / deviation).transpose(2, 0, 1)[None]).float()
    with torch.inference_mode():
        wanted = network.forward_head(network.forward_features(pixels), pre_logits=True)
    found = ImageFeatures(NETWORK, str(weights)).transform(image[None])
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_weights_saved_by_torch_are_read_and_run_no_code(tmp_path, weights):
    import torch
    from safetensors.torch import load_file

    images, _ = pictures(1)
    torch.save(load_file(weights), tmp_path / "plain.pt")
    found = ImageFeatures(NETWORK, str(tmp_path / "plain.pt")).transform(images)
    np.testing.assert_array_equal(found, ImageFeatures(NETWORK, str(weights)).transform(images))
    torch.save({"harm": _Harm()}, tmp_path / "harm.pt")
    with pytest.raises(InvalidInput, match="no weights"):
        ImageFeatures(NETWORK, str(tmp_path / "harm.pt")).transform(images)


class _Harm:
    def __reduce__(self):
        return (pytest.fail, ("the file has run code",))


BAD = {
    "none": [],
    "text": "images",
    "flat": [[1, 2]],
    "channels": [np.zeros((4, 4, 2))],
    "empty": [np.zeros((0, 4))],
    "ragged": [[[1, 2], [3]]],
    "nan": [np.full((4, 4), np.nan)],
    "infinite": [np.full((4, 4), np.inf)],
    "negative": [np.full((4, 4), -1)],
    "too bright": [np.full((4, 4), 256.5)],
    "objects": [np.full((4, 4), None)],
    "number": 5,
}


@pytest.mark.parametrize("images", BAD.values(), ids=BAD)
def test_anything_else_is_refused(features, images):
    with pytest.raises(InvalidInput) as caught:
        features.transform(images)
    assert "256.5" not in str(caught.value)


@pytest.mark.parametrize("model", ["no_such_net", "hf-hub:timm/resnet18", "local-dir:x", None])
def test_only_architectures_are_models(weights, model):
    with pytest.raises(InvalidInput, match="'model'"):
        ImageFeatures(model, str(weights)).transform(np.zeros((1, 8, 8)))


def test_the_file_must_hold_the_weights_of_the_model(tmp_path, weights):
    damaged = tmp_path / "damaged"
    damaged.write_bytes(weights.read_bytes()[:100])
    for model, file in ((NETWORK, damaged), (NETWORK, tmp_path), ("test_vit", weights)):
        with pytest.raises(InvalidInput, match="weights"):
            ImageFeatures(model, str(file)).transform(np.zeros((1, 8, 8)))


def test_a_pickle_leaves_the_network_behind(features):
    images, _ = pictures(1)
    found = features.transform(images)
    packed = pickle.dumps(features)
    assert len(packed) < 1000
    np.testing.assert_array_equal(pickle.loads(packed).transform(images), found)
