"""The pocket model's shape, and its config.json with the field names of BailingMoeV3 (Ling)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. Defaults are the shipped model; tests pass smaller ones."""

    vocab: int = 6144
    hidden: int = 384
    layers: int = 12
    mla_every: int = 6  # MLA at layers 5 and 11, KDA elsewhere
    heads: int = 4
    head_dim: int = 64  # KDA key and value width, MLA nope and value width
    rope_dim: int = 32
    kv_lora: int = 128
    conv: int = 4
    dense_layers: int = 2
    dense_inter: int = 768
    experts: int = 24
    top_k: int = 8
    inter: int = 128
    scaling: float = 2.5  # routed_scaling_factor
    gate_floor: float = -5.0  # kda_lower_bound: one token's log decay lies in (gate_floor, 0)
    rope_theta: float = 600000.0
    eps: float = 1e-6
    draft_steps: int = 3  # recursive NEXTN steps that training unrolls; not part of the weights

    @property
    def width(self) -> int:
        """Projected width of all heads, P."""
        return self.heads * self.head_dim

    def is_mla(self, layer: int) -> bool:
        return (layer + 1) % self.mla_every == 0


def config_json(s: Shape, eos: int, pad: int) -> dict:
    """config.json of the exported folder."""
    return {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "model_type": "bailing_hybrid",
        "vocab_size": s.vocab,
        "hidden_size": s.hidden,
        "intermediate_size": s.dense_inter,
        "num_hidden_layers": s.layers,
        "layer_group_size": s.mla_every,
        "first_k_dense_replace": s.dense_layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.heads,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "num_experts": s.experts,
        "num_experts_per_tok": s.top_k,
        "num_shared_experts": 1,
        "moe_intermediate_size": s.inter,
        "moe_shared_expert_intermediate_size": s.inter,
        "n_group": 1,
        "topk_group": 1,
        "score_function": "sigmoid",
        "moe_router_enable_expert_bias": True,
        "norm_topk_prob": True,
        "routed_scaling_factor": s.scaling,
        "router_dtype": "fp32",
        "kv_lora_rank": s.kv_lora,
        "q_lora_rank": None,
        "qk_nope_head_dim": s.head_dim,
        "qk_rope_head_dim": s.rope_dim,
        "qk_head_dim": s.head_dim + s.rope_dim,
        "v_head_dim": s.head_dim,
        "rope_theta": s.rope_theta,
        "rope_interleave": True,
        "rope_scaling": None,
        "short_conv_kernel_size": s.conv,
        "kda_lower_bound": s.gate_floor,
        "kda_safe_gate": True,
        "no_kda_lora": True,
        "gated_attention_proj_granularity_type": "element_wise",
        "rms_norm_eps": s.eps,
        "num_nextn_predict_layers": 1,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": eos,
        "pad_token_id": pad,
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "routed_experts_quant_method": "mxfp4",
            "modules_to_not_convert": ["lm_head", "model.word_embeddings"],
        },
    }
