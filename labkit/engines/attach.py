"""A server that somebody else started: the same face as an engine of ours, without the power to stop it."""

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from labkit.engines.config import EngineConfig
from labkit.engines.server_info import allowed
from labkit.errors import BadInput, LabError


class Unreachable(LabError):
    """No usable answer from a server."""


def get_json(url: str, path: str, api_key: str | None = None, timeout_s: float = 10.0) -> dict:
    """GET a JSON document. Raises Unreachable with the reason."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=timeout_s) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as e:
        hint = " (set api_key_env to the variable that holds the key)" if e.code in (401, 403) else ""
        raise Unreachable(f"{url}{path}: HTTP {e.code}{hint}") from None
    except ValueError:
        return {}
    except OSError as e:
        raise Unreachable(f"{url}{path}: {getattr(e, 'reason', e)}") from None


def api_key(config: EngineConfig) -> str | None:
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

    config: EngineConfig
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


def attach(config: EngineConfig) -> Attached:
    """Check that the server at config.url answers and is one that the lab can measure. Raises Unreachable, BadInput."""
    key = api_key(config)
    found = Attached(config, config.url, key)
    info = found.server_info()
    if "model_path" not in info and "version" not in info:
        raise Unreachable(f"{config.url}/server_info does not describe a server that the lab knows (SGLang or pocket)")
    return found
