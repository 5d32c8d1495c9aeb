"""SGLang's /generate."""

from collections.abc import Mapping
from typing import Any

from labkit.errors import BadInput
from labkit.pocket.engine import Scoring
from labkit.pocket.protocol import job as jobs
from labkit.pocket.protocol.fields import Fields
from labkit.pocket.protocol.job import Batch, Job, Limits

DEFAULT_NEW_TOKENS = 128  # SGLang's own default
OFF_GENERATE: dict[str, tuple] = {
    "token_ids_logprob": ([],),
    "return_hidden_states": (False,),
    "return_routed_experts": (False,),
    "image_data": ([],),
    "lora_path": (),
    "session_params": ({},),
    "bootstrap_room": (),
    "bootstrap_host": (),
}


def read_generate(document: Mapping[str, Any], tokenizer, limits: Limits, seed: int) -> Batch:
    """POST /generate. seed: used when the request brings none."""
    fields = Fields(document)
    prompts, listed = _prompts(fields, tokenizer, limits)
    sampling = fields.take("sampling_params", {})
    each = sampling if isinstance(sampling, list) else [sampling] * len(prompts)
    if len(each) != len(prompts) or not all(isinstance(s, dict) for s in each):
        raise BadInput("sampling_params", sampling, "a JSON object, or a list of one for each prompt")
    rids = _rids(fields, len(prompts))
    start = fields.whole("logprob_start_len", -1, 0, limits.context, also=(-1,))
    top = fields.whole("top_logprobs_num", 0, 0, jobs.MAX_TOP)
    scoring = Scoring(top, None if start == -1 else start) if fields.flag("return_logprob", False) else None
    common = {
        "stream": fields.flag("stream", False),
        "text_scores": fields.flag("return_text_in_logprobs", False),
        "scoring": scoring,
    }
    fields.off(OFF_GENERATE)
    fields.ignore("model", "log_metrics", "priority", "extra_key", "custom_labels", "routing_key")
    fields.done()
    read = [
        _job(Fields(s, "sampling_params."), ids, seed, limits, rid=rid, **common)
        for s, ids, rid in zip(each, prompts, rids, strict=True)
    ]
    samples = read[0][1]
    if any(n != samples for _, n in read):
        raise BadInput("sampling_params.n", [n for _, n in read], "the same number for every prompt")
    made = jobs.multiply([job for job, _ in read], samples, "sampling_params.n")
    return Batch(made, listed or samples > 1)


def _job(sampling: Fields, ids: list[int], seed: int, limits: Limits, **common: Any) -> tuple[Job, int]:
    """One prompt's job, and how many samples are wanted of it."""
    if common["scoring"] is not None and (common["scoring"].start or 0) > len(ids):
        raise BadInput("logprob_start_len", common["scoring"].start, f"-1, or 0 to {len(ids)}, the prompt's length")
    new_tokens = sampling.whole("max_new_tokens", None, 0, limits.context)
    seed = sampling.whole("sampling_seed", seed, 0, jobs.SEEDS - 1)
    n = sampling.whole("n", 1, 1, jobs.MAX_SAMPLES)
    job = Job(
        prompt=ids,
        grammar=jobs.read_grammar(sampling),
        sampling=jobs.read_sampling(sampling, new_tokens, DEFAULT_NEW_TOKENS, seed, len(ids), limits),
        **jobs.read_output(sampling, limits),
        **common,
    )
    sampling.off(jobs.OFF)
    sampling.done()
    return job, n


def _prompts(fields: Fields, tokenizer, limits: Limits) -> tuple[list[list[int]], bool]:
    """The prompts' tokens, and whether they came as a list."""
    text, ids = fields.take("text"), fields.take("input_ids")
    if (text is None) == (ids is None):
        raise BadInput("text, input_ids", "both" if text is not None else "neither", "exactly one of the two")
    field, value = ("input_ids", ids) if text is None else ("text", text)
    listed = isinstance(value, list) and (text is not None or any(isinstance(v, list) for v in value))
    if not listed:
        return [_prompt(field, value, tokenizer, limits)], False
    if not 1 <= len(value) <= jobs.MAX_PROMPTS:
        raise BadInput(field, f"a list of {len(value)}", f"1 to {jobs.MAX_PROMPTS} prompts")
    return [_prompt(field, v, tokenizer, limits) for v in value], True


def _prompt(field: str, value: Any, tokenizer, limits: Limits) -> list[int]:
    if field == "input_ids":
        return jobs.check_ids(field, value, limits)
    if not isinstance(value, str):
        raise BadInput(field, value, "a string, or a list of strings")
    return jobs.check_prompt(field, tokenizer.encode(value), limits)


def _rids(fields: Fields, count: int) -> list[str | None]:
    rid = fields.take("rid")
    rids = rid if isinstance(rid, list) else [rid] if count == 1 else [rid and f"{rid}_{i}" for i in range(count)]
    if len(rids) != count or not all(r is None or isinstance(r, str) and len(r) <= 256 for r in rids):
        raise BadInput("rid", rid, "a string of at most 256 characters, or a list of one for each prompt")
    return rids
