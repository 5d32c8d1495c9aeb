"""Latency, time per token and throughput by GuideLLM beside the lab's client, on one server and the same requests.

    python -m venv /tmp/guidellm && /tmp/guidellm/bin/pip install guidellm
    python -m benchmarks.agreement.guidellm --tool /tmp/guidellm/bin/guidellm [--json]

The lab asks every prompt, then GuideLLM does (synchronous profile, /v1/completions), and so on in turns, the lab
first and last, so that a slow drift of the machine cancels. Of each prompt the median of all turns counts, so that
one disturbed request says nothing. Greedy, fixed length. GuideLLM's "inter token latency" is the lab's TPOT, its
"request latency" the lab's latency; throughput is all output tokens over the sum of the latencies. On two cores leave
the machine alone meanwhile: whichever client runs beside other programs measures those.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from labkit import workloads
from labkit.errors import LabError
from labkit.measure.client import generate
from labkit.pocket.options import SHIPPED_WEIGHTS
from labkit.workloads import Prompt

from .. import servers
from ..common import Paired, existing, machine, ran, run, version_in, whole

AGREE = 0.02
TOOL_S = 1800.0


def main(args: argparse.Namespace) -> dict:
    """Everything measured; raises BadInput and LabError."""
    tool = existing("tool", args.tool, "the path of guidellm")
    whole("requests", args.requests, 3, 1000)
    whole("output_tokens", args.output_tokens, 16, 4096)
    whole("rounds", args.rounds, 1, 100)
    asked = workloads.load(args.workload, count=args.requests, seed=1, output_tokens=args.output_tokens)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agreement-")))
        url = args.url or stack.enter_context(servers.pocket("pocket", args.arm, folder))
        ours(url, asked[:2])  # warm-up
        mine, theirs = [ours(url, asked)], []
        for _ in range(args.rounds):
            theirs.append(guidellm(tool, url, asked, folder))
            mine.append(ours(url, asked))
    figures = {name: compare(medians(theirs, name), medians(mine, name)) for name in ("tpot_s", "latency_s")}
    tokens = args.requests * args.output_tokens
    speed, own = (tokens / sum(medians(turns, "latency_s")) for turns in (theirs, mine))
    figures["output_tok_s"] = {"theirs": speed, "ours": own, "ratio": speed / own}
    return {
        "yardstick": "GuideLLM",
        "version": version_in(tool, "guidellm"),
        "machine": machine(),
        "load_average": os.getloadavg(),
        "server": args.url or f"pocket engine, {args.arm}",
        "workload": args.workload,
        "requests": args.requests,
        "output_tokens": args.output_tokens,
        "rounds": args.rounds,
        "figures": figures,
        "agree_within": AGREE,
        "agree": all(abs(f["ratio"] - 1) <= AGREE for f in figures.values()),
    }


def medians(turns: list[list[dict]], name: str) -> list[float]:
    """Of each prompt the median over turns, in the order of the prompts. turns: rows of one turn, prompt by prompt."""
    return [statistics.median(row[name] for row in rows) for rows in zip(*turns, strict=True)]


def compare(theirs: list[float], ours_: list[float]) -> dict:
    """Medians, and the median over prompts of theirs / ours."""
    pairs = Paired(tuple(ours_), tuple(theirs))
    return {
        "theirs_median": statistics.median(theirs),
        "ours_median": statistics.median(ours_),
        "ratio": pairs.ratio,
        "ratio_low": min(pairs.ratios),
        "ratio_high": max(pairs.ratios),
    }


def ours(url: str, asked: list[Prompt]) -> list[dict]:
    """The lab's times of each request, s."""
    out = []
    for prompt in asked:
        r = generate(url, text=prompt.text, sampling={**prompt.sampling, "max_new_tokens": prompt.max_new_tokens})
        if r.output_tokens != prompt.max_new_tokens:
            raise LabError(f"{r.output_tokens} tokens where {prompt.max_new_tokens} were asked for")
        out.append({"tpot_s": r.tpot_s, "latency_s": r.latency_s})
    return out


def guidellm(tool: Path, url: str, asked: list[Prompt], folder: Path) -> list[dict]:
    """GuideLLM's times of each request, s, in the order of the prompts."""
    data, saved = folder / "prompts.jsonl", folder / "report.json"
    saved.unlink(missing_ok=True)  # of the turn before
    data.write_text(
        "".join(json.dumps({"prompt": p.text, "output_tokens_count": p.max_new_tokens}) + "\n" for p in asked)
    )
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": "pocket",
        "request_format": "/v1/completions",
        "extras": {"body": {"temperature": 0, "ignore_eos": True}},
    }
    argv = [
        str(tool),
        "run",
        "--backend",
        json.dumps(backend),
        "--profile",
        "kind=synchronous",
        "--constraint",
        f"kind=max_requests,count={len(asked)}",
        "--data",
        f"kind=json_file,path={data}",
        "--tokenizer",
        f"kind=hf_auto,model={SHIPPED_WEIGHTS}",
        "--output",
        f"kind=json,path={saved}",
        "--disable-console",
    ]
    # One worker: on two cores every further process of a load tool is part of what it measures.
    env = os.environ | {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
    ran(argv, "guidellm", timeout_s=TOOL_S, env=env, wrote=saved.exists)
    requests = json.loads(saved.read_text())["benchmarks"][0]["requests"]
    good = {_prompt(r): r for r in requests["successful"]}
    if len(good) != len(asked) or any(p.text not in good for p in asked):
        raise LabError(f"guidellm: {len(good)} of {len(asked)} requests answered")
    out = []
    for p in asked:
        r = good[p.text]
        if r["output_tokens"] != p.max_new_tokens:
            raise LabError(f"guidellm: {r['output_tokens']} tokens where {p.max_new_tokens} were asked for")
        out.append({"tpot_s": r["inter_token_latency_ms"] / 1e3, "latency_s": r["request_latency"]})
    return out


def _prompt(request: dict) -> str:
    sent = json.loads(request["request_args"])["body"]
    if sent.get("temperature") != 0:
        raise LabError("guidellm: it did not send temperature 0")
    return sent["prompt"]


def show(result: dict) -> str:
    f = result["figures"]
    lines = [f"{result['requests']} requests of {result['output_tokens']} tokens on {result['server']}"]
    for name in ("tpot_s", "latency_s"):
        lines.append(
            f"{name:13} lab {1e3 * f[name]['ours_median']:.3f} ms, GuideLLM {1e3 * f[name]['theirs_median']:.3f} ms,"
            f" ratio {f[name]['ratio']:.3f} ({f[name]['ratio_low']:.3f} to {f[name]['ratio_high']:.3f})"
        )
    speed = f["output_tok_s"]
    lines.append(f"output_tok_s  lab {speed['ours']:.1f}, GuideLLM {speed['theirs']:.1f}, ratio {speed['ratio']:.3f}")
    return "\n".join([*lines, f"{'within' if result['agree'] else 'NOT within'} {result['agree_within']:.0%}"])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tool", required=True, metavar="PATH", help="guidellm, in whichever environment it is")
    made.add_argument("--workload", default="repetitive")
    made.add_argument("--requests", type=int, default=16)
    made.add_argument("--output-tokens", type=int, default=256)
    made.add_argument("--rounds", type=int, default=3, help="turns of GuideLLM, each between two of the lab")
    made.add_argument("--arm", default="fp8-head", help="setting of the pocket engine that is started")
    made.add_argument("--url", help="a server that runs already, with the pocket model")
    return made


if __name__ == "__main__":
    sys.exit(run(main, parser(), show))
