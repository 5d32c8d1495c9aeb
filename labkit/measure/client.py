"""One streamed request to `/generate`, timed where the bytes arrive.

Written on sockets, not on httpx: the pocket engine sends a token about every millisecond and shares two cores with this
client, so the client's own time per chunk is part of what it measures (measured at 1 chunk/ms on 2 cores: 0.06 ms of
CPU a chunk here, 0.33 ms with httpx and JSON per line). While the stream runs, a chunk costs one recv, one clock read
and one search for the token count; JSON is parsed once, at the end.
"""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from labkit.errors import BadInput, LabError

# In generated text a quote is escaped, so text that talks about "completion_tokens": cannot match this.
_COUNT = b'"completion_tokens":'
_POLL_S = 0.1  # how soon a blocked read notices a cancel


class RequestError(LabError):
    """The server refused, failed or vanished. `status` is the HTTP status, 0 when there was none."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class Cancelled(LabError):
    """The request was cancelled; the connection is closed, which makes the engine drop it. `partial` has what came."""

    def __init__(self, partial: "RequestResult"):
        super().__init__("cancelled")
        self.partial = partial


@dataclass
class RequestResult:
    """One request as the client saw it. Times in seconds since the request was sent.

    ttft_s       first event that carries a token of any kind
    latency_s    last event that carried a new token
    tpot_s       (latency - ttft) / (output tokens - 1); None below two tokens
    chunk_times  arrival of every event with new tokens; chunk_tokens: completion_tokens known at that moment
    histogram    correct drafts per verify step: entry i counts the steps that accepted i drafts
    accept_length  output tokens per verify step, bonus token included; None without speculation
    """

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float | None = None
    latency_s: float | None = None
    tpot_s: float | None = None
    chunk_times: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    text: str = ""
    output_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    verify_ct: int | None = None
    correct_drafts: int | None = None
    proposed_drafts: int | None = None
    histogram: list[int] | None = None
    accept_length: float | None = None
    meta: dict = field(default_factory=dict)


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
) -> RequestResult:
    """Stream one generation from a server that speaks SGLang's `/generate`.

    `sampling` is sent as sampling_params. `on_chunk(seconds, tokens)` runs after each event with new tokens: keep it
    cheap, it is inside the measurement. Setting `cancel` from another thread closes the connection within 0.1 s and
    raises Cancelled. Raises RequestError (HTTP status, malformed stream, silence longer than timeout_s), BadInput for a
    bad url or for giving both or neither of text and input_ids.
    """
    if (input_ids is None) == (text is None):
        raise BadInput("prompt", None, "exactly one of text and input_ids")
    prompt = {"text": text} if text is not None else {"input_ids": list(input_ids)}
    body = {**prompt, "sampling_params": sampling or {}, "stream": True}
    result, last = RequestResult(), b""
    stop = cancel.is_set if cancel is not None else bool
    with _Stream(url, "/generate", json.dumps(body).encode(), api_key, timeout_s, stop) as stream:
        sent = stream.sent
        seen, times, counts = 0, result.chunk_times, result.chunk_tokens
        try:
            for now, event in stream.events():
                if event == b"[DONE]":
                    break
                at = event.rfind(_COUNT)
                if at < 0:
                    _raise_if_error(event)
                    continue
                last = event
                tokens = _integer(event, at + len(_COUNT))
                if tokens > seen:
                    seen = tokens
                    times.append(now - sent)
                    counts.append(tokens)
                    if on_chunk is not None:
                        on_chunk(now - sent, tokens)
        except _Stopped:
            _fill(result, last)
            raise Cancelled(result) from None
    if not last:
        raise RequestError("the server ended the stream without a token", 200)
    _fill(result, last)
    if result.finish_reason is None:
        raise RequestError(f"the stream broke off after {result.output_tokens} tokens", 200)
    return result


def get_json(url: str, path: str, *, api_key: str | None = None, timeout_s: float = 10.0) -> dict:
    """GET a JSON document. Raises RequestError."""
    status, body = request(url, "GET", path, api_key=api_key, timeout_s=timeout_s)
    if status != 200:
        raise RequestError(f"GET {path}: HTTP {status}: {_brief(body)}", status)
    try:
        return json.loads(body)
    except ValueError:
        raise RequestError(f"GET {path}: not JSON: {_brief(body)}", status) from None


def flush(url: str, *, api_key: str | None = None, timeout_s: float = 10.0) -> int:
    """POST /flush_cache; the HTTP status (200 = flushed, 400 = refused because a request is running)."""
    return request(url, "POST", "/flush_cache", api_key=api_key, timeout_s=timeout_s)[0]


def request(
    url: str, method: str, path: str, body: bytes = b"", *, api_key: str | None = None, timeout_s: float = 10.0
) -> tuple[int, bytes]:
    """One plain request: (status, body). Raises RequestError when no answer comes."""
    with _Stream(url, path, body, api_key, timeout_s, bool, method, check=False) as stream:
        return stream.status, b"".join(piece for _, piece in stream.pieces())


def _fill(result: RequestResult, event: bytes) -> None:
    """Take the cumulative fields of the last event and derive the rest."""
    document = json.loads(event) if event else {}
    meta = document.get("meta_info", {})
    result.meta = {k: v for k, v in meta.items() if k not in ("id", "output_token_logprobs", "input_token_logprobs")}
    result.text = document.get("text") or ""
    result.output_ids = document.get("output_ids") or []
    result.prompt_tokens = meta.get("prompt_tokens") or 0
    result.output_tokens = meta.get("completion_tokens") or 0
    result.cached_tokens = meta.get("cached_tokens") or 0
    reason = meta.get("finish_reason")
    result.finish_reason = reason.get("type") if isinstance(reason, dict) else reason
    if result.chunk_times:
        result.ttft_s, result.latency_s = result.chunk_times[0], result.chunk_times[-1]
        if result.output_tokens > 1:
            result.tpot_s = (result.latency_s - result.ttft_s) / (result.output_tokens - 1)
    if meta.get("spec_verify_ct"):
        result.verify_ct = meta["spec_verify_ct"]
        result.correct_drafts = meta.get("spec_num_correct_drafts")
        result.proposed_drafts = meta.get("spec_num_proposed_drafts")
        result.histogram = meta.get("spec_correct_drafts_histogram")
        result.accept_length = result.output_tokens / result.verify_ct


def _integer(data: bytes, at: int) -> int:
    """The integer that starts at `at`, after blanks. Cheaper than parsing the whole document."""
    digits = data[at : at + 20].lstrip()
    end = 0
    while digits[end : end + 1].isdigit():
        end += 1
    return int(digits[:end] or b"0")


def _raise_if_error(event: bytes) -> None:
    try:
        document = json.loads(event)
    except ValueError:
        raise RequestError(f"the stream holds something that is not JSON: {_brief(event)}", 200) from None
    if isinstance(document, dict) and "error" in document:
        error = document["error"]
        raise RequestError(f"the engine failed: {error.get('message') if isinstance(error, dict) else error}", 200)


def _brief(body: bytes) -> str:
    return body[:300].decode(errors="replace").strip()


class _Stopped(Exception):
    pass


class _Stream:
    """An HTTP/1.1 exchange whose body is read as it arrives, each piece with the clock at its recv."""

    def __init__(self, url, path, body, api_key, timeout_s, stop, method="POST", check=True):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("url", url, "http://HOST:PORT")
        self._stop, self._timeout = stop, timeout_s
        self._where = f"{parts.scheme}://{parts.netloc}"
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            self._socket = socket.create_connection((parts.hostname, port), min(timeout_s, 10.0))
        except OSError as e:
            raise RequestError(f"no answer from {self._where}: {e.strerror or e}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parts.scheme == "https":
                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=parts.hostname)
            head = f"{method} {parts.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
            if body or method == "POST":
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            if api_key:
                head += f"Authorization: Bearer {api_key}\r\n"
            self._socket.settimeout(timeout_s)
            self.sent = time.perf_counter()
            self._socket.sendall(head.encode() + b"\r\n" + body)
            self._socket.settimeout(_POLL_S)
            self._read_head()
            if check and self.status != 200:
                piece = b"".join(p for _, p in self.pieces())
                raise RequestError(f"HTTP {self.status}: {_brief(piece)}", self.status)
        except OSError as e:
            self._socket.close()
            raise RequestError(f"{self._where}: {e.strerror or e}") from None
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _recv(self) -> tuple[float, bytes]:
        """Next bytes and the clock right after they came; b"" at the end. Raises _Stopped on cancel."""
        deadline = time.perf_counter() + self._timeout
        while True:
            if self._stop():
                raise _Stopped
            try:
                # 64 KiB: from 128 KiB on every call would map and unmap its buffer, which doubles the cost of a chunk.
                data = self._socket.recv(65536)
                return time.perf_counter(), data
            except TimeoutError:
                if time.perf_counter() > deadline:
                    raise RequestError(f"{self._where}: silent for {self._timeout:g} s") from None
            except OSError as e:
                raise RequestError(f"{self._where}: connection lost ({e.strerror or e})") from None

    def _read_head(self) -> None:
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                self._now, piece = self._recv()
                if not piece:
                    raise RequestError(f"{self._where}: closed the connection without an answer")
                data += piece
        except _Stopped:
            raise Cancelled(RequestResult()) from None
        head, self._rest = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        try:
            self.status = int(lines[0].split(" ")[1])
        except (IndexError, ValueError):
            raise RequestError(f"{self._where}: not an HTTP answer: {lines[0][:100]}") from None
        headers = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
        self._chunked = "chunked" in headers.get("transfer-encoding", "")
        self._length = int(headers["content-length"]) if "content-length" in headers else None

    def pieces(self):
        """(clock, bytes) of the decoded body. A chunk cut short by a lost connection raises RequestError."""
        buffer, now, left = self._rest, self._now, self._length
        if not self._chunked:
            while left is None or left > 0:
                if not buffer:
                    now, buffer = self._recv()
                    if not buffer:
                        if left:
                            raise RequestError(f"{self._where}: connection lost in the middle of the answer")
                        return
                yield now, buffer
                left, buffer = None if left is None else left - len(buffer), b""
            return
        while True:
            end = buffer.find(b"\r\n")
            if end >= 0:
                size = int(buffer[:end].split(b";")[0], 16)
                if size == 0:
                    return
                start, stop = end + 2, end + 2 + size
                if len(buffer) >= stop + 2:
                    yield now, buffer[start:stop]
                    buffer = buffer[stop + 2 :]
                    continue
            now, more = self._recv()
            if not more:
                raise RequestError(f"{self._where}: connection lost in the middle of the stream")
            buffer += more

    def events(self):
        """(clock, data) of each server-sent event. Events that arrive in one recv share its clock."""
        buffer = b""
        for now, piece in self.pieces():
            buffer += piece
            if b"\n\n" not in buffer and b"\r\n\r\n" not in buffer:
                continue
            if b"\r" in buffer:  # a CR inside JSON is always escaped
                buffer = buffer.replace(b"\r\n", b"\n")
            *whole, buffer = buffer.split(b"\n\n")
            for event in whole:
                if event.startswith(b"data:"):
                    yield now, event[5:].strip()
