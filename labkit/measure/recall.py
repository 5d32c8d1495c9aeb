"""What has been measured before: results shown again, rows of earlier runs, a finished record in place of measuring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from labkit.measure import estimates
from labkit.measure.plan import Block, comparisons, in_turns, shared
from labkit.measure.pool import Pool, together
from labkit.measure.results import Arm, Result, results_of
from labkit.records import Run, Store

NONE: Mapping = MappingProxyType({})


@dataclass
class Memory:
    """Results of arms, from a store of kept measurements and from records.

    pool      the engines that measurements use
    results   by arm name: the present comparison, filled as rows arrive; only passes that all of its arms share
    kept      by arm name: what was measured of other settings or at other times, for showing with its time
    versions  of the engines that were seen, by engine
    """

    pool: Pool
    store: Store | None = None
    results: dict[str, Result] = field(default_factory=dict)
    kept: dict[str, Result] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    _started: dict[str, tuple[dict, float | None]] = field(default_factory=dict)  # by configuration: info, seconds

    def recall(self, *choices: Sequence[Arm]) -> None:
        """Show what the store has of the first of these comparisons that is there whole, else of the last one; all
        else that it has of these loads becomes `kept`."""
        if self.store is None:
            return
        chosen = next((arms for arms in choices if arms and not self.plan(arms)), choices[-1])
        rows = self._shared_rows(chosen)
        self.results = {a.name: self._result(a, rows[a.name], earlier=True) for a in chosen if rows[a.name]}
        self._recall_kept([a for arms in choices for a in arms])

    def _result(self, arm: Arm, rows: list[dict], *, earlier: bool = False) -> Result:
        info, start_s = self._started.get(arm.config.digest(), ({}, None))
        return Result(arm, rows, info, start_s, earlier)

    def _recall_kept(self, arms: Sequence[Arm]) -> None:
        """Every other setting that was measured under one of these arms' loads."""
        loads, shown = [a.load for a in arms], {r.arm.setting for r in self.results.values()}
        self.kept = {}
        for found in self.store.settings() if self.store else ():
            if found.load in loads and found.digest is not None:
                name = found.rows[-1]["arm"]
                result = Result(Arm.read(name, "", found.config, found.load), found.rows, earlier=True)
                if result.arm.setting not in shown and result.used:
                    self.kept[name] = result

    def adopt(self, run: Run | str | Path, arms: Sequence[Arm]) -> list[Arm]:
        """Take from a finished record what fits these arms by configuration and load; returns the arms that it lacks.

        The record is one comparison of its own: nothing measured elsewhere is mixed into it.
        """
        there = {r.arm.setting: r for r in results_of(run).values()}
        self.results = {a.name: replace(there[a.setting], arm=a) for a in arms if a.setting in there}
        return [a for a in arms if a.setting not in there]

    def _rows(self, arm: Arm) -> list[dict]:
        kept = self.store.get(arm.config, arm.load, self.versions.get(arm.config.engine)) if self.store else None
        return kept.rows if kept else []

    def _shared_rows(self, arms: Sequence[Arm], fresh: Mapping[str, Sequence[dict]] = NONE) -> dict[str, list[dict]]:
        """By arm name: the rows of passes that all arms of a comparison have in full. fresh: rows not kept yet."""
        out: dict[str, dict[tuple, dict]] = {a.name: {} for a in arms}
        for group in comparisons(arms):
            mine = {a.name: _once([*self._rows(a), *fresh.get(a.name, ())]) for a in group}
            passes = shared(mine, group[0].params.count)
            for name, rows in mine.items():
                for row in rows:
                    if estimates.pass_of(row) in passes:
                        out[name][*estimates.pass_of(row), row["index"]] = row
        return {name: list(rows.values()) for name, rows in out.items()}

    def plan(self, arms: Sequence[Arm], *, again: bool = False) -> list[Block]:
        """What has to be measured so that each comparison has its repeats: whole passes of all of its arms. `again`
        adds as many passes once more; nothing is overwritten."""
        blocks = []
        for group in comparisons(arms):
            mine = {a.name: self._rows(a) for a in group}
            repeats = max(a.params.repeats for a in group)
            if not again:
                repeats -= len(shared(mine, group[0].params.count))
            if repeats > 0:
                taken = [r["repeat"] for rows in mine.values() for r in rows]
                blocks.append(Block(list(group), repeats, 1 + max(taken, default=-1)))
        return turned(blocks)


def _once(rows: Sequence[dict]) -> list[dict]:
    """Each request once: rows of a run under way may be kept already."""
    return list({(*estimates.pass_of(r), r["index"]): r for r in rows}.values())


def turned(blocks: list[Block]) -> list[Block]:
    """As they are where their engines may run side by side; else one engine at a time, there and back."""
    return blocks if all(together([a.config for a in b.arms]) for b in blocks) else in_turns(blocks)
