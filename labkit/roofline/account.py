"""Bytes that one decode step reads, tensor by tensor. The short formula beside it: labkit.roofline.simple.

All bytes are plain numbers (bytes); `Account.evidence` gives the total with its tier. A step at batch size 1 reads
every dense weight once, the chosen experts once each, one embedding row per position, the KV of the context, and reads
and writes the linear-attention state.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived, spec
from labkit.roofline.architectures import shape_of
from labkit.roofline.formats import Format, Size
from labkit.roofline.quantization import Quantization, quantization_of
from labkit.roofline.sizes import cache_bytes
from labkit.roofline.speculation import expected_distinct_experts
from labkit.roofline.tensors import Cache, Role, Shape, Tensor

_HEADS = {"bf16": "bf16", "fp8": "fp8-row", "fp32": "fp32"}
_ORDER = (
    "KDA projections",
    "attention projections",
    "routed experts",
    "head",
    "KDA output projection",
    "MLA",
    "shared experts",
    "router",
    "dense MLP",
    "linear attention projections",
    "Mamba projections",
    "short convolutions",
    "latent projections",
    "indexer",
    "per-layer inputs",
    "NEXTN projection",
    "KDA small parts",
    "linear attention small parts",
    "norms",
    "embedding row",
)


@dataclass(frozen=True)
class Group:
    """One line of an account. `format` names the format of most of its payload."""

    name: str
    payload_bytes: float
    scale_bytes: float
    format: str
    padding_bytes: float = 0.0
    parameters: float = 0.0

    @property
    def total_bytes(self) -> float:
        return self.payload_bytes + self.scale_bytes + self.padding_bytes


@dataclass(frozen=True)
class Account:
    """The bytes of one step. `kv_bytes` are read, `caches` name their parts where there are several; `state_bytes` is
    the recurrent state read and written; `convolution_bytes` the short convolutions' memory, read and written."""

    model: str
    source: str
    what: str
    context: int
    positions: int
    distinct_experts: float
    quant: Quantization
    groups: tuple[Group, ...]
    kv_bytes: float
    state_bytes: float
    convolution_bytes: float
    caches: tuple[tuple[str, float], ...] = ()

    @property
    def weight_bytes(self) -> float:
        return sum(g.total_bytes for g in self.groups)

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.state_bytes + self.convolution_bytes

    def group(self, name: str) -> Group:
        """One line by name. BadInput lists the names that there are."""
        for g in self.groups:
            if g.name == name:
                return g
        raise BadInput("group", name, ", ".join(g.name for g in self.groups))

    def evidence(self) -> Evidence:
        """The total as derived evidence that rests on the config."""
        return derived(self.total_bytes, "B", self.what, (spec(self.context, "token", self.source),))

    def as_dict(self) -> dict:
        """For JSON: the keys of architecture.md and more."""
        return {
            "model": self.model,
            "source": self.source,
            "what": self.what,
            "context": self.context,
            "positions": self.positions,
            "distinct_experts": self.distinct_experts,
            "quantization": self.quant.as_dict(),
            "total_bytes": self.total_bytes,
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.kv_bytes,
            "state_bytes": self.state_bytes,
            "convolution_bytes": self.convolution_bytes,
            "caches": [{"name": name, "read_bytes": size} for name, size in self.caches],
            "groups": [
                {
                    "name": g.name,
                    "payload_bytes": g.payload_bytes,
                    "scale_bytes": g.scale_bytes,
                    "format": g.format,
                    "padding_bytes": g.padding_bytes,
                    "parameters": g.parameters,
                }
                for g in self.groups
            ],
        }


def per_tensor(
    config: "dict | ModelConfig",
    *,
    context: int,
    quant: Quantization | None = None,
    head: str | None = None,
    positions: int = 1,
    distinct_experts: float | None = None,
) -> Account:
    """One step of the main model at a context length, in bytes by tensor group.

    context: tokens whose KV is read. positions: computed at once (1 = a plain step, m = a verify step). head:
    'bf16', 'fp8', 'fp32' or None for what the checkpoint says. distinct_experts: experts used in a layer by all
    positions together; by default their expectation for independent choices. BadInput for values out of range.
    """
    c, shape, quant = _prepare(config, context, quant, head, positions)
    distinct = _distinct(shape, positions, distinct_experts)
    what = "plain decode step" if positions == 1 else f"verify step of {positions} positions"
    tensors, head_as = _with_head(shape, quant, head)
    return _account(
        c,
        head_as,
        what,
        tensors,
        shape.caches,
        context,
        positions,
        distinct,
        shape.recurrent,
        shape.convolution,
    )


def _with_head(shape: Shape, quant: Quantization, head: str | None) -> tuple[tuple[Tensor, ...], Quantization]:
    """A tied head is the embedding table, read whole by the head and by the row for the embedding, in one format."""
    if not shape.tied:
        return shape.tensors, quant
    tied = quant.with_formats(head=quant.embedding) if head is None else quant
    return (*shape.tensors, _tied_head(shape)), tied


def _tied_head(shape: Shape) -> Tensor:
    return Tensor("lm_head", "head", Role.HEAD, shape.vocab, shape.hidden)


def draft_pass(
    config: "dict | ModelConfig",
    *,
    context: int,
    quant: Quantization | None = None,
    head: str | None = None,
    own_kv: bool = True,
) -> Account:
    """One pass of the NEXTN layer: its projection, layer, norms, the shared head and its own KV (own_kv).

    BadInput for a model without a NEXTN layer.
    """
    c, shape, quant = _prepare(config, context, quant, head, 1)
    if not shape.nextn:
        raise BadInput(f"{c.name}: num_nextn_predict_layers", 0, "a model with a NEXTN layer")
    _, quant = _with_head(shape, quant, head)
    shared = [t for t in shape.tensors if t.role in (Role.HEAD, Role.EMBEDDING) and t.rows == shape.vocab]
    tensors = (*shape.nextn, *shared, *((_tied_head(shape),) if shape.tied else ()))
    caches = shape.nextn_caches if own_kv else ()
    return _account(c, quant, "draft pass", tensors, caches, context, 1, shape.top_k, 0, 0)


def _prepare(config, context, quant, head, positions) -> tuple[ModelConfig, Shape, Quantization]:
    c = ModelConfig.of(config)
    for name, value, least in (("context", context, 0), ("positions", positions, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadInput(name, value, f"an integer of at least {least}")
    if head is not None and head not in _HEADS:
        raise BadInput("head", head, ", ".join(_HEADS))
    quant = quant or quantization_of(c)
    return c, shape_of(c), quant if head is None else quant.with_formats(head=_HEADS[head])


def _distinct(shape: Shape, positions: int, given: float | None) -> float:
    if not shape.experts:
        return 0.0
    if given is None:
        return expected_distinct_experts(shape.experts, shape.top_k, positions)
    most = min(shape.experts, positions * shape.top_k)
    if not shape.top_k <= given <= most:
        raise BadInput("distinct_experts", given, f"{shape.top_k} to {most} for {positions} positions")
    return given


def _account(
    c: ModelConfig,
    quant: Quantization,
    what: str,
    tensors: Iterable[Tensor],
    caches: Iterable[Cache],
    context: int,
    positions: int,
    distinct: float,
    recurrent: int,
    convolution: int,
) -> Account:
    groups: dict[str, Group] = {}
    by_format: dict[str, dict[str, float]] = {}
    for t in tensors:
        for form, layers in quant.formats(t):
            size, count = _read(t, form, positions, distinct)
            count *= layers / t.layers
            line = groups.get(t.group) or Group(t.group, 0.0, 0.0, form.name)
            payload = count * size.payload
            shares = by_format.setdefault(t.group, {})
            shares[form.name] = shares.get(form.name, 0.0) + payload
            groups[t.group] = replace(
                line,
                payload_bytes=line.payload_bytes + payload,
                scale_bytes=line.scale_bytes + count * size.scale,
                padding_bytes=line.padding_bytes + count * size.padding,
                parameters=line.parameters + payload * 8 / form.bits,
                format=max(shares, key=shares.get),
            )
    read: dict[str, float] = {}
    for cache in caches:
        read[cache.name] = read.get(cache.name, 0.0) + cache_bytes(cache, quant, context)
    return Account(
        c.name,
        c.source,
        what,
        context,
        positions,
        distinct,
        quant,
        tuple(sorted(groups.values(), key=lambda g: _ORDER.index(g.name))),
        sum(read.values()),
        2 * recurrent * quant.state.bits / 8,
        2 * convolution * quant.convolution.bits / 8,
        tuple(read.items()),
    )


def _read(t: Tensor, form: Format, positions: int, distinct: float) -> tuple[Size, float]:
    """(size of one matrix, how many are read). Of the embedding a step reads one row per position."""
    if t.role is Role.EMBEDDING:
        return form.size(1, t.cols), positions
    return form.size(t.rows, t.cols), t.read(distinct)
