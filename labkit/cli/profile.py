"""`labkit profile`: where a step's time goes: pocket parts beside two roofs, or the kernels of a live SGLang."""

import argparse
import json
from typing import TYPE_CHECKING

from labkit.cli import _turn

if TYPE_CHECKING:
    from labkit.measure.profile import Profile
    from labkit.roofline.cost import Component

BUSY = "the machine was busy: decoding had its core {:.0%} of the time, so measured times hold other programs' time too"
HELP = "where a step's time goes by component: the pocket engine's beside predictions, or a live SGLang's by kernel"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompts", type=int, default=12, help="prompts measured, plain and with MTP (default 12)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompts")
    parser.add_argument("--kernel-variant", default="auto", help="kernels (default: this machine's best)")
    parser.add_argument("--dense-dtype", default="auto", help="dense weights: auto, fp8, bf16 or int8")
    _turn.add_arguments(parser)
    parser.add_argument("--steps", type=int, default=3, help="draft steps of a round, 1 to 8 (default 3)")
    parser.add_argument("--html", metavar="FILE", help="also write the figures as one offline HTML page")
    parser.add_argument("--png", metavar="FILE", help="also write the stacked parts as a picture")
    parser.add_argument("--url", help="a running SGLang on this machine instead: its own profiler, summed by kernel")
    parser.add_argument("--api-key-env", metavar="NAME", help="with --url: environment variable that holds its key")


def main(args: argparse.Namespace) -> int:
    from labkit import disk
    from labkit.errors import BadInput

    if args.url:
        with _turn.taken(args, urls=[args.url]):
            result = on_gpu(args.url, args.api_key_env)
        print(json.dumps(result, indent=1) if args.json else gpu_table(result))
        return 0
    if not 1 <= args.prompts <= 1000:
        raise BadInput("prompts", args.prompts, "1 to 1000")
    if not 1 <= args.steps <= 8:
        raise BadInput("steps", args.steps, "1 to 8")
    for name in ("html", "png"):
        if getattr(args, name):
            disk.place(getattr(args, name), name)  # before minutes of measuring
    with _turn.taken(args):
        found = profiled(args.prompts, args.seed, args.kernel_variant, args.dense_dtype, args.steps)
    result = document(found)
    draw(found, args.html, args.png)
    print(json.dumps(result, indent=1) if args.json else table(result))
    return 0


def profiled(prompts: int, seed: int, variant: str = "auto", dense: str = "auto", steps: int = 3) -> "Profile":
    """Predict, then measure, on the shipped model."""
    from tokenizers import Tokenizer

    from labkit.measure import profile
    from labkit.pocket.options import SHIPPED_WEIGHTS, Options
    from labkit.workloads import load

    options = Options(
        moe_runner_backend="jit",
        fp8_lm_head=True,
        kernel_variant=variant,
        dense_dtype=dense,
        speculative_algorithm="NEXTN",
        speculative_num_steps=steps,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=steps + 1,
    )
    tokenizer = Tokenizer.from_file(str(SHIPPED_WEIGHTS / "tokenizer.json"))
    texts = load("repetitive", count=prompts, seed=seed)
    return profile.run([tokenizer.encode(t.text).ids for t in texts], options)


def document(p: "Profile") -> dict:
    """What --json prints; seconds, bytes, B/s, FLOP/s."""
    from labkit.measure.probe import CLEAN
    from labkit.roofline.cost import c_of, pass_s

    measured = {
        name: sum(part.measured_s for part in parts) for name, parts in (("plain", p.plain), ("round", p.round))
    }
    c = measured["round"] / measured["plain"]
    return {
        "bandwidth_bytes_s": p.bandwidth,
        "kernels_flop_s": p.rates.operations_s(),
        "timing_overhead": p.overhead,
        "kernel_variant": p.facts["kernel_variant"],
        "dense_dtype": p.facts["dense_dtype"],
        "threads": p.facts["threads"],
        "cpu_share": p.cpu_share,
        "disturbed": p.rates.disturbed,
        "warnings": [
            *([] if p.cpu_share >= CLEAN else [BUSY.format(p.cpu_share)]),
            *([f"predictions rest on rates {p.rates.disturbed}"] if p.rates.disturbed else []),
        ],
        "plain": _pass(p.plain, p.bandwidth),
        "round": _pass(p.round, p.bandwidth),
        "phases": {name: _pass(parts, p.bandwidth) for name, parts in p.phases.items()},
        "c": {
            "measured": c,
            "bytes": c_of(p.plain, p.round, p.bandwidth, bytes_alone=True),
            "both_roofs": c_of(p.plain, p.round, p.bandwidth),
            "error": c_of(p.plain, p.round, p.bandwidth) / c - 1,
        },
        "step_error": pass_s(p.plain, p.bandwidth) / measured["plain"] - 1,
        "round_error": pass_s(p.round, p.bandwidth) / measured["round"] - 1,
    }


def draw(p: "Profile", html: str | None, png: str | None) -> None:
    """Write the figures where asked. Raises disk.NoRoom."""
    if not (html or png):
        return
    from labkit import disk
    from labkit.figures import passes
    from labkit.figures.show import png as picture
    from labkit.report import alone

    stacked = passes.parts([("plain step", p.plain), ("round", p.round)], p.bandwidth)
    if png:
        with disk.whole(png) as part:
            part.write_bytes(picture(stacked))
    if html:
        rates = {name: max(by.values()) for name, by in p.rates.operations_s().items()}
        alone.write("Where a step's time goes", (stacked, passes.roofs(p.plain, p.bandwidth, rates)), html)


def on_gpu(url: str, api_key_env: str | None = None) -> dict:
    """Kernel times of a live SGLang's decode passes, seconds: as summed by engines.sglang.profile, with `groups`."""
    import tempfile
    from pathlib import Path

    from labkit.engines.attach import api_key
    from labkit.engines.config import EngineConfig
    from labkit.engines.sglang import profile
    from labkit.measure import traced
    from labkit.workloads import load

    server = EngineConfig.from_dict({"engine": "attach", "url": url, "api_key_env": api_key_env})
    (prompt,) = load("repetitive", count=1, seed=0)
    with tempfile.TemporaryDirectory(prefix="labkit-profile-") as folder:
        got = traced.capture(server.url, Path(folder), text=prompt.text, api_key=api_key(server))
    return {**got, "groups": profile.grouped(got["by_name"])}


def gpu_table(result: dict) -> str:
    """The document for people, microseconds per pass."""
    whole = sum(result["groups"].values())
    lines = [f"{'part of a decode pass':31s} {'us':>9s} {'share':>6s}"]
    lines += [f"{name:31s} {s * 1e6:9.1f} {s / whole:6.1%}" for name, s in result["groups"].items()]
    busy, span = result["busy_s"] * 1e6, result["span_s"] * 1e6
    return "\n".join(
        [
            *lines,
            f"{result['kernels_per_step']:.0f} kernels per pass; the GPU is busy for {busy:.0f} us of it and waits for "
            f"{span - busy:.0f} us under the profiler; kernels overlap, so their sum can exceed the busy time",
        ]
    )


def _pass(parts: "list[Component]", bandwidth: float) -> dict:
    from labkit.roofline.cost import largest_residual, pass_s

    worst = largest_residual(parts, bandwidth)
    return {
        "parts": [
            {
                "name": p.name,
                "measured_s": p.measured_s,
                "bytes": p.bytes_read,
                "by_bytes_s": p.memory_s(bandwidth),
                "by_arithmetic_s": p.kernel_s,
                "fixed_s": p.fixed_s,
                "operations": p.operations,
                "predicted_s": p.predicted_s(bandwidth),
                "bound": p.bound(bandwidth),
                "residual_s": p.measured_s - p.predicted_s(bandwidth),
            }
            for p in parts
        ],
        "measured_s": sum(p.measured_s for p in parts),
        "by_bytes_s": pass_s(parts, bandwidth, bytes_alone=True),
        "predicted_s": pass_s(parts, bandwidth),
        "largest_residual": worst.name,
    }


def table(result: dict) -> str:
    """The document for people, microseconds."""
    lines = []
    for title, one in (
        ("plain step", result["plain"]),
        (f"round of {len(result['phases']) - 2} drafts and a verify", result["round"]),
    ):
        lines += _rows(title, one)
    c = result["c"]
    return "\n".join(
        [
            *lines,
            f"c: measured {c['measured']:.2f}, by bytes {c['bytes']:.2f}, "
            f"by both roofs {c['both_roofs']:.2f} ({c['error']:+.1%})",
            f"error of the prediction: plain step {result['step_error']:+.1%}, round {result['round_error']:+.1%}",
            f"kernels {result['kernel_variant']}, dense {result['dense_dtype']}, {result['threads']} thread(s); "
            f"reading alone {result['bandwidth_bytes_s'] / 1e9:.1f} GB/s; "
            f"timing adds {result['timing_overhead']:+.1%} to a step",
            *(f"warning: {w}" for w in result["warnings"]),
        ]
    )


def _rows(title: str, one: dict) -> list[str]:
    out = [
        f"{title:31s} {'measured us':>11s} {'KB':>8s} {'by bytes':>9s} {'by arithm.':>10s} {'fixed':>7s} "
        f"{'predicted':>9s} {'residual':>9s}"
    ]
    for p in sorted(one["parts"], key=lambda p: -p["measured_s"]):
        out.append(
            f"  {p['name'].replace('_', ' '):29s} {p['measured_s'] * 1e6:11.1f} {p['bytes'] / 1e3:8.0f} "
            f"{p['by_bytes_s'] * 1e6:9.1f} {p['by_arithmetic_s'] * 1e6:10.1f} {p['fixed_s'] * 1e6:7.1f} "
            f"{p['predicted_s'] * 1e6:9.1f} {p['residual_s'] * 1e6:+9.1f}"
        )
    total = sum(p["bytes"] for p in one["parts"])
    out.append(
        f"  {'sum':29s} {one['measured_s'] * 1e6:11.1f} {total / 1e3:8.0f} {one['by_bytes_s'] * 1e6:9.1f} "
        f"{sum(p['by_arithmetic_s'] for p in one['parts']) * 1e6:10.1f} "
        f"{sum(p['fixed_s'] for p in one['parts']) * 1e6:7.1f} "
        f"{one['predicted_s'] * 1e6:9.1f} {(one['measured_s'] - one['predicted_s']) * 1e6:+9.1f}"
    )
    out += [f"  largest residual: {one['largest_residual'].replace('_', ' ')}", ""]
    return out
