"""The application: handlers, the key check, and the last line of defence."""

import hmac

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from labkit.pocket.http import responses
from labkit.pocket.http.handlers import Handlers

OPEN = ("/health", "/health_generate", "/metrics", "/ping")  # as on SGLang, these need no key


async def _refused(request: Request, e: Exception) -> Response:
    return responses.refusal(request.url.path, e)


async def _gone(request: Request, e: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _http(request: Request, e: HTTPException) -> Response:
    path = request.url.path
    response = responses.error(path, e.status_code, f"{e.detail}: {request.method} {path}")
    response.headers.update(e.headers or {})
    return response


async def _broken(request: Request, e: Exception) -> Response:
    return responses.error(request.url.path, 500, "the server failed; its log says how")


class KeyCheck:
    """Lets a request through when it brings the key: `Authorization: Bearer KEY`."""

    def __init__(self, app, key: str):
        self._app, self._expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refused = responses.error(scope["path"], 401, "this server wants Authorization: Bearer KEY")
                return await refused(scope, receive, send)
        await self._app(scope, receive, send)


def build(handlers: Handlers, api_key: str | None):
    """The ASGI application."""
    caught = dict.fromkeys(responses.REFUSALS, _refused)
    caught |= {responses.Gone: _gone, HTTPException: _http, Exception: _broken}
    # Any page may ask, as on SGLang; preflights carry no key, so this stands before the key check.
    layers = [Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])]
    if api_key:
        layers.append(Middleware(KeyCheck, key=api_key))
    return Starlette(routes=handlers.routes(), exception_handlers=caught, middleware=layers)
