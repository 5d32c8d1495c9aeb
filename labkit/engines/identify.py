"""Who is serving: established by several signs of different kinds, never by one field and never by elimination."""

from dataclasses import dataclass

POCKET, SGLANG, LLAMACPP, UNKNOWN = "pocket", "sglang", "llamacpp", "unknown"

# Fields of SGLang's ServerArgs, which /server_info lists by name; a proxy that imitates /generate has no reason to.
_SERVER_ARGS = frozenset(
    """
    model_path tokenizer_path served_model_name load_format quantization context_length moe_runner_backend
    attention_backend sampling_backend grammar_backend kv_cache_dtype enable_fp32_lm_head mem_fraction_static
    max_running_requests chunked_prefill_size disable_radix_cache disable_cuda_graph disable_overlap_schedule
    speculative_algorithm speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens tp_size dp_size
    random_seed fp8_gemm_runner_backend page_size
""".split()
)
_LEAST_ARGS = 5
# What only the pocket engine describes.
_POCKET = frozenset("weights_sha256 lm_head_format kernel_variant moe_backend_name replicas bytes_per_step".split())


@dataclass(frozen=True)
class Identity:
    """engine: "pocket", "sglang" or "unknown"; signs: what speaks for it; open: why it is not established."""

    engine: str
    version: str | None = None
    signs: tuple[str, ...] = ()
    open: str = ""

    @property
    def known(self) -> bool:
        return self.engine != UNKNOWN


def identify(info: dict) -> Identity:
    """Who describes itself like this (a /server_info document, whole or allow-listed)."""
    version = info.get("version")
    version = str(version) if version not in (None, "") else None
    named = info.get("engine")
    if named is not None and named != POCKET:
        return Identity(UNKNOWN, version, open=f"it calls itself {str(named)[:40]!r}, which this lab does not know")
    if named == POCKET:
        own = sorted(_POCKET & info.keys())
        if own:
            return Identity(POCKET, version, ("engine is 'pocket'", f"fields of the pocket engine: {', '.join(own)}"))
        return Identity(UNKNOWN, version, open="it calls itself 'pocket' and has none of that engine's own fields")
    args = sorted(_SERVER_ARGS & info.keys())
    states = info.get("internal_states")
    signs = []
    if len(args) >= _LEAST_ARGS:
        signs.append(f"{len(args)} fields of SGLang's server arguments")
    if isinstance(states, list) and all(isinstance(s, dict) for s in states):
        signs.append("internal_states, one per scheduler")
    if "sglang" in str(info.get("launch_command", "")):
        signs.append("a launch command that names sglang")
    if len(signs) >= 2 and len(args) >= _LEAST_ARGS:
        return Identity(SGLANG, version, tuple(signs))
    told = ", ".join(sorted(map(str, info))[:6]) or "nothing"
    return Identity(UNKNOWN, version, tuple(signs), f"its description holds {told}: too little to tell the engine")
