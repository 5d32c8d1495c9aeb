"""How long each part of a sweep may take: rounds, and a share that is kept for measuring the best two again."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from labkit.measure import stats
from labkit.measure.sweep.block import Task
from labkit.measure.sweep.costs import Costs
from labkit.measure.sweep.race import Standing

ROUND_SHARE = 0.25  # of what is left: what a round may take
LAST_SHARE, LAST_REPEATS = 0.15, 5  # for the second look: of the budget, or so many passes where that takes longer
MOST_REPEATS = 200
MARGIN = 0.9  # of the time until the very end, what is planned

Make = Callable[[int], Sequence[Task]]  # tasks with so many passes


@dataclass(frozen=True)
class Limit:
    """What whoever measures the blocks of one round asks.

    fits      may this block be begun, by what it should take
    cut_s     seconds until a block under way is ended all the same, None for never
    """

    fits: Callable[[Task], bool] = lambda task: True
    cut_s: Callable[[], float | None] = lambda: None


@dataclass(frozen=True)
class Budget:
    """total_s None: without a limit. spent: seconds up to now. width: blocks that are measured at once."""

    total_s: float | None
    costs: Costs
    spent: Callable[[], float]
    width: int = 1

    @property
    def left_s(self) -> float:
        return math.inf if self.total_s is None else self.total_s - self.spent()

    def rounds(self, last: Make) -> Limit:
        """For the blocks of a round. last: the second look as it would be now."""
        if self.total_s is None:
            return Limit()
        return Limit(
            # Before the first record nothing is known of what a block takes, and without one nothing ever would be.
            lambda task: not self.costs.known or self.costs.block(task) <= self._for_rounds(last),
            lambda: max(0.0, self.left_s - self._needs(last(stats.LEAST)) / MARGIN),
        )

    def second_look(self) -> Limit:
        """For measuring the best two again."""
        if self.total_s is None:
            return Limit()
        return Limit(lambda task: self.costs.block(task) <= self.left_s, lambda: max(0.0, self.left_s))

    def next(self, standings: Mapping[str, Standing], make: Callable[[list[str], int], Sequence[Task]], last: Make):
        """(names, passes) of the next round; None where every group's fastest is known, or the time is over."""
        left = self._for_rounds(last)
        chosen = {g: focus for g, s in standings.items() if (focus := s.focus())}
        while chosen:
            names = [n for focus in chosen.values() for n in focus]
            least = self._needs(make(names, stats.LEAST))
            if least <= left:
                share = left * ROUND_SHARE
                if left - max(least, share) < least:
                    share = left  # no such round would fit behind it
                return names, self._passes(lambda n, names=names: make(names, n), share)
            group = max(chosen, key=lambda g: len(chosen[g]))
            chosen[group] = chosen[group][:-1]
            if len(chosen[group]) < 2:
                del chosen[group]
        return None

    def last(self, make: Make) -> int:
        """Passes of the second look: what fits into the time that is left; 0 where fewer than stats.LEAST do."""
        if not make(stats.LEAST) or self._needs(make(stats.LEAST)) > self.left_s:
            return 0
        return self._passes(make, MARGIN * self.left_s)

    def _for_rounds(self, last: Make) -> float:
        kept = max(LAST_SHARE * self.total_s, self._needs(last(LAST_REPEATS)))
        return self.left_s - min(kept, self.total_s / 2)

    def _needs(self, tasks: Sequence[Task]) -> float:
        return self.costs.blocks(tasks) / min(self.width, max(1, len(tasks))) if self.costs.known else 0.0

    def _passes(self, make: Make, seconds: float) -> int:
        """The most passes that these tasks can make in that time, at least stats.LEAST."""
        low, high = stats.LEAST, MOST_REPEATS
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._needs(make(middle)) <= seconds else (low, middle - 1)
        return low
