"""A model's config.json with the ways it can be wrong."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.errors import BadInput

# Where wrappers keep the language model, and where a quantisation is told.
NESTS = ("text_config", "llm_config", "language_config", "thinker_config")
SIDECARS = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
_FORMATS = ("quantization_config", "compression_config", "quantization")


@dataclass(frozen=True)
class ModelConfig:
    """The fields of a Hugging Face config.json: of the language model, where a multimodal checkpoint nests it.

    `formats` overrides the number format by role where the engine that runs this model is known to differ from the
    default of its quantisation (catalog field `formats`). `architectures` lists the language model's own name before
    its wrapper's. `notes` say what is left out. `gguf` is the file where the model is one; it has no config.json.
    """

    fields: dict
    name: str = "config"
    source: str = "config.json"
    formats: dict = field(default_factory=dict)
    architectures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gguf: Path | None = None

    def __post_init__(self):
        if not self.architectures:
            object.__setattr__(self, "architectures", tuple(_names(self.fields, self.name)))

    @classmethod
    def of(cls, config: "dict | ModelConfig") -> "ModelConfig":
        """A plain dict is taken as the content of a config.json."""
        if isinstance(config, ModelConfig):
            return config
        if not isinstance(config, dict):
            raise BadInput("config", config, "the content of a config.json (an object)")
        return cls.made(config)

    @classmethod
    def made(cls, fields: dict, name: str = "config", source: str = "config.json", formats: dict | None = None):
        """From the content of a config.json, nested or not. BadInput when it names no architecture."""
        names = [n for part in (_inner(fields) or {}, fields) for n in _names(part, name)]
        flat, notes = _flat(fields)
        if not names and isinstance(flat.get("model_type"), str):
            names = [flat["model_type"]]
        return cls(flat, name, source, formats or {}, tuple(dict.fromkeys(names)), notes)

    def with_fields(self, fields: dict) -> "ModelConfig":
        """The same with some fields changed."""
        return replace(self, fields=self.fields | fields)

    @property
    def architecture(self) -> str:
        """The language model's name in `architectures`. BadInput when there is none."""
        if not self.architectures:
            named = self.fields.get("architectures")
            raise BadInput(f"{self.name}: architectures", named, "a list with the architecture's name")
        return self.architectures[0]


def read_config(path: Path, name: str | None = None) -> ModelConfig:
    """From a config.json or a folder that holds one. BadInput when it is absent or not a JSON object."""
    if path.suffix == ".gguf" or (path.is_dir() and not (path / "config.json").exists() and _ggufs(path)):
        return _gguf(path, name)
    file = path / "config.json" if path.is_dir() else path
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("model", str(path), "a catalog id, or a path to a config.json or its folder") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise BadInput("model", str(path), f"a readable config.json ({e})") from None
    if not isinstance(fields, dict):
        raise BadInput("model", str(path), "a config.json that holds one object")
    sidecars = {n: f for n in SIDECARS if (f := _sidecar(file.with_name(n))) is not None}
    return ModelConfig.made(fields | sidecars, name or file.parent.name or str(path), str(file))


def _ggufs(folder: Path) -> list[Path]:
    """The GGUF models of a folder; of a split one its first part, of multimodal ones not the projector."""
    found = sorted(f for f in folder.glob("*.gguf") if not f.name.startswith("mmproj"))
    return [f for f in found if not re.search(r"-\d{5}-of-\d{5}\.gguf$", f.name) or "-00001-of-" in f.name]


def _gguf(path: Path, name: str | None) -> ModelConfig:
    files = _ggufs(path) if path.is_dir() else [path]
    if not files[0].is_file():
        raise BadInput("model", str(path), "a catalog id, or a path to a config.json, its folder or a GGUF file")
    if len(files) > 1:
        raise BadInput("model", str(path), "one GGUF file: " + ", ".join(f.name for f in files))
    return ModelConfig({}, name or files[0].stem, files[0].name, architectures=("GGUF",), gguf=files[0])


def _sidecar(file: Path) -> dict | None:
    """A quantisation told beside config.json. BadInput when the file is there and cannot be read."""
    if not file.is_file():
        return None
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise BadInput("model", str(file), f"a readable {file.name} ({e})") from None
    if not isinstance(fields, dict):
        raise BadInput("model", str(file), f"a {file.name} that holds one object")
    return fields


def _inner(fields: dict) -> dict | None:
    """The language model's fields, where a wrapper keeps them one or two levels down."""
    for key in NESTS:
        inner = fields.get(key)
        if isinstance(inner, dict) and ("hidden_size" not in fields or key == "text_config"):
            return _inner(inner) or inner
    return None


def _flat(fields: dict) -> tuple[dict, tuple[str, ...]]:
    """The language model's fields with what only the wrapper says, and notes on what is left out."""
    inner = _inner(fields)
    if inner is None:
        return fields, ()
    flat = {k: v for k, v in inner.items() if k not in NESTS}
    flat |= {k: fields[k] for k in (*_FORMATS, *SIDECARS) if fields.get(k) is not None}
    if isinstance(fields.get("tie_word_embeddings"), bool):  # the head belongs to the wrapper
        flat["tie_word_embeddings"] = fields["tie_word_embeddings"]
    for key in ("torch_dtype", "dtype"):
        if key in fields and not {"torch_dtype", "dtype"} & set(flat):
            flat[key] = fields[key]
    towers = [k.partition("_config")[0] for k in fields if k.endswith("_config") and k not in (*NESTS, *_FORMATS)]
    towers = [t for t in towers if t in ("vision", "audio", "visual", "vit", "speech")]
    return flat, tuple(f"The {t} tower is not read for a token of text and not counted." for t in towers)


def _names(part: dict, name: str) -> list[str]:
    names = part.get("architectures")
    if names is None:
        return []
    if not isinstance(names, list) or any(not isinstance(n, str) for n in names):
        raise BadInput(f"{name}: architectures", names, "a list with the architecture's name")
    return names
