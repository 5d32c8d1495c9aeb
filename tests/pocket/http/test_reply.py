"""A run's pieces, from a generation whose tokens come when the test says so."""

import asyncio
import os
import threading
from types import SimpleNamespace

import pytest

from labkit.pocket.engine import Sampling
from labkit.pocket.http import reply as reply_module
from labkit.pocket.http.queue import Closed, RequestQueue
from labkit.pocket.http.reply import Reply
from labkit.pocket.protocol import Batch, Job
from labkit.pocket.tokenizer import Tokenizer


class Scripted:
    """A generation in the hands of the test."""

    def __init__(self):
        self.tokens, self.done, self.cancelled = [], False, False
        self.finished = threading.Event()
        self.stats = SimpleNamespace(
            finish_reason=None, verify_ct=2, correct_drafts=3, proposed_drafts=6, histogram=[0, 1]
        )
        self.read, self.write = os.pipe()

    def give(self, *tokens: int, reason: str | None = None):
        self.tokens += tokens
        self.stats.finish_reason, self.done = reason, reason is not None
        os.write(self.write, b"x")
        if self.done:
            self.finished.set()

    def join(self, timeout=None):
        self.finished.wait(timeout)

    def poll(self, start=0):
        return self.tokens[start:]

    def fileno(self):
        return self.read

    def drain(self):
        os.read(self.read, 4096)

    def cancel(self):
        self.cancelled = True
        if not self.done:
            self.give(reason="abort")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer(folder)


def run(tokenizer, script, pace=0.0, **job):
    """Run the coroutine function `script(generation, run)` with a fresh Reply."""

    async def main():
        generation = Scripted()
        sampling = Sampling(max_new_tokens=50)
        made = Reply(generation, Job(prompt=[1, 2], sampling=sampling, **job), tokenizer, 0.0, frozenset({1}), pace)
        try:
            return await script(generation, made)
        finally:
            await made.close()

    return asyncio.run(main())


def test_tokens_that_came_together_are_one_piece(tokenizer):
    async def script(generation, run):
        generation.give(20, 21, 22)
        first = await run.next()
        generation.give(23)
        generation.give(24, reason="length")
        return first, await run.next(), await run.next()

    first, second, third = run(tokenizer, script)
    assert (first.ids, first.last) == ([20, 21, 22], False)
    assert (second.ids, second.last) == ([23, 24], True)
    assert third is None


def test_next_waits_for_tokens(tokenizer):
    async def script(generation, run):
        asyncio.get_running_loop().call_later(0.05, generation.give, 20)
        return await asyncio.wait_for(run.next(), 60)

    assert run(tokenizer, script).ids == [20]


def test_half_a_character_waits_and_is_marked_at_the_end(tokenizer):
    ids = tokenizer.encode("🙂")

    async def script(generation, run):
        generation.give(*ids[:1])
        first = await run.next()
        generation.give(*ids[1:])
        second = await run.next()
        generation.give(ids[0], reason="length")
        return first, second, await run.next()

    assert [p.text for p in run(tokenizer, script)] == ["", "🙂", "\ufffd"]


def test_a_stop_string_cancels_and_drops_the_tokens_behind_it(tokenizer):
    ids = [tokenizer.encode(c)[0] for c in "abcde"]

    async def script(generation, run):
        generation.give(*ids)
        piece = await run.next()
        return piece, run.finish, generation.cancelled

    piece, finish, cancelled = run(tokenizer, script, stops=("bc",))
    assert (piece.text, piece.ids, piece.last, cancelled) == ("a", ids[:3], True, True)
    assert finish == {"type": "stop", "matched": "bc"}


def test_the_end_token_is_reported_but_not_spoken(tokenizer):
    async def script(generation, run):
        generation.give(*tokenizer.encode("a"), 1)  # the end token comes before the end is known
        first = await run.next()
        generation.give(reason="stop")
        return first, await run.next(), run.finish

    first, last, finish = run(tokenizer, script, skip_special_tokens=False)
    assert first.text == "a" and first.ids[-1] == 1
    assert last.text == "" and finish == {"type": "stop", "matched": 1}


def test_speculation_is_reported_under_sglangs_names(tokenizer):
    async def script(generation, run):
        generation.give(20, 21, 22, 23, 24, reason="length")
        await run.next()
        return run.speculation

    assert run(tokenizer, script) == {
        "spec_accept_rate": 0.5,
        "spec_accept_length": 2.5,
        "spec_num_correct_drafts": 3,
        "spec_num_proposed_drafts": 6,
        "spec_verify_ct": 2,
        "spec_correct_drafts_histogram": [0, 1],
    }


def test_pace_gathers_tokens(tokenizer):
    async def script(generation, run):
        loop = asyncio.get_running_loop()
        now = loop.time()
        loop.time = lambda: now  # the loop's timers follow this clock
        generation.give(20)
        first = await run.next()
        waiting = asyncio.ensure_future(run.next())
        for i in range(4):  # one by one, each seen by the loop
            generation.give(21 + i)
            now += 0.1
            for _ in range(10):
                await asyncio.sleep(0)
        early = waiting.done()
        now += 0.2
        return first, early, await waiting

    first, early, second = run(tokenizer, script, pace=0.5)
    assert first.ids == [20] and not early and second.ids == [21, 22, 23, 24]


def test_the_end_never_waits_for_the_pace(tokenizer):
    async def script(generation, run):
        generation.give(20)
        await run.next()
        asyncio.get_running_loop().call_later(0.02, lambda: generation.give(30, reason="length"))
        return await asyncio.wait_for(run.next(), 60)

    last = run(tokenizer, script, pace=3600)
    assert last.ids == [30] and last.last


def test_an_unstreamed_answer_is_one_piece_after_the_first(tokenizer):
    async def script(generation, run):
        generation.give(20)
        first = await run.next()
        for i in range(5):
            asyncio.get_running_loop().call_later(0.01 * i, generation.give, 21 + i)
        asyncio.get_running_loop().call_later(0.1, lambda: generation.give(reason="length"))
        return first, await run.next()

    first, rest = run(tokenizer, script, pace=float("inf"))
    assert first.ids == [20] and rest.ids == [21, 22, 23, 24, 25] and rest.last


def test_a_slow_engine_is_watched_again_after_the_pace(tokenizer):
    async def script(generation, run):
        generation.give(20)
        await run.next()
        asyncio.get_running_loop().call_later(0.1, generation.give, 21)
        return await asyncio.wait_for(run.next(), 60)

    assert run(tokenizer, script, pace=0.01).ids == [21]


class Stuck(Scripted):
    """A decode loop that hears no cancel."""

    def cancel(self):
        self.cancelled = True


def test_a_decode_loop_that_does_not_come_back_ends_the_service_in_words(tokenizer, monkeypatch, caplog):
    monkeypatch.setattr(reply_module, "CLOSE_S", 1)
    stuck = Stuck()
    batch = Batch((Job(prompt=[1, 2], sampling=Sampling(max_new_tokens=50)),))

    async def main():
        engine = SimpleNamespace(start=lambda *_: stuck, eos_token_ids=())
        queue = RequestQueue(engine, tokenizer, "m", seed=1, longest=4, pace=0.0)
        try:
            async with asyncio.timeout(60), queue.turn(batch) as turn, queue.run(turn, batch.jobs[0]):
                pass
            with pytest.raises(Closed):
                async with queue.turn(batch):
                    pass
        finally:
            stuck.give(reason="abort")  # its thread is waited for
        return queue

    queue = asyncio.run(main())
    assert stuck.cancelled and queue.closed and not queue.busy
    assert "decode loop" in caplog.text
