"""What an engine must tell the lab: a small module of its own with these names.

OPTIONS: tuple[Option]              the fields of EngineConfig that it honours; every other one is refused by name
command(config, port) -> Launch     the command line and the environment it adds
PHASES: list[Phase]                 what start-up goes through, in order; the last one's line means "ready"
explain(log) -> str | None          a known failure in the log as one line that says what to do
PICKS_PORT: bool = False            True when port 0 works and the ready line names the port (group "url")
SIDE_BY_SIDE: bool = False          True when several may be in memory at once, so that requests can alternate
check(config)                       rules between fields; raises labkit.fields.refuse(...)
more_words(config) -> list[str]     command-line words of fields that one flag cannot carry; by default none
DIALECT: Dialect = SGLANG           how requests are put to it and its stream is read (labkit.engines.dialects)
held(config) -> memory.Held | None   what it keeps in this machine's memory; by default not known
at_once(config, n) -> EngineConfig  the configuration with room for n requests at once; by default as it is
describe(url, api_key) -> dict      what it says of itself, under the lab's names; by default its /server_info
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labkit.fields import refuse

if TYPE_CHECKING:
    from labkit.engines.config import EngineConfig

_MODULES = {"pocket": "pocket", "sglang": "sglang.launch", "llamacpp": "llamacpp", "attach": "attach"}
ENGINES = tuple(_MODULES)


@dataclass(frozen=True)
class Option:
    """One field that an engine honours, and everything the lab has to know about it.

    field     of EngineConfig, a dot for one of `speculative`
    sent      the flag (it begins with --) or else the environment variable that carries it; "" for what is not sent
    help      one sentence, for --help and tooltips
    low, high, choices    the engine's own range, inside what EngineConfig takes at all
    seen      the key of /server_info that shows what is in effect; None where the engine does not say
    shown_as  values that /server_info shows under another name (NEXTN is resolved to EAGLE)
    unsent    a value that needs no flag, because it is the engine's default
    restarts  whether a change needs a new start
    """

    field: str
    sent: str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    seen: str | None = None
    shown_as: Mapping[str, str] = field(default_factory=dict)
    unsent: object = None
    restarts: bool = True

    def accepted(self) -> str:
        """The range in words, "" where EngineConfig's own type says it all."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        return "" if self.low is None else f"a number from {self.low:g} to {self.high:g}"

    def check(self, value: object) -> None:
        """Raises labkit.fields.refuse for a value that this engine does not take."""
        at, items = tuple(self.field.split(".")), value if isinstance(value, tuple) else (value,)
        fits = all(v in self.choices for v in items) if self.choices else True
        if not fits or (self.low is not None and not self.low <= value <= self.high):
            raise refuse(self.accepted(), at=at, value=list(value) if isinstance(value, tuple) else value)

    def words(self, value: object) -> list[str]:
        """The value on a command line: nothing for None and False, a switch for True, once for each item of a list."""
        if value is None or value is False or value == self.unsent or not self.sent.startswith("--"):
            return []
        if value is True:
            return [self.sent]
        return [word for v in (value if isinstance(value, tuple) else (value,)) for word in (self.sent, text(v))]

    def variable(self, value: object) -> dict[str, str]:
        """The value as an environment variable; {} where it is a flag or not set."""
        if value is None or value is False or not self.sent or self.sent.startswith("--"):
            return {}
        return {self.sent: "1" if value is True else text(value)}

    def evidence(self, value: object, server_info: Mapping[str, Any]) -> dict:
        """asked, sent and seen, JSON-ready; in_effect None where the running engine does not say."""
        sent = " ".join(self.words(value)) or " ".join(f"{k}={v}" for k, v in self.variable(value).items())
        found = server_info.get(self.seen) if self.seen else None
        wanted = self.shown_as.get(value, value) if isinstance(value, str) else value
        return {
            "field": self.field,
            "asked": list(value) if isinstance(value, tuple) else value,
            "sent": sent or None,
            "seen": found,
            "where": f"/server_info {self.seen}" if self.seen else None,
            # "auto" leaves the choice to the engine: whatever it shows is right.
            "in_effect": None if found is None or value == "auto" else found in (wanted, value),
        }


def one_head(config: "EngineConfig") -> None:
    """A head rounded to FP8 cannot give the FP32 head's logits. Raises labkit.fields.refuse."""
    if config.fp8_lm_head and config.enable_fp32_lm_head:
        raise refuse("false with fp8_lm_head: one head has one format", at=("enable_fp32_lm_head",), value=True)


def text(value: object) -> str:
    """A value as a command line has it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Launch:
    """argv without a shell; env: additions only; key_flag: the option that takes the API key, if one is configured.

    The key itself is handed over at the last moment (labkit.engines.keys) and is in nothing that is recorded; key_env
    is a variable that the engine takes it from, key_config its option for a YAML file of options. key_flag None: argv
    already names the variable, and the engine reads the key from the environment that it inherits.
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    key_flag: str | None = "--api-key"
    key_env: str | None = None
    key_config: str | None = None


@dataclass(frozen=True)
class Phase:
    """One stretch of start-up: it ends when `pattern` (re.search on a log line) shows, and fails after timeout_s.

    Seeing a later phase's line ends the earlier ones too, so an engine may skip what it does not need.
    """

    name: str
    pattern: str
    timeout_s: float


def adapter(engine: str) -> ModuleType:
    """The module of an engine; only the one that is used is imported."""
    return importlib.import_module(f"labkit.engines.{_MODULES[engine]}")


def options(engine: str) -> dict[str, Option]:
    """What an engine honours, by field."""
    return {o.field: o for o in adapter(engine).OPTIONS}


def flags(config: "EngineConfig") -> tuple[list[str], dict[str, str]]:
    """The command-line words and environment variables that a configuration's declared fields become, in order."""
    words: list[str] = []
    env: dict[str, str] = {}
    for o in adapter(config.engine).OPTIONS:
        words += o.words(config.value(o.field))
        env |= o.variable(config.value(o.field))
    more = getattr(adapter(config.engine), "more_words", None)
    return (words + more(config) if more is not None else words), env


def evidence(config: "EngineConfig", server_info: Mapping[str, Any]) -> list[dict]:
    """For every field that is set: what was asked, what was sent and what the running engine shows for it."""
    values = [(o, config.value(o.field)) for o in adapter(config.engine).OPTIONS]
    return [o.evidence(v, server_info) for o, v in values if v is not None and v is not False and v != ()]


def not_in_effect(config: "EngineConfig", server_info: Mapping[str, Any]) -> list[str]:
    """A sentence for every field that the running engine shows otherwise than it was asked for."""
    return [
        f"{e['field']}: asked {e['asked']}, sent as {e['sent']}, but {e['where']} shows {e['seen']}"
        for e in evidence(config, server_info)
        if e["in_effect"] is False
    ]
