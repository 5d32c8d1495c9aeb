"""labkit report: executed notebooks into one offline HTML file, two runs side by side, or one line for an arm."""

import argparse
import json

HELP = "write a run or a sweep as one offline HTML file, two runs side by side, or one line per arm"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="RUN", help="a run's or sweep's directory, or one executed notebook")
    parser.add_argument("other", nargs="?", metavar="RUN_B", help="a second run directory, to stand beside the first")
    parser.add_argument("-o", "--output", help="where to write it (default: report.html in the run directory)")
    parser.add_argument("--row", action="store_true", help="print one line per arm, with its conditions, and no file")
    parser.add_argument("--arm", metavar="A[:B]", help="with --row or RUN_B: these arms alone")


def main(args: argparse.Namespace) -> int:
    from pathlib import Path

    from labkit.errors import BadInput
    from labkit.report import html, row, side, sweep, verdict

    if args.arm and not (args.row or args.other):
        raise BadInput("--arm", args.arm, "--row or a second run beside it")
    if args.row:
        if args.other or args.output:
            raise BadInput("--row", args.other or args.output, "one run, and no output file")
        found = verdict.records_of(args.source)
        if not found:
            raise BadInput("run", args.source, "a run directory that holds a record")
        named = [(r, found_arms) for r, found_arms in found if args.arm in (None, *found_arms)]
        if not named:
            arms = ", ".join(dict.fromkeys(name for _, a in found for name in a))
            raise BadInput("--arm", args.arm, f"one of {arms}")
        rows = [line for run, _ in named for line in row.rows(run, args.arm)]
        print(json.dumps({"rows": rows}, ensure_ascii=False) if args.json else "\n".join(rows))
        return 0
    if args.other:
        path = side.write(args.source, args.other, args.output or Path(args.other) / "compared.html", args.arm)
    elif sweep.is_sweep(args.source):
        path = sweep.write(args.source, args.output)
    else:
        path = html.write(args.source, args.output)
    print(json.dumps({"report": str(path), "bytes": path.stat().st_size}) if args.json else path)
    return 0
