"""What a step costs by component under two roofs: memory and arithmetic, each at a rate that a probe measured.

A component takes max(bytes / sustained bandwidth, its products on cached operands), and a fixed part: norms, rounding,
choices, the first access to each matrix, and what bytes and products do not overlap. The fixed part is what the
component's piece of a pass takes alone, less the higher roof. No rate and no fixed part comes from the step that is
predicted. A step is its components one after the other; a round is its verify pass and its draft passes; c is a round
over a plain step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import BadInput


@dataclass(frozen=True)
class Component:
    """One part of a pass. bytes_read: from memory, once a pass. kernel_s: seconds of its products on operands that lie
    in a cache. fixed_s: seconds of whatever else it does, and of what the two do not overlap. operations: FLOP of its
    products, two for each weight and token. measured_s: None before it was measured."""

    name: str
    bytes_read: float
    kernel_s: float
    fixed_s: float = 0.0
    operations: float = 0.0
    measured_s: float | None = None

    def memory_s(self, bandwidth: float) -> float:
        """Seconds by bytes alone. bandwidth: B/s."""
        if bandwidth <= 0:
            raise BadInput("bandwidth", bandwidth, "a positive number of bytes per second")
        return self.bytes_read / bandwidth

    def predicted_s(self, bandwidth: float) -> float:
        """Seconds under both roofs, and the fixed part. Probes of a busy machine can leave less than nothing of a part,
        which then counts as nothing."""
        return max(0.0, max(self.memory_s(bandwidth), self.kernel_s) + self.fixed_s)

    def bound(self, bandwidth: float) -> str:
        """ "memory", "arithmetic" or "fixed": what takes most of the predicted time."""
        high = max(self.memory_s(bandwidth), self.kernel_s)
        if self.fixed_s > high:
            return "fixed"
        return "memory" if self.memory_s(bandwidth) >= self.kernel_s else "arithmetic"


def pass_s(parts: Sequence[Component], bandwidth: float, *, bytes_alone: bool = False) -> float:
    """Predicted seconds of a pass; `bytes_alone` leaves arithmetic and fixed parts out."""
    return sum(p.memory_s(bandwidth) if bytes_alone else p.predicted_s(bandwidth) for p in parts)


def c_of(
    plain: Sequence[Component], round_: Sequence[Component], bandwidth: float, *, bytes_alone: bool = False
) -> float:
    """Predicted c: a round's components over a plain step's."""
    return pass_s(round_, bandwidth, bytes_alone=bytes_alone) / pass_s(plain, bandwidth, bytes_alone=bytes_alone)


def largest_residual(parts: Sequence[Component], bandwidth: float) -> Component:
    """The part whose measured time is farthest from its prediction. Every part must have been measured."""
    missing = [p.name for p in parts if p.measured_s is None]
    if missing or not parts:
        raise BadInput("parts", ", ".join(missing) or "none", "parts that were measured")
    return max(parts, key=lambda p: abs(p.measured_s - p.predicted_s(bandwidth)))


def added(phases: Sequence[Sequence[Component]]) -> list[Component]:
    """Several passes' components as one list, part by part: what a round costs."""
    total: dict[str, Component] = {}
    for part in (p for parts in phases for p in parts):
        before = total.get(part.name, Component(part.name, 0, 0, 0, 0, None if part.measured_s is None else 0))
        total[part.name] = Component(
            part.name,
            before.bytes_read + part.bytes_read,
            before.kernel_s + part.kernel_s,
            before.fixed_s + part.fixed_s,
            before.operations + part.operations,
            None if None in (before.measured_s, part.measured_s) else before.measured_s + part.measured_s,
        )
    return list(total.values())


def experts_s(one_token: float, four_tokens: float, experts: float, pairs: float) -> float:
    """Seconds of the products of `experts` experts for `pairs` of token and expert, from two probes of one expert: with
    one token and with four. An expert costs a part of its own (its codes are unpacked once) and a part for each token:
    both follow from the two."""
    each = (four_tokens - one_token) / 3
    return max((one_token - each) * experts + each * pairs, 0.0)
