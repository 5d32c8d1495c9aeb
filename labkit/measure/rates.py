"""The rates behind a predicted step, each from a probe of this machine: reading alone, every kernel's products on
operands in a cache (the instructions' sustained rate), and every piece of a pass alone.

No probe runs a step. A piece's own work beside its products (norms, rounding, choices) is what it takes on cached
operands less its products; what it adds when nothing of it is in a near cache, beyond its bytes at the sustained
bandwidth, is probed with one token and counted for any number of them.
"""

import hashlib
import itertools
import mmap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from labkit.measure.probe import CLEAN, boot, cache_dir, cached, keep
from labkit.pocket import pieces
from labkit.pocket.binding import PIECES
from labkit.pocket.build import SOURCES
from labkit.pocket.engine import Engine
from labkit.pocket.options import Options

TOKENS = tuple(range(1, 10))  # of a pass: what a round of up to eight drafts verifies
PASTS = (64, 1024)  # positions before a token, for what attention takes for each
TRIES, ROUNDS, COLD_ROUNDS = 7, 4, 3
FRESH_S = 3600.0
PAGE = 2 << 20  # a huge one


@dataclass(frozen=True)
class Rates:
    """Seconds but for bandwidth (B/s, reading alone).

    kernels: {kernel and shape: {tokens: one product}}; hot: {piece: {tokens: {part: one run on cached operands after
    PASTS[0] positions}}}; position: {tokens: attention's time for one more position of a layer}; gathered: {tokens: one
    expert's products where a token's experts are read from memory, chosen at random}; cold: {piece: {part: one run with
    one token, nothing in a near cache}}. bytes_: Engine.part_bytes(). variant to threads: of the engine.
    cpu_share: of the core that the probes had.
    """

    bandwidth: float
    kernels: dict[str, dict[int, float]]
    hot: dict[str, dict[int, dict[str, float]]]
    position: dict[int, float]
    gathered: dict[int, float]
    cold: dict[str, dict[str, float]]
    bytes_: dict[str, dict[str, float]]
    variant: str
    dense: str
    moe: str
    head: str
    threads: int
    cpu_share: float
    measured_unix: float

    @classmethod
    def from_dict(cls, d: dict) -> "Rates":
        """The inverse of dataclasses.asdict, also after JSON, which makes words of numbers."""
        by_name = {n: {k: _numbered(by) for k, by in d[n].items()} for n in ("kernels", "hot")}
        return cls(**{**d, **by_name, **{n: _numbered(d[n]) for n in ("position", "gathered")}})

    def operations_s(self) -> dict[str, dict[int, float]]:
        """FLOP/s that each kernel sustains on cached operands, by tokens: its best shape."""
        out: dict[str, dict[int, float]] = {}
        for name, by in self.kernels.items():
            kernel, tiles, k = name.rsplit(" ", 2)
            mine = out.setdefault(kernel, {})
            for m, s in by.items():
                mine[m] = max(mine.get(m, 0.0), 2 * m * int(tiles) * 16 * int(k) / s)
        return out


def _numbered(by: dict) -> dict[int, dict | float]:
    return {int(m): s for m, s in by.items()}


def of(options: Options, *, fresh: bool = False) -> Rates:
    """The rates of an engine with these options; speculation makes no difference. Kept for an hour; `fresh` probes now.
    Takes some five seconds, and one for an engine that differs in experts' kernels and head alone. Raises LabError
    where the engine cannot run."""
    mine = replace(
        options,
        speculative_algorithm="NEXTN",
        speculative_num_steps=None,
        speculative_eagle_topk=None,
        speculative_num_draft_tokens=None,
        speculative_token_map="0",
        simulate_acc_len=-1.0,
        random_seed=0,
        faults=options.faults & {"moe-fallback"},
    )
    if fresh:
        _found.clear()
    if mine not in _found:
        _found[mine] = (None if fresh else _kept(mine)) or _probe(mine)
    return _found[mine]


_found: dict[Options, Rates] = {}  # of this process


def _place(options: Options) -> Path:
    return cache_dir() / f"rates-{boot()}-{_digest(options)}.json"


def _kept(options: Options) -> Rates | None:
    """What was probed before and still counts."""
    try:
        kept = Rates.from_dict(cached(_place(options)))
        return kept if time.time() - kept.measured_unix < FRESH_S else None
    except (TypeError, KeyError, ValueError, AttributeError):  # nothing, or of another version of the lab
        return None


def _probe(options: Options) -> Rates:
    same = dict(moe_runner_backend="jit", fp8_lm_head=True, enable_fp32_lm_head=False, faults=frozenset())
    alike = next((r for o, r in _found.items() if replace(o, **same) == replace(options, **same)), None)
    with Engine(options) as engine:
        found = probed(engine, alike)
    keep(_place(options), asdict(found))  # rates are rates, also where they cannot be kept
    return found


def _digest(options: Options) -> str:
    h = hashlib.sha256(repr(options).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        h.update(path.read_bytes())
    return h.hexdigest()[:16]


def probed(engine: Engine, alike: Rates | None = None) -> Rates:
    """All rates of a running engine, which must have a NEXTN layer. alike: rates of one that differs in the experts'
    kernels and the head alone, so that only these are probed."""
    between, shares = engine.describe()["bytes_per_step"], []

    def clean(work: Callable[[], float | dict]) -> list:
        """TRIES results, without those during which others had the core where enough are left."""
        found = []
        for _ in range(TRIES):
            wall, cpu = time.perf_counter(), time.thread_time()
            got = work()
            found.append((got, (time.thread_time() - cpu) / (time.perf_counter() - wall)))
        shares.append(float(np.median([s for _, s in found])))
        kept = [x for x, s in found if s >= CLEAN]
        return kept if len(kept) >= 3 else [x for x, _ in sorted(found, key=lambda f: -f[1])[:3]]

    def stream() -> float:
        return engine.stream(between, 1)

    def run(piece: str, m: int, past: int = PASTS[0], cold: bool = False) -> dict[str, float]:
        rounds = COLD_ROUNDS if cold else ROUNDS
        tries = clean(lambda: engine.piece(piece, m, past, rounds, between if cold else 0)["seconds"])
        return {p: float(np.median([t[p] for t in tries])) / rounds for p in tries[0] if any(t[p] for t in tries)}

    reads = [between / s for _ in range(3) for s in clean(stream)] if alike is None else []
    kernels = _kernels(engine, clean, alike)
    again = PIECES if alike is None else ("moe", "head")
    hot = {piece: {m: run(piece, m) for m in TOKENS} if piece in again else alike.hot[piece] for piece in PIECES}
    cold = {piece: run(piece, 1, cold=True) if piece in again else alike.cold[piece] for piece in PIECES}
    if alike is None:
        far = {m: run("mla", m, PASTS[1])["mla_attention"] for m in TOKENS}
        position = {m: (far[m] - hot["mla"][m]["mla_attention"]) / (PASTS[1] - PASTS[0]) for m in TOKENS}
        reads += [between / s for s in clean(stream)]
    facts = engine.describe()
    return Rates(
        float(np.median(reads)) if alike is None else alike.bandwidth,
        kernels,
        hot,
        position if alike is None else alike.position,
        alike.gathered if alike is not None and alike.moe == facts["moe_kernels"] else _gathered(engine, clean),
        cold,
        engine.part_bytes(),
        facts["kernel_variant"],
        facts["dense_dtype"],
        facts["moe_kernels"],
        facts["lm_head_dtype"],
        engine.options.threads,
        float(np.median(shares)),
        time.time(),
    )


def kernel_name(matrix: pieces.Matrix) -> str:
    """Kernel and shape, as Rates names them; the head as the part of it that a piece runs."""
    return f"{matrix.kernel} {_tiles(matrix)} {matrix.k}"


def _tiles(matrix: pieces.Matrix) -> int:
    head = matrix.kernel in ("fp8 head", "bf16 head")
    return min(matrix.tiles, pieces.HEAD_PIECE_ROWS // pieces.TILE) if head else matrix.tiles


def _kernels(engine: Engine, clean: Callable, alike: Rates | None) -> dict[str, dict[int, float]]:
    """Every matrix shape of a pass on operands that stay in a cache: seconds of one product, by tokens."""
    parts = pieces.matrices(engine.config, engine.options).values()
    every = {kernel_name(m): m for part in parts for ms in part.values() for m in ms}
    raw = np.full(max(m.bytes for m in every.values()) + (64 << 10), 0x38, np.uint8)  # a plain number in every format
    raw = raw[-raw.ctypes.data % 64 + 64 :]

    def one(matrix: pieces.Matrix, m: int) -> float:
        times = max(4, (256 << 10) // matrix.bytes)
        tries = clean(lambda: engine.products(matrix.kernel, raw, [0] * times, _tiles(matrix), matrix.k, m))
        return float(np.median(tries)) / times / engine.options.threads

    known = {} if alike is None else dict(alike.kernels)
    if alike is not None and alike.moe != engine.describe()["moe_kernels"]:
        known = {n: by for n, by in known.items() if not n.startswith("expert")}
    return {n: known[n] if n in known else {m: one(x, m) for m in TOKENS} for n, x in every.items()}


def _gathered(engine: Engine, clean: Callable) -> dict[int, float]:
    """Seconds of one expert's products, read from memory as a token's experts are: some of each layer's, in ascending
    order, first all gates and ups, then all downs. By tokens."""
    c, (up, down) = engine.config, pieces.matrices(engine.config, engine.options)["moe"]["experts"]
    each, layers = up.bytes + down.bytes, c.num_hidden_layers - c.first_k_dense_replace
    region, rng = c.num_experts * each * layers, np.random.default_rng(0)
    size = 8 * engine.describe()["bytes_per_step"] // region * region + region  # before a place is read again
    held = mmap.mmap(-1, size + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        held.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(held, np.uint8)
    raw = raw[-raw.ctypes.data % PAGE :][: size + (64 << 10)]
    raw[:] = 0x38
    begins = itertools.cycle(range(0, size, region))

    def one(m: int) -> float:
        chosen = [rng.choice(c.num_experts, up.count, replace=False) + i * c.num_experts for i in range(layers)]
        at = next(begins) + np.sort(np.concatenate(chosen)) * each
        took = engine.products(up.kernel, raw, at, up.tiles, up.k, m)
        return (took + engine.products(down.kernel, raw, at + up.bytes, down.tiles, down.k, m)) / len(at)

    return {m: float(np.median(clean(lambda m=m: one(m)))) / engine.options.threads for m in range(1, 5)}
