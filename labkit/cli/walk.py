"""labkit walk: the optimisation walk on one engine, and one report of it."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli import _turn

if TYPE_CHECKING:
    from labkit.batch.walk import Walk

HELP = "predict, measure and report every arm of the ladder: notebooks 02 to 06 from one record"
NOTEBOOKS = ("02_baseline", "03_humming", "04_fp8_head", "05_mtp", "06_silent_fallback")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--params", default="params/walk.yaml", metavar="YAML", help="default: params/walk.yaml")
    parser.add_argument("--folder", default="notebooks", help="where the notebooks are")
    parser.add_argument("--timeout", type=int, default=600, help="seconds that one cell may take")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit import disk
    from labkit.batch import run as batch
    from labkit.batch import walk as walks
    from labkit.batch import walk_page as show
    from labkit.batch.line import Line
    from labkit.figures.show import png
    from labkit.params import common, read_yaml
    from labkit.report import html as report
    from labkit.report.quick import nbformat

    given = read_yaml(Path(args.params))
    out_dir = Path(str(common(given).get("out_dir", "outputs")))
    notebooks = batch.find(list(NOTEBOOKS), Path(args.folder))
    with Line(sys.stderr) as line:
        walk = walks.walk(notebooks, given, out_dir, line.tell, cell_timeout_s=args.timeout, wait_s=args.wait)
        line.tell("writing the report", walks.REPORT_S)
        found, figure = show.rows(walk), show.figure(walk)
        directory = walk.run.directory
        disk.write_text(
            directory / "00_walk.ipynb", nbformat.writes(show.page(walk, found, figure)) + "\n", "the record is kept"
        )
        picture = directory / "ladder.png"
        with disk.whole(picture, "the record is kept") as part:
            part.write_bytes(png(figure))
        walk.run.report = report.write(directory)
    if args.json:
        print(json.dumps(_document(walk, found, picture), indent=1))
    else:
        for text in _told(walk, found, picture, _next(args.params)):
            print(text)
    return 0 if walk.run.ok else 1


def _next(params: str) -> str:
    """The params file for the notebooks that the walk leaves out: the walk's own, unless that is make run's."""
    return "params/pocket.yaml" if Path(params).name == "walk.yaml" else params


def _told(walk: "Walk", found: list[dict], picture: Path, params: str) -> list[str]:
    import textwrap

    from labkit.batch import walk_page as show

    out = ["", show.plain(found), ""]
    out += [textwrap.fill(s, 100) for s in show.sentences(walk, found)]
    out += [textwrap.fill(f"note: {n}", 100, subsequent_indent="      ") for n in show.notes(found)]
    out += [f"{o.name}: {o.status}: {o.error}" for o in walk.run.outcomes if o.status != "ok"]
    return [
        *out,
        "",
        f"report   {walk.run.report}  (one file, no network: open it in a browser, or mail it)",
        f"picture  {picture}",
        f"record   {walk.record}",
        "next     make lab, then open 05_mtp, move the draft steps and press Run: which setting is best here?",
        f"         .venv/bin/labkit run 07_real_load -f {params}: does the gain survive a real load?",
        f"         ({walk.seconds:.0f} s)",
    ]


def _document(walk: "Walk", found: list[dict], picture: Path) -> dict:
    return {
        "directory": str(walk.run.directory),
        "record": str(walk.record),
        "report": str(walk.run.report),
        "picture": str(picture),
        "arms": found,
        "seconds": round(walk.seconds, 1),
        "notebooks": [{"name": o.name, "status": o.status, "error": o.error} for o in walk.run.outcomes],
    }
