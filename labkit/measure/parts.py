"""What is probed of a pocket engine, piece by piece and kernel by kernel (labkit.measure.rates), each so short
that it can be repeated often."""

import itertools
import mmap
from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from labkit.measure.sweeps import Took
from labkit.pocket import pieces
from labkit.pocket.binding import PIECES
from labkit.pocket.engine import Engine

TOKENS = tuple(range(1, 10))  # of a pass: what a round of up to eight drafts verifies
PASTS = (64, 1024)  # positions before a token, for what attention takes for each
COLD = (1, 2, 3, 4, 8)  # tokens with which a piece is probed that is in no cache
ROUNDS, COLD_ROUNDS = 16, 4  # of a piece in one probe
HOT_BYTES = 4 << 20  # that one probe of a kernel multiplies by: long enough for a clock
MOST_GATHERED = 4  # tokens
PAGE = 2 << 20  # a huge one


class Probes:
    """What is probed of an engine: each probe a function that gives seconds, and the memory that some of them read.
    known: kernels by name, of an engine that differs in the experts' kernels and the head alone, if there is one."""

    def __init__(self, engine: Engine, known: Collection[str] = ()):
        self.engine, self.known = engine, known
        self.between, self.threads = engine.describe()["bytes_per_step"], engine.options.threads
        self.matrices = pieces.matrices(engine.config, engine.options)
        every = [m for part in self.matrices.values() for ms in part.values() for m in ms]
        self.shapes = {kernel_name(m): m for m in every}
        c, (up, down) = engine.config, self.matrices["moe"]["experts"]
        self.layers, self.expert = c.num_hidden_layers - c.first_k_dense_replace, up.bytes + down.bytes
        self.region = c.num_experts * self.expert * self.layers
        size = 8 * self.between // self.region * self.region + self.region  # before a place is read again
        self._map = mmap.mmap(-1, size + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(self._map, np.uint8)
        self.raw = raw[-raw.ctypes.data % PAGE :][: size + (64 << 10)]
        self.raw[:] = 0x38  # a plain number in every format
        self.begins, self.rng = itertools.cycle(range(0, size, self.region)), np.random.default_rng(0)

    def __enter__(self) -> "Probes":
        return self

    def __exit__(self, *exc) -> None:
        self.raw = None
        self._map.close()

    def canaries(self) -> dict[str, Callable[[], float]]:
        """Reading alone, and a product on cached operands."""
        dense = self.matrices["kda"]["kda_projections"][0]
        return {"reading": lambda: self.engine.stream(self.between, 1), "arithmetic": lambda: self.product(dense, 4)}

    def all(self) -> dict[tuple, Callable[[], Took]]:
        """Probes by (what, name, tokens)."""
        again = ("moe", "head") if self.known else PIECES
        same_experts = any(name.startswith("expert") for name in self.known)
        every: dict[tuple, Callable[[], Took]] = {}
        for m in TOKENS:
            for name, matrix in self.shapes.items():
                if name not in self.known:
                    every["kernel", name, m] = partial(self.product, matrix, m)
            for piece in again:
                every["hot", piece, m] = partial(self.piece, piece, m, PASTS[0])
            if not self.known:
                every["far", "mla", m] = partial(self.piece, "mla", m, PASTS[1])
            if not same_experts:
                every["together", "", m] = partial(self.together, m)
                if m <= MOST_GATHERED:
                    every["gathered", "", m] = partial(self.gathered, m)
        return every | {("cold", p, m): partial(self.piece, p, m, PASTS[0], True) for p in again for m in COLD}

    def product(self, matrix: pieces.Matrix, m: int) -> float:
        """One product on operands that stay in a cache."""
        times = max(4, HOT_BYTES // matrix.bytes)
        took = self.engine.products(matrix.kernel, self.raw, [0] * times, _tiles(matrix), matrix.k, m)
        return took / times / self.threads

    def piece(self, piece: str, m: int, past: int, cold: bool = False) -> dict[str, float]:
        """One run of a piece by parts."""
        rounds = COLD_ROUNDS if cold else ROUNDS
        took = self.engine.piece(piece, m, past, rounds, self.between if cold else 0)["seconds"]
        return {part: s / rounds for part, s in took.items() if s}

    def gathered(self, m: int) -> float:
        """One expert's products, read from memory as a token's experts are: some of each layer's, in ascending order,
        first all gates and ups, then all downs."""
        c, count = self.engine.config, self.matrices["moe"]["experts"][0].count
        chosen = [self.rng.choice(c.num_experts, count, replace=False) + i * c.num_experts for i in range(self.layers)]
        return self._experts(next(self.begins) + np.sort(np.concatenate(chosen)) * self.expert, m)

    def together(self, m: int) -> float:
        """One expert's products where one layer's experts of a token are in a cache, all of them, as in a piece."""
        at = np.arange(self.matrices["moe"]["experts"][0].count) * self.expert
        return float(np.mean([self._experts(at, m) for _ in range(ROUNDS + 1)][1:]))

    def _experts(self, at: np.ndarray, m: int) -> float:
        up, down = self.matrices["moe"]["experts"]
        took = self.engine.products(up.kernel, self.raw, at, up.tiles, up.k, m)
        took += self.engine.products(down.kernel, self.raw, at + up.bytes, down.tiles, down.k, m)
        return took / len(at) / self.threads


def kernel_name(matrix: pieces.Matrix) -> str:
    """Kernel and shape, as Rates names them; the head as the part of it that a piece runs."""
    return f"{matrix.kernel} {_tiles(matrix)} {matrix.k}"


def _tiles(matrix: pieces.Matrix) -> int:
    head = matrix.kernel in ("fp8 head", "bf16 head")
    return min(matrix.tiles, pieces.HEAD_PIECE_ROWS // pieces.TILE) if head else matrix.tiles
