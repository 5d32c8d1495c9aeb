"""The NEON variant, cross-compiled and run under qemu-user: against NumPy, and bitwise for any number of tokens.

Its speed is not measured here: an emulator has none.
"""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from labkit.engines.pocket import build, layout
from labkit.engines.pocket.reference import E2M1

from . import test_gemv as gemv

CROSS, EMULATOR = (
    shutil.which("aarch64-linux-gnu-gcc"),
    shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static"),
)
pytestmark = pytest.mark.skipif(not (CROSS and EMULATOR), reason="needs gcc-aarch64-linux-gnu and qemu-user")
DRIVER = Path(__file__).with_name("neon_driver.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory, config):
    """neon(kind, rows, k, packed, scale, x) -> result."""
    out = tmp_path_factory.mktemp("neon") / "driver"
    arguments = [
        a for a in build.units("neon", "jit", config)["engine"] if a not in ("-shared", "-fPIC", "-lm", "-lpthread")
    ]
    arguments = [a for a in arguments if not a.endswith("decode.c")]
    shape = [f"-DMOE_HIDDEN={config.hidden_size}", f"-DMOE_INTER={config.moe_intermediate_size}"]
    subprocess.run(
        [
            CROSS,
            *arguments,
            *shape,
            "-Wall",
            "-Werror",
            "-Wno-unused-function",
            "-static",
            f"-I{build.SOURCES}",
            str(DRIVER),
            "-lm",
            "-lpthread",
            "-o",
            str(out),
        ],
        check=True,
    )

    def run(kind, rows, packed, scale, x, dtype=np.float32):
        weights = np.ascontiguousarray(packed).view(np.uint8).tobytes()
        scales = np.zeros(rows * 6, np.float32)
        scales[: scale.size] = scale.ravel()
        head = np.array([kind, rows, x.shape[1], len(x), len(weights)], np.int32)
        data = head.tobytes() + weights + (scales.tobytes() if kind < 5 else b"") + x.astype(np.float32).tobytes()
        done = subprocess.run([EMULATOR, "-cpu", "max", str(out)], input=data, capture_output=True, check=True)
        return np.frombuffer(done.stdout, dtype)

    return run


NONE = np.zeros(0, np.float32)


@pytest.mark.parametrize("kind", range(5))
def test_dense(program, kind):
    packed, scale, weight = gemv.make(kind, 144, 384, seed=9)
    x = np.random.default_rng(1).standard_normal((6, 384)).astype(np.float32)
    got = program(kind, 144, packed, scale, x).reshape(6, 144)
    size = np.abs(x).astype(np.float64) @ np.abs(weight).T
    assert np.max(np.abs(got - x.astype(np.float64) @ weight.T) / size) < 3e-6
    alone = np.concatenate([program(kind, 144, packed, scale, x[i : i + 1]) for i in range(6)]).reshape(6, 144)
    for m in range(2, 7):
        assert np.array_equal(program(kind, 144, packed, scale, x[:m]).reshape(m, 144), alone[:m])


@pytest.mark.parametrize(("kind", "rows", "k"), [(5, 256, 384), (6, 384, 128)])
def test_experts(program, kernels, kind, rows, k):
    """The same bits as the portable variant gives but for fused rounding, and the plain formula."""
    rng = np.random.default_rng(3)
    codes, scales = rng.integers(0, 256, (rows, k // 2), np.uint8), rng.integers(118, 124, (rows, k // 32), np.uint8)
    x = rng.standard_normal((5, k)).astype(np.float32)
    packed = layout.mxfp4_tiles(codes, scales)
    got = program(kind, rows, packed, NONE, x).reshape(5, rows)
    q = program(7, rows, packed, NONE, x, np.int8).reshape(5, k)
    step = np.abs(x).reshape(5, -1, 32).max(-1) / 127
    assert np.max(np.abs(q.reshape(5, -1, 32) * step[..., None] - x.reshape(5, -1, 32)) / step[..., None]) < 0.5001
    weight = E2M1[np.stack([codes & 15, codes >> 4], -1)].reshape(rows, k) * np.repeat(
        2.0 ** (scales.astype(int) - 127), 32, 1
    )
    want = (q.reshape(5, -1, 32) * step[..., None]).reshape(5, k) @ weight.T
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    for m in (1, 2, 3, 4):
        assert np.array_equal(program(kind, rows, packed, NONE, x[:m]).reshape(m, rows), got[:m])


def test_exp(program):
    x = np.linspace(-86, 86, 384, dtype=np.float32)[None]
    y = program(8, 16, np.zeros(4, np.uint8), NONE, x)
    assert np.max(np.abs(y / np.exp(x[0].astype(np.float64)) - 1)) < 4e-7
