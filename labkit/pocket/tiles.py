"""Weights in the order in which the kernels read them: tiles of 16 rows, and the number formats of the engine's own."""

import ml_dtypes
import numpy as np

TILE, BLOCK, GROUP = 16, 128, 32
E4M3_MAX = 448.0
E4M3_AS_BF16 = (
    np.arange(256, dtype=np.uint8)
    .view(ml_dtypes.float8_e4m3fn)
    .astype(np.float32)
    .astype(ml_dtypes.bfloat16)
    .view(np.uint16)
)
E4M3_VALUES = np.nan_to_num(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32))


def lanes(rows: np.ndarray) -> np.ndarray:
    """[N, ...] rows of 32-bit groups [N, G] -> tiles [N/16, G, 16]: what 16 rows need next lies side by side."""
    n, groups = rows.shape
    return np.ascontiguousarray(rows.reshape(n // TILE, TILE, groups).transpose(0, 2, 1))


def fp8_tiles(codes: np.ndarray) -> np.ndarray:
    """e4m3 codes uint8 [N, K] -> tiles of 16 rows, four k a lane, in simd.h's byte order."""
    n, k = codes.shape
    return lanes(np.ascontiguousarray(codes.reshape(n, k // 4, 4)[..., [3, 1, 2, 0]]).view(np.uint32)[..., 0])


def bf16_tiles(words: np.ndarray) -> np.ndarray:
    """bfloat16 bits uint16 [N, K] -> tiles of 16 rows, two k a lane, the first in its upper half."""
    n, k = words.shape
    return lanes(np.ascontiguousarray(words.reshape(n, k // 2, 2)[..., ::-1]).view(np.uint32)[..., 0])


def in_units(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e4m3 values [N, K] -> int8 [N, K] and their units float32 [N/16, K/128], one for each 16 rows by 128 columns.

    A unit is the smallest power of two in which the largest value is at most 127. A value of at least eight units, most
    of them as a rule, is then exact, as it would not be with a unit of largest / 127; a smaller one is rounded."""
    n, k = values.shape
    blocks = -(-k // BLOCK)
    padded = np.zeros((n, blocks * BLOCK), np.float32)
    padded[:, :k] = values
    tiles = padded.reshape(n // TILE, TILE, blocks, BLOCK)
    most = np.abs(tiles).max((1, 3))
    unit = np.exp2(np.ceil(np.log2(np.where(most > 0, most, 127) / 127))).astype(np.float32)
    whole = np.rint(tiles / unit[:, None, :, None]).reshape(n, -1)[:, :k]
    return whole.astype(np.int8), unit


def int8_tiles(values: np.ndarray) -> np.ndarray:
    """int8 [N, K] -> tiles of 16 rows, four k a lane, in k order."""
    return lanes(np.ascontiguousarray(values).view(np.uint32))


def f32_tiles(weight: np.ndarray) -> np.ndarray:
    """[N, K] float32, rows padded with zeros to a whole tile -> tiles of 16 rows, one k a lane."""
    padded = np.zeros((-(-len(weight) // TILE) * TILE, weight.shape[1]), np.float32)
    padded[: len(weight)] = weight
    return lanes(padded)


def in_turns(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two matrices [..., N, K] with their tiles in turns: 16 rows of a, 16 rows of b, ... [..., 2N, K]."""
    *lead, n, k = a.shape
    pair = np.stack([a.reshape(*lead, n // TILE, TILE, k), b.reshape(*lead, n // TILE, TILE, k)], -3)
    return pair.reshape(*lead, 2 * n, k)


def _nibbles(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)


def mxfp4_tiles(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """MXFP4 [N, K/2] (low nibble first) and scales [N, K/32] -> bytes of tiles: [K/32][16] scales, then per group of 32
    four times 16 rows x 4 bytes whose low nibbles are k 0-3 and whose high nibbles are k 4-7."""
    n, half = codes.shape
    v = _nibbles(codes).reshape(n, half // 4, 2, 4)
    packed = lanes(np.ascontiguousarray(v[:, :, 0] | v[:, :, 1] << 4).view(np.uint32)[..., 0])
    scale = scales.reshape(n // TILE, TILE, -1).transpose(0, 2, 1)
    return np.concatenate([scale.reshape(n // TILE, -1), packed.reshape(n // TILE, -1).view(np.uint8)], 1).ravel()


def mxfp4_rows(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The same weights row-major (generic kernel): byte i of a group holds elements i and i + 16; then scales."""
    n, half = codes.shape
    v = _nibbles(codes).reshape(n, half // 16, 2, 16)
    return np.concatenate([(v[:, :, 0] | v[:, :, 1] << 4).ravel(), np.ascontiguousarray(scales).ravel()])


def without_subnormals(codes: np.ndarray) -> np.ndarray:
    """e4m3 codes with the fourteen subnormal ones read as zero.

    They are below 2^-6 where a block's largest is 448, about one weight in ten thousand. The kernels decode a code by
    shifting it into a float's bits, where such a code is a subnormal float, and those cost many cores over a hundred
    cycles each."""
    return np.where(codes & 0x78, codes, 0).astype(np.uint8)


def quantise_head(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """BF16 head [V, D] -> e4m3 codes uint8 [V, D] and float32 scales [V]: each row's largest value becomes 448."""
    weight = words.view(ml_dtypes.bfloat16).astype(np.float32)
    scale = (np.abs(weight).max(1) / E4M3_MAX).astype(np.float32)
    scale[scale == 0] = 1
    codes = (weight / scale[:, None]).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return without_subnormals(codes), scale
