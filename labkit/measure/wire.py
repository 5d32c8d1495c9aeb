"""One HTTP/1.1 exchange on a plain socket, its body read as it arrives, each piece with the clock at its recv.

Written on sockets, not on httpx: the pocket engine sends a token about every millisecond and shares two cores with this
client, so the client's own time per chunk is part of what it measures (measured at 1 chunk/ms on 2 cores: 0.06 ms of
CPU a chunk here, 0.33 ms with httpx and JSON per line).
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from labkit.engines.http import trust
from labkit.errors import BadInput, LabError

_POLL_S = 0.1  # how soon a blocked read notices a cancel
_HEAD_LIMIT = 1 << 20  # bytes of status line and headers, more is no HTTP server
_ONE_EVENT = 1 << 28  # bytes of one chunk of the body
_STILL_S = 1.0  # between two looks at the clock, which are _POLL_S apart: nothing ran in between


class RequestError(LabError):
    """The server refused, failed or vanished. `status` is the HTTP status, 0 when there was none; `retry_after_s`: how
    long it asks to wait, where it does."""

    def __init__(self, message: str, status: int = 0, retry_after_s: float | None = None):
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class Stopped(Exception):
    """The caller asked to stop; the connection is closed by the context manager."""


def brief(body: bytes) -> str:
    """The beginning of something that was not understood, for an error's one line."""
    return " ".join(body[:300].decode(errors="replace").split())


def _asleep() -> float:
    """Seconds that this machine has been suspended since it booted; the clock of measurements stands still meanwhile.
    0 where no clock tells."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Exchange:
    """A request that was sent, and its answer. Use as a context manager: leaving it closes the connection.

    sent: clock right before the request left; status: of the answer; kind: its content type.
    Raises RequestError where no answer comes (with `check`, also for a status other than 200), BadInput for a bad url,
    Stopped.
    """

    def __init__(
        self,
        url: str,
        path: str,
        body: bytes,
        api_key: str | None,
        timeout_s: float,
        stop: Callable[[], bool],
        method: str = "POST",
        check: bool = True,
    ):
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise BadInput("url", url, "http://HOST:PORT with a port from 0 to 65535") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("url", url, "http://HOST:PORT")
        self._stop, self._timeout = stop, timeout_s
        self._where = f"{parts.scheme}://{parts.netloc}"
        port = port or (443 if parts.scheme == "https" else 80)
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
            self.sent = self._since = self._looked = time.perf_counter()
            self._stood, self._slept = 0.0, _asleep()
            self._socket.sendall(head.encode() + b"\r\n" + body)
            self._looked = time.perf_counter()  # a server that takes nothing in is no standstill
            self._socket.settimeout(_POLL_S)
            self._read_head()
            if check and self.status != 200:
                raise self._refused()
        except OSError as e:
            self._socket.close()
            raise RequestError(f"{self._where}: {e.strerror or e}{trust(e)}") from None
        except BaseException:
            self._socket.close()
            raise

    def _refused(self) -> RequestError:
        said = brief(b"".join(p for _, p in self.pieces()))
        if 300 <= self.status < 400 and (to := self._headers.get("location")):
            said = f"the server redirects to {brief(to.encode('latin-1'))}: give the address that it redirects to"
        after = self._headers.get("retry-after", "")
        wait_s = float(after) if after.isdecimal() and self.status in (429, 503) else None
        return RequestError(f"HTTP {self.status}: {said}", self.status, wait_s)

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()

    def came(self, now: float) -> None:
        """A whole event came at this clock: the limit counts from here."""
        self._since = now

    def stood_still_s(self) -> float:
        """Seconds since the request in which this process did not run: it was stopped, or the machine was asleep."""
        slept = _asleep() - self._slept
        return self._stood + (slept if slept > _STILL_S else 0.0)

    def _look(self) -> float:
        """The clock. A time in which this process stood still does not count against the server's limit."""
        now = time.perf_counter()
        if now - self._looked > _STILL_S:
            self._stood += now - self._looked
            self._since += now - self._looked
        self._looked = now
        return now

    def _recv(self) -> tuple[float, bytes]:
        """Next bytes and the clock right after they came; b"" at the end. The limit counts from the request, or from
        the last `came`: bytes that never make a whole answer do not lengthen it."""
        began = self._look()
        while True:
            if self._stop():
                raise Stopped
            now = self._look()
            if now > self._since + self._timeout:
                quiet = now - began >= self._timeout / 2
                said = "silent" if quiet else "sends bytes, but no whole answer or event"
                raise RequestError(f"{self._where}: {said} for {self._timeout:g} s")
            try:
                # 64 KiB: from 128 KiB on every call would map and unmap its buffer, which doubles the cost of a chunk.
                data = self._socket.recv(65536)
                return self._look(), data
            except TimeoutError:
                continue
            except OSError as e:
                raise RequestError(f"{self._where}: connection lost ({e.strerror or e})") from None

    def _read_head(self) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                self._now, piece = self._recv()
                if not piece:
                    raise RequestError(f"{self._where}: closed the connection without an answer")
                data += piece
                if len(data) > _HEAD_LIMIT:
                    raise RequestError(f"{self._where}: not an HTTP answer: {brief(data[:100])}")
            head, data = data.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            try:
                self.status = int(lines[0].split(" ")[1])
            except (IndexError, ValueError):
                raise RequestError(f"{self._where}: not an HTTP answer: {lines[0][:100]}") from None
            if not 100 <= self.status < 200:  # an interim answer (100 Continue) comes before the real one
                break
        self._rest = data
        fields = (line.partition(":") for line in lines[1:] if ":" in line)
        self._headers = headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        self.kind = headers.get("content-type", "").lower()
        if headers.get("content-encoding", "").lower() not in ("identity", ""):
            raise RequestError(f"{self._where}: a compressed answer ({headers['content-encoding']}), unasked for")
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        try:
            self._length = int(headers["content-length"]) if "content-length" in headers else None
        except ValueError:
            raise RequestError(f"{self._where}: content-length is {headers['content-length'][:30]!r}") from None

    def pieces(self) -> Iterator[tuple[float, bytes]]:
        """(clock, bytes) of the decoded body. A body cut short by a lost connection raises RequestError."""
        return self._chunks() if self._chunked else self._plain()

    def _plain(self) -> Iterator[tuple[float, bytes]]:
        buffer, now, left = self._rest, self._now, self._length
        while left is None or left > 0:
            if not buffer:
                now, buffer = self._recv()
                if not buffer:
                    if left:
                        raise RequestError(f"{self._where}: connection lost in the middle of the answer")
                    return
            yield now, buffer if left is None else buffer[:left]
            left, buffer = None if left is None else left - len(buffer), b""

    def _chunks(self) -> Iterator[tuple[float, bytes]]:
        buffer, now = self._rest, self._now
        while True:
            end = buffer.find(b"\r\n")
            if end >= 0:
                size = self._size(buffer[:end])
                if size == 0:
                    return
                start, stop = end + 2, end + 2 + size
                if len(buffer) >= stop + 2:
                    yield now, buffer[start:stop]
                    buffer = buffer[stop + 2 :]
                    continue
            elif len(buffer) > 1024:
                self._size(buffer)
            now, more = self._recv()
            if not more:
                raise RequestError(f"{self._where}: connection lost in the middle of the stream")
            buffer += more

    def _size(self, line: bytes) -> int:
        digits = line.split(b";")[0].strip()
        try:
            size = int(digits, 16)
        except ValueError:
            size = -1
        if not 0 <= size <= _ONE_EVENT:
            raise RequestError(f"{self._where}: broken chunked encoding: {brief(line[:40])!r}")
        return size
