"""A client that takes nothing of what is written for it loses its seat: the others do not wait for it."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from labkit.pocket.http import responses


class Desk:
    """One seat, and a run whose pieces never end."""

    def __init__(self):
        self.seat = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, batch):
        async with self.seat:
            yield None

    @asynccontextmanager
    async def run(self, turn, job):
        yield SimpleNamespace(next=self._next)

    async def _next(self):
        return "piece"


def test_a_client_that_takes_nothing_loses_its_seat(monkeypatch):
    monkeypatch.setattr(responses, "SEND_S", 0.2)
    taken = []

    async def scene():
        desk, never, batch = Desk(), asyncio.Event(), SimpleNamespace(jobs=["job"])

        async def send(message):
            taken.append(message["type"])
            if len(taken) > 3:
                await never.wait()  # its buffers are full, as uvicorn waits for them to drain

        events = responses.Events(desk, batch, lambda run: SimpleNamespace(chunk=lambda piece: piece.encode()))
        stays = asyncio.Event()  # connected all the while
        async with asyncio.timeout(60):
            await events({"type": "http"}, stays.wait, send)
            async with desk.turn(None):
                return True

    assert asyncio.run(scene())
    assert taken == ["http.response.start", *["http.response.body"] * 3]
