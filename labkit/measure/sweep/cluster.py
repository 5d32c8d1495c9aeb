"""Blocks on the workers of a Dask cluster. A block whose worker is lost is measured once more on another one; lost
twice, its configurations are failures, and the rest goes on."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import BadInput, LabError
from labkit.measure.sweep import cluster_record, cluster_worker
from labkit.measure.sweep.block import Task
from labkit.measure.sweep.budget import Limit
from labkit.measure.sweep.cluster_crew import END_S, RESOURCE, Crew, Job, Worker
from labkit.measure.sweep.points import THIS, Plan
from labkit.units import minutes

if TYPE_CHECKING:
    from distributed import Client

ATTEMPTS = 2
LOOKS_S = 30.0  # a worker that has not begun its look by then is busy with something else: it joins later


def reachable(plan: Plan) -> None:
    """Raises BadInput for a sweep that says itself where it is measured."""
    accepted = "nothing beside --scheduler: each of its workers starts its own engine"
    for p in plan.measured:
        if p.machine != THIS:
            raise BadInput(f"sweep.machines.{p.machine}", dict(plan.sweep.machines[p.machine]), accepted)
        if p.arm.config.url is not None:
            raise BadInput("engine.url", p.arm.config.url, accepted)


class Cluster:
    """An executor of the sweep's driver. Context manager: leaving it ends what runs on the workers.

    wait_s: how long a block may wait for its worker's machine, and the sweep for any worker at all.
    """

    def __init__(self, client: "Client", plan: Plan, wait_s: float, say: Callable[[str], None]):
        engine = next(iter(plan.baselines.values())).arm.config.given()
        self._crew, self._wait_s, self._say = Crew(client, engine, wait_s, say), wait_s, say

    def __enter__(self) -> "Cluster":
        self._crew.__enter__()
        return self

    def __exit__(self, *stopped) -> None:
        self._crew.__exit__(*stopped)

    @property
    def width(self) -> int:
        """Blocks that are measured at once."""
        return max(1, len(self._crew.fit))

    def preflight(self) -> None:
        """Look at each worker before anything is written. Raises BadInput where none can measure."""
        began = time.monotonic()
        self._crew.step()
        while any(j.pid is not None or time.monotonic() - began < LOOKS_S for j in self._crew.looks):
            self._crew.step()
        if not self._crew.fit:
            accepted = f"a scheduler with a worker that can measure: dask worker ... --resources {RESOURCE}=1"
            raise BadInput("--scheduler", self._crew.address, accepted)
        for text in doubts(self._crew.fit):
            self._say(text)

    def __call__(self, tasks: Sequence[Task], directory: Path, tell, limit: Limit) -> Iterator[Task]:
        left: deque[Task] = deque()
        for task in tasks:
            if cluster_record.whole(task, directory):
                yield task
            else:
                left.append(task)
        tried: dict[str, list[tuple[Worker, str]]] = {t.name: [] for t in left}  # and why there is no record
        since, over = time.monotonic(), 0.0
        while left or self._running:
            if (cut_s := limit.cut_s()) == 0:  # the budget is over: blocks under way end by themselves, at the workers
                left.clear()
                over = over or time.monotonic()
                if time.monotonic() - over > END_S:
                    for job in self._running:
                        self._crew.drop(job)
                    return
            left = deque(t for t in left if limit.fits(t))
            self._hand_out(left, tried, cut_s)
            if self._crew.jobs:
                since = time.monotonic()
            elif left:
                self._nobody(time.monotonic() - since, len(left))
            self._report(tell, len(left))
            for job in self._crew.step():
                task, why = job.of, self._kept(job, directory, len(tried[job.of.name]) + 1)
                if why is None:
                    yield task
                    continue
                left.appendleft(task)
                if not job.worker.out or job.answer.get("lost"):
                    tried[task.name].append((job.worker, why))
            for task in [t for t in left if self._hopeless(tried[t.name])]:
                left.remove(task)
                worker, texts = tried[task.name][-1][0], [why for _, why in tried[task.name]]
                about = {"worker": worker.about, "attempts": len(texts)}
                cluster_record.fail(task, directory, "; then ".join(texts), about, worker.facts)
                yield task

    @property
    def _running(self) -> list[Job]:
        return [j for j in self._crew.jobs.values() if j.of is not None]

    def _hand_out(self, left: deque[Task], tried: dict, cut_s: float | None) -> None:
        for worker in self._crew.fit:
            task = next((t for t in left if worker not in [w for w, _ in tried[t.name]]), None)
            if worker.job is None and task is not None:
                left.remove(task)
                self._crew.submit(worker, cluster_worker.block, task, task=task.as_text(), cut_s=cut_s)

    def _kept(self, job: Job, directory: Path, attempt: int) -> str | None:
        """Put a block's record in place; why there is none."""
        name, why = job.worker.name, job.answer.get("failed")
        if "lost" in job.answer:
            return job.answer["lost"]
        if why is None:
            took_s = job.answer.get("took_s")
            about = {"worker": job.worker.about, "attempts": attempt}
            about |= {"took_s": took_s} if isinstance(took_s, float) else {}
            try:
                cluster_record.keep(job.of, directory, job.answer.get("files"), about)
                return None
            except cluster_record.NoRecord as e:
                why = str(e)
        elif job.answer.get("unfit"):
            self._crew.leave_out(job.worker, why)
        return f"worker {name}: {why}"

    def _hopeless(self, tried: list[tuple[Worker, str]]) -> bool:
        """Tried as often as a block may be; or once, where there is no other worker to try it on."""
        there, were = self._crew.workers.values(), [w for w, _ in tried]
        others = [w for w in there if not w.out and w not in were]
        return len(tried) >= ATTEMPTS or (any(w in there for w in were) and not others)

    def _nobody(self, waited_s: float, blocks: int) -> None:
        if waited_s > self._wait_s:
            raise LabError(f"no worker can measure the {blocks} blocks that are left; waited {waited_s:.0f} s for one")

    def _report(self, tell, left: int) -> None:
        jobs = self._running
        if not jobs:
            tell(f"{left} blocks wait for a worker that can measure, at most {minutes(self._wait_s)}", None)
            return
        last = max(jobs, key=lambda j: j.heard)
        etas = [j.eta_s for j in jobs if j.eta_s is not None]
        text = f"{len(jobs)} blocks at once, {last.of.name} on {last.worker.name}: {last.text or 'waits for it'}"
        tell(text, max(etas, default=None))


def doubts(workers: Sequence[Worker]) -> list[str]:
    """What should be known before numbers of these workers are held against each other."""
    out = []
    for host in dict.fromkeys(w.facts["host"] for w in workers):
        mine = [w for w in workers if w.facts["host"] == host]
        if len(mine) > 1:
            turns = len({w.facts["runtime"] for w in mine}) < len(mine)
            way = (
                "take turns (one LABKIT_RUNTIME_DIR)" if turns else "share its memory bandwidth unless they are pinned"
            )
            out.append(f"warning: workers {_names(mine)} are on one host, {host}: they {way}")
    kinds: dict[str, list[Worker]] = {}
    for w in workers:
        machine = w.facts["environment"]
        gpus = ", ".join(g["name"] for g in machine.get("gpus", []))
        kinds.setdefault(" and ".join(filter(None, (machine.get("cpu"), gpus))), []).append(w)
    if len(kinds) > 1:
        named = "; ".join(f"{kind} ({_names(ws)})" for kind, ws in kinds.items())
        out.append(
            f"workers differ: {named}. Each block has its own baseline on its own worker, so ratios stay within one"
            " machine; times in ms of different blocks do not compare"
        )
    return out


def _names(workers: Sequence[Worker]) -> str:
    return ", ".join(w.name for w in workers)
