"""Answers: JSON, errors, and server-sent events that end when the client goes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labkit.engines.pocket.http.desk import Closed, Full
from labkit.errors import BadInput

DONE = b"data: [DONE]\n\n"


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
    return error(409, "the server is shutting down", kind="shutdown")


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
        task.cancel()            # the server itself is stopping: let the work free the engine first
        await asyncio.wait([task])
        raise
    finally:
        watcher.cancel()


class Events(Response):
    """Server-sent events from `source`, an iterator of ready-made chunks, ended by [DONE].

    The status line waits for the first chunk, so that a refusal is still a plain error answer. Sends straight to the
    server: a chunk costs no task switch.
    """

    media_type = "text/event-stream"

    def __init__(self, source: AsyncIterator[bytes]):
        self._source = source
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
            async for chunk in self._source:
                if not started:
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    started = True
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": DONE, "more_body": False})
        except REFUSALS as e:
            if started:
                raise
            await refusal(e)(scope, receive, send)
        finally:
            await self._source.aclose()      # frees the engine now, not when the collector comes by


def event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
