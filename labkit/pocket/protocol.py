"""What a request may say: every field checked, its name in the error, before the engine sees anything."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.errors import BadInput
from labkit.pocket.engine import Sampling

DEFAULT_NEW_TOKENS = 128  # SGLang's own default
MAX_STOPS = 32
MAX_STOP_LENGTH = 1024  # characters
_MISSING = object()

# SGLang's parameters that this engine does not implement: accepted only at the values that mean "off".
OFF: dict[str, tuple] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_new_tokens": (0,),
    "n": (1,),
    "beam_width": (1,),
    "stop_regex": ("", []),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
    "logit_bias": ({},),
    "custom_params": ({},),
    "stream_interval": (1,),
    "spaces_between_special_tokens": (True, False),
}
OFF_GENERATE: dict[str, tuple] = {
    "return_logprob": (False,),
    "logprob_start_len": (-1,),
    "top_logprobs_num": (0,),
    "token_ids_logprob": ([],),
    "return_text_in_logprobs": (False, True),
    "return_hidden_states": (False,),
    "log_metrics": (True, False),
    "return_routed_experts": (False,),
    "image_data": ([],),
    "lora_path": (),
    "session_params": ({},),
    "bootstrap_room": (),
    "bootstrap_host": (),
}
OFF_OPENAI: dict[str, tuple] = {
    "best_of": (1,),
    "n": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "use_beam_search": (False,),
    "add_special_tokens": (True,),
    "length_penalty": (1,),
    "cache_prompt": (False, True),
    "store": (False, True),
    "service_tier": ("auto", "default"),
}


@dataclass(frozen=True)
class Job:
    """One checked request. Times are seconds, ids are tokens."""

    prompt: list[int]
    sampling: Sampling
    stops: tuple[str, ...] = ()
    stream: bool = False
    skip_special_tokens: bool = True
    trim_stop: bool = True
    rid: str | None = None
    model: str | None = None
    usage: bool = False  # OpenAI streams: a last chunk with usage
    running_usage: bool = False  # usage in every chunk
    token_ids: bool = False  # OpenAI answers: each choice also lists its tokens, as vLLM does


@dataclass(frozen=True)
class Limits:
    """What the checks need to know of the model."""

    vocabulary: int
    context: int


def parse(body: bytes) -> dict[str, Any]:
    """A request body as a JSON object. BadInput "body" for anything else, text with lone surrogates included.

    NaN and infinities pass here, so that the field which holds one can be named.
    """
    try:
        document = json.loads(body)
        if rb"\ud" in body.lower():
            json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate is text that nobody can encode
    except RecursionError:
        raise BadInput("body", body[:40], "JSON that is nested less deeply") from None
    except ValueError as e:
        raise BadInput("body", body[:60], f"valid JSON ({_short(e)})") from None
    if not isinstance(document, dict):
        raise BadInput("body", document, "a JSON object")
    return document


def _short(e: Exception) -> str:
    return str(e).splitlines()[0][:120]


class Fields:
    """Reads a JSON object field by field; `done` refuses what nobody asked for."""

    def __init__(self, document: Mapping[str, Any], prefix: str = ""):
        self._left, self._prefix = dict(document), prefix

    def name(self, field: str) -> str:
        return self._prefix + field

    def take(self, field: str, default: Any = None) -> Any:
        """The raw value; null counts as absent."""
        value = self._left.pop(field, None)
        return default if value is None else value

    def number(self, field: str, default: float, low: float, high: float, *, above: bool = False) -> float:
        """A finite number of [low, high], or of (low, high] with `above`."""
        value = self.take(field, default)
        fits = _is_number(value) and (low < value if above else low <= value) and value <= high
        if not fits:
            raise BadInput(self.name(field), value, f"a number {'above' if above else 'from'} {low:g} to {high:g}")
        return float(value)

    def whole(self, field: str, default: int | None, low: int, high: int, *, also: tuple = ()) -> int | None:
        value = self.take(field, default)
        if value is None or value in also and _is_number(value):
            return None if value is None else int(value)
        if not _is_number(value) or value != int(value) or not low <= value <= high:
            raise BadInput(self.name(field), value, f"a whole number from {low} to {high}")
        return int(value)

    def flag(self, field: str, default: bool) -> bool:
        value = self.take(field, default)
        if not isinstance(value, bool):
            raise BadInput(self.name(field), value, "true or false")
        return value

    def text(self, field: str, default: str | None = None, *, longest: int = 256) -> str | None:
        value = self.take(field, default)
        if value is not None and (not isinstance(value, str) or len(value) > longest):
            raise BadInput(self.name(field), value, f"a string of at most {longest} characters")
        return value

    def inside(self, field: str) -> "Fields":
        value = self.take(field, {})
        if not isinstance(value, dict):
            raise BadInput(self.name(field), value, "a JSON object")
        return Fields(value, self.name(field) + ".")

    def off(self, table: Mapping[str, tuple]) -> None:
        """Fields that may only be given at a value that changes nothing."""
        for field, neutral in table.items():
            value = self.take(field)
            if value is not None and not any(value == n and type(value) in _kin(n) for n in neutral):
                accepted = " or ".join(json.dumps(n) for n in neutral) or "null"
                raise BadInput(self.name(field), value, f"{accepted} (the pocket engine does not implement it)")

    def done(self) -> None:
        if self._left:
            field, value = next(iter(self._left.items()))
            raise BadInput(self.name(field), value, "no such field here")


def _kin(value: Any) -> tuple[type, ...]:
    return (int, float) if type(value) in (int, float) else (type(value),)


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


# ---------------------------------------------------------------- SGLang's /generate


def read_generate(document: Mapping[str, Any], tokenizer, limits: Limits, seed: int) -> Job:
    """POST /generate. seed: used when the request brings none."""
    fields = Fields(document)
    sampling = fields.inside("sampling_params")
    stream, rid = fields.flag("stream", False), fields.text("rid")
    prompt = _prompt(fields, tokenizer, limits)
    fields.off(OFF_GENERATE)
    fields.done()
    new_tokens = sampling.whole("max_new_tokens", None, 0, limits.context)
    seed = sampling.whole("sampling_seed", seed, 0, 2**63 - 1)
    job = Job(
        prompt=prompt,
        stream=stream,
        rid=rid,
        stops=read_stops(sampling),
        skip_special_tokens=sampling.flag("skip_special_tokens", True),
        trim_stop=not sampling.flag("no_stop_trim", False),
        sampling=_sampling(sampling, new_tokens, DEFAULT_NEW_TOKENS, seed, len(prompt), limits),
    )
    sampling.off(OFF)
    sampling.done()
    return job


def _prompt(fields: Fields, tokenizer, limits: Limits) -> list[int]:
    text, ids = fields.take("text"), fields.take("input_ids")
    if (text is None) == (ids is None):
        raise BadInput("text, input_ids", "both" if text is not None else "neither", "exactly one of the two")
    if text is not None:
        if not isinstance(text, str):
            raise BadInput("text", text, "one string (one prompt a request)")
        return check_prompt("text", tokenizer.encode(text), limits)
    return check_ids("input_ids", ids, limits)


def check_ids(field: str, ids: Any, limits: Limits) -> list[int]:
    if not isinstance(ids, list) or any(type(i) is not int for i in ids):
        raise BadInput(field, ids, "one list of whole numbers (one prompt a request)")
    for i in ids:
        if not 0 <= i < limits.vocabulary:
            raise BadInput(field, i, f"token ids from 0 to {limits.vocabulary - 1}")
    return check_prompt(field, ids, limits)


def check_prompt(field: str, ids: list[int], limits: Limits) -> list[int]:
    if not 1 <= len(ids) < limits.context:
        raise BadInput(field, f"{len(ids)} tokens", f"1 to {limits.context - 1} (context_length is {limits.context})")
    return ids


def _sampling(fields: Fields, new_tokens: int | None, default: int, seed: int, prompt: int, limits: Limits) -> Sampling:
    """The part that /generate and the OpenAI routes share. new_tokens None: `default`, cut to the context's rest."""
    room = limits.context - prompt
    if new_tokens is None:
        new_tokens = min(default, room)
    elif new_tokens > room:
        raise BadInput(
            fields.name("max_new_tokens"),
            new_tokens,
            f"at most {room} beside a prompt of {prompt} tokens (context_length {limits.context})",
        )
    ends = fields.take("stop_token_ids", [])
    if not isinstance(ends, list) or len(ends) > 64 or any(type(i) is not int for i in ends):
        raise BadInput(fields.name("stop_token_ids"), ends, "a list of at most 64 whole numbers")
    for i in ends:
        if not 0 <= i < limits.vocabulary:
            raise BadInput(fields.name("stop_token_ids"), i, f"token ids from 0 to {limits.vocabulary - 1}")
    return Sampling(
        temperature=fields.number("temperature", 1.0, 0, 100),
        top_p=fields.number("top_p", 1.0, 0, 1, above=True),
        top_k=fields.whole("top_k", -1, 1, 2**30, also=(-1,)),
        min_p=fields.number("min_p", 0.0, 0, 1),
        max_new_tokens=new_tokens,
        ignore_eos=fields.flag("ignore_eos", False),
        stop_token_ids=tuple(ends),
        seed=seed,
    )


def read_stops(fields: Fields) -> tuple[str, ...]:
    stops = fields.take("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or any(not isinstance(s, str) or len(s) > MAX_STOP_LENGTH for s in stops)
    ):
        raise BadInput(
            fields.name("stop"),
            stops,
            f"a string or a list of at most {MAX_STOPS} strings of at most {MAX_STOP_LENGTH} characters",
        )
    return tuple(s for s in stops if s)


# ---------------------------------------------------------------- OpenAI's routes


def read_completion(document: Mapping[str, Any], tokenizer, limits: Limits, seed: int) -> Job:
    """POST /v1/completions."""
    fields = Fields(document)
    prompt = fields.take("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # a batch of one
    if isinstance(prompt, str):
        ids = check_prompt("prompt", tokenizer.encode(prompt), limits)
    else:
        ids = check_ids("prompt", prompt, limits)
    return _openai(fields, ids, 16, fields.whole("max_tokens", None, 1, limits.context), seed, limits)


def read_chat(document: Mapping[str, Any], tokenizer, limits: Limits, seed: int) -> Job:
    """POST /v1/chat/completions."""
    fields = Fields(document)
    messages = [_message(i, m) for i, m in enumerate(_list(fields, "messages"))]
    ids = check_prompt("messages", tokenizer.encode(tokenizer.chat(messages), special=False), limits)
    asked = fields.whole("max_completion_tokens", None, 1, limits.context)
    older = fields.whole("max_tokens", None, 1, limits.context)
    fields.off({"chat_template_kwargs": ({},), "reasoning_effort": ("none", "low", "medium", "high")})
    return _openai(fields, ids, limits.context, older if asked is None else asked, seed, limits)


def _openai(fields: Fields, ids: list[int], default: int, new_tokens: int | None, seed: int, limits: Limits) -> Job:
    options = fields.inside("stream_options")
    usage, running = options.flag("include_usage", False), options.flag("continuous_usage_stats", False)
    options.off({"include_obfuscation": (False, True)})
    options.done()
    fields.text("user"), fields.inside("metadata")
    own_seed = fields.whole("seed", seed, -(2**63), 2**63 - 1)
    least = fields.whole("min_tokens", 0, 0, limits.context)
    job = Job(
        prompt=ids,
        stream=fields.flag("stream", False),
        stops=read_stops(fields),
        token_ids=fields.flag("return_token_ids", False),
        model=fields.text("model"),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
        trim_stop=not fields.flag("no_stop_trim", False),
        rid=fields.text("rid"),
        usage=usage,
        running_usage=running,
        sampling=_sampling(fields, new_tokens, default, own_seed & (2**63 - 1), len(ids), limits),
    )
    if least and not job.sampling.ignore_eos:
        raise BadInput("min_tokens", least, "0, or any number beside ignore_eos true (which makes it hold by itself)")
    fields.off(OFF_OPENAI)
    fields.done()
    return job


def _list(fields: Fields, field: str) -> list:
    value = fields.take(field)
    if not isinstance(value, list) or not 1 <= len(value) <= 1024:
        raise BadInput(fields.name(field), value, "a list of 1 to 1024 entries")
    return value


def _message(i: int, message: Any) -> dict[str, str]:
    """{"role", "content"}; content a string, or OpenAI's list of {"type": "text", "text"} parts, joined."""
    name = f"messages[{i}]"
    if not isinstance(message, dict):
        raise BadInput(name, message, "an object with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise BadInput(f"{name}.role", role, "system, developer, user or assistant")
    if isinstance(content, list) and all(_is_text(part) for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise BadInput(f"{name}.content", content, "a string, or a list of text parts")
    return {"role": "system" if role == "developer" else role, "content": content}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
