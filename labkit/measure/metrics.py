"""The lab's definitions of speed and acceptance (TPOT as SGLang and vLLM define it; AIPerf calls it ITL)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from labkit.errors import BadInput, LabError
from labkit.measure import doubts
from labkit.measure.stats import Interval, median_interval

DISTURBED = 0.9  # CPU time / wall time of the decoding thread below which it had to wait for a core
UNSTABLE = 0.05  # spread between repeats above which a result is called unstable


class NoSamples(LabError):
    """Nothing was measured that counts; the message says what happened instead."""


def tpot(latency_s: float, ttft_s: float, output_tokens: int) -> float:
    """Time per output token of one request: (latency - TTFT) / (output tokens - 1), s."""
    if output_tokens < 2:
        raise BadInput("output_tokens", output_tokens, "at least 2: one token has no decode time")
    return (latency_s - ttft_s) / (output_tokens - 1)


def decode_tokens(row: Mapping) -> int:
    """Tokens that the decode time was spent on: all after the first event (one token in it, in old rows)."""
    found = row.get("decode_tokens")
    return int(found) if _number(found) else row["output_tokens"] - 1


def decode_throughput(rows: Iterable[Mapping]) -> float | None:
    """Tokens/s of a run: sum of tokens after the first event over sum of (latency - TTFT); not a mean of ratios."""
    tokens = seconds = 0.0
    for row in good(rows):
        tokens += decode_tokens(row)
        seconds += row["latency_s"] - row["ttft_s"]
    return tokens / seconds if seconds > 0 else None


def accept_length(rows: Iterable[Mapping]) -> float | None:
    """Output tokens per verify step over all requests, bonus token included; None without speculation.

    The token that prefill makes is counted too (as in SGLang's field), so short outputs can sit slightly above the
    number of draft tokens.
    """
    used = [r for r in good(rows) if _number(r.get("verify_ct"))]
    steps = sum(r["verify_ct"] for r in used)
    return sum(r["output_tokens"] for r in used) / steps if steps else None


def by_position(histogram: Sequence[int], *, conditional: bool = False) -> list[float]:
    """Acceptance by draft position from correct drafts per verify step, h[i] = steps with exactly i correct.

    Marginal: P(position i accepted) = sum(h[i:]) / sum(h), i = 1... Conditional: given that i - 1 was accepted.
    """
    h = np.asarray(histogram, float)
    if h.ndim != 1 or h.size < 2 or (h < 0).any() or h.sum() == 0:
        raise BadInput("histogram", list(histogram), "counts for 0, 1, ... correct drafts, not all zero")
    tail = h[::-1].cumsum()[::-1]
    below = np.where(tail[:-1] > 0, tail[:-1], np.nan) if conditional else tail[0]
    return [float(v) for v in tail[1:] / below]


def round_time(tpot_s: float, accept: float) -> float:
    """Time of one draft-and-verify round: TPOT * a, s."""
    return tpot_s * accept


def relative_cost(tpot_s: float, accept: float, plain_tpot_s: float) -> float:
    """c: round time over the TPOT of the same configuration without speculation, same load, same run."""
    return round_time(tpot_s, accept) / plain_tpot_s


def speedup(accept: float, c: float) -> float:
    """S = a / c."""
    return accept / c


def itl(chunk_times: Sequence[float], chunk_tokens: Sequence[int]) -> list[float]:
    """Inter-token latency of each chunk after the first, s: gap / new tokens. Several tokens may come in one chunk."""
    gaps, news = np.diff(np.asarray(chunk_times, float)), np.diff(np.asarray(chunk_tokens))
    return [float(g / n) for g, n in zip(gaps, news, strict=True) if n > 0]


def good(rows: Iterable[Mapping]) -> list[Mapping]:
    """Rows that count: measured, not refused, with a decode time."""
    return [r for r in rows if r["status"] == "ok" and _number(r.get("tpot_s"))]


def summarise(rows: Iterable[Mapping], *, seed: int = 0) -> dict:
    """One arm's rows into medians with intervals.

    Returns tpot_s, ttft_s, accept_length (Interval dicts; accept_length None without speculation), decode_tok_s,
    requests, left_out, warnings (list of sentences). Raises NoSamples when no row counts.
    """
    rows = [r for r in rows if r["status"] != "warmup"]
    used = good(rows)
    if not used:
        reasons = sorted({str(r.get("error") or r["status"]) for r in rows}) or ["no requests"]
        raise NoSamples("no good sample: " + "; ".join(reasons))
    repeats = [r["repeat"] for r in used]
    tpots = median_interval([r["tpot_s"] for r in used], repeats, seed=seed)
    ttfts = median_interval([r["ttft_s"] for r in used], repeats, seed=seed)
    accepts = None
    if all(_number(r.get("accept_length")) for r in used):
        accepts = median_interval([r["accept_length"] for r in used], repeats, seed=seed)
    return {
        "tpot_s": tpots.as_dict(),
        "ttft_s": ttfts.as_dict(),
        "accept_length": accepts.as_dict() | {"mean": accept_length(used)} if accepts else None,
        "decode_tok_s": decode_throughput(used),
        "requests": len(used),
        "left_out": len(rows) - len(used),
        "warnings": warnings(rows, used, tpots),
    }


def warnings(rows: list[Mapping], used: list[Mapping], tpots: Interval) -> list[str]:
    """Why this result may not be trusted, one sentence each."""
    out = []
    for status in sorted({r["status"] for r in rows} - {"ok"}):
        bad = [r for r in rows if r["status"] == status]
        out.append(f"{len(bad)} of {len(rows)} samples {status}: {bad[0].get('error') or 'no reason given'}")
    short = sum(r["status"] == "ok" for r in rows) - len(used)
    if short:
        out.append(f"{short} of {len(rows)} samples have fewer than two tokens, so no TPOT")
    if tpots.repeats < 3:
        out.append(f"only {tpots.repeats} repeat(s): the interval does not cover differences between runs")
    if tpots.spread > UNSTABLE:
        out.append(f"unstable: medians of the repeats differ by {tpots.spread:.0%}")
    # The engine's CPU time covers decoding alone, so it is held against what follows the first token.
    shares = [r["thread_cpu_s"] / (r["latency_s"] - r["ttft_s"]) for r in used if _number(r.get("thread_cpu_s"))]
    if shares and np.median(shares) < DISTURBED:
        out.append(f"disturbed: the engine's thread had a core only {np.median(shares):.0%} of the time")
    lengths = {r["output_tokens"] for r in used}
    if len(lengths) > 1 and any(r.get("fixed_length") for r in used):
        out.append(f"output lengths differ ({min(lengths)} to {max(lengths)}) though a fixed one was asked for")
    return out + doubts.said(rows)


def _number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and value == value and value > 0
