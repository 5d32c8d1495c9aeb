"""A sweep from its first block to the second look at the best. All that it decides is written down before it acts, so a
sweep that was killed goes on where it was and repeats nothing that is finished."""

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from labkit import disk, waits
from labkit.errors import BadInput
from labkit.measure import stats
from labkit.measure.pool import together
from labkit.measure.results import Arm
from labkit.measure.sweep import halving, points, rows
from labkit.measure.sweep.block import SIZE_SIDE_BY_SIDE, Task
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, FINISHED, LOCK, LOG, META, PROGRESS, SCHEMA, SweepRun, read_sweep

FRESH = 1_000_003  # added to the seed of prompts for the second look
Tell = Callable[[str, float | None], None]
# Measures tasks into blocks/NAME of the folder, in any order; stop(): no further task is to be begun.
Execute = Callable[[Sequence[Task], Path, Tell, Callable[[], bool]], Iterator[Task]]


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
            cut = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
            self._log = open(path, "ab", buffering=0)  # noqa: SIM115
            if cut:
                self._log.write(b"\n")
        self._began, self._before = time.monotonic(), max((x.get("spent_s", 0) for x in self.run.lines), default=0.0)
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
        budget = self.run.meta["budget_s"]
        first = self._round(0, list(self._points), self.plan.params.repeats if budget is None else stats.LEAST, "all")
        self._blocks(first, None if budget is None else halving.FIRST_SHARE * budget)
        if budget is not None:
            self._halve(budget)
        self._look_again(budget)
        self._say(FINISHED, 0.0)
        return self.run

    # --- rounds ----------------------------------------------------------------------------------------------------

    def _halve(self, budget: float) -> None:
        total = halving.rounds(len(self._points))
        for number in range(1, total + 1):
            line = self._decided(number)
            if line is None:
                names = [n for g in self._bases for n in halving.survivors(self._measured(g))]
                if len(names) <= len(self._bases):
                    return
                left = budget * (1 - halving.LAST_SHARE) - self.spent_s
                each = halving.repeats(left, self._pass_s() * len(names), total + 1 - number)
                if not each:
                    return
                line = self._round(number, names, each, "may still be the best")
            self._blocks(line, budget * (1 - halving.LAST_SHARE))

    def _round(self, number: int, names: Sequence[str], repeats: int, why: str) -> dict:
        """The line that says what a round measures: an earlier go's, or a new one."""
        line = self._decided(number)
        if line is None:
            blocks = self._packed([self._points[n] for n in names], number)
            line = {"round": number, "repeats": repeats, "why": why, "blocks": blocks}
            self._append([line])
        return line

    def _decided(self, number: int) -> dict | None:
        """The line of a round that was begun."""
        return next((x for x in self.run.lines if x.get("round") == number), None)

    def _packed(self, chosen: list[points.Point], number: int) -> dict[str, list[str]]:
        """Into blocks of one machine, in random order; configurations of one engine stay together, to share a start."""
        order = random.Random(f"{self.plan.sweep.seed} {number}")
        visits: dict[tuple[str, str], list[points.Point]] = {}
        for p in chosen:
            visits.setdefault((p.machine, p.arm.config.digest()), []).append(p)
        shuffled = list(visits.items())
        order.shuffle(shuffled)
        out: dict[str, list[str]] = {}
        for machine in dict.fromkeys(m for (m, _), _ in shuffled):
            mine = [ps for (m, _), ps in shuffled if m == machine]
            size = self.plan.sweep.block
            if together([mine[0][0].arm.config]):
                size = min(size, SIZE_SIDE_BY_SIDE)
            for i in range(0, len(mine), size):
                out[f"r{number}-{len(out):03d}"] = [p.name for ps in mine[i : i + size] for p in ps]
        return out

    def _blocks(self, line: dict, until_s: float | None) -> None:
        done = self._finished()
        left = [self._task(n, cs, line["repeats"], line["round"]) for n, cs in line["blocks"].items() if n not in done]
        for task in self._execute(left, self.directory, self._eta, self._stop(until_s, task_s=self._block_s)):
            self._commit(task, line["round"])

    def _stop(self, until_s: float | None, task_s: Callable[[], float]) -> Callable[[], bool]:
        return lambda: until_s is not None and self.spent_s + task_s() > until_s

    def _task(self, name: str, configs: Sequence[str], repeats: int, number: int) -> Task:
        chosen = [self._points[c] for c in configs]
        bases = [
            replace(self.plan.baselines[g].arm, name=self._bases[g]) for g in dict.fromkeys(map(points.group, chosen))
        ]
        answers = self.plan.sweep.answers if number == 0 else 0
        arms = tuple(p.arm for p in chosen)
        return Task(name, arms, tuple(bases), repeats, self.plan.sweep.seed, answers, chosen[0].machine)

    def _commit(self, task: Task, number: int) -> None:
        """Rows of the block's configurations, and that it is finished, in one write."""
        holding = self._with(task)
        records = {n: read_run(self.directory / BLOCKS / n) for n in holding}
        lines = []
        for arm in task.arms:
            mine = [records[n] for n, configs in holding.items() if arm.name in configs]
            base = self._bases[points.group(self._points[arm.name])]
            lines.append(rows.row(arm.name, base, mine, seed=self.plan.params.seed) | {"rounds": number + 1})
        self._append([*lines, {"block": task.name, "spent_s": round(self.spent_s, 3)}])

    def _with(self, task: Task) -> dict[str, list[str]]:
        """This block and the finished ones that hold one of its configurations, each with the configurations in it."""
        done, mine = {*self._finished(), task.name}, {a.name for a in task.arms}
        named = {n: cs for x in self.run.lines if "round" in x for n, cs in x["blocks"].items()}
        return {n: cs for n, cs in named.items() if n in done and mine.intersection(cs)}

    # --- the best, again -------------------------------------------------------------------------------------------

    def _look_again(self, budget: float | None) -> None:
        tasks = {}
        for i, g in enumerate(self._bases):
            best = halving.survivors(self._measured(g))[:2]
            if any(x.get("final") == i for x in self.run.lines) or not best:
                continue
            seed = (self.plan.params.seed + FRESH) % 2**31
            arms = [_fresh(a, seed) for a in (*(self._points[n].arm for n in best), self.plan.baselines[g].arm)]
            base = replace(arms[-1], name=self._bases[g])
            each = max(5, 2 * self.plan.params.repeats)
            if budget is not None:
                each = max(stats.LEAST, halving.repeats(budget - self.spent_s, self._pass_s() * 3, len(self._bases)))
            machine = self._points[best[0]].machine
            tasks[f"final-{i}"] = (i, Task(f"final-{i}", tuple(arms[:-1]), (base,), each, machine=machine))
        earlier = {r["config"]: r for r in self.run.rows}
        for task in self._execute([t for _, t in tasks.values()], self.directory, self._eta, lambda: False):
            found = rows.second_look(task, self.directory, earlier, seed=self.plan.params.seed)
            self._append([{"final": tasks[task.name][0], **found, "spent_s": round(self.spent_s, 3)}])

    # --- what is there ---------------------------------------------------------------------------------------------

    def _measured(self, group: str) -> list[dict]:
        mine = {n for n, p in self._points.items() if points.group(p) == group}
        return [r for r in self.run.rows if r["config"] in mine and r["status"] == "measured"]

    def _finished(self) -> set[str]:
        return {x["block"] for x in self.run.lines if "block" in x}

    def _block_s(self) -> float:
        done = len(self._finished())
        return self.spent_s / done if done else 0.0

    def _pass_s(self) -> float:
        """Seconds that one pass of one configuration has taken, starts and baselines included."""
        planned = [x for x in self.run.lines if "round" in x]
        done = self._finished()
        passes = sum(x["repeats"] * len(cs) for x in planned for n, cs in x["blocks"].items() if n in done)
        return self.spent_s / passes if passes else 1.0

    def _append(self, lines: Iterable[dict]) -> None:
        lines = list(lines)
        data = b"".join(json.dumps(x, allow_nan=False, separators=(",", ":")).encode() + b"\n" for x in lines)
        disk.append(self._log, data, f"{len(self._finished())} finished blocks are kept")
        self.run.lines += lines

    def _eta(self, text: str, block_left_s: float | None = None) -> None:
        """What happens now, with the time that is left for all blocks that are planned, and for the second look."""
        planned = [n for x in self.run.lines if "round" in x for n in x["blocks"]]
        left = max(0, len(planned) - len(self._finished()) - 1) + len(self._bases)
        each = self._block_s()
        eta = (block_left_s or 0.0) + left * each if each else None
        if self.run.meta["budget_s"] is not None:
            eta = max(0.0, self.run.meta["budget_s"] - self.spent_s)
        self._say(text, eta)

    _said = float("-inf")

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
