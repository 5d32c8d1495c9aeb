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
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "repeats": self.repeats,
            "count": self.count,
            "spread": self.spread,
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
    drawn = _medians(groups, rng, draws)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    spread = (max(medians) - min(medians)) / middle if middle else 0.0
    return Interval(
        middle, min(float(low), middle), max(float(high), middle), len(groups), sum(map(len, groups)), spread
    )


def ratio_interval(
    top: Sequence[float],
    top_repeats: Sequence[int],
    bottom: Sequence[float],
    bottom_repeats: Sequence[int],
    *,
    paired: bool = False,
    seed: int = 0,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """median(top) / median(bottom) with a bootstrap interval, clustered by repeat.

    Both sides are drawn anew and apart from each other; with `paired` together: values at the same place of top and
    bottom were then measured side by side, so that what disturbed both does not widen the interval of their ratio.
    Raises BadInput when paired sides have unlike repeats.
    """
    if paired and list(top_repeats) != list(bottom_repeats):
        raise BadInput("repeats", list(bottom_repeats), "the same repeats in the same order on both sides of a pair")
    over, under = _groups(top, top_repeats), _groups(bottom, bottom_repeats)
    middle = float(np.median(np.concatenate(over)) / np.median(np.concatenate(under)))
    rng = np.random.default_rng(seed)
    # The same random numbers choose the same places on both sides.
    other = np.random.default_rng(seed) if paired else rng
    drawn = _medians(over, rng, draws) / _medians(under, other, draws)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    repeats, count = min(len(over), len(under)), min(sum(map(len, over)), sum(map(len, under)))
    return Interval(middle, min(float(low), middle), max(float(high), middle), repeats, count, 0.0)


def paired_ratio(
    top: dict[tuple[int, int], float],
    bottom: dict[tuple[int, int], float],
    *,
    seed: int = 0,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """Median of top / bottom over samples of the same (repeat, prompt), with its interval clustered by repeat.

    For arms measured side by side: what disturbs the machine for a moment hits both samples of a pair and cancels.
    Keys: (repeat, index). Raises BadInput when no key is common.
    """
    common = sorted(top.keys() & bottom.keys())
    if not common:
        raise BadInput("samples", 0, "at least one (repeat, prompt) measured on both sides")
    ratios, repeats = [top[k] / bottom[k] for k in common], [k[0] for k in common]
    return median_interval(ratios, repeats, seed=seed, level=level, draws=draws)


def at_rank(values: Sequence[float], q: float) -> float:
    """The value at rank q of 0..1 among values, one that occurred and none in between; NaN of nothing."""
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def _groups(values: Sequence[float], repeats: Sequence[int]) -> list[np.ndarray]:
    values, repeats = np.asarray(values, float), np.asarray(repeats)
    if values.size == 0 or values.shape != repeats.shape:
        raise BadInput("values", list(values.shape), "at least one value, and a repeat for each")
    if not np.isfinite(values).all():
        raise BadInput("values", "nan or inf", "finite numbers")
    return [values[repeats == r] for r in np.unique(repeats)]


def _medians(groups: list[np.ndarray], rng: np.random.Generator, draws: int) -> np.ndarray:
    """[draws] medians of resamples: as many groups as there are, with replacement, then values within each.

    All draws at once, because panels ask for many intervals while a measurement runs.
    """
    sizes = np.array([len(g) for g in groups])
    values = np.full((len(groups), sizes.max()), np.nan)
    for row, group in zip(values, groups, strict=True):
        row[: len(group)] = group
    chosen = rng.integers(0, len(groups), (draws, len(groups)))
    size = sizes[chosen][..., None]
    within = (rng.random((*chosen.shape, values.shape[1])) * size).astype(int)
    drawn = values[chosen[..., None], within]
    drawn[np.arange(values.shape[1]) >= size] = np.nan  # a smaller group fills only its own places
    drawn = np.sort(drawn.reshape(draws, -1), axis=1)  # nan goes to the end
    count = size.sum(axis=(1, 2))
    rows = np.arange(draws)
    return (drawn[rows, (count - 1) // 2] + drawn[rows, count // 2]) / 2
