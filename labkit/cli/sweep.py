"""`labkit sweep`: many configurations, unattended; resumes, and shows what was decided and why."""

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli import _cluster, _turn
from labkit.cli._turn import say
from labkit.errors import BadInput

if TYPE_CHECKING:
    from labkit.measure.sweep import points

NAMED = 6  # configurations that a line names
HELP = "measure many configurations of a params file's sweep section, unattended; --resume goes on after a crash"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="params file with a sweep section")
    parser.add_argument("-f", "--params", metavar="YAML", help="the same")
    parser.add_argument("--resume", metavar="RUN", help="go on with a sweep that was interrupted")
    parser.add_argument(
        "--budget", metavar="TIME", help="such as 90s, 30m or 2h: spent on what may still be the fastest"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be measured and what is skipped")
    parser.add_argument("--out", metavar="DIR", help="parent of the sweep's folder (default: outputs)")
    _turn.add_arguments(parser)
    _cluster.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit import disk
    from labkit.batch.line import Line
    from labkit.measure.sweep import drive, points
    from labkit.measure.sweep.again import standings
    from labkit.measure.sweep.local import Local, reachable
    from labkit.params import read_yaml
    from labkit.records.sweep import read_sweep
    from labkit.records.writer import new_directory

    on_cluster, budget = _cluster.wanted(args), seconds(args.budget) if args.budget else None
    given = [x for x in (args.file, args.params, args.resume) if x]
    if len(given) != 1:
        raise BadInput("sweep", " ".join(given), "one of FILE and --resume RUN")
    if args.resume:
        directory = Path(args.resume)
        plan = points.read(read_sweep(directory).meta["document"])
        if budget is not None:
            raise BadInput("--budget", args.budget, "nothing beside --resume: the sweep has its budget")
    else:
        document, directory = read_yaml(Path(given[0])), None
        plan = points.read(document)
    for text in left_out(plan):
        say(text)
    skipped = len(plan.points) - len(plan.measured)
    say(f"{len(plan.measured)} configurations, {skipped} skipped, {plan.excluded} excluded by conditions")
    if args.dry_run:
        for p in plan.measured:
            print(f"{p.name}: {p.arm.title}")
        return 0
    with contextlib.ExitStack() as held:
        if on_cluster:
            execute = held.enter_context(_cluster.cluster(args, plan))
            execute.preflight()
        else:
            reachable(plan)
        if directory is None:
            parent = disk.folder(args.out or plan.params.out_dir)
            directory = new_directory(parent, f"sweep-{plan.params.engine.engine}")
            drive.create(document, directory, budget)
        say(f"sweep: {directory} (labkit sweep --resume {directory} goes on with it)")
        line = held.enter_context(Line(sys.stderr))
        if not on_cluster:
            held.enter_context(_turn.taken(args))
            execute = held.enter_context(Local())
        with drive.Driver(directory, execute, line.tell) as driver:
            found = driver.go()
    rows = found.rows
    code = 0 if any(r["status"] == "measured" for r in rows) else 1
    if args.json:
        print(
            json.dumps({"sweep": str(directory), "configs": rows, "standings": standings(rows), "finals": found.finals})
        )
        return code
    for text in lines(rows, found.finals):
        print(text)
    print(f"sweep: {directory}")
    return code


def left_out(plan: "points.Plan") -> list[str]:
    """A line per reason for which configurations are skipped, with their names."""
    reasons: dict[str, list[str]] = {}
    for p in plan.points:
        if p.skipped:
            reasons.setdefault(p.skipped, []).append(p.name)
    return [
        f"skipped {len(names)} ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}): {why}"
        for why, names in reasons.items()
    ]


def seconds(text: str) -> float:
    """A time span such as 90s, 30m, 2h. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or float(found[1]) <= 0:
        raise BadInput("--budget", text, "a time such as 90s, 30m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def lines(rows: list[dict], finals: list[dict]) -> list[str]:
    """The table, fastest first, then what has no numbers with its reason, then what may be called best."""
    from labkit.engines.secrets import hide_text
    from labkit.measure.sweep.again import second_look, standings, stands, unlooked

    measured = sorted((r for r in rows if r["status"] == "measured"), key=lambda r: (r["load"], -r["speedup"]))
    head = ["config", "x baseline [95%]", "TPOT ms", "a", "c", "accuracy", "repeats", "what it is"]
    table = [head]
    for r in measured:
        low, high = r.get("speedup_low"), r.get("speedup_high")
        table.append(
            [
                r["config"],
                f"{r['speedup']:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]"),
                f"{1e3 * r['tpot_s']:.3f}",
                f"{r['accept_length']:.2f}" if r.get("accept_length") else "-",
                f"{r['cost']:.2f}" if r.get("cost") else "-",
                f"{r['accuracy']:.0%}" if r.get("accuracy") is not None else "-",
                str(r["repeats"]),
                ", ".join(f"{k} {v}" for k, v in r["fields"].items()),
            ]
        )
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    out = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table]
    out += [f"failed: {r['config']}: {r.get('reason', '')}" for r in rows if r["status"] == "failed"]
    found = standings(rows)
    out += map(stands, found)
    missed = {r["config"] for r in rows if r["status"] == "pending"} - {n for s in found for n in s["missed"]}
    if missed:
        out.append(
            f"not measured: {len(missed)} ({', '.join(sorted(missed)[:NAMED])}{', ...' * (len(missed) > NAMED)})"
        )
    out += [text for f in finals for text in second_look(f)] + unlooked(rows, finals)
    return [hide_text(text) for text in out]
