"""One request inside the engine: tokens as they come, their text, and what is reported of them."""

import asyncio
import contextlib
import math
import time
from typing import Any, NamedTuple

from labkit.pocket.engine import LONGEST_S
from labkit.pocket.http.stops import Stops
from labkit.pocket.protocol import Job
from labkit.pocket.tokenizer import Detokenizer, Tokenizer

CLOSE_S = 60  # for a cancelled request to end: one pass over the weights, seconds on the slowest machine


class Piece(NamedTuple):
    """What came since the last look: token ids, the text they made whole, and whether that was all."""

    ids: list[int]
    text: str
    last: bool


class Reply:
    """Follows a Generation without ever blocking the event loop or the engine.

    The engine's thread writes tokens into a ring and makes a file descriptor readable; the loop wakes, and `next` takes
    every token that is there by then, so a slow client costs chunks, never engine time. After the first token `next`
    lets `pace` seconds go by between two pieces: where cores share a cache or a physical core, every wake-up of this
    process takes time from the engine, and at one token per millisecond that is several percent of it. The end is never
    waited for: it comes through `join` on a thread.
    """

    def __init__(
        self, generation, job: Job, tokenizer: Tokenizer, arrived: float, ends: frozenset[int], pace: float = 0.0
    ):
        self.job, self.generation, self.arrived = job, generation, arrived
        self.ids: list[int] = []
        self.finish: dict[str, Any] | None = None
        self.first_token: float | None = None  # perf_counter seconds, like `arrived` and `ended`
        self.ended: float | None = None
        self._ends = ends if job.trim_stop else frozenset()
        self._tokenizer = tokenizer
        self._text = Detokenizer(tokenizer, job.skip_special_tokens)
        self._stops = Stops(job.stops, job.trim_stop)
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._fd, self._watching = generation.fileno(), False
        self._pace, self._last = pace, 0.0  # _last: loop time of the last piece
        end = self._loop.run_in_executor(None, generation.join, LONGEST_S)
        end.add_done_callback(lambda _: self._wake.set())

    def _watch(self, on: bool) -> None:
        if on and not self._watching:
            self._loop.add_reader(self._fd, self._readable)
        elif self._watching and not on:
            self._loop.remove_reader(self._fd)
        self._watching = on

    def _readable(self) -> None:
        self.generation.drain()
        self._wake.set()

    async def next(self) -> Piece | None:
        """The next piece, or None after the last one."""
        if self.finish is not None:
            return None
        if self._pace and self.first_token is not None:
            await self._rest()
        while True:
            self._wake.clear()
            done = self.generation.done  # before poll: tokens written before the end are then not missed
            new = self.generation.poll(len(self.ids))
            if len(new) >= self.job.interval or (new and not self.ids) or done:
                self._last = self._loop.time()
                return self._piece(new, done)
            self._watch(True)
            await self._wake.wait()

    async def _rest(self) -> None:
        """Until the pace allows the next piece, or the end."""
        self._watch(False)
        self._wake.clear()
        due = self._last + self._pace
        if self.generation.done or self._loop.time() >= due:
            return
        timer = None if due == math.inf else self._loop.call_at(due, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _piece(self, new: list[int], done: bool) -> Piece:
        if self.first_token is None and new:
            self.first_token = time.perf_counter()
        if self.job.stops:
            new, text = self._with_stops(new)
        else:
            text = self._text.push(self._spoken(new))
        self.ids += new
        if self._stops.matched is not None:
            self.generation.cancel()
            self._end({"type": "stop", "matched": self._stops.matched})
        elif done:
            text += self._stops.push(self._text.end()) + self._stops.end()
            self._end(self._reason())
        return Piece(new, text, self.finish is not None)

    def _with_stops(self, new: list[int]) -> tuple[list[int], str]:
        """Token by token, so that the token which completes a stop string is the last one reported."""
        text = ""
        for n, token in enumerate(new, start=1):
            text += self._stops.push(self._text.push(self._spoken([token])))
            if self._stops.matched is not None:
                return new[:n], text
        return new, text

    def _spoken(self, new: list[int]) -> list[int]:
        """The tokens that become text: the end token that generation stops at does not, unless asked for."""
        return new[:-1] if new and new[-1] in self._ends else new

    def _reason(self) -> dict[str, Any]:
        kind = self.generation.stats.finish_reason
        if kind == "stop":
            return {"type": "stop", "matched": self.ids[-1]}
        if kind == "length":
            return {"type": "length", "length": self.job.sampling.max_new_tokens}
        if kind == "error":
            raise RuntimeError("the engine's decode loop failed")
        return {"type": "abort", "message": "the request was cancelled"}

    def _end(self, reason: dict[str, Any]) -> None:
        self.finish, self.ended = reason, time.perf_counter()

    async def close(self) -> bool:
        """Cancel if still running, and return once the engine is free again: True, or False when it does not come."""
        self.generation.cancel()
        self._watch(False)
        # Second by second: a process that was stopped and goes on has not waited in between.
        for _ in range(CLOSE_S):
            self._wake.clear()
            if self.generation.done:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._wake.wait()
        return self.generation.done

    # -- what is reported

    @property
    def speculation(self) -> dict[str, Any]:
        """SGLang's spec_* fields; histogram[i] counts the verify passes in which exactly i drafts were right."""
        s = self.generation.stats
        if not s.verify_ct:
            return {}
        rate = s.correct_drafts / s.proposed_drafts if s.proposed_drafts else 0.0
        return {
            "spec_accept_rate": rate,
            "spec_accept_length": len(self.ids) / s.verify_ct,
            "spec_num_correct_drafts": s.correct_drafts,
            "spec_num_proposed_drafts": s.proposed_drafts,
            "spec_verify_ct": s.verify_ct,
            "spec_correct_drafts_histogram": list(s.histogram),
        }

    def token_bytes(self, token: int) -> bytes:
        pieces = self._tokenizer.pieces
        return pieces[token] if token < len(pieces) else b""

    def token_text(self, token: int) -> str:
        """One token alone as text; U+FFFD for bytes that are no whole character."""
        return self.token_bytes(token).decode(errors="replace")
