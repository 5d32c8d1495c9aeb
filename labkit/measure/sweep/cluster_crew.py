"""The workers of a Dask cluster, what each of them does now, and what becomes of it: done, lost or silent.

Dask would retry by itself, and count a loss against every task that waits at the lost worker. So each worker has one
task at a time, pinned to it, under a new key for each attempt (when a cancelled key comes again Dask ignores its
resources), and whether it is tried again is decided by whoever asked for it.
"""

import contextlib
import json
import queue
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labkit.errors import LabError
from labkit.measure.sweep import cluster_worker

if TYPE_CHECKING:
    from distributed import Client, Future

RESOURCE = "engine"  # dask worker ... --resources engine=1
POLL_S = 1.0  # between two roll calls
ASK_S = 10.0  # for the scheduler to say who is there
GONE_S = 30.0  # a scheduler that has not said it for so long is gone
SILENT_S = 120.0  # a task without a sign of life for so long is lost; it gives one every cluster_worker.BEAT_S
FETCH_S = 120.0  # for an answer to travel
END_S = 20.0  # for cancelled tasks to end their engines


@dataclass(eq=False)
class Worker:
    """facts: what the look at it found; out: why it measures nothing. Neither before its look has ended."""

    address: str
    name: str
    facts: dict = field(default_factory=dict)
    out: str = ""
    job: "Job | None" = None

    @property
    def fit(self) -> bool:
        return bool(self.facts) and not self.out

    @property
    def about(self) -> dict:
        """What a record says of it."""
        return {"name": self.name, "host": self.facts.get("host", ""), "address": self.address}


@dataclass(eq=False)
class Job:
    """One call on one worker. pid: of the process that has begun it; answer: its JSON document, or {"lost": why}."""

    key: str
    worker: Worker
    of: object
    future: "Future"
    heard: float = field(default_factory=time.monotonic)
    pid: int | None = None
    text: str = ""
    eta_s: float | None = None
    answer: dict = field(default_factory=dict)


class Gone(LabError):
    """The scheduler cannot be reached any more."""


class Crew:
    """Context manager: leaving it cancels what runs, waits until the engines have ended, and closes the client.

    engine: its section of a params file, which each worker must be able to start; wait_s: how long a task may wait for
    its worker's machine; say: what people should know of the workers.
    """

    def __init__(self, client: "Client", engine: dict, wait_s: float, say: Callable[[str], None]):
        self._client, self._engine, self._wait_s, self._say = client, engine, wait_s, say
        self.address: str = client.scheduler.address
        self.workers: dict[str, Worker] = {}
        self.jobs: dict[str, Job] = {}
        self._happened: queue.Queue[tuple[str, str]] = queue.Queue()
        self._topic = f"labkit-sweep-{uuid.uuid4().hex}"
        self._polled, self._contact = float("-inf"), time.monotonic()
        self._own = cluster_worker.versions()
        self._told: set[str] = set()

    def __enter__(self) -> "Crew":
        self._client.subscribe_topic(self._topic, lambda event: self._happened.put(("event", event[1])))
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self._end_all()
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)

    @property
    def fit(self) -> list[Worker]:
        """Workers that can measure."""
        return [w for w in self.workers.values() if w.fit]

    @property
    def looks(self) -> list[Job]:
        """Looks under way at workers."""
        return [j for j in self.jobs.values() if j.of is None]

    def submit(self, worker: Worker, call: Callable[[str], str], of: object, **order: object) -> None:
        """Call this function of the lab on this worker; `of` comes back with its answer."""
        key = f"labkit-{uuid.uuid4().hex}"
        text = json.dumps({**order, "key": key, "topic": self._topic, "wait_s": self._wait_s})
        future = self._client.submit(
            call,
            text,
            key=key,
            workers=[worker.address],
            allow_other_workers=False,
            resources={RESOURCE: 1},
            retries=0,
            pure=False,
        )
        worker.job = self.jobs[key] = Job(key, worker, of, future)
        future.add_done_callback(lambda f: self._happened.put(("done", f.key)))

    def leave_out(self, worker: Worker, why: str) -> None:
        """Measure nothing on this worker."""
        worker.out = why
        self._tell(f"left out: worker {worker.name}: {why}")

    def step(self) -> list[Job]:
        """Wait a moment for what happens: the calls that have ended, except looks. Raises Gone."""
        ended, until = self._roll_call(), time.monotonic() + POLL_S
        while not ended and (left := until - time.monotonic()) > 0:
            try:
                kind, what = self._happened.get(timeout=left)
            except queue.Empty:
                break
            job = self._done(what) if kind == "done" else self._heard(what)
            ended += [job] if job else []
        for job in list(self.jobs.values()) if self._happened.empty() else ():  # else it may only not be read yet
            if time.monotonic() - job.heard > (self._wait_s if job.pid is None else 0.0) + SILENT_S:
                self.leave_out(job.worker, f"silent for {SILENT_S:g} s")
                ended.append(self.drop(job, f"worker {job.worker.name} was silent for {SILENT_S:g} s"))
        return [j for j in ended if not self._looked(j)]

    # --- who is there ----------------------------------------------------------------------------------------------

    def _roll_call(self) -> list[Job]:
        """Look at workers that are new; the jobs of those that are gone."""
        if time.monotonic() - self._polled < POLL_S:
            return []
        there, lost = self._there(), []
        self._polled = time.monotonic()
        for address in [a for a in self.workers if a not in there]:
            worker = self.workers.pop(address)
            if worker.job is not None:
                lost.append(self.drop(worker.job, f"worker {worker.name} was lost"))
            if not worker.out:
                self._tell(f"worker {worker.name} is gone")
        for address, info in there.items():
            if address not in self.workers:
                worker = self.workers[address] = Worker(address, str(info.get("name") or address))
                if not info.get("resources", {}).get(RESOURCE):
                    self.leave_out(worker, f"started without --resources {RESOURCE}=1")
                else:
                    self.submit(worker, cluster_worker.look, None, engine=self._engine)
        return lost

    def _there(self) -> dict[str, dict]:
        """Workers by address, as the scheduler says. Raises Gone."""
        if self._client.status == "running":
            try:
                ask = self._client.scheduler.identity
                found = self._client.sync(ask, n_workers=-1, callback_timeout=ASK_S)["workers"]
                self._contact = time.monotonic()
                return found
            except (TimeoutError, OSError, RuntimeError):
                if time.monotonic() - self._contact < GONE_S:
                    return {a: {} for a in self.workers}
        raise Gone(f"the scheduler at {self.address} is gone")

    def _looked(self, job: Job) -> bool:
        """Whether this call was a look; then its worker is fit or left out."""
        if job.of is not None:
            return False
        facts, worker = job.answer, job.worker
        worker.facts = {k: v for k, v in facts.items() if k not in ("lost", "lacks")}
        why = facts.get("lost") or self._other(facts) or facts.get("lacks")
        if why and not worker.out:
            self.leave_out(worker, why)
        elif not why:
            about = facts["environment"].get("cpu"), facts.get("engine", {}).get("kernel_variant")
            self._tell(f"worker {worker.name} on {facts['host']}: " + ", ".join(str(x) for x in about if x))
        return True

    def _other(self, facts: dict) -> str | None:
        for name, here in self._own.items():
            if facts.get(name) != here:
                return f"its {name.replace('_', ' ')} is {facts.get(name)}, here it is {here}"
        return None

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(text)

    # --- what becomes of a call ------------------------------------------------------------------------------------

    def _heard(self, text: str) -> Job | None:
        """Take an event in; the job where a task was begun twice: another process has taken its worker's place."""
        event = json.loads(text)
        job = self.jobs.get(event["key"])
        if job is None:
            return None
        if job.pid not in (None, event["pid"]):
            return self.drop(job, f"worker {job.worker.name} was started again")
        job.heard, job.pid = time.monotonic(), event["pid"]
        job.text, job.eta_s = event["text"] or job.text, event["eta_s"] if event["text"] else job.eta_s
        return None

    def _done(self, key: str) -> Job | None:
        """The job that has ended under this key, with its answer; None for one that nobody waits for any more."""
        job = self.jobs.get(key)
        if job is None:
            return None
        status, name = job.future.status, job.worker.name
        if status == "cancelled":  # not by us: Dask does it when the connection breaks
            raise Gone(f"the scheduler at {self.address} is gone")
        try:
            if status == "finished":
                job.answer = dict(json.loads(job.future.result(timeout=FETCH_S)))
            elif status == "error":
                job.answer = {"lost": f"worker {name}: {_line(job.future.exception(timeout=FETCH_S))}"}
            else:
                job.answer = {"lost": f"worker {name} was lost with its answer"}
        except (TimeoutError, OSError, ValueError, TypeError) as e:
            job.answer = {"lost": f"worker {name}: its answer did not come ({_line(e)})"}
        return self.drop(job)

    def drop(self, job: Job, why: str = "") -> Job:
        """Wait for it no more; whatever it still sends is thrown away."""
        self.jobs.pop(job.key, None)
        job.worker.job = None
        if why:
            job.answer = {"lost": why}
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self._client.cancel([job.future])
        return job

    def _end_all(self) -> None:
        left = {j.key for j in self.jobs.values() if j.pid is not None}
        for job in list(self.jobs.values()):
            self.drop(job)
        until = time.monotonic() + END_S
        while left and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                kind, what = self._happened.get(timeout=POLL_S)
                event = json.loads(what) if kind == "event" else {}
                if event.get("kind") == cluster_worker.ENDED:
                    left.discard(event["key"])


def _line(e: BaseException | None) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]
