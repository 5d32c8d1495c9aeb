"""A server that somebody else started: the same face as an engine of ours, without the power to stop it."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labkit.engines import survey
from labkit.engines.adapter import Option
from labkit.engines.dialects import Dialect
from labkit.engines.http import Unreachable, get_json
from labkit.engines.identify import Identity
from labkit.errors import BadInput
from labkit.fields import refuse

if TYPE_CHECKING:
    from labkit.engines.config import EngineConfig

# Nothing is sent to a server that already runs. `model`: which of its models, where it has several; and where the
# config.json or GGUF file is, for the accounts of bytes.
OPTIONS: tuple[Option, ...] = ()
ALSO = ("url", "api_key_env", "model")
SIDE_BY_SIDE = True


def check(config: "EngineConfig") -> None:
    """An attached server has an address."""
    if config.url is None:
        raise refuse("the server's address when engine is attach", at=("url",), value=None)


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
    """An attached server; `stop` leaves it running. found: who it is and how it is asked, by several signs."""

    config: "EngineConfig"
    url: str
    found: survey.Found
    api_key: str | None = field(default=None, repr=False)
    pid: int | None = None
    log_path: None = None
    start_seconds: float = 0.0

    @property
    def dialect(self) -> Dialect:
        return self.found.dialect

    @property
    def identity(self) -> Identity:
        return self.found.identity

    def server_info(self) -> dict:
        """What the server says of itself now, allow-listed. Raises Unreachable."""
        return survey.look(self.url, self.api_key, model=_model(self.config)).info

    def failure(self) -> str | None:
        """Why the server cannot be used now, None when it answers."""
        try:
            get_json(self.url, self.found.alive, self.api_key)
        except Unreachable as e:
            return str(e)
        return None

    def launch_record(self) -> dict:
        """What a record says about how this engine came to run."""
        return {"attached": True, "dialect": self.dialect.name}

    def stop(self) -> None:
        """Nothing: it is not ours."""

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def _model(config: "EngineConfig") -> str | None:
    """The model to ask for, where a server has several."""
    return config.model if "model" in config.model_fields_set else None


def attach(config: "EngineConfig") -> Attached:
    """Find out who answers at config.url and how to measure it. Raises Unreachable, BadInput."""
    key = api_key(config)
    return Attached(config, config.url, survey.look(config.url, key, model=_model(config)), key)
