"""What each address does."""

import asyncio
import math
import time
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from labkit.errors import BadInput
from labkit.pocket import protocol
from labkit.pocket.engine import Sampling
from labkit.pocket.http import grammar, info, native, openai, responses, tokens
from labkit.pocket.http.queue import RequestQueue
from labkit.pocket.options import Options
from labkit.pocket.protocol.fields import Fields

MAX_BODY = 4 * 2**20  # bytes; 32768 ids as JSON are some 0.2 MB
LONG = 16384  # bytes from which a body is checked beside the event loop
LONGEST_FLUSH_S = 3600.0


@dataclass
class Handlers:
    """The handlers and what they share."""

    queue: RequestQueue
    options: Options
    model: str
    host: str
    port: int
    startup_s: float
    command: list[str]
    started: float = field(default_factory=time.time)

    def __post_init__(self):
        vocabulary = len(self.queue.tokenizer.pieces)
        self.limits = protocol.Limits(vocabulary=vocabulary, context=self.options.context_length)

    # -- generation

    async def generate(self, request: Request) -> Response:
        """Continue a prompt: SGLang's own dialect."""
        return await native.generate(request, self.queue, await self._batch(request, protocol.read_generate))

    async def completions(self, request: Request) -> Response:
        """Continue a prompt: OpenAI's dialect."""
        batch = await self._batch(request, protocol.read_completion)
        return await openai.complete(request, self.queue, batch, openai.COMPLETION, self.model)

    async def chat(self, request: Request) -> Response:
        """Answer a conversation: OpenAI's dialect."""
        batch = await self._batch(request, protocol.read_chat)
        return await openai.complete(request, self.queue, batch, openai.CHAT, self.model)

    async def _batch(self, request: Request, read) -> protocol.Batch:
        body = await responses.body(request, MAX_BODY)
        arguments = (read, body, self.queue.tokenizer, self.limits, self.queue.seed())
        return await asyncio.to_thread(_checked, *arguments) if len(body) > LONG else _checked(*arguments)

    async def health_generate(self, request: Request) -> Response:
        """One token, through the same queue as everybody else's."""
        sampling = Sampling(temperature=0.0, max_new_tokens=1, ignore_eos=True, stop_token_ids=(), seed=0)
        job = protocol.Job(prompt=[0], sampling=sampling, rid="health")

        async def work():
            async with self.queue.turn(protocol.Batch((job,))) as turn, self.queue.run(turn, job) as run:
                while await run.next() is not None:
                    pass
            return Response(status_code=200 if run.ids else 503)

        return await responses.while_connected(request.receive, work())

    # -- administration

    async def root(self, request: Request) -> Response:
        """What this is."""
        return PlainTextResponse("The pocket engine is running.\n")

    async def health(self, request: Request) -> Response:
        """Whether requests are taken."""
        return Response(status_code=503 if self.queue.closed else 200)

    async def flush_cache(self, request: Request) -> Response:
        """Forget the accept statistics, once nothing runs or waits (?timeout=SECONDS: wait for that).

        There is no prefix cache; the answer is what a client must wait for before it measures.
        """
        if not await self.queue.idle(_seconds(request.query_params.get("timeout", "0"))):
            return PlainTextResponse("Flush cache failed: requests are running or waiting.\n", 400)
        self.queue.metrics.flush()
        return PlainTextResponse("Cache flushed.\n")

    async def abort_request(self, request: Request) -> Response:
        """End the requests whose id begins with `rid`, or all of them."""
        fields = Fields(protocol.parse(await responses.body(request, MAX_BODY)))
        rid, everything = fields.text("rid"), fields.flag("abort_all", False)
        fields.ignore("finished_reason", "abort_message")
        fields.done()
        if rid is None and not everything:
            raise BadInput("rid", rid, "a request's id, or abort_all true")
        self.queue.abort(None if everything else rid)
        return Response(status_code=200)

    async def tokenize(self, request: Request) -> Response:
        """Text to token ids."""
        document = protocol.parse(await responses.body(request, MAX_BODY))
        return JSONResponse(tokens.tokenize(document, self.queue.tokenizer, self.options.context_length))

    async def detokenize(self, request: Request) -> Response:
        """Token ids to text."""
        document = protocol.parse(await responses.body(request, MAX_BODY))
        return JSONResponse(tokens.detokenize(document, self.queue.tokenizer))

    async def server_info(self, request: Request) -> Response:
        """The resolved settings and live numbers."""
        return JSONResponse(
            info.server_info(
                self.options,
                self.queue,
                host=self.host,
                port=self.port,
                model=self.model,
                startup_s=self.startup_s,
                command=self.command,
            )
        )

    async def model_info(self, request: Request) -> Response:
        """The model's folder and kind."""
        return JSONResponse(info.model_info(self.options, self.model))

    async def models(self, request: Request) -> Response:
        """OpenAI's list of models, which is one."""
        return JSONResponse(info.models(self.model, self.options.context_length, self.started))

    async def one_model(self, request: Request) -> Response:
        """OpenAI's card of one model."""
        asked = request.path_params["model"]
        if asked not in (self.model, self.model.lstrip("/")):  # a path's leading slash is lost in many clients' URLs
            return responses.error(request.url.path, 404, f"The model `{asked}` does not exist", param="model")
        return JSONResponse(info.models(self.model, self.options.context_length, self.started)["data"][0])

    async def metrics(self, request: Request) -> Response:
        """Prometheus text, or OpenMetrics where the Accept header asks for it."""
        metrics = self.queue.metrics
        metrics.running, metrics.waiting = int(self.queue.running is not None), self.queue.waiting
        text, kind = metrics.expose(request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    async def start_experts(self, request: Request) -> Response:
        """Start counting which experts are chosen."""
        await self._between(request, lambda: self.queue.engine.record_experts(True))
        return PlainTextResponse("Start recording the expert distribution.\n")

    async def stop_experts(self, request: Request) -> Response:
        """Stop counting."""
        await self._between(request, lambda: self.queue.engine.record_experts(False))
        return PlainTextResponse("Stop recording the expert distribution.\n")

    async def dump_experts(self, request: Request) -> Response:
        """SGLang writes a file beside the server; this engine answers with the counts themselves."""
        return JSONResponse(await self._between(request, self.queue.engine.dump_experts))

    async def start_parts(self, request: Request) -> Response:
        """Start timing the parts of each pass (this engine's own address)."""
        await self._between(request, lambda: self.queue.engine.time_parts(True))
        return PlainTextResponse("Start timing the parts of each pass.\n")

    async def stop_parts(self, request: Request) -> Response:
        """Stop, and answer with seconds by kind of pass and part."""
        await self._between(request, lambda: self.queue.engine.time_parts(False))
        return JSONResponse(await self._between(request, self.queue.engine.part_times))

    async def read_weights(self, request: Request) -> Response:
        """Time reading the weights of a step and nothing else (this engine's own address)."""
        return JSONResponse(await self._between(request, self.queue.engine.reading))

    async def _between(self, request: Request, action):
        """`action`'s result, once its turn comes; a client that hangs up gives its turn up."""
        return await responses.while_connected(request.receive, self.queue.between(action))

    async def openapi(self, request: Request) -> Response:
        """This list."""
        return JSONResponse(info.openapi(self.routes()))

    def routes(self) -> list[Route]:
        """Every address; its handler's docstring is its description in /openapi.json."""
        post, both = ["POST"], ["GET", "POST"]
        return [
            Route("/generate", self.generate, methods=["POST", "PUT"]),
            Route("/v1/completions", self.completions, methods=post),
            Route("/v1/chat/completions", self.chat, methods=post),
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.one_model),
            Route("/", self.root),
            Route("/health", self.health),
            Route("/ping", self.health, methods=both),
            Route("/health_generate", self.health_generate),
            Route("/flush_cache", self.flush_cache, methods=both),
            Route("/abort_request", self.abort_request, methods=post),
            *(Route(p, self.tokenize, methods=post) for p in ("/tokenize", "/v1/tokenize")),
            *(Route(p, self.detokenize, methods=post) for p in ("/detokenize", "/v1/detokenize")),
            *(Route(p, self.server_info) for p in ("/server_info", "/get_server_info")),
            *(Route(p, self.model_info) for p in ("/model_info", "/get_model_info")),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/start_expert_distribution_record", self.start_experts, methods=both),
            Route("/stop_expert_distribution_record", self.stop_experts, methods=both),
            Route("/dump_expert_distribution_record", self.dump_experts, methods=both),
            Route("/start_part_times", self.start_parts, methods=both),
            Route("/stop_part_times", self.stop_parts, methods=both),
            Route("/read_weights", self.read_weights, methods=both),
        ]


def _checked(read, body: bytes, tokenizer, limits: protocol.Limits, seed: int) -> protocol.Batch:
    batch = read(protocol.parse(body), tokenizer, limits, seed)
    for wanted in {job.grammar for job in batch.jobs if job.grammar}:
        grammar.check(wanted, tokenizer)
    return batch


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= LONGEST_FLUSH_S:
        raise BadInput("timeout", text, f"seconds from 0 to {LONGEST_FLUSH_S:g}")
    return value
