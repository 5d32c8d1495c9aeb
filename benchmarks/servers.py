"""The servers that a yardstick compares: started side by side, one working at a time, ended for certain."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from labkit.engines import ladder
from labkit.engines import pocket as launch
from labkit.engines.config import EngineConfig
from labkit.errors import LabError
from labkit.measure.client import generate

START_S = 180.0
END_S = 5.0


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def process(name: str, argv: Sequence[str], env: dict[str, str], log: Path, ready: str) -> Iterator[re.Match]:
    """Run a server until the block ends; yields the match of `ready` in its log. LabError with its last line."""
    with log.open("wb") as out:
        try:
            child = subprocess.Popen(
                argv,
                env=os.environ | env,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(f"{name}: {argv[0]} does not start ({error.strerror})") from None
    try:
        yield _wait(name, child, log, re.compile(ready))
    finally:
        _end(child)


def _wait(name: str, child: subprocess.Popen, log: Path, ready: re.Pattern) -> re.Match:
    deadline = time.monotonic() + START_S
    while True:
        text = log.read_text(errors="replace")
        found = ready.search(text)
        if found:
            return found
        ended = child.poll() is not None
        if ended or time.monotonic() > deadline:
            last = ([line for line in text.splitlines() if line.strip()] or ["nothing in its log"])[-1]
            raise LabError(f"{name}: {'ended' if ended else 'not ready in time'}: {last}")
        time.sleep(0.05)


def _end(child: subprocess.Popen) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            child.wait(END_S)
            return
        except subprocess.TimeoutExpired:
            pass


@contextlib.contextmanager
def pocket(model: str, which: str, folder: Path, threads: int = 1) -> Iterator[str]:
    """The pocket engine on one arm of its ladder; yields its URL. model: "pocket" or a folder."""
    base = EngineConfig.from_dict({"engine": "pocket", "model": model, "threads": threads})
    config = ladder.get(ladder.arms(base), which).config
    started = launch.command(config, 0)
    argv = [*started.argv, "--watch-parent"]
    with process(
        f"pocket engine ({which})", argv, started.env, folder / f"pocket-{which}.log", launch.PHASES[-1].pattern
    ) as found:
        yield found["url"]


@contextlib.contextmanager
def llama(binary: Path, gguf: Path, folder: Path, context: int, extra: Sequence[str] = ()) -> Iterator[str]:
    """llama.cpp's llama-server on one thread, one slot; yields its URL."""
    port = free_port()
    argv = [
        str(binary),
        "-m",
        str(gguf),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-t",
        "1",
        "-tb",
        "1",
        "-c",
        str(context),
        "--parallel",
        "1",
        *extra,
    ]
    with process("llama-server", argv, {}, folder / "llama-server.log", r"listening on http"):
        yield f"http://127.0.0.1:{port}"


def pocket_tpot(url: str, ids: Sequence[int], tokens: int) -> float:
    """Seconds a token that labkit's client sees, greedy, end of text ignored."""
    result = generate(url, input_ids=ids, sampling={"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True})
    return tpot("pocket engine", list(zip(result.chunk_times, result.chunk_tokens, strict=True)), tokens)


def llama_tpot(url: str, ids: Sequence[int], tokens: int) -> float:
    """Seconds a token of llama-server's own streaming endpoint, greedy, end of text ignored, no prompt cache."""
    body = {
        "prompt": list(ids),
        "n_predict": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "cache_prompt": False,
        "samplers": ["temperature"],
    }
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=300)
    try:
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise LabError(f"llama-server: HTTP {answer.status}: {answer.read(300).decode(errors='replace')}")
        arrivals = list(_arrivals(answer))
    except OSError as error:
        raise LabError(f"llama-server: {error}") from None
    finally:
        connection.close()
    return tpot("llama-server", arrivals, tokens)


def _arrivals(answer: http.client.HTTPResponse) -> Iterator[tuple[float, int]]:
    """(clock, tokens so far) of each event that has tokens."""
    for line in answer:
        now = time.perf_counter()
        if line.startswith(b"data:") and b'"stop":false' in line:
            yield now, int(re.search(rb'"tokens_predicted":(\d+)', line)[1])


def tpot(name: str, arrivals: Sequence[tuple[float, int]], tokens: int) -> float:
    """Seconds a token between the first and the last event of (clock, tokens so far). LabError on a short answer."""
    got = arrivals[-1][1] if arrivals else 0
    if got != tokens or len(arrivals) < 2 or arrivals[0][1] >= got:
        raise LabError(f"{name}: {got} tokens in {len(arrivals)} events where {tokens} were asked for")
    return (arrivals[-1][0] - arrivals[0][0]) / (got - arrivals[0][1])
