"""The engine's own 4-bit expert kernels on any shape, outside the engine: the same source and flags, in a loop in C."""

import ctypes
import mmap
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.errors import BadInput
from labkit.pocket import build

GROUP, TILE, ROW_STEP = 32, 16, 4  # columns that share a scale; rows of a jit tile; rows of a generic step
SCALE = 120  # E8M0 for 2^-7
KERNELS = ("generic", "jit")


def matrix_bytes(rows: int, columns: int) -> int:
    """Bytes of one MXFP4 matrix: a nibble a weight and a byte of scale a group. BadInput on half groups or tiles."""
    if columns % GROUP:
        raise BadInput("columns", columns, f"a multiple of {GROUP}")
    if rows % TILE:
        raise BadInput("rows", rows, f"a multiple of {TILE}")
    return rows * columns // 2 + rows * (columns // GROUP)


@dataclass
class PocketMoe:
    """`copies` MXFP4 matrices [rows, columns] times [tokens, columns] in huge pages, seeded, one thread.

    kernel "generic" (row-major, shapes at run time) or "jit" (tiles, compiled for this shape); variant as the engine's.
    """

    rows: int
    columns: int
    tokens: int
    copies: int
    kernel: str = "generic"
    variant: str = "auto"
    seed: int = 0

    def __post_init__(self):
        if self.kernel not in KERNELS:
            raise BadInput("kernel", self.kernel, ", ".join(KERNELS))
        self.variant = build.pick_variant(self.variant)
        stride = matrix_bytes(self.rows, self.columns)
        self.bytes, self.weights = self.copies * stride, self.copies * self.rows * self.columns
        rng = np.random.default_rng(self.seed)
        self._map = mmap.mmap(-1, self.bytes + 4096)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.matrices = np.frombuffer(self._map, np.uint8)[: self.bytes].reshape(self.copies, stride)
        for matrix in self.matrices:
            matrix[:] = rng.integers(0, 256, stride, np.uint8)
            self._scales(matrix)[:] = SCALE
        self.x = rng.standard_normal((self.tokens, self.columns)).astype(np.float32)
        self.y = np.zeros((self.copies, self.tokens, self.rows), np.float32)
        room = self.tokens * self.columns
        self._room = np.zeros(room, np.int8), np.zeros(room // GROUP, np.float32), np.zeros(room // GROUP, np.int32)
        pointers = [a.ctypes.data for a in (self.matrices, self.x, self.y, *self._room)]
        self._walk = self._library().walk
        self._walk.restype = None
        pointer, whole = ctypes.c_void_p, ctypes.c_int
        self._walk.argtypes = [pointer, ctypes.c_int64, whole, whole, whole, pointer, whole, *[pointer] * 4]
        self._arguments = [
            pointers[0],
            stride,
            self.copies,
            self.rows,
            self.columns,
            pointers[1],
            self.tokens,
            *pointers[2:],
        ]

    def _scales(self, matrix: np.ndarray) -> np.ndarray:
        """View of the scale bytes of one matrix [stride] in this kernel's layout."""
        groups = self.columns // GROUP
        if self.kernel == "generic":  # all codes, then all scales
            return matrix[self.rows * self.columns // 2 :]
        return matrix.reshape(self.rows // TILE, -1)[:, : groups * TILE]  # each tile's scales before its codes

    def _library(self) -> ctypes.CDLL:
        arguments = [
            *build.COMMON,
            f"-DVARIANT_{self.variant.upper()}",
            *build.FLAGS[self.variant],
            f"-I{build.SOURCES}",
            f'-DMOE_KERNEL="moe_{self.kernel}.c"',
            "-DRMS_EPS=1e-6f",
            f"-DMOE_HIDDEN={self.columns}",
            f"-DMOE_INTER={self.columns}",
            str(Path(__file__).parent / "walk.c"),
            "-lm",
        ]
        with tempfile.TemporaryDirectory(prefix="yardstick-") as folder:
            paths, _ = build.compile_units(build.find_compiler(), {"walk": arguments}, Path(folder))
            return build.load_library(paths["walk"])

    def product(self) -> np.ndarray:
        """[copies, tokens, rows] FP32: what the kernel computes, for checks."""
        self._walk(*self._arguments)
        return self.y

    def seconds(self) -> float:
        """Wall seconds of one walk through every matrix."""
        start = time.perf_counter()
        self._walk(*self._arguments)
        return time.perf_counter() - start
