"""How a student learns: from released answers, and from public examples without any.

The schedule is fixed beforehand: nothing is stopped, or chosen, by what private
labels or test labels would say. What is kept is a moving average of the weights.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import unwrap

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.progress import Step
from vicinal.students._networks import KERNEL, NETWORKS, Network

# ---------------------------------------------------------------- changes of images, and pushes


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
"""For Fashion-MNIST, and for photographs as small as CIFAR-10's.

Little is changed: stronger changes and cut-outs hide what tells coats from shirts.
"""

AUGMENTATIONS = {"digits": DIGITS, "clothes": CLOTHES}


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
    push = _find_worst_direction(model, examples, target, _normalize_pushes(direction))
    return divergence(target, model(examples + reach * push))


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of softmax(logits) from `target`, both (n, c)."""
    return functional.kl_div(functional.log_softmax(logits, dim=1), target, reduction="batchmean")


def _find_worst_direction(
    model: Model, examples: Tensor, target: Tensor, direction: Tensor
) -> Tensor:
    """Return the unit push of steepest divergence: one step of the power method."""
    push = (_PROBE * direction).requires_grad_()
    loss = divergence(target, model(examples + push))
    (gradient,) = torch.autograd.grad(loss, [push])
    return _normalize_pushes(gradient)


def _normalize_pushes(pushes: Tensor) -> Tensor:
    lengths = pushes.flatten(1).norm(dim=1).clamp_min(1e-12)
    scaled: Tensor = pushes / lengths.view(-1, *[1] * (pushes.ndim - 1))
    return scaled


METHODS = ("plain", "vat", "uda")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a student is trained; all of it public, none of it fitted to labels.

    Attributes
    ----------
    method : {"plain", "vat", "uda"}
        What examples without answers teach: nothing; that predictions are stable under adversarial
        perturbation (Miyato et al. 2018), or under augmentation (Xie et al. 2020).
    network : str
        One of :data:`vicinal.students._networks.NETWORKS`.
    augmentation : {"none", "digits", "clothes"}
        Which changes leave the meaning of an image as it is.
    steps : int
        Steps of the optimiser.
    labelled, unlabelled : int
        Examples with, and without answers in a step.
    rate : float
        Largest learning rate of Adam; it falls to zero along half a cosine.
    decay : float
        Weight decay, decoupled.
    average : float
        Share of the moving average that is kept at each step.
    trust : float
        Share of the target that is the released answer; the rest is what the averaged student
        predicts. Answers are noisy, and a student that agrees with most of them is right more often
        (Reed et al. 2015). Sinks from 1 to this value along the schedule.
    reach : float
        Length of the adversarial perturbation, in standard deviations of the pixels.
    sure : float
        UDA uses examples of which the averaged student is at least this sure.
    sharpness : float
        UDA's targets are sharpened by this temperature; 1 leaves them as they are.
    soft_share : float or None
        Share of the targets that comes from soft labels, how likely every class is for each public
        example, asked about or not; the rest comes from the averaged student (UDA), or from the
        labels (network "kernel"). None takes what is measured best: all for "kernel", and none for
        other networks.
    ensemble : bool
        Whether a second student, of images' histograms of gradients (network "kernel"), learns the
        soft labels, and is joined with the network.
    seed : int
        Repeats a training exactly, on the same machine with as many threads. No privacy hangs on
        it: what goes in is released already.

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
        checks.check_choice("method", self.method, METHODS)
        checks.check_choice("network", self.network, (*NETWORKS, KERNEL))
        checks.check_choice("augmentation", self.augmentation, ("none", *AUGMENTATIONS))
        checks.check_integer("steps", self.steps, least=1)
        checks.check_integer("labelled", self.labelled, least=2)
        checks.check_integer("unlabelled", self.unlabelled, least=2)
        checks.check_integer("seed", self.seed, least=0, most=2**63 - 1)
        checks.check_real("rate", self.rate, above=0)
        checks.check_real("decay", self.decay, least=0)
        checks.check_real("reach", self.reach, above=0)
        checks.check_real("sharpness", self.sharpness, above=0, most=1)
        if self.soft_share is not None:
            checks.check_real("soft_share", self.soft_share, least=0, most=1)
        for name in ("average", "trust", "sure"):
            checks.check_real(name, getattr(self, name), least=0, most=1)
        if self.method == "uda" and self.augmentation == "none":
            raise InvalidInput(
                "The 'augmentation' parameter must not be 'none' for the method 'uda', which "
                "learns from augmented examples."
            )
        if self.network == KERNEL and self.method != "plain":
            raise InvalidInput("The network 'kernel' is for the method 'plain'.")
        if self.soft and self.method == "vat":
            raise InvalidInput("The 'soft_share' parameter is for the methods 'plain' and 'uda'.")

    @property
    def soft(self) -> float:
        """The share of the targets that comes from soft labels."""
        if self.soft_share is not None:
            return self.soft_share
        return 1.0 if self.network == KERNEL else 0.0


def for_overlapping(recipe: Recipe) -> Recipe:
    """Return a recipe for classes that overlap: targets are soft, mostly what soft labels say."""
    return replace(recipe, soft_share=0.8, sure=0.0, sharpness=1.0)


def for_digits(recipe: Recipe) -> Recipe:
    """Return a recipe for handwriting beside a private model: the network "deep", in 1,600 steps.

    Measured in docs/decisions/0028-students.md.
    """
    return replace(recipe, network="deep", steps=1600)


def train(
    network: Network,
    examples: Tensor,
    targets: Tensor,
    unlabelled: Tensor,
    recipe: Recipe,
    progress: Step | None = None,
    soft_labels: Tensor | None = None,
) -> Network:
    """Return the averaged student; the network, with fresh weights, is trained in place.

    Examples (m, *shape) are normalised, their targets (m, c) distributions over the classes.
    `unlabelled` (u, *shape) are all public examples; those with answers may be among them.
    `soft_labels` (u, c), how likely every class is for each of these, are for a recipe that learns
    from them. `progress` is called with the number of steps just done.
    """
    course = _Course(network, recipe)
    batches = zip(
        _iterate_batches(len(examples), recipe.labelled, course.generator),
        _iterate_batches(len(unlabelled), recipe.unlabelled, course.generator),
        strict=False,
    )
    for step, (rows, others) in zip(range(recipe.steps), batches, strict=False):
        soft = None if soft_labels is None else soft_labels[others]
        course.step(step, examples[rows], targets[rows], unlabelled[others], soft)
        if progress is not None:
            progress(1)
    return in_format(course.averaged, torch.contiguous_format)


class _Course:
    """One training: the student, its moving average, and the optimiser."""

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self.recipe = recipe
        # Channels last and bfloat16 take a third of the time, where the processor has the latter.
        self.network = in_format(network, torch.channels_last).train()
        self.averaged: Network = copy.deepcopy(self.network).eval()
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self._optimizer = _UncompiledAdamW(
            network.parameters(), lr=recipe.rate, weight_decay=recipe.decay
        )
        # The probing push of VAT is too small for the eight bits of bfloat16.
        self._half = recipe.method != "vat" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        self._augment = AUGMENTATIONS.get(recipe.augmentation)

    def step(
        self,
        step: int,
        examples: Tensor,
        targets: Tensor,
        unlabelled: Tensor,
        soft: Tensor | None = None,
    ) -> None:
        done = step / self.recipe.steps
        warm = min(1.0, (step + 1) / 50)  # while Adam's estimates settle
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate * warm * 0.5 * (1 + math.cos(math.pi * done))
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            loss = self._loss(examples, targets, unlabelled, soft, done)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._follow(min(self.recipe.average, (step + 1) / (step + 10)))

    def _loss(
        self,
        examples: Tensor,
        targets: Tensor,
        unlabelled: Tensor,
        soft: Tensor | None,
        done: float,
    ) -> Tensor:
        """Return what is asked of both kinds of examples, in one pass through the student."""
        recipe, parts = self.recipe, [self._varied(examples)]
        if recipe.method == "uda":
            parts.append(self._varied(unlabelled))
        together = _channels_last(torch.cat(parts))
        answers = self.network(together).float().split([len(part) for part in parts])
        trusted = self._trusted(examples, targets, 1 - (1 - recipe.trust) * done)
        loss = functional.cross_entropy(answers[0], trusted)
        if recipe.method == "uda":
            loss = loss + self._consistency(unlabelled, answers[1], soft)
        if recipe.method == "vat":
            with _statistics_kept(self.network):
                loss = loss + virtual_adversarial_loss(
                    self.network, unlabelled, recipe.reach, self.generator
                )
        return loss

    def _varied(self, examples: Tensor) -> Tensor:
        return examples if self._augment is None else self._augment(examples, self.generator)

    def _trusted(self, examples: Tensor, targets: Tensor, trust: float) -> Tensor:
        if trust == 1.0:
            return targets
        with torch.no_grad():
            thought = functional.softmax(self.averaged(examples).float(), dim=1)
        return trust * targets + (1 - trust) * thought

    def _consistency(self, unlabelled: Tensor, answers: Tensor, soft: Tensor | None) -> Tensor:
        """Return UDA's loss: answers to augmented examples against those to plain ones."""
        with torch.no_grad():
            logits = self.averaged(_channels_last(unlabelled)).float()
            if soft is not None:
                own = functional.softmax(logits, dim=1)
                logits = own.lerp(soft, self.recipe.soft).log()
            target = functional.softmax(logits / self.recipe.sharpness, dim=1)
            sure = functional.softmax(logits, dim=1).amax(dim=1) >= self.recipe.sure
        if not bool(sure.any()):
            return answers.sum() * 0.0
        share = sure.float().mean()
        return share * divergence(target[sure], answers[sure])

    def _follow(self, keep: float) -> None:
        """Move the average towards the student, running statistics included."""
        with torch.no_grad():
            mine, theirs = self.averaged.state_dict(), self.network.state_dict()
            for name, value in mine.items():
                if value.is_floating_point():
                    value.lerp_(theirs[name], 1 - keep)
                else:
                    value.copy_(theirs[name])


@contextmanager
def _statistics_kept(network: Network) -> Iterator[None]:
    """Keep running statistics as they are: pushed examples are not what the student will see."""
    layers = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    yield
    for layer, momentum in zip(layers, before, strict=True):
        layer.momentum = momentum


def in_format(network: Network, memory_format: torch.memory_format) -> Network:
    network.to(memory_format=memory_format)  # type: ignore[call-overload]
    return network


def _channels_last(examples: Tensor) -> Tensor:
    if examples.ndim != 4:
        return examples
    return examples.contiguous(memory_format=torch.channels_last)


def _iterate_batches(size: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield rows of shuffled examples for ever; small sets are gone through several times."""
    rows = torch.empty(0, dtype=torch.int64)
    while True:
        while len(rows) < batch:
            rows = torch.cat([rows, torch.randperm(size, generator=generator)])
        yield rows[:batch]
        rows = rows[batch:]


# torch's optimizers load its compiler at their first use, for seconds, though it compiles nothing
# here. What they wrap is called directly, and every number is the same.
class _UncompiledAdamW(torch.optim.AdamW):
    """AdamW: a step is taken without gradients of its own, as torch's wrapper has it."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
