"""Answers: JSON, errors, and server-sent events that end when the client goes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labkit.errors import BadInput
from labkit.pocket.http.queue import Closed, Full, RequestQueue
from labkit.pocket.http.reply import Reply
from labkit.pocket.protocol import Batch

DONE = b"data: [DONE]\n\n"
SEND_S = 30.0  # for a client to take what was written for it; the engine and everybody else waits meanwhile


class Gone(Exception):
    """The client hung up."""


def error(path: str, status: int, message: str, *, param: str | None = None, kind: str = "") -> JSONResponse:
    """The error body that SGLang's clients read: flat on OpenAI's routes, under "error" elsewhere."""
    kind = kind or HTTPStatus(status).phrase.title().replace(" ", "") + "Error"
    told = {"message": message, "type": kind, "param": param, "code": status}
    return JSONResponse({"object": "error", **told} if path.startswith("/v1/") else {"error": told}, status)


def refusal(path: str, e: Exception) -> JSONResponse:
    """The answer to a request that could not be served through no fault of this program."""
    if isinstance(e, BadInput):
        return error(path, 400, _said(e), param=e.field)
    if isinstance(e, Full):
        return error(path, 429, "the queue is full; try again later")
    return error(path, 503, "the server is shutting down")


REFUSALS = (BadInput, Full, Closed)


def _said(e: BadInput) -> str:
    """The error's line with the value as the client wrote it: JSON, not Python."""
    value = e.value.decode(errors="replace") if isinstance(e.value, bytes) else e.value
    try:
        shown = json.dumps(value, ensure_ascii=False)
        shown.encode()
    except (TypeError, ValueError):
        shown = ascii(value)
    return f"{e.field}: got {shown if len(shown) <= 120 else shown[:117] + '...'}; accepted: {e.accepted}"


async def body(request: Request, limit: int) -> bytes:
    """The whole body. BadInput when longer than `limit` bytes, Gone when the client leaves before its end."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > limit:
        raise BadInput("body", f"{length[:20]} bytes", f"at most {limit} bytes")
    parts, size = [], 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise BadInput("body", f"more than {limit} bytes", f"at most {limit} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def while_connected(receive: Callable[[], Awaitable[dict]], work: Awaitable[Any]) -> Any:
    """`work`'s result; when the client hangs up first, `work` is cancelled (and has cleaned up) and Gone is raised."""
    task = asyncio.ensure_future(work)

    async def watch():
        while (await receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await task
    except asyncio.CancelledError:
        if watcher.done():
            raise Gone from None
        task.cancel()  # the server itself is stopping: let the work free the engine first
        await asyncio.wait([task])
        raise
    finally:
        watcher.cancel()


async def whole(request: Request, queue: RequestQueue, batch: Batch, shape: Callable[[Reply, str], Any]) -> list[Any]:
    """`shape(run, text)` of each of the batch's jobs, one after another."""

    async def work() -> list[Any]:
        made = []
        async with queue.turn(batch) as turn:
            for job in batch.jobs:
                text = []
                async with queue.run(turn, job) as run:
                    while (piece := await run.next()) is not None:
                        text.append(piece.text)
                made.append(shape(run, "".join(text)))
        return made

    return await while_connected(request.receive, work())


class Events(Response):
    """Server-sent events of a batch: `shape(run).chunk(piece)` makes the bytes of each piece, [DONE] ends them.

    `end()` makes what comes last before [DONE]. The status line waits for the first piece, so that a refusal is still a
    plain error answer.
    """

    media_type = "text/event-stream"

    def __init__(
        self, queue: RequestQueue, batch: Batch, shape: Callable[[Reply], Any], end: Callable[[], bytes] = bytes
    ):
        self._queue, self._batch, self._shape, self._end = queue, batch, shape, end
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]

    async def __call__(self, scope, receive, send) -> None:
        try:
            await while_connected(receive, self._send(scope, receive, send))
        except Gone:
            pass

    async def _send(self, scope, receive, send) -> None:
        started = False
        try:
            async with self._queue.turn(self._batch) as turn:
                for job in self._batch.jobs:
                    async with self._queue.run(turn, job) as run:
                        chunk = self._shape(run).chunk
                        while (piece := await run.next()) is not None:
                            data = chunk(piece)
                            async with asyncio.timeout(SEND_S):
                                if not started:
                                    start = {"type": "http.response.start", "status": 200}
                                    await send(start | {"headers": self.raw_headers})
                                    started = True
                                if data:
                                    await send({"type": "http.response.body", "body": data, "more_body": True})
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": self._end() + DONE, "more_body": False})
        except TimeoutError:  # as good as gone: whoever reads nothing must not keep the others waiting
            raise Gone from None
        except REFUSALS as e:  # only the queue raises these, before the first piece
            return await refusal(scope["path"], e)(scope, receive, send)
