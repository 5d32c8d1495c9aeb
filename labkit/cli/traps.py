"""`labkit traps`: every silent failure that the lab knows, how it shows and what catches it."""

import argparse
import json

HELP = "the silent failures that the lab knows: symptom, the check that catches it, and its test"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", nargs="?", help="one trap by its number or name (default: all)")


def main(args: argparse.Namespace) -> int:
    from labkit.checks.traps import TRAPS
    from labkit.errors import BadInput

    found = [t for t in TRAPS if args.number in (None, str(t.number), t.name)]
    if not found:
        raise BadInput(
            "number", args.number, f"a number from 1 to {len(TRAPS)} or a name, as `labkit traps` lists them"
        )
    if args.json:
        print(json.dumps({"traps": [t.as_dict() for t in found]}, indent=1))
        return 0
    for t in found:
        print(f"{t.number:3d}  {t.name}\n     shows:   {t.shows}\n     catches: {t.catches}")
    return 0
