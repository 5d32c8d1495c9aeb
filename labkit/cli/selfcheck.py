"""`labkit selfcheck`: the checks' hits and false alarms on the pocket engine."""

import argparse
import json

HELP = "verify that the checks catch every injected fault and pass on sound servers"


ALLOWED = 1  # false alarms


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="every fault 20 times and 200 clean runs")


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a fault was missed, or more than one clean run was blamed."""
    from labkit.checks import selfcheck

    cases = selfcheck.run(args.full, (lambda line: None) if args.json else print)
    got = selfcheck.summary(cases)
    if args.json:
        print(json.dumps(got, indent=1))
    else:
        print(
            f"{got['caught']} of {got['faults']} runs with a fault caught ({got['kinds']} kinds), "
            f"{got['false_alarms']} false alarms in {got['clean']} clean runs"
        )
    return 0 if got["caught"] == got["faults"] and got["false_alarms"] <= ALLOWED else 1
