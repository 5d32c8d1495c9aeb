"""What a campaign's rows say: each arm with its spread between server starts, gains, and whether S = a/c holds.

For one arm S = a/c is true by definition (c is the round time over the plain step). It is a law only if c stays the
same while a changes, so c is taken at one accept length and used to predict S at the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import BadInput
from labkit.evidence import Evidence, measured
from labkit.measure.metrics import accept_length, good
from labkit.measure.stats import Interval, median_interval, ratio_interval

DRAWS = 800  # bootstrap draws a ratio; more change the third digit of an interval


@dataclass(frozen=True)
class Arm:
    """One arm of a run. tpot: median over all starts; starts: median TPOT (s) of each server start, in order."""

    name: str
    tpot: Evidence
    ttft: Evidence
    accept: float | None
    requests: int
    starts: tuple[float, ...]

    @property
    def between_starts(self) -> float:
        """Largest difference between starts over the median; 0 with one start."""
        return (max(self.starts) - min(self.starts)) / self.tpot.value if len(self.starts) > 1 else 0.0


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
        starts = sorted({r.get("start", 0) for r in mine})
        out[name] = Arm(
            name, _evidence("tpot_s", mine, source), _evidence("ttft_s", mine, source),
            accept_length(mine), len(mine),
            tuple(float(np.median([r["tpot_s"] for r in mine if r.get("start", 0) == s])) for s in starts),
        )  # fmt: skip
    return out


def gain(rows: Iterable[Mapping], before: str, after: str, source: str) -> Evidence:
    """TPOT of `before` over TPOT of `after`: above 1 is faster. Interval clustered by repeat."""
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


def _times(rows: Iterable[Mapping], arm: str, factor: float = 1.0) -> tuple[list[float], list[int]]:
    mine = [r for r in good(rows) if r["arm"] == arm]
    if not mine:
        raise BadInput("arm", arm, "an arm with good samples")
    return [r["tpot_s"] * factor for r in mine], [r["repeat"] for r in mine]


def _evidence(column: str, rows: Sequence[Mapping], source: str) -> Evidence:
    got: Interval = median_interval([r[column] for r in rows], [r["repeat"] for r in rows])
    return measured(got.median, "s", source, low=got.low, high=got.high)
