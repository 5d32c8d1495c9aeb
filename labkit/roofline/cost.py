"""What a step costs by component under two roofs: memory and arithmetic, each at a rate that a probe measured.

A component takes max(bytes / sustained bandwidth, its arithmetic when memory does not limit it). Neither rate comes
from the step that is predicted. A step is its components one after the other; a round is its verify pass and its draft
passes; c is a round over a plain step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import BadInput


@dataclass(frozen=True)
class Component:
    """One part of a pass. bytes_read: from memory, once a pass. cached_s: seconds of its kernels on operands that lie
    in a cache, small fixed pieces (norms, rounding, choices) included. measured_s: None before it was measured."""

    name: str
    bytes_read: float
    cached_s: float
    measured_s: float | None = None

    def memory_s(self, bandwidth: float) -> float:
        """Seconds by bytes alone. bandwidth: B/s."""
        if bandwidth <= 0:
            raise BadInput("bandwidth", bandwidth, "a positive number of bytes a second")
        return self.bytes_read / bandwidth

    def predicted_s(self, bandwidth: float) -> float:
        """Seconds under both roofs."""
        return max(self.memory_s(bandwidth), self.cached_s)

    def bound(self, bandwidth: float) -> str:
        """ "memory" or "arithmetic": the higher roof's time."""
        return "memory" if self.memory_s(bandwidth) >= self.cached_s else "arithmetic"


def pass_s(parts: Sequence[Component], bandwidth: float, *, bytes_alone: bool = False) -> float:
    """Predicted seconds of a pass; `bytes_alone` leaves the arithmetic out."""
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


def experts_cached_s(one_token: float, four_tokens: float, top_k: int, experts: float, pairs: float) -> float:
    """Arithmetic of a pass that reads `experts` experts for `pairs` of token and expert, from two probes.

    one_token, four_tokens: seconds of `top_k` experts with one token and with four tokens each. An expert costs a part
    of its own (its codes are unpacked once) and a part for each token: both follow from the two.
    """
    each = (four_tokens - one_token) / (3 * top_k)
    own = one_token / top_k - each
    return max(own * experts + each * pairs, 0.0)
