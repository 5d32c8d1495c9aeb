"""What every notebook reads from results: which are there, whether they compare, and a place for a missing figure."""

import json
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.figures import decode, speculation
from labkit.measure import estimates
from labkit.measure.results import Result
from labkit.notebook.render import Line
from labkit.units import minutes

NOTHING: Line = ("nothing measured yet", "", "press Run")  # a table before there is a result


def apart(results: Mapping[str, Result]) -> list[str]:
    """One sentence where arms of one load were not measured in turns: a drift of the machine then looks like a gain.

    Arms that ran in turns overlap in time; an arm that a store kept, or that was added later, does not.
    """
    by_load: dict[str, list[tuple[float, float, str]]] = {}
    for r in results.values():
        if r.used:
            first = min(row["started_unix"] for row in r.used)
            last = max(row["started_unix"] + row["latency_s"] for row in r.used)
            by_load.setdefault(json.dumps(r.arm.load, sort_keys=True), []).append((first, last, r.name))
    out = []
    for spans in by_load.values():
        spans.sort()
        until, before = spans[0][1], [spans[0][2]]
        for first, last, name in spans[1:]:
            if first > until + 5:  # s; a single pass of one prompt has its arms right behind each other
                out.append(
                    f"{name} was measured {minutes(first - until)} after {', '.join(before)}, not interleaved with it:"
                    " the machine may have changed in between. Measuring both again interleaves them."
                )
            until = max(until, last)
            before.append(name)
    return out


def no_conclusion(results: Mapping[str, Result]) -> str:
    """Which of these arms have passes that differ so much that no cause can be read from them, in a sentence; "" where
    none has."""
    spreads = {n: r.estimates.tpot.spread for n, r in results.items() if r.used}
    unstable = {n: s for n, s in spreads.items() if s > estimates.UNSTABLE}
    if not unstable:
        return ""
    return (
        f"No conclusion is drawn: passes of {', '.join(unstable)} differ by up to {max(unstable.values()):.0%}"
        f" (the limit is {estimates.UNSTABLE:.0%}). Close what else uses this machine and measure again."
    )


def present(results: Mapping[str, Result], names: Sequence[str]) -> list[Result]:
    """Those results that have at least one row that counts, in the order of names."""
    return [results[n] for n in names if n in results and results[n].used]


def accepted(drafting: Sequence[Result]) -> go.Figure:
    """Which drafts were accepted, by position, of the arms whose engine tells; a word where none does."""
    title, told = "Which drafts are accepted", [r for r in drafting if len(r.histogram) > 1]
    if told:
        return speculation.by_position([(r.name, r.histogram) for r in told])
    return (
        waiting(title, "This engine does not report which of its drafts are accepted.") if drafting else waiting(title)
    )


def waiting(title: str, why: str = decode.NOT_YET) -> go.Figure:
    """The place of a figure whose arms are not measured yet."""
    return decode.waiting(title, why=why)
