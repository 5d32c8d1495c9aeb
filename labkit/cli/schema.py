"""`labkit schema`: the JSON schema of a params file, for editors."""

import argparse
import json

HELP = "print the JSON schema of params files (params/schema.json): completion and checks in an editor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def main(args: argparse.Namespace) -> int:
    from labkit.params import schema

    print(json.dumps(schema(), indent=1))
    return 0
