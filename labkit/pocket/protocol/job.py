"""What the engine is asked for, and the checks that both dialects share."""

import json
from dataclasses import dataclass, replace
from typing import Any

from labkit.errors import BadInput
from labkit.pocket.engine import Sampling, Scoring
from labkit.pocket.protocol.fields import Fields

MAX_STOPS = 32
MAX_STOP_LENGTH = 1024  # characters
MAX_PROMPTS = 1024  # in one request, times n
MAX_SAMPLES = 64  # n
MAX_TOP = 100  # likeliest tokens beside each log-probability
MAX_GRAMMAR = 65536  # characters
SEEDS = 2**63

# SGLang's parameters that this engine does not implement: accepted only at the values that mean "off".
OFF: dict[str, tuple] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_new_tokens": (0,),
    "beam_width": (1,),
    "stop_regex": ("", []),
    "ebnf": (),
    "structural_tag": (),
    "logit_bias": ({},),
    "custom_params": ({},),
    "spaces_between_special_tokens": (True, False),
}


@dataclass(frozen=True)
class Grammar:
    """What the text must be: `text` is a JSON schema or a regular expression."""

    kind: str  # "json_schema" or "regex"
    text: str
    field: str


@dataclass(frozen=True)
class Job:
    """One prompt to continue once. Times are seconds, ids are tokens.

    index: its place in the answer. scoring: the log-probabilities it keeps. text_scores: their tokens' text, too.
    interval: a stream's chunk comes after this many tokens. every_step: no `--stream-pace` between chunks.
    """

    prompt: list[int]
    sampling: Sampling
    index: int = 0
    stops: tuple[str, ...] = ()
    stream: bool = False
    interval: int = 1
    every_step: bool = False
    skip_special_tokens: bool = True
    trim_stop: bool = True
    rid: str | None = None
    model: str | None = None
    usage: bool = False  # OpenAI streams: a last chunk with usage
    running_usage: bool = False  # usage in every chunk
    token_ids: bool = False  # OpenAI answers: each choice also lists its tokens, as vLLM does
    echo: str | None = None  # /v1/completions: the prompt's text, which comes before the answer's
    scoring: Scoring | None = None
    text_scores: bool = False
    grammar: Grammar | None = None


@dataclass(frozen=True)
class Batch:
    """A checked request: its jobs in the order of the answer. listed: SGLang answers with a list."""

    jobs: tuple[Job, ...]
    listed: bool = False

    @property
    def stream(self) -> bool:
        return self.jobs[0].stream


@dataclass(frozen=True)
class Limits:
    """What the checks need to know of the model."""

    vocabulary: int
    context: int


def multiply(jobs: list[Job], n: int, field: str) -> tuple[Job, ...]:
    """Each job n times, numbered, each sample with a seed of its own."""
    if len(jobs) * n > MAX_PROMPTS:
        raise BadInput(field, f"{len(jobs)} prompts, {n} samples each", f"at most {MAX_PROMPTS} answers per request")
    return tuple(
        replace(job, index=at * n + i, sampling=replace(job.sampling, seed=(job.sampling.seed + at * n + i) % SEEDS))
        for at, job in enumerate(jobs)
        for i in range(n)
    )


def check_ids(field: str, ids: Any, limits: Limits) -> list[int]:
    if not isinstance(ids, list) or any(type(i) is not int for i in ids):
        raise BadInput(field, ids, "a list of whole numbers, or a list of such lists")
    for i in ids:
        if not 0 <= i < limits.vocabulary:
            raise BadInput(field, i, f"token ids from 0 to {limits.vocabulary - 1}")
    return check_prompt(field, ids, limits)


def check_prompt(field: str, ids: list[int], limits: Limits) -> list[int]:
    if not 1 <= len(ids) < limits.context:
        raise BadInput(field, f"{len(ids)} tokens", f"1 to {limits.context - 1} (context_length is {limits.context})")
    return ids


def read_sampling(
    fields: Fields, new_tokens: int | None, default: int, seed: int, prompt: int, limits: Limits
) -> Sampling:
    """How to choose tokens. new_tokens None: `default`, cut to the context's rest beside `prompt` tokens."""
    room = limits.context - prompt
    if new_tokens is None:
        new_tokens = min(default, room)
    elif new_tokens > room:
        raise BadInput(
            fields.name("max_new_tokens"),
            new_tokens,
            f"at most {room} beside a prompt of {prompt} tokens (context_length {limits.context})",
        )
    return Sampling(
        temperature=fields.number("temperature", 1.0, 0, 100),
        top_p=fields.number("top_p", 1.0, 0, 1, above=True),
        top_k=fields.whole("top_k", -1, 1, 2**30, also=(-1,)),
        min_p=fields.number("min_p", 0.0, 0, 1),
        max_new_tokens=new_tokens,
        ignore_eos=fields.flag("ignore_eos", False),
        stop_token_ids=read_ends(fields, limits),
        seed=seed,
    )


def read_output(fields: Fields, limits: Limits) -> dict[str, Any]:
    """How the output is given, in SGLang's names, which both interfaces take: part of Job's fields."""
    return {
        "stops": read_stops(fields),
        "skip_special_tokens": fields.flag("skip_special_tokens", True),
        "trim_stop": not fields.flag("no_stop_trim", False),
        "interval": fields.whole("stream_interval", 1, 1, limits.context),
    }


def read_ends(fields: Fields, limits: Limits) -> tuple[int, ...]:
    ends = fields.take("stop_token_ids", [])
    if not isinstance(ends, list) or len(ends) > 64 or any(type(i) is not int for i in ends):
        raise BadInput(fields.name("stop_token_ids"), ends, "a list of at most 64 whole numbers")
    for i in ends:
        if not 0 <= i < limits.vocabulary:
            raise BadInput(fields.name("stop_token_ids"), i, f"token ids from 0 to {limits.vocabulary - 1}")
    return tuple(ends)


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


def read_grammar(fields: Fields) -> Grammar | None:
    """`json_schema` (a string of JSON or the schema itself) or `regex`; one at most."""
    schema, pattern = fields.take("json_schema"), fields.text("regex", longest=MAX_GRAMMAR)
    if schema is None:
        return Grammar("regex", pattern, fields.name("regex")) if pattern is not None else None
    if pattern is not None:
        raise BadInput(fields.name("regex"), pattern, "nothing beside json_schema")
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        kind = type(json.loads(text))
    except (ValueError, RecursionError):
        kind = str
    if kind not in (dict, bool) or len(text) > MAX_GRAMMAR:
        raise BadInput(fields.name("json_schema"), schema, f"a JSON schema of at most {MAX_GRAMMAR} characters")
    return Grammar("json_schema", text, fields.name("json_schema"))
