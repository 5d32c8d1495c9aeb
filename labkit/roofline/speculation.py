"""What drafting and verifying cost and gain, by bytes and by time.

a: tokens that one verify step yields, the bonus token included. c: time of one draft-and-verify round over the time of
one plain step of the same configuration. S = a / c. Functions take plain numbers or Evidence alike where they only
multiply and divide.
"""

from collections.abc import Sequence

from labkit.errors import BadInput
from labkit.evidence import Number, positive


def expected_distinct_experts(n: int, k: int, m: int) -> float:
    """Distinct experts of `n` that `m` positions use in one layer, each choosing `k` independently: n(1-(1-k/n)^m).

    An expectation under independence; neighbouring tokens overlap more, so it is an upper estimate for real text.
    """
    if not 1 <= k <= n:
        raise BadInput("k", k, f"1 to the number of experts ({n})")
    if m < 1:
        raise BadInput("m", m, "at least 1 position")
    return n * (1 - (1 - k / n) ** m)


def speedup(a: Number, c: Number) -> Number:
    """S = a / c: how many times faster than plain decoding. Above 1 only when a exceeds c."""
    positive(a=a, c=c)
    return a / c


def predicted_tpot(tpot_plain: Number, a: Number, c: Number) -> Number:
    """Seconds per token with speculation: TPOT of the same configuration without it, times c / a."""
    positive(tpot_plain=tpot_plain, a=a, c=c)
    return tpot_plain * c / a


def c_from_times(tpot_speculative: Number, a: Number, tpot_plain: Number) -> Number:
    """c by its definition: round time over the plain step of the same configuration, same load, same run."""
    positive(tpot_speculative=tpot_speculative, a=a, tpot_plain=tpot_plain)
    return tpot_speculative * a / tpot_plain


def c_at_bandwidth(bandwidth: Number, tpot_speculative: Number, a: Number, step_bytes: Number) -> Number:
    """Plain steps whose bytes an assumed bandwidth moves in one round. Not c: it takes the bandwidth of another
    configuration as if it held here, so it must never be mixed with c_from_times."""
    positive(bandwidth=bandwidth, tpot_speculative=tpot_speculative, a=a, step_bytes=step_bytes)
    return bandwidth * tpot_speculative * a / step_bytes


def accept_length(by_position: Sequence[float]) -> float:
    """a from marginal acceptance by position: P(position i accepted), i = 1, 2, ...; a = 1 + their sum."""
    last = 1.0
    for p in by_position:
        if not 0 <= p <= last:
            raise BadInput("by_position", list(by_position), "probabilities from 1 down, none above the one before it")
        last = p
    return 1 + sum(by_position)


def fallback_tpot(tpot_plain: Number, c: Number) -> Number:
    """Seconds per token when every draft is rejected (a = 1): a round costs c plain steps and yields one token."""
    return predicted_tpot(tpot_plain, 1, c)
