"""What a model is made of, as counts and shapes: the common language of all architectures."""

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
    EMBEDDING = "embedding"  # one row per token
    GATE = "gate"  # matrices with one row per head, left out of the quantisation
    SMALL = "small"  # norms, biases, convolutions


@dataclass(frozen=True)
class Tensor:
    """`layers` x max(1, `experts`) matrices of shape [rows, cols]; a vector has cols = 1.

    `path` is the module's name in the checkpoint, {} for the layer and {e} for the expert; `at` lists the layers. Both
    are empty where the account needs no name.
    """

    name: str
    group: str
    role: Role
    rows: int
    cols: int
    layers: int = 1
    experts: int = 0
    path: str = ""
    at: tuple[int, ...] = ()

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
    """KV of `layers` layers: values kept for each token, and the window beyond which a layer reads nothing.

    keeps_all: every token's values are held although a step reads no more than `window` of them (sparse attention).
    format: the number format where it is not the KV cache's own, as of an indexer's keys. readers: layers that read
    it in a step, where layers share one cache; by default those that hold it.
    """

    layers: int
    values: int
    window: int | None = None
    keeps_all: bool = False
    format: str | None = None
    name: str = "KV"
    readers: int | None = None

    def values_read(self, context: int) -> int:
        seen = context if self.window is None else min(context, self.window)
        return (self.layers if self.readers is None else self.readers) * self.values * seen

    def values_held(self, context: int) -> int:
        """Values that must stay in memory for a sequence of this length."""
        kept = context if self.window is None or self.keeps_all else min(context, self.window)
        return self.layers * self.values * kept


@dataclass(frozen=True)
class Shape:
    """A whole model. `nextn` is one multi-token-prediction layer of `nextn_layers`, `nextn_caches` its own KV; the
    head is shared.

    `recurrent` and `convolution` are values of linear-attention state per sequence (not per token). `state_format` is
    the state's number format where the config names one. `notes` say what the account leaves out.
    """

    architecture: str
    hidden: int
    vocab: int
    experts: int
    top_k: int
    tensors: tuple[Tensor, ...]
    caches: tuple[Cache, ...]
    nextn: tuple[Tensor, ...] = ()
    nextn_caches: tuple[Cache, ...] = ()
    nextn_layers: int = 0
    recurrent: int = 0
    convolution: int = 0
    tied: bool = False
    state_format: str | None = None
    layers: int = 0
    notes: tuple[str, ...] = ()

    @property
    def total_parameters(self) -> int:
        """Without the NEXTN layer; a tied head counts once."""
        return sum(t.parameters for t in self.tensors)

    @property
    def active_parameters(self) -> float:
        """Parameters that one token multiplies with: the head once, of the embedding one row."""
        return (
            sum(t.read(self.top_k) * t.rows * t.cols for t in self.tensors if t.role is not Role.EMBEDDING)
            + sum(t.cols for t in self.tensors if t.role is Role.EMBEDDING)
            + (self.vocab * self.hidden if self.tied else 0)
        )

    @property
    def active_with_embedding(self) -> float:
        """The same with the whole embedding table, as many makers count; a tied head is that table."""
        return self.active_parameters + (0 if self.tied else self.vocab * self.hidden - self.hidden)

    @property
    def nextn_parameters(self) -> int:
        """Of one NEXTN layer."""
        return sum(t.parameters for t in self.nextn)
