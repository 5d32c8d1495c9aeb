"""What a campaign's rows say: each arm with its spread between server starts, gains, and whether S = a/c holds.

For one arm S = a/c is true by definition (c is the round time over the plain step). It is a law only if c stays the
same while a changes, so c is taken at one accept length and used to predict S at the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import BadInput
from labkit.evidence import Evidence, measured
from labkit.measure.metrics import UNSTABLE, accept_length, good
from labkit.measure.stats import Interval, median_interval, ratio_interval

DRAWS = 800  # bootstrap draws a ratio; more change the third digit of an interval


@dataclass(frozen=True)
class Arm:
    """One arm of a run.

    tpot: median over all starts. steady: over the starts whose own requests agree within UNSTABLE (all starts if none
    does): a disturbed start only ever adds time. starts: start -> (median TPOT in s, spread within the start).
    """

    name: str
    tpot: Evidence
    steady: Evidence
    ttft: Evidence
    accept: float | None
    requests: int
    starts: dict[int, tuple[float, float]]

    @property
    def between_starts(self) -> float:
        """Largest difference between medians of starts over the median; 0 with one start."""
        medians = [median for median, _ in self.starts.values()]
        return (max(medians) - min(medians)) / self.tpot.value

    @property
    def disturbed(self) -> list[int]:
        """Starts whose own requests differ by more than UNSTABLE."""
        return [start for start, (_, spread) in self.starts.items() if spread > UNSTABLE]


@dataclass(frozen=True)
class Held:
    """The law at one accept length: S as measured and as predicted with c from the reference arm."""

    arm: str
    accept: float
    c: Evidence
    speedup: Evidence
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured speed-up, minus 1."""
        return self.predicted / self.speedup.value - 1


def arms(rows: Iterable[Mapping], source: str) -> dict[str, Arm]:
    """All arms with good rows, in order of appearance. source: the run, for the evidence."""
    used = good(rows)
    out = {}
    for name in dict.fromkeys(r["arm"] for r in used):
        mine = [r for r in used if r["arm"] == name]
        starts = _starts(mine)
        steady = _steady(mine)
        out[name] = Arm(
            name,
            _evidence("tpot_s", mine, source),
            _evidence("tpot_s", steady, source),
            _evidence("ttft_s", mine, source),
            accept_length(mine),
            len(mine),
            starts,
        )
    return out


def gain(rows: Iterable[Mapping], before: str, after: str, source: str) -> Evidence:
    """TPOT of `before` over TPOT of `after` over steady starts: above 1 is faster. Interval clustered by repeat."""
    ratio = ratio_interval(*_times(rows, before), *_times(rows, after), draws=DRAWS)
    return measured(ratio.median, "1", source, low=ratio.low, high=ratio.high)


def round_cost(rows: Iterable[Mapping], plain: str, arm: str, source: str) -> Evidence:
    """c of a speculating arm: median TPOT * a over the plain arm's median TPOT."""
    a = accept_length(r for r in good(rows) if r["arm"] == arm)
    if a is None:
        raise BadInput("arm", arm, "an arm with speculation")
    ratio = ratio_interval(*_times(rows, arm, a), *_times(rows, plain), draws=DRAWS)
    return measured(ratio.median, "1", source, low=ratio.low, high=ratio.high)


def law(rows: Sequence[Mapping], plain: str, speculating: Sequence[str], reference: str, source: str) -> list[Held]:
    """S = a/c at each arm, c taken from `reference`. Raises BadInput for arms without good rows."""
    c = round_cost(rows, plain, reference, source).value
    out = []
    for name in speculating:
        a = accept_length(r for r in good(rows) if r["arm"] == name)
        out.append(Held(name, a, round_cost(rows, plain, name, source), gain(rows, plain, name, source), a / c))
    return out


def _starts(rows: Sequence[Mapping]) -> dict[int, tuple[float, float]]:
    """start -> (median TPOT, spread within it) of one arm's rows."""
    by_start: dict[int, list[float]] = {}
    for row in rows:
        by_start.setdefault(row.get("start", 0), []).append(row["tpot_s"])
    return {k: (float(np.median(v)), (max(v) - min(v)) / float(np.median(v))) for k, v in sorted(by_start.items())}


def _steady(rows: Sequence[Mapping]) -> list[Mapping]:
    """One arm's rows without its disturbed starts, or all of them when every start is disturbed."""
    starts = _starts(rows)
    return [r for r in rows if starts[r.get("start", 0)][1] <= UNSTABLE] or list(rows)


def _times(rows: Iterable[Mapping], arm: str, factor: float = 1.0) -> tuple[list[float], list[int]]:
    mine = [r for r in good(rows) if r["arm"] == arm]
    if not mine:
        raise BadInput("arm", arm, "an arm with good samples")
    mine = _steady(mine)
    return [r["tpot_s"] * factor for r in mine], [r["repeat"] for r in mine]


def _evidence(column: str, rows: Sequence[Mapping], source: str) -> Evidence:
    got: Interval = median_interval([r[column] for r in rows], [r["repeat"] for r in rows])
    return measured(got.median, "s", source, low=got.low, high=got.high)
