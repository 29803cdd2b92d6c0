r"""A network's features in exact arithmetic, so that a record's depend on no other record.

In floating point a convolution or a product adds up in an order that varies with the size of the
batch and the place in it. Somebody who comes or goes would move other people's features in the last
bit, and now and then across a threshold (:mod:`vicinal.features.fixed` has the same trouble with a
projection). Here every layer that adds up gets whole numbers, at most L in size, and has whole
weights p with L sum |p| + |bias| <= 2^24, held in float32. Whatever terms have been added, the sum
is a whole number of at most 2^24, which float32 holds: all sums are exact, in any order, with fused
multiplication or without. (This asks that a convolution multiplies and adds; Winograd's algorithm,
which adds before it multiplies, would need smaller numbers, and torch does not use it on CPUs.)
Between such layers everything works number by number, one operation at a time.

**Scales.** A layer's inputs are counted in L-ths of the largest that public examples gave there;
larger ones are cut off. Its weights are as fine as the bound allows. With L = 255 that is what
8-bit networks do, and costs as little: a nearest neighbour does not notice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import InvalidInput
from vicinal.students._networks import Likeness, UnitLength

_EXACT = 2.0**24
_LEVELS = 255.0
_LEVELS_OF_FACTORS = 4095.0
"""Batch normalisation has one term a sum, so that its inputs can be finer."""

_Normalisation = nn.BatchNorm2d | nn.BatchNorm1d
_ADDS_UP = (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.BatchNorm1d, UnitLength)
_ONE_BY_ONE = (nn.ReLU, nn.MaxPool2d, nn.Flatten, Likeness)

Layer = Callable[[Tensor], Tensor]


def ranges(body: nn.Sequential, examples: Tensor) -> tuple[float, ...]:
    """Return the largest input of every layer that adds up, over public examples (m, *shape).

    The layers are those of :mod:`vicinal.students._networks`, in evaluation mode.
    """
    bounds = []
    with torch.no_grad():
        for layer in body:
            if isinstance(layer, _ADDS_UP):
                bounds.append(max(float(examples.abs().max()), 1e-6))
            examples = layer(examples)
    return tuple(bounds)


class ExactBody:
    """The body of a network in whole numbers.

    `largest` is what :func:`ranges` returned. A layer that has no exact form is refused.
    """

    def __init__(self, body: nn.Sequential, largest: Sequence[float]) -> None:
        adders = sum(isinstance(layer, _ADDS_UP) for layer in body)
        if adders != len(largest):
            raise InvalidInput(f"The ranges must be {adders}, one a layer. Got {len(largest)}.")
        bounds = iter(largest)
        self._layers: list[Layer] = []
        for layer in body:
            if isinstance(layer, _ADDS_UP):
                self._layers.append(_quantize(layer, next(bounds)))
            elif isinstance(layer, _ONE_BY_ONE):
                self._layers.append(layer)
            elif not isinstance(layer, nn.Dropout):
                raise InvalidInput(f"The layer {type(layer).__name__} has no exact form.")

    def __call__(self, examples: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            for layer in self._layers:
                examples = layer(examples)
        return examples


@dataclass(frozen=True, slots=True)
class _QuantizedLayer:
    """A sum over whole numbers between two changes of scale."""

    per_unit: float
    levels: float
    sums: Layer
    unit: float

    def __call__(self, values: Tensor) -> Tensor:
        counted = (values * self.per_unit).round_().clamp_(-self.levels, self.levels)
        return self.sums(counted).mul_(self.unit)


def _quantize(layer: nn.Module, largest: float) -> _QuantizedLayer:
    levels = _LEVELS_OF_FACTORS if isinstance(layer, _Normalisation) else _LEVELS
    unit = largest / levels
    if isinstance(layer, UnitLength):
        return _QuantizedLayer(1 / unit, levels, _unit_rows, 1.0)
    weight, bias = _combine_weights(layer)
    # Half a step of rounding may be added to every weight: hence the two terms of the bound.
    total = weight.abs().flatten(1).sum(dim=1)
    room = (_EXACT - 1 - levels * weight[0].numel() / 2) / (levels * total + bias.abs() / unit)
    step = 1 / float(room.min())
    integers, shift = (weight / step).round(), (bias / (unit * step)).round()
    return _QuantizedLayer(
        1 / unit, levels, _compute_layer_sums(layer, integers.float(), shift.float()), unit * step
    )


def _combine_weights(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weights, one row an output, and what is added, in float64."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        assert layer.bias is not None  # noqa: S101 (our networks have one everywhere)
        return layer.weight.detach().double(), layer.bias.detach().double()
    assert isinstance(layer, _Normalisation)  # noqa: S101 (narrows the type: see _ADDS_UP)
    assert layer.running_mean is not None  # noqa: S101 (networks track them)
    assert layer.running_var is not None  # noqa: S101
    deviation = (layer.running_var.double() + layer.eps).sqrt()
    factor = layer.weight.detach().double() / deviation
    return factor[:, None], layer.bias.detach().double() - layer.running_mean.double() * factor


def _compute_layer_sums(layer: nn.Module, weight: Tensor, bias: Tensor) -> Layer:
    if isinstance(layer, nn.Conv2d):
        padding = layer.padding
        return lambda x: functional.conv2d(x, weight, bias, padding=padding)
    if isinstance(layer, nn.Linear):
        return lambda x: functional.linear(x, weight, bias)
    shape = (1, -1, 1, 1) if isinstance(layer, nn.BatchNorm2d) else (1, -1)
    factor, shift = weight.view(shape), bias.view(shape)
    return lambda x: x.mul_(factor).add_(shift)


def _unit_rows(values: Tensor) -> Tensor:
    """Return rows of length 1. Squares are summed in float64, exactly up to 2^37 columns."""
    squares = values.double().square().sum(dim=1, keepdim=True)
    return (values / squares.sqrt().clamp_min(1.0)).float()
