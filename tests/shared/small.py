"""Small models and settings that tests of several rooms use."""

# The pocket model's architecture at a size that is worked out by hand; change fields with `|`.
BAILING = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "first_k_dense_replace": 1,
    "num_hidden_layers": 3,
    "layer_group_size": 3,
    "num_attention_heads": 2,
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 128,
    "moe_shared_expert_intermediate_size": 128,
    "kv_lora_rank": 128,
    "q_lora_rank": None,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "short_conv_kernel_size": 4,
    "no_kda_lora": True,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "gated_attention_proj_granularity_type": "element_wise",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
        "routed_experts_quant_method": "mxfp4",
        "modules_to_not_convert": ["lm_head", "model.word_embeddings"],
    },
}
# The shape of the shipped pocket model.
POCKET = BAILING | {
    "model_type": "bailing_hybrid",
    "vocab_size": 6144,
    "hidden_size": 384,
    "intermediate_size": 768,
    "first_k_dense_replace": 2,
    "num_hidden_layers": 12,
    "layer_group_size": 6,
    "num_attention_heads": 4,
    "num_experts": 24,
    "num_experts_per_tok": 8,
}
QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "moe_intermediate_size": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}


def drafting(steps: int = 3, topk: int = 1, tokens: int = 4) -> list[str]:
    """SGLang's flags for NEXTN drafts."""
    numbers = {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": tokens}
    flags = [word for name, n in numbers.items() for word in (f"--speculative-{name}", str(n))]
    return ["--speculative-algorithm", "NEXTN", *flags]
