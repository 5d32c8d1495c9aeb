"""Requests to a server: one streamed generation in its dialect, its cache's flush, plain documents."""

import json
import threading
import time
from collections.abc import Callable, Sequence

from labkit.engines.dialects import SGLANG, Dialect
from labkit.errors import BadInput, LabError
from labkit.measure import sse
from labkit.measure.answer import Answer, RequestResult
from labkit.measure.wire import Exchange, RequestError, Stopped, brief
from labkit.workloads import Prompt

FLUSH_WAIT_S = 5.0  # how long an engine may take to put the last request away
RETRY_S = 120.0  # how long a server may ask to be asked later


class Cancelled(LabError):
    """The request was cancelled; the connection is closed, which makes the engine drop it. `partial` has what came."""

    def __init__(self, partial: RequestResult):
        super().__init__("cancelled")
        self.partial = partial


def generate(
    url: str,
    *,
    input_ids: Sequence[int] | None = None,
    text: str | None = None,
    sampling: dict | None = None,
    api_key: str | None = None,
    timeout_s: float = 300.0,
    cancel: threading.Event | None = None,
    on_chunk: Callable[[float, int], None] | None = None,
    on_answer: Callable[[Answer], None] | None = None,
    dialect: Dialect = SGLANG,
) -> RequestResult:
    """Stream one generation.

    `sampling` has SGLang's names; `dialect` puts it to the server and reads the stream. `on_chunk(seconds, tokens)`
    runs after each event with new tokens: keep it cheap, it is inside the measurement. `on_answer` is called once,
    before the first event, with the answer that another thread may look at. Setting `cancel` from another thread closes
    the connection within 0.1 s and raises Cancelled. Raises RequestError (HTTP status, malformed stream, silence longer
    than timeout_s, an error that the server sent), Unreachable where the server's counters are not to be had, BadInput
    for a bad url or for giving both or neither of text and input_ids.
    """
    if (input_ids is None) == (text is None):
        raise BadInput("prompt", None, "exactly one of text and input_ids")
    body = dialect.body(text, None if input_ids is None else list(input_ids), sampling or {})
    before = dialect.counters.counters(url, api_key) if dialect.counters else {}
    read = dialect.reader() if dialect.reader else None
    answer, done = None, False
    try:
        exchange, put_off_s = _accepted(url, dialect.path, json.dumps(body).encode(), api_key, timeout_s, cancel)
        with exchange:
            answer = Answer(exchange.sent, on_chunk)
            if on_answer is not None:
                on_answer(answer)
            for now, name, data in sse.events(exchange.pieces()):
                if data == b"[DONE]":
                    done = read is not None  # SGLang ends a broken stream so too
                    break
                for event in read(data) if read is not None else (data,):
                    answer.take(now, name, event)
                exchange.came(now)
            stood_still_s = exchange.stood_still_s()
    except Stopped:
        raise Cancelled(_partial(answer)) from None
    limit = (sampling or {}).get("max_new_tokens") if read is not None else None  # SGLang always tells its count
    result = answer.read(limit=limit)
    if dialect.counters and result.output_tokens:
        after = dialect.counters.settled(url, api_key, before, result.output_tokens)
        result = answer.read(dialect.counters.spent(before, after, result.output_tokens), limit)
    said = f": {brief(answer.stray)}" if answer.stray else ""
    result.stood_still_s, result.put_off_s = stood_still_s, put_off_s
    if not result.chunk_times:
        raise RequestError(f"the server ended the stream without a token{said}", 200)
    if result.finish_reason is None and not done:
        came = f"{result.output_tokens} tokens" if result.output_tokens else f"{len(result.chunk_times)} events"
        raise RequestError(f"the stream broke off after {came}{said}", 200)
    return result


def answer(url: str, prompt: Prompt, **how) -> RequestResult:
    """`generate` for a prompt of a load. how: its further arguments."""
    sampling = {**prompt.sampling, "max_new_tokens": prompt.max_new_tokens}
    return generate(url, text=prompt.text, input_ids=prompt.input_ids, sampling=sampling, **how)


def _accepted(url, path, body, api_key, timeout_s, cancel) -> tuple[Exchange, float]:
    """The exchange of a request that the server takes up, asked again where it says when (Retry-After): times count
    from the last asking; and how long after the first that was, s. Raises RequestError, Stopped."""
    stop = cancel.is_set if cancel is not None else bool
    until = time.monotonic() + min(timeout_s, RETRY_S)
    began, put_off = time.perf_counter(), False
    while True:
        try:
            exchange = Exchange(url, path, body, api_key, timeout_s, stop)
            return exchange, exchange.sent - began if put_off else 0.0
        except RequestError as e:
            if e.retry_after_s is None or time.monotonic() + e.retry_after_s > until:
                raise
            pause, put_off = e.retry_after_s, True
        if cancel is None:
            time.sleep(pause)
        elif cancel.wait(pause):
            raise Stopped


def _partial(answer: Answer | None) -> RequestResult:
    try:
        return answer.read() if answer is not None else RequestResult()
    except RequestError:
        return answer.result


def get_json(url: str, path: str, *, api_key: str | None = None, timeout_s: float = 10.0) -> dict:
    """GET a JSON document. Raises RequestError."""
    status, body = request(url, "GET", path, api_key=api_key, timeout_s=timeout_s)
    if status != 200:
        raise RequestError(f"GET {path}: HTTP {status}: {brief(body)}", status)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(f"GET {path}: not JSON: {brief(body)}", status) from None


def flush(
    url: str,
    *,
    api_key: str | None = None,
    timeout_s: float = 10.0,
    wait_s: float | None = None,
    cancel: threading.Event | None = None,
) -> int:
    """Empty the prefix cache; the last HTTP status (200 = flushed, 400 = still refused because a request is running).

    An engine holds a request for a moment after its last byte. So the server is asked to wait (SGLang's ?timeout=), and
    a refusal is met by asking again, less and less often, for `wait_s` (FLUSH_WAIT_S) in all. Raises RequestError
    without an answer.
    """
    wait_s = FLUSH_WAIT_S if wait_s is None else wait_s
    deadline, pause, way = time.monotonic() + wait_s, 0.02, ("POST", f"/flush_cache?timeout={wait_s:g}")
    while True:
        status = request(url, *way, api_key=api_key, timeout_s=timeout_s + wait_s)[0]
        if status == 200 or (cancel is not None and cancel.is_set()):
            return status
        other = {404: ("POST", "/flush_cache"), 422: ("POST", "/flush_cache"), 405: ("GET", "/flush_cache")}.get(status)
        if other is not None and other != way and way[0] == "POST":
            way = other
            continue
        # 4xx and 503 may pass; what the server does not have will not come.
        if status in (401, 403, 404, 405, 501) or 300 <= status < 400 or time.monotonic() + pause > deadline:
            return status
        time.sleep(pause)
        pause = min(2 * pause, 0.5)


def request(
    url: str, method: str, path: str, body: bytes = b"", *, api_key: str | None = None, timeout_s: float = 10.0
) -> tuple[int, bytes]:
    """One plain request: (status, body). Raises RequestError when no answer comes."""
    with Exchange(url, path, body, api_key, timeout_s, bool, method, check=False) as exchange:
        return exchange.status, b"".join(piece for _, piece in exchange.pieces())


__all__ = ["Cancelled", "RequestError", "RequestResult", "flush", "generate", "get_json", "request"]
