"""What the tests of ONNX extractors share: a small network in a file."""

import numpy as np
import pytest


def save_network(path, shape, dtype="float32", *, inputs=1, last="Tanh", outputs=4):
    """Write last(x W) for records of a shape, flattened; return the file."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, types = onnx.helper, onnx.TensorProto
    size = int(np.prod(shape))
    weights = np.random.default_rng(0).normal(size=(size, outputs)).astype(np.float32)
    kind = {"float32": types.FLOAT, "uint8": types.UINT8}[dtype]
    nodes = [
        helper.make_node("Cast", ["rows"], ["cast"], to=types.FLOAT),
        helper.make_node("Flatten", ["cast"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["sums"]),
        helper.make_node(last, ["sums"], ["found"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info(name, kind, ("n", *shape))
            for name in ("rows", "more")[:inputs]
        ],
        [helper.make_tensor_value_info("found", types.FLOAT, ("n", outputs))],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path
