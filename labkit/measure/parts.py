"""What is probed of a pocket engine, piece by piece and kernel by kernel (labkit.measure.rates), each so short
that it can be repeated often."""

from collections.abc import Callable
from functools import partial

import numpy as np

from labkit.measure.sweeps import Took
from labkit.pocket import pieces
from labkit.pocket.engine import Engine

TOKENS = (1, 2, 3, 4, 5, 8)  # of a pass; from five to eight a second group of four fills, a line
MOST = 9  # tokens that a round of up to eight drafts verifies
PASTS = (64, 1024)  # positions before a token, for what attention takes for each
ROUNDS = 2  # of a piece in one probe, each in every layer that has it
HOT_BYTES = 4 << 20  # that one probe of a kernel multiplies by: long enough for a clock
HOT_ROWS = 512  # of a head that stays in a cache
IDS = tuple(range(5, 5 + 7 * MOST, 7))  # token ids, any that differ
DISTINCT = "distinct"  # beside a piece's seconds: experts of a layer that its tokens chose


class Probes:
    """What is probed of an engine: each probe a function that gives seconds."""

    def __init__(self, engine: Engine):
        self.engine, self.threads = engine, engine.options.threads
        self.between = engine.describe()["bytes_per_step"]
        self.matrices = pieces.matrices(engine.config, engine.options)
        every = [m for part in self.matrices.values() for ms in part.values() for m in ms]
        self.shapes = {kernel_name(m): m for m in every}
        largest = max(hot_tiles(m) * m.bytes // m.tiles for m in every)
        self.raw = np.full(largest + (64 << 10), 0x38, np.uint8)  # a plain number in every format

    def canaries(self) -> dict[str, Callable[[], float]]:
        """Reading alone, and a product on cached operands."""
        dense = self.matrices["kda"]["kda_projections"][0]
        return {"reading": lambda: self.engine.stream(self.between, 1), "arithmetic": lambda: self.product(dense, 4)}

    def all(self) -> dict[tuple, Callable[[], Took]]:
        """Probes by (what, name, tokens)."""
        every: dict[tuple, Callable[[], Took]] = {}
        for m in TOKENS:
            for name, matrix in self.shapes.items():
                every["kernel", name, m] = partial(self.product, matrix, m)
            for piece in self.matrices:
                if piece != "moe":
                    every["piece", piece, m] = partial(self.piece, piece, m, PASTS[0])
            every["far", "mla", m] = partial(self.piece, "mla", m, PASTS[1])
            for apart in sorted({1, min(3, m), m}):
                every["moe", apart, m] = partial(self.piece, "moe", m, PASTS[0], apart)
        return every

    def product(self, matrix: pieces.Matrix, m: int) -> float:
        """One product on operands that stay in a cache."""
        times = max(4, HOT_BYTES // matrix.bytes)
        took = self.engine.products(matrix.kernel, self.raw, [0] * times, hot_tiles(matrix), matrix.k, m)
        return took / times / self.threads

    def piece(self, piece: str, m: int, past: int, apart: int = 1) -> dict[str, float]:
        """A piece by parts, once in every layer that has it. apart: how many of the m tokens differ, and so choose
        other experts."""
        ids = [IDS[i % apart] for i in range(m)]
        found = self.engine.piece(piece, ids, past, ROUNDS, self.between)
        out = {part: s / ROUNDS for part, s in found["seconds"].items() if s}
        if piece != "moe":
            return out
        layers = pieces.layers(self.engine.config, draft=False)["moe"]
        return {**out, DISTINCT: found["experts"] / ROUNDS / layers}


def kernel_name(matrix: pieces.Matrix) -> str:
    """Kernel and shape, as Rates names them; the head as the part of it that stays in a cache."""
    return f"{matrix.kernel} {hot_tiles(matrix)} {matrix.k}"


def hot_tiles(matrix: pieces.Matrix) -> int:
    """Tiles of it that a probe on cached operands runs."""
    head = matrix.kernel in ("fp8 head", "bf16 head")
    return min(matrix.tiles, HOT_ROWS // pieces.TILE) if head else matrix.tiles
