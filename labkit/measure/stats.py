"""Intervals that do not flatter: seeded bootstrap, clustered by repeat, and the spread between repeats beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import BadInput

DRAWS = 2000


@dataclass(frozen=True)
class Interval:
    """Median with a bootstrap interval. `repeats`: clusters behind it; `count`: values behind it.

    spread: (largest - smallest median of a repeat) / overall median, 0 with a single repeat. With one repeat the
    interval only describes that one pass; within-run intervals understate what another run would show.
    """

    median: float
    low: float
    high: float
    repeats: int
    count: int
    spread: float

    def as_dict(self) -> dict:
        return {
            "median": self.median, "low": self.low, "high": self.high,
            "repeats": self.repeats, "count": self.count, "spread": self.spread,
        }


def median_interval(
    values: Sequence[float], repeats: Sequence[int], *, seed: int = 0, level: float = 0.95, draws: int = DRAWS
) -> Interval:
    """Median of `values` with a bootstrap interval: repeats are drawn with replacement, then requests within each.

    values, repeats: [n], the repeat that each value belongs to. Raises BadInput on empty or unequal input.
    """
    groups = _groups(values, repeats)
    medians = [float(np.median(g)) for g in groups]
    middle = float(np.median(np.concatenate(groups)))
    rng = np.random.default_rng(seed)
    drawn = np.array([np.median(_draw(groups, rng)) for _ in range(draws)])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    spread = (max(medians) - min(medians)) / middle if middle else 0.0
    return Interval(
        middle, min(float(low), middle), max(float(high), middle), len(groups), sum(map(len, groups)), spread
    )


def ratio_interval(
    top: Sequence[float], top_repeats: Sequence[int], bottom: Sequence[float], bottom_repeats: Sequence[int],
    *, seed: int = 0, level: float = 0.95, draws: int = DRAWS,
) -> Interval:
    """median(top) / median(bottom) with a bootstrap interval; both sides are drawn anew, clustered by repeat."""
    over, under = _groups(top, top_repeats), _groups(bottom, bottom_repeats)
    middle = float(np.median(np.concatenate(over)) / np.median(np.concatenate(under)))
    rng = np.random.default_rng(seed)
    drawn = np.array([np.median(_draw(over, rng)) / np.median(_draw(under, rng)) for _ in range(draws)])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    repeats, count = min(len(over), len(under)), min(sum(map(len, over)), sum(map(len, under)))
    return Interval(middle, min(float(low), middle), max(float(high), middle), repeats, count, 0.0)


def _groups(values: Sequence[float], repeats: Sequence[int]) -> list[np.ndarray]:
    values, repeats = np.asarray(values, float), np.asarray(repeats)
    if values.size == 0 or values.shape != repeats.shape:
        raise BadInput("values", list(values.shape), "at least one value, and a repeat for each")
    if not np.isfinite(values).all():
        raise BadInput("values", "nan or inf", "finite numbers")
    return [values[repeats == r] for r in np.unique(repeats)]


def _draw(groups: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    chosen = rng.integers(0, len(groups), len(groups))
    return np.concatenate([groups[i][rng.integers(0, len(groups[i]), len(groups[i]))] for i in chosen])
