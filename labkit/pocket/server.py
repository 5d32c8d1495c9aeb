"""The pocket engine as a process: flags, socket, engine, server, and an end that comes at once."""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from labkit.errors import BadInput, LabError
from labkit.pocket import faults
from labkit.pocket import options as engine_options
from labkit.pocket.options import Options
from labkit.waits import TookTooLong

log = logging.getLogger("pocket")
PARENT_POLL_S = 0.1
GRACE_S = 0.5  # for answers that are being written when the end comes


class CannotStart(BadInput):
    """The engine could not be made ready: one line, and exit code 2 like every refusal to start."""

    def __init__(self, cause: Exception):
        LabError.__init__(self, " ".join(str(cause).split()))
        self.field, self.value, self.accepted = "engine", None, ""


class Parser(argparse.ArgumentParser):
    """One line for a wrong flag, exit code 2."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The server's own flags and the engine's."""
    flag = parser.add_argument
    flag("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)")
    flag("--port", type=int, default=30000, help="0 picks a free one; the ready line names it")
    flag("--served-model-name", help="name in /v1/models (default: the model's path)")
    flag("--api-key", help="clients must send it; prefer --api-key-env, a command line can be read by others")
    flag("--api-key-env", metavar="NAME", help="environment variable that holds the key")
    flag(
        "--enable-metrics",
        action="store_true",
        help="accepted for compatibility with SGLang; /metrics is always served",
    )
    flag("--max-queued-requests", type=int, default=256, help="requests that may wait before new ones get 429")
    flag(
        "--stream-pace",
        type=float,
        default=0.01,
        metavar="SECONDS",
        help="shortest time between two chunks of a /generate stream (default 0.01; 0: one chunk per step, as OpenAI's "
        "routes always send)",
    )
    flag("--watch-parent", action="store_true", help="exit when the parent process exits")
    engine_options.add_flags(parser)


def main(argv: Sequence[str] | None = None, engine: Callable | None = None) -> int:
    """Run the server until SIGTERM or SIGINT. 0 after an orderly end, 2 with one line when it cannot start.

    engine: makes the engine from Options (default: the C engine).
    """
    parser = Parser(prog="pocket", description="The pocket engine: a small real model behind SGLang's HTTP interface.")
    add_flags(parser)
    try:
        return serve(parser.parse_args(argv), os.environ, engine)
    except BadInput as e:
        print(f"pocket: {e}", file=sys.stderr)
        return 2


def serve(args: argparse.Namespace, env: Mapping[str, str], engine: Callable | None = None) -> int:
    """As main, from parsed flags; raises BadInput."""
    began = time.perf_counter()
    if args.watch_parent:
        _watch_parent()
    options = engine_options.from_args(args, env)
    key = _key(args, env)
    if args.max_queued_requests < 1:
        raise BadInput("max_queued_requests", args.max_queued_requests, "a whole number from 1")
    if not 0 <= args.stream_pace <= 1:
        raise BadInput("stream_pace", args.stream_pace, "0 to 1 second")
    listener = _bind(args.host, args.port)  # before the weights: a port in use should not take a second to tell
    with contextlib.closing(listener):
        return _run(args, options, key, listener, engine or _engine, began)


def _engine(options: Options):
    from labkit.pocket.engine import Engine

    return Engine(options)


def _run(args, options: Options, key: str | None, listener: socket.socket, make_engine: Callable, began: float) -> int:
    from labkit.pocket.http import app
    from labkit.pocket.http.handlers import Handlers
    from labkit.pocket.http.queue import RequestQueue
    from labkit.pocket.tokenizer import Tokenizer

    logging.raiseExceptions = False  # a log nobody reads any more is no reason to fail or to fill stderr
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="[%(asctime)s] %(message)s")
    tokenizer = Tokenizer(options.model_path)
    try:
        engine = make_engine(options)
    except BadInput:
        raise
    except (LabError, MemoryError) as e:
        raise CannotStart(e) from e
    try:
        host, port = listener.getsockname()[:2]
        for line in faults.warnings(options, args.speculative_num_draft_tokens):
            log.warning(line)
        for line in proof_lines(options, engine.describe()):
            log.info(line)
        model = args.served_model_name or options.model_path
        queue = RequestQueue(
            engine,
            tokenizer,
            model,
            seed=options.random_seed,
            longest=args.max_queued_requests,
            pace=args.stream_pace,
        )
        handlers = Handlers(
            queue=queue,
            options=options,
            model=model,
            host=host,
            port=port,
            startup_s=time.perf_counter() - began,
            command=_command(sys.argv),
        )
        asyncio.run(_listen(app.build(handlers, key), queue, listener, _url(host, port), getattr(args, "json", False)))
    finally:
        try:
            engine.close()
        except TookTooLong as e:
            log.error("%s", e)
    return 0


def proof_lines(options: Options, described: Mapping) -> list[str]:
    """What a reader of the log can hold against what was asked for: these say what really runs."""
    lines = [f"Preparing MXFP4 experts for {described['moe_kernels']} backend, kernels {described['kernel_variant']}"]
    if options.fp8_lm_head:
        lines.append("Online FP8 quantization of lm_head: e4m3, one scale per row")
    if options.speculative:
        lines.append(
            f"Speculative decoding {options.speculative_algorithm}: steps {options.speculative_num_steps}, "
            f"topk {options.speculative_eagle_topk}, draft tokens {options.speculative_num_draft_tokens}"
        )
    if options.simulate_acc_len != -1:
        lines.append(f"Accept length is SIMULATED at {options.simulate_acc_len:g}: the text is not the model's")
    return lines


async def _listen(app, queue, listener: socket.socket, url: str, as_json: bool) -> None:
    import uvicorn

    from labkit.pocket.http.connection import Connection

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self):  # the loop's own handlers below do it
            yield

        async def startup(self, sockets=None):
            await super().startup(sockets)
            if self.started:
                print(
                    json.dumps({"url": url, "pid": os.getpid()}) if as_json else f"pocket engine ready on {url}",
                    flush=True,
                )

    config = uvicorn.Config(
        app,
        http=Connection,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=30,
    )
    server = Server(config)

    def end():
        queue.close()
        server.should_exit = True
        last = threading.Timer(GRACE_S + 0.4, os._exit, (0,))  # if anything hangs
        last.daemon = True
        last.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    # Long-lived objects out of the collector's sight: a full collection in mid-stream costs several tokens' time.
    gc.collect()
    gc.freeze()
    await server.serve(sockets=[listener])


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise BadInput("port", port, "0 (pick one) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
    except OSError as e:
        raise BadInput("host", host, f"an address of this machine ({e})") from e
    # With the protocol named: asyncio switches Nagle's algorithm off only then, and a chunk must not wait for an ACK.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        return listener
    except OSError as e:
        listener.close()
        if e.errno in (98, 48, 10048):  # EADDRINUSE on Linux, macOS, Windows
            raise BadInput("port", port, f"a free port: another program listens on {host}:{port}") from e
        raise BadInput("host, port", f"{host}:{port}", f"an address this user may listen on ({e.strerror})") from e


def _key(args, env: Mapping[str, str]) -> str | None:
    if args.api_key is not None and args.api_key_env is not None:
        raise BadInput("api_key_env", args.api_key_env, "either --api-key or --api-key-env")
    if args.api_key_env is None:
        key, field = args.api_key, "api_key"
    else:
        key, field = env.get(args.api_key_env, ""), args.api_key_env
    if key is not None and (not key or not key.isascii() or not key.isprintable()):
        raise BadInput(field, "(not shown)", "a key of printable ASCII characters")
    return key


def _command(argv: Sequence[str]) -> list[str]:
    """The command line as shown to anybody: the key hidden in either way of writing its flag (abbreviations included),
    and without faults, which no real engine would admit to."""
    out, hide, drop = [], False, False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith("--api-k") and name != "--api-key-env"
        fault = len(name) > 3 and "--fault".startswith(name)
        if not (fault or drop):
            out.append("***" if hide else f"{name}=***" if secret and equals else word)
        hide, drop = secret and not equals, fault and not equals
    return out


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _watch_parent() -> None:
    """End when the parent does, from the first moment on. By polling: Linux's death signal follows the thread that
    started a process, and a notebook's threads come and go."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(2 * GRACE_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()
