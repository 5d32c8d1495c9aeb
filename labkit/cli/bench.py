"""`labkit bench`: TPOT, TTFT and accept length of a running server, with intervals."""

import argparse
import json
from typing import TYPE_CHECKING

from labkit.cli import _turn

if TYPE_CHECKING:
    from labkit.params import Params

HELP = "measure a running server: TPOT, TTFT, accept length with intervals"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labkit.workloads import NAMES

    parser.add_argument(
        "--url", required=True, help="http://HOST:PORT; SGLang, llama.cpp, or OpenAI's routes (vLLM, ...)"
    )
    parser.add_argument("--model", help="which of its models, where the server has several")
    parser.add_argument("--workload", default="word-problems", help="one of " + ", ".join(NAMES))
    parser.add_argument("--repeats", default=5, help="measured passes over the prompts (default 5)")
    parser.add_argument("--count", default=4, help="distinct prompts (default 4)")
    parser.add_argument("--warmup", default=2, help="requests before the first measured one (default 2)")
    parser.add_argument("--prompt-tokens", help="exact prompt length; needs the model's tokenizer")
    parser.add_argument("--output-tokens", default=192, help="exact output length (default 192); 0: generate until EOS")
    parser.add_argument("--seed", default=1, help="seed of the prompts (default 1)")
    parser.add_argument("--tokenizer", help="tokenizer.json or model folder (default: the server's, where readable)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the server's key")
    parser.add_argument("--out", default="outputs", help="parent of the run's directory (default: outputs)")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit.measure import prompts
    from labkit.params import load_params

    plan = {n: getattr(args, n) for n in ("workload", "repeats", "count", "warmup", "prompt_tokens", "seed")}
    plan = {k: v for k, v in plan.items() if v is not None}
    plan |= {"output_tokens": None if str(args.output_tokens) == "0" else args.output_tokens, "out_dir": args.out}
    engine = {"engine": "attach", "url": args.url, "api_key_env": args.api_key_env}
    engine |= {"model": args.model} if args.model else {}
    params = load_params({"engine": engine, "tokenizer": args.tokenizer, **plan})
    prompts.check(params)
    with _turn.taken(args, urls=[params.engine.url]):
        return _measured(params, args.json)


def _measured(params: "Params", as_json: bool) -> int:
    from labkit.checks import benefit, judged
    from labkit.engines.attach import attach
    from labkit.measure import power
    from labkit.measure.pool import Pool
    from labkit.measure.results import Arm
    from labkit.measure.runner import Runner
    from labkit.records import RunWriter
    from labkit.records.writer import new_directory

    server = attach(params.engine)
    info = server.server_info()
    who = server.identity
    arm = Arm("bench", "the server as it runs", params.engine, params)
    runner = Runner(Pool(), check=judged.at_start)
    with RunWriter(new_directory(params.out_dir, f"bench-{who.engine}"), params.as_dict(), label="bench") as writer:
        with power.Meter() as meter:
            for _ in runner.run(runner.plan([arm]), writer):
                pass
        summary = runner.summary()["bench"]
        summary["joules_per_token"] = _joules(meter, runner.fresh["bench"], params.engine.url)
        summary |= {"engine": who.engine, "version": info.get("version"), "workload": params.workload}
        summary["warnings"] += runner.noticed.get("bench", [])
        rows = runner.fresh["bench"]
        known = judged.known_accept(rows, info)
        summary["warnings"] += benefit.alarms(benefit.Side("bench", rows, info, expected_accept=known))
        summary |= {
            "signs": list(who.signs),
            "dialect": server.dialect.name,
            "not_reported": list(server.found.missing),
        }
        if not who.known:
            summary["warnings"].append(f"the server could not be identified: {who.open}")
        # What the server resolved after the run: a restart under our feet would show here.
        after = server.server_info()
        if {k: after.get(k) for k in _IDENTITY} != {k: info.get(k) for k in _IDENTITY}:
            summary["warnings"].append("the server's settings changed during the run")
        writer.meta["summary"] = summary
    if as_json:
        print(json.dumps({**summary, "run": str(writer.directory)}))
        return 0
    for line in lines(summary):
        print(line)
    print(f"record: {writer.directory}")
    return 0


_IDENTITY = ("version", "model_path", "moe_runner_backend", "fp8_lm_head", "speculative_num_draft_tokens")


def _joules(meter, rows: list[dict], url: str) -> dict | None:
    """Joules per generated token by meter, warm-up and prompts included; None is "not measured": no meter can be read
    here, or the server runs on another machine, whose energy this one's meters do not see."""
    from urllib.parse import urlsplit

    from labkit.measure import power

    if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    tokens = sum(int(r.get("output_tokens") or 0) for r in rows)
    return {name: e.as_dict() for name, e in power.per_token(meter, tokens).items()} or None


def lines(s: dict) -> list[str]:
    """The summary as text; every number is measured."""
    from labkit.measure.stats import text

    t, first, accept = s["tpot_s"], s["ttft_s"], s["accept_length"]
    who = " ".join(filter(None, (s["engine"], s["version"])))
    out = [
        f"{who}, {s['workload']}: {s['requests']} requests in {t['repeats']} repeats",
        f"TPOT   {text(t, 1e3)} ms, spread between repeats {t['spread']:.1%}",
        f"TTFT   {text(first, 1e3)} ms",
        f"decode {s['decode_tok_s']:.1f} tok/s",
    ]
    if accept:
        out.append(f"accept length {text(accept)} tokens per verify step, round {text(s['round_s'], 1e3)} ms")
    out.append(f"protocol: {s['dialect']}; server identified by: {', '.join(s['signs']) or 'not established'}")
    if s["not_reported"]:
        out.append("not reported by this server: " + ", ".join(s["not_reported"]))
    energy = ", ".join(f"{e['value']:.3g} J ({name})" for name, e in (s.get("joules_per_token") or {}).items())
    out.append(f"energy per token {energy or 'not measured: no power meter of the server is readable by this user'}")
    return out + [f"warning: {w}" for w in s["warnings"]]
