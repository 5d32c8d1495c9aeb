"""Does a model fit this machine's memory? Asked before an engine is started that keeps it there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit import catalog
from labkit.engines.adapter import adapter
from labkit.errors import BadInput
from labkit.roofline.quantization import quantization_of
from labkit.roofline.sizes import held_cache_bytes

if TYPE_CHECKING:
    from labkit.catalog import ModelConfig
    from labkit.engines.config import EngineConfig
    from labkit.roofline.quantization import Quantization

SHARE = 0.8  # of all memory, for engines that stay loaded side by side: the rest is the system's and the lab's own

# What engines call a cache's number format, where the account has another name for it.
_CACHE_FORMATS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp4_e2m1": "nvfp4"}
_CACHE_FORMATS |= {"fp8_e4m3": "fp8-tensor", "fp8_e5m2": "fp8-tensor"}


@dataclass(frozen=True)
class Held:
    """Bytes that an engine keeps in this machine's memory: the weights (all copies) and the KV cache."""

    weights: float
    cache: float

    @property
    def total(self) -> float:
        return self.weights + self.cache

    def words(self) -> str:
        return f"{self.total / 1e9:.2f} GB (weights {self.weights / 1e9:.2f}, KV cache {self.cache / 1e9:.2f})"


def quant(model: "ModelConfig", config: "EngineConfig") -> "Quantization | None":
    """The checkpoint's number formats with the cache as configured; None: as the checkpoint has them."""
    kind = config.kv_cache_dtype
    if kind in (None, "auto"):
        return None
    return quantization_of(model).with_formats(kv=_CACHE_FORMATS.get(kind, kind.upper()))


def cache_bytes(model: str, config: "EngineConfig", context: int) -> float:
    """Bytes of the KV cache that the model keeps for `context` tokens. Raises BadInput for a model without account."""
    found = catalog.load_config(model)
    return held_cache_bytes(found, context, quant(found, config))


def held(config: "EngineConfig") -> Held | None:
    """What this configuration keeps in this machine's memory; None where that is elsewhere (a GPU, another machine, a
    server of somebody else's) or cannot be told."""
    ask = getattr(adapter(config.engine), "held", None)
    if ask is None or config.command_prefix:
        return None
    try:
        return ask(config)
    except BadInput:
        return None  # the engine says itself what is wrong with the model


def check(config: "EngineConfig", field: str = "engine.model") -> None:
    """Raises BadInput naming `field` where the model needs more memory than is available now: the system would swap, or
    kill the engine or something else."""
    needed = held(config)
    if needed is None:
        return
    free = _memory().available
    if needed.total > free:
        least = "the weights alone do not fit" if needed.weights > free else "a shorter context_length would fit"
        raise BadInput(
            field,
            config.model,
            f"a model that fits: it keeps {needed.words()}, and {free / 1e9:.2f} GB are available here; {least}",
        )


def together(configs: Sequence["EngineConfig"]) -> bool:
    """Whether these fit side by side. By all memory, not by what is free now: the answer must not change once some of
    them run."""
    needed = [h.total for c in configs if (h := held(c)) is not None]
    return len(needed) < 2 or sum(needed) <= SHARE * _memory().total


def _memory():
    import psutil

    return psutil.virtual_memory()
