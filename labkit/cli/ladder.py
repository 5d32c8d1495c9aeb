"""`labkit ladder`: the arms of a ladder on one engine, one table."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.params import Params

HELP = "measure the arms of a ladder and say what each brings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--params", default=None, metavar="YAML", help="parameters (default: the pocket engine)")
    parser.add_argument("--gguf", metavar="FILE", help="llama.cpp's ladder on this model (instead of -f)")
    parser.add_argument("--workload", help="load to measure with")
    parser.add_argument("--count", help="distinct prompts")
    parser.add_argument("--repeats", help="measured passes over the prompts")
    parser.add_argument("--prompt-tokens", help="exact prompt length")
    parser.add_argument("--output-tokens", help="exact output length")
    parser.add_argument("--seed", help="seed of the prompts")
    parser.add_argument("--arms", help="comma-separated subset (default: all that are not broken on purpose)")
    parser.add_argument("--out", help="parent of the run's directory (default: outputs)")


def main(args: argparse.Namespace) -> int:
    from labkit.errors import BadInput
    from labkit.measure.ladder import climb
    from labkit.params import load_params
    from labkit.records import RunWriter
    from labkit.records.writer import new_directory

    changes = {n: getattr(args, n) for n in ("workload", "count", "repeats", "prompt_tokens", "output_tokens", "seed")}
    only = args.arms.split(",") if args.arms else None
    if args.gguf and args.params:
        raise BadInput("gguf", args.gguf, "nothing beside -f: the file names the model as engine.model")
    source = gguf_params(args.gguf) if args.gguf else args.params or {}
    params = load_params(source, **changes, only=only, out_dir=args.out)
    directory = new_directory(params.out_dir, f"ladder-{params.engine.engine}")

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    progress(forecast(params))
    with RunWriter(directory, params.as_dict(), label="ladder") as writer:
        arms = climb(params, writer, progress=progress)
        writer.meta["summary"] = {"ladder": arms}
    stop = next((r["stop"] for r in arms if r["stop"]), None)
    if args.json:
        print(json.dumps({"run": str(directory), "engine": params.engine.engine, "arms": arms, "stop": stop}))
        return 0
    for line in lines(arms):
        print(line)
    print(f"record: {directory}")
    return 0


def gguf_params(file: str) -> dict:
    """What `--gguf` stands for: llama.cpp's own ladder; the draft that is the model itself is this model."""
    from labkit.engines import ladder

    arms = [step.as_dict() for step in ladder.shipped("llamacpp")]
    for arm in arms:
        draft = arm.get("set", {}).get("speculative", {})
        if "draft_model_path" in draft:
            arm["set"]["speculative"] = {**draft, "draft_model_path": file}
    engine = {"engine": "llamacpp", "model": file, "context_length": 4096}
    return {"engine": engine, "arms": arms, "workload": "repetitive", "output_tokens": 96}


def forecast(params: "Params") -> str:
    """How long climbing will take, before it starts: engine starts, warm-ups and requests. Raises BadInput."""
    from labkit.engines import ladder
    from labkit.measure.pool import Pool
    from labkit.measure.results import Arm
    from labkit.measure.runner import Runner
    from labkit.notebook.render import minutes

    chosen = ladder.choose(params.ladder(), params.only)
    arms = [Arm(a.name, a.title, a.config, params.replace(engine=a.config, arms=None, only=())) for a in chosen]
    runner = Runner(Pool())
    blocks = runner.plan(arms)
    seconds, _ = runner.seconds(blocks)
    requests = sum(b.requests for b in blocks)
    return f"about {minutes(seconds)} for {requests} requests on {len(arms)} arms (a first estimate from bytes)"


def lines(arms: list[dict]) -> list[str]:
    """The ladder as a table of text, then warnings and the reason to stop."""
    from labkit.measure.stats import text

    head = ["arm", "TPOT ms [95%]", "x before", "x first", "a", "c", "MB/step", "GB/s", "what it is"]
    rows = [head]
    for r in arms:
        t, account = r["tpot_s"], r["account"]
        accept = r["accept_length"]
        rows.append(
            [
                r["arm"],
                text(t, 1e3),
                _times(r["step"]),
                _times(r["total"]),
                f"{accept['median']:.2f}" if accept else "-",
                f"{r['c']['median']:.2f}" if r["c"] else "-",
                f"{account['step_bytes'] / 1e6:.2f}" if account else "-",
                f"{account['bytes_s'] / 1e9:.2f}" if account else "-",
                r["title"],
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    out = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    first = arms[0]["tpot_s"]
    out.append(
        f"TPOT, a: measured ({first['repeats']} repeats, {first['count']} requests an arm); "
        "MB/step: derived from the model's config; GB/s, c: derived from both"
    )
    out += [f"warning: {r['arm']}: {w}" for r in arms for w in r["warnings"]]
    out += [f"stop: {r['stop']}" for r in arms if r["stop"]]
    return out


def _times(ratio: dict | None) -> str:
    from labkit.measure.stats import text

    return "x" + text(ratio, spec=".2f") if ratio else "-"
