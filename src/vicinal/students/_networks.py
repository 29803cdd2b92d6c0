"""Networks of the students: plain stacks of layers, which can also be written as ONNX.

"small" and "deep" are made for two cores: a tenth of the arithmetic of the networks of ZYCW20.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal import _checks
from vicinal.errors import InvalidInput

Shape = tuple[int, ...]
"""Of one example: (channels, height, width) of an image, (d,) of a vector."""


class Network(nn.Module):
    """A body, examples (n, *shape) to features (n, f), and a linear head."""

    def __init__(self, body: nn.Sequential, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, examples: Tensor) -> Tensor:
        """Return logits (n, c)."""
        logits: Tensor = self.head(self.body(examples))
        return logits


class UnitLength(nn.Module):
    """Scales every example to length 1; zeros stay zeros."""

    def forward(self, examples: Tensor) -> Tensor:
        """Return rows of length 1, (n, d)."""
        scaled: Tensor = functional.normalize(examples, dim=1)
        return scaled


class Likeness(nn.Module):
    """Turns cosines into likenesses, ((1 + cosine) / 2)^8."""

    def forward(self, cosines: Tensor) -> Tensor:
        """Return likenesses from 0 to 1."""
        likeness = (cosines * 0.5 + 0.5).clamp(0.0, 1.0)
        for _ in range(3):
            likeness = likeness * likeness
        return likeness


def build(name: str, shape: Shape, n_classes: int) -> Network:
    """Return a network with fresh weights, drawn from torch's global generator.

    It is one of :data:`NETWORKS`; examples of another shape than it takes are refused.
    """
    layers = _BODIES[_checks.choice("network", name, tuple(_BODIES))]
    vectors = name in _OF_VECTORS
    if len(shape) != (1 if vectors else 3):
        raise InvalidInput(
            f"The network {name!r} takes {'vectors' if vectors else 'images'}. Got examples of "
            f"shape {shape}."
        )
    try:
        body = layers(shape)
        width = _width(body, shape)
    except (RuntimeError, ZeroDivisionError):
        raise InvalidInput(
            f"The images are too small for the network {name!r}: {shape[1]} by {shape[2]} pixels."
        ) from None
    return Network(body, width, n_classes)


def _width(layers: nn.Sequential, shape: Shape) -> int:
    """Return how many features leave the layers for one example."""
    with torch.no_grad():
        features: Tensor = layers.eval()(torch.zeros(1, *shape))
    layers.train()
    return features.shape[1]


def _small(shape: Shape) -> nn.Sequential:
    """Pools early, so that two cores take milliseconds for a step."""
    layers = [nn.Conv2d(shape[0], 32, 5, padding=2), *_first_pool(), *_relu(32, 64, 1)]
    layers += [nn.MaxPool2d(2), *_relu(64, 128, 1), nn.MaxPool2d(2)]
    return _dense_after(layers, shape)


def _deep(shape: Shape) -> nn.Sequential:
    """As costly as "small", with a layer more: borders are cut off before the second pooling."""
    layers = [nn.Conv2d(shape[0], 32, 5), *_first_pool(), *_relu(32, 64, 1), *_relu(64, 64, 0)]
    layers += [nn.MaxPool2d(2), *_relu(64, 128, 1)]
    return _dense_after(layers, shape)


def _first_pool() -> list[nn.Module]:
    return [nn.MaxPool2d(2), nn.BatchNorm2d(32), nn.ReLU()]


def _relu(before: int, after: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=padding), nn.BatchNorm2d(after), nn.ReLU()]


def _dense_after(layers: list[nn.Module], shape: Shape) -> nn.Sequential:
    convolutions = nn.Sequential(*layers, nn.Flatten())
    dense = (nn.Linear(_width(convolutions, shape), 128), nn.BatchNorm1d(128), nn.ReLU())
    return nn.Sequential(*convolutions, *dense)


def _mlp(shape: Shape) -> nn.Sequential:
    """Two hidden layers, for feature vectors."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((shape[0], 256, 128)):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def _wide(shape: Shape) -> nn.Sequential:
    """One hidden layer, of which every step of training drops half, for soft labels of vectors."""
    return nn.Sequential(nn.Linear(shape[0], 1024), nn.ReLU(), nn.Dropout(0.5))


_BODIES: dict[str, Callable[[Shape], nn.Sequential]] = {
    "small": _small,
    "deep": _deep,
    "mlp": _mlp,
    "wide": _wide,
}
_OF_VECTORS = ("mlp", "wide")

NETWORKS = tuple(_BODIES)
"""Names that :func:`build` knows."""
