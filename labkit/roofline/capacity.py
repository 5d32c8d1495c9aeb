"""Does it fit? What must be held in memory for a model at a context length, before anything is started.

What is held and what a step reads are two numbers: all experts are held, some are read; a sliding window is held only
as far as it reaches; the state is held once for each position of a verify step, and read and written once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.catalog import Machine
from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived
from labkit.roofline.account import per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.quantization import Quantization, quantization_of
from labkit.roofline.sizes import checkpoint_bytes, held_cache_bytes

GRAPHS = 3e9  # bytes: CUDA context, graphs and workspaces, as seen on an H200 (2.5 to 3 GB)
USABLE = 0.9  # of a machine whose catalog entry says no more: an assumption, and named as one


@dataclass(frozen=True)
class Capacity:
    """Bytes to be held, by part, against what may be filled. `batch` sequences of `context` tokens each.

    read_bytes: what one plain step at batch size 1 reads, beside `held_bytes` so that nobody takes one for the other.
    """

    model: str
    context: int
    batch: int
    parts: tuple[tuple[str, float], ...]
    usable: Evidence
    how: str
    read_bytes: float
    longest_context: int  # of one sequence, that would still fit; 0 where not even the weights do
    limit_context: int | None = None  # the model's own limit, where its config names one

    @property
    def held_bytes(self) -> float:
        return sum(size for _, size in self.parts)

    @property
    def left_bytes(self) -> float:
        """Room that remains; negative where it does not fit."""
        return self.usable.si - self.held_bytes

    @property
    def fits(self) -> bool:
        return self.left_bytes >= 0

    def as_dict(self) -> dict:
        return {
            "held_bytes": self.held_bytes,
            "parts": [{"name": n, "bytes": b} for n, b in self.parts],
            "usable": self.usable.as_dict(),
            "how": self.how,
            "left_bytes": self.left_bytes,
            "fits": self.fits,
            "context": self.context,
            "batch": self.batch,
            "read_bytes_per_step": self.read_bytes,
            "longest_context": self.longest_context,
        }

    def sentence(self) -> str:
        """One line: fits or not, by how much, and what context would."""
        held, usable = self.held_bytes / 1e9, self.usable.si / 1e9
        at_limit = self.limit_context is not None and self.longest_context >= self.limit_context
        most = f"the model's {self.limit_context:,} tokens" if at_limit else f"{self.longest_context:,} tokens"
        if self.fits:
            left = f"{self.left_bytes / 1e9:.1f} GB left; context up to {most} would fit"
            return f"fits: {held:.1f} GB held of {usable:.1f} GB usable, {left}"
        short = -self.left_bytes / 1e9
        way = f"context up to {most} would fit" if self.longest_context else "the weights alone do not fit"
        return f"does not fit: {held:.1f} GB to be held, {usable:.1f} GB usable, {short:.1f} GB too much; {way}"


def capacity(
    config: "dict | ModelConfig",
    machine: Machine,
    *,
    context: int,
    batch: int = 1,
    drafts: int = 0,
    quant: Quantization | None = None,
    graphs: float | None = None,
    usable: Evidence | None = None,
) -> Capacity | None:
    """What `batch` sequences of `context` tokens hold on a machine; None where its memory is not known.

    drafts: a NEXTN layer's weights, its own cache and a state for each position of the verify step. graphs: bytes of
    the engine itself (default: 3 GB where the machine has compute peaks or is not `this`, else none).
    """
    if batch < 1 or context < 0:
        raise BadInput("batch and context", (batch, context), "at least one sequence, a context of 0 or more")
    found = usable_memory(machine) if usable is None else (usable, usable.source)
    if found is None:
        return None
    limit, how = found
    quant = quant or quantization_of(config)
    shape = shape_of(config)
    step = per_tensor(config, context=context, quant=quant)
    state = (step.state_bytes + step.convolution_bytes) / 2  # the account reads and writes it
    kv = batch * held_cache_bytes(config, context, quant)
    parts = [("weights", checkpoint_bytes(config, quant, nextn=drafts > 0)), ("KV cache", kv)]
    if drafts and shape.nextn_caches:
        own = sum(c.values_held(context) for c in shape.nextn_caches) * quant.kv.bits / 8
        parts.append(("NEXTN layer's cache", batch * own))
    if state:
        parts.append(("linear-attention state", batch * (drafts + 1) * state))
    engine = graphs if graphs is not None else (0.0 if machine.id == "this" else GRAPHS)
    if engine:
        parts.append(("engine, graphs, workspaces", engine))
    c = ModelConfig.of(config)
    longest = c.fields.get("max_position_embeddings")
    longest = longest if isinstance(longest, int) and longest > 0 else None
    room = limit.si - sum(size for name, size in parts if "cache" not in name)

    def caches(tokens: int) -> float:
        own = sum(x.values_held(tokens) for x in shape.nextn_caches) * quant.kv.bits / 8 if drafts else 0.0
        return batch * (held_cache_bytes(config, tokens, quant) + own)

    most = _most(caches, room, longest or 1 << 24)
    return Capacity(c.name, context, batch, tuple(parts), limit, how, step.total_bytes, most, longest)


def _most(size: Callable[[int], float], room: float, high: int) -> int:
    """The largest number of tokens up to `high` whose size fits the room."""
    low = 0
    if room < 0:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(middle) <= room else (low, middle - 1)
    return low


def usable_memory(machine: Machine) -> tuple[Evidence, str] | None:
    """(bytes that an engine may fill, how that is known); None where the memory is not known."""
    if machine.usable is not None:
        return machine.usable, machine.usable.source
    if machine.memory is None:
        return None
    share = derived(machine.memory.value * USABLE, machine.memory.unit, "memory * 0.9", (machine.memory,))
    return share, f"assumed: {USABLE:.0%} of {machine.memory.quantity('g')}"


def largest_batch(
    config: "dict | ModelConfig",
    machine: Machine,
    batches: Sequence[int],
    *,
    context: int,
    quant: Quantization | None = None,
) -> int | None:
    """The largest of `batches` that fits; 0 where none does, None where the machine's memory is not known."""
    quant, largest = quant or quantization_of(config), 0
    for batch in batches:
        found = capacity(config, machine, context=context, batch=batch, quant=quant)
        if found is None:
            return None
        if found.fits:
            largest = max(largest, batch)
    return largest
