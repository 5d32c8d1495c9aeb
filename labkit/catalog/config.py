"""A model's config.json with the ways it can be wrong."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from labkit.errors import BadInput


@dataclass(frozen=True)
class ModelConfig:
    """The fields of a Hugging Face config.json. `formats` overrides the number format by role where the engine that
    runs this model is known to differ from the default of its quantisation (catalog field `formats`)."""

    fields: dict
    name: str = "config"
    source: str = "config.json"
    formats: dict = field(default_factory=dict)

    @classmethod
    def of(cls, config: "dict | ModelConfig") -> "ModelConfig":
        """A plain dict is taken as the content of a config.json."""
        if isinstance(config, ModelConfig):
            return config
        if not isinstance(config, dict):
            raise BadInput("config", config, "the content of a config.json (an object)")
        return cls(config)

    @property
    def architecture(self) -> str:
        """The name in `architectures`. BadInput when there is none."""
        names = self.fields.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise BadInput(f"{self.name}: architectures", names, "a list with the architecture's name")
        return names[0]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that the config lacks."""
        return [n for n in names if n not in self.fields]

    def need(self, names: Iterable[str]) -> None:
        """BadInput that names every missing field at once."""
        if missing := self.missing(names):
            raise BadInput(
                f"{self.name}: missing fields",
                ", ".join(missing),
                f"a config.json of {self.architecture} that has them",
            )

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        """An integer field of at least `least`. BadInput names the field otherwise."""
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadInput(f"{self.name}: {name}", value, f"an integer of at least {least}")
        return value

    def choice(self, name: str, accepted: tuple, default: object) -> object:
        """A field that must be one of `accepted`."""
        value = self.fields.get(name, default)
        if value not in accepted:
            raise BadInput(f"{self.name}: {name}", value, ", ".join(map(repr, accepted)))
        return value


def read_config(path: Path, name: str | None = None) -> ModelConfig:
    """From a config.json or a folder that holds one. BadInput when it is absent or not a JSON object."""
    file = path / "config.json" if path.is_dir() else path
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("model", str(path), "a catalog id, or a path to a config.json or its folder") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise BadInput("model", str(path), f"a readable config.json ({e})") from None
    if not isinstance(fields, dict):
        raise BadInput("model", str(path), "a config.json that holds one object")
    # Multimodal checkpoints keep the language model's fields one level down.
    if isinstance(fields.get("text_config"), dict) and "hidden_size" not in fields:
        fields = fields["text_config"] | {k: fields[k] for k in ("architectures", "quantization_config") if k in fields}
    return ModelConfig(fields, name or file.parent.name or str(path), str(file))
