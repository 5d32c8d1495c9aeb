"""One configuration for every engine. It holds no secret: an API key is named by its environment variable."""

import hashlib
import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from labkit.engines.adapter import ENGINES, adapter, flags, options
from labkit.engines.speculative import Argument, Speculative
from labkit.errors import SECRET_NAME
from labkit.fields import (
    NOT_SHOWN,
    Flag,
    Model,
    Text,
    bad_input,
    check,
    list_of,
    one_of,
    real,
    refuse,
    whole,
)

# How the lab starts and reaches a server; every engine that it starts takes these.
STARTING = ("host", "port", "url", "api_key_env", "python", "extra_args", "env", "command_prefix")
# Where the server listens says nothing about what it measures, so it stays out of the digest.
_RECORDED = {"recorded": True}  # context of reading what was once validated
_NOT_MEASURED = ("host", "port", "api_key_env", "command_prefix")


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[\w.~-]+)*/?", value):
        shown = {"value": NOT_SHOWN} if "@" in value else {}  # a password may stand before it
        raise refuse("http://HOST:PORT or https://HOST[:PORT], without user, password or query", **shown)
    return value.rstrip("/").removesuffix("/v1")  # a base address for OpenAI's clients ends so


def _env(value: object) -> object:
    if not isinstance(value, dict):
        raise refuse("a mapping of variable names to values")
    for name, item in value.items():
        at = (str(name),)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            raise refuse("a variable name of letters, digits and underscores", at=at, value=item)
        if SECRET_NAME.search(name):
            # The value is recorded with every run: a secret belongs in the shell, which the engine inherits.
            raise refuse("no secrets here; export it in the shell instead", at=at, value=NOT_SHOWN)
        if isinstance(item, bool) or not isinstance(item, (str, int, float)):
            raise refuse("a string or a number", at=at, value=item)
        if "\0" in str(item):  # no process can be given it
            raise refuse("text without a zero byte", at=at, value=item)
    return {str(name): str(value[name]) for name in sorted(value)}


def _key_name(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise refuse("the NAME of an environment variable in capitals, never the key itself", value=NOT_SHOWN)
    return value


Url = Annotated[str, AfterValidator(_url)]
Env = Annotated[dict[str, str], BeforeValidator(_env)]


class EngineConfig(Model):
    """What engine to run and how. Build it with `from_dict`, which validates; `as_dict` is its inverse.

    Which of these fields an engine honours, in which range and as which flag, its adapter declares; any other field
    that is set is refused by name. engine "attach" uses a server that somebody else started at `url`. `port` 0 lets a
    free one be picked. With `url` set on another engine, the lab reaches the server there (a tunnel) instead of at
    host:port. `env` adds to the engine's environment, `extra_args` to its command line, `command_prefix` runs the
    command elsewhere (ssh, docker run). None means "the engine's own default".
    """

    engine: one_of(*ENGINES) = "pocket"
    model: Text = "pocket"
    url: Url | None = None
    host: Text = "127.0.0.1"
    port: whole(0, 65535) = 0
    api_key_env: Annotated[str, BeforeValidator(_key_name)] | None = None
    moe_runner_backend: Text | None = None
    attention_backend: Text | None = None
    kv_cache_dtype: Text | None = None
    flash_attention: Text | None = None
    batch_size: whole(1, 1 << 20) | None = None
    gpu_layers: whole(0, 10000) | None = None
    dense_dtype: Text | None = None
    fp8_lm_head: Flag = False
    enable_fp32_lm_head: Flag = False
    speculative: Speculative | None = None
    simulate_acc_len: real(1, 64) | None = None
    threads: whole(1, 1024) | None = None
    context_length: whole(16, 1 << 24) | None = None
    mem_fraction_static: real(0.05, 0.99) | None = None
    seed: whole(0, 2**63 - 1) = 0
    load_format: Text | None = None
    kernel_variant: Text | None = None
    kernel_cache: Text | None = None
    python: Text | None = None
    extra_args: list_of(Argument) = ()
    env: Env = Field(default_factory=dict)
    command_prefix: list_of(Argument) = ()
    faults: list_of(Text) = ()

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """A bare name is an engine; SGLang and others have no model of their own."""
        if isinstance(value, str):
            value = {"engine": value}
        if isinstance(value, dict) and "model" not in value and value.get("engine") in ("sglang", "llamacpp"):
            wanted = {
                "sglang": "a checkpoint folder or hub id; SGLang has no model of its own",
                "llamacpp": "a GGUF file, or smollm2 for the one that a package brings",
            }
            raise refuse(wanted[value["engine"]], at=("model",), value=None)
        return value

    @model_validator(mode="after")
    def _honoured(self, info: ValidationInfo) -> "EngineConfig":
        """Every field that is set must reach the engine, in the engine's own range, by one way only."""
        if info.context == _RECORDED:
            return self
        declared = options(self.engine)
        takes = _takes(self.engine)
        for name in type(self).model_fields:
            if name not in takes and getattr(self, name) != type(self).model_fields[name].get_default(
                call_default_factory=True
            ):
                raise refuse(
                    f"nothing: {self.engine} does not take it; its fields are {', '.join(sorted(takes - {'engine'}))}",
                    at=(name,),
                    value=self.as_dict()[name],
                )
        if self.speculative is not None:
            for name in self.speculative.model_fields_set:
                if f"speculative.{name}" not in declared and getattr(self.speculative, name) is not None:
                    raise refuse(f"nothing: {self.engine} does not take it", at=("speculative", name))
        for name, option in declared.items():
            value = self.value(name)
            if value is not None and value != ():
                option.check(value)
        self._only_once(declared)
        if self.simulate_acc_len is not None and self.speculative is None:
            raise refuse("nothing while speculative is empty", at=("simulate_acc_len",), value=self.simulate_acc_len)
        adapter(self.engine).check(self)
        return self

    def _only_once(self, declared: dict) -> None:
        """What has a field is set there, or the lab would not know what it measures."""
        by_name = {o.sent: name for name, o in declared.items() if o.sent}
        for i, word in enumerate(self.extra_args):
            if word.split("=")[0] in by_name:
                field = by_name[word.split("=")[0]]
                raise refuse(f"nothing that has a field of its own: set {field}", at=("extra_args", i), value=word)
        for name in self.env:
            if name in by_name:
                raise refuse(
                    f"nothing that has a field of its own: set {by_name[name]}", at=("env", name), value=self.env[name]
                )

    @classmethod
    def from_dict(cls, value: object, field: str = "engine") -> "EngineConfig":
        """Validate a mapping (or an engine's bare name, or a config). Raises BadInput naming the field."""
        return cls.checked(value, field)

    @classmethod
    def of_record(cls, document: dict) -> "EngineConfig":
        """The configuration in a record, also one of an earlier lab. What its engine does not take was never sent, and
        is left out; the rules that a start has to keep are not asked for. Raises BadInput for what is no configuration.
        """
        takes = _takes(check(one_of(*ENGINES), "engine.engine", document.get("engine")))
        try:
            return cls.model_validate({k: v for k, v in document.items() if k in takes}, context=_RECORDED)
        except ValidationError as e:
            raise bad_input(e, cls.model_json_schema(), "engine") from None

    def as_dict(self) -> dict:
        """JSON-ready: every field by name, None for what is left to the engine."""
        return self.model_dump(mode="json")

    def given(self) -> dict:
        """as_dict without what is left at its default: what a person would write."""
        return {"engine": self.engine, **self.model_dump(mode="json", exclude_defaults=True)}

    def value(self, field: str) -> Any:
        """A field by its declared name, such as speculative.steps; None below an empty one."""
        found: Any = self
        for part in field.split("."):
            found = None if found is None else getattr(found, part)
        return found

    def replace(self, **changes: object) -> "EngineConfig":
        """A validated copy with some fields changed."""
        return EngineConfig.from_dict({**{n: getattr(self, n) for n in self.model_fields_set}, **changes})

    def digest(self) -> str:
        """12 hex digits that name what is sent to the engine and can change a measurement (not where it listens)."""
        rest = [getattr(self, n) for n in STARTING if n not in _NOT_MEASURED]
        sent = [self.engine, *flags(self), *rest]
        return hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()[:12]


def _takes(engine: str) -> set[str]:
    """The fields that mean something on an engine."""
    also = getattr(adapter(engine), "ALSO", STARTING)
    return {"engine", *also, *(f.split(".")[0] for f in options(engine))}


def differences(a: EngineConfig, b: EngineConfig) -> dict[str, tuple[object, object]]:
    """Fields in which two configurations differ: name -> (value in a, value in b)."""
    left, right = a.as_dict(), b.as_dict()
    return {k: (left[k], right[k]) for k in left if left[k] != right[k]}


__all__ = ["ENGINES", "EngineConfig", "Speculative", "STARTING", "differences"]
