"""Virtual adversarial training: answers should not change under the smallest telling push.

Source: Miyato, Maeda, Koyama & Ishii 2018, *Virtual Adversarial Training: A Regularization Method
for Supervised and Semi-Supervised Learning*, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Model = Callable[[Tensor], Tensor]

_PROBE = 1e-1
"""Length of the probing push (xi); a longer one would leave the region where it is linear."""


def virtual_adversarial_loss(
    model: Model, examples: Tensor, reach: float, generator: torch.Generator
) -> Tensor:
    """Return the mean divergence between answers to examples and to their worst neighbours.

    Parameters
    ----------
    model : callable
        Examples to logits.
    examples : Tensor (n, *shape)
        Labelled or not; their labels are not looked at.
    reach : float
        Length of the push, per example (the paper's epsilon, which is not a privacy loss).
    generator : torch.Generator
        Draws where the search for the worst direction starts.
    """
    # Asked in the same company as the pushed examples: batch normalisation looks at all of a batch.
    with torch.no_grad():
        target = functional.softmax(model(examples), dim=1)
    direction = torch.randn(examples.shape, generator=generator, dtype=examples.dtype)
    push = _worst(model, examples, target, _unit(direction))
    return divergence(target, model(examples + reach * push))


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of softmax(logits) from `target`, both (n, c)."""
    return functional.kl_div(functional.log_softmax(logits, dim=1), target, reduction="batchmean")


def _worst(model: Model, examples: Tensor, target: Tensor, direction: Tensor) -> Tensor:
    """Return the unit push of steepest divergence: one step of the power method."""
    push = (_PROBE * direction).requires_grad_()
    loss = divergence(target, model(examples + push))
    (gradient,) = torch.autograd.grad(loss, [push])
    return _unit(gradient)


def _unit(pushes: Tensor) -> Tensor:
    lengths = pushes.flatten(1).norm(dim=1).clamp_min(1e-12)
    scaled: Tensor = pushes / lengths.view(-1, *[1] * (pushes.ndim - 1))
    return scaled
