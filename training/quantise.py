"""NumPy quantisers of the weight file: FP8 e4m3 in 128x128 blocks, MXFP4 in groups of 32, BF16; ties to even."""

import ml_dtypes
import numpy as np

BLOCK, GROUP = 128, 32
FP8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
FP8_MAX = 448.0
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
# Midpoints; a value on one goes to the neighbour with the even code, as IEEE rounding of E2M1 would.
_EDGES = (E2M1[1:] + E2M1[:-1]) / 2


def to_bf16(w: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(w, np.float32).astype(BF16)


def _blocks(scales: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Block scales [ceil(out/128), ceil(in/128)] spread over a matrix of `shape`."""
    return scales.repeat(BLOCK, 0).repeat(BLOCK, 1)[: shape[0], : shape[1]]


def fp8_encode(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[out, in] FP32 -> (e4m3 [out, in], scale_inv FP32 [ceil(out/128), ceil(in/128)]); w is about code * scale_inv.

    A block's scale puts its largest magnitude at 448. A block of zeros gets scale 1.
    """
    w = np.asarray(w, np.float32)
    rows, cols = -(-w.shape[0] // BLOCK), -(-w.shape[1] // BLOCK)
    padded = np.zeros((rows * BLOCK, cols * BLOCK), np.float32)
    padded[: w.shape[0], : w.shape[1]] = np.abs(w)
    largest = padded.reshape(rows, BLOCK, cols, BLOCK).max((1, 3))
    scales = np.where(largest > 0, largest / np.float32(FP8_MAX), 1).astype(np.float32)
    scaled = np.clip(w / _blocks(scales, w.shape), -FP8_MAX, FP8_MAX)
    return scaled.astype(FP8), scales


def fp8_decode(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return codes.astype(np.float32) * _blocks(scales, codes.shape)


def mxfp4_encode(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[..., n] FP32, n a multiple of 32 -> (codes U8 [..., n/2], scales U8 [..., n/32]).

    Low nibble = even index; code = E2M1 with bit 3 the sign; scale byte s stands for 2^(s-127). The scale is the OCP MX
    choice: 2^(floor(log2 max) - 2), so values above 6 scale units saturate at 6.
    """
    w = np.asarray(w, np.float32)
    groups = w.reshape(*w.shape[:-1], -1, GROUP)
    largest = np.abs(groups).max(-1)
    exponent = np.where(largest > 0, np.frexp(largest)[1] - 1 - 2, -127)  # frexp: largest = m * 2^e, m in [0.5, 1)
    exponent = np.clip(exponent, -127, 127)
    y = np.abs(groups) / np.exp2(exponent.astype(np.float32))[..., None]
    below, above = np.searchsorted(_EDGES, y, "left"), np.searchsorted(_EDGES, y, "right")
    code = np.where(below % 2 == 0, below, above).astype(np.uint8)  # they differ only on a midpoint
    code |= (groups < 0).astype(np.uint8) << 3
    code = code.reshape(w.shape)
    return code[..., 0::2] | code[..., 1::2] << 4, (exponent + 127).astype(np.uint8)


def mxfp4_decode(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """(codes U8 [..., n/2], scales U8 [..., n/32]) -> FP32 [..., n]."""
    code = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
    value = E2M1[code & 7] * np.where(code & 8, np.float32(-1), np.float32(1))
    groups = value.reshape(*scales.shape, GROUP) * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return groups.reshape(code.shape).astype(np.float32)
