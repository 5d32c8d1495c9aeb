"""OpenAI's routes: /v1/completions and /v1/chat/completions."""

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labkit.pocket.http import responses, scores
from labkit.pocket.http.queue import RequestQueue
from labkit.pocket.http.reply import Piece, Reply
from labkit.pocket.protocol import Batch, Job

FINISH = {"stop": "stop", "length": "length", "abort": "abort"}


@dataclass(frozen=True)
class Form:
    """What differs between the two routes."""

    prefix: str
    whole: str  # "object" of a whole answer
    part: str  # "object" of a streamed chunk
    chat: bool

    def choice(self, run: Reply, text: str) -> dict[str, Any]:
        """A finished choice of a whole answer."""
        job = run.job
        message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        said = {"message": message} if self.chat else {"text": (job.echo or "") + text}
        made = {"index": job.index, **said, "logprobs": self.logprobs(run, 0, True), **_finish(run)}
        return made | ({"token_ids": run.ids} if job.token_ids else {})

    def logprobs(self, run: Reply, start: int, prompt: bool) -> dict[str, Any] | None:
        """Of the output tokens from `start` on, after the prompt's where they were asked for."""
        if run.job.scoring is None:
            return None
        scored = scores.of_output(run, start)
        if self.chat:
            return scores.chat(run, scored)
        return scores.completion(run, (scores.of_prompt(run) if prompt else []) + scored, 0)


COMPLETION = Form("cmpl", "text_completion", "text_completion", chat=False)
CHAT = Form("chatcmpl", "chat.completion", "chat.completion.chunk", chat=True)


async def complete(request: Request, queue: RequestQueue, batch: Batch, form: Form, model: str) -> Response:
    """Answer one checked request. `model`: the name the server answers under; a request's own name is echoed."""
    first = batch.jobs[0]
    rid = first.rid or f"{form.prefix}-{uuid.uuid4().hex}"
    batch = replace(batch, jobs=tuple(replace(job, rid=rid, model=job.model or model) for job in batch.jobs))
    if batch.stream:
        runs: list[Reply] = []

        def parts(run: Reply) -> _Parts:
            runs.append(run)
            return _Parts(run, form)

        return responses.Events(queue, batch, parts, lambda: _usage_chunk(runs, form) if first.usage else b"")
    finished: list[Reply] = []

    def choice(run: Reply, text: str) -> dict[str, Any]:
        finished.append(run)
        return form.choice(run, text)

    choices = await responses.whole(request, queue, batch, choice)
    return JSONResponse(_frame(batch.jobs[0], form.whole) | {"choices": choices, "usage": usage(finished)})


def usage(runs: Iterable[Reply]) -> dict[str, Any]:
    """OpenAI's token counts over all choices; a prompt counts once, however many samples it has."""
    runs = list(runs)
    prompts = {id(run.job.prompt): len(run.job.prompt) for run in runs}
    prompt, output = sum(prompts.values()), sum(len(run.ids) for run in runs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def _finish(run: Reply) -> dict[str, Any]:
    return {"finish_reason": FINISH[run.finish["type"]], "matched_stop": run.finish.get("matched")}


class _Parts:
    """Streamed chunks: everything but the text is the same each time and is made once."""

    def __init__(self, run: Reply, form: Form):
        self._run, self._form, self._first, self._chat = run, form, True, form.chat
        self._ids: list[int] = []  # tokens since the last chunk
        frame = json.dumps(_frame(run.job, form.part), separators=(",", ":"))[:-1]
        self._head = f'data: {frame},"choices":[{{"index":{run.job.index},'

    def chunk(self, piece: Piece) -> bytes:
        """b"" while no character is whole."""
        self._ids += piece.ids
        if not piece.text and not piece.last:
            return b""
        run, job, first = self._run, self._run.job, self._first
        text = quoted((job.echo or "") + piece.text if first else piece.text)
        if not self._chat:
            said = f'"text":{text}'
        elif first:
            said = f'"delta":{{"role":"assistant","content":{text}}}'
        else:
            said = f'"delta":{{"content":{text}}}'
        if job.token_ids:
            said += f',"token_ids":{self._ids}'
        scored = "null"
        if job.scoring is not None:
            scored = json.dumps(self._form.logprobs(run, len(run.ids) - len(self._ids), first))
        self._first, self._ids = False, []
        finish = json.dumps(_finish(run))[1:-1] if piece.last else '"finish_reason":null,"matched_stop":null'
        counts = json.dumps(usage([run])) if job.running_usage else "null"
        return f'{self._head}{said},"logprobs":{scored},{finish}}}],"usage":{counts}}}\n\n'.encode()


def _usage_chunk(runs: list[Reply], form: Form) -> bytes:
    document = _frame(runs[0].job, form.part) | {"choices": [], "usage": usage(runs)}
    return f"data: {json.dumps(document)}\n\n".encode()


def _frame(job: Job, kind: str) -> dict[str, Any]:
    return {"id": job.rid, "object": kind, "created": int(time.time()), "model": job.model}
