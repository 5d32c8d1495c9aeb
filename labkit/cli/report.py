"""labkit report: executed notebooks into one offline HTML file."""

import argparse
import json

HELP = "write a run's executed notebooks as one offline HTML file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="RUN", help="a run directory under outputs/, or one executed notebook")
    parser.add_argument("-o", "--output", help="where to write it (default: report.html in the run directory)")


def main(args: argparse.Namespace) -> int:
    from labkit.report import html as report

    path = report.write(args.source, args.output)
    print(json.dumps({"report": str(path), "bytes": path.stat().st_size}) if args.json else path)
    return 0
