"""One block: a few configurations and their own baseline, measured in turns in one record. The unit of all that is
scheduled, repeated after a crash, or sent to another machine (as JSON text, validated there)."""

import json
import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.engines.config import EngineConfig
from labkit.errors import BadInput, LabError
from labkit.measure.plan import Block, in_turns
from labkit.measure.pool import Pool, together
from labkit.measure.results import Arm
from labkit.measure.runner import ArmFailed, Progress, Runner
from labkit.measure.sweep.points import Plan
from labkit.params import Params
from labkit.records import RunWriter, schema
from labkit.records.environment import machine

BASELINE, ANSWERS = "baseline", ".answers"
SIZE_SIDE_BY_SIDE = 7  # engines beside the baseline


@dataclass(frozen=True)
class Task:
    """arms: configurations; baselines: the reference under each of their loads; answers: questions per engine."""

    name: str
    arms: tuple[Arm, ...]
    baselines: tuple[Arm, ...]
    repeats: int
    seed: int = 1
    answers: int = 0
    machine: str = "this"

    def as_text(self) -> str:
        """JSON; `read` of it gives the same task."""
        arms = {k: [_arm(a) for a in getattr(self, k)] for k in ("arms", "baselines")}
        rest = {k: getattr(self, k) for k in ("name", "repeats", "seed", "answers", "machine")}
        return json.dumps({**rest, **arms})

    @classmethod
    def read(cls, text: str) -> "Task":
        """Validated anew, field by field. Raises BadInput."""
        try:
            d = json.loads(text)
            arms = {
                k: tuple(Arm(a["name"], a["title"], (p := Params.checked(a["params"])).engine, p) for a in d[k])
                for k in ("arms", "baselines")
            }
            numbers = {k: int(d[k]) for k in ("repeats", "seed", "answers")}
            return cls(name=str(d["name"]), machine=str(d["machine"]), **numbers, **arms)
        except (ValueError, KeyError, TypeError) as e:
            raise BadInput("task", type(e).__name__, "the JSON text of a block") from None

    def without(self, failed: set[str]) -> "Task":
        """Without these configurations, and without the loads that only they had."""
        arms = tuple(a for a in self.arms if a.name not in failed)
        loads = [a.load for a in arms]
        return replace(self, arms=arms, baselines=tuple(b for b in self.baselines if b.load in loads))

    def blocks(self) -> list[Block]:
        """In turns request by request where engines may run side by side; else each engine once, in random order,
        between two visits to the baseline. Equal for equal seeds."""
        order = random.Random(f"{self.seed} {self.name}")
        loads = list(self.baselines)
        order.shuffle(loads)
        if together(self._engines()):
            out = []
            for base in loads:
                mine = [base, *(a for a in self.arms if a.load == base.load)]
                order.shuffle(mine)
                out.append(Block(mine, self.repeats))
        else:
            engines = list(dict.fromkeys(a.config.digest() for a in self.arms))
            order.shuffle(engines)
            half = math.ceil(self.repeats / 2)
            mine = [Block([a], self.repeats, 0, 0) for d in engines for a in self.arms if a.config.digest() == d]
            out = [Block([b], half, 0, 0) for b in loads] + mine + [Block([b], half, half, 1) for b in reversed(loads)]
        return out + self._questions()

    def _engines(self) -> list[EngineConfig]:
        """Each engine once, however many of its loads are measured."""
        return list({a.config.digest(): a.config for a in (*self.baselines, *self.arms)}.values())

    def _questions(self) -> list[Block]:
        if not self.answers:
            return []
        once: dict[str, Arm] = {}
        for a in (*self.baselines[:1], *self.arms):
            asked = {
                "workload": "word-problems",
                "count": self.answers,
                "output_tokens": None,
                "repeats": 1,
                "warmup": 0,
            }
            asked |= {"prompt_tokens": None, "sampling": None, "seed": 1}
            once.setdefault(a.config.digest(), replace(a, name=a.name + ANSWERS, params=a.params.replace(**asked)))
        arms = list(once.values())
        block = Block(arms, 1)
        return [block] if together([a.config for a in arms]) else in_turns([block])


def packed(plan: Plan, names: Sequence[str], number: int) -> dict[str, list[str]]:
    """A round's configurations by block: each of one machine, in random order; those of one engine stay together, to
    share a start. Equal for equal plans, names and numbers."""
    order, known = random.Random(f"{plan.sweep.seed} {number}"), {p.name: p for p in plan.measured}
    visits: dict[tuple[str, str], list[str]] = {}
    for p in (known[n] for n in names):
        visits.setdefault((p.machine, p.arm.config.digest()), []).append(p.name)
    shuffled = list(visits.items())
    order.shuffle(shuffled)
    out: dict[str, list[str]] = {}
    for place in dict.fromkeys(m for (m, _), _ in shuffled):
        mine = [found for (m, _), found in shuffled if m == place]
        size = plan.sweep.block
        if together([known[mine[0][0]].arm.config]):
            size = min(size, SIZE_SIDE_BY_SIDE)
        for i in range(0, len(mine), size):
            out[f"r{number}-{len(out):03d}"] = [n for found in mine[i : i + size] for n in found]
    return out


def _arm(a: Arm) -> dict:
    return {"name": a.name, "title": a.title, "params": a.params.as_dict()}


def measure(
    task: Task,
    directory: Path,
    pool: Pool,
    *,
    cancel: threading.Event | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Progress]:
    """Measure a block into its record, or go on with one that was cut off. A configuration that fails is written into
    the record's meta (`failed`: name -> why) and the rest goes on; a baseline that fails twice ends the block.

    Raises NoRoom and Busy, which are no configuration's fault.
    """
    writer = _writer(task, directory)
    failed: dict[str, str] = writer.meta["failed"]
    with writer:
        while True:
            left = task.without(set(failed))
            if not left.arms:
                break
            try:
                yield from Runner(pool).run(left.blocks(), writer, cancel=cancel, tell=tell)
            except ArmFailed as e:
                name = e.arm.removesuffix(ANSWERS)
                names = [name] if not name.startswith(BASELINE) else []
                if not names:
                    writer.meta["baseline_failures"] = writer.meta.get("baseline_failures", 0) + 1
                    if writer.meta["baseline_failures"] > 1:
                        names = [a.name for a in left.arms]
                pool.drop(*(a.config for a in (*task.arms, *task.baselines) if a.name == name))
                failed |= {n: str(e) if n == name else f"its baseline: {e}" for n in names}
                writer.meta["failed"] = failed
                writer.save()
                writer.resumed = _rows(directory)
                continue
            break
        if cancel is not None and cancel.is_set():
            raise LabError("cancelled")


def _writer(task: Task, directory: Path) -> RunWriter:
    if (directory / schema.META).exists():
        writer = RunWriter.resume(directory)
    else:  # a kill before the description was written: no request had been made
        (directory / schema.LOG).unlink(missing_ok=True)
        writer = RunWriter(directory, task.baselines[0].params.as_dict(), label=f"sweep block {task.name}")
    for part in directory.glob("*.part"):
        part.unlink(missing_ok=True)
    writer.meta.setdefault("failed", {})
    writer.meta["machine"] = machine()
    return writer


def _rows(directory: Path) -> list[dict]:
    from labkit.records.reader import read_rows

    return read_rows(directory / schema.LOG)
