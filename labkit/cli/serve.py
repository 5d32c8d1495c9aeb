"""labkit serve: the pocket engine as an HTTP server."""

import os

HELP = "run the pocket engine: a small real model behind SGLang's HTTP interface"


def add_arguments(parser) -> None:
    from labkit.pocket.server import add_flags

    add_flags(parser)


def main(args) -> int:
    from labkit.pocket.server import serve

    return serve(args, os.environ)
