"""The loads of the notebook on the real load, and its answers and latencies by question: what is drawn at random there
is a question."""

from collections.abc import Mapping, Sequence

import numpy as np

from labkit.evidence import Evidence, measured
from labkit.measure import estimates, evaluation
from labkit.measure.results import Result
from labkit.notebook import render
from labkit.notebook.render import Line

# The loads of the notebook. The pair GREEDY and SAMPLED has equal texts, and isolates what sampling itself costs.
TIMING, REAL, QUESTIONS, GREEDY, SAMPLED = "timing", "real", "questions", "greedy", "sampled as greedy"
FLOOR = 0.05  # accuracy below which a worse model has little room to show it


def on(arm: str, load: str) -> str:
    """The name of an arm under a load."""
    return f"{arm} on {load}"


def label(load: str) -> str:
    """A load for people."""
    return f"{load} load"


def one_pass(result: Result) -> list[dict]:
    """The first pass over the questions, as far as their right answers are known."""
    first = min((estimates.pass_of(r) for r in result.rows if r["repeat"] >= 0), default=None)
    return [r for r in result.rows if estimates.pass_of(r) == first and r.get("expected") is not None]


def by_question(result: Result) -> list[dict]:
    """Median times of each question over its passes: {"latency_s", "ttft_s", "output_tokens"}, one per question."""
    rows: dict[int, list[dict]] = {}
    for row in result.used:
        rows.setdefault(row["index"], []).append(row)
    names = ("latency_s", "ttft_s", "output_tokens")
    return [{n: float(np.median([r[n] for r in mine])) for n in names} for mine in rows.values()]


def share(name: str, rows: Sequence[Mapping]) -> Evidence | None:
    """Accuracy with Wilson's interval; None without an answered question."""
    found = evaluation.accuracy([o for r in rows if (o := evaluation.outcome(r)) is not None])
    if found["accuracy"] is None:
        return None
    source = f"this lab, arm {name}: {found['answered']} questions answered of {found['asked']}, Wilson's interval"
    return measured(found["accuracy"], "1", source, found["low"], found["high"])


def lines(asked: Mapping[str, Sequence[Mapping]], *, seed: int) -> list[Line]:
    """Accuracy of each arm and, of the last against the first, the table of pairs and what it can show."""
    out: list[Line] = []
    for name, rows in asked.items():
        found = share(name, rows)
        if found is not None:
            out.append((f"accuracy, {name}", found, _of(rows)))
    if len(asked) < 2:
        return out
    first, last = list(asked)[0], list(asked)[-1]
    pair = evaluation.pair(asked[last], asked[first], seed=seed)
    if not pair["questions"]:
        return out
    m = pair["mcnemar"]
    flips = f"only {first} right: {m['only_a']}, only {last} right: {m['only_b']}"
    spans = f"95% interval {100 * pair['low']:+.2f} to {100 * pair['high']:+.2f}"
    detect = f"{pair['questions']} pairs would show {100 * pair['smallest_detectable']:.1f} points"
    return [
        *out,
        (f"{last} against {first}: McNemar", f"p = {m['p']:.3g}", f"exact; both right: {m['both']}, {flips}"),
        (f"{last} against {first}: difference", f"{100 * pair['difference']:+.2f} points", f"{spans}; {detect}"),
    ]


def latency_lines(name: str, result: Result, *, seed: int) -> list[Line]:
    """TTFT, latency and its percentiles with intervals over questions, and the mean latency rebuilt from its parts."""
    questions = by_question(result)
    spread = evaluation.spread([q["latency_s"] for q in questions], seed=seed)
    of = f"this lab, arm {result.name}: medians of {len(questions)} questions, interval over questions"
    doubt = render.DOUBT if result.warnings else ""
    out: list[Line] = [(f"TTFT, {name}", result.ttft, "")]
    for key, label in (("mean", "mean latency"), ("p50", "latency P50"), ("p95", "latency P95")):
        v = spread[key]
        out.append((f"{label}, {name}", measured(v["median"], "s", of, v["low"], v["high"]), doubt))
    parts = evaluation.rebuilt(result.used, result.tpot.si)
    lengths = [q["output_tokens"] for q in questions]
    built = 1e3 * (parts["ttft_s"] + parts["decode_s"])
    whole = (
        f"TTFT {1e3 * parts['ttft_s']:.1f} + TPOT x (n - 1) {1e3 * parts['decode_s']:.1f} = {built:.1f} ms,"
        f" measured {1e3 * parts['latency_s']:.1f} ms"
    )
    queue = "not reported" if parts["queue_s"] is None else f"{1e3 * parts['queue_s']:.1f} ms beside the server's time"
    rest = f"residual {1e3 * parts['residual_s']:+.1f} ms; queue and client: {queue}"
    return [
        *out,
        (f"mean latency rebuilt, {name}", whole, rest),
        (f"output tokens, {name}", f"mean {np.mean(lengths):.0f}, median {np.median(lengths):.0f}", ""),
    ]


def warnings(asked: Mapping[str, Sequence[Mapping]]) -> list[str]:
    """Questions that no answer came for, and questions too easy or too hard to tell arms apart."""
    shares = {name: share(name, rows) for name, rows in asked.items()}
    known = {name: s.value for name, s in shares.items() if s is not None}
    out = [w for name, rows in asked.items() for w in evaluation.unanswered(name, rows)]
    high = [name for name, s in known.items() if s >= evaluation.CEILING]
    low = [name for name, s in known.items() if s <= FLOOR]
    if high:
        out.append(
            f"Accuracy is near the ceiling ({', '.join(high)}: {evaluation.CEILING:.0%} or more): a loss on harder"
            " questions would not show here."
        )
    if low:
        out.append(
            f"Accuracy is near the floor ({', '.join(low)}: {FLOOR:.0%} or less): the model cannot answer these"
            " questions, so a loss would not show here."
        )
    return out


def grouped(sentences: Sequence[str]) -> list[str]:
    """ "ARM: KIND: what" of more than two arms as one sentence, with the last arm's words."""
    kinds: dict[str, list[str]] = {}
    for sentence in sentences:
        parts = sentence.split(": ", 2)
        kinds.setdefault(parts[1] if len(parts) == 3 else sentence, []).append(sentence)
    out: list[str] = []
    for kind, mine in kinds.items():
        if len(mine) < 3:
            out += mine
        else:
            arm, _, what = mine[-1].split(": ", 2)
            out.append(f"{len(mine)} arms {kind}, for example {arm}: {what}")
    return out


def _of(rows: Sequence[Mapping]) -> str:
    found = evaluation.accuracy([o for r in rows if (o := evaluation.outcome(r)) is not None])
    right = found["outcomes"]["right"]
    others = {n: v for n, v in found["outcomes"].items() if v and n not in ("right", "wrong")}
    return f"{right} of {found['answered']} answered" + "".join(f", {n}: {v}" for n, v in others.items())
