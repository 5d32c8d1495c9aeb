"""Blocks one after another on this machine, sharing engines from one block to the next."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from labkit.errors import BadInput
from labkit.measure.pool import Pool
from labkit.measure.sweep.block import Task, measure
from labkit.measure.sweep.points import THIS, Plan
from labkit.records.sweep import BLOCKS


def reachable(plan: Plan) -> None:
    """Raises BadInput for a machine of which nothing says how it is reached."""
    for p in plan.measured:
        if p.machine != THIS and not plan.sweep.machines[p.machine]:
            raise BadInput(f"sweep.machines.{p.machine}", {}, "how it is reached from here")


class Local:
    """Context manager: leaving it stops the engines."""

    def __init__(self):
        self.pool = Pool()

    def __enter__(self) -> "Local":
        return self

    def __exit__(self, *_) -> None:
        self.pool.stop()

    def __call__(self, tasks: Sequence[Task], directory: Path, tell, stop: Callable[[], bool]) -> Iterator[Task]:
        for task in tasks:
            if stop():
                return
            tell(f"{task.name}: {len(task.arms)} configurations", None)
            for p in measure(task, directory / BLOCKS / task.name, self.pool):
                tell(f"{task.name}: {p.text}", p.eta_s)
            yield task
