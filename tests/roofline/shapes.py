"""Small configs of every architecture, with sizes that no two fields share, and their parameters counted by hand."""

D, V = 40, 1000


def mla(heads=3, latent=16, rank=None, nope=8, rope=6, value=10, gate=0):
    """Parameters of one MLA layer; gate: rows of the output gate."""
    query = D * heads * (nope + rope) if rank is None else D * rank + rank + rank * heads * (nope + rope)
    return query + D * (latent + rope) + latent + latent * heads * (nope + value) + gate * D + heads * value * D


def kda(heads, head_dim, taps, low_rank=False):
    p = heads * head_dim
    gates = 2 * (D * head_dim + head_dim * p) if low_rank else 2 * D * p
    return 3 * D * p + gates + p * D + heads * D + 3 * p * taps + p + heads + head_dim


def moe(experts, inner, shared, bias=True):
    return experts * D + (experts if bias else 0) + 3 * D * inner * experts + 3 * D * shared


def grouped(heads=6, kv=2, width=7):
    return D * heads * width * 2 + 2 * D * kv * width


MLA_FIELDS = {"kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 10}
COMMON = {"vocab_size": V, "hidden_size": D, "torch_dtype": "bfloat16"}
ENDS = 2 * V * D + D

BAILING = (
    COMMON
    | MLA_FIELDS
    | {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "num_hidden_layers": 8,
        "layer_group_size": 3,
        "num_attention_heads": 3,
        "head_dim": 9,
        "short_conv_kernel_size": 4,
        "no_kda_lora": True,
        "num_experts": 12,
        "num_experts_per_tok": 5,
        "num_shared_experts": 2,
        "moe_intermediate_size": 11,
        "moe_shared_expert_intermediate_size": 13,
        "intermediate_size": 50,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
        "gated_attention_proj_granularity_type": "head_wise",
        "router_dtype": "fp32",
    }
)
# Layers 2 and 5 end a group; 6 and 7 are the ragged tail: four MLA layers, four KDA.
BAILING_TOTAL = ENDS + 4 * kda(3, 9, 4) + 4 * mla(gate=3) + 8 * 2 * D + 3 * D * 50 + 7 * moe(12, 11, 26)
BAILING_ACTIVE = BAILING_TOTAL - V * D + D - 7 * 3 * D * 11 * (12 - 5)
BAILING_NEXTN = 2 * D * D + 3 * D + mla(gate=3) + 2 * D + moe(12, 11, 26)

GPT_OSS = COMMON | {
    "architectures": ["GptOssForCausalLM"],
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 7,
    "intermediate_size": 11,
    "num_local_experts": 9,
    "num_experts_per_tok": 4,
    "sliding_window": 30,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"],
}
GPT_OSS_TOTAL = ENDS + 5 * (grouped() + (6 + 2 + 2) * 7 + D + 6 + 2 * D + moe(9, 11, 0) + 9 * (2 * 11 + D))
GPT_OSS_ACTIVE = GPT_OSS_TOTAL - V * D + D - 5 * (9 - 4) * (3 * D * 11 + 2 * 11 + D)

QWEN = COMMON | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 7,
    "intermediate_size": 50,
    "moe_intermediate_size": 11,
    "num_experts": 9,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [3],
}
# Layers 1 and 5 are sparse (every second, without 3).
QWEN_TOTAL = ENDS + 6 * (grouped() + 2 * 7 + 2 * D) + 4 * 3 * D * 50 + 2 * moe(9, 11, 0, bias=False)
QWEN_ACTIVE = QWEN_TOTAL - V * D + D - 2 * (9 - 4) * 3 * D * 11

DEEPSEEK = (
    COMMON
    | MLA_FIELDS
    | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 6,
        "num_attention_heads": 3,
        "q_lora_rank": 14,
        "intermediate_size": 50,
        "moe_intermediate_size": 11,
        "n_routed_experts": 9,
        "num_experts_per_tok": 4,
        "n_shared_experts": 2,
        "first_k_dense_replace": 2,
        "num_nextn_predict_layers": 1,
    }
)
DEEPSEEK_TOTAL = ENDS + 6 * (mla(rank=14) + 2 * D) + 2 * 3 * D * 50 + 4 * moe(9, 11, 22)
DEEPSEEK_ACTIVE = DEEPSEEK_TOTAL - V * D + D - 4 * (9 - 4) * 3 * D * 11
DEEPSEEK_NEXTN = 2 * D * D + 3 * D + mla(rank=14) + 2 * D + moe(9, 11, 22)

GLM = COMMON | {
    "architectures": ["Glm4MoeForCausalLM"],
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 7,
    "intermediate_size": 50,
    "moe_intermediate_size": 11,
    "n_routed_experts": 9,
    "num_experts_per_tok": 4,
    "n_shared_experts": 2,
    "first_k_dense_replace": 2,
    "attention_bias": True,
    "use_qk_norm": True,
    "num_nextn_predict_layers": 1,
}
GLM_LAYER = grouped() + 10 * 7 + 2 * 7 + 2 * D
GLM_TOTAL = ENDS + 6 * GLM_LAYER + 2 * 3 * D * 50 + 4 * moe(9, 11, 22)
GLM_ACTIVE = GLM_TOTAL - V * D + D - 4 * (9 - 4) * 3 * D * 11
GLM_NEXTN = 2 * D * D + 3 * D + GLM_LAYER + moe(9, 11, 22)

KIMI = (
    COMMON
    | MLA_FIELDS
    | {
        "architectures": ["KimiLinearForCausalLM"],
        "num_hidden_layers": 5,
        "num_attention_heads": 3,
        "intermediate_size": 50,
        "moe_intermediate_size": 11,
        "num_experts": 9,
        "num_experts_per_token": 4,
        "num_shared_experts": 2,
        "first_k_dense_replace": 1,
        "linear_attn_config": {
            "kda_layers": [1, 2, 4],
            "full_attn_layers": [3, 5],
            "num_heads": 4,
            "head_dim": 9,
            "short_conv_kernel_size": 3,
        },
    }
)
KIMI_TOTAL = ENDS + 3 * kda(4, 9, 3, low_rank=True) + 2 * mla() + 5 * 2 * D + 3 * D * 50 + 4 * moe(9, 11, 22)
KIMI_ACTIVE = KIMI_TOTAL - V * D + D - 4 * (9 - 4) * 3 * D * 11

ALL = {
    "bailing": (BAILING, BAILING_TOTAL, BAILING_ACTIVE, BAILING_NEXTN),
    "gpt-oss": (GPT_OSS, GPT_OSS_TOTAL, GPT_OSS_ACTIVE, 0),
    "qwen": (QWEN, QWEN_TOTAL, QWEN_ACTIVE, 0),
    "deepseek": (DEEPSEEK, DEEPSEEK_TOTAL, DEEPSEEK_ACTIVE, DEEPSEEK_NEXTN),
    "glm": (GLM, GLM_TOTAL, GLM_ACTIVE, GLM_NEXTN),
    "kimi": (KIMI, KIMI_TOTAL, KIMI_ACTIVE, 0),
}
