"""Where a budget is spent: successive halving, a third of the configurations with more repeats each round.

Not a Bayesian search: a sweep has tens of configurations, most of whose fields are switches and names, so there is no
smooth surface to learn, and every trial of such a search would have to be compared across hours of drift. Halving
compares only within blocks, needs no model, and a sweep that goes on after a crash decides as it would have.
"""

import math
from collections.abc import Mapping, Sequence

from labkit.measure import stats

KEEP = 3  # one of so many goes on
FIRST_SHARE, LAST_SHARE = 0.6, 0.15  # of the budget: at most, for the first round; at least, for the best two
MOST_REPEATS = 200


def survivors(rows: Sequence[Mapping]) -> list[str]:
    """Of the measured configurations of one group those that may still be the best, fastest first: at most a third
    (but two), and none whose interval lies below the best one's."""
    ranked = sorted((r for r in rows if r.get("status") == "measured"), key=lambda r: -r["speedup"])
    if not ranked:
        return []
    least = ranked[0].get("speedup_low") or 0.0
    able = [r["config"] for r in ranked if (r.get("speedup_high") or math.inf) >= least]
    return able[: max(2, math.ceil(len(ranked) / KEEP))]


def repeats(left_s: float, pass_s: float, rounds_left: int) -> int:
    """Passes that a round may make when `left_s` is shared with later rounds; 0 where it cannot make enough."""
    count = int(left_s / max(1, rounds_left) / max(pass_s, 1e-9))
    return min(count, MOST_REPEATS) if count >= stats.LEAST else 0


def rounds(configurations: int) -> int:
    """Rounds after the first until two are left."""
    return max(0, math.ceil(math.log(max(configurations, 2) / 2, KEEP)))
