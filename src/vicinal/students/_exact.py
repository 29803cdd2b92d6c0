r"""Features of a network in exact arithmetic: those of a record do not depend on other records.

In floating point, a convolution or a product sums its terms in an order that depends on the size of
the batch and the index in it. Adding or removing a subject would change other subjects' features in
the last bit, and occasionally across a threshold (:mod:`vicinal.features.fixed` solves the same
problem for a projection). Here every summing layer has whole inputs of magnitude at most L and
whole weights p with L sum |p| + |bias| <= 2^24, held in float32. Every partial sum is then a whole
number of at most 2^24, which float32 represents, so sums are exact in any order, with or without
fused multiplication. (This requires that a convolution multiplies before it adds; Winograd's
algorithm, which adds first, would need smaller numbers, and torch does not use it on CPUs.) Summing
layers are convolutions, linear layers, batch normalisations and scalings to unit length. Between
them all operations are elementwise.

**Scales.** The inputs of a layer are rounded to multiples of 1/L of the largest input among public
examples, and larger ones are clipped. The weights have the finest step that the bound allows.
L = 255 is the resolution of 8-bit networks; nearest neighbours are not noticeably worse.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import InvalidInput
from vicinal.students._networks import KernelValues, UnitLength

_MAX_EXACT_SUM = 2.0**24  # up to this value float32 represents all integers
_LEVELS = 255.0  # L of convolutions and linear layers, the resolution of 8-bit networks

_NORMALISATION_LEVELS = 4095.0
"""L of batch normalisation, finer because its sums have one product and the bias."""

_MIN_LARGEST_INPUT = 1e-6
"""Floor of a layer's largest input; prevents a division by zero if all inputs are zero."""

_Normalisation = nn.BatchNorm2d | nn.BatchNorm1d
_SUMMING_LAYERS = (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.BatchNorm1d, UnitLength)
_ELEMENTWISE_LAYERS = (nn.ReLU, nn.MaxPool2d, nn.Flatten, KernelValues)

Layer = Callable[[Tensor], Tensor]
"""A map of a batch of inputs (n, ...) to outputs (n, ...)."""


def measure_largest_inputs(body: nn.Sequential, examples: Tensor) -> tuple[float, ...]:
    """Return the largest input magnitude of each summing layer of a network's body, in order.

    `body`: layers of :mod:`vicinal.students._networks`, in evaluation mode. `examples`: normalised
    public examples (m, *shape).
    """
    largest_inputs = []
    with torch.no_grad():
        for layer in body:
            if isinstance(layer, _SUMMING_LAYERS):
                largest_inputs.append(max(float(examples.abs().max()), _MIN_LARGEST_INPUT))
            examples = layer(examples)
    return tuple(largest_inputs)


class ExactBody:
    """The body of a network in exact arithmetic; calling it computes features (n, f).

    `body`: its layers. `largest_inputs`: the result of :func:`measure_largest_inputs` for `body`.
    Raises InvalidInput for a layer without an exact form.
    """

    def __init__(self, body: nn.Sequential, largest_inputs: Sequence[float]) -> None:
        n_summing = sum(isinstance(layer, _SUMMING_LAYERS) for layer in body)
        if n_summing != len(largest_inputs):
            raise InvalidInput(
                f"The ranges must be {n_summing}, one a layer. Got {len(largest_inputs)}."
            )
        remaining_inputs = iter(largest_inputs)
        self._layers: list[Layer] = []
        for layer in body:
            if isinstance(layer, _SUMMING_LAYERS):
                self._layers.append(_quantize_layer(layer, next(remaining_inputs)))
            elif isinstance(layer, _ELEMENTWISE_LAYERS):
                self._layers.append(layer)
            elif not isinstance(layer, nn.Dropout):
                raise InvalidInput(f"The layer {type(layer).__name__} has no exact form.")

    def __call__(self, examples: Tensor) -> Tensor:
        """Return the features (n, f) of normalised examples (n, *shape)."""
        with torch.autocast("cpu", enabled=False):
            for layer in self._layers:
                examples = layer(examples)
        return examples


@dataclass(frozen=True, slots=True)
class _QuantizedLayer:
    """A summing layer on whole numbers, with scaling of its inputs and outputs.

    `input_scale`: factor from inputs to whole numbers. `levels`: the largest such number, L; larger
    ones are clipped. `compute_sums`: the layer with whole weights. `output_unit`: factor from its
    sums to outputs.
    """

    input_scale: float
    levels: float
    compute_sums: Layer
    output_unit: float

    def __call__(self, values: Tensor) -> Tensor:
        """Return the layer's outputs (n, ...) for inputs `values` (n, ...) before their scaling."""
        levels = (values * self.input_scale).round_().clamp_(-self.levels, self.levels)
        return self.compute_sums(levels).mul_(self.output_unit)


def _quantize_layer(layer: nn.Module, largest_input: float) -> _QuantizedLayer:
    """Return a summing layer converted to whole weights and inputs.

    `layer`: in floating point. `largest_input`: the largest magnitude of its inputs on public
    examples.
    """
    levels = _NORMALISATION_LEVELS if isinstance(layer, _Normalisation) else _LEVELS
    input_unit = largest_input / levels
    if isinstance(layer, UnitLength):
        return _QuantizedLayer(1 / input_unit, levels, _scale_to_unit_length, 1.0)
    weight, bias = _compute_affine_map(layer)
    # Rounding adds up to half a step to every weight and to the bias; the numerator reserves it.
    weight_sums = weight.abs().flatten(1).sum(dim=1)
    inverse_steps = (_MAX_EXACT_SUM - 1 - levels * weight[0].numel() / 2) / (
        levels * weight_sums + bias.abs() / input_unit
    )
    weight_step = 1 / float(inverse_steps.min())
    whole_weight = (weight / weight_step).round()
    whole_bias = (bias / (input_unit * weight_step)).round()
    compute_sums = _replace_parameters(layer, whole_weight.float(), whole_bias.float())
    return _QuantizedLayer(1 / input_unit, levels, compute_sums, input_unit * weight_step)


def _compute_affine_map(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weights (f, ...), one row per output, and biases (f,) of a summing layer, float64.

    Those of batch normalisation (f, 1) contain its running mean and variance.
    """
    if isinstance(layer, nn.Conv2d | nn.Linear):
        assert layer.bias is not None  # noqa: S101 (all our networks have biases)
        return layer.weight.detach().double(), layer.bias.detach().double()
    assert isinstance(layer, _Normalisation)  # noqa: S101 (narrows the type: see _SUMMING_LAYERS)
    assert layer.running_mean is not None  # noqa: S101 (our networks track statistics)
    assert layer.running_var is not None  # noqa: S101
    deviation = (layer.running_var.double() + layer.eps).sqrt()
    factor = layer.weight.detach().double() / deviation
    return factor[:, None], layer.bias.detach().double() - layer.running_mean.double() * factor


def _replace_parameters(layer: nn.Module, weight: Tensor, bias: Tensor) -> Layer:
    """Return a function from inputs (n, ...) to the sums of a summing layer with given parameters.

    `layer`: gives the kind of operation. `weight` (f, ...), `bias` (f,): parameters in place of the
    layer's own. Batch normalisation changes its inputs in place.
    """
    if isinstance(layer, nn.Conv2d):
        padding = layer.padding
        return lambda values: functional.conv2d(values, weight, bias, padding=padding)
    if isinstance(layer, nn.Linear):
        return lambda values: functional.linear(values, weight, bias)
    shape = (1, -1, 1, 1) if isinstance(layer, nn.BatchNorm2d) else (1, -1)
    factor, shift = weight.view(shape), bias.view(shape)
    return lambda values: values.mul_(factor).add_(shift)


def _scale_to_unit_length(values: Tensor) -> Tensor:
    """Return rows `values` (n, d) of whole numbers scaled to length 1, float32; zeros stay zeros.

    Squares are summed in float64, exactly up to 2^37 columns.
    """
    squares = values.double().square().sum(dim=1, keepdim=True)
    return (values / squares.sqrt().clamp_min(1.0)).float()
