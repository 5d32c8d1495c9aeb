"""`labkit selfcheck`: the checks' hits and false alarms on injected faults and sound servers."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.checks.selfcheck import Case

HELP = "verify that the checks catch every injected fault and pass on sound servers"


ALLOWED = 1  # false alarms


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="every fault 20 times and 200 clean runs")
    parser.add_argument(
        "--keep", metavar="FILE", help="append each case to this file (JSON lines), and skip those that it has already"
    )


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a fault was missed, or more than one clean run was blamed."""
    from labkit.checks import selfcheck

    kept, keep = ([], lambda case: None) if args.keep is None else _file(Path(args.keep))
    cases = selfcheck.run(args.full, (lambda line: None) if args.json else _say, kept=kept, keep=keep)
    got = selfcheck.summary(cases)
    if args.json:
        print(json.dumps(got, indent=1))
    else:
        print(
            f"{got['caught']} of {got['faults']} runs with a fault caught ({got['kinds']} kinds), "
            f"{got['false_alarms']} false alarms in {got['clean']} clean runs"
        )
    return 0 if got["caught"] == got["faults"] and got["false_alarms"] <= ALLOWED else 1


def _say(line: str) -> None:
    print(line, flush=True)


def _file(path: Path):
    """(cases that the file has, function that adds one at once). Raises BadInput for a file of something else."""
    from labkit.checks.selfcheck import Case
    from labkit.errors import BadInput

    def keep(case: "Case") -> None:
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(case.as_dict()) + "\n")

    try:
        with path.open("a+", encoding="utf-8") as file:  # a place that cannot be written is told now
            file.seek(0)
            lines = file.read().splitlines()
        return [Case(**{**row, "raised": tuple(row["raised"])}) for row in map(json.loads, lines)], keep
    except OSError as e:
        raise BadInput("--keep", str(path), f"a file that can be read and written ({e.strerror})") from e
    except (ValueError, TypeError, KeyError):
        raise BadInput("--keep", str(path), "a file of `labkit selfcheck --keep`, or a new one") from None
