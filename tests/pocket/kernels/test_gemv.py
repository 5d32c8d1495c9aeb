"""The dense kernels of every variant against NumPy, and bitwise the same whatever the number of tokens."""

import ml_dtypes
import numpy as np
import pytest

from labkit.pocket import tiles
from training.reference import quantise_activations

from .conftest import f32p, ptr, u8p

FP8_BLOCKS, FP8_ROWS, BF16_BLOCKS, BF16, FP32, INT8 = KINDS = range(6)
FINITE = np.array([i for i in range(256) if i & 127 != 127], np.uint8)  # every e4m3 code but NaN, subnormals too
PAIRS = ("avx512bf16", "neonbf16")  # variants that round activations to bfloat16 and take subnormal weights as zero


def codes_of(variant: str) -> np.ndarray:
    """The e4m3 codes that a variant must read exactly. The packer writes no subnormal ones."""
    return np.unique(tiles.without_subnormals(FINITE)) if variant in PAIRS else FINITE


def seen(x: np.ndarray, kind: int, variant: str) -> np.ndarray:
    """The activations [m, k] as a kernel reads them, in float64."""
    if kind == INT8:
        return quantise_activations(x).astype(np.float64)
    if variant in PAIRS and kind != FP32:
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)
    return x.astype(np.float64)


def make(kind: int, rows: int, k: int, seed: int, variant: str):
    """-> packed bytes, scales, the weights that they stand for [rows, k] in float64."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(codes_of(variant), (rows, k))
    value = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    blocks = rng.uniform(1e-3, 2e-3, (rows // 16, -(-k // 128))).astype(np.float32)
    spread = np.repeat(np.repeat(blocks, 16, 0), 128, 1)[:, :k].astype(np.float64)
    if kind == FP8_BLOCKS:
        return tiles.fp8_tiles(codes), blocks, value * spread
    if kind == FP8_ROWS:
        scale = rng.uniform(1e-3, 2e-3, rows).astype(np.float32)
        return tiles.fp8_tiles(codes), scale, value * scale[:, None]
    if kind == BF16_BLOCKS:
        return tiles.bf16_tiles(tiles.E4M3_AS_BF16[codes]), blocks, value * spread
    if kind == INT8:
        whole = rng.integers(-127, 128, (rows, k)).astype(np.int8)
        return tiles.int8_tiles(whole), blocks, whole * spread
    weight = rng.standard_normal((rows, k)).astype(np.float32)
    if kind == BF16:
        words = weight.astype(ml_dtypes.bfloat16)
        return tiles.bf16_tiles(words.view(np.uint16)), blocks, words.astype(np.float64)
    return tiles.f32_tiles(weight), blocks, weight.astype(np.float64)


def run(library, kind, packed, scale, x, rows):
    y = np.full((len(x), rows), np.nan, np.float32)
    carried = (x * np.float32(library.inspect_fp8_x() if kind != FP32 else 1)).astype(np.float32)
    library.inspect_gemv(
        kind,
        ptr(packed.view(np.uint8), u8p),
        ptr(scale, f32p),
        rows // 16,
        x.shape[1],
        ptr(carried, f32p),
        x.shape[1],
        ptr(y, f32p),
        rows,
        len(x),
    )
    return y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "k"), [(160, 384), (48, 64), (144, 128), (208, 768)])
def test_matches_numpy(kernels, variant, kind, rows, k):
    library = kernels(variant).library
    packed, scale, weight = make(kind, rows, k, rows + k, variant)
    x = np.random.default_rng(1).standard_normal((3, k)).astype(np.float32)
    got, want = run(library, kind, packed, scale, x, rows), seen(x, kind, variant) @ weight.T
    size = np.abs(x).astype(np.float64) @ np.abs(weight).T  # rounding grows with the terms, not with their sum
    assert np.max(np.abs(got - want) / size) < 3e-6


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_do_not_change_each_other(kernels, variant, kind):
    library = kernels(variant).library
    packed, scale, _ = make(kind, 208, 384, 3, variant)
    x = np.random.default_rng(2).standard_normal((9, 384)).astype(np.float32)
    alone = np.concatenate([run(library, kind, packed, scale, x[i : i + 1], 208) for i in range(9)])
    for m in range(2, 10):
        assert np.array_equal(run(library, kind, packed, scale, x[:m], 208), alone[:m]), m


@pytest.mark.parametrize("m", [1, 2, 4])
def test_the_byte_before_fp8_weights_is_not_used(kernels, variant, m):
    """It is read, as part of a load that begins one byte early."""
    library = kernels(variant).library
    packed, scale, _ = make(FP8_BLOCKS, 48, 128, 5, variant)
    room = np.zeros(64 + packed.nbytes, np.uint8)
    room[64:] = packed.reshape(-1).view(np.uint8)
    x = np.random.default_rng(2).standard_normal((m, 128)).astype(np.float32)
    want = run(library, FP8_BLOCKS, packed, scale, x, 48)
    for byte in (0, 0x7F, 0xFF):
        room[:64] = byte
        assert np.array_equal(run(library, FP8_BLOCKS, room[64:], scale, x, 48), want)


@pytest.mark.parametrize(("rows", "k"), [(32, 384), (16, 64), (48, 160)])
@pytest.mark.parametrize("largest", [448.0, 416.0, 240.0, 1.75, 0.0])
def test_int8_weights_keep_what_counts(rows, k, largest):
    """Whatever part of e4m3's range a block uses: values of eight units on are exact, none is off by half a unit."""
    value = FINITE.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    values = np.random.default_rng(k).choice(value[np.abs(value) <= largest], (rows, k))
    values[::16, ::128] = largest
    whole, unit = tiles.in_units(values)
    assert whole.dtype == np.int8 and unit.shape == (rows // 16, -(-k // 128))
    spread = np.repeat(np.repeat(unit, 16, 0), 128, 1)[:, :k]
    held = whole * spread
    assert np.array_equal(held[np.abs(values) >= 8 * spread], values[np.abs(values) >= 8 * spread])
    assert np.all(np.abs(held - values) <= spread / 2)
    if largest:
        assert 63.5 < np.abs(whole).max() <= 127


def test_fp8_expanded_to_bf16_gives_the_same_numbers(kernels, variant):
    library = kernels(variant).library
    x = np.random.default_rng(2).standard_normal((4, 384)).astype(np.float32)
    a = run(library, FP8_BLOCKS, *make(FP8_BLOCKS, 96, 384, 7, variant)[:2], x, 96)
    b = run(library, BF16_BLOCKS, *make(BF16_BLOCKS, 96, 384, 7, variant)[:2], x, 96)
    assert np.array_equal(a, b)


def test_every_e4m3_code_is_decoded_exactly(kernels, variant):
    """One non-zero activation picks one column, so each output is one weight."""
    library = kernels(variant).library
    codes = np.ascontiguousarray(np.resize(codes_of(variant), (64, 128)))
    one = np.ones((4, 1), np.float32)
    for k in range(128):
        x = np.zeros((1, 128), np.float32)
        x[0, k] = 1
        got = run(library, FP8_BLOCKS, tiles.fp8_tiles(codes), one, x, 64)[0]
        assert np.array_equal(got, codes[:, k].view(ml_dtypes.float8_e4m3fn).astype(np.float32)), k
