"""Networks of the students: sequences of layers, which can also be written as ONNX.

A network's *body* maps examples to features; its *head* is a linear layer from features to logits.
The `shape` of an example is (channels, height, width) for images and (d,) for vectors.

"small" and "deep" need a tenth of the operations of the networks in the paper of Private-kNN
(ZYCW20), so that two CPU cores can train them.

"kernel" takes vectors: kernel components of the public examples, and a linear head. It has the
inputs of a private model of many features (:mod:`vicinal.linear.kernel_map`) and learns that
model's probabilities of all public examples, for instance 5,000 noise-free rows for 400 weights per
class. So it predicts as the model does without access to its weights. All layers but the head are
computed from the public examples; the head's loss is convex.
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
from vicinal.neighbours.kernels import FLOAT32, quantise_directions

Shape = tuple[int, ...]
"""Shape of one example: (channels, height, width) of an image, (d,) of a vector."""


class Network(nn.Module):
    """A body that maps examples (n, *shape) to features (n, f), and a linear head for classes."""

    def __init__(self, body: nn.Sequential, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, examples: Tensor) -> Tensor:
        """Return the class logits (n, c) of normalised examples (n, *shape)."""
        logits: Tensor = self.head(self.body(examples))
        return logits


class UnitLength(nn.Module):
    """Scale every example to length 1; zeros stay zeros."""

    def forward(self, examples: Tensor) -> Tensor:
        """Return examples (n, d) scaled to length 1."""
        scaled: Tensor = functional.normalize(examples, dim=1)
        return scaled


class KernelValues(nn.Module):
    """Convert cosines to kernel values, ((1 + cosine) / 2)^8."""

    def forward(self, cosines: Tensor) -> Tensor:
        """Return the kernel values of cosines (n, landmarks)."""
        kernel_values = (cosines * 0.5 + 0.5).clamp(0.0, 1.0)
        for _ in range(3):
            kernel_values = kernel_values * kernel_values
        return kernel_values


def build_network(name: str, shape: Shape, n_classes: int) -> Network:
    """Return a network with random initial weights, sampled from torch's global generator.

    `name`: one of :data:`NETWORKS`. `n_classes`: number of outputs. Raises InvalidInput if the
    network cannot take examples of this `shape`.
    """
    build_body = _BODIES[checks.check_choice("network", name, tuple(_BODIES))]
    takes_vectors = name in _VECTOR_NETWORKS
    if len(shape) != (1 if takes_vectors else 3):
        raise InvalidInput(
            f"The network {name!r} takes {'vectors' if takes_vectors else 'images'}. Got examples "
            f"of shape {shape}."
        )
    try:
        body = build_body(shape)
        n_features = _count_outputs(body, shape)
    except RuntimeError:
        raise InvalidInput(
            f"The images are too small for the network {name!r}: {shape[1]} by {shape[2]} pixels."
        ) from None
    return Network(body, n_features, n_classes).train()


def _count_outputs(layers: nn.Sequential, shape: Shape) -> int:
    """Return the number of outputs of `layers`, in evaluation mode, for an example of this `shape`.

    Raises RuntimeError if a layer has no output because the images are too small.
    """
    with torch.no_grad():
        return int(layers.eval()(torch.zeros(1, *shape)).shape[1])


def _build_small_body(shape: Shape) -> nn.Sequential:
    """Return the body of "small" for images of `shape`: early pooling saves time on two cores."""
    layers = _build_first_layers(nn.Conv2d(shape[0], 32, 5, padding=2))
    layers += [*_build_convolution(32, 64, 1), nn.MaxPool2d(2)]
    layers += [*_build_convolution(64, 128, 1), nn.MaxPool2d(2)]
    return _append_dense_layer(layers, shape)


def _build_deep_body(shape: Shape) -> nn.Sequential:
    """Return the body of "deep" for images of `shape`: one layer more than "small", equal cost."""
    layers = _build_first_layers(nn.Conv2d(shape[0], 32, 5))
    layers += [*_build_convolution(32, 64, 1), *_build_convolution(64, 64, 0), nn.MaxPool2d(2)]
    layers += _build_convolution(64, 128, 1)
    return _append_dense_layer(layers, shape)


def _build_first_layers(convolution: nn.Conv2d) -> list[nn.Module]:
    """Return `convolution`, of 32 output channels, then pooling, batch normalisation and ReLU."""
    return [convolution, nn.MaxPool2d(2), nn.BatchNorm2d(32), nn.ReLU()]


def _build_convolution(n_inputs: int, n_outputs: int, padding: int) -> list[nn.Module]:
    """Return a 3 by 3 convolution, batch normalisation and ReLU.

    `n_inputs`, `n_outputs`: numbers of channels. `padding`: pixels of zeros at each border.
    """
    convolution = nn.Conv2d(n_inputs, n_outputs, 3, padding=padding)
    return [convolution, nn.BatchNorm2d(n_outputs), nn.ReLU()]


def _append_dense_layer(layers: list[nn.Module], shape: Shape) -> nn.Sequential:
    """Return convolutional `layers`, followed by 128 dense outputs, batch normalisation and ReLU.

    `shape`: of an example, the input of the first of `layers`.
    """
    convolutions = nn.Sequential(*layers, nn.Flatten())
    dense = nn.Linear(_count_outputs(convolutions, shape), 128)
    return nn.Sequential(*convolutions, dense, nn.BatchNorm1d(128), nn.ReLU())


def _build_mlp_body(shape: Shape) -> nn.Sequential:
    """Return the body of "mlp" for vectors of `shape` (d,): layers of 256 and 128 outputs."""
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in itertools.pairwise((shape[0], 256, 128)):
        layers += [nn.Linear(n_inputs, n_outputs), nn.BatchNorm1d(n_outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def _build_wide_body(shape: Shape) -> nn.Sequential:
    """Return the body of "wide" for vectors of `shape` (d,): 1,024 outputs with dropout 1/2."""
    return nn.Sequential(nn.Linear(shape[0], 1024), nn.ReLU(), nn.Dropout(0.5))


_BODIES: dict[str, Callable[[Shape], nn.Sequential]] = {
    "small": _build_small_body,
    "deep": _build_deep_body,
    "mlp": _build_mlp_body,
    "wide": _build_wide_body,
}
_VECTOR_NETWORKS = ("mlp", "wide")

NETWORKS = tuple(_BODIES)
"""Names that :func:`build_network` accepts."""

KERNEL = "kernel"
"""Name of the network that :func:`build_kernel_network` builds."""


class HeadFit(NamedTuple):
    """Options of fitting a head: penalty on half its squared weights, maximum L-BFGS iterations."""

    penalty: float
    max_iterations: int


VECTOR_FIT = HeadFit(1e-6, 150)
"""For feature vectors; tuned on CIFAR-10. With 40,000 private images, 1e-4 is .0009 worse (standard
error .0007). With 3,000 it is .0028 better (.0006), and with 3,000 texts of AG News .0030
(.0005)."""

GRADIENT_FIT = HeadFit(1e-5, 100)
"""For histograms of gradients; tuned on Fashion-MNIST."""


def build_kernel_network(raw_pool: AnyArray, deviation: npt.ArrayLike, n_classes: int) -> Network:
    """Return the network "kernel" computed from public examples, with a head of zeros.

    `raw_pool` (m, d): public examples, not normalised. `deviation` (d,): standard deviations by
    which the network's inputs will be divided; the first layer multiplies by them again.
    `n_classes`: number of outputs.
    """
    if raw_pool.ndim != 2:
        raise InvalidInput(f"The network 'kernel' takes vectors. Got examples {raw_pool.shape}.")
    public_map = PublicMap().fit(raw_pool)
    kernel = KernelMap.from_public_rows(public_map.transform(raw_pool), power=0.25)
    arrays = kernel.to_arrays()
    assert public_map.components_ is not None  # noqa: S101 (narrows the type of a fitted map)
    assert public_map.scale_ is not None  # noqa: S101 (the same)
    mapped = public_map.components_ / public_map.scale_ * np.asarray(deviation)[:, None]
    projection = arrays["projection"] * 2.0 ** (arrays["shifts"] + BITS).astype(float)
    landmarks = arrays["landmarks"] / FLOAT32.compute_unit_norm(arrays["landmarks"].shape[1])
    unit_landmarks = quantise_directions(arrays["landmarks"].astype(np.float32))
    unit_landmarks = unit_landmarks / np.linalg.norm(unit_landmarks, axis=1)[:, None]
    kernel_values = ((1 + unit_landmarks @ unit_landmarks.T) / 2) ** 8
    state = {
        "body.0.weight": mapped.T,
        "body.2.weight": landmarks,
        "body.4.weight": projection.T,
        # Components are centered by their means over the landmarks.
        "body.4.bias": -(kernel_values.mean(axis=0) @ projection),
        "head.weight": np.zeros((n_classes, projection.shape[1])),
    }
    tensors = {name: torch.from_numpy(np.float32(value)) for name, value in state.items()}
    network = build_empty_kernel_network(tensors)
    network.load_state_dict(tensors, strict=False)
    return network


def build_empty_kernel_network(tensors: dict[str, Tensor]) -> Network:
    """Return a kernel network with all parameters 0, into which `tensors` can be loaded.

    `tensors`: its state dict, by parameter name such as "body.0.weight"; only shapes are used.
    """
    (n_mapped, n_features), (n_landmarks, _), (n_components, _), (n_classes, _) = (
        tensors[f"{name}.weight"].shape for name in ("body.0", "body.2", "body.4", "head")
    )
    body = nn.Sequential(
        nn.Linear(n_features, n_mapped),
        UnitLength(),
        nn.Linear(n_mapped, n_landmarks),
        KernelValues(),
        nn.Linear(n_landmarks, n_components),
        UnitLength(),
    )
    network = Network(body, n_components, n_classes)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    return network.eval()


def fit_head(network: Network, examples: Tensor, targets: Tensor, fit: HeadFit) -> Network:
    """Return `network` after fitting its head in place, by L-BFGS on the penalised cross-entropy.

    `examples` (m, *shape): normalised. `targets` (m, c): their class probabilities. The penalty of
    `fit` excludes the bias. The fit is computed in float64, and the head is float32 again after it.
    """
    with torch.no_grad():
        features = network.body(examples).double()
    head = network.head.double()
    parameters = list(head.parameters())
    optimizer = _UncompiledLBFGS(
        parameters, max_iter=fit.max_iterations, history_size=20, line_search_fn="strong_wolfe"
    )

    def compute_loss() -> float:
        """Return the penalised cross-entropy, and set the gradients of the head."""
        optimizer.zero_grad()
        total = functional.cross_entropy(head(features), targets.double())
        total = total + fit.penalty / 2 * head.weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return float(total.detach())

    optimizer.step(compute_loss)  # type: ignore[no-untyped-call]
    network.head = head.float()
    return network.eval()


class _UncompiledLBFGS(torch.optim.LBFGS):
    """L-BFGS without torch's compiler: the wrappers import it for seconds but do not use it."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
