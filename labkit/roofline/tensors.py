"""What a model is made of, as counts and shapes: the common language of all architectures."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a tensor does, which decides its number format and how often a step reads it."""

    EXPERTS = "experts"  # routed: a step reads the distinct chosen ones
    EXPERT_BIAS = "expert bias"  # one per routed expert, kept in the small format
    DENSE = "dense"  # read whole by every step
    ABSORBED = "absorbed"  # MLA's kv_b: the format on disk and the one a decode step reads may differ
    ROUTER = "router"
    HEAD = "head"
    EMBEDDING = "embedding"  # one row a token
    GATE = "gate"  # matrices of a row a head, left out of the quantisation
    SMALL = "small"  # norms, biases, convolutions


@dataclass(frozen=True)
class Tensor:
    """`layers` x max(1, `experts`) matrices of shape [rows, cols]; a vector has cols = 1."""

    name: str
    group: str
    role: Role
    rows: int
    cols: int
    layers: int = 1
    experts: int = 0

    @property
    def copies(self) -> int:
        """How many of these matrices the model holds."""
        return self.layers * max(1, self.experts)

    @property
    def parameters(self) -> int:
        return self.copies * self.rows * self.cols

    def read(self, distinct_experts: float) -> float:
        """How many of these matrices one step reads, given the distinct experts it uses in a layer."""
        return self.layers * (distinct_experts if self.experts else 1)


@dataclass(frozen=True)
class Cache:
    """KV of `layers` layers: values kept for each token, and the window beyond which a layer reads nothing."""

    layers: int
    values: int
    window: int | None = None

    def values_read(self, context: int) -> int:
        seen = context if self.window is None else min(context, self.window)
        return self.layers * self.values * seen


@dataclass(frozen=True)
class Shape:
    """A whole model. `nextn` is one multi-token-prediction layer, `nextn_cache` its own KV; the head is shared.

    `recurrent` and `convolution` are values of linear-attention state per sequence (not per token).
    """

    architecture: str
    hidden: int
    vocab: int
    experts: int
    top_k: int
    tensors: tuple[Tensor, ...]
    caches: tuple[Cache, ...]
    nextn: tuple[Tensor, ...] = ()
    nextn_cache: Cache | None = None
    recurrent: int = 0
    convolution: int = 0
    tied: bool = False

    @property
    def total_parameters(self) -> int:
        """Without the NEXTN layer; a tied head counts once."""
        return sum(t.parameters for t in self.tensors)

    @property
    def active_parameters(self) -> float:
        """Parameters that one token multiplies with: the head once, of the embedding one row."""
        return (
            sum(t.read(self.top_k) * t.rows * t.cols for t in self.tensors if t.role is not Role.EMBEDDING)
            + self.hidden
            + (self.vocab * self.hidden if self.tied else 0)
        )

    @property
    def nextn_parameters(self) -> int:
        return sum(t.parameters for t in self.nextn)

    def kv_values(self, context: int) -> int:
        """KV values that one decode step at this context length reads."""
        return sum(c.values_read(context) for c in self.caches)


def mlp(name: str, group: str, role: Role, hidden: int, inner: int, layers: int, experts: int = 0) -> Iterable[Tensor]:
    """The three matrices of a gated MLP."""
    for part, rows, cols in (("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)):
        yield Tensor(f"{name}.{part}", group, role, rows, cols, layers, experts)


def ends(hidden: int, vocab: int, tied: bool) -> Iterable[Tensor]:
    """Embedding, final norm and head. A tied head is the embedding table and not stored twice."""
    yield Tensor("embedding", "embedding row", Role.EMBEDDING, vocab, hidden)
    yield Tensor("final_norm", "norms", Role.SMALL, hidden, 1)
    if not tied:
        yield Tensor("lm_head", "head", Role.HEAD, vocab, hidden)
