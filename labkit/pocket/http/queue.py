"""Whose turn it is: one request runs, the others wait in the order they came."""

import asyncio
import logging
import math
import random
import time
from contextlib import asynccontextmanager

from labkit.pocket.http.metrics import Metrics
from labkit.pocket.http.run import Run
from labkit.pocket.protocol import Job
from labkit.pocket.tokenizer import Tokenizer

log = logging.getLogger("pocket")


class Full(Exception):
    """More requests wait than the queue holds."""


class Closed(Exception):
    """The server is going down."""


class Desk:
    """The engine's one seat and the queue before it.

    longest_queue: waiting requests at most. pace: seconds between two chunks of a stream, at least.
    """

    def __init__(self, engine, tokenizer: Tokenizer, *, seed: int = 0, longest_queue: int = 256, pace: float = 0.0):
        self.engine, self.tokenizer, self.longest_queue, self.pace = engine, tokenizer, longest_queue, pace
        self.metrics = Metrics()
        self.waiting = 0
        self.running: Run | None = None
        self.closed = False
        self._seat = asyncio.Lock()  # hands over in the order of arrival
        self._random = random.Random(seed)

    def seed(self) -> int:
        """A sampling seed for a request that brings none; the sequence repeats with the server's own seed."""
        return self._random.getrandbits(62)

    @property
    def busy(self) -> bool:
        return self._seat.locked() or self.waiting > 0

    @asynccontextmanager
    async def turn(self, job: Job):
        """Wait for the seat, run `job`, and free the engine whatever happens to the client. -> Run"""
        arrived = time.perf_counter()
        if self.waiting >= self.longest_queue:
            raise Full
        self.waiting += 1
        try:
            await self._seat.acquire()
        finally:
            self.waiting -= 1
        try:
            if self.closed:
                raise Closed
            generation = self.engine.start(job.prompt, job.sampling)
            # Nobody sees the pieces of an unstreamed answer; only stop strings need a look on the way.
            pace = self.pace if job.stream or job.stops else math.inf
            run = Run(generation, job, self.tokenizer, arrived, self._ends(job), pace)
            self.running = run
            try:
                yield run
            finally:
                await run.close()
                self.metrics.observe(run)
                _report(run)
        finally:
            self.running = None
            self._seat.release()

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


def _report(run: Run) -> None:
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
