"""Which configurations may still be the fastest, and where the time of a budget goes.

A race: after each round a configuration is out only if its passes show that it is slower than the fastest one; what
cannot be told apart stays in for as long as there is time. The next round goes to the few that are most likely the
fastest, and one that is put off for now comes back when their numbers fall.

Why not a library's search: the pruners of Optuna (successive halving, Hyperband) drop a fixed share whatever the noise,
and its Wilcoxon pruner holds each configuration against one that is measured to its end; none of them knows of blocks
that share a baseline and engine starts. A Bayesian search learns a smooth surface, and a sweep has tens of
configurations whose fields are mostly switches and names. `python -m benchmarks.pruners` simulates all of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from labkit.measure import stats

ERROR = 0.05  # chance that a look puts the fastest configuration out, whatever the number of configurations
COVER = 0.8  # a round goes to the fewest configurations of which one is the fastest with this chance
CLEAR = 0.01  # a lead that matters: what a report calls faster by more than this
DRAWS = 4000
# How much two starts of one engine differ, all else equal (standard deviation): assumed at first, as if seen in so many
# pairs of blocks that hold the same configuration; those that the sweep itself has count beside them.
START_SD, START_PAIRS = 0.005, 3
_LEAST_SD = 1e-4  # of a pass: below this clocks do not tell


@dataclass(frozen=True)
class Standing:
    """Configurations of one group, i.e. one machine and one load.

    names    all that were measured, fastest first
    able     those of them that cannot be told apart from the first
    chance   of each, to be the fastest of all; they add up to 1
    clear    of each, that one of the others is faster than it by more than CLEAR
    hope     of each, to be the fastest by its own passes alone: where it pays to look on
    """

    names: tuple[str, ...]
    able: tuple[str, ...]
    chance: Mapping[str, float]
    clear: Mapping[str, float]
    hope: Mapping[str, float]

    def focus(self) -> list[str]:
        """The able ones to measure next, most likely ones first: at least two, [] where the fastest is known."""
        ranked = sorted(self.able, key=lambda n: -self.hope[n])
        if len(ranked) < 2:
            return []
        total = np.cumsum([self.hope[n] for n in ranked])
        total /= total[-1]
        return ranked[: max(2, int(np.searchsorted(total, COVER)) + 1)]


def standing(rows: Sequence[Mapping], *, seed: int = 0) -> Standing | None:
    """How the measured rows of one group stand, None where there are none. A row has `speedup`, and `visits`: for each
    block that holds it [passes, mean log speed-up, standard deviation of a pass]."""
    rows = [r for r in rows if r.get("status") == "measured"]
    if not rows:
        return None
    names = [r["config"] for r in rows]
    mean = np.log([r["speedup"] for r in rows])
    error2 = _variances(rows)
    lead = int(mean.argmax())
    z = NormalDist().inv_cdf(1 - ERROR / max(1, len(rows) - 1))
    able = mean[lead] - mean <= z * np.sqrt(error2 + error2[lead])
    draws = max(DRAWS // 10, min(DRAWS, 2_000_000 // len(rows)))
    chance = np.random.default_rng(seed).standard_normal((draws, len(rows)))
    hope = mean + np.sqrt(error2) * chance
    likely, left2 = _shrunk(mean, error2)
    drawn = likely + np.sqrt(left2) * chance
    clear = (drawn.max(1)[:, None] - drawn > CLEAR).mean(0)
    order = np.argsort(-mean, kind="stable")
    return Standing(
        tuple(names[i] for i in order),
        tuple(names[i] for i in order if able[i]),
        *({n: float(p) for n, p in zip(names, x, strict=True)} for x in (_firsts(drawn), clear, _firsts(hope))),
    )


def _firsts(drawn: np.ndarray) -> np.ndarray:
    """[configurations]: the share of draws in which each is the fastest. drawn: [draws, configurations]."""
    return np.bincount(drawn.argmax(1), minlength=drawn.shape[1]) / len(drawn)


def _shrunk(mean: np.ndarray, error2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(likely log speed-up, its variance): configurations are drawn together as far as their differences can be noise,
    because the fastest of many noisy numbers was lucky too."""
    if len(mean) < 3:
        return mean, error2
    middle, real = _spread(mean, error2)
    weight = real / (real + error2)
    # The variance of their own middle remains where everything is noise.
    left = weight * error2 + (1 - weight) ** 2 / (1 / (real + error2)).sum()
    return middle + weight * (mean - middle), np.maximum(left, _LEAST_SD**2)


def _spread(mean: np.ndarray, noise: np.ndarray) -> tuple[float, float]:
    """(middle, variance) of the normal distribution from which these means most likely come, each with its noise."""
    most = max(float(mean.var()), _LEAST_SD**2)
    tried = np.concatenate([[0.0], np.geomspace(most / 1000, most, 40)])[:, None]
    weight = 1 / (tried + noise)
    middle = (weight * mean).sum(1) / weight.sum(1)
    fit = np.log(weight).sum(1) - (weight * (mean - middle[:, None]) ** 2).sum(1)
    best = int(fit.argmax())
    return float(middle[best]), float(tried[best, 0])


def _variances(rows: Sequence[Mapping]) -> np.ndarray:
    """Of each row's mean log speed-up: from the spread of passes within a block, pooled over all rows where a row's own
    is smaller (three passes alone say little), and from that between blocks."""
    visits = [_visits(r) for r in rows]
    known = [(n - 1, sd) for mine in visits for n, _, sd in mine if sd is not None and n > 1]
    freedom = sum(f for f, _ in known)
    pooled = sum(f * sd**2 for f, sd in known) / freedom if freedom else 0.0
    pairs, between = START_PAIRS, START_PAIRS * START_SD**2
    for mine in visits:
        for (n, a, _), (m, b, _) in zip(mine, mine[1:], strict=False):
            pairs += 1
            between += ((a - b) ** 2 - pooled * (1 / n + 1 / m)) / 2
    start = max(0.0, between / pairs)
    out = []
    for mine in visits:
        own = [(n - 1, sd) for n, _, sd in mine if sd is not None and n > 1]
        free = sum(f for f, _ in own)
        noise = max(pooled, sum(f * sd**2 for f, sd in own) / free if free else 0.0, _LEAST_SD**2)
        out.append(noise / sum(n for n, _, _ in mine) + start / len(mine))
    return np.array(out)


def _visits(row: Mapping) -> list[tuple[int, float, float | None]]:
    """A row's visits; of an older sweep's row one, by its interval."""
    if row.get("visits"):
        return [tuple(v) for v in row["visits"]]
    passes = max(1, int(row.get("repeats") or stats.LEAST))
    low, high = row.get("speedup_low"), row.get("speedup_high")
    sd = math.log(high / low) / (2 * 1.96) * math.sqrt(passes) if low and high else None
    return [(passes, math.log(row["speedup"]), sd)]
