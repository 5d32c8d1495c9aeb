"""A server that somebody else started: the same face as an engine of ours, without the power to stop it."""

import contextlib
import http.client
import json
import os
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from labkit.engines.adapter import Option
from labkit.engines.server_info import allowed
from labkit.errors import BadInput, LabError
from labkit.fields import refuse

if TYPE_CHECKING:
    from labkit.engines.config import EngineConfig

# Nothing is sent to a server that already runs. `model` says where its config.json is, for the accounts of bytes.
OPTIONS: tuple[Option, ...] = ()
ALSO = ("url", "api_key_env", "model")
SIDE_BY_SIDE = True

LONGEST_ANSWER = 64 << 20  # bytes of a JSON document


class Unreachable(LabError):
    """No usable answer from a server."""


def check(config: "EngineConfig") -> None:
    """An attached server has an address."""
    if config.url is None:
        raise refuse("the server's address when engine is attach", at=("url",), value=None)


def get_json(url: str, path: str, api_key: str | None = None, timeout_s: float = 10.0) -> dict:
    """GET a JSON document. Raises Unreachable with the reason."""
    status, body = _get(url, path, {"Authorization": f"Bearer {api_key}"} if api_key else {}, timeout_s)
    if status >= 300:
        hint = " (set api_key_env to the variable that holds the key)" if status in (401, 403) else ""
        raise Unreachable(f"{url}{path}: HTTP {status}{hint}")
    try:
        return json.loads(body or b"{}")
    except ValueError:
        return {}


def _get(url: str, path: str, headers: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
    """(status, body), both within timeout_s altogether. A socket's own timeout begins anew with each byte, and a server
    that sends one now and then could hold us for days; closing the connection under the reader ends that."""
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
        connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(LONGEST_ANSWER)
        if late.is_set():
            raise TimeoutError
        return answer.status, body
    except (OSError, http.client.HTTPException) as e:
        if late.is_set() or isinstance(e, TimeoutError):
            raise Unreachable(f"{url}{path}: no whole answer within {timeout_s:g} s") from None
        raise Unreachable(f"{url}{path}: {e or type(e).__name__}") from None
    finally:
        timer.cancel()
        connection.close()


def api_key(config: "EngineConfig") -> str | None:
    """The key from the environment variable that the configuration names. Raises BadInput when it is not set."""
    if config.api_key_env is None:
        return None
    value = os.environ.get(config.api_key_env)
    if not value:
        raise BadInput("api_key_env", config.api_key_env, "the name of a variable that is set in this environment")
    return value


@dataclass
class Attached:
    """An attached server; `stop` leaves it running."""

    config: "EngineConfig"
    url: str
    api_key: str | None = field(default=None, repr=False)
    pid: int | None = None
    log_path: None = None
    start_seconds: float = 0.0

    def server_info(self) -> dict:
        """/server_info, allow-listed. Raises Unreachable."""
        return allowed(get_json(self.url, "/server_info", self.api_key))

    def failure(self) -> str | None:
        """Why the server cannot be used now, None when it answers."""
        try:
            get_json(self.url, "/server_info", self.api_key)
        except Unreachable as e:
            return str(e)
        return None

    def launch_record(self) -> dict:
        """What a record says about how this engine came to run."""
        return {"attached": True}

    def stop(self) -> None:
        """Nothing: it is not ours."""

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def attach(config: "EngineConfig") -> Attached:
    """Check that the server at config.url answers and is one that the lab can measure. Raises Unreachable, BadInput."""
    key = api_key(config)
    found = Attached(config, config.url, key)
    info = found.server_info()
    if "model_path" not in info and "version" not in info:
        raise Unreachable(f"{config.url}/server_info does not describe a server that the lab knows (SGLang or pocket)")
    return found
