"""OpenAI's /v1/completions and /v1/chat/completions, with the fields that SGLang adds."""

from collections.abc import Mapping
from typing import Any

from labkit.errors import BadInput
from labkit.pocket.engine import Scoring
from labkit.pocket.protocol import job as jobs
from labkit.pocket.protocol.fields import Fields
from labkit.pocket.protocol.job import Batch, Grammar, Job, Limits

DEFAULT_NEW_TOKENS = 16  # of /v1/completions; a chat may fill the context
OFF_OPENAI: dict[str, tuple] = {
    "suffix": ("",),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "use_beam_search": (False,),
    "add_special_tokens": (True,),
    "length_penalty": (1,),
    "ebnf": (),
    "stop_regex": ("", []),
    "return_hidden_states": (False,),
    "lora_path": (),
}
# What routes, labels, caches or bills a request elsewhere, and what only reasoning models and tool parsers act on.
IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "cache_prompt",
    "cache_salt",
    "extra_key",
    "priority",
    "separate_reasoning",
    "stream_reasoning",
    "parallel_tool_calls",
    "verbosity",
)


def read_completion(document: Mapping[str, Any], tokenizer, limits: Limits, seed: int) -> Batch:
    """POST /v1/completions."""
    fields = Fields(document)
    prompts = _prompts(fields.take("prompt"), tokenizer, limits)
    new_tokens = fields.whole("max_tokens", None, 0, limits.context)
    echo = fields.flag("echo", False)
    logprobs = fields.take("logprobs")
    if isinstance(logprobs, bool) or logprobs is not None and not isinstance(logprobs, int):
        raise BadInput("logprobs", logprobs, f"a whole number from 0 to {jobs.MAX_TOP}")
    scoring = None
    if logprobs is not None:
        if not 0 <= logprobs <= jobs.MAX_TOP:
            raise BadInput("logprobs", logprobs, f"a whole number from 0 to {jobs.MAX_TOP}")
        scoring = Scoring(logprobs, 0 if echo else None)
    common, n = _common(fields, seed)
    sampling = fields.rest()
    made = [
        _job(
            sampling,
            ids,
            DEFAULT_NEW_TOKENS,
            new_tokens,
            limits,
            scoring=scoring,
            echo=tokenizer.decode(ids, skip_special_tokens=False) if echo else None,
            **common,
        )
        for ids in prompts
    ]
    return Batch(jobs.multiply(made, n, "n"))


def read_chat(document: Mapping[str, Any], tokenizer, limits: Limits, seed: int) -> Batch:
    """POST /v1/chat/completions."""
    fields = Fields(document)
    said = fields.take("messages")
    if not isinstance(said, list) or not 1 <= len(said) <= 1024:
        raise BadInput("messages", said, "a list of 1 to 1024 entries")
    messages = [_message(i, m) for i, m in enumerate(said)]
    ids = tokenizer.encode(tokenizer.chat(messages, _for_template(fields)), special=False)
    jobs.check_prompt("messages", ids, limits)
    asked = fields.whole("max_completion_tokens", None, 1, limits.context)
    older = fields.whole("max_tokens", None, 1, limits.context)
    top = fields.whole("top_logprobs", 0, 0, jobs.MAX_TOP)
    scoring = Scoring(top) if fields.flag("logprobs", False) else None
    if top and scoring is None:
        raise BadInput("top_logprobs", top, "nothing without logprobs true")
    common, n = _common(fields, seed)
    new_tokens = older if asked is None else asked
    made = _job(fields.rest(), ids, limits.context, new_tokens, limits, scoring=scoring, **common)
    return Batch(jobs.multiply([made], n, "n"))


def _for_template(fields: Fields) -> dict[str, Any]:
    """What the chat template sees besides the messages; a template ignores what it does not know."""
    tools, choice = fields.take("tools", []), fields.take("tool_choice", "auto")
    if not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools):
        raise BadInput("tools", tools, "a list of objects")
    if choice not in ("none", "auto"):
        raise BadInput("tool_choice", choice, '"none" or "auto" (the pocket engine cannot force a call)')
    modalities = fields.take("modalities", ["text"])
    if modalities != ["text"]:
        raise BadInput("modalities", modalities, '["text"]')
    given = fields.inside("chat_template_kwargs").rest()
    if (effort := fields.text("reasoning_effort")) is not None:
        given.setdefault("reasoning_effort", effort)
    return given | {"tools": tools if tools and choice != "none" else None}


def _common(fields: Fields, seed: int) -> tuple[dict[str, Any], int]:
    """What every job of the request shares, and n."""
    options = fields.inside("stream_options")
    usage, running = options.flag("include_usage", False), options.flag("continuous_usage_stats", False)
    options.off({"include_obfuscation": (False, True)})
    options.done()
    n = fields.whole("n", 1, 1, jobs.MAX_SAMPLES)
    best_of = fields.whole("best_of", n, 1, jobs.MAX_SAMPLES)
    if best_of != n:
        raise BadInput("best_of", best_of, f"{n}, the same as n")
    common = {
        "stream": fields.flag("stream", False),
        "token_ids": fields.flag("return_token_ids", False),
        "model": fields.text("model", longest=4096),
        "rid": fields.text("rid"),
        "usage": usage,
        "running_usage": running,
        "every_step": True,
        "text_scores": True,
        "seed": fields.whole("seed", seed, -jobs.SEEDS, jobs.SEEDS - 1) % jobs.SEEDS,
        "grammar": _grammar(fields),
    }
    fields.ignore(*IGNORED)
    fields.off(OFF_OPENAI)
    return common, n


def _grammar(fields: Fields) -> Grammar | None:
    """response_format, or SGLang's own json_schema and regex."""
    form = fields.inside("response_format")
    kind, described = form.choice("type", "text", "json_object", "json_schema"), form.inside("json_schema")
    schema = described.take("schema")
    described.ignore("name", "description", "strict")
    described.done()
    form.done()
    if kind == "json_object":
        return Grammar("json_schema", '{"type": "object"}', "response_format")
    if kind == "json_schema":
        return jobs.read_grammar(Fields({"json_schema": schema or ""}, "response_format.json_schema."))
    return jobs.read_grammar(fields)


def _job(
    document: Mapping[str, Any], ids: list[int], default: int, new_tokens: int | None, limits: Limits, **common: Any
) -> Job:
    fields, seed = Fields(document), common.pop("seed")
    least = fields.whole("min_tokens", 0, 0, limits.context)
    job = Job(
        prompt=ids,
        sampling=jobs.read_sampling(fields, new_tokens, default, seed, len(ids), limits),
        **jobs.read_output(fields, limits),
        **common,
    )
    if least and not job.sampling.ignore_eos:
        raise BadInput("min_tokens", least, "0, or any number beside ignore_eos true (which makes it hold by itself)")
    fields.done()
    return job


def _prompts(prompt: Any, tokenizer, limits: Limits) -> list[list[int]]:
    """One prompt (text or ids) or a list of them."""
    several = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
    if several and len(prompt) > jobs.MAX_PROMPTS:
        raise BadInput("prompt", f"a list of {len(prompt)}", f"at most {jobs.MAX_PROMPTS} prompts")
    return [
        jobs.check_prompt("prompt", tokenizer.encode(p), limits)
        if isinstance(p, str)
        else jobs.check_ids("prompt", p, limits)
        for p in (prompt if several else [prompt])
    ]


def _message(i: int, message: Any) -> dict[str, Any]:
    """A message for the chat template; content a string, or OpenAI's list of {"type": "text", "text"} parts, joined."""
    name = f"messages[{i}]"
    if not isinstance(message, dict):
        raise BadInput(name, message, "an object with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise BadInput(f"{name}.role", role, "system, developer, user, assistant or tool")
    if isinstance(content, list) and all(_is_text(part) for part in content):
        content = "".join(part["text"] for part in content)
    if content is None and role == "assistant":
        content = ""  # it only called tools
    if not isinstance(content, str):
        raise BadInput(f"{name}.content", content, "a string, or a list of text parts")
    kept = {k: message[k] for k in ("name", "tool_calls", "tool_call_id") if message.get(k) is not None}
    return {"role": "system" if role == "developer" else role, "content": content, **kept}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
