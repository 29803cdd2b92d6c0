"""Random changes of images that leave their meaning alone, in torch.

Affine maps, cut-outs and changes of light, drawn for every image of a batch anew. Source of the
idea: Xie et al. 2020 (UDA), DeVries & Taylor 2017 (Cutout). Mirrored digits are other digits:
mirroring is off unless asked for.

Virtual adversarial training asks that answers do not change under the worst small push. Source:
Miyato, Maeda, Koyama & Ishii 2018, *Virtual Adversarial Training: A Regularization Method for
Supervised and Semi-Supervised Learning*, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How far images are changed at most; every amount is drawn uniformly, image by image.

    - `degrees`: rotation to either side.
    - `shift`: shift along each axis, as a share of the side.
    - `zoom`: change of size along each axis, as a share.
    - `shear`: tangent of the shearing angle.
    - `light`: change of contrast, as a share, and of brightness, in standard deviations of the
      pixels.
    - `cut`: side of the square that is cut out, as a share of the image's; 0 for none.
    - `mirror`: whether to mirror every other image left to right.
    """

    degrees: float = 0.0
    shift: float = 0.0
    zoom: float = 0.0
    shear: float = 0.0
    light: float = 0.0
    cut: float = 0.0
    mirror: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        grid = functional.affine_grid(
            self._maps(len(images), generator), list(images.shape), align_corners=False
        )
        # What lies outside is taken from the edge, which is background in most images.
        changed = functional.grid_sample(
            images, grid.to(images.dtype), padding_mode="border", align_corners=False
        )
        if self.light:
            changed = self._lit(changed, generator)
        return self._cut(changed, generator) if self.cut else changed

    def _maps(self, size: int, generator: torch.Generator) -> Tensor:
        """Return one affine map (2, 3) for each image."""
        draws = torch.rand(6, size, generator=generator) * 2 - 1
        angle = draws[0] * math.radians(self.degrees)
        across, down = 1 + draws[1] * self.zoom, 1 + draws[2] * self.zoom
        if self.mirror:
            across = across * torch.where(torch.rand(size, generator=generator) < 0.5, -1.0, 1.0)
        cos, sin, lean = angle.cos(), angle.sin(), draws[3] * self.shear
        # The grid runs from -1 to 1, so a shift by a share of the side is twice that.
        rows = [
            torch.stack([across * (cos - lean * sin), lean * cos - sin, 2 * draws[4] * self.shift]),
            torch.stack([across * sin, down * cos, 2 * draws[5] * self.shift]),
        ]
        return torch.stack(rows).permute(2, 0, 1)

    def _lit(self, images: Tensor, generator: torch.Generator) -> Tensor:
        draws = (torch.rand(2, len(images), 1, 1, 1, generator=generator) * 2 - 1) * self.light
        return images * (1 + draws[0]) + draws[1]

    def _cut(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Set a square to the mean of all pixels, which is 0 in normalised images."""
        height, width = images.shape[2:]
        centres = torch.rand(2, len(images), 1, 1, 1, generator=generator)
        down = (torch.arange(height).view(1, 1, -1, 1) + 0.5) / height
        along = (torch.arange(width).view(1, 1, 1, -1) + 0.5) / width
        inside = ((down - centres[0]).abs() < self.cut / 2) & (
            (along - centres[1]).abs() < self.cut / 2
        )
        return images.masked_fill(inside, 0.0)


DIGITS = Augmentation(degrees=15, shift=0.1, zoom=0.15, shear=0.2, cut=0.3)
"""For handwriting: nothing that would make one digit another."""

CLOTHES = Augmentation(degrees=3, shift=0.04, zoom=0.05, light=0.1, mirror=True)
"""For Fashion-MNIST: little, as stronger changes and cut-outs hide what tells coats from shirts."""

OBJECTS = Augmentation(degrees=3, shift=0.04, zoom=0.05, light=0.1, mirror=True)
"""For photographs as small as CIFAR-10's: little, as for clothes."""

AUGMENTATIONS = {"digits": DIGITS, "clothes": CLOTHES, "objects": OBJECTS}


Model = Callable[[Tensor], Tensor]

_PROBE = 1e-1
"""Length of the probing push (xi); a longer one would leave the region where it is linear."""


def virtual_adversarial_loss(
    model: Model, examples: Tensor, reach: float, generator: torch.Generator
) -> Tensor:
    """Return the mean divergence between answers to examples and to their worst neighbours.

    `reach` is the length of the push per example (the paper's epsilon, which is not a privacy
    loss). The generator draws where the search for the worst direction starts.
    """
    # Asked together with the pushed examples: batch normalisation looks at all of a batch.
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
