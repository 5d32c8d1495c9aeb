"""labkit serve: the pocket engine as an HTTP server."""

import os

HELP = "run the pocket engine: a small real model behind SGLang's HTTP interface"


def add_arguments(parser) -> None:
    from labkit.pocket.server import add_flags

    add_flags(parser)


def main(args) -> int:
    from labkit.engines import memory
    from labkit.engines.config import EngineConfig
    from labkit.pocket.server import serve

    config = {"engine": "pocket", "model": args.model_path, "context_length": args.context_length}
    memory.check(EngineConfig.from_dict(config), "model_path")
    return serve(args, os.environ)
