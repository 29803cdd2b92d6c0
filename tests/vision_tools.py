"""What the tests of image extractors share: timm, a tiny network, and images."""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType

import numpy as np
import pytest

NETWORK = "test_resnet"

NOT_IMAGES = [
    (np.zeros((28, 28)), "Got 2 dimensions"),
    (np.zeros((1, 28, 28, 4)), r"\(n, h, w, 3\)"),
    (np.zeros((0, 28, 28)), "at least one"),
    (np.zeros((1, 28, 7)), "at least 8 pixels"),
    (np.full((1, 28, 28), "secret"), "integers or floats"),
    ([np.zeros((28, 28)), np.zeros((28, 27))], "same height and width"),
]
"""What every extractor that needs eight pixels refuses, with words of the refusal."""


def timm_or_skip():
    """Return timm; skip where it is not installed.

    timm imports torchvision, of which our use runs nothing. Where there is none that fits torch,
    hollow modules stand in for it while timm is imported, so that the real timm is tested.
    """
    pytest.importorskip("torch")
    if "timm" in sys.modules or _torchvision_fits():
        return pytest.importorskip("timm")
    sys.meta_path.insert(0, finder := _Hollow())
    try:
        return pytest.importorskip("timm")
    finally:
        # Others, who ask whether there is torchvision, must not find this.
        sys.meta_path.remove(finder)
        _forget_torchvision()


def _torchvision_fits():
    try:
        import torchvision  # noqa: F401 (is it there, and does it fit?)
    except (ImportError, RuntimeError):
        _forget_torchvision()
        return False
    return True


def _forget_torchvision():
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]


class _Hollow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes empty modules of everything below torchvision."""

    def find_spec(self, name, path, target=None):  # noqa: ARG002 (the protocol's)
        if name.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _HollowModule(spec.name)

    def exec_module(self, module):
        """Do nothing."""


class _HollowModule(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        # A class, as timm asks whether layers are instances of some.
        return _HollowClass(name, (), {})


class _HollowClass(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def save_weights(folder, *, classes=5):
    """Write a network with random weights into `folder`; return the file."""
    timm = timm_or_skip()
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = timm.create_model(NETWORK, pretrained=False, num_classes=classes)
    path = folder / "weights.safetensors"
    save_file(network.state_dict(), path)
    return path


def pictures(count, seed=0, shape=(24, 32, 3)):
    """Return images of two kinds, bright above or bright below, and which they are."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, count)
    images = rng.integers(0, 60, (count, *shape))
    half = shape[0] // 2
    images[kinds == 0, :half] += 180
    images[kinds == 1, half:] += 180
    return images.astype(np.uint8), kinds
