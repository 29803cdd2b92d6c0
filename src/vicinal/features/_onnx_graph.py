"""Networks written as ONNX graphs, node by node, and run by onnxruntime on one thread a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from vicinal._arrays import AnyArray
from vicinal.features._fixed import Vectors
from vicinal.neighbours import THREADS

Array = AnyArray
Row = TypeVar("Row")

_IR = 9
_PART = 64
_TYPES = {"float32": 1, "int64": 7}  # of TensorProto
FLOATS, WHOLE = _TYPES["float32"], _TYPES["int64"]


class OnnxGraph:
    """Nodes and constants of a network, added one after the other.

    `helper`: ``onnx.helper``. `weights`: what its constants are made of.
    """

    name: str
    opset: int

    def __init__(self, helper: Any, weights: dict[str, Array]) -> None:
        self._helper, self._weights = helper, weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def _model(self, inputs: dict[str, tuple[int, list[Any]]], output: list[Any]) -> Any:
        """Return the model whose last node is "embedding", of shape `output`."""
        helper = self._helper
        named = [
            helper.make_tensor_value_info(n, *kind_and_shape)
            for n, kind_and_shape in inputs.items()
        ]
        embedding = helper.make_tensor_value_info("embedding", FLOATS, output)
        graph = helper.make_graph(self._nodes, self.name, named, [embedding], self._constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)

    def _constant(self, name: str, value: Array) -> str:
        kind = _TYPES[str(value.dtype)]
        tensor = self._helper.make_tensor(name, kind, value.shape, value.tobytes(), raw=True)
        self._constants.append(tensor)
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(self._helper.make_node(kind, inputs, [output], **attributes))
        return output


def session_of(runtime: Any, model: Any) -> Any:
    """Return a session of onnxruntime that computes on one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = model.SerializeToString()
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def side_by_side(rows: Sequence[Row], embed: Callable[[Row], Vectors]) -> Iterator[Vectors]:
    """Yield the embeddings of consecutive rows; each is one thread's, which cores share."""
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(rows), _PART):
            yield np.stack(list(pool.map(embed, rows[start : start + _PART])))
