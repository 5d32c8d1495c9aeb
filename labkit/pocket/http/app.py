"""Routes, the key check, and the last line of defence."""

import asyncio
import hmac
import time
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from labkit.pocket import protocol
from labkit.pocket.http import info, native, openai
from labkit.pocket.http import responses as answer
from labkit.pocket.http.queue import Desk
from labkit.pocket.options import Options

OPEN = ("/health", "/health_generate", "/metrics")  # as on SGLang, these need no key
MAX_BODY = 4 * 2**20  # bytes; 32768 ids as JSON are some 0.2 MB
LONG = 16384  # bytes from which a body is checked beside the event loop


@dataclass
class Face:
    """The handlers and what they share."""

    desk: Desk
    options: Options
    model: str
    host: str
    port: int
    startup_s: float
    command: list[str]
    started: float = field(default_factory=time.time)

    def __post_init__(self):
        self.limits = protocol.Limits(vocabulary=len(self.desk.tokenizer.pieces), context=self.options.context_length)

    # -- generation

    async def generate(self, request: Request) -> Response:
        return await native.generate(request, self.desk, await self._job(request, protocol.read_generate))

    async def completions(self, request: Request) -> Response:
        job = await self._job(request, protocol.read_completion)
        return await openai.complete(request, self.desk, job, openai.COMPLETION, self.model)

    async def chat(self, request: Request) -> Response:
        job = await self._job(request, protocol.read_chat)
        return await openai.complete(request, self.desk, job, openai.CHAT, self.model)

    async def _job(self, request: Request, read) -> protocol.Job:
        body = await answer.body(request, MAX_BODY)
        arguments = (read, body, self.desk.tokenizer, self.limits, self.desk.seed())
        return await asyncio.to_thread(_checked, *arguments) if len(body) > LONG else _checked(*arguments)

    async def health_generate(self, request: Request) -> Response:
        """One token, through the same queue as everybody else's."""
        sampling = protocol.Sampling(temperature=0.0, max_new_tokens=1, ignore_eos=True, stop_token_ids=(), seed=0)
        job = protocol.Job(prompt=[0], sampling=sampling, rid="health")
        async with self.desk.turn(job) as run:
            while await run.next() is not None:
                pass
        return Response(status_code=200 if run.ids else 503)

    # -- administration

    async def health(self, request: Request) -> Response:
        return Response(status_code=503 if self.desk.closed else 200)

    async def flush_cache(self, request: Request) -> Response:
        """There is no prefix cache to flush; the answer is what a client must wait for before it measures."""
        if self.desk.busy:
            return PlainTextResponse("Flush cache failed: requests are running or waiting.\n", 400)
        return PlainTextResponse("Cache flushed.\n")

    async def server_info(self, request: Request) -> Response:
        return JSONResponse(
            info.server_info(
                self.options,
                self.desk,
                host=self.host,
                port=self.port,
                model=self.model,
                startup_s=self.startup_s,
                command=self.command,
            )
        )

    async def model_info(self, request: Request) -> Response:
        return JSONResponse(info.model_info(self.options, self.model))

    async def models(self, request: Request) -> Response:
        return JSONResponse(info.models(self.model, self.options.context_length, self.started))

    async def metrics(self, request: Request) -> Response:
        text = self.desk.metrics.text(self.model, int(self.desk.running is not None), self.desk.waiting)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def start_experts(self, request: Request) -> Response:
        await self.desk.between(lambda: self.desk.engine.record_experts(True))
        return PlainTextResponse("Start recording the expert distribution.\n")

    async def stop_experts(self, request: Request) -> Response:
        await self.desk.between(lambda: self.desk.engine.record_experts(False))
        return PlainTextResponse("Stop recording the expert distribution.\n")

    async def dump_experts(self, request: Request) -> Response:
        """SGLang writes a file beside the server; this engine answers with the counts themselves."""
        return JSONResponse(await self.desk.between(self.desk.engine.dump_experts))

    def routes(self) -> list[Route]:
        both = ["GET", "POST"]
        return [
            Route("/generate", self.generate, methods=["POST", "PUT"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/health", self.health),
            Route("/health_generate", self.health_generate),
            Route("/flush_cache", self.flush_cache, methods=both),
            Route("/server_info", self.server_info),
            Route("/get_server_info", self.server_info),
            Route("/model_info", self.model_info),
            Route("/get_model_info", self.model_info),
            Route("/metrics", self.metrics),
            Route("/start_expert_distribution_record", self.start_experts, methods=both),
            Route("/stop_expert_distribution_record", self.stop_experts, methods=both),
            Route("/dump_expert_distribution_record", self.dump_experts, methods=both),
        ]


def _checked(read, body: bytes, tokenizer, limits: protocol.Limits, seed: int) -> protocol.Job:
    return read(protocol.parse(body), tokenizer, limits, seed)


async def _refused(request: Request, e: Exception) -> Response:
    return answer.refusal(e)


async def _gone(request: Request, e: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _http(request: Request, e: HTTPException) -> Response:
    response = answer.error(e.status_code, f"{e.detail}: {request.method} {request.url.path}")
    response.headers.update(e.headers or {})
    return response


async def _broken(request: Request, e: Exception) -> Response:
    return answer.error(500, "the server failed; its log says how", kind="internal_error")


class KeyCheck:
    """Lets a request through when it brings the key: `Authorization: Bearer KEY`."""

    def __init__(self, app, key: str):
        self._app, self._expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refused = answer.error(401, "this server wants Authorization: Bearer KEY", kind="unauthorized")
                return await refused(scope, receive, send)
        await self._app(scope, receive, send)


def build(face: Face, api_key: str | None):
    """The ASGI application."""
    handlers = dict.fromkeys(answer.REFUSALS, _refused)
    handlers |= {answer.Gone: _gone, HTTPException: _http, Exception: _broken}
    app = Starlette(routes=face.routes(), exception_handlers=handlers)
    return KeyCheck(app, api_key) if api_key else app
