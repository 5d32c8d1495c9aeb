"""Intervals that do not flatter: seeded bootstrap, clustered by repeat, and none from fewer than three repeats."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from labkit.errors import BadInput

DRAWS = 2000
LEAST = 3  # repeats below which resampling them says nothing about what another run would show
Statistic = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Interval:
    """A value with its 95% bootstrap interval; low and high are None with fewer than LEAST repeats.

    repeats: clusters behind it. count: samples behind it. spread: (largest - smallest value of a repeat) / value.
    """

    value: float
    low: float | None
    high: float | None
    repeats: int
    count: int
    spread: float = 0.0

    def as_dict(self) -> dict:
        """JSON-ready; the value stands under `median`."""
        found = asdict(self)
        return {"median": found.pop("value"), **found}


def resample(repeats: Sequence[int], *, seed: int = 0, draws: int = DRAWS) -> np.ndarray:
    """[draws, places] indices into the samples: as many repeats as there are, with replacement, then samples in each.

    repeats: [n], the repeat of each sample. -1 marks a place that a smaller repeat leaves empty. Equal repeats and
    seeds give equal draws, so that quantities computed from the same draws agree with each other.
    """
    repeats = np.asarray(repeats)
    order = np.argsort(repeats, kind="stable")
    _, first, size = np.unique(repeats[order], return_index=True, return_counts=True)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(first), (draws, len(first)))
    within = rng.random((*chosen.shape, size.max())) * size[chosen][..., None]
    at = order[np.minimum(first[chosen][..., None] + within.astype(int), len(order) - 1)]
    at[np.arange(size.max()) >= size[chosen][..., None]] = -1
    return at.reshape(draws, -1)


def take(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """values[at] with NaN at the places that are empty."""
    return np.where(at < 0, np.nan, values[at])


def median(values: np.ndarray) -> np.ndarray:
    """Median along the last axis, NaN left out: faster than numpy.nanmedian on many short rows."""
    values = np.sort(values, axis=-1)  # NaN goes to the end
    count = (~np.isnan(values)).sum(axis=-1)[..., None]
    ends = [np.take_along_axis(values, at, axis=-1)[..., 0] for at in ((count - 1) // 2, count // 2)]
    return (ends[0] + ends[1]) / 2


def interval(value: float, drawn: np.ndarray, repeats: Sequence[int], spread: float = 0.0) -> Interval:
    """The 95% interval of a value from its bootstrap draws, widened to hold the value itself."""
    clusters = len(np.unique(np.asarray(repeats)))
    low = high = None
    if clusters >= LEAST:
        low, high = np.quantile(drawn, [0.025, 0.975])
        low, high = min(float(low), float(value)), max(float(high), float(value))
    return Interval(float(value), low, high, clusters, len(repeats), spread)


def median_interval(values: Sequence[float], repeats: Sequence[int], *, seed: int = 0) -> Interval:
    """Median of `values` ([n]) with its interval clustered by `repeats` ([n]). BadInput on empty or unequal input."""
    values, repeats = checked(values, repeats)
    by_repeat = [float(np.median(values[repeats == r])) for r in np.unique(repeats)]
    middle = float(np.median(values))
    spread = (max(by_repeat) - min(by_repeat)) / middle if middle else 0.0
    return interval(middle, median(take(values, resample(repeats, seed=seed))), repeats, spread)


def checked(values: Sequence[float], repeats: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays. Raises BadInput unless there is a finite value for each repeat and at least one."""
    values, repeats = np.asarray(values, float), np.asarray(repeats)
    if values.size == 0 or values.shape != repeats.shape:
        raise BadInput("values", list(values.shape), "at least one value, and a repeat for each")
    if not np.isfinite(values).all():
        raise BadInput("values", "nan or inf", "finite numbers")
    return values, repeats


def text(found: dict, scale: float = 1.0, spec: str = ".3f") -> str:
    """An Interval.as_dict for people: '1.234 [1.230, 1.240]', without brackets where there is no interval."""
    value = format(found["median"] * scale, spec)
    if found["low"] is None:
        return value
    return f"{value} [{format(found['low'] * scale, spec)}, {format(found['high'] * scale, spec)}]"


def at_rank(values: Sequence[float], q: float) -> float:
    """The value at rank q of 0..1 among values, one that occurred and none in between; NaN of nothing."""
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")
