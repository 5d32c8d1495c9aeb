"""Where a gain comes from: rung by rung, as fewer bytes and more bandwidth, and where it goes on another load.

Every factor is a ratio of times or of counted bytes, so factors of one gain multiply to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from labkit.engines.config import EngineConfig
from labkit.evidence import Evidence, Tier
from labkit.measure import estimates, machine, stats
from labkit.measure.results import Result, cost, drafts_a_round, speedup, varies


@dataclass(frozen=True)
class Split:
    """A gain in time as two factors, whose product it is.

    fewer_bytes     bytes per token before over bytes per token after
    more_bandwidth  counted bytes per second after over those before
    """

    fewer_bytes: Evidence
    more_bandwidth: Evidence


@dataclass(frozen=True)
class Gains:
    """Three arms on one load: before any change, before the last one, with all. `middle` may be `first`."""

    first: Result
    middle: Result
    last: Result

    @cached_property
    def rungs(self) -> Evidence | None:
        """Speed-up of everything before the last change; None where there is nothing between."""
        return None if self.middle is self.first else speedup(self.middle, self.first)

    @cached_property
    def final(self) -> Evidence:
        """Speed-up of the last change alone: a / c where it drafts."""
        return speedup(self.last, self.middle)

    @cached_property
    def whole(self) -> Evidence:
        """Speed-up of all changes."""
        return speedup(self.last, self.first)

    @cached_property
    def cost(self) -> Evidence | None:
        """c of the last change; None where it does not draft, or drafts a varying number of steps."""
        drafts = self.last.accept is not None and self.middle.accept is None
        return cost(self.last, self.middle) if drafts and not varies(self.last) else None


def pass_bytes(config: EngineConfig, *, context: int, model: str, distinct: float | None = None) -> Evidence:
    """Bytes of one plain step, or of one round of drafts and their verify step where the configuration drafts.

    distinct: experts in a layer that a verify step uses, where they were counted. Raises BadInput for a model whose
    bytes cannot be counted.
    """
    s = config.speculative
    if s is None:
        return machine.account(config, context=context, model=model).evidence()
    return machine.round_bytes(config, s, context=context, model=model, distinct=distinct)


def one_size(result: Result) -> bool:
    """Whether every pass of the arm moves the same bytes: plain steps, or rounds of a fixed number of drafts."""
    return not varies(result) and drafts_a_round(result) is None


def split(fast: Result, slow: Result, *, model: str) -> Split | None:
    """The gain of `fast` over `slow`, split by the per-tensor account; None where draft steps vary, so that a round has
    no one size, and where `slow` drafts already.

    Where fast drafts, a token costs the bytes of a round over a, and the bandwidth is
    the bytes of a round over its time: a is in the first factor alone, and c, from times, in the second alone.
    """
    if not one_size(fast) or slow.accept is not None:
        return None
    moved = pass_bytes(fast.arm.config, context=fast.context, model=model)
    ratio = moved / pass_bytes(slow.arm.config, context=slow.context, model=model)
    if fast.accept is None:
        return Split(1 / ratio, ratio * speedup(fast, slow))
    return Split(fast.accept / ratio, ratio / cost(fast, slow))


def split_by_time(gains: Gains, *, model: str) -> Split | None:
    """The same gain with c taken from times as if it were a ratio of bytes, as published accounts do. Then the second
    factor holds nothing of the drafting: another c splits the same gain otherwise."""
    if gains.cost is None:
        return None
    first, middle = (pass_bytes(r.arm.config, context=r.context, model=model) for r in (gains.first, gains.middle))
    fewer = gains.last.accept * (first / middle) / gains.cost
    more = middle / first if gains.rungs is None else (middle / first) * gains.rungs
    return Split(fewer, more)


def cost_by_bytes(gains: Gains, *, model: str, distinct: float | None = None) -> Evidence:
    """c by bytes alone: a round's bytes over those of a plain step of the arm before."""
    after = pass_bytes(gains.last.arm.config, context=gains.last.context, model=model, distinct=distinct)
    return after / pass_bytes(gains.middle.arm.config, context=gains.middle.context, model=model)


def pass_ratio(one: Result, other: Result) -> Evidence:
    """Time of a round (or plain step) of `one` over that of `other`: the median over pairs of the same pass and prompt,
    so that a drift of the machine cancels where passes of both loads took turns; without pairs, of the medians."""
    times = [{(*estimates.pass_of(r), r["index"]): _round_s(r) for r in result.used} for result in (one, other)]
    common = sorted(times[0].keys() & times[1].keys())
    if not common:
        return one.pass_s / other.pass_s
    passes = {key[:2]: n for n, key in enumerate(common)}
    found = stats.median_interval([times[0][k] / times[1][k] for k in common], [passes[k[:2]] for k in common])
    formula = f"median of {len(common)} ratios of the same pass and prompt"
    inputs = (one.pass_s, other.pass_s)
    return Evidence(found.value, "1", Tier.DERIVED, inputs[0].source, found.low, found.high, formula, inputs)


def _round_s(row: Mapping) -> float:
    tokens = row["output_tokens"] - 1
    return row["tpot_s"] * tokens / (row.get("verify_ct") or tokens)


def same_text(one: Result, other: Result) -> tuple[int, int]:
    """(prompts whose answers are equal on both sides, prompts asked on both)."""
    texts = [{r["index"]: r.get("text_sha256") for r in result.used} for result in (one, other)]
    common = texts[0].keys() & texts[1].keys()
    return sum(texts[0][i] is not None and texts[0][i] == texts[1][i] for i in common), len(common)


def lost(real: Gains, made: Gains, sampling: Evidence | None = None) -> list[tuple[str, Evidence]]:
    """The factors that lead from the gain on the load `made` to the one on `real`, in order; below 1 is a loss. Their
    product with the first gain is the second one.

    sampling: how much dearer sampling makes a round, in plain steps, at the same accept length (c sampled over c
    greedy); then it stands apart from the rest of c.
    """
    out = []
    if real.rungs is not None and made.rungs is not None:
        out.append((f"{_arm(real.middle)} over {_arm(real.first)}", real.rungs / made.rungs))
    if real.cost is None or made.cost is None:
        return [*out, (f"{_arm(real.last)} over {_arm(real.middle)}", real.final / made.final)]
    out.append(("accept length a", real.last.accept / made.last.accept))
    if sampling is None:
        return [*out, ("cost of a round c", made.cost / real.cost)]
    return [
        *out,
        ("sampling, in c", 1 / sampling),
        ("the rest of c", made.cost / real.cost * sampling),
    ]


def _arm(result: Result) -> str:
    """The arm's name in its ladder, without the load that it was measured on."""
    return result.name.split(" on ")[0]
