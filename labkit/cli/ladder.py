"""`labkit ladder`: the arms of a ladder on one engine, one table."""

import argparse
import json
from typing import TYPE_CHECKING

from labkit.cli import _turn
from labkit.cli._turn import say
from labkit.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

    from labkit.measure.results import Arm
    from labkit.params import Params

HELP = "measure the arms of a ladder and report what each gains"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--params", default=None, metavar="YAML", help="parameters (default: the pocket engine)")
    parser.add_argument("--gguf", metavar="FILE", help="llama.cpp's ladder on this model (instead of -f)")
    parser.add_argument("--workload", help="workload to measure with")
    parser.add_argument("--count", help="distinct prompts")
    parser.add_argument("--repeats", help="measured passes over the prompts")
    parser.add_argument("--prompt-tokens", help="exact prompt length")
    parser.add_argument("--output-tokens", help="exact output length")
    parser.add_argument("--seed", help="seed of the prompts")
    parser.add_argument("--arms", help="comma-separated subset (default: all that are not broken on purpose)")
    parser.add_argument("--out", help="parent of the run's directory (default: outputs)")
    parser.add_argument(
        "--strict", action="store_true", help="measure nothing when an arm's options are not in effect at its start"
    )
    parser.add_argument("--resume", metavar="RUN", help="continue an interrupted run with its own parameters")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit.measure import prompts
    from labkit.params import load_params
    from labkit.records import read_run

    changes = {n: getattr(args, n) for n in ("workload", "count", "repeats", "prompt_tokens", "output_tokens", "seed")}
    changes |= {"only": args.arms.split(",") if args.arms else None, "out_dir": args.out}
    if args.gguf and args.params:
        raise BadInput("gguf", args.gguf, "nothing beside -f: the file names the model as engine.model")
    if args.resume:
        _alone(args.params or args.gguf, changes)
        cut = read_run(args.resume)
        params, held = load_params(cut.meta["parameters"]), cut.rows
    else:
        params, held = load_params(gguf_params(args.gguf) if args.gguf else args.params or {}, **changes), []
    arms = arms_of(params)
    prompts.check(params)
    with _turn.taken(args, urls=[a.config.url for a in arms if a.config.url]):
        return _measured(args, params, arms, held)


def _measured(args: argparse.Namespace, params: "Params", arms: "list[Arm]", held: list[dict]) -> int:
    """Measure, judge and print; held: rows of the run that is resumed."""
    from labkit.checks import judged
    from labkit.engines.adapter import not_in_effect
    from labkit.measure.foresight import Foreseen
    from labkit.measure.ladder import table
    from labkit.measure.pool import Pool, together
    from labkit.measure.runner import Runner
    from labkit.measure.timed import readings
    from labkit.records import RunWriter
    from labkit.records.writer import new_directory
    from labkit.units import minutes

    runner = Runner(Pool(), check=judged.at_start, strict=args.strict)
    blocks = runner.plan(arms)
    if not args.resume:
        foresee_all(params, arms)  # whatever is to be probed, before an engine runs
    seconds, known = runner.forecast(blocks, held)
    requests = sum(b.requests for b in blocks)
    basis = "from what it has measured, for those that are left" if known else "a first estimate from bytes"
    say(f"about {minutes(seconds)} for {requests} requests on {len(arms)} arms ({basis})")
    if args.resume:
        writer = RunWriter.resume(args.resume)
    else:
        directory = new_directory(params.out_dir, f"ladder-{params.engine.engine}")
        writer = RunWriter(directory, params.as_dict(), label="ladder")
    with writer:
        try:
            if not args.resume:
                side_by_side = together([a.config for a in arms])
                read = readings(runner.pool, [a.config for a in arms], writer.directory) if side_by_side else {}
                writer.meta["predictions"] = [f.as_dict() for f in foresee_all(params, arms, read).values()]
                writer.save()
            foreseen = {p["arm"]: Foreseen.from_dict(p) for p in writer.meta.get("predictions", [])}
            for progress in runner.run(blocks, writer):
                if progress.row is None:
                    say(progress.text)
                elif progress.done % (len(arms) * params.count) == 0 and progress.done < progress.total:
                    say(f"{progress.done} of {progress.total} requests, about {minutes(progress.eta_s)} left")
        finally:
            runner.pool.stop()
        found = table(arms, runner.fresh, seed=params.seed)
        for arm, line in zip(arms, found, strict=True):
            line["warnings"] += not_in_effect(arm.config, runner.results[arm.name].info)
            said = foreseen.get(arm.name)
            line["predicted"] = said and said.as_dict()
            line["predicted_text"] = said.text() if said else "-"
            line["prediction_error"] = said and said.error(runner.results[arm.name])
            if said and said.disturbed:
                line["warnings"].append(f"its prediction rests on rates {said.disturbed}")
        judge(writer.directory, found, f"-f {args.params}" if args.params else "")
        writer.meta["summary"] = {"ladder": found}
    stop = next((r["stop"] for r in found if r["stop"]), None)
    if args.json:
        run = {"run": str(writer.directory), "engine": params.engine.engine}
        print(json.dumps({**run, "arms": found, "stop": stop}))
        return 0
    for line in lines(found):
        print(line)
    print(f"record: {writer.directory}")
    return 0


def foresee_all(params: "Params", arms: "list[Arm]", read: dict[str, float] | None = None) -> dict:
    """What can be said of every arm before the first is asked anything, by name. read: as labkit.measure.foresight has
    it; None: before an engine runs."""
    from labkit.measure.foresight import foresee

    if read is None:
        say("predicting every arm: probing this machine where the engine's parts can be probed")
    whole, read = params.ladder(), read or {}
    every = {a.name: a for a in whole}
    found = {a.name: foresee(whole, every[a.name], {}, params, params.context, read) for a in arms if a.name in every}
    return {name: f for name, f in found.items() if f is not None}


def judge(directory: "Path", arms: list[dict], again: str) -> None:
    """Add to each arm: `checks` (configuration, from its description, log and requests), `candidates` (causes where it
    brought no clear gain), and warnings of what its own rows show. again: the options that measure this ladder anew."""
    from labkit.checks import benefit, judged
    from labkit.measure.results import results_of
    from labkit.records import read_run

    run = read_run(directory)
    results = results_of(run)
    for arm in arms:
        result = results.get(arm["arm"])
        arm["checks"], arm["candidates"] = [], []
        if result is None:
            continue
        log = (run.described(arm["arm"]).get("launch") or {}).get("log")
        checks = judged.configuration(result, directory / log if log else None)
        arm["checks"] = [c.as_dict() for c in checks]
        arm["warnings"] += benefit.alarms(judged.side(result))
        before = results.get(arm["before"])
        if before is not None:
            command = f"labkit ladder {again}".strip()
            found = judged.step(result, before, expect=arm["expect"], checks=checks, again=command)
            arm["candidates"] = found.lines()


def arms_of(params: "Params") -> "list[Arm]":
    """The arms of the parameters' ladder under their load. Raises BadInput."""
    from labkit.engines import ladder
    from labkit.measure.results import Arm

    chosen = ladder.choose(params.ladder(), params.only)
    return [Arm.of(a, params.replace(engine=a.config, arms=None, only=())) for a in chosen]


def gguf_params(file: str) -> dict:
    """What `--gguf` stands for: llama.cpp's own ladder; the draft that is the model itself is this model."""
    from labkit.engines import ladder

    arms = [step.as_dict() for step in ladder.shipped("llamacpp")]
    for arm in arms:
        draft = arm.get("set", {}).get("speculative", {})
        if "draft_model_path" in draft:
            arm["set"]["speculative"] = {**draft, "draft_model_path": file}
    engine = {"engine": "llamacpp", "model": file, "context_length": 4096}
    return {"engine": engine, "arms": arms, "workload": "repetitive", "warmup": 1, "output_tokens": 96}


def _alone(file: str | None, changes: dict) -> None:
    """A run that goes on has its parameters already."""
    given = ["params"] * (file is not None) + [n for n, v in changes.items() if v is not None]
    if given:
        raise BadInput("--resume", f"with {', '.join(given)}", "--resume alone: the record has its parameters")


def lines(arms: list[dict]) -> list[str]:
    """The ladder as a table of text, then warnings and the reason to stop."""
    from labkit.measure.stats import text

    head = [
        "arm",
        "TPOT ms [95%]",
        "predicted",
        "error",
        "x before",
        "x first",
        "a",
        "c",
        "MB/step",
        "GB/s",
        "what it is",
    ]
    rows = [head]
    for r in arms:
        t, account = r["tpot_s"], r["account"]
        accept = r["accept_length"]
        rows.append(
            [
                r["arm"],
                text(t, 1e3),
                r.get("predicted_text", "-"),
                "-" if r.get("prediction_error") is None else f"{r['prediction_error']:+.1%}",
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
        f"TPOT, a: measured ({first['repeats']} repeats, {first['count']} requests per arm); "
        "MB/step, predicted: derived; GB/s, c: derived from both; error: of a step's time, or of a round's"
    )
    vary = [f"{r['arm']} {r['drafts_a_round']:.2g}" for r in arms if r["drafts_a_round"] is not None]
    if vary:
        out.append(
            f"this engine chooses in each round how many tokens to draft (on average: {', '.join(vary)}), so a "
            "and c are means over its rounds"
        )
    out += [f"warning: {r['arm']}: {w}" for r in arms for w in r["warnings"]]
    for r in arms:
        failed = [c for c in r.get("checks", []) if c["verdict"] == "fail" and not c["name"].startswith("option ")]
        out += [f"check failed: {r['arm']}: {c['name']}: asked {c['asked']}, seen {c['seen']}" for c in failed]
    out += [f"stop: {r['stop']}" for r in arms if r["stop"]]
    out += [line for r in arms for line in r.get("candidates", [])]
    return out


def _times(ratio: dict | None) -> str:
    from labkit.measure.stats import text

    return "x" + text(ratio, spec=".2f") if ratio else "-"
