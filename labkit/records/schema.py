"""What a record holds. `run.json` describes the run, `requests.jsonl` has one line a request (schema version below)."""

SCHEMA = 1
META = "run.json"
LOG = "requests.jsonl"
TABLE = "requests.parquet"

# One row per request. Times in s, started_unix in s since 1970; repeat -1 is warm-up.
COLUMNS = {
    "arm": "which side of the comparison",
    "repeat": "pass over the prompts, -1 for warm-up",
    "index": "which prompt",
    "workload": "name of the load",
    "seed": "of the prompt and its sampling",
    "prompt_sha256": "digest of all that was sent; equal in every arm",
    "asked_sha256": "digest of the prompt alone, without sampling and seed",
    "temperature": "that was asked for",
    "prompt_tokens": "as the engine counted",
    "output_tokens": "as the engine counted (completion_tokens), else ids",
    "first_tokens": "tokens in the first event",
    "decode_tokens": "tokens after the first event: what the decode time was spent on",
    "asked_tokens": "max_new_tokens of the request",
    "sent_tokens": "prompt tokens that were sent, where the lab can count them",
    "tokens_server": "output tokens by completion_tokens",
    "tokens_ids": "output tokens by the ids received",
    "tokens_tokenizer": "tokens of the output text by the lab's own tokenizer",
    "tokens_events": "events that brought something new",
    "stream": "cumulative or incremental events, or one whole",
    "cached_tokens": "must be 0; empty where the server does not say",
    "ttft_s": "first token of any kind",
    "latency_s": "last new token",
    "tpot_s": "(latency - ttft) / decode_tokens",
    "accept_length": "output tokens per verify step; empty without speculation",
    "verify_ct": "verify steps",
    "correct_drafts": "drafts accepted",
    "proposed_drafts": "drafts proposed",
    "histogram": "verify steps by number of drafts accepted",
    "finish_reason": "length, stop, abort",
    "text_sha256": "digest of the output text (or ids)",
    "status": "ok, warmup, refused, error, cancelled",
    "error": "why, when not ok",
    "doubts": "why a number may not be trusted: kind and text (labkit.measure.doubts)",
    "started_unix": "clock when the request began",
    "flush_status": "HTTP status of the cache flush before it",
    "fixed_length": "whether ignore_eos fixed the output length",
    "server_latency_s": "the server's own e2e_latency, to hold the client's clock against",
    "server_decode_tok_s": "the server's own decode throughput, where it reports one",
    "thread_cpu_s": "CPU time of the engine's thread while decoding, where it reports it",
    "chunk_times": "arrival of every event with new tokens, s since send",
    "chunk_tokens": "completion_tokens at each of them",
}
