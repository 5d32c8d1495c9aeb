"""Whose turn it is: one request runs, the others wait in the order they came."""

import asyncio
import logging
import math
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass

from labkit.pocket.http.grammar import Constraint
from labkit.pocket.http.metrics import Metrics
from labkit.pocket.http.reply import Reply
from labkit.pocket.protocol import Batch, Job
from labkit.pocket.tokenizer import Tokenizer

log = logging.getLogger("pocket")
IDLE_POLL_S = 0.01


class Full(Exception):
    """More requests wait than the queue holds."""


class Closed(Exception):
    """The server is going down."""


@dataclass
class Turn:
    """A request's place in the queue, and its time in the seat."""

    batch: Batch
    arrived: float  # perf_counter seconds
    aborted: bool = False


class RequestQueue:
    """The engine's one seat and the queue before it.

    model: the served name. seed: of the sampling seeds. longest: waiting requests at most. pace: seconds between two
    chunks of a stream, at least, where a job allows it.
    """

    def __init__(self, engine, tokenizer: Tokenizer, model: str, *, seed: int, longest: int, pace: float):
        self.engine, self.tokenizer, self.longest, self.pace = engine, tokenizer, longest, pace
        self.metrics = Metrics(model)
        self.running: Reply | None = None
        self.closed = False
        self._turns: list[Turn] = []  # waiting and running
        self._seated = 0
        self._seat = asyncio.Lock()  # hands over in the order of arrival
        self._random = random.Random(seed)

    def seed(self) -> int:
        """A sampling seed for a request that brings none; the sequence repeats with the server's own seed."""
        return self._random.getrandbits(62)

    @property
    def waiting(self) -> int:
        return len(self._turns) - self._seated

    @property
    def busy(self) -> bool:
        return self._seat.locked() or bool(self._turns)

    async def idle(self, timeout_s: float) -> bool:
        """Whether nothing runs or waits, now or within `timeout_s`."""
        until = time.monotonic() + timeout_s
        while self.busy and time.monotonic() < until:
            await asyncio.sleep(IDLE_POLL_S)
        return not self.busy

    @asynccontextmanager
    async def turn(self, batch: Batch):
        """Wait for the seat and hold it. -> Turn. Raises Full, Closed."""
        turn = Turn(batch, time.perf_counter())
        if self.waiting >= self.longest:
            raise Full
        self._turns.append(turn)
        try:
            async with self._seat:
                self._seated = 1
                try:
                    if self.closed:
                        raise Closed
                    yield turn
                finally:
                    self._seated = 0
        finally:
            self._turns.remove(turn)

    @asynccontextmanager
    async def run(self, turn: Turn, job: Job):
        """Run one of the turn's jobs, and free the engine whatever happens to the client. -> Reply"""
        restrict = Constraint(job.grammar, self.tokenizer) if job.grammar else None
        generation = self.engine.start(job.prompt, job.sampling, job.scoring, restrict)
        if turn.aborted or self.closed:
            generation.cancel()
        # Nobody sees the pieces of an unstreamed answer; only stop strings need a look on the way.
        pace = math.inf if not (job.stream or job.stops) else 0.0 if job.every_step else self.pace
        run = Reply(generation, job, self.tokenizer, turn.arrived, self._ends(job), pace)
        self.running = run
        try:
            yield run
        finally:
            if not await run.close():
                log.error("the decode loop does not return: no more requests are taken; restart the server")
                self.close()
            self.metrics.observe(run)
            _report(run)
            self.running = None

    def abort(self, rid: str | None) -> None:
        """End the requests whose id begins with `rid`, as SGLang does (None: all of them).

        The running one ends within a step, waiting ones when their turn comes.
        """
        for turn in self._turns:
            if rid is None or any((job.rid or "").startswith(rid) for job in turn.batch.jobs):
                turn.aborted = True
                if self.running is not None and self.running.job in turn.batch.jobs:
                    self.running.generation.cancel()

    async def between(self, action):
        """Call `action` while no request runs, in the order of the queue. -> its result"""
        async with self._seat:
            return action()

    def _ends(self, job: Job) -> frozenset[int]:
        own = () if job.sampling.ignore_eos else self.engine.eos_token_ids
        return frozenset((*own, *(job.sampling.stop_token_ids or ())))

    def close(self) -> None:
        """Take no more requests and end the running one within a step."""
        self.closed = True
        if self.running is not None:
            self.running.generation.cancel()


def _report(run: Reply) -> None:
    stats, tokens = run.generation.stats, len(run.ids)
    finish = run.finish["type"] if run.finish else "client gone"
    parts = [f"request {run.job.rid or '-'}: prompt {len(run.job.prompt)}, output {tokens}, finish {finish}"]
    if run.first_token is not None and run.ended is not None:
        parts.append(f"ttft {1e3 * (run.first_token - run.arrived):.1f} ms")
        if tokens > 1:
            parts.append(f"gen throughput (token/s): {(tokens - 1) / max(run.ended - run.first_token, 1e-9):.1f}")
    if stats.verify_ct:
        parts.append(f"accept len: {tokens / stats.verify_ct:.2f}")
    log.info(", ".join(parts))
