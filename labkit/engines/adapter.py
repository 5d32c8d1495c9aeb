"""What an engine must tell the lab so that process.py can run it: a small module of its own with three names.

command(config, port) -> Launch     the command line and the environment it adds
PHASES: list[Phase]                 what start-up goes through, in order; the last one's line means "ready"
explain(log) -> str | None          a known failure in the log as one line that says what to do
PICKS_PORT: bool = False            True when port 0 works and the ready line names the port (group "url")
"""

import importlib
from dataclasses import dataclass, field
from types import ModuleType

_MODULES = {"pocket": "pocket", "sglang": "sglang.launch"}


@dataclass(frozen=True)
class Launch:
    """argv without a shell; env: additions only; key_flag: the option that takes the API key, if one is configured.

    The key itself is put in by process.py at the last moment and is in nothing that is recorded. key_flag None: argv
    already names the variable, and the engine reads the key from the environment that it inherits.
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    key_flag: str | None = "--api-key"


@dataclass(frozen=True)
class Phase:
    """One stretch of start-up: it ends when `pattern` (re.search on a log line) shows, and fails after timeout_s.

    Seeing a later phase's line ends the earlier ones too, so an engine may skip what it does not need.
    """

    name: str
    pattern: str
    timeout_s: float


def adapter(engine: str) -> ModuleType:
    """The launch module of an engine; only the one that is used is imported."""
    return importlib.import_module(f"labkit.engines.{_MODULES[engine]}")
