"""`labkit selfbench`: the pocket engine's speed as ratios, one interleaved run."""

import argparse
import json
import operator
import tempfile
from pathlib import Path

from labkit.cli import _turn

HELP = "the pocket engine's speed as ratios"
TARGETS = {  # what each ratio should reach; c4 and http_overhead should stay below
    "plain_over_stream": (">=", 0.8),
    "prefill_over_decode": (">=", 2.0),  # from measurements: 2.1 to 2.4 with AVX2, 3.9 with AVX512
    "jit_over_generic": (">=", 1.25),
    "fp8_over_bf16_head": (">=", 1.10),
    "mtp_over_plain": (">=", 1.5),
    "all_over_baseline": (">=", 2.3),
    "c4": ("<=", 2.0),
    "http_overhead": ("<", 0.03),
}
HTTP_TOKENS = 256
MEETS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="three times the rounds and more arms")
    parser.add_argument("--rounds", type=int, help="rounds (default 40, with --full 120)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompts")
    parser.add_argument("--kernel-variant", default="auto", help="kernels to measure (default: this machine's best)")
    parser.add_argument("--no-http", action="store_true", help="leave out the HTTP part")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit.errors import BadInput

    rounds = args.rounds or (120 if args.full else 40)
    if not 8 <= rounds <= 10_000:
        raise BadInput("rounds", args.rounds, "8 to 10000")
    with _turn.taken(args):
        result = measure(rounds, args.seed, full=args.full, http=not args.no_http, variant=args.kernel_variant)
    print(json.dumps(result, indent=1) if args.json else table(result))
    return 0


def measure(rounds: int, seed: int, *, full: bool = False, http: bool = True, variant: str = "auto") -> dict:
    """Run it all. -> the document that --json prints."""
    from tokenizers import Tokenizer

    from labkit.pocket import selfbench
    from labkit.pocket.options import SHIPPED_WEIGHTS
    from labkit.records import environment
    from labkit.workloads import load

    tokenizer = Tokenizer.from_file(str(SHIPPED_WEIGHTS / "tokenizer.json"))
    prompts = [tokenizer.encode(p.text).ids for p in load("repetitive", count=rounds, seed=seed)]
    arms = {**selfbench.ARMS, **(selfbench.MORE_ARMS if full else {})}
    bench = selfbench.run(prompts, arms=arms, base={"kernel_variant": variant}, budget_s=600 if full else 120)
    found, overhead = selfbench.ratios(bench), _http_overhead(prompts[: 60 if full else 24]) if http else None
    if overhead:
        found["http_overhead"] = overhead
    shares = [c / w for s in bench.samples.values() for c, w in zip(s.cpu, s.wall, strict=True)]
    share = sorted(shares)[len(shares) // 2]
    warnings = []
    if bench.clock == "cpu":
        warnings.append(
            f"the machine was busy: decoding had its core {share:.0%} of the time, so the ratios are of the decoding "
            "thread's CPU time; other programs' use of caches and memory is still in them"
        )
    return {
        "ratios": {k: round(v["median"], 4) for k, v in found.items()},
        "intervals": found,
        "targets": TARGETS,
        "clock": bench.clock,
        "rounds": bench.rounds,
        "rounds_used": int(bench.clean.sum()),
        "cpu_share": share,
        "workload": "repetitive, greedy, 97 tokens per burst",
        "stream_gb_s": float(sorted(bench.stream())[len(bench.stream()) // 2]),
        "arms": {
            name: {
                "tpot_s": selfbench.interval(bench.values(name)),
                "pass_s": selfbench.interval(bench.values(name, "pass")),
                "accept_length": bench.accept_length(name),
                "prefill_tok_s": sorted(s.prefill_tok_s)[len(s.prefill_tok_s) // 2],
                "bytes_per_step": bench.facts[name]["bytes_per_step"],
                "kernel_variant": bench.facts[name]["kernel_variant"],
                "dense_dtype": bench.facts[name]["dense_dtype"],
                "replicas": bench.facts[name]["replicas"],
            }
            for name, s in bench.samples.items()
        },
        "warnings": warnings,
        "environment": environment.capture(),
    }


def _http_overhead(prompts: list[list[int]]) -> dict:
    """TPOT through HTTP streaming over TPOT inside the process, minus 1; the two take turns on the same prompts."""
    import numpy as np

    from labkit.engines import process
    from labkit.engines.config import EngineConfig
    from labkit.measure import client
    from labkit.pocket import selfbench
    from labkit.pocket.engine import Engine, Sampling
    from labkit.pocket.options import Options

    sampling = {"temperature": 0, "max_new_tokens": HTTP_TOKENS, "ignore_eos": True}
    pairs = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine(Options(moe_runner_backend="jit", fp8_lm_head=True)) as engine,
        process.start(EngineConfig(moe_runner_backend="jit", fp8_lm_head=True), Path(folder), beside=True) as server,
    ):
        for ids in [prompts[0], *prompts]:  # the first warms up
            outside = client.generate(server.url, input_ids=ids, sampling=sampling)
            inside = engine.start(ids, Sampling(temperature=0, max_new_tokens=HTTP_TOKENS, ignore_eos=True)).join(120)
            pairs.append((outside.tpot_s, inside.decode_s / (HTTP_TOKENS - 1)))
    outside, inside = np.array(pairs[1:]).T
    return selfbench.interval(outside / inside - 1)


def table(result: dict) -> str:
    """The document for people."""
    lines = [f"{'ratio':34s} {'measured':>9s}  {'95% interval':17s} target"]
    for name, v in result["intervals"].items():
        sign, goal = result["targets"].get(name, ("", None))
        met = "" if goal is None else ("met" if MEETS[sign](v["median"], goal) else "NOT met")
        lines.append(
            f"{name:34s} {v['median']:9.3f}  {v['low']:.3f} .. {v['high']:.3f}    {sign} {goal or ''} {met}".rstrip()
        )
    lines.append("")
    for name, arm in result["arms"].items():
        t = arm["tpot_s"]
        lines.append(
            f"{name:28s} {t['median'] * 1e3:7.3f} ms/token   accept length {arm['accept_length']:.2f}   "
            f"prefill {arm['prefill_tok_s']:.0f} tok/s"
        )
    lines.append(
        f"\nread alone: {result['stream_gb_s']:.1f} GB/s; {result['rounds_used']} of {result['rounds']} rounds, "
        f"by {result['clock']} time; {result['workload']}"
    )
    return "\n".join(lines + [f"warning: {w}" for w in result["warnings"]])
