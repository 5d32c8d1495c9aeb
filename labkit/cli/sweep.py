"""`labkit sweep`: many configurations, unattended; resumes, and shows what was decided and why."""

import argparse
import json
import re
import sys
from pathlib import Path

from labkit.cli import _turn
from labkit.cli._turn import say
from labkit.errors import BadInput

HELP = "measure many configurations of a params file's sweep section, unattended; --resume goes on after a crash"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="params file with a sweep section")
    parser.add_argument("-f", "--params", metavar="YAML", help="the same")
    parser.add_argument("--resume", metavar="RUN", help="go on with a sweep that was interrupted")
    parser.add_argument("--budget", metavar="TIME", help="such as 90s, 30m or 2h: spent by successive halving")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be measured and what is skipped")
    parser.add_argument("--out", metavar="DIR", help="parent of the sweep's folder (default: outputs)")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit import disk
    from labkit.batch.line import Line
    from labkit.measure.sweep import drive, points
    from labkit.measure.sweep.local import Local, reachable
    from labkit.params import read_yaml
    from labkit.records.sweep import read_sweep
    from labkit.records.writer import new_directory

    budget = seconds(args.budget) if args.budget else None
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
    for p in plan.points:
        if p.skipped:
            say(f"skipped {p.name} ({', '.join(f'{k} {v}' for k, v in p.fields.items())}): {p.skipped}")
    skipped = len(plan.points) - len(plan.measured)
    say(f"{len(plan.measured)} configurations, {skipped} skipped, {plan.excluded} excluded by conditions")
    if args.dry_run:
        return 0
    reachable(plan)
    if directory is None:
        parent = disk.folder(args.out or plan.params.out_dir)
        directory = new_directory(parent, f"sweep-{plan.params.engine.engine}")
        drive.create(document, directory, budget)
    say(f"sweep: {directory} (labkit sweep --resume {directory} goes on with it)")
    with Line(sys.stderr) as line, _turn.taken(args):
        with Local() as execute, drive.Driver(directory, execute, line.tell) as driver:
            found = driver.go()
    rows = found.rows
    if args.json:
        print(json.dumps({"sweep": str(directory), "configs": rows, "finals": found.finals}))
        return 0
    for text in lines(rows, found.finals):
        print(text)
    print(f"sweep: {directory}")
    return 0


def seconds(text: str) -> float:
    """A time span such as 90s, 30m, 2h. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or float(found[1]) <= 0:
        raise BadInput("--budget", text, "a time such as 90s, 30m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def lines(rows: list[dict], finals: list[dict]) -> list[str]:
    """The table, fastest first, then what has no numbers with its reason, then what may be called best."""
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
    out += [
        f"{r['status']}: {r['config']}: {r.get('reason', '')}" for r in rows if r["status"] in ("failed", "pending")
    ]
    return out + [text for f in finals for text in last_words(f)]


def last_words(f: dict) -> list[str]:
    """The second look in sentences."""
    again = f["fresh"][f["best"]]
    if again["status"] != "measured":
        return [f"best in the sweep: {f['best']}; it failed on fresh prompts: {again['reason']}"]
    out = [
        f"{f['best']} was fastest in the sweep (x{f['in_sweep']:.2f}); on fresh prompts x{again['speedup']:.2f}"
        f" ({f['shrinkage']:+.1%}: the best of many measurements is partly luck)"
    ]
    over = f["over_runner_up"]
    if over is not None:
        ends = "" if over["low"] is None else f" [{over['low']:.3f}, {over['high']:.3f}]"
        out.append(f"over the runner-up {f['runner_up']}: x{over['median']:.3f}{ends}")
    out.append(f"best: {f['called']}" if f["called"] else "no best: the two fastest cannot be told apart")
    return out
