"""What commands that measure share: --wait and --no-wait, the wait itself, and progress on stderr."""

import argparse
import sys
from collections.abc import Collection
from contextlib import AbstractContextManager


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labkit.engines.turn import WAIT_S

    wait = parser.add_mutually_exclusive_group()
    wait.add_argument(
        "--wait",
        type=float,
        default=WAIT_S,
        metavar="S",
        help=f"how long to wait, in seconds, while something else measures on this machine (default: {WAIT_S:g})",
    )
    wait.add_argument(
        "--no-wait",
        dest="wait",
        action="store_const",
        const=0.0,
        help="fail at once if something else measures on this machine",
    )


def taken(args: argparse.Namespace, *, urls: Collection[str] = ()) -> AbstractContextManager[None]:
    """This command's turn on the machine (labkit.engines.turn). Raises Busy after --wait seconds."""
    from labkit.engines.turn import turn

    return turn(f"labkit {args.command}", args.wait, say, urls)


def say(text: str) -> None:
    """Progress goes to stderr, so that stdout holds the result alone."""
    print(text, file=sys.stderr, flush=True)
