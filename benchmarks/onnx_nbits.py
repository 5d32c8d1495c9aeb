"""ONNX Runtime's 4-bit matrix product (MatMulNBits) as a thing to time: needs the packages onnx and onnxruntime.

One session holds many different matrices of one shape, all fed by the same input, their outputs laid end to end: one
`run` walks through the whole working set once, so a node's cost, not Python's, is what is timed. The bytes counted are
those of the model file: codes and FP32 scales. What the runtime lays beside them when it packs is its own affair.
"""

import time
from dataclasses import dataclass

import numpy as np

from labkit.errors import BadInput

from .common import need

BLOCK = 32  # weights that share a scale
INT8_ACTIVATIONS = 4  # accuracy_level: activations are rounded to int8 in blocks, as the pocket engine's experts do


def matrix_bytes(rows: int, columns: int) -> int:
    """Bytes of one [rows, columns] matrix: a nibble a weight and an FP32 scale a block. BadInput on half blocks."""
    if columns % BLOCK:
        raise BadInput("columns", columns, f"a multiple of {BLOCK}")
    return rows * columns // 2 + rows * (columns // BLOCK) * 4


@dataclass
class NBits:
    """`copies` matrices [rows, columns] times [tokens, columns], seeded, one thread."""

    rows: int
    columns: int
    tokens: int
    copies: int
    seed: int = 0

    def __post_init__(self):
        onnx, runtime = need("onnx", "onnx"), need("onnxruntime", "onnxruntime")
        self.bytes = self.copies * matrix_bytes(self.rows, self.columns)
        self.weights = self.copies * self.rows * self.columns
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(self._model(onnx), options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(self.seed)
        self._input = {"x": rng.standard_normal((self.tokens, self.columns)).astype(np.float32)}

    def _model(self, onnx) -> bytes:
        helper, numpy_helper, f32 = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
        rng, blocks = np.random.default_rng(self.seed), self.columns // BLOCK
        nodes, initials = [], []
        for i in range(self.copies):
            codes = rng.integers(0, 256, (self.rows, blocks, BLOCK // 2), np.uint8)
            scales = rng.uniform(0.01, 0.02, (self.rows, blocks)).astype(np.float32)
            initials += [numpy_helper.from_array(codes, f"codes{i}"), numpy_helper.from_array(scales, f"scales{i}")]
            nodes.append(
                helper.make_node(
                    "MatMulNBits",
                    ["x", f"codes{i}", f"scales{i}"],
                    [f"y{i}"],
                    domain="com.microsoft",
                    K=self.columns,
                    N=self.rows,
                    bits=4,
                    block_size=BLOCK,
                    accuracy_level=INT8_ACTIVATIONS,
                )
            )
        nodes.append(helper.make_node("Concat", [f"y{i}" for i in range(self.copies)], ["y"], axis=1))
        graph = helper.make_graph(
            nodes,
            "nbits",
            [helper.make_tensor_value_info("x", f32, [self.tokens, self.columns])],
            [helper.make_tensor_value_info("y", f32, [self.tokens, self.copies * self.rows])],
            initials,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    def product(self) -> np.ndarray:
        """[tokens, copies * rows] FP32: what the runtime computes, for checks."""
        return self._session.run(["y"], self._input)[0]

    def seconds(self) -> float:
        """Wall seconds of one walk through every matrix."""
        start = time.perf_counter()
        self._session.run(["y"], self._input)
        return time.perf_counter() - start
