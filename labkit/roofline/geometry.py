"""The fields of a config.json under one name each, and a watch over those that nobody read.

Makers name the same count in many ways (`fields` of families.yaml). A field that gives geometry and that the model's
family does not know must not be passed over: `refuse_unknown` names it.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput

_REQUIRED = object()

# Words that shape tensors or caches in some model, and patterns of names that have such a word and shape nothing that a
# step reads (ignorable.txt).
_WORDS = (
    "dim dims size sizes rank head heads layer layers expert experts topk top_k group groups window chunk latent "
    "nope mla mqa gqa kda mamba ssm conv state states mtp nextn mixer pattern interval freq expand ratio width depth "
    "gate gated bias shared share inner block blocks index indexer kv lora residual streams multiplier k_eq_v"
)
_GEOMETRY = re.compile(
    rf"(^|_)({'|'.join(_WORDS.split())})(_|$|\d)|^(hc|altup|laurel|engram|ngram|n_embd|loop|loops)|_norm$|^norm_"
)
_HARMLESS = re.compile(
    "|".join(
        line.strip()
        for line in (Path(__file__).parent / "ignorable.txt").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    )
)


class Geometry:
    """A config's fields by canonical name. `spec` is the model's family (families.yaml).

    Missing required fields are collected, and `finish` names all of them at once.
    """

    def __init__(self, config: ModelConfig, spec: dict, aliases: dict[str, list[str]]):
        self.config, self.name, self.fields = config, config.name, _dotted(config.fields)
        self.aliases = aliases | spec.get("fields", {})
        self.canonical = {name: key for key, names in self.aliases.items() for name in names}
        self.defaults = spec.get("defaults", {})
        self.used: set[str] = set(spec.get("ignores", ()))
        self.missing: list[str] = []
        self.notes: list[str] = []

    def names(self, key: str) -> list[str]:
        """The config's names for a canonical key, the first of them the usual one."""
        return self.aliases.get(key, [key])

    def label(self, key: str) -> str:
        """The name that this config uses, else the usual one."""
        return next((n for n in self.names(key) if n in self.fields), self.names(key)[0])

    def raw(self, key: str, default: object = None) -> object:
        """A field's value; the family's default, then `default`, where it is absent or null.

        BadInput when the config gives the same field twice under different names and values.
        """
        names = self.names(key)
        self.used.update(names)
        given = {n: self.fields[n] for n in names if self.fields.get(n) is not None}
        if len({repr(v) for v in given.values()}) > 1:
            raise BadInput(f"{self.name}: {' and '.join(given)}", list(given.values()), "the same value in both")
        if given:
            return next(iter(given.values()))
        if self.defaults.get(key) is not None:
            return self.defaults[key]
        return default

    def need(self, wanted: Iterable[str]) -> None:
        """These fields must be there, though perhaps null or by another of their names. BadInput names all missing."""
        for name in wanted:
            key = self.canonical.get(name, name)
            if key not in self.defaults and not any(n in self.fields for n in (name, *self.names(key))):
                self._lack(name)
        self.refuse_missing()

    def refuse_missing(self) -> None:
        """BadInput with every missing field found so far."""
        if self.missing:
            raise BadInput(
                f"{self.name}: missing fields",
                ", ".join(self.missing),
                f"a config.json of {self.config.architecture} that has them",
            )

    def count(self, key: str, default: object = _REQUIRED, least: int = 1) -> int:
        """An integer of at least `least`. A list must repeat one value. BadInput names the field otherwise."""
        value = self.raw(key, None if default is _REQUIRED else default)
        if value is None and default in (_REQUIRED, None) and not any(n in self.fields for n in self.names(key)):
            self._lack(key)
            return max(1, least)  # stands in until `finish` names all that is missing
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadInput(f"{self.name}: {self.label(key)}", value, f"an integer of at least {least}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.choice(key, (True, False), default))

    def choice(self, key: str, accepted: tuple, default: object) -> object:
        """A field that must be one of `accepted`."""
        value = self.raw(key, default)
        if not any(value is a or (value == a and type(value) is type(a)) for a in accepted):
            raise BadInput(f"{self.name}: {self.label(key)}", value, ", ".join(map(repr, accepted)))
        return value

    def numbers(self, key: str) -> list[int] | None:
        """A list of layer numbers, as a list or as text with commas; None where absent."""
        value = self.raw(key)
        if isinstance(value, str):
            value = [int(v) if v.strip().isdigit() else v for v in value.split(",") if v.strip()]
        if value is not None and (
            not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in value)
        ):
            raise BadInput(f"{self.name}: {self.label(key)}", value, "a list of layer numbers")
        return value

    def kinds(self, key: str, length: int, accepted: dict[str, str]) -> list[str] | None:
        """One kind for each of `length` layers, in the lab's words; None where absent."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length or any(v not in accepted for v in value):
            allowed = " or ".join(dict.fromkeys(accepted))
            raise BadInput(f"{self.name}: {self.label(key)}", value, f"{length} times {allowed}")
        return [accepted[v] for v in value]

    def finish(self) -> None:
        """BadInput with every missing field, then with every geometry field that the family does not know."""
        self.refuse_missing()
        if unknown := [n for n, v in self.fields.items() if n not in self.used and _gives_geometry(n, v)]:
            shown = ", ".join(f"{n} = {_short(self.fields[n])}" for n in unknown)
            raise BadInput(
                f"{self.name}: fields that the lab does not know for {self.config.architecture}",
                shown,
                "a config whose every geometry field is known, since such a field may change shapes or caches",
            )

    def _lack(self, key: str) -> None:
        name = self.names(key)[0]
        if name not in self.missing:
            self.missing.append(name)


def _dotted(fields: dict) -> dict:
    """Fields of nested attention settings beside the others, as linear_attn_config.num_heads."""
    nested = {k: v for k, v in fields.items() if k.endswith("attn_config") and isinstance(v, dict)}
    inner = {f"{k}.{name}": value for k, v in nested.items() for name, value in v.items()}
    return {k: v for k, v in fields.items() if k not in nested} | inner


def _gives_geometry(name: str, value: object) -> bool:
    """Whether a field that nobody read may change a tensor or a cache. Empty, null and false change nothing."""
    if not value or _HARMLESS.search(name.lower()):
        return False
    if isinstance(value, dict):
        return bool(_GEOMETRY.search(name.lower()))
    if isinstance(value, int) and not isinstance(value, bool):
        return value > 1 or bool(_GEOMETRY.search(name.lower()))
    if isinstance(value, list) and all(isinstance(v, int) for v in value):
        return True
    return bool(_GEOMETRY.search(name.lower()))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
