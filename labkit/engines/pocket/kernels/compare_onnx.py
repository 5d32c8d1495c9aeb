"""Is the `generic` MoE kernel a fair baseline? It against ONNX Runtime's MatMulNBits (4 bits, groups of 32, int8).

Both run shapes known only at run time, on one thread, from weights far larger than the last-level cache, in turns. GB/s
count the same bytes for both: 4.25 bits a weight, as MXFP4 has them (ONNX's own scales are larger). Needs
`pip install onnxruntime onnx`; run `python -m labkit.engines.pocket.kernels.compare_onnx`.
"""

import ctypes as c
import time

import numpy as np

from labkit.engines.pocket import build
from labkit.engines.pocket.loader import ModelConfig
from labkit.engines.pocket.options import SHIPPED_WEIGHTS, Options

SHAPES = ((256, 384), (1536, 384), (12288, 384))
TOTAL_BYTES = 120e6
ROUNDS = 9


def onnx_session(n: int, k: int, copies: int):
    """A graph of `copies` independent products [M, k] x [k, n]."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    rng, nodes, weights, outputs = np.random.default_rng(0), [], [], []
    for i in range(copies):
        codes = rng.integers(0, 256, (n, k // 32, 16), dtype=np.uint8)
        weights += [
            onnx.numpy_helper.from_array(codes, f"w{i}"),
            onnx.numpy_helper.from_array(rng.random(n * (k // 32), dtype=np.float32), f"s{i}"),
        ]
        nodes.append(
            helper.make_node(
                "MatMulNBits",
                ["x", f"w{i}", f"s{i}"],
                [f"y{i}"],
                domain="com.microsoft",
                K=k,
                N=n,
                bits=4,
                block_size=32,
                accuracy_level=4,
            )
        )
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [None, n]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, k])], outputs, weights
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    )
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def pocket_runner(kernels: build.Kernels, n: int, k: int, copies: int):
    """run(x [M, k]): every product, activations rounded to int8 each time, as ONNX Runtime does."""
    size = n * k // 2 + n * k // 32
    weights = np.random.default_rng(0).integers(0, 120, (copies + 1, size), dtype=np.uint8)
    gemv = c.cast(kernels.moe_library.moe_gate_up, c.c_void_p)
    y = np.empty((4, n), np.float32)

    def run(x):
        at = [c.c_void_p(a.ctypes.data) for a in (weights, x, y)]
        kernels.library.inspect_moe(gemv, at[0], c.c_int64(size), copies, n, k, at[1], at[2], len(x))

    return run


def compare() -> list[dict]:
    """Best CPU time of each over ROUNDS, by shape and number of tokens."""
    config = ModelConfig.from_json(SHIPPED_WEIGHTS / "config.json")
    kernels, rows = build.kernels(Options(), config), []
    for n, k in SHAPES:
        copies = min(600, int(TOTAL_BYTES / (n * k * 17 / 32)))
        session, ours = onnx_session(n, k, copies), pocket_runner(kernels, n, k, copies)
        for m in (1, 4):
            x, best = np.random.default_rng(1).standard_normal((m, k)).astype(np.float32), {"onnx": 1e9, "generic": 1e9}
            for _ in range(ROUNDS):
                for name, run in (
                    ("onnx", lambda x=x, s=session: s.run(None, {"x": x})),
                    ("generic", lambda x=x, o=ours: o(x)),
                ):
                    began = time.thread_time()
                    run()
                    best[name] = min(best[name], time.thread_time() - began)
            rows.append(
                {"n": n, "k": k, "m": m, **{name: copies * n * k * 17 / 32 / t / 1e9 for name, t in best.items()}}
            )
    return rows


if __name__ == "__main__":
    for r in compare():
        print(f"N {r['n']:6d} K {r['k']} M {r['m']}: ONNX Runtime {r['onnx']:5.1f} GB/s, generic {r['generic']:5.1f},"
              f" generic/ONNX {r['generic'] / r['onnx']:.2f}", flush=True)
