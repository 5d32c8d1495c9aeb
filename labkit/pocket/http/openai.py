"""OpenAI's routes: /v1/completions and /v1/chat/completions."""

import json
import time
import uuid
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labkit.pocket import protocol
from labkit.pocket.http import responses as answer
from labkit.pocket.http.queue import Desk
from labkit.pocket.http.run import Piece, Run

FINISH = {"stop": "stop", "length": "length", "abort": "abort"}


@dataclass(frozen=True)
class Shape:
    """What differs between the two routes."""

    prefix: str
    whole: str  # "object" of a whole answer
    part: str  # "object" of a streamed chunk
    chat: bool

    def choice(self, text: str, finish: str | None) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish}


COMPLETION = Shape("cmpl", "text_completion", "text_completion", chat=False)
CHAT = Shape("chatcmpl", "chat.completion", "chat.completion.chunk", chat=True)


async def complete(request: Request, desk: Desk, job: protocol.Job, shape: Shape, model: str) -> Response:
    """Answer one checked request. `model`: the name the server answers under; a request's own name is echoed."""
    job = replace(job, rid=job.rid or f"{shape.prefix}-{uuid.uuid4().hex}", model=job.model or model)
    if job.stream:
        return answer.Events(desk, job, lambda run: _Parts(run, shape))
    return JSONResponse(await answer.while_connected(request.receive, _whole(desk, job, shape)))


async def _whole(desk: Desk, job: protocol.Job, shape: Shape) -> dict[str, Any]:
    text = []
    async with desk.turn(job) as run:
        while (piece := await run.next()) is not None:
            text.append(piece.text)
    choice = shape.choice("".join(text), FINISH[run.finish["type"]])
    if job.token_ids:
        choice["token_ids"] = run.ids
    return _frame(job, shape.whole) | {"choices": [choice], "usage": run.usage()}


class _Parts:
    """Streamed chunks: everything but the text is the same each time and is made once."""

    def __init__(self, run: Run, shape: Shape):
        self._run, self._first, self._chat = run, True, shape.chat
        self._ids: list[int] = []  # tokens since the last chunk
        frame = json.dumps(_frame(run.job, shape.part), separators=(",", ":"))[:-1]
        self._head = f'data: {frame},"choices":['

    def chunk(self, piece: Piece) -> bytes:
        """b"" while no character is whole; the last piece brings the usage chunk along when it was asked for."""
        self._ids += piece.ids
        if not piece.text and not piece.last:
            return b""
        job, text = self._run.job, quoted(piece.text)
        if not self._chat:
            said = f'"text":{text}'
        elif self._first:
            said = f'"delta":{{"role":"assistant","content":{text}}}'
        else:
            said = f'"delta":{{"content":{text}}}'
        self._first = False
        if job.token_ids:
            said += f',"token_ids":{self._ids}'
        self._ids = []
        finish = quoted(FINISH[self._run.finish["type"]]) if piece.last else "null"
        usage = json.dumps(self._run.usage()) if job.running_usage else "null"
        end = f'{self._head}],"usage":{json.dumps(self._run.usage())}}}\n\n' if piece.last and job.usage else ""
        return (
            f'{self._head}{{"index":0,{said},"logprobs":null,"finish_reason":{finish}}}],"usage":{usage}}}\n\n{end}'
        ).encode()


def _frame(job: protocol.Job, kind: str) -> dict[str, Any]:
    return {"id": job.rid, "object": kind, "created": int(time.time()), "model": job.model}
