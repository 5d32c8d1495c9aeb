"""Bytes of what is kept: the checkpoint on disk, and the caches of a sequence. Plain numbers, bytes."""

from labkit.catalog.config import ModelConfig
from labkit.roofline.architectures import shape_of
from labkit.roofline.formats import Format
from labkit.roofline.quantization import Quantization, quantization_of
from labkit.roofline.tensors import Cache, Tensor


def checkpoint_bytes(
    config: "dict | ModelConfig", quant: Quantization | None = None, nextn: bool = True, absorbed_as_read: bool = False
) -> float:
    """Bytes of the whole checkpoint on disk, in the formats of `quant`, without towers that a text step does not read.

    absorbed_as_read: MLA's kv_b stored in the format that a step reads instead of the dense one.
    """
    shape = shape_of(config)
    quant = quant or quantization_of(config)
    own = sum(stored_bytes(t, quant, not absorbed_as_read) for t in shape.tensors)
    drafts = sum(stored_bytes(t, quant, not absorbed_as_read) for t in shape.nextn)
    return own + (drafts * max(1, shape.nextn_layers) if nextn and shape.nextn else 0)


def stored_bytes(t: Tensor, quant: Quantization, on_disk: bool = True) -> float:
    """Bytes of all copies of a tensor."""
    each = max(1, t.experts)
    return sum(layers * each * form.size(t.rows, t.cols).total for form, layers in quant.formats(t, on_disk))


def kv_bytes_per_token(config: "dict | ModelConfig", quant: Quantization | None = None) -> float:
    """Bytes that each further token of context adds to the KV cache (before any window is full), an indexer's keys
    apart (`index_bytes_per_token`)."""
    shape, quant = shape_of(config), quant or quantization_of(config)
    return sum(_held(c, quant, 1) for c in shape.caches if c.format is None)


def index_bytes_per_token(config: "dict | ModelConfig", quant: Quantization | None = None) -> float:
    """Bytes per token of the keys by which sparse attention chooses what it reads; 0 where there is none."""
    shape, quant = shape_of(config), quant or quantization_of(config)
    return sum(_held(c, quant, 1) for c in shape.caches if c.format is not None)


def held_cache_bytes(config: "dict | ModelConfig", context: int, quant: Quantization | None = None) -> float:
    """Bytes of all caches that one sequence of this length must keep in memory (not what a step reads)."""
    quant = quant or quantization_of(config)
    return sum(_held(c, quant, context) for c in shape_of(config).caches)


def _held(c: Cache, quant: Quantization, context: int) -> float:
    return c.values_held(context) * _bytes_per_value(c, quant)


def cache_bytes(c: Cache, quant: Quantization, context: int) -> float:
    """Bytes of a cache that one step at this context length reads."""
    return c.values_read(context) * _bytes_per_value(c, quant)


def _bytes_per_value(c: Cache, quant: Quantization) -> float:
    """Bytes of one cached value, a scale for each token's row of a layer included where the format has one."""
    form = quant.kv if c.format is None else Format.parse(c.format)
    if c.format is None:
        return form.bits / 8 + (form.scale_bytes / form.block_cols if form.block_cols > 1 else 0)
    return form.size(1, c.values).total / c.values
