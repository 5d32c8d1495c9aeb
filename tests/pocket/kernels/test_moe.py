"""The routed experts' kernel: `jit` and `generic` give the same bits, and those of a plain integer formula."""

import numpy as np
import pytest

from labkit.pocket import tiles
from training.reference import E2M1, quantise_activations

from .conftest import f32p, i8p, i32p, ptr, u8p

SHAPES = {"moe_gate_up": (256, 384), "moe_down": (384, 128)}


def experts(n: int, k: int, seed: int):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (n, k // 2), dtype=np.uint8)
    return codes, rng.integers(115, 125, (n, k // 32), dtype=np.uint8)


def quantise(library, x):
    m, k = x.shape
    q, s, b = np.empty((m, k), np.int8), np.empty((m, k // 32), np.float32), np.empty((m, k // 32), np.int32)
    for i in range(m):
        library.inspect_quantise(ptr(x[i], f32p), ptr(q[i], i8p), ptr(s[i], f32p), ptr(b[i], i32p), k)
    return q, s, b


def run(moe, name, packed, q, s, b):
    n, k = SHAPES[name]
    y = np.full((len(q), n), np.nan, np.float32)
    getattr(moe, name)(
        ptr(packed, u8p),
        n,
        k,
        0,
        n,
        ptr(q, i8p),
        ptr(s, f32p),
        ptr(b, i32p),
        ptr(y, f32p),
        n,
        len(q),
        None,
    )
    return y


def padded(packed):  # the kernels prefetch past the end, which reads nothing; aligned as in the arena
    return np.ascontiguousarray(packed)


@pytest.mark.parametrize("name", SHAPES)
def test_both_backends_equal_the_formula(kernels, variant, name):
    n, k = SHAPES[name]
    codes, scales = experts(n, k, seed=k)
    x = np.random.default_rng(5).standard_normal((7, k)).astype(np.float32)
    q, s, b = quantise(kernels(variant).library, x)
    jit = run(kernels(variant, "jit").moe_library, name, padded(tiles.mxfp4_tiles(codes, scales)), q, s, b)
    generic = run(kernels(variant, "generic").moe_library, name, padded(tiles.mxfp4_rows(codes, scales)), q, s, b)
    assert np.array_equal(jit, generic)
    weight = E2M1[np.stack([codes & 15, codes >> 4], -1)].reshape(n, k).astype(np.float64)
    weight *= np.repeat(2.0 ** (scales.astype(int) - 127), 32, 1)
    seen = q.reshape(7, -1, 32) * (2.0 * s.astype(np.float64))[..., None]  # s is halved for the doubled table
    want = seen.reshape(7, k) @ weight.T
    assert np.allclose(jit, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("backend", ["jit", "generic"])
@pytest.mark.parametrize("name", SHAPES)
def test_tokens_do_not_change_each_other(kernels, variant, name, backend):
    n, k = SHAPES[name]
    codes, scales = experts(n, k, seed=1)
    packed = padded((tiles.mxfp4_tiles if backend == "jit" else tiles.mxfp4_rows)(codes, scales))
    q, s, b = quantise(kernels(variant).library, np.random.default_rng(6).standard_normal((9, k)).astype(np.float32))
    moe = kernels(variant, backend).moe_library
    alone = np.concatenate([run(moe, name, packed, q[i : i + 1], s[i : i + 1], b[i : i + 1]) for i in range(9)])
    for m in range(2, 10):
        assert np.array_equal(run(moe, name, packed, q[:m], s[:m], b[:m]), alone[:m]), m


def test_largest_products_do_not_overflow(kernels, variant):
    """All weights +6 or -6 against all activations at +-127: the 16-bit sums are at their limit."""
    for sign in (1, -1):
        for code in (0x77, 0xFF):
            codes, scales = np.full((256, 192), code, np.uint8), np.full((256, 12), 127, np.uint8)
            q, s, b = quantise(kernels(variant).library, np.full((2, 384), sign, np.float32))
            assert set(np.unique(q)) == {127 * sign}
            want = 384 * sign * (6 if code == 0x77 else -6)
            for backend, pack in (("jit", tiles.mxfp4_tiles), ("generic", tiles.mxfp4_rows)):
                y = run(kernels(variant, backend).moe_library, "moe_gate_up", padded(pack(codes, scales)), q, s, b)
                assert np.allclose(y, want, rtol=1e-5)


def test_activations_are_rounded_as_the_reference_does(kernels, variant):
    x = np.random.default_rng(8).standard_normal((16, 384)).astype(np.float32)
    x[3, 32:64] = 0
    q, s, b = quantise(kernels(variant).library, x)
    got = (q.reshape(16, 12, 32) * (2 * s)[..., None]).reshape(16, 384)
    want = quantise_activations(x)
    step = np.repeat(2 * s, 32, 1)
    assert np.mean(got != want) < 1e-3 or np.allclose(got, want, atol=1e-6)
    assert np.all(np.abs(got - want) <= step * 1.001)  # at most a tie that fell the other way
    assert np.array_equal(b, 12 * q.reshape(16, 12, 32).astype(np.int32).sum(-1))
