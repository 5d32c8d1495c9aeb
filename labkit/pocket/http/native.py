"""SGLang's own route: /generate."""

import json
import uuid
from dataclasses import replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labkit.pocket.http import responses, scores
from labkit.pocket.http.queue import RequestQueue
from labkit.pocket.http.reply import Piece, Reply
from labkit.pocket.protocol import Batch


def meta_info(run: Reply) -> dict[str, Any]:
    """What SGLang reports of a finished request, and the decoding thread's CPU time.

    Times in seconds; cached_tokens is 0: there is no prefix cache.
    """
    end = run.ended
    meta = {
        "id": run.job.rid,
        "finish_reason": run.finish,
        "prompt_tokens": len(run.job.prompt),
        "completion_tokens": len(run.ids),
        "cached_tokens": 0,
        "e2e_latency": end - run.arrived,
    }
    cpu = getattr(run.generation.stats, "thread_cpu_s", None)
    if cpu is not None:
        # Decoding alone. Wall time after the first token well above this: the thread waited for a core, the sample is
        # disturbed.
        meta["thread_cpu_s"] = cpu
    if run.first_token is not None:
        meta["first_token_latency"] = run.first_token - run.arrived
        if len(run.ids) > 1 and end > run.first_token:
            meta["decode_throughput"] = (len(run.ids) - 1) / (end - run.first_token)
    return meta | run.speculation | scores.sglang(run)


class Chunks:
    """Cumulative SSE chunks. Text and ids only ever grow, so their JSON is grown with them instead of made anew."""

    def __init__(self, run: Reply, listed: bool):
        self._run, self._text, self._ids = run, bytearray(), bytearray()
        rid = json.dumps(run.job.rid)
        self._index = b'"index":%d,' % run.job.index if listed else b""
        self._middle = (
            f'],"meta_info":{{"id":{rid},"finish_reason":null,"prompt_tokens":{len(run.job.prompt)},'
            f'"cached_tokens":0,"completion_tokens":'.encode()
        )

    def chunk(self, piece: Piece) -> bytes:
        run = self._run
        if piece.text:
            self._text += quoted(piece.text)[1:-1].encode()
        if piece.ids:
            self._ids += (b"," if self._ids else b"") + ",".join(map(str, piece.ids)).encode()
        head = b'data: {%b"text":"%b","output_ids":[%b' % (self._index, self._text, self._ids)
        if piece.last:
            return b'%b],"meta_info":%b}\n\n' % (head, json.dumps(meta_info(run)).encode())
        more = b"," + json.dumps(scores.sglang(run)).encode()[1:-1] if run.job.scoring else b""
        return b"%b%b%d%b}}\n\n" % (head, self._middle, len(run.ids), more)


async def generate(request: Request, queue: RequestQueue, batch: Batch) -> Response:
    """Answer one checked /generate request."""
    batch = replace(batch, jobs=tuple(replace(job, rid=job.rid or uuid.uuid4().hex) for job in batch.jobs))
    if batch.stream:
        return responses.Events(queue, batch, lambda run: Chunks(run, batch.listed))
    answers = await responses.whole(request, queue, batch, _answer)
    return JSONResponse(answers if batch.listed else answers[0])


def _answer(run: Reply, text: str) -> dict[str, Any]:
    return {"text": text, "output_ids": run.ids, "meta_info": meta_info(run)}
