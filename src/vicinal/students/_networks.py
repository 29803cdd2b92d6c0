"""Networks of the students: plain stacks of layers, which can also be written as ONNX.

"small" and "deep" are made for two cores: a tenth of the arithmetic of the networks of ZYCW20.

"kernel" takes vectors: components of a kernel of the public examples, and a linear head. It sees
what a private model of many features sees (:mod:`vicinal.linear.kernel_map`), and learns that
model's probabilities of all public examples: five thousand rows without noise for four hundred
weights a class. So it answers as the model does, without having seen its weights. All layers but
the head follow from the public examples; the head's loss is convex.
"""

import itertools
from collections.abc import Callable
from inspect import unwrap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from vicinal import checks
from vicinal.arrays import AnyArray
from vicinal.errors import InvalidInput
from vicinal.features.public_map import PublicMap
from vicinal.linear.kernel_map import BITS, KernelMap
from vicinal.neighbours.kernels import FLOAT32, unit_vectors

Shape = tuple[int, ...]
"""Of one example: (channels, height, width) of an image, (d,) of a vector."""


class Network(nn.Module):
    """A body, examples (n, *shape) to features (n, f), and a linear head."""

    def __init__(self, body: nn.Sequential, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, examples: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(examples))
        return logits


class UnitLength(nn.Module):
    """Scales every example to length 1; zeros stay zeros."""

    def forward(self, examples: Tensor) -> Tensor:
        scaled: Tensor = functional.normalize(examples, dim=1)
        return scaled


class Likeness(nn.Module):
    """Turns cosines into likenesses, ((1 + cosine) / 2)^8."""

    def forward(self, cosines: Tensor) -> Tensor:
        likeness = (cosines * 0.5 + 0.5).clamp(0.0, 1.0)
        for _ in range(3):
            likeness = likeness * likeness
        return likeness


def build(name: str, shape: Shape, n_classes: int) -> Network:
    """Return a network with fresh weights, drawn from torch's global generator.

    It is one of :data:`NETWORKS`; examples of another shape than it takes are refused.
    """
    layers = _BODIES[checks.check_choice("network", name, tuple(_BODIES))]
    vectors = name in _OF_VECTORS
    if len(shape) != (1 if vectors else 3):
        raise InvalidInput(
            f"The network {name!r} takes {'vectors' if vectors else 'images'}. Got examples of "
            f"shape {shape}."
        )
    try:
        body = layers(shape)
        width = _compute_width(body, shape)
    except (RuntimeError, ZeroDivisionError):
        raise InvalidInput(
            f"The images are too small for the network {name!r}: {shape[1]} by {shape[2]} pixels."
        ) from None
    return Network(body, width, n_classes)


def _compute_width(layers: nn.Sequential, shape: Shape) -> int:
    with torch.no_grad():
        features: Tensor = layers.eval()(torch.zeros(1, *shape))
    layers.train()
    return features.shape[1]


def _build_small(shape: Shape) -> nn.Sequential:
    """Pools early, so that two cores take milliseconds for a step."""
    layers = [nn.Conv2d(shape[0], 32, 5, padding=2), *_first_pool(), *_build_convolution(32, 64, 1)]
    layers += [nn.MaxPool2d(2), *_build_convolution(64, 128, 1), nn.MaxPool2d(2)]
    return _dense_after(layers, shape)


def _build_deep(shape: Shape) -> nn.Sequential:
    """As costly as "small", with a layer more: borders are cut off before the second pooling."""
    layers = [
        nn.Conv2d(shape[0], 32, 5),
        *_first_pool(),
        *_build_convolution(32, 64, 1),
        *_build_convolution(64, 64, 0),
    ]
    layers += [nn.MaxPool2d(2), *_build_convolution(64, 128, 1)]
    return _dense_after(layers, shape)


def _first_pool() -> list[nn.Module]:
    return [nn.MaxPool2d(2), nn.BatchNorm2d(32), nn.ReLU()]


def _build_convolution(before: int, after: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=padding), nn.BatchNorm2d(after), nn.ReLU()]


def _dense_after(layers: list[nn.Module], shape: Shape) -> nn.Sequential:
    convolutions = nn.Sequential(*layers, nn.Flatten())
    dense = (nn.Linear(_compute_width(convolutions, shape), 128), nn.BatchNorm1d(128), nn.ReLU())
    return nn.Sequential(*convolutions, *dense)


def _build_mlp(shape: Shape) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((shape[0], 256, 128)):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def _build_wide(shape: Shape) -> nn.Sequential:
    """One hidden layer, of which every step of training drops half, for soft labels of vectors."""
    return nn.Sequential(nn.Linear(shape[0], 1024), nn.ReLU(), nn.Dropout(0.5))


_BODIES: dict[str, Callable[[Shape], nn.Sequential]] = {
    "small": _build_small,
    "deep": _build_deep,
    "mlp": _build_mlp,
    "wide": _build_wide,
}
_OF_VECTORS = ("mlp", "wide")

NETWORKS = tuple(_BODIES)
"""Names that :func:`build` knows."""


KERNEL = "kernel"
"""The network's name."""


class HeadFit(NamedTuple):
    """How a head is fitted: the penalty on its squared weights, and at most how many iterations."""

    penalty: float
    iterations: int


FIT_OF_VECTORS, FIT_OF_GRADIENTS = HeadFit(1e-6, 150), HeadFit(1e-5, 100)
"""Measured on CIFAR-10 and on Fashion-MNIST."""


def build_kernel(pool: AnyArray, deviation: npt.ArrayLike, n_classes: int) -> Network:
    """Return the network for public examples (m, d), with a head of zeros.

    `deviation`, (d,): what the examples' columns are divided by before the network sees them.
    """
    if pool.ndim != 2:
        raise InvalidInput(f"The network 'kernel' takes vectors. Got examples {pool.shape}.")
    public_map = PublicMap().fit(pool)
    kernel = KernelMap.of(public_map.transform(pool), power=0.25)
    arrays = kernel.arrays()
    assert public_map.components_ is not None  # noqa: S101 (narrows the type: there are some)
    assert public_map.scale_ is not None  # noqa: S101 (the same)
    mapped = public_map.components_ / public_map.scale_ * np.asarray(deviation)[:, None]
    columns = arrays["projection"] * 2.0 ** (arrays["shifts"] + BITS).astype(float)
    landmarks = arrays["landmarks"] / FLOAT32.scale(arrays["landmarks"].shape[1])
    network = empty_kernel(*mapped.shape, *columns.shape, n_classes)
    state = {"body.0.weight": mapped.T, "body.2.weight": landmarks, "body.4.weight": columns.T}
    unit = unit_vectors(arrays["landmarks"].astype(np.float32))
    unit = unit / np.linalg.norm(unit, axis=1)[:, None]
    likeness = ((1 + unit @ unit.T) / 2) ** 8
    state["body.4.bias"] = -(likeness.mean(axis=0) @ columns)  # minus the mean
    tensors = {name: torch.from_numpy(np.float32(value)) for name, value in state.items()}
    network.load_state_dict(tensors, strict=False)
    return network


def empty_kernel(*sizes: int) -> Network:
    """Return a network whose weights are zeros.

    `sizes`: numbers of features, of mapped features, of landmarks, of components, and of classes.
    """
    n_features, n_mapped, n_landmarks, n_components, n_classes = sizes
    body = nn.Sequential(
        nn.Linear(n_features, n_mapped),
        UnitLength(),
        nn.Linear(n_mapped, n_landmarks),
        Likeness(),
        nn.Linear(n_landmarks, n_components),
        UnitLength(),
    )
    network = Network(body, n_components, n_classes)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    return network.eval()


def kernel_of(tensors: dict[str, Tensor]) -> Network:
    first, second, third, head = (
        tensors[f"{name}.weight"].shape for name in ("body.0", "body.2", "body.4", "head")
    )
    return empty_kernel(first[1], first[0], second[0], third[0], head[0])


def fit_head(network: Network, examples: Tensor, targets: Tensor, fit: HeadFit) -> Network:
    """Fit the head to targets (m, c), distributions over the classes, and return the network."""
    with torch.no_grad():
        features = network.body(examples).double()
    head = network.head.double()
    parameters = list(head.parameters())
    optimizer = _UncompiledLBFGS(
        parameters, max_iter=fit.iterations, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> float:
        optimizer.zero_grad()
        total = functional.cross_entropy(head(features), targets.double())
        total = total + fit.penalty / 2 * head.weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return float(total.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    network.head = head.float()
    return network.eval()


class _UncompiledLBFGS(torch.optim.LBFGS):
    """L-BFGS without torch's compiler, which its wrappers load for seconds and never use."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
