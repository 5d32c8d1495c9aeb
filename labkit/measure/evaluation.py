"""Accuracy and latency of arms on the same questions: what became of each, what a difference can mean, and how sure.

Rows are those of a session that kept its answers (`text`, `expected`); every arm was asked every question once, and the
question is what is resampled. Refused, failed and truncated questions are outcomes of their own, never wrong answers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from labkit.measure import estimates, stats
from labkit.roofline import proportions
from labkit.workloads import answers

READERS = ("flexible", "strict")
ANSWERED = (answers.RIGHT, answers.WRONG, answers.NO_ANSWER)
CEILING = 0.95  # accuracy above which a better model has little room to show it
NARROW = 0.10  # width of a ratio's interval, as a share of the ratio, up to which a speed decides anything
RANKS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
BEYOND = 5  # samples that must lie beyond a percentile before it says anything


def outcome(row: Mapping, reader: str = "flexible") -> str | None:
    """What became of a row's question (labkit.workloads.answers.OUTCOMES); None for a cancelled request.

    A kept text is read again; without one the outcome that was written down at the time counts.
    """
    if row["status"] != "ok":
        return {"refused": answers.REFUSED, "error": answers.FAILED}.get(row["status"])
    if row.get("text") is None and row.get("outcomes"):
        return row["outcomes"][reader]
    return answers.outcomes(row.get("text") or "", row["expected"], finish_reason=row["finish_reason"])[reader]


def settled(rows: Sequence[Mapping]) -> list[Mapping]:
    """One row per question, in the order of the questions: its first good answer, else the last attempt.

    A request that failed or was refused may have been asked again; every attempt has a row.
    """
    out: dict[int, Mapping] = {}
    for row in rows:
        before = out.get(row["index"])
        if before is None or before["status"] != "ok":
            out[row["index"]] = row
    return [out[i] for i in sorted(out)]


def attempts(rows: Sequence[Mapping]) -> dict[str, int]:
    """How often questions had to be asked again: {"questions", "asked_again" (requests beyond the first of each)}."""
    questions = len({row["index"] for row in rows})
    return {"questions": questions, "asked_again": len(rows) - questions}


def accuracy(outcomes: Sequence[str]) -> dict:
    """Right answers over answered questions with Wilson's 95% interval, and every outcome counted.

    Keys: accuracy, low, high (shares; None without an answered question), answered, asked, outcomes.
    """
    counts = Counter(outcomes)
    answered = sum(counts[name] for name in ANSWERED)
    share = low = high = None
    if answered:
        share = counts[answers.RIGHT] / answered
        low, high = proportions.wilson(counts[answers.RIGHT], answered)
    listed = {name: counts[name] for name in answers.OUTCOMES}
    return {
        "accuracy": share,
        "low": low,
        "high": high,
        "answered": answered,
        "asked": len(outcomes),
        "outcomes": listed,
    }


def arm(rows: Sequence[Mapping], *, seed: int = 0) -> dict:
    """One arm: accuracy (read flexibly; `strict` beside it), speed, latency and lengths.

    Times in s. tpot_s, ttft_s, decode_tok_s and accept_length are plain values, with their intervals under `intervals`;
    latency_s has mean, p50, p90, p95, p99. accept_length is None without speculation.
    """
    outcomes = {reader: [o for r in rows if (o := outcome(r, reader)) is not None] for reader in READERS}
    out = accuracy(outcomes["flexible"]) | {"strict": accuracy(outcomes["strict"])}
    timed = by_question(rows)
    if not timed:
        return out | dict.fromkeys(("tpot_s", "ttft_s", "latency_s", "decode_tok_s", "accept_length"))
    found = estimates.estimate(timed, seed=seed)
    latency = spread([r["latency_s"] for r in timed], seed=seed)
    lengths = np.array([r["output_tokens"] for r in timed])
    return out | {
        "tpot_s": found.tpot.value,
        "ttft_s": found.ttft.value,
        "decode_tok_s": found.throughput,
        "accept_length": found.accept and found.accept.value,
        "latency_s": {name: v["median"] for name, v in latency.items()},
        "intervals": {
            "tpot_s": found.tpot.as_dict(),
            "ttft_s": found.ttft.as_dict(),
            "accept_length": found.accept and found.accept.as_dict(),
            "latency_s": latency,
        },
        "output_tokens": {
            "mean": float(lengths.mean()),
            "median": float(np.median(lengths)),
            "p95": float(np.quantile(lengths, 0.95)),
        },
        "rebuilt": rebuilt(timed, found.tpot.value),
    }


def by_question(rows: Sequence[Mapping]) -> list[dict]:
    """The rows that have a decode time, each question a cluster of its own: questions are drawn, not passes."""
    return [{**r, "repeat": r["index"]} for r in estimates.good(rows)]


def rebuilt(rows: Sequence[Mapping], tpot_s: float) -> dict:
    """Mean latency put together again: TTFT + TPOT (n - 1) + queue, in s, and what is left over.

    TPOT is the arm's one value for all questions, so the residual says how far one number describes them. queue: what
    the client waited beyond the server's own account of the request, where the server gives one; None elsewhere.
    """
    ttft = np.array([r["ttft_s"] for r in rows])
    decode = tpot_s * np.array([r["output_tokens"] - 1 for r in rows])
    latency = np.array([r["latency_s"] for r in rows])
    own = [r.get("server_latency_s") for r in rows]
    queue = None
    if None not in own:
        queue = float(np.mean(np.maximum(0.0, latency - np.array(own, float))))
    parts = float(ttft.mean()), float(decode.mean())
    return {
        "latency_s": float(latency.mean()),
        "ttft_s": parts[0],
        "decode_s": parts[1],
        "queue_s": queue,
        # TTFT was timed at the client, so a queue before the first token is in it already.
        "residual_s": float(latency.mean()) - sum(parts),
    }


def pair(rows: Sequence[Mapping], base: Sequence[Mapping], *, margin: float = 0.01, seed: int = 0) -> dict:
    """Arm b (`rows`) against arm a (`base`) over the questions that both answered.

    mcnemar: both, only_a, only_b, neither, p (exact). difference b - a with the 95% interval for pairs, as shares.
    non_inferiority: Tango's test that b is not worse by `margin` or more. smallest_detectable: the true difference that
    this many pairs would show four times out of five. speedup, ttft_ratio: a over b, by pairs, with intervals.
    """
    found = {name: {r["index"]: outcome(r) for r in side} for name, side in (("a", base), ("b", rows))}
    common = [i for i in found["a"] if found["a"][i] in ANSWERED and found["b"].get(i) in ANSWERED]
    right = [[found[name][i] == answers.RIGHT for i in common] for name in ("a", "b")]
    cells = Counter(zip(*right, strict=True))
    both, only_a, only_b, neither = (cells[c] for c in ((True, True), (True, False), (False, True), (False, False)))
    out = {
        "questions": len(common),
        "mcnemar": {"both": both, "only_a": only_a, "only_b": only_b, "neither": neither, "p": None},
        "speedup": None,
        "ttft_ratio": None,
    }
    if common:
        difference, low, high = proportions.paired_difference(only_b, only_a, len(common))
        p = proportions.non_inferiority_p(only_a, only_b, len(common), margin)
        out["mcnemar"]["p"] = proportions.mcnemar_exact(only_a, only_b)
        out |= {
            "difference": difference,
            "low": low,
            "high": high,
            "non_inferiority": {"margin": margin, "p": p, "holds": p < 0.025},
            "smallest_detectable": proportions.smallest_detectable(only_a + only_b, len(common)),
        }
    sides = by_question(rows), by_question(base)
    if all(sides) and {r["index"] for r in sides[0]} & {r["index"] for r in sides[1]}:
        against = estimates.compare(*sides, seed=seed, together=True)
        out |= {"speedup": against.speedup.as_dict(), "ttft_ratio": against.ttft.as_dict()}
    return out


def evaluation(rows: Sequence[Mapping], names: Sequence[str], *, margin: float = 0.01, seed: int = 0) -> dict:
    """The whole document: arms in order, every arm against the first, and what may be decided on.

    `mcnemar` repeats the table of the last arm against the first, which is the pair that a two-arm run is about.
    """
    every = {name: [r for r in rows if r["arm"] == name and r["repeat"] >= 0] for name in names}
    mine = {name: settled(every[name]) for name in names}
    arms = [{"name": name, **arm(mine[name], seed=seed), "attempts": attempts(every[name])} for name in names]
    first = names[0]
    pairs = [{"a": first, "b": name, **pair(mine[name], mine[first], margin=margin, seed=seed)} for name in names[1:]]
    return {
        "arms": arms,
        "pairs": pairs,
        "mcnemar": pairs[-1]["mcnemar"] if pairs else None,
        "usable": usable(arms, pairs),
        "warnings": [w for name in names for w in unanswered(name, mine[name])] + _ceiling(arms),
    }


def usable(arms: Sequence[Mapping], pairs: Sequence[Mapping]) -> list[dict]:
    """Which figures can carry a decision: {"figure", "usable", "why"} each."""
    out = []
    for p in pairs:
        name = f"{p['b']} against {p['a']}"
        if p["questions"]:
            least, margin = p["smallest_detectable"], p["non_inferiority"]["margin"]
            why = f"{p['questions']} pairs would show a difference of {100 * least:.1f} points or more"
            out.append({"figure": f"accuracy, {name}", "usable": least <= 2 * margin, "why": why})
        for key, word in (("speedup", "TPOT"), ("ttft_ratio", "TTFT")):
            if p[key] is None or p[key]["low"] is None:
                out.append({"figure": f"{word}, {name}", "usable": False, "why": "no interval"})
                continue
            width = (p[key]["high"] - p[key]["low"]) / p[key]["median"]
            out.append(
                {
                    "figure": f"{word}, {name}",
                    "usable": width <= NARROW,
                    "why": f"the interval of the ratio is {100 * width:.0f}% wide",
                }
            )
    for a in arms:
        beyond = {name: int(a["answered"] * (1 - rank)) for name, rank in RANKS.items()}
        thin = [name.upper() for name, n in beyond.items() if n < BEYOND]
        if a["latency_s"] and thin:
            why = f"fewer than {BEYOND} of {a['answered']} requests lie beyond it"
            out.append({"figure": f"latency {', '.join(thin)}, {a['name']}", "usable": False, "why": why})
    return out


def preview(right: int, answered: int) -> str:
    """What so many questions can say about an accuracy, in one sentence."""
    low, high = proportions.wilson(right, answered)
    share, low, high = 100 * right / answered, 100 * low, 100 * high
    width = f"95% interval {low:.1f} to {high:.1f}%, {high - low:.0f} points wide"
    return f"{right} of {answered} right: {share:.1f}%, {width}"


def spread(values: Sequence[float], *, seed: int) -> dict[str, dict]:
    """Mean and percentiles of values [n] with bootstrap intervals over questions."""
    values = np.asarray(values, float)
    clusters = np.arange(len(values))
    drawn = values[stats.resample(clusters, seed=seed)]
    found = {"mean": (values.mean(), drawn.mean(axis=1))}
    for name, rank in RANKS.items():
        found[name] = (np.quantile(values, rank), np.quantile(drawn, rank, axis=1))
    return {name: stats.interval(value, draws, clusters).as_dict() for name, (value, draws) in found.items()}


def unanswered(name: str, rows: Sequence[Mapping]) -> list[str]:
    """What became of an arm's questions that have no answer to judge, one sentence for each kind."""
    counts = Counter(outcome(r) for r in rows)
    return [
        f"{name}: {counts[kind]} of {len(rows)} questions {kind}: left out of the accuracy, not counted as wrong"
        for kind in (answers.TRUNCATED, answers.REFUSED, answers.FAILED)
        if counts[kind]
    ]


def _ceiling(arms: Sequence[Mapping]) -> list[str]:
    high = [a["name"] for a in arms if a["accuracy"] is not None and a["accuracy"] >= CEILING]
    if not high:
        return []
    return [
        f"near the ceiling ({', '.join(high)} at {CEILING:.0%} or more): these questions hardly tell good models apart;"
        " a loss on harder ones would not show here"
    ]
