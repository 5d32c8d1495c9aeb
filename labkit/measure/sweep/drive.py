"""A sweep from its first block to the second look at the best. All that it decides is written down before it acts, so a
sweep that was killed goes on where it was and repeats nothing that is finished."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from labkit import disk, waits
from labkit.engines.secrets import hide
from labkit.errors import BadInput
from labkit.measure import stats
from labkit.measure.results import Arm
from labkit.measure.sweep import points, race, rows
from labkit.measure.sweep.block import Task, packed
from labkit.measure.sweep.budget import Budget, Limit
from labkit.measure.sweep.costs import Costs
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, FINISHED, LOCK, LOG, META, PROGRESS, SCHEMA, SweepRun, read_sweep

FRESH = 1_000_003  # added to the seed of prompts for the second look
Tell = Callable[[str, float | None], None]


class Execute(Protocol):
    """Measures tasks into blocks/NAME of the folder, in any order, as far as the limit lets it."""

    @property
    def width(self) -> int:
        """Blocks that are measured at once."""

    def __call__(self, tasks: Sequence[Task], directory: Path, tell: Tell, limit: Limit) -> Iterator[Task]: ...


def create(document: dict, directory: Path, budget_s: float | None = None) -> points.Plan:
    """Write down what is to be measured. Raises BadInput before anything is written."""
    plan = points.read(document)
    configs = [
        {"config": p.name, "fields": p.fields, "machine": p.machine, "load": points.label(p)}
        | ({} if p.arm else {"status": "skipped", "reason": p.skipped})
        for p in plan.points
    ]
    meta = {
        "schema": SCHEMA,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "document": document,
        "budget_s": budget_s,
        "excluded": plan.excluded,
        "configs": configs,
    }
    disk.write_json(directory / META, meta, "nothing was measured yet")
    return plan


class Driver:
    """One sweep under way. Use as a context manager: it holds the folder, so that no second process writes into it."""

    def __init__(self, directory: Path, execute: Execute, tell: Tell):
        self.directory, self._execute, self._tell = directory, execute, tell
        self.run: SweepRun = read_sweep(directory)
        self.plan = points.read(self.run.meta["document"])
        self._points = {p.name: p for p in self.plan.measured}
        self._bases = {g: f"baseline{i + 1 if i else ''}" for i, g in enumerate(self.plan.baselines)}

    def __enter__(self) -> "Driver":
        with disk.told(self.directory / LOCK, "the sweep is kept"):
            self._lock = open(self.directory / LOCK, "a")  # noqa: SIM115 held as long as the sweep runs
        try:
            waits.flock(self._lock, "the sweep's lock", 1.0)  # whoever only asks how it stands holds it for a moment
        except waits.TookTooLong:
            self._lock.close()
            raise BadInput("sweep", str(self.directory), "a sweep that no other process works on") from None
        path = self.directory / LOG
        with disk.told(path, "the sweep is kept"):
            for part in self.directory.glob("*.part"):
                part.unlink(missing_ok=True)
            self._log = disk.open_log(path, "the sweep is kept")
        self._began, said = time.monotonic(), [self.run.progress, *self.run.lines]
        self._before = max((x.get("spent_s", 0) for x in said), default=0.0)
        self.costs = Costs()
        for x in self.run.lines:
            if "block" in x:
                name = x["block"]
                line = next(r for r in self.run.lines if name in r.get("blocks", {}) and "round" in r)
                task = self._task(name, line["blocks"][name], line["repeats"], line["round"])
                with contextlib.suppress(BadInput):  # a record that was not copied with the sweep
                    self.costs.learn(
                        task,
                        read_run(self.directory / BLOCKS / name),
                        x.get("took_s") if x.get("whole", True) else None,
                    )
        self.budget = Budget(self.run.meta["budget_s"], self.costs, lambda: self.spent_s, self._execute.width)
        return self

    def __exit__(self, *_) -> None:
        self._log.close()
        self._lock.close()

    @property
    def spent_s(self) -> float:
        """Seconds that this sweep has taken, over all of its goes, by a clock that no change of the date moves."""
        return self._before + time.monotonic() - self._began

    def go(self) -> SweepRun:
        """Measure whatever is not finished. Raises what the executor raises; everything finished is kept."""
        limited = self.budget.total_s is not None
        first = self._round(0, list(self._points), stats.LEAST if limited else self.plan.params.repeats, "all")
        self._blocks(first)
        number = 1
        while limited and (line := self._decided(number) or self._raced(number)):
            self._blocks(line)
            number += 1
        self._look_again()
        self._say(FINISHED, 0.0)
        return self.run

    # --- rounds ----------------------------------------------------------------------------------------------------

    def _raced(self, number: int) -> dict | None:
        """The line of the next round of a budget, None where there is none."""
        found = self.budget.next(
            self._standings(), lambda names, n: self._tasks(packed(self.plan, names, number), n, number), self._last
        )
        return None if found is None else self._round(number, *found, "may still be the fastest")

    def _round(self, number: int, names: Sequence[str], repeats: int, why: str) -> dict:
        """The line that says what a round measures: an earlier go's, or a new one."""
        line = self._decided(number)
        if line is None:
            blocks = packed(self.plan, names, number)
            line = {"round": number, "repeats": repeats, "why": why, "blocks": blocks}
            self._append([line])
        return line

    def _decided(self, number: int) -> dict | None:
        """The line of a round that was begun."""
        return next((x for x in self.run.lines if x.get("round") == number), None)

    def _blocks(self, line: dict) -> None:
        done = self._finished()
        left = {n: cs for n, cs in line["blocks"].items() if n not in done}
        tasks = self._tasks(left, line["repeats"], line["round"])
        for task, took_s in self._timed(tasks, self.budget.rounds(self._last)):
            self._commit(task, line["round"], took_s)

    def _timed(self, tasks: list[Task], limit: Limit) -> Iterator[tuple[Task, float]]:
        """Each task when it is finished, with the seconds since the one before."""
        self._left, began = tasks, time.monotonic()
        for task in self._execute(tasks, self.directory, self._eta, limit):
            now = time.monotonic()
            self._left = [t for t in self._left if t.name != task.name]
            yield task, now - began
            began = now
        self._left = []

    def _tasks(self, blocks: Mapping[str, Sequence[str]], repeats: int, number: int) -> list[Task]:
        return [self._task(n, cs, repeats, number) for n, cs in blocks.items()]

    def _task(self, name: str, configs: Sequence[str], repeats: int, number: int) -> Task:
        chosen = [self._points[c] for c in configs]
        bases = [
            replace(self.plan.baselines[g].arm, name=self._bases[g]) for g in dict.fromkeys(map(points.group, chosen))
        ]
        answers = self.plan.sweep.answers if number == 0 else 0
        arms = tuple(p.arm for p in chosen)
        return Task(name, arms, tuple(bases), repeats, self.plan.sweep.seed, answers, chosen[0].machine)

    def _commit(self, task: Task, number: int, took_s: float) -> None:
        """Rows of the block's configurations, and that it is finished, in one write. Of a block that a budget ended, of
        those that have passes enough; the others stay pending, or as an earlier round left them."""
        holding = self._with(task)
        records = {n: read_run(self.directory / BLOCKS / n) for n in holding}
        whole = rows.whole(task, records[task.name])
        before = {r["config"]: r.get("repeats", stats.LEAST - 1) for r in self.run.rows}
        took_s = records[task.name].meta.get("took_s") or took_s  # where several are measured at once
        lines = []
        for arm in task.arms:
            mine = [records[n] for n, configs in holding.items() if arm.name in configs]
            base = self._bases[points.group(self._points[arm.name])]
            found = rows.row(arm.name, base, mine, seed=self.plan.params.seed)
            failed = arm.name in records[task.name].meta.get("failed", {})
            if whole or failed or (found["status"] == "measured" and found["repeats"] > before[arm.name]):
                lines.append(found | {"rounds": number + 1})
        self.costs.learn(task, records[task.name], took_s if whole else None)
        times = {"took_s": round(took_s, 3), "spent_s": round(self.spent_s, 3)}
        self._append([*lines, {"block": task.name, "whole": whole, **times}])

    def _with(self, task: Task) -> dict[str, list[str]]:
        """This block and the finished ones that hold one of its configurations, each with the configurations in it."""
        done, mine = {*self._finished(), task.name}, {a.name for a in task.arms}
        named = {n: cs for x in self.run.lines if "round" in x for n, cs in x["blocks"].items()}
        return {n: cs for n, cs in named.items() if n in done and mine.intersection(cs)}

    # --- the best, again -------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        looked = {x["final"] for x in self.run.lines if "final" in x}
        if self.budget.total_s is None:
            each = max(5, 2 * self.plan.params.repeats)
        else:
            each = self.budget.last(self._last)
        tasks = {t.name: t for t in self._last(each)} if each else {}
        left = [t for i in range(len(self._bases)) if i not in looked and (t := tasks.get(f"final-{i}"))]
        earlier = {r["config"]: r for r in self.run.rows}
        for task, _ in self._timed(left, self.budget.second_look()):
            if not rows.whole(task, read_run(self.directory / BLOCKS / task.name)):
                continue  # the budget is over
            found = rows.second_look(task, self.directory, earlier, seed=self.plan.params.seed)
            self._append([{"final": int(task.name[6:]), **found, "spent_s": round(self.spent_s, 3)}])

    def _last(self, repeats: int) -> list[Task]:
        """The second look as it would be now: of each group the best two, beside the baseline."""
        out, seed = [], (self.plan.params.seed + FRESH) % 2**31
        standings = self._standings()
        for i, g in enumerate(self._bases):
            if g in standings:
                best = standings[g].names[:2]
                arms = [_fresh(a, seed) for a in (*(self._points[n].arm for n in best), self.plan.baselines[g].arm)]
                base, machine = replace(arms[-1], name=self._bases[g]), self._points[best[0]].machine
                out.append(Task(f"final-{i}", tuple(arms[:-1]), (base,), repeats, machine=machine))
        return out

    # --- what is there ---------------------------------------------------------------------------------------------

    def _standings(self) -> dict[str, race.Standing]:
        """By group, of those that have a measured configuration."""
        if self._stood[0] != len(self.run.lines):
            mine: dict[str, list[dict]] = {g: [] for g in self._bases}
            for r in self.run.rows:
                if r["status"] == "measured":
                    mine[points.group(self._points[r["config"]])].append(r)
            found = {g: s for g, rows in mine.items() if (s := race.standing(rows))}
            self._stood = len(self.run.lines), found
        return self._stood[1]

    def _finished(self) -> set[str]:
        return {x["block"] for x in self.run.lines if "block" in x}

    def _append(self, lines: Iterable[dict]) -> None:
        lines = [hide(x) for x in lines]
        data = b"".join(json.dumps(x, allow_nan=False, separators=(",", ":")).encode() + b"\n" for x in lines)
        disk.append(self._log, data, f"{len(self._finished())} finished blocks are kept")
        self.run.lines += lines

    def _eta(self, text: str, block_left_s: float | None = None) -> None:
        """What happens now, with the time that is left for all blocks that are planned, and for the second look."""
        eta = None
        if self.budget.total_s is not None:
            eta = max(0.0, self.budget.left_s)
        elif self.costs.known:
            # Drawn anew only when a block is finished: this is asked at every request.
            if self._later[0] != len(self.run.lines):
                tasks = [*self._left[self._execute.width :], *self._last(2 * self.plan.params.repeats)]
                self._later = len(self.run.lines), self.costs.blocks(tasks) / self._execute.width
            eta = (block_left_s or 0.0) + self._later[1]
        self._say(text, eta)

    _said = float("-inf")
    _stood: tuple[int, dict[str, race.Standing]] = (-1, {})  # lines of the log, standings after them
    _later = (-1, 0.0)  # lines of the log, seconds of the blocks behind the one under way

    def _say(self, text: str, eta: float | None) -> None:
        self._tell(text, eta)
        if time.monotonic() - self._said > 2 or text == FINISHED:
            self._said = time.monotonic()
            counts = [r["status"] for r in self.run.rows]
            document = {"text": text, "eta_s": eta, "unix": time.time(), "total": len(counts)}
            document |= {"done": sum(s != "pending" for s in counts), "spent_s": round(self.spent_s, 1)}
            with contextlib.suppress(disk.NoRoom):  # nice to have
                disk.write_json(self.directory / PROGRESS, document)


def _fresh(arm: Arm, seed: int) -> Arm:
    return replace(arm, params=arm.params.replace(seed=seed))
