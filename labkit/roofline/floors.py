"""The roofline: what memory bandwidth and compute allow, and how near a measured time comes.

Everything is in SI units. An effective bandwidth is an estimate of bytes over a time, not a bus counter.
"""

from dataclasses import dataclass

from labkit.errors import BadInput
from labkit.evidence import Number, positive


def floor_s(step_bytes: Number, bandwidth: Number) -> Number:
    """Seconds below which no step can go: bytes over bandwidth (B/s)."""
    positive(step_bytes=step_bytes, bandwidth=bandwidth)
    return step_bytes / bandwidth


def effective_bandwidth(step_bytes: Number, tpot: Number) -> Number:
    """B_eff = B_step / TPOT, in B/s."""
    positive(step_bytes=step_bytes, tpot=tpot)
    return step_bytes / tpot


def utilisation(step_bytes: Number, tpot: Number, bandwidth: Number) -> Number:
    """U = B_eff / bandwidth. Above 1 means that the account counts bytes that are not read, or a wrong bandwidth."""
    positive(bandwidth=bandwidth)
    return effective_bandwidth(step_bytes, tpot) / bandwidth


def intensity(active_parameters: Number, step_bytes: Number, positions: int = 1) -> Number:
    """FLOP per byte of a step: two FLOP for each active parameter and position."""
    positive(active_parameters=active_parameters, step_bytes=step_bytes, positions=positions)
    return active_parameters * (2 * positions) / step_bytes


def ridge(peak_flops: Number, bandwidth: Number) -> Number:
    """FLOP per byte at which compute and memory take equally long."""
    positive(peak_flops=peak_flops, bandwidth=bandwidth)
    return peak_flops / bandwidth


@dataclass(frozen=True)
class Work:
    """What a utilisation was computed for. Two may be compared only when all of this is equal."""

    byte_model: str
    model: str
    quantization: str
    load: str


def compare_utilisation(first: tuple[Work, float], second: tuple[Work, float]) -> float:
    """Ratio of two utilisations, second over first. BadInput names what differs when they are not comparable."""
    (work, u), (other, v) = first, second
    differing = [f for f in ("byte_model", "model", "quantization", "load") if getattr(work, f) != getattr(other, f)]
    if differing:
        raise BadInput(
            "utilisation",
            ", ".join(differing) + " differ",
            "two of the same byte model, model version, precision recipe and load",
        )
    positive(first=u, second=v)
    return v / u
