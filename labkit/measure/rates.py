"""The rates behind a predicted step, each from a probe of this machine: reading alone, every kernel's products on
operands in a cache (the instructions' sustained rate), and every piece of a pass alone.

No probe runs a step. A piece's own work beside its products (norms, rounding, choices) is what it takes on cached
operands less its products; what it adds when nothing of it is in a near cache, beyond its bytes at the sustained
bandwidth, is probed with some numbers of tokens: their activations and states come from far too.
"""

import hashlib
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labkit.measure import sweeps
from labkit.measure.parts import PASTS, Probes
from labkit.measure.probe import boot, cache_dir, cached, keep
from labkit.pocket.build import SOURCES
from labkit.pocket.engine import Engine
from labkit.pocket.options import Options

ANOTHER = 0.05  # of memory's speed: what was probed at another counts no longer
FRESH_S = 3600.0
DISTURBED_S = 300.0  # what was probed on a busy machine serves one walk or one panel, and is then asked again


@dataclass(frozen=True)
class Rates:
    """Seconds but for bandwidth (B/s, reading alone).

    kernels: {kernel and shape: {tokens: one product}}; hot: {piece: {tokens: {part: one run on cached operands after
    PASTS[0] positions}}}; position: {tokens: attention's time for one more position of a layer}; gathered: {tokens: one
    expert's products where a token's experts are read from memory, chosen at random}; cold: {piece: {tokens: {part: one
    run with nothing in a near cache}}}. bytes_: Engine.part_bytes(). variant to threads: of the engine.
    disturbed: why the values hold other programs' work too, "" if they do not.
    """

    bandwidth: float
    kernels: dict[str, dict[int, float]]
    hot: dict[str, dict[int, dict[str, float]]]
    position: dict[int, float]
    gathered: dict[int, float]
    together: dict[int, float]
    cold: dict[str, dict[int, dict[str, float]]]
    bytes_: dict[str, dict[str, float]]
    variant: str
    dense: str
    moe: str
    head: str
    threads: int
    disturbed: str
    measured_unix: float

    @classmethod
    def from_dict(cls, d: dict) -> "Rates":
        """The inverse of dataclasses.asdict, also after JSON, which makes words of numbers."""
        by_name = {n: {k: _numbered(by) for k, by in d[n].items()} for n in ("kernels", "hot", "cold")}
        return cls(**{**d, **by_name, **{n: _numbered(d[n]) for n in ("position", "gathered", "together")}})

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
    """The rates of an engine with these options; speculation makes no difference. Kept for an hour, five minutes where
    something disturbed the probes; `fresh` probes now. Takes some ten seconds, and three for an engine that differs
    in experts' kernels and head alone. Raises LabError where the engine cannot run."""
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
    if fresh:
        _found.clear()
    if mine not in _found or not _counts(_found[mine]):
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
    same = dict(moe_runner_backend="jit", fp8_lm_head=True, enable_fp32_lm_head=False, faults=frozenset())
    known = [r for o, r in _found.items() if replace(o, **same) == replace(options, **same)]
    usable = [r for r in known if _counts(r) and not r.disturbed]
    moe = "jit" if options.runs_jit else "generic"
    alike = max(usable, key=lambda r: r.moe == moe, default=None)  # one with the same experts' kernels spares theirs
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
    kernels and the head alone, so that only these are probed, unless memory has another speed by now."""
    facts, known = engine.describe(), {}
    if alike is not None:
        same_experts = alike.moe == facts["moe_kernels"]
        known = {n: by for n, by in alike.kernels.items() if same_experts or not n.startswith("expert")}
    with Probes(engine, known) as probes:
        found = sweeps.swept(probes.all(), probes.canaries())
    bandwidth = facts["bytes_per_step"] / found.canaries["reading"]
    if alike is not None and abs(bandwidth / alike.bandwidth - 1) > ANOTHER:
        return probed(engine)
    hot, cold, kernels = (dict(x) for x in ((alike.hot, alike.cold, known) if alike else ({}, {}, {})))
    gathered, together = (dict(x) for x in ((alike.gathered, alike.together) if alike and same_experts else ({}, {})))
    for (what, name, m), s in found.took.items():
        if what in ("gathered", "together"):
            (gathered if what == "gathered" else together)[m] = s
        elif what != "far":
            mine = {"kernel": kernels, "hot": hot, "cold": cold}[what]
            mine[name] = {**mine.get(name, {}), m: s}
    far = {m: s["mla_attention"] for (what, _, m), s in found.took.items() if what == "far"}
    position = {m: (s - hot["mla"][m]["mla_attention"]) / (PASTS[1] - PASTS[0]) for m, s in far.items()}
    return Rates(
        bandwidth if alike is None else alike.bandwidth,
        kernels,
        hot,
        position or alike.position,
        gathered,
        together,
        cold,
        engine.part_bytes(),
        facts["kernel_variant"],
        facts["dense_dtype"],
        facts["moe_kernels"],
        facts["lm_head_dtype"],
        engine.options.threads,
        found.disturbed,
        alike.measured_unix if alike else time.time(),  # no younger than what was lent
    )
