"""The rates behind a predicted step, each from a probe of this machine: reading alone, every kernel's products on
operands in a cache (the instructions' sustained rate), and every piece of a pass alone, its weights from memory.

No probe runs a step. What a piece takes beyond the higher of its two roofs (bytes at the bandwidth of reading alone,
products at the cached rate) is its fixed part: norms, rounding, choices, first accesses, and what bytes and products
do not overlap.
"""

import hashlib
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labkit.measure import sweeps
from labkit.measure.parts import DISTINCT, Probes
from labkit.measure.probe import boot, cache_dir, cached, keep
from labkit.pocket.build import SOURCES
from labkit.pocket.engine import Engine
from labkit.pocket.options import Options

FRESH_S = 3600.0
DISTURBED_S = 300.0  # what was probed on a busy machine serves one walk or one panel, and is then asked again


@dataclass(frozen=True)
class Rates:
    """Seconds but for bandwidth (B/s, reading alone).

    kernels: {kernel and shape: {tokens: one product}}; pieces: {piece: {tokens: {part: once in all layers that have
    it, after PASTS[0] positions}}}; far: attention's part of that after PASTS[1] positions, by tokens; moe: {tokens:
    [the same of that piece, with the experts of a layer that the tokens chose as DISTINCT, fewest first]}. bytes_:
    Engine.part_bytes(). variant to threads: of the engine. disturbed: why the values hold other programs' work too, ""
    if they do not.
    """

    bandwidth: float
    kernels: dict[str, dict[int, float]]
    pieces: dict[str, dict[int, dict[str, float]]]
    far: dict[int, float]
    moe: dict[int, list[dict[str, float]]]
    bytes_: dict[str, dict[str, float]]
    variant: str
    dense: str
    threads: int
    disturbed: str
    measured_unix: float

    @classmethod
    def from_dict(cls, d: dict) -> "Rates":
        """The inverse of dataclasses.asdict, also after JSON, which makes words of numbers."""
        by_name = {n: {k: _numbered(by) for k, by in d[n].items()} for n in ("kernels", "pieces")}
        return cls(**{**d, **by_name, **{n: _numbered(d[n]) for n in ("far", "moe")}})

    def operations_s(self) -> dict[str, dict[int, float]]:
        """FLOP/s that each kernel sustains on cached operands, by tokens: its best shape."""
        out: dict[str, dict[int, float]] = {}
        for name, by in self.kernels.items():
            kernel, tiles, k = name.rsplit(" ", 2)
            mine = out.setdefault(kernel, {})
            for m, s in by.items():
                mine[m] = max(mine.get(m, 0.0), 2 * m * int(tiles) * 16 * int(k) / s)
        return out


def _numbered(by: dict) -> dict[int, dict | list | float]:
    return {int(m): s for m, s in by.items()}


def of(options: Options, *, fresh: bool = False) -> Rates:
    """The rates of an engine with these options; speculation makes no difference. Kept for an hour, five minutes where
    something disturbed the probes; `fresh` probes now. Takes some five seconds. Raises LabError where the engine cannot
    run."""
    mine = replace(
        options,
        speculative_algorithm="NEXTN",
        speculative_num_steps=None,
        speculative_eagle_topk=None,
        speculative_num_draft_tokens=None,
        speculative_token_map="0",
        simulate_acc_len=-1.0,
        random_seed=0,
        context_length=min(options.context_length, Options().context_length),
        faults=options.faults & {"moe-fallback"},
    )
    if fresh or mine not in _found or not _counts(_found[mine]):
        _found[mine] = (None if fresh else _kept(mine)) or _probe(mine)
    return _found[mine]


_found: dict[Options, Rates] = {}  # of this process


def _place(options: Options) -> Path:
    return cache_dir() / f"rates-{boot()}-{_digest(options)}.json"


def _kept(options: Options) -> Rates | None:
    """What was probed before and still counts."""
    try:
        kept = Rates.from_dict(cached(_place(options)))
        return kept if _counts(kept) else None
    except (TypeError, KeyError, ValueError, AttributeError):  # nothing, or of another version of the lab
        return None


def _counts(rates: Rates) -> bool:
    return time.time() - rates.measured_unix < (DISTURBED_S if rates.disturbed else FRESH_S)


def _probe(options: Options) -> Rates:
    with Engine(options) as engine:
        found = probed(engine)
    keep(_place(options), asdict(found))  # rates are rates, also where they cannot be kept
    return found


def _digest(options: Options) -> str:
    h = hashlib.sha256(repr(options).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        h.update(path.read_bytes())
    return h.hexdigest()[:16]


def probed(engine: Engine) -> Rates:
    """All rates of a running engine, which must have a NEXTN layer."""
    facts, probes = engine.describe(), Probes(engine)
    found = sweeps.swept(probes.all(), probes.canaries())
    kernels, alone, far, moe = {}, {}, {}, {}
    for (what, name, m), s in found.took.items():
        if what == "far":
            far[m] = s["mla_attention"]
        elif what == "moe":
            moe[m] = sorted([*moe.get(m, []), s], key=lambda by: by[DISTINCT])
        else:
            (kernels if what == "kernel" else alone).setdefault(name, {})[m] = s
    return Rates(
        facts["bytes_per_step"] / found.canaries["reading"],
        kernels,
        alone,
        far,
        moe,
        engine.part_bytes(),
        facts["kernel_variant"],
        facts["dense_dtype"],
        engine.options.threads,
        found.disturbed,
        time.time(),
    )
