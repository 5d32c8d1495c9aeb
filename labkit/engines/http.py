"""GET and POST to a server of unknown manners, within a limit altogether."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from urllib.parse import urlsplit

from labkit.errors import LabError

LONGEST_ANSWER = 64 << 20  # bytes of a document


class Unreachable(LabError):
    """No usable answer from a server. `status`: of HTTP, 0 when there was none."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


def get_json(url: str, path: str, api_key: str | None = None, timeout_s: float = 10.0) -> dict:
    """GET a JSON document. Raises Unreachable with the reason."""
    try:
        found = json.loads(get_text(url, path, api_key, timeout_s) or "{}")
    except ValueError:
        return {}
    return found


def get_text(url: str, path: str, api_key: str | None = None, timeout_s: float = 10.0) -> str:
    """GET a document as text. Raises Unreachable with the reason."""
    status, body, to = _get(url, path, {"Authorization": f"Bearer {api_key}"} if api_key else {}, timeout_s)
    if status >= 300:
        hint = " (set api_key_env to the variable that holds the key)" if status in (401, 403) else ""
        if to and status < 400:
            hint = f" (it redirects to {to[:200]}: give the address that it redirects to)"
        raise Unreachable(f"{url}{path}: HTTP {status}{hint}", status)
    return body.decode(errors="replace")


def post_json(url: str, path: str, document: dict | list, api_key: str | None = None, timeout_s: float = 60.0) -> dict:
    """POST a JSON document, get one. Raises Unreachable with the reason."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    status, body, _ = _get(url, path, headers, timeout_s, json.dumps(document).encode())
    if status >= 300:
        raise Unreachable(f"{url}{path}: HTTP {status}", status)
    try:
        return json.loads(body or b"{}")
    except ValueError:
        return {}


def trust(e: Exception) -> str:
    """What helps where a certificate is not trusted."""
    if not isinstance(e, ssl.SSLCertVerificationError):
        return ""
    return " (a certificate authority of your own: put its file into the environment variable SSL_CERT_FILE)"


def _get(
    url: str, path: str, headers: dict[str, str], timeout_s: float, body: bytes | None = None
) -> tuple[int, bytes, str | None]:
    """(status, body, where it redirects to), all within timeout_s. A socket's own timeout begins anew with each byte,
    and a server that sends one now and then could hold us for days; closing the connection under the reader ends that.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unreachable(f"{url}: not an address of the kind http://HOST:PORT")
    late = threading.Event()
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)

    def hang_up() -> None:
        late.set()
        with contextlib.suppress(OSError, AttributeError):  # not connected, or closed already
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, hang_up)
    timer.daemon = True
    timer.start()
    try:
        method = "GET" if body is None else "POST"
        connection.request(method, parts.path.rstrip("/") + path, body, headers)
        answer = connection.getresponse()
        told = answer.read(LONGEST_ANSWER)
        if late.is_set():
            raise TimeoutError
        return answer.status, told, answer.getheader("Location")
    except (OSError, http.client.HTTPException) as e:
        if late.is_set() or isinstance(e, TimeoutError):
            raise Unreachable(f"{url}{path}: no whole answer within {timeout_s:g} s") from None
        raise Unreachable(f"{url}{path}: {e or type(e).__name__}{trust(e)}") from None
    finally:
        timer.cancel()
        connection.close()
