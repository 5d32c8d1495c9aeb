"""The NumPy quantisers: against ml_dtypes, bounds, and round trips."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from training import quantise as q


@given(st.integers(0, 2**31), st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=25)
def test_fp8_blocks_bound_the_error_and_keep_the_largest(seed, rows, columns):
    w = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    codes, scales = q.fp8_encode(w)
    assert codes.dtype == ml_dtypes.float8_e4m3fn and scales.shape == (-(-rows // 128), -(-columns // 128))
    back = q.fp8_decode(codes, scales)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            cut = slice(i * 128, i * 128 + 128), slice(j * 128, j * 128 + 128)
            largest = np.abs(w[cut]).max()
            # e4m3 has 3 fraction bits: half a step is 1/16 of the value, or half of the smallest subnormal 2^-9
            assert np.all(np.abs(back[cut] - w[cut]) <= np.abs(w[cut]) / 16 + scales[i, j] * 2.0**-10 * 1.001)
            assert np.abs(back[cut]).max() == pytest.approx(largest, rel=1e-6)


def test_fp8_of_zeros_is_zero():
    codes, scales = q.fp8_encode(np.zeros((130, 5), np.float32))
    assert np.all(scales == 1) and not np.any(q.fp8_decode(codes, scales))


def test_fp8_encodes_its_own_grid_exactly():
    grid = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    grid = grid[np.isfinite(grid)][None]  # 448 is in it, so the scale is 1
    codes, scales = q.fp8_encode(grid)
    assert scales[0, 0] == 1 and np.array_equal(q.fp8_decode(codes, scales), grid)


@given(hnp.arrays(np.float32, (3, 64), elements=st.floats(-6, 6, width=32)))
def test_mxfp4_rounds_as_ml_dtypes_does(values):
    """With a 6 in every group the scale is 1, so the codes are plain E2M1 roundings."""
    values[:, ::32] = 6
    codes, scales = q.mxfp4_encode(values)
    assert np.all(scales == 127)
    assert np.array_equal(q.mxfp4_decode(codes, scales), values.astype(ml_dtypes.float4_e2m1fn).astype(np.float32))


def test_mxfp4_layout_low_nibble_is_the_even_index():
    w = np.zeros((1, 32), np.float32)
    w[0, :3] = 4, -0.5, 6
    codes, scales = q.mxfp4_encode(w)
    assert codes.shape == (1, 16) and codes[0, 0] & 15 == 6 and codes[0, 0] >> 4 == 9 and codes[0, 1] & 15 == 7
    assert scales[0, 0] == 127


@given(st.integers(0, 2**31), st.integers(-20, 20))
@settings(max_examples=30)
def test_mxfp4_scales_are_powers_of_two_of_the_group_and_rounding_is_stable(seed, power):
    w = (np.random.default_rng(seed).normal(size=(2, 5, 96)) * 2.0**power).astype(np.float32)
    codes, scales = q.mxfp4_encode(w)
    largest = np.abs(w.reshape(2, 5, 3, 32)).max(-1)
    assert np.array_equal(scales, np.floor(np.log2(largest)).astype(int) - 2 + 127)
    back = q.mxfp4_decode(codes, scales)
    step = np.exp2(scales.astype(np.float32) - 127).repeat(32, -1).reshape(w.shape)
    assert np.all(np.abs(back - w) <= 2 * step)  # 2 = what saturating 8 to 6 may cost; else at most 1
    again = q.mxfp4_decode(*q.mxfp4_encode(back))
    assert np.array_equal(again, back)


def test_bf16_is_ml_dtypes_rounding():
    w = np.random.default_rng(0).normal(size=100).astype(np.float32)
    assert np.array_equal(q.to_bf16(w), w.astype(ml_dtypes.bfloat16))
