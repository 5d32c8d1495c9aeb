"""`labkit selfcheck`: the verdicts' hits and false alarms on the pocket engine."""

import argparse
import json

HELP = "do the verdicts catch each fault of the pocket engine, and stay silent on sound ones"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="five rounds instead of one")


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a fault was missed or a sound configuration was blamed."""
    from labkit.checks import selfcheck

    cases = selfcheck.run(5 if args.full else 1, (lambda line: None) if args.json else print)
    got = selfcheck.summary(cases)
    if args.json:
        print(json.dumps(got, indent=1))
    else:
        print(f"{got['caught']} of {got['faults']} faults caught, {got['false_alarms']} false alarms in {got['clean']}")
    return 0 if got["caught"] == got["faults"] and not got["false_alarms"] else 1
