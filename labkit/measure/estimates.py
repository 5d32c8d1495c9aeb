"""The one place where rows become numbers: TPOT, TTFT, round time, a, c, S and their intervals.

A request of n output tokens takes TPOT (n - 1) after its first token, in v verify steps; plain ones have v = n - 1.
(Where the first event of a stream carried several tokens, TPOT divides by those after it: labkit.measure.client.)

    round time  TPOT (n - 1) / v, s: one draft-and-verify round, or one plain step
    a           sum(n - 1) / sum(v): tokens per verify step, bonus token included, the prefill's token left out
    TPOT        round time / a: without speculation the median over requests; with it the time per token of the whole
                load, not of the median request, so that TPOT, a and round time agree where prompts accept differently
    c           round time / plain step of the same configuration, load and run: the median over pairs
    S           a / c: how many times faster a token comes than without speculation

Arms that alternated (request by request) are compared by pairs of the same session, repeat and prompt: what slows the
machine for a moment hits both sides and cancels. Rows with a `start` come from engines that ran one after another; they
are resampled apart. All numbers of one comparison come from the same bootstrap draws, clustered by repeat.
TPOT per request as SGLang and vLLM define it (AIPerf calls it ITL); U and B_eff: labkit.roofline.floors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import BadInput, LabError
from labkit.measure import doubts, stats
from labkit.measure.stats import Interval

DISTURBED = 0.9  # CPU time / wall time of the decoding thread below which it had to wait for a core
UNSTABLE = 0.05  # spread between repeats above which a result is called unstable
APART_LEAST = 4  # requests on either side; with these, no overlap at all has p = 0.03 by chance (2 of 70 rank orders)
NOTHING_ACCEPTED = 1.05  # an accept length below this is 1.00 with an accident or two


class NoSamples(LabError):
    """Nothing was measured that counts; the message says what happened instead."""


@dataclass(frozen=True)
class Estimates:
    """One arm. Times in s, throughput in tokens/s; accept is None without speculation."""

    tpot: Interval
    ttft: Interval
    round: Interval
    accept: Interval | None
    throughput: float
    requests: int


@dataclass(frozen=True)
class Comparison:
    """One arm against another. speedup: S. ttft: how many times sooner the first token comes. accept, cost: a and c,
    None unless this arm drafts and the other one does not. cost: of the mean round where the engine chooses anew how
    many tokens each one drafts; None where steps that should be fixed varied between requests. apart: every request of
    one arm took less time per token than every one of the other, APART_LEAST or more on either side."""

    speedup: Interval
    ttft: Interval
    cost: Interval | None
    accept: Interval | None
    apart: bool = False

    @property
    def faster(self) -> bool | None:
        """True for a gain and False for a loss: by the whole interval, or, where repeats are too few for one, because
        the requests of both arms do not overlap. None: neither is shown."""
        s = self.speedup
        if s.low is None:
            return s.value > 1 if self.apart else None
        return True if s.low > 1 else False if s.high < 1 else None


class _Columns:
    """Rows as arrays [n] in the order of (repeat, index): repeat, round_s, tokens (n - 1), verify, ttft_s.

    repeat: a number for each pass of each session.
    """

    def __init__(self, rows: Iterable[Mapping]):
        self.rows = sorted(rows, key=lambda row: (*pass_of(row), row.get("index", 0)))
        self.drafts = bool(self.rows) and all(_number(r.get("verify_ct")) for r in self.rows)
        passes = {p: n for n, p in enumerate(dict.fromkeys(map(pass_of, self.rows)))}
        self.repeat = np.array([passes[pass_of(r)] for r in self.rows])
        self.tokens = np.array([r["output_tokens"] - 1.0 for r in self.rows])
        self.verify = np.array([float(r["verify_ct"]) for r in self.rows]) if self.drafts else self.tokens
        self.tpot_s = np.array([r["tpot_s"] for r in self.rows])
        self.round_s = self.tpot_s * self.tokens / self.verify
        # Rounds of several lengths have no median that stands for them: a mean does, where they vary by nature.
        self.by_nature = self.drafts and any(r.get("drafts_vary") for r in self.rows)
        self.varies = self.by_nature or (self.drafts and len(doubts.fixed_steps(self.rows)) > 1)
        self.ttft_s = np.array([float(r["ttft_s"]) for r in self.rows])
        self.everything = np.arange(len(self.rows))

    def accept(self, at: np.ndarray) -> np.ndarray:
        return np.nansum(stats.take(self.tokens, at), -1) / np.nansum(stats.take(self.verify, at), -1)

    def round_time(self, at: np.ndarray) -> np.ndarray:
        if self.by_nature:
            spent = np.nansum(stats.take(self.tpot_s * self.tokens, at), -1)
            return spent / np.nansum(stats.take(self.verify, at), -1)
        return stats.median(stats.take(self.round_s, at))

    def tpot(self, at: np.ndarray) -> np.ndarray:
        if self.varies:
            spent = np.nansum(stats.take(self.tpot_s * self.tokens, at), -1)
            return spent / np.nansum(stats.take(self.tokens, at), -1)
        return self.round_time(at) / self.accept(at)

    def first(self, at: np.ndarray) -> np.ndarray:
        return stats.median(stats.take(self.ttft_s, at))

    def interval(self, statistic: stats.Statistic, drawn: np.ndarray) -> Interval:
        value = float(statistic(self.everything))
        by_repeat = [float(statistic(self.everything[self.repeat == r])) for r in np.unique(self.repeat)]
        return stats.interval(value, statistic(drawn), self.repeat, (max(by_repeat) - min(by_repeat)) / value)


def good(rows: Iterable[Mapping]) -> list[Mapping]:
    """Rows with a decode time that were measured and not refused; warm-up is none of them."""
    return [r for r in rows if r["status"] == "ok" and _number(r.get("tpot_s"))]


def counted(rows: Iterable[Mapping]) -> list[Mapping]:
    """Good rows without those of disturbed starts (see `disturbed_starts`), as long as half of the rows are left."""
    used = good(rows)
    out = disturbed_starts(used)
    steady = [r for r in used if start_of(r) not in out]
    return steady if 2 * len(steady) >= len(used) else used


def disturbed_starts(rows: Iterable[Mapping]) -> list[tuple[str, int]]:
    """Of several starts of an engine, those whose own requests differ in round time by more than UNSTABLE; see
    `start_of`."""
    starts: dict[tuple[str, int], list[Mapping]] = {}
    for row in good(rows):
        if start_of(row) is not None:
            starts.setdefault(start_of(row), []).append(row)
    times = {start: _Columns(mine).round_s for start, mine in starts.items()}
    return [start for start, t in sorted(times.items()) if (t.max() - t.min()) / np.median(t) > UNSTABLE]


def estimate(rows: Iterable[Mapping], *, seed: int = 0) -> Estimates:
    """All numbers of one arm's rows. Raises NoSamples when no row counts."""
    rows = list(rows)
    columns = _Columns(counted(rows))
    if not columns.rows:
        reasons = sorted({_why_not(r) for r in rows if r["status"] != "warmup"})
        raise NoSamples("no good sample: " + "; ".join(reasons or ["no requests"]))
    drawn = stats.resample(columns.repeat, seed=seed)
    return Estimates(
        tpot=columns.interval(columns.tpot, drawn),
        ttft=columns.interval(columns.first, drawn),
        round=columns.interval(columns.round_time, drawn),
        accept=columns.interval(columns.accept, drawn) if columns.drafts else None,
        throughput=_throughput(columns.rows),
        requests=len(columns.rows),
    )


def _why_not(row: Mapping) -> str:
    """Why a row does not count."""
    if row["status"] != "ok":
        return str(row.get("error") or row["status"])
    tokens = row.get("output_tokens")
    if tokens == 1:
        return "an answer was one token long, and one token has no decode time: have it write more (output_tokens)"
    return f"an answer of {tokens} tokens has no decode time"


def compare(
    rows: Iterable[Mapping], base: Iterable[Mapping], *, seed: int = 0, together: bool | None = None
) -> Comparison:
    """How many times faster the arm of `rows` makes a token than the arm of `base`, and what its rounds cost.

    together: whether both took turns request by request; None tells it by the rows. Raises NoSamples without rows.
    """
    rows, base = counted(rows), counted(base)
    if not rows or not base:
        raise NoSamples("no good sample on one side of the comparison")
    common = {_key(r) for r in rows} & {_key(r) for r in base}
    apart = any(r.get("start") is not None for r in (*rows, *base))
    if together if together is not None else common and not apart:
        if not common:
            raise BadInput("samples", 0, "at least one (repeat, prompt) measured on both sides")
        over, under = (_Columns({_key(r): r for r in side if _key(r) in common}.values()) for side in (rows, base))
        drawn = above = stats.resample(over.repeat, seed=seed)

        def ratio(name: str, at: np.ndarray, _: np.ndarray) -> np.ndarray:
            return stats.median(stats.take(getattr(over, name) / getattr(under, name), at))
    else:
        over, under = _Columns(rows), _Columns(base)
        above, drawn = (stats.resample(s.repeat, seed=seed + i) for i, s in enumerate((over, under)))

        def ratio(name: str, at: np.ndarray, other: np.ndarray) -> np.ndarray:
            return stats.median(stats.take(getattr(over, name), at)) / stats.median(
                stats.take(getattr(under, name), other)
            )

    every = over.everything, under.everything
    varies = over.varies or under.varies
    step = "tpot_s" if varies else "round_s"
    costs, c = ratio(step, above, drawn), ratio(step, *every)
    accepts, a = over.accept(above), over.accept(over.everything)
    yields, y = (1.0, 1.0) if varies else (accepts / under.accept(drawn), a / under.accept(under.everything))
    fewer = min(over.repeat, under.repeat, key=lambda repeats: (len(np.unique(repeats)), len(repeats)))
    drafting = over.drafts and not under.drafts
    if over.by_nature:  # S = a / c, with the mean round
        round_cost: tuple | None = a * c, accepts * costs
    else:
        round_cost = None if varies else (c, costs)
    return Comparison(
        speedup=stats.interval(y / c, yields / costs, fewer),
        ttft=stats.interval(1 / ratio("ttft_s", *every), 1 / ratio("ttft_s", above, drawn), fewer),
        cost=stats.interval(*round_cost, fewer) if drafting and round_cost else None,
        accept=stats.interval(a, accepts, fewer) if drafting else None,
        apart=_apart(over.tpot_s, under.tpot_s) if y > c else _apart(under.tpot_s, over.tpot_s),
    )


def by_pass(rows: Iterable[Mapping], base: Iterable[Mapping]) -> list[float]:
    """How many times faster `rows` make a token than `base` in each pass of one record that both have; [] without one.
    The noise of a single pass: `compare` says how much faster it is in all."""
    sides: list[dict[int, list[Mapping]]] = []
    for side in (rows, base):
        passes: dict[int, list[Mapping]] = {}
        for r in counted(side):
            passes.setdefault(r["repeat"], []).append(r)
        sides.append(passes)
    over, under = ({p: c.tpot(c.everything) for p, mine in s.items() if (c := _Columns(mine))} for s in sides)
    return [float(under[p] / over[p]) for p in over if p in under]


def _apart(fast: np.ndarray, slow: np.ndarray) -> bool:
    return min(len(fast), len(slow)) >= APART_LEAST and bool(fast.max() < slow.min())


def summarise(rows: Iterable[Mapping], *, seed: int = 0) -> dict:
    """One arm as a JSON-ready dict: tpot_s, ttft_s, round_s and accept_length as Interval.as_dict (accept_length None
    without speculation), decode_tok_s, requests, left_out, warnings (sentences). Raises NoSamples."""
    rows = [r for r in rows if r["status"] != "warmup"]
    found = estimate(rows, seed=seed)
    return {
        "tpot_s": found.tpot.as_dict(),
        "ttft_s": found.ttft.as_dict(),
        "round_s": found.round.as_dict(),
        "accept_length": found.accept and found.accept.as_dict(),
        "decode_tok_s": found.throughput,
        "requests": found.requests,
        "left_out": len(rows) - found.requests,
        "warnings": warnings(rows, found),
    }


OF_TIMES = ("unstable: ", "disturbed: ")  # beginnings of warnings that touch no count


def warnings(rows: Sequence[Mapping], found: Estimates) -> list[str]:
    """Why this result may not be trusted, one sentence each."""
    out, used = [], good(rows)
    for status in sorted({r["status"] for r in rows} - {"ok", "warmup"}):
        bad = [r for r in rows if r["status"] == status]
        out.append(f"{len(bad)} of {len(rows)} samples {status}: {bad[0].get('error') or 'no reason given'}")
    short = sum(r["status"] == "ok" for r in rows) - len(used)
    if short:
        out.append(f"{short} of {len(rows)} samples have fewer than two tokens, so no TPOT")
    if found.requests < len(used):
        starts = ", ".join(str(start) for _, start in disturbed_starts(used))
        out.append(f"{len(used) - found.requests} samples left out: the requests of start {starts} differ too much")
    if found.tpot.repeats < stats.LEAST:
        out.append(f"only {found.tpot.repeats} repeat(s): no interval, which takes at least {stats.LEAST}")
    if found.tpot.spread > UNSTABLE:
        out.append(f"unstable: TPOT differs by {found.tpot.spread:.0%} between repeats")
    shares = [share for r in used if (share := core_share(r)) is not None]
    if shares and np.median(shares) < DISTURBED:
        out.append(f"disturbed: the engine's thread had a core only {np.median(shares):.0%} of the time")
    lengths = {r["output_tokens"] for r in used}
    if len(lengths) > 1 and any(r.get("fixed_length") for r in used):
        out.append(f"output lengths differ ({min(lengths)} to {max(lengths)}) though a fixed one was asked for")
    return out + doubts.said(rows)


def core_share(row: Mapping) -> float | None:
    """The share of a core that the engine's thread had while it decoded; None where the engine does not say. Its CPU
    time covers decoding alone, so it is held against what follows the first token."""
    spent = (row.get("latency_s") or 0) - (row.get("ttft_s") or 0)
    return row["thread_cpu_s"] / spent if _number(row.get("thread_cpu_s")) and spent > 0 else None


def accept_length(rows: Iterable[Mapping]) -> float | None:
    """a of these rows, from their counts alone; None without speculation."""
    used = [r for r in rows if r["status"] == "ok" and _number(r.get("verify_ct"))]
    steps = sum(r["verify_ct"] for r in used)
    return sum(r["output_tokens"] - 1 for r in used) / steps if steps else None


def drafts_a_round(rows: Iterable[Mapping]) -> float | None:
    """Mean drafts of a round where the engine chooses their number anew each time; None where it is fixed."""
    used = [r for r in rows if r["status"] == "ok" and r.get("drafts_vary") and r.get("verify_ct")]
    used = [r for r in used if r.get("proposed_drafts") is not None]  # 0: nothing found to propose
    rounds = sum(r["verify_ct"] for r in used)
    return sum(r["proposed_drafts"] for r in used) / rounds if rounds else None


def context(rows: Iterable[Mapping]) -> int:
    """Mean tokens of context during decoding: the prompt and half of the output."""
    return round(float(np.mean([r["prompt_tokens"] + r["output_tokens"] / 2 for r in good(rows)])))


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


def _throughput(rows: Sequence[Mapping]) -> float:
    """Tokens/s of a run: sum of tokens after the first event over sum of their time; not a mean of ratios."""
    tokens = [r["decode_tokens"] if _number(r.get("decode_tokens")) else r["output_tokens"] - 1 for r in rows]
    return sum(tokens) / sum(n * r["tpot_s"] for n, r in zip(tokens, rows, strict=True))


def pass_of(row: Mapping) -> tuple[str, int]:
    """Which pass over the prompts a row belongs to: (session, repeat). Arms alternate within a pass."""
    return row.get("session") or "", row["repeat"]


def start_of(row: Mapping) -> tuple[str, int] | None:
    """Which start of an engine that ran alone a row belongs to: (session, start); None where engines alternated."""
    return None if row.get("start") is None else (row.get("session") or "", row["start"])


def _key(row: Mapping) -> tuple:
    """What two rows share that are a pair: pass, place and prompt."""
    return *pass_of(row), row.get("index", 0), row.get("prompt_sha256")


def _number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and value == value and value > 0
