"""What a block will take, from the records of those that are finished: starts of engines and requests apart."""

import json
import statistics
from collections.abc import Sequence

from labkit.engines.config import EngineConfig
from labkit.measure import estimates
from labkit.measure.forecast import Forecast
from labkit.measure.results import Arm
from labkit.measure.sweep.block import Task
from labkit.records import Run


class Costs(Forecast):
    """Seconds of blocks. Before the first record they come from bytes; `known` then is False.

    An engine that was not started yet takes as long as the slowest that was; a configuration that was not asked yet as
    many times what its bytes say as the others did.
    """

    def __init__(self):
        super().__init__(self, {})
        self._starts: dict[str, float] = {}  # by engine configuration, s
        self._arms: dict[str, Arm] = {}
        self._scale: dict[str, float] = {}  # by load
        self._longer: list[float] = []  # of each block: how many times what its parts add up to

    @property
    def known(self) -> bool:
        """Does any of it rest on a record?"""
        return bool(self._arms)

    def learn(self, task: Task, run: Run, took_s: float | None = None) -> None:
        """A finished block. took_s: from its beginning to its end; None where it was not measured in one go."""
        arms = {a.name: a for b in task.blocks() for a in b.arms}
        for described in run.meta["arms"]:
            arm, seconds = arms.get(described["name"]), (described.get("launch") or {}).get("start_seconds")
            if arm is not None and seconds:
                self._starts[arm.config.digest()] = seconds
        for row in run.rows:
            if row["repeat"] >= 0 and row["arm"] in arms and estimates.good([row]):
                self._arms[row["arm"]] = arms[row["arm"]]
                self.add(row)
        self._scale = {}
        parts = self.seconds(task.blocks())
        if took_s is not None and parts > 0:
            self._longer.append(took_s / parts)

    def block(self, task: Task) -> float:
        """Seconds of a block, as if none of its engines ran."""
        return self.seconds(task.blocks()) * max(1.0, statistics.median(self._longer) if self._longer else 1.0)

    def blocks(self, tasks: Sequence[Task]) -> float:
        """Seconds of several, one after another."""
        return sum(map(self.block, tasks))

    def start_seconds(self, config: EngineConfig) -> float | None:
        """As a pool has it."""
        return self._starts.get(config.digest(), max(self._starts.values(), default=None))

    def _parts(self, arm: Arm) -> tuple[float, float]:
        first, rest = super()._parts(arm)
        if arm.name in self._sums or not self._arms:
            return first, rest
        load = json.dumps(arm.load, sort_keys=True)
        if load not in self._scale:
            self._scale[load] = self._by_bytes_of(load)
        return first * self._scale[load], rest * self._scale[load]

    def _by_bytes_of(self, load: str) -> float:
        """How many times what bytes say requests took: of configurations under this load, else of all."""
        alike = [a for a in self._arms.values() if json.dumps(a.load, sort_keys=True) == load]
        sums = {a.name: self._sums[a.name] for a in alike or self._arms.values()}
        return statistics.median(s[2] / s[0] / sum(self._said(self._arms[n])) for n, s in sums.items())
