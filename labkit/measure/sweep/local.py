"""Blocks one after another on this machine, sharing engines from one block to the next."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from labkit.errors import BadInput, LabError
from labkit.measure.pool import Pool
from labkit.measure.sweep.block import Task, measure
from labkit.measure.sweep.budget import Limit
from labkit.measure.sweep.points import THIS, Plan
from labkit.records.sweep import BLOCKS


def reachable(plan: Plan) -> None:
    """Raises BadInput for a machine of which nothing says how it is reached."""
    for p in plan.measured:
        if p.machine != THIS and not plan.sweep.machines[p.machine]:
            raise BadInput(f"sweep.machines.{p.machine}", {}, "how it is reached from here")


class Local:
    """Context manager: leaving it stops the engines."""

    width = 1

    def __init__(self):
        self.pool = Pool()

    def __enter__(self) -> "Local":
        return self

    def __exit__(self, *_) -> None:
        self.pool.stop()

    def __call__(self, tasks: Sequence[Task], directory: Path, tell, limit: Limit) -> Iterator[Task]:
        for task in tasks:
            if not limit.fits(task):
                continue
            tell(f"{task.name}: {len(task.arms)} configurations", None)
            with _ended(limit.cut_s()) as cancel:
                try:
                    for p in measure(task, directory / BLOCKS / task.name, self.pool, cancel=cancel):
                        tell(f"{task.name}: {p.text}", p.eta_s)
                except LabError:
                    if not cancel.is_set():
                        raise
            yield task  # also where the budget ended it: whole passes count
            if cancel.is_set():
                return


@contextlib.contextmanager
def _ended(after_s: float | None) -> Iterator[threading.Event]:
    """An event that is set after this time."""
    event = threading.Event()
    timer = threading.Timer(after_s, event.set) if after_s is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield event
    finally:
        if timer is not None:
            timer.cancel()
