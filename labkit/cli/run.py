"""labkit run: notebooks headless, with parameters, into outputs/<run>/."""

import argparse
import json
from pathlib import Path

from labkit.cli import _turn

HELP = "run notebooks headless with parameters and write their report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="names or numbers (default: all)")
    parser.add_argument("-f", "--params", help="a YAML file of parameters, such as params/pocket.yaml")
    parser.add_argument(
        "-p", "--set", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="set one parameter"
    )
    parser.add_argument("--folder", default="notebooks", help="where the notebooks are")
    parser.add_argument("--timeout", type=int, default=3600, help="time limit per cell, in seconds")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    import yaml

    from labkit.batch import run as runner
    from labkit.params import common, read_yaml

    given = read_yaml(Path(args.params)) if args.params else {}
    over = {name: yaml.safe_load(value) for name, value in args.set}
    out_dir = Path(str({**common(given), **over}.get("out_dir", "outputs")))
    notebooks = runner.find(args.notebooks, Path(args.folder))
    done = runner.run(notebooks, given, out_dir, over=over, cell_timeout_s=args.timeout, wait_s=args.wait)
    if args.json:
        print(json.dumps(_document(done), indent=1))
    else:
        for outcome in done.outcomes:
            print(outcome.summary.rstrip() or f"{outcome.name}: {outcome.status}")
            if outcome.error:
                print(f"{outcome.name}: {outcome.error}")
        print(f"\nnotebooks and records: {done.directory}\nreport: {done.report}")
    return 0 if done.ok else 1


def _document(done) -> dict:
    return {
        "directory": str(done.directory),
        "report": str(done.report),
        "notebooks": [
            {
                "name": o.name,
                "path": str(o.path),
                "status": o.status,
                "seconds": round(o.seconds, 1),
                "error": o.error,
                "summary": o.summary,
            }
            for o in done.outcomes
        ],
    }
