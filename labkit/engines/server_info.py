"""What may be kept of a server's own description: SGLang's /server_info holds API keys, so there is an allow-list."""

import re

from labkit.errors import SECRET_NAME

# Fields of SGLang 0.5.23's ServerArgs and of the pocket engine that say what is being measured.
ALLOWED = frozenset(
    """
    engine version model_path served_model_name tokenizer_path load_format dtype quantization context_length
    model_name weights_provenance weights_sha256 provenance
    moe_runner_backend moe_a2a_backend flashinfer_mxfp4_moe_precision fp8_gemm_runner_backend fp4_gemm_runner_backend
    attention_backend prefill_attention_backend decode_attention_backend linear_attn_backend mamba_ssm_dtype
    sampling_backend grammar_backend enable_fp32_lm_head fp8_lm_head lm_head_format lm_head_dtype dense_dtype
    kv_cache_dtype page_size
    speculative_algorithm speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens
    speculative_draft_model_path speculative_draft_attention_backend speculative_attention_mode speculative_token_map
    speculative_accept_threshold_single speculative_accept_threshold_acc speculative_use_block_verification
    speculative_use_rejection_sampling speculative_moe_runner_backend simulate_acc_len
    kernel_variant kernel_variants kernels replicas replica_reason compile_seconds compile_s load_s bytes_per_step
    huge_pages threads compiler cpu faults
    max_running_requests max_total_num_tokens max_req_input_len max_total_tokens mem_fraction_static
    chunked_prefill_size disable_radix_cache disable_cuda_graph disable_overlap_schedule enable_metrics random_seed
    cuda_graph_max_bs cuda_graph_max_bs_decode cuda_graph_bs cuda_graph_bs_decode cuda_graph_backend_decode
    cuda_graph_backend_prefill disable_shared_experts_fusion disable_flashinfer_autotune enable_torch_compile
    tp_size dp_size ep_size pp_size device host port status pid started_unix startup_seconds
    internal_states
""".split()
)
_STATES = frozenset(
    """
    avg_spec_accept_length last_gen_throughput memory_usage step_time_dict effective_max_running_requests_per_dp
    max_running_requests requests running tokens
""".split()
)
_FLAG = re.compile(r"(--(?:admin-)?api-key|--ssl-keyfile-password)([ =]+)(\S+)")
_NAMED = re.compile(
    r"""(["']?\b(?:[a-z]+_)*(?:api_key|secret|password|passwd)["']?\s*[=:]\s*)(["'])((?:(?!\2).)+)\2""", re.IGNORECASE
)
_BEARER = re.compile(r"(Authorization: Bearer |Bearer )\S+", re.IGNORECASE)
HIDDEN = "(hidden)"


def allowed(document: dict) -> dict:
    """The fields of /server_info that a record may hold, scrubbed; adds launch_command without keys.

    Nothing outside the allow-list survives, nor any allowed string that contains the value of a key-like field.
    """
    secrets = _secrets(document)
    out = {k: _clean(v, secrets) for k, v in document.items() if k in ALLOWED and k != "internal_states"}
    states = document.get("internal_states")
    if isinstance(states, list):
        out["internal_states"] = [
            {k: _clean(v, secrets) for k, v in s.items() if k in _STATES} for s in states if isinstance(s, dict)
        ]
    if isinstance(document.get("launch_command"), str):
        out["launch_command"] = scrub(document["launch_command"], secrets)
    return out


def scrub(text: str, secrets: tuple[str, ...] | list[str] = ()) -> str:
    """A log line or command without keys: known secret values, --api-key X, api_key='X', Bearer X."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    text = _FLAG.sub(rf"\1\2{HIDDEN}", text)
    text = _NAMED.sub(rf"\1\2{HIDDEN}\2", text)
    return _BEARER.sub(rf"\1{HIDDEN}", text)


def _secrets(value: object, name: str = "") -> tuple[str, ...]:
    """String values of every key-like field, however deep."""
    if isinstance(value, dict):
        return tuple(s for k, v in value.items() for s in _secrets(v, str(k)))
    if isinstance(value, list):
        return tuple(s for v in value for s in _secrets(v, name))
    return (value,) if isinstance(value, str) and value and SECRET_NAME.search(name) else ()


def _clean(value: object, secrets: tuple[str, ...]) -> object:
    if isinstance(value, str):
        return scrub(value, secrets)
    if isinstance(value, dict):
        return {k: _clean(v, secrets) for k, v in value.items() if not SECRET_NAME.search(str(k))}
    if isinstance(value, list):
        return [_clean(v, secrets) for v in value]
    return value
