"""The command line: `labkit COMMAND ...`. Every command is one module of labkit.cli."""

import argparse
import importlib
import json
import os
import pkgutil
import sys

from labkit import __version__, disk
from labkit.errors import BadInput, LabError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


def _names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def parser() -> argparse.ArgumentParser:
    """The whole command line; command modules are light, so `labkit --help` stays quick."""
    top = _Parser(prog="labkit", description="Tune LLM decoding, one optimisation at a time.")
    top.add_argument("--version", action="version", version=f"labkit {__version__}")
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name in _names():
        module = importlib.import_module(f"labkit.cli.{name}")
        command = sub.add_parser(name, help=module.HELP, description=module.HELP)
        command.add_argument("--json", action="store_true", help="print one JSON document instead of text")
        module.add_arguments(command)
        command.set_defaults(run=module.main)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit code 0 only for success, 2 for bad input, 1 for any other failure meant for people."""
    args = parser().parse_args(argv)
    try:
        code = args.run(args)
        sys.stdout.flush()  # here, where a full disk below it can still be told
        return code
    except LabError as e:
        print(f"labkit {args.command}: {e}", file=sys.stderr)
        if args.json:  # a machine reads standard output, and must not have to guess why it is empty
            print(json.dumps({"error": str(e), "field": getattr(e, "field", None)}))
        return 2 if isinstance(e, BadInput) else 1
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _no_more_output()
        return 0
    except OSError as e:
        if e.errno not in disk.REFUSES:
            raise
        _no_more_output()
        print(f"labkit {args.command}: {disk.NoRoom(e.filename or 'output', e)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _no_more_output() -> None:
    """What is still to be flushed at exit goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
