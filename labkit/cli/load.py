"""`labkit load`: several requests at once: throughput against TPOT, tails, and where drafting stops paying."""

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from labkit.cli import _turn
from labkit.cli._turn import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from labkit.engines import ladder
    from labkit.measure.concurrent import Level
    from labkit.measure.pool import Pool
    from labkit.params import Params
    from labkit.records import RunWriter

HELP = "several requests at once: throughput against TPOT, P99, and where drafting stops paying"
MOST = 256  # requests in flight
WARMUP_TOKENS = 16  # an answer's while a level is warmed up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="a running server (instead of -f)")
    parser.add_argument("-f", "--params", default=None, metavar="YAML", help="parameters (default: the pocket engine)")
    parser.add_argument(
        "--arms", help="comma-separated (default: the last that is not broken on purpose, and the one before it)"
    )
    parser.add_argument("--concurrency", default="1,2,4,8", help="closed loop: requests at once (default: 1,2,4,8)")
    parser.add_argument("--rate", default="", help="open loop: arrivals per second, comma-separated (default: none)")
    parser.add_argument(
        "--requests", type=int, help="requests per level and pass (default: twice the level's concurrency)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="passes over all levels, back and forth (default: 3)")
    parser.add_argument("--workload", help="what is asked (default: that of the params file)")
    parser.add_argument("--output-tokens", help="exact output length (default: that of the params file)")
    parser.add_argument("--seed", help="seed of the prompts and arrivals")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the server's key")
    parser.add_argument("--out", help="parent of the run's directory (default: outputs)")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit.measure import prompts

    levels = levels_of(args)
    params = _params(args, levels)
    prompts.check(params)
    arms = _arms(args, params, max(level.clients or MOST // 8 for level in levels))
    with _turn.taken(args, urls=[a.config.url for a in arms if a.config.url]):
        return _measured(args, params, arms, levels)


def levels_of(args: argparse.Namespace) -> "list[Level]":
    """The levels of both loops. Raises BadInput."""
    from labkit.errors import BadInput
    from labkit.fields import check, real, whole
    from labkit.measure.concurrent import Level

    closed = [check(whole(1, MOST), "concurrency", n.strip()) for n in str(args.concurrency).split(",") if n.strip()]
    opened = [check(real(0.001, 1e4), "rate", r.strip()) for r in str(args.rate).split(",") if r.strip()]
    if not closed + opened:
        raise BadInput("concurrency", args.concurrency, "at least one number of requests at once, or a --rate")
    check(whole(1, 100), "repeats", args.repeats)
    if args.requests is not None:
        check(whole(1, MOST), "requests", args.requests)
    return [Level(clients=n) for n in sorted(set(closed))] + [Level(rate=r) for r in sorted(set(opened))]


def _requests(args: argparse.Namespace, level: "Level") -> int:
    return args.requests or max(4, 2 * (level.clients or 8))


def _params(args: argparse.Namespace, levels: "list[Level]") -> "Params":
    from labkit.errors import BadInput
    from labkit.params import load_params

    if args.url and (args.params or args.arms):
        raise BadInput("url", args.url, "nothing beside -f and --arms: a running server is one arm")
    engine = {"engine": "attach", "url": args.url, "api_key_env": args.api_key_env}
    return load_params(
        {"engine": engine} if args.url else args.params or {},
        workload=args.workload,
        output_tokens=args.output_tokens,
        seed=args.seed,
        out_dir=args.out,
        count=max(_requests(args, level) for level in levels),
        repeats=args.repeats,
    )


def _arms(args: argparse.Namespace, params: "Params", most: int) -> "list[ladder.Arm]":
    """The arms, each with room for `most` requests at once where its engine can batch."""
    from dataclasses import replace

    from labkit.engines import ladder
    from labkit.engines.adapter import adapter

    sound = ladder.choose(params.ladder())
    names = args.arms.split(",") if args.arms else [sound[-1].name]
    if not args.arms and (before := ladder.reference(params.ladder(), sound[-1])):
        names.append(before.name)
    widen = getattr(adapter(params.engine.engine), "at_once", lambda config, n: config)
    return [replace(a, config=widen(a.config, most)) for a in ladder.choose(params.ladder(), names)]


def _measured(args: argparse.Namespace, params: "Params", arms: "list[ladder.Arm]", levels: "list[Level]") -> int:
    from labkit import disk
    from labkit.figures import concurrency
    from labkit.figures.show import png
    from labkit.measure.pool import Pool
    from labkit.records import RunWriter
    from labkit.records.writer import new_directory

    pool = Pool()
    with RunWriter(new_directory(params.out_dir, f"load-{params.engine.engine}"), params.as_dict(), label="load") as w:
        try:
            rows, notes = _ask(args, params, arms, levels, pool, w)
        finally:
            pool.stop()
        found = document(args, arms, levels, rows, notes)
        w.meta["summary"] = {"load": found}
    picture = w.directory / "throughput.png"
    with disk.whole(picture, "the record is kept") as part:
        part.write_bytes(png(concurrency.throughput({a["name"]: a["levels"] for a in found["arms"]})))
    if args.json:
        print(json.dumps({"run": str(w.directory), "picture": str(picture), **found}))
        return 0
    for line in lines(found):
        print(line)
    print(f"picture: {picture}\nrecord: {w.directory}")
    return 0


def _ask(args, params, arms, levels, pool: "Pool", writer: "RunWriter") -> "tuple[dict, dict[str, str]]":
    """Rows by (arm, level), and what each server says of how many requests it takes at once."""
    from labkit.measure import concurrent, session
    from labkit.measure.pool import describe, together
    from labkit.measure.prompts import prompts_of

    rows: dict[tuple[str, Level], list[dict]] = {(a.name, level): [] for a in arms for level in levels}
    notes: dict[str, str] = {}
    groups = [arms] if together([a.config for a in arms]) else [[a] for a in arms]

    def keep(row: dict) -> None:
        writer.append({**row, "session": writer.session})

    for group in groups:
        say("starting " + ", ".join(a.name for a in group))
        engines = pool.ensure([a.config for a in group], writer.directory)
        sides = []
        for a, engine in zip(group, engines, strict=True):
            info = engine.server_info()
            describe(writer, a, engine, info, params.load())
            if info.get("max_running_requests") == 1:
                notes[a.name] = "it takes one request at a time and queues the others, as it says itself"
            sides.append(session.Side.of(a.name, engine.url, info, engine.dialect, getattr(engine, "api_key", None)))
        prompts = prompts_of(params, engines[0].server_info())
        # A server may compile what a batch of a size needs when it first meets one: each level is met once before.
        for level in levels:
            say(f"warming up: {level.name}")
            few = [
                replace(p, max_new_tokens=min(p.max_new_tokens, WARMUP_TOKENS)) for p in prompts[: level.clients or 2]
            ]
            for side in sides:
                concurrent.run(side, few, level, repeat=-1, seed=params.seed, timeout_s=params.timeout_s, keep=keep)
        for repeat in range(args.repeats):
            for level in levels if repeat % 2 == 0 else levels[::-1]:
                for side in sides if repeat % 2 == 0 else sides[::-1]:
                    say(f"pass {repeat + 1} of {args.repeats}: {side.name}, {level.name}")
                    rows[side.name, level] += concurrent.run(
                        side,
                        prompts[: _requests(args, level)],
                        level,
                        repeat=repeat,
                        seed=params.seed,
                        timeout_s=params.timeout_s,
                        keep=keep,
                    )
    return rows, notes


def document(args, arms, levels, rows, notes) -> dict:
    """Everything measured: arms [{name, before, levels, note}], gains [{arm, before, levels, said}] by clients."""
    from labkit.measure import concurrent

    out, gains = [], []
    for a in arms:
        mine = [
            concurrent.summary(rows[a.name, level], level, asked=args.repeats * _requests(args, level))
            for level in levels
        ]
        note = "; ".join(filter(None, (notes.get(a.name), concurrent.scaling(mine))))
        out.append({"name": a.name, "title": a.title, "before": a.before, "levels": mine, "note": note})
        if a.before is not None:
            found = {
                level.clients: g
                for level in levels
                if level.clients and (g := concurrent.gain(rows[a.name, level], rows[a.before, level])) is not None
            }
            drafts = a.config.speculative is not None
            said = f"{a.name} over {a.before}: {concurrent.pays(found)}" if found else ""
            gains.append({"arm": a.name, "before": a.before, "drafts": drafts, "levels": found, "said": said})
    return {"loops": sorted({level.loop for level in levels}), "arms": out, "gains": gains}


_WIDTHS = (14, 15, 6, 9, 20, 20, 9, 10, 9, 6)


def lines(found: "Mapping") -> list[str]:
    """The document as tables of text."""
    from labkit.measure.stats import text

    def row(cells: "list[str]") -> str:
        return "  ".join(f"{c:{w}s}" for c, w in zip(cells, _WIDTHS, strict=True)).rstrip()

    out = [
        row(["arm", "load", "loop", "answered", "tok/s together", "TPOT ms", "P99", "TTFT ms", "P99", "a"]),
    ]
    for a in found["arms"]:
        for s in a["levels"]:
            cells = [a["name"], s["level"], s["loop"], f"{s['ok']}/{s['asked']}"]
            if s["output_tok_s"] is None:
                out.append(row([*cells, *["-"] * 6]))
                continue
            out.append(
                row(
                    [
                        *cells,
                        text(s["output_tok_s"], 1, ".1f"),
                        text(s["tpot_s"], 1e3, ".2f"),
                        f"{1e3 * s['p99']['tpot_s']:.2f}",
                        f"{1e3 * s['ttft_s']['median']:.0f}",
                        f"{1e3 * s['p99']['ttft_s']:.0f}",
                        f"{s['accept_length']:.2f}" if s["accept_length"] else "-",
                    ]
                )
            )
    for a in found["arms"]:
        out += [f"{a['name']}: {a['note']}"] if a["note"] else []
        for s in a["levels"]:
            if s["ok"] < s["asked"]:
                what = ", ".join(f"{s[n]} {n}" for n in ("refused", "error", "cancelled", "lost") if s[n])
                out.append(f"warning: {a['name']}, {s['level']}: {what}: {'; '.join(s['why'])[:200]}")
    for g in found["gains"]:
        out += [f"throughput, {g['said']}"] if g["said"] else []
        out += [f"  {n} at once: x{text(v, 1, '.2f')}" for n, v in g["levels"].items()]
    return out
