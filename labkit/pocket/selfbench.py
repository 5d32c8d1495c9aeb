"""The pocket engine's speed as ratios: every arm decodes the same prompts, in turns, in one process and one run."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.options import Options

CLEAN = 0.97  # CPU time / wall time of a burst from which on nobody else had the core
CLEAN_ROUNDS = 8  # clean rounds wanted before wall time is believed
STREAM_PASSES = 6

_JIT = {"moe_runner_backend": "jit"}
_FP8 = {**_JIT, "fp8_lm_head": True}
_MTP = {**_FP8, "speculative_algorithm": "NEXTN"}
ARMS = {
    "generic": {},
    "jit": _JIT,
    "fp8-head": _FP8,
    "mtp": _MTP,
    "mtp-2048-drafts": {**_MTP, "speculative_token_map": "2048"},  # an optimisation of its own
}
MORE_ARMS = {  # --full: the choices behind the defaults
    "fp8-dense": {**_JIT, "dense_dtype": "fp8"},
    "fp8-dense-fp8-head": {**_FP8, "dense_dtype": "fp8"},
    "fp8-dense-mtp": {**_MTP, "dense_dtype": "fp8"},
    "int8-dense": {**_JIT, "dense_dtype": "int8"},
    "int8-dense-fp8-head": {**_FP8, "dense_dtype": "int8"},
    "int8-dense-mtp": {**_MTP, "dense_dtype": "int8"},
    "bf16-dense": {**_JIT, "dense_dtype": "bf16"},
    "bf16-dense-fp8-head": {**_FP8, "dense_dtype": "bf16"},
    "bf16-dense-mtp": {**_MTP, "dense_dtype": "bf16"},
    "tree": {**_MTP, "speculative_num_steps": 3, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 8},
}


@dataclass
class Samples:
    """Rows [round] of one arm: seconds per token and per pass, by wall clock and by the thread's CPU time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    pass_wall: list[float] = field(default_factory=list)
    pass_cpu: list[float] = field(default_factory=list)
    tokens: int = 0
    passes: int = 0
    prefill_tok_s: list[float] = field(default_factory=list)


@dataclass
class Bench:
    """What `run` measured; `ratio` reads it."""

    samples: dict[str, Samples]
    stream_wall: list[float]  # GB/s of a plain read of the arena, one per round
    stream_cpu: list[float]
    facts: dict[str, dict]
    clock: str
    rounds: int
    clean: np.ndarray  # rounds that count

    def values(self, arm: str, what: str = "token") -> np.ndarray:
        s = self.samples[arm]
        series = {"token": (s.wall, s.cpu), "pass": (s.pass_wall, s.pass_cpu)}[what]
        return np.array(series[self.clock == "cpu"])[self.clean]

    def stream(self) -> np.ndarray:
        return np.array(self.stream_cpu if self.clock == "cpu" else self.stream_wall)[self.clean]

    def accept_length(self, arm: str) -> float:
        s = self.samples[arm]
        return s.tokens / s.passes


def interval(values: np.ndarray, seed: int = 0, draws: int = 2000) -> dict:
    """Median of per-round ratios and its 95% bootstrap interval."""
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(values, (draws, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return {"median": float(np.median(values)), "low": float(low), "high": float(high)}


def _burst(engine: Engine, ids: Sequence[int], tokens: int, into: Samples | None) -> None:
    stats = engine.start(ids, Sampling(temperature=0, max_new_tokens=tokens, ignore_eos=True)).join(120)
    if into is None:
        return
    made, passes = stats.completion_tokens - 1, stats.verify_ct or stats.completion_tokens - 1
    into.wall.append(stats.decode_s / made)
    into.cpu.append(stats.thread_cpu_s / made)
    into.pass_wall.append(stats.decode_s / passes)
    into.pass_cpu.append(stats.thread_cpu_s / passes)
    into.tokens += made
    into.passes += passes
    into.prefill_tok_s.append(stats.prompt_tokens / stats.prefill_s)


def _stream(engine: Engine) -> tuple[float, float]:
    """GB/s at which one step's bytes are read and nothing else, by wall and by CPU time: the best of a few passes."""
    size, wall, cpu = engine.describe()["bytes_per_step"], [], []
    for _ in range(STREAM_PASSES):
        began = time.thread_time()
        wall.append(engine.stream(size, 1))
        cpu.append(time.thread_time() - began)
    return size / min(wall) / 1e9, size / min(cpu) / 1e9


def run(
    prompts: Sequence[Sequence[int]],
    *,
    tokens: int = 97,
    arms: dict[str, dict] | None = None,
    base: dict | None = None,
    budget_s: float = 150.0,
    between: Callable[[int], None] | None = None,
) -> Bench:
    """Decode every prompt on every arm, `tokens` each, arms in turns and each round in another order.

    Stops after the last prompt, or when `budget_s` is spent (never before CLEAN_ROUNDS rounds). `between(round)` runs
    after each round.
    """
    arms = ARMS if arms is None else arms
    engines = {name: Engine(Options(**{**(base or {}), **flags})) for name, flags in arms.items()}
    samples, streams = {name: Samples() for name in engines}, []
    try:
        for engine in engines.values():
            for _ in range(2):
                _burst(engine, prompts[0], tokens, None)
        began, names = time.monotonic(), list(engines)
        for i, ids in enumerate(prompts):
            if i >= CLEAN_ROUNDS and time.monotonic() - began > budget_s:
                break
            for name in names[i % len(names) :] + names[: i % len(names)]:
                _burst(engines[name], ids, tokens, samples[name])
            streams.append(_stream(next(iter(engines.values()))))
            if between:
                between(i)
        facts = {name: engine.describe() for name, engine in engines.items()}
    finally:
        for engine in engines.values():
            engine.close()
    rounds = len(streams)
    shares = np.array([[c / w for c, w in zip(s.cpu, s.wall, strict=True)] for s in samples.values()]).min(0)
    clean = shares >= CLEAN
    clock = "wall" if clean.sum() >= CLEAN_ROUNDS else "cpu"
    return Bench(
        samples,
        [w for w, _ in streams],
        [c for _, c in streams],
        facts,
        clock,
        rounds,
        clean if clock == "wall" else np.ones(rounds, bool),
    )


def ratios(b: Bench) -> dict[str, dict]:
    """The ratios that have targets, each with its interval."""
    plain, stream = b.values("jit"), b.stream()
    moved = b.facts["jit"]["bytes_per_step"] / plain / 1e9
    jit = b.samples["jit"]
    out = {
        "plain_over_stream": interval(moved / stream),
        # tokens per second read in by prefill over those made by decode, both by wall clock
        "prefill_over_decode": interval((np.array(jit.prefill_tok_s) * np.array(jit.wall))[b.clean]),
        "jit_over_generic": interval(b.values("generic") / plain),
        "fp8_over_bf16_head": interval(plain / b.values("fp8-head")),
        "mtp_over_plain": interval(b.values("fp8-head") / b.values("mtp")),
        "all_over_baseline": interval(b.values("generic") / b.values("mtp")),
        "c4": interval(b.values("mtp", "pass") / b.values("fp8-head")),
    }
    reduced = "mtp-2048-drafts"
    if reduced in b.samples:
        out["c4_draft_vocabulary_2048"] = interval(b.values(reduced, "pass") / b.values("fp8-head"))
        out["all_draft_vocabulary_2048"] = interval(b.values("generic") / b.values(reduced))
    return out
