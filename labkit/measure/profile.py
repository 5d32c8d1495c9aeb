"""Where the pocket engine's time goes, part by part, beside what bytes and arithmetic predict for each part.

The predictions use three probes of this machine and no measured step: the bandwidth of reading the engine's own
weights and nothing else, and every kernel on operands that stay in the caches, for one token and for four.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.options import Options
from labkit.roofline.cost import Component, experts_cached_s

TOKENS = 97
PROBES = 15  # tries of each piece; the fastest fifth counts, because others can only slow a probe down
ROUNDS = 10
CLEAN = 0.97  # CPU time / wall time of a burst from which on nobody else had the core
LEAST = 4  # bursts to go by when fewer were clean
# Which piece's probe prices a part, and how often a pass runs it: by layers of a kind
_PIECE = {
    "kda_projections": "kda",
    "kda_input": "kda",
    "kda_state": "kda",
    "mla_projections": "mla",
    "mla_attention": "mla",
    "router": "moe",
    "nextn_mix": "mix",
}


@dataclass(frozen=True)
class Profile:
    """plain, round: components with predictions and measurements, a pass each. bandwidth: B/s of reading alone.
    phases: those of a round one by one. overhead: share that timing adds to a step. cpu_share: CPU over wall time of
    the bursts that count; below CLEAN other programs had the core in between, and the measured times hold that too."""

    bandwidth: float
    plain: list[Component]
    round: list[Component]
    phases: dict[str, list[Component]]
    overhead: float
    cpu_share: float
    facts: dict


def run(prompts: Sequence[Sequence[int]], *, variant: str = "auto", dense: str = "auto") -> Profile:
    """Probe, then measure: one greedy burst of TOKENS tokens a prompt, plain and speculative (3 steps)."""
    base = {"moe_runner_backend": "jit", "fp8_lm_head": True, "kernel_variant": variant, "dense_dtype": dense}
    with (
        Engine(Options(**base)) as plain,
        Engine(Options(**base, speculative_algorithm="NEXTN")) as mtp,
    ):
        past = len(prompts[0]) + TOKENS // 2
        cached = {m: _cached(mtp, m, past) for m in (1, 4)}
        facts = plain.describe()
        reads = [facts["bytes_per_step"] / plain.stream(facts["bytes_per_step"], 1) for _ in range(PROBES)]
        for engine in (plain, mtp):
            _burst(engine, prompts[0])
        bursts = [_compared(plain, mtp, ids) for ids in prompts]
        bytes_, config = mtp.part_bytes(), mtp.config
    clean = [b for b in bursts if b.cpu_share >= CLEAN]
    bursts = clean if len(clean) >= LEAST else sorted(bursts, key=lambda b: -b.cpu_share)[:LEAST]
    measured = [b.parts for b in bursts]
    phases = {
        name: _components(name, [m[name] for m in measured], bytes_, cached, config)
        for name in measured[0]
        if all(name in m for m in measured)
    }
    overhead = float(np.median([b.timed_s / b.untimed_s for b in bursts]) - 1)
    round_ = _added([parts for name, parts in phases.items() if name != "plain"])
    return Profile(
        float(np.quantile(reads, 0.9)),
        phases["plain"],
        round_,
        phases,
        overhead,
        min(b.cpu_share for b in bursts),
        facts,
    )


@dataclass(frozen=True)
class _Burst:
    """One prompt on every arm: the parts of each phase, seconds a token of plain decode untimed and timed."""

    parts: dict[str, dict]
    untimed_s: float
    timed_s: float
    cpu_share: float


def _burst(engine: Engine, ids: Sequence[int]) -> tuple[float, float]:
    """Seconds a token, and the decoding thread's CPU time over wall time."""
    stats = engine.start(ids, Sampling(temperature=0, max_new_tokens=TOKENS, ignore_eos=True)).join(120)
    return stats.decode_s / (stats.completion_tokens - 1), stats.thread_cpu_s / stats.decode_s


def _compared(plain: Engine, mtp: Engine, ids: Sequence[int]) -> _Burst:
    untimed, share = _burst(plain, ids)
    parts, took, shares = {}, {}, [share]
    for engine in (plain, mtp):
        engine.time_parts(True)
        took[engine], share = _burst(engine, ids)
        engine.time_parts(False)
        parts |= {k: v for k, v in engine.part_times().items() if k != "prefill"}
        shares.append(share)
    return _Burst(parts, untimed, took[plain], min(shares))


def _cached(engine: Engine, tokens: int, past: int) -> dict[str, dict[str, float]]:
    """{piece: {part: seconds of one run}} on cached operands."""
    out = {}
    for piece in ("kda", "mla", "dense", "moe", "mix", "head"):
        tries = [engine.piece(piece, tokens, past, ROUNDS)["seconds"] for _ in range(PROBES)]
        out[piece] = {p: float(np.quantile([t[p] for t in tries], 0.2)) / ROUNDS for p in tries[0]}
    return out


def _components(name: str, seen: list[dict], bytes_: dict, cached: dict, config) -> list[Component]:
    """One phase's parts with medians over prompts. Draft passes run the NEXTN layer alone, the others all layers."""
    draft, tokens = name.startswith("draft"), 1 if name == "plain" or name.startswith("draft") else 4
    c, hot = config, cached[tokens]
    layers = [config.num_hidden_layers] if draft else range(config.num_hidden_layers)
    count = {
        "kda": sum(not c.is_mla(i) for i in layers),
        "mla": sum(c.is_mla(i) for i in layers),
        "moe": sum(c.is_moe(i) for i in layers),
        "dense": sum(not c.is_moe(i) for i in layers),
        "mix": int(draft),
    }
    experts = float(np.median([s["experts"] / s["passes"] for s in seen]))
    positions = float(np.median([s["positions"] / s["passes"] for s in seen]))
    weights = bytes_["draft" if draft else "step"]
    parts = []
    for part in weights:
        read = weights[part]
        if part == "experts":
            read = experts * bytes_["one"]["expert"]
            one, four = cached[1]["moe"][part], cached[4]["moe"][part]
            fast = experts_cached_s(
                one, four, c.num_experts_per_tok, experts, tokens * count["moe"] * c.num_experts_per_tok
            )
        elif part == "mlp":
            fast = count["moe"] * hot["moe"][part] + count["dense"] * hot["dense"][part]
        elif part == "head":
            fast = hot["head"][part] * c.vocab_size / 512
        elif part == "sampling":
            fast = hot["head"][part]
        elif part == "rest":
            fast = 0.0
        else:
            piece = _PIECE[part]
            fast = count[piece] * hot[piece][part]
        if part == "mla_attention":
            read = positions * bytes_["one"]["position"]
        measured = float(np.median([s["seconds"][part] / s["passes"] for s in seen]))
        if read or fast or measured:
            parts.append(Component(part, read, fast, measured))
    return parts


def _added(phases: list[list[Component]]) -> list[Component]:
    """Several phases' components as one list, part by part."""
    total: dict[str, Component] = {}
    for part in (p for parts in phases for p in parts):
        before = total.get(part.name, Component(part.name, 0, 0, 0))
        total[part.name] = Component(
            part.name,
            before.bytes_read + part.bytes_read,
            before.cached_s + part.cached_s,
            before.measured_s + part.measured_s,
        )
    return list(total.values())
