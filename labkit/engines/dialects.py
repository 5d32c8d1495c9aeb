"""How a request is put to an engine and how its stream is read: one small value for each way that servers speak.

Measuring code knows one stream, SGLang's (`text`, `output_ids`, `meta_info` in every event); a dialect rewrites what
another server sends into that, after its arrival was timed, and says what that server does not report.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from labkit.errors import BadInput


class Counters(Protocol):
    """Counts around a request: `counters` before it, `settled` after it, `spent` of the two as spec_* fields."""

    def counters(self, url: str, api_key: str | None) -> Mapping[str, float]: ...
    def settled(self, url: str, api_key: str | None, before: Mapping[str, float], n: int) -> Mapping[str, float]: ...
    def spent(self, before: Mapping[str, float], after: Mapping[str, float], n: int) -> dict: ...


Read = Callable[[bytes], list[bytes]]


@dataclass(frozen=True)
class Dialect:
    """One way to ask for a streamed generation.

    body(text, ids, sampling)  the request's document; exactly one of text and ids is given; sampling has SGLang's names
    reader()    for one answer: a function from an event's data to events in SGLang's form; None where it has that
    flush       whether /flush_cache empties the prefix cache; without it the request itself keeps out of the cache or
                the answer says how much came from there, else that is a doubt in every row
    counters    cumulative counts of drafting of the whole server, read before and after each request, for engines that
                report none with the answer; None elsewhere
    counts_experts  whether it has SGLang's routes that count which experts are chosen
    drafts_vary     whether a round drafts as many tokens as the engine finds worth it, so that rounds differ by nature
    unsaid      what an engine that speaks like this does not report, for people
    """

    name: str
    path: str
    body: Callable[[str | None, list[int] | None, Mapping[str, Any]], dict]
    reader: Callable[[], Read] | None = None
    flush: bool = False
    counts_experts: bool = False
    counters: Counters | None = None
    drafts_vary: bool = False
    unsaid: tuple[str, ...] = ()


def _sglang_body(text: str | None, ids: list[int] | None, sampling: Mapping[str, Any]) -> dict:
    prompt = {"text": text} if text is not None else {"input_ids": ids}
    return {**prompt, "sampling_params": dict(sampling), "stream": True}


SGLANG = Dialect("SGLang /generate", "/generate", _sglang_body, flush=True, counts_experts=True)


# ---------------------------------------------------------------- llama.cpp


def _llamacpp_body(text: str | None, ids: list[int] | None, sampling: Mapping[str, Any]) -> dict:
    """llama.cpp's own defaults for top_k, top_p and min_p would narrow the choice where SGLang's do not."""
    top_k = sampling.get("top_k", -1)
    body = {
        "prompt": text if text is not None else ids,
        "n_predict": sampling["max_new_tokens"],
        "temperature": sampling.get("temperature", 1.0),
        "top_k": max(top_k, 0),
        "top_p": sampling.get("top_p", 1.0),
        "min_p": sampling.get("min_p", 0.0),
        "ignore_eos": bool(sampling.get("ignore_eos")),
        "cache_prompt": False,
        "return_tokens": True,
        "stream": True,
    }
    if sampling.get("stop"):
        body["stop"] = sampling["stop"]
    if "sampling_seed" in sampling:
        body["seed"] = sampling["sampling_seed"] % 2**32
    return body


def _llamacpp_reader() -> Read:
    def read(data: bytes) -> list[bytes]:
        document = _object(data)
        if document is None or document.get("error"):
            return [data]
        meta: dict[str, Any] = {}
        for theirs, ours in (("tokens_predicted", "completion_tokens"), ("tokens_evaluated", "prompt_tokens")):
            if theirs in document:
                meta[ours] = document[theirs]
        if document.get("stop") is True:
            meta |= _llamacpp_end(document)
        return [_native(document.get("content"), document.get("tokens"), meta)]

    return read


def _llamacpp_end(document: Mapping[str, Any]) -> dict[str, Any]:
    timings = document.get("timings") or {}
    n, accepted, proposed = (timings.get(k) for k in ("predicted_n", "draft_n_accepted", "draft_n"))
    kinds = str((document.get("generation_settings") or {}).get("speculative.types", "none"))
    if accepted is None and set(kinds.split(",")) - {"none"}:
        accepted = proposed = 0  # it may draft, and found nothing to propose: every pass made one token
    meta: dict[str, Any] = {
        "finish_reason": {"type": {"limit": "length"}.get(str(document.get("stop_type")), "stop")},
        "cached_tokens": timings.get("cache_n"),
    }
    if timings.get("predicted_per_second"):
        meta["decode_throughput"] = timings["predicted_per_second"]
    return meta | rounds(n, accepted, proposed)


def rounds(n: int | None, accepted: int | None, proposed: int | None) -> dict[str, Any]:
    """Verify counts of a server that counts drafts, but not passes: {} without drafting.

    Prefill makes the first token, every later pass one and what it accepts, whether it drafted or not. Counts of
    drafting passes alone (llama.cpp's "mean len", vLLM's num_drafts) would leave out the passes that found no draft.
    """
    if n is None or accepted is None or n - 1 - accepted < 1:
        return {}
    return {
        "spec_verify_ct": n - 1 - accepted,
        "spec_num_correct_drafts": accepted,
        "spec_num_proposed_drafts": proposed,
    }


LLAMACPP = Dialect(
    "llama.cpp /completion",
    "/completion",
    _llamacpp_body,
    _llamacpp_reader,
    drafts_vary=True,
    unsaid=("acceptance by position", "CPU time of its decoding thread"),
)


# ---------------------------------------------------------------- OpenAI


def openai(
    model: str, *, chat: bool = False, extras: bool = False, salt: bool = False, counters: Counters | None = None
) -> Dialect:
    """/v1/completions or /v1/chat/completions of the model `model`.

    extras: it takes the fields that vLLM and SGLang add (top_k, min_p, ignore_eos, a token count in each chunk).
    salt: it takes cache_salt, so that no prompt is found in the prefix cache.
    Its body raises BadInput for token ids where there is only the chat route.
    """

    def body(text: str | None, ids: list[int] | None, sampling: Mapping[str, Any]) -> dict:
        prompt = text if text is not None else ids
        if chat and text is None:
            raise BadInput("workload", "token ids", "a load of text: this server takes chat messages alone")
        out: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        out |= {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": prompt}
        out["max_tokens"] = sampling["max_new_tokens"]
        out |= {k: sampling[k] for k in ("temperature", "top_p", "stop") if k in sampling}
        if "sampling_seed" in sampling:
            out["seed"] = sampling["sampling_seed"]
        if extras:
            out |= {k: sampling[k] for k in ("top_k", "min_p", "ignore_eos") if k in sampling}
            out["stream_options"]["continuous_usage_stats"] = True
        if salt:
            out["cache_salt"] = f"{time.time_ns():x}"
        return out

    unsaid = ["acceptance by position"] if counters else ["accept length"]
    if not extras:
        unsaid += ["the token count of each event", "a fixed output length"]
    if chat:
        unsaid += ["the prompt as it was read, with its chat template"]
    return Dialect(
        "OpenAI /v1/chat/completions" if chat else "OpenAI /v1/completions",
        "/v1/chat/completions" if chat else "/v1/completions",
        body,
        _openai_reader,
        counters=counters,
        drafts_vary=counters is not None,
        unsaid=tuple(unsaid),
    )


def _openai_reader() -> Read:
    def read(data: bytes) -> list[bytes]:
        document = _object(data)
        if document is None or document.get("error") or document.get("object") == "error":
            return [data]
        meta: dict[str, Any] = {}
        usage = document.get("usage")
        if isinstance(usage, dict):
            meta["prompt_tokens"], meta["completion_tokens"] = (
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
            )
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                meta["cached_tokens"] = details.get("cached_tokens")
        text, ids, end = "", None, []
        for choice in filter(_is_object, document.get("choices") or []):
            if choice.get("finish_reason"):
                # Apart from the text: SGLang may repeat an event to say that it was the last, these servers do not.
                end = [_native("", None, {"finish_reason": {"type": choice["finish_reason"]}})]
            said = choice["delta"] if _is_object(choice.get("delta")) else {}
            # The first token of any kind counts, so reasoning does too; servers differ in its name.
            parts = [choice.get("text"), *(said.get(k) for k in ("reasoning_content", "reasoning", "content"))]
            text += "".join(p for p in parts if isinstance(p, str))
            ids = choice.get("token_ids")
        return [_native(text, ids, {k: v for k, v in meta.items() if v is not None}), *end]

    return read


def _native(text: Any, ids: Any, meta: Mapping[str, Any]) -> bytes:
    return json.dumps({"text": text or "", "output_ids": ids or [], "meta_info": dict(meta)}).encode()


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _object(data: bytes) -> dict | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
