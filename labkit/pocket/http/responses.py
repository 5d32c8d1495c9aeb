"""Answers: JSON, errors, and server-sent events that end when the client goes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labkit.errors import BadInput
from labkit.pocket.http.queue import Closed, Desk, Full
from labkit.pocket.http.run import Run
from labkit.pocket.protocol import Job

DONE = b"data: [DONE]\n\n"
SEND_S = 30.0  # for a client to take what was written for it; the engine and everybody else waits meanwhile


class Gone(Exception):
    """The client hung up."""


def error(status: int, message: str, *, param: str | None = None, kind: str = "invalid_request_error") -> JSONResponse:
    """The error body that SGLang's and OpenAI's clients read."""
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


def refusal(e: Exception) -> JSONResponse:
    """The answer to a request that could not be served through no fault of this program."""
    if isinstance(e, BadInput):
        return error(400, str(e), param=e.field)
    if isinstance(e, Full):
        return error(429, "the queue is full; try again later", kind="rate_limit_error")
    return error(503, "the server is shutting down", kind="shutdown")


REFUSALS = (BadInput, Full, Closed)


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


class Events(Response):
    """Server-sent events of one job: `shape(run).chunk(piece)` makes the bytes of each piece, [DONE] ends them.

    The status line waits for the first piece, so that a refusal is still a plain error answer.
    """

    media_type = "text/event-stream"

    def __init__(self, desk: Desk, job: Job, shape: Callable[[Run], Any]):
        self._desk, self._job, self._shape = desk, job, shape
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]

    async def __call__(self, scope, receive, send) -> None:
        try:
            await while_connected(receive, self._send(scope, receive, send))
        except Gone:
            pass

    async def _send(self, scope, receive, send) -> None:
        try:
            async with self._desk.turn(self._job) as run:
                chunk, started = self._shape(run).chunk, False
                while (piece := await run.next()) is not None:
                    data = chunk(piece)
                    async with asyncio.timeout(SEND_S):
                        if not started:
                            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                            started = True
                        if data:
                            await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:  # as good as gone: whoever reads nothing must not keep the others waiting
            raise Gone from None
        except REFUSALS as e:  # only the desk raises these, before the first piece
            return await refusal(e)(scope, receive, send)
        await send({"type": "http.response.body", "body": DONE, "more_body": False})
