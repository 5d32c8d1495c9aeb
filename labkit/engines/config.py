"""One configuration for every engine. It holds no secret: an API key is named by its environment variable."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass

from labkit import fields
from labkit.errors import BadInput

ENGINES = ("pocket", "sglang", "attach")
FAULTS = ("bare-head", "moe-fallback", "rewrite-draft-tokens", "ignore-env")
# Names whose values must never be written down. A name such as SGLANG_SIMULATE_ACC_TOKEN_MODE is not one of them.
SECRET_NAME = re.compile(r"(^|[_-])(api[_-]?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
# Where the server listens says nothing about what it measures, so it stays out of the digest.
_NOT_MEASURED = ("host", "port", "api_key_env", "command_prefix")


@dataclass(frozen=True)
class Speculative:
    """Drafting by the NEXTN layer: `steps` draft steps, `topk` branches each, `draft_tokens` verified per round.

    With topk 1 both engines need draft_tokens = steps + 1 (SGLang rewrites anything else with only a warning).
    """

    steps: int = 3
    topk: int = 1
    draft_tokens: int = 4

    @classmethod
    def from_dict(cls, value: object, field: str = "speculative") -> "Speculative":
        if isinstance(value, cls):
            value = asdict(value)
        known = {"steps": fields.integer(1, 16), "topk": fields.integer(1, 8), "draft_tokens": fields.integer(2, 64)}
        got = fields.mapping(field, value, known)
        for name in known:
            if name not in got:
                raise BadInput(f"{field}.{name}", None, "steps, topk and draft_tokens: all three or none")
        return cls(**got)


@dataclass(frozen=True)
class EngineConfig:
    """What engine to run and how. Build it with `from_dict`, which validates; `as_dict` is its inverse.

    engine "attach" uses a server that somebody else started at `url`. `port` 0 lets a free one be picked. With `url`
    set on another engine, the lab reaches the server there (a tunnel) instead of at host:port. `env` adds to the
    engine's environment, `extra_args` to its command line, `command_prefix` runs the command elsewhere (ssh, docker
    run). None means "the engine's own default".
    """

    engine: str = "pocket"
    model: str = "pocket"
    url: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    api_key_env: str | None = None
    moe_runner_backend: str | None = None
    fp8_lm_head: bool = False
    enable_fp32_lm_head: bool = False
    speculative: Speculative | None = None
    simulate_acc_len: float | None = None
    threads: int = 1
    context_length: int | None = None
    mem_fraction_static: float | None = None
    seed: int = 0
    load_format: str | None = None
    python: str | None = None
    extra_args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    command_prefix: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, value: object, field: str = "engine") -> "EngineConfig":
        """Validate a mapping (or an engine's bare name, or a config). Raises BadInput naming the field."""
        if isinstance(value, cls):
            value = value.as_dict()
        if isinstance(value, str):
            value = {"engine": value}
        if isinstance(value, dict) and value.get("engine") == "sglang" and "model" not in value:
            raise BadInput(f"{field}.model", None, "a checkpoint folder or hub id; SGLang has no model of its own")
        config = cls(**fields.mapping(field, value, _KNOWN))
        _consistent(config, field)
        return config

    def as_dict(self) -> dict:
        """JSON-ready: tuples as lists, env as a mapping, speculative as a mapping or None."""
        out = asdict(self)
        out["env"] = dict(self.env)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in out.items()}

    def replace(self, **changes: object) -> "EngineConfig":
        """A validated copy with some fields changed."""
        spec = changes.get("speculative")
        if isinstance(spec, Speculative):
            changes["speculative"] = asdict(spec)
        return EngineConfig.from_dict({**self.as_dict(), **changes})

    def digest(self) -> str:
        """12 hex digits that name everything which can change a measurement (not host, port, key name, prefix)."""
        kept = {k: v for k, v in self.as_dict().items() if k not in _NOT_MEASURED}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def differences(a: EngineConfig, b: EngineConfig) -> dict[str, tuple[object, object]]:
    """Fields in which two configurations differ: name -> (value in a, value in b)."""
    left, right = a.as_dict(), b.as_dict()
    return {k: (left[k], right[k]) for k in left if left[k] != right[k]}


def _url(field: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/@]+/?", value):
        raise BadInput(field, value, "http://HOST:PORT or https://HOST[:PORT], without user, password or path")
    return value.rstrip("/")


def _env(field: str, value: object) -> tuple[tuple[str, str], ...]:
    if isinstance(value, (list, tuple)):
        value = dict(value)
    if not isinstance(value, dict):
        raise BadInput(field, value, "a mapping of variable names to values")
    out = []
    for name, item in sorted(value.items()):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            raise BadInput(f"{field}.{name}", item, "a variable name of letters, digits and underscores")
        if SECRET_NAME.search(name):
            # The value is recorded with every run: a secret belongs in the shell, which the engine inherits.
            raise BadInput(f"{field}.{name}", "(not shown)", "no secrets here; export it in the shell instead")
        if isinstance(item, bool) or not isinstance(item, (str, int, float)):
            raise BadInput(f"{field}.{name}", item, "a string or a number")
        out.append((name, str(item)))
    return tuple(out)


def _key_name(field: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise BadInput(field, "(not shown)", "the NAME of an environment variable in capitals, never the key itself")
    return value


def _argument(field: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "\0" in str(value) or str(value) == "":
        raise BadInput(field, value, "a command-line argument (string or number)")
    if str(value).split("=")[0] in ("--api-key", "--admin-api-key"):
        raise BadInput(field, "(not shown)", "no keys on the command line; name the variable in api_key_env")
    return str(value)


_KNOWN: dict[str, fields.Check] = {
    "engine": fields.one_of(*ENGINES),
    "model": fields.text,
    "url": fields.optional(_url),
    "host": fields.text,
    "port": fields.integer(0, 65535),
    "api_key_env": fields.optional(_key_name),
    "moe_runner_backend": fields.optional(fields.text),
    "fp8_lm_head": fields.boolean,
    "enable_fp32_lm_head": fields.boolean,
    "speculative": lambda field, value: None if value is None else Speculative.from_dict(value, field),
    "simulate_acc_len": fields.optional(fields.real(1.0, 64.0)),
    "threads": fields.integer(1, 1024),
    "context_length": fields.optional(fields.integer(64, 1 << 24)),
    "mem_fraction_static": fields.optional(fields.real(0.05, 0.99)),
    "seed": fields.integer(0, 2**63 - 1),
    "load_format": fields.optional(fields.text),
    "python": fields.optional(fields.text),
    "extra_args": fields.list_of(_argument),
    "env": _env,
    "command_prefix": fields.list_of(_argument),
    "faults": fields.list_of(fields.one_of(*FAULTS)),
}


def _consistent(config: EngineConfig, field: str) -> None:
    if config.engine == "attach" and config.url is None:
        raise BadInput(f"{field}.url", None, "the server's address when engine is attach")
    if config.engine == "pocket" and config.moe_runner_backend not in (None, "generic", "jit"):
        raise BadInput(f"{field}.moe_runner_backend", config.moe_runner_backend, "generic or jit on the pocket engine")
    if config.faults and config.engine != "pocket":
        raise BadInput(f"{field}.faults", list(config.faults), "nothing: only the pocket engine injects faults")
    if config.simulate_acc_len is not None and config.speculative is None:
        raise BadInput(f"{field}.simulate_acc_len", config.simulate_acc_len, "nothing while speculative is empty")
    if config.fp8_lm_head and config.enable_fp32_lm_head:
        raise BadInput(f"{field}.enable_fp32_lm_head", True, "false with fp8_lm_head: one head has one format")


__all__ = ["ENGINES", "FAULTS", "EngineConfig", "Speculative", "SECRET_NAME", "differences"]
