"""Training of networks on released answers and on unlabelled public examples.

The schedule is fixed in advance: neither private nor test labels decide when training stops or
which network is kept. The result is a moving average of the weights.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import unwrap
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.progress import Step
from vicinal.students._networks import KERNEL, NETWORKS, Network


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Largest random changes of images; each amount is sampled uniformly for each image.

    - `degrees`: rotation in either direction.
    - `shift`: shift along each axis, as a share of the side.
    - `zoom`: change of size along each axis, as a share.
    - `shear`: tangent of the shearing angle.
    - `contrast_brightness`: change of contrast, as a share, and of brightness, in standard
      deviations of the pixels.
    - `cut`: side of the square that is erased, as a share of the image's side; 0 for none.
    - `mirror`: whether to mirror images left to right with probability 1/2.
    """

    degrees: float = 0.0
    shift: float = 0.0
    zoom: float = 0.0
    shear: float = 0.0
    contrast_brightness: float = 0.0
    cut: float = 0.0
    mirror: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return randomly changed copies of normalised images (n, c, h, w).

        `generator`: source of the random changes.
        """
        maps = self._sample_affine_maps(len(images), generator)
        grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
        # Pixels from outside repeat the border, which is background in most images.
        changed = functional.grid_sample(
            images, grid.to(images.dtype), padding_mode="border", align_corners=False
        )
        if self.contrast_brightness:
            uniform = torch.rand(2, len(images), 1, 1, 1, generator=generator) * 2 - 1
            contrast, brightness = uniform * self.contrast_brightness
            changed = changed * (1 + contrast) + brightness
        return self._erase_square(changed, generator) if self.cut else changed

    def _sample_affine_maps(self, n_images: int, generator: torch.Generator) -> Tensor:
        """Return a random affine map of grid coordinates per image, float32 (n_images, 2, 3)."""
        uniform = torch.rand(6, n_images, generator=generator) * 2 - 1
        angle = uniform[0] * math.radians(self.degrees)
        x_scale = 1 + uniform[1] * self.zoom
        y_scale = 1 + uniform[2] * self.zoom
        if self.mirror:
            is_mirrored = torch.rand(n_images, generator=generator) < 0.5
            x_scale = x_scale * torch.where(is_mirrored, -1.0, 1.0)
        cos, sin = angle.cos(), angle.sin()
        shear = uniform[3] * self.shear
        # Grid coordinates run from -1 to 1, so a shift by a share of the side is twice the share.
        x_shift = 2 * uniform[4] * self.shift
        y_shift = 2 * uniform[5] * self.shift
        rows = [
            torch.stack([x_scale * (cos - shear * sin), shear * cos - sin, x_shift]),
            torch.stack([x_scale * sin, y_scale * cos, y_shift]),
        ]
        return torch.stack(rows).permute(2, 0, 1)

    def _erase_square(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return images (n, c, h, w) with a random square set to 0, the mean of the pixels."""
        height, width = images.shape[2:]
        y_centre, x_centre = torch.rand(2, len(images), 1, 1, 1, generator=generator)
        y = (torch.arange(height).view(1, 1, -1, 1) + 0.5) / height
        x = (torch.arange(width).view(1, 1, 1, -1) + 0.5) / width
        half_side = self.cut / 2
        inside = ((y - y_centre).abs() < half_side) & ((x - x_centre).abs() < half_side)
        return images.masked_fill(inside, 0.0)


DIGITS = Augmentation(degrees=15, shift=0.1, zoom=0.15, shear=0.2, cut=0.3)
"""For handwriting; no change turns a digit into another."""

CLOTHES = Augmentation(degrees=3, shift=0.04, zoom=0.05, contrast_brightness=0.1, mirror=True)
"""For Fashion-MNIST, and for photographs as small as CIFAR-10's.

Changes are small, because stronger ones and erased squares hide the difference of coats and shirts.
"""

AUGMENTATIONS = {"digits": DIGITS, "clothes": CLOTHES}

Model = Callable[[Tensor], Tensor]
"""A map of normalised examples (n, *shape) to class logits (n, c)."""

_PROBE_LENGTH = 1e-1
"""Length of the probing perturbation (xi), in standard deviations of the pixels. The gradient would
not be linear in a longer one."""

_MIN_LENGTH = 1e-12
"""Floor of a perturbation's length; prevents a division by zero where the gradient vanishes."""


def compute_adversarial_loss(
    model: Model, examples: Tensor, perturbation_length: float, generator: torch.Generator
) -> Tensor:
    """Return the mean divergence of a model's predictions from those for perturbed examples (VAT).

    `model`: maps examples to logits (n, c). `examples`: normalised, (n, *shape).
    `perturbation_length`: of each example's perturbation in units of normalised values (the
    paper's epsilon, which is not a privacy loss). `generator`: samples the initial direction of the
    search for the steepest divergence.
    """
    # Predictions of one batch, because batch normalisation depends on the whole batch.
    with torch.no_grad():
        probabilities = functional.softmax(model(examples), dim=1)
    noise = torch.randn(examples.shape, generator=generator, dtype=examples.dtype)
    # Each example's direction of steepest divergence, by one step of the power method.
    perturbation = (_PROBE_LENGTH * _scale_to_unit_length(noise)).requires_grad_()
    loss = compute_divergence(probabilities, model(examples + perturbation))
    (gradient,) = torch.autograd.grad(loss, [perturbation])
    direction = _scale_to_unit_length(gradient)
    return compute_divergence(probabilities, model(examples + perturbation_length * direction))


def compute_divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence KL(`target` || softmax(`logits`)), both (n, c).

    Rows of `target` are class probabilities.
    """
    return functional.kl_div(functional.log_softmax(logits, dim=1), target, reduction="batchmean")


def _scale_to_unit_length(perturbations: Tensor) -> Tensor:
    """Return `perturbations` (n, ...), each row of which is scaled to length 1."""
    lengths = perturbations.flatten(1).norm(dim=1).clamp_min(_MIN_LENGTH)
    scaled: Tensor = perturbations / lengths.view(-1, *[1] * (perturbations.ndim - 1))
    return scaled


METHODS = ("plain", "vat", "uda")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Options of a student's training. All are public, and none is fitted to labels.

    Attributes
    ----------
    method : {"plain", "vat", "uda"}
        The use of examples without answers: none; consistent predictions under adversarial
        perturbation (Miyato et al. 2018); or under augmentation (Xie et al. 2020).
    network : str
        "kernel", or one of :data:`vicinal.students._networks.NETWORKS`.
    augmentation : {"none", "digits", "clothes"}
        Random changes that preserve the class of an image.
    steps : int
        Number of optimiser steps.
    labelled, unlabelled : int
        Batch sizes of examples with and without answers.
    rate : float
        Largest learning rate of Adam; it decreases to zero along half a cosine.
    decay : float
        Weight decay, decoupled.
    average : float
        Weight of the previous moving average at each step.
    trust : float
        Final weight of released answers in the targets, reached linearly from 1; the rest is the
        averaged student's prediction, which corrects noisy answers (Reed et al. 2015).
    reach : float
        Length of the adversarial perturbation, in standard deviations of the pixels.
    sure : float
        UDA uses examples whose highest averaged probability is at least this value.
    sharpness : float
        Temperature that sharpens UDA's targets; 1 keeps them.
    soft_share : float or None
        Weight of soft labels (class probabilities of every public example) in the targets; the
        rest is the averaged student's prediction (UDA) or the answer ("plain"). None means
        the best measured value: 1 for "kernel" and 0 for other networks.
    ensemble : bool
        Whether a second student is trained on the soft labels and averaged with the network; for
        images it is the network "kernel" on histograms of gradients.
    seed : int
        Makes a training repeatable on the same machine with the same number of threads. It does
        not affect privacy, because all inputs are released already.

    Examples
    --------
    >>> from vicinal.students import Recipe
    >>> Recipe("uda", augmentation="digits", steps=500).network
    'small'
    """

    method: str = "vat"
    network: str = "small"
    augmentation: str = "none"
    steps: int = 1500
    labelled: int = 64
    unlabelled: int = 128
    rate: float = 2e-3
    decay: float = 1e-3
    average: float = 0.99
    trust: float = 0.5
    reach: float = 2.0
    sure: float = 0.8
    sharpness: float = 0.5
    soft_share: float | None = None
    ensemble: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidInput for options that are out of range or exclude each other."""
        checks.check_choice("method", self.method, METHODS)
        checks.check_choice("network", self.network, (*NETWORKS, KERNEL))
        checks.check_choice("augmentation", self.augmentation, ("none", *AUGMENTATIONS))
        checks.check_integer("steps", self.steps, minimum=1)
        checks.check_integer("labelled", self.labelled, minimum=2)
        checks.check_integer("unlabelled", self.unlabelled, minimum=2)
        checks.check_integer("seed", self.seed, minimum=0, maximum=2**63 - 1)
        checks.check_real("rate", self.rate, above=0)
        checks.check_real("decay", self.decay, minimum=0)
        checks.check_real("reach", self.reach, above=0)
        checks.check_real("sharpness", self.sharpness, above=0, maximum=1)
        if self.soft_share is not None:
            checks.check_real("soft_share", self.soft_share, minimum=0, maximum=1)
        for name in ("average", "trust", "sure"):
            checks.check_real(name, getattr(self, name), minimum=0, maximum=1)
        if self.method == "uda" and self.augmentation == "none":
            raise InvalidInput(
                "The 'augmentation' parameter must not be 'none' for the method 'uda', which "
                "learns from augmented examples."
            )
        if self.network == KERNEL and self.method != "plain":
            raise InvalidInput("The network 'kernel' is for the method 'plain'.")
        if self.soft_weight and self.method == "vat":
            raise InvalidInput("The 'soft_share' parameter is for the methods 'plain' and 'uda'.")

    @property
    def soft_weight(self) -> float:
        """Weight of soft labels in the targets: `soft_share`, or its default if that is None."""
        if self.soft_share is not None:
            return self.soft_share
        return 1.0 if self.network == KERNEL else 0.0


def adapt_to_overlapping_classes(recipe: Recipe) -> Recipe:
    """Return a copy of `recipe` changed for overlapping classes: targets are mostly soft labels."""
    return replace(recipe, soft_share=0.8, sure=0.0, sharpness=1.0)


def adapt_to_digits(recipe: Recipe) -> Recipe:
    """Return a copy of `recipe` changed for handwriting, tuned on MNIST (decision 0028)."""
    return replace(recipe, network="deep", steps=1600)


def train_network(
    network: Network,
    examples: Tensor,
    targets: Tensor,
    unlabelled: Tensor,
    recipe: Recipe,
    progress: Step | None = None,
    soft_labels: Tensor | None = None,
) -> Network:
    """Train a network in place from random weights; return its moving average.

    `examples` (m, *shape): normalised examples with `targets` (m, c), distributions over classes.
    `unlabelled` (u, *shape): all public examples, which may include those with answers.
    `soft_labels` (u, c): class probabilities of `unlabelled`; only the method "uda" uses them.
    `progress`: called with 1 after each step.
    """
    trainer = _Trainer(network, recipe)
    batches = zip(
        _sample_batches(len(examples), recipe.labelled, trainer.generator),
        _sample_batches(len(unlabelled), recipe.unlabelled, trainer.generator),
        strict=False,
    )
    for step, (rows, unlabelled_rows) in zip(range(recipe.steps), batches, strict=False):
        batch_soft_labels = None if soft_labels is None else soft_labels[unlabelled_rows]
        batch = _Batch(
            examples[rows], targets[rows], unlabelled[unlabelled_rows], batch_soft_labels
        )
        trainer.take_step(step, batch)
        if progress is not None:
            progress(1)
    return _convert_layout(trainer.averaged, torch.contiguous_format)


_N_WARM_UP_STEPS = 50
"""Steps over which the learning rate rises, until Adam's estimates of moments are reliable."""


class _Batch(NamedTuple):
    """A batch of examples with `targets` (a, c), and of unlabelled ones with soft labels (u, c)."""

    examples: Tensor
    targets: Tensor
    unlabelled: Tensor
    soft_labels: Tensor | None


class _Trainer:
    """A network in training, the moving average of its weights, and the optimiser.

    The *averaged student* is the network with the exponential moving averages (EMA) of the weights.
    Examples are normalised.
    """

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self.recipe = recipe
        # Channels-last memory and bfloat16 (if the CPU supports it) cut the time to a third.
        self.network = _convert_layout(network, torch.channels_last).train()
        self.averaged: Network = copy.deepcopy(self.network).eval()
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self._optimizer = _UncompiledAdamW(
            network.parameters(), lr=recipe.rate, weight_decay=recipe.decay
        )
        # VAT's probing perturbation is below the resolution of bfloat16.
        self._uses_bfloat16 = recipe.method != "vat" and bool(
            torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )
        self._augment = AUGMENTATIONS.get(recipe.augmentation)

    def take_step(self, index: int, batch: _Batch) -> None:
        """Take the optimiser step `index`, from 0, on a batch, and update the moving average."""
        elapsed_share = index / self.recipe.steps
        warm_up = min(1.0, (index + 1) / _N_WARM_UP_STEPS)
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate * warm_up * 0.5 * (1 + math.cos(math.pi * elapsed_share))
        self._optimizer.zero_grad(set_to_none=True)
        answer_weight = 1 - (1 - self.recipe.trust) * elapsed_share
        with torch.autocast("cpu", torch.bfloat16, enabled=self._uses_bfloat16):
            loss = self._compute_loss(batch, answer_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        previous_weight = min(self.recipe.average, (index + 1) / (index + 10))
        with torch.no_grad():
            network_state = self.network.state_dict()
            # Also the statistics of batch normalisation are averaged.
            for name, value in self.averaged.state_dict().items():
                if value.is_floating_point():
                    value.lerp_(network_state[name], 1 - previous_weight)
                else:
                    value.copy_(network_state[name])

    def _compute_loss(self, batch: _Batch, answer_weight: float) -> Tensor:
        """Return the loss of a batch: cross-entropy, and the loss of unlabelled examples, if used.

        `answer_weight`, 0 to 1: weight of the batch's targets against the averaged student's
        predictions.
        """
        recipe = self.recipe
        inputs = [self._augment_examples(batch.examples)]
        if recipe.method == "uda":
            inputs.append(self._augment_examples(batch.unlabelled))
        # One pass, because batch normalisation depends on the whole batch.
        joined_inputs = _convert_to_channels_last(torch.cat(inputs))
        logits = self.network(joined_inputs).float().split([len(block) for block in inputs])
        targets = self._mix_targets(batch.examples, batch.targets, answer_weight)
        loss = functional.cross_entropy(logits[0], targets)
        if recipe.method == "uda":
            loss = loss + self._compute_consistency_loss(
                batch.unlabelled, logits[1], batch.soft_labels
            )
        if recipe.method == "vat":
            with _freeze_statistics(self.network):
                loss = loss + compute_adversarial_loss(
                    self.network, batch.unlabelled, recipe.reach, self.generator
                )
        return loss

    def _augment_examples(self, examples: Tensor) -> Tensor:
        """Return examples (n, *shape) with the recipe's random changes, if it has any."""
        return examples if self._augment is None else self._augment(examples, self.generator)

    def _mix_targets(self, examples: Tensor, targets: Tensor, answer_weight: float) -> Tensor:
        """Return the weighted mean of `targets` (n, c) and the averaged student's predictions.

        `examples` (n, *shape): those to predict. `answer_weight`, 0 to 1: weight of `targets`.
        """
        if answer_weight == 1.0:
            return targets
        with torch.no_grad():
            predicted = functional.softmax(self.averaged(examples).float(), dim=1)
        return answer_weight * targets + (1 - answer_weight) * predicted

    def _compute_consistency_loss(
        self, unlabelled: Tensor, augmented_logits: Tensor, soft_labels: Tensor | None
    ) -> Tensor:
        """Return UDA's loss: the divergence of predictions for augmented from original examples.

        `unlabelled` (u, *shape): original examples. `augmented_logits` (u, c): the network's logits
        for augmented examples. `soft_labels` (u, c): class probabilities that are averaged with the
        averaged student's predictions, by the recipe's `soft_weight`, to give the targets; None:
        predictions alone. Examples with a confidence below the recipe's `sure` do not count.
        """
        with torch.no_grad():
            logits = self.averaged(_convert_to_channels_last(unlabelled)).float()
            if soft_labels is not None:
                predicted = functional.softmax(logits, dim=1)
                logits = predicted.lerp(soft_labels, self.recipe.soft_weight).log()
            target = functional.softmax(logits / self.recipe.sharpness, dim=1)
            confidence = functional.softmax(logits, dim=1).amax(dim=1)
            is_confident = confidence >= self.recipe.sure
        if not bool(is_confident.any()):
            return augmented_logits.sum() * 0.0
        share = is_confident.float().mean()
        return share * compute_divergence(target[is_confident], augmented_logits[is_confident])


@contextmanager
def _freeze_statistics(network: Network) -> Iterator[None]:
    """Keep the running statistics of batch normalisation constant within the context.

    Perturbed examples do not occur in predictions.
    """
    layers = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    yield
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def _convert_layout(network: Network, memory_format: torch.memory_format) -> Network:
    """Return `network` after changing its tensors to `memory_format` in place."""
    network.to(memory_format=memory_format)  # type: ignore[call-overload]
    return network


def _convert_to_channels_last(examples: Tensor) -> Tensor:
    """Return images (n, c, h, w) in channels-last memory format, and vectors as they are."""
    if examples.ndim != 4:
        return examples
    return examples.contiguous(memory_format=torch.channels_last)


def _sample_batches(
    n_examples: int, batch_size: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Yield the row indices (batch_size,) of one batch after another, without end.

    They come from shuffled passes over all `n_examples`. `generator`: source of the shuffling.
    """
    rows = torch.empty(0, dtype=torch.int64)
    while True:
        while len(rows) < batch_size:
            rows = torch.cat([rows, torch.randperm(n_examples, generator=generator)])
        yield rows[:batch_size]
        rows = rows[batch_size:]


class _UncompiledAdamW(torch.optim.AdamW):
    """AdamW without torch's compiler: the wrappers import it for seconds but do not use it."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
