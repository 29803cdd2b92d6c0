"""A network for vectors: components of a kernel of the public examples, and a linear head.

It sees what a private model of many features sees (:mod:`vicinal.linear._kernel_map`),
and learns that model's probabilities of all public examples: five thousand rows without noise for
four hundred weights a class. So it answers as the model does, without having seen its weights.
All layers but the head follow from the public examples; the head's loss is convex.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal._arrays import AnyArray
from vicinal.errors import InvalidInput
from vicinal.features import PublicMap
from vicinal.linear import BITS, KernelMap
from vicinal.neighbours import FLOAT32, unit_vectors
from vicinal.students._networks import Likeness, Network, UnitLength
from vicinal.students._optimizers import UncompiledLBFGS

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
    kernel = KernelMap.of(public_map.transform(pool))
    arrays = kernel.arrays()
    assert public_map.components_ is not None  # noqa: S101 (narrows the type: there are some)
    assert public_map.scale_ is not None  # noqa: S101 (the same)
    mapped = public_map.components_ / public_map.scale_ * np.asarray(deviation)[:, None]
    columns = arrays["projection"] * 2.0 ** (arrays["shifts"] + BITS).astype(float)
    landmarks = arrays["landmarks"] / FLOAT32.scale(arrays["landmarks"].shape[1])
    network = empty_kernel(*mapped.shape, *columns.shape, n_classes)
    state = {"body.0.weight": mapped.T, "body.2.weight": landmarks, "body.4.weight": columns.T}
    unit = unit_vectors(arrays["landmarks"].astype(np.float32))
    state["body.4.bias"] = _minus_the_mean(unit / np.linalg.norm(unit, axis=1)[:, None], columns)
    tensors = {name: torch.from_numpy(np.float32(value)) for name, value in state.items()}
    network.load_state_dict(tensors, strict=False)
    return network


def _minus_the_mean(units: AnyArray, columns: AnyArray) -> AnyArray:
    likeness = ((1 + units @ units.T) / 2) ** 8
    return np.asarray(-(likeness.mean(axis=0) @ columns))


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
    """Return an empty network of the sizes of these weights."""
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
    optimizer = UncompiledLBFGS(
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
