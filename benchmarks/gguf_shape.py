"""The pocket model's shape as llama.cpp's own architecture `bailingmoe3`: tensors, types, metadata and bytes a step.

llama.cpp knows this architecture, with three differences that the byte table shows:
- it has no FP8 type, so FP8 matrices become Q8_0: int8 and 1/16 byte of scale a weight, 6% more;
- its MLA output gate is one number a head, the pocket model's one an element (llama.cpp reads 2 x 95 kB less a step);
- the drafting (NEXTN) layer is left out: random weights accept no drafts, so plain decoding is what is compared.
Nothing here needs an optional package. Source of names and shapes: llama.cpp, src/models/bailingmoe3.cpp.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from labkit.errors import BadInput

ARCHITECTURE = "bailingmoe3"
BLOCK_BYTES = {"F32": (1, 4), "BF16": (1, 2), "Q8_0": (32, 34), "MXFP4": (32, 17)}  # weights a block, bytes a block
SIGMOID = 2  # llama.cpp's number for a sigmoid router


@dataclass(frozen=True)
class Tensor:
    """One GGUF tensor. shape: rows first (NumPy's order, the reverse of ggml's). share: part of it read in a step."""

    name: str
    shape: tuple[int, ...]
    kind: str
    group: str
    share: float = 1.0

    @property
    def bytes(self) -> int:
        """Bytes in the file; BadInput when the rows are not whole blocks."""
        block, size = BLOCK_BYTES[self.kind]
        if self.shape[-1] % block:
            raise BadInput(self.name, self.shape, f"rows of a multiple of {block} weights for {self.kind}")
        return prod(self.shape) // block * size

    @property
    def step_bytes(self) -> float:
        """Bytes that decoding one token reads."""
        return self.bytes * self.share


def full_attention(config: Mapping, layer: int) -> bool:
    """Whether `layer` is an MLA layer (the last of each group), else KDA."""
    return (layer + 1) % config["layer_group_size"] == 0


def tensors(config: Mapping) -> list[Tensor]:
    """Every tensor of the model in `config` (Ling's field names). BadInput names a field that is absent."""
    try:
        return _tensors(config)
    except KeyError as error:
        raise BadInput("config", f"no {error.args[0]}", "a BailingMoeV3 config.json") from None


def _tensors(config: Mapping) -> list[Tensor]:
    width, vocab = config["hidden_size"], config["vocab_size"]
    found = [
        Tensor("token_embd.weight", (vocab, width), "BF16", "embedding", 1 / vocab),
        Tensor("output_norm.weight", (width,), "F32", "norms"),
        Tensor("output.weight", (vocab, width), "BF16", "head"),
    ]
    for layer in range(config["num_hidden_layers"]):
        found.append(Tensor(f"blk.{layer}.attn_norm.weight", (width,), "F32", "norms"))
        found += _mla(config, layer) if full_attention(config, layer) else _kda(config, layer)
        found.append(Tensor(f"blk.{layer}.ffn_norm.weight", (width,), "F32", "norms"))
        dense = layer < config["first_k_dense_replace"]
        found += _mlp(config["intermediate_size"], width, layer, "") if dense else _moe(config, layer)
    return found


def _kda(config: Mapping, layer: int) -> list[Tensor]:
    heads, head, width = config["num_attention_heads"], config["head_dim"], config["hidden_size"]
    inner = heads * head

    def tensor(name: str, shape: tuple[int, ...], kind: str = "Q8_0") -> Tensor:
        return Tensor(f"blk.{layer}.{name}", shape, kind, "attention")

    names = ("attn_q", "attn_k", "attn_v", "ssm_f_a", "ssm_g_a")
    matrices = [tensor(f"{name}.weight", (inner, width)) for name in names]
    taps = [tensor(f"ssm_conv1d_{x}.weight", (1, inner, 1, config["short_conv_kernel_size"]), "F32") for x in "qkv"]
    return (
        matrices
        + taps
        + [
            tensor("ssm_beta.weight", (heads, width), "BF16"),
            tensor("ssm_a", (heads, 1), "F32"),
            tensor("ssm_dt.bias", (inner,), "F32"),
            tensor("ssm_norm.weight", (head,), "F32"),
            tensor("attn_output.weight", (width, inner)),
        ]
    )


def _mla(config: Mapping, layer: int) -> list[Tensor]:
    heads, width, rank = config["num_attention_heads"], config["hidden_size"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]

    def tensor(name: str, shape: tuple[int, ...], kind: str = "Q8_0") -> Tensor:
        return Tensor(f"blk.{layer}.{name}.weight", shape, kind, "attention")

    if config.get("q_lora_rank"):
        raise BadInput("q_lora_rank", config["q_lora_rank"], "null (only a direct query projection is known here)")
    return [
        tensor("attn_q", (heads * (nope + rope), width)),
        tensor("attn_kv_a_mqa", (rank + rope, width)),
        tensor("attn_kv_a_norm", (rank,), "F32"),
        tensor("attn_k_b", (heads, rank, nope)),
        tensor("attn_v_b", (heads, value, rank)),
        tensor("attn_gate", (heads, width)),
        tensor("attn_output", (width, heads * value)),
    ]


def _mlp(inner: int, width: int, layer: int, suffix: str) -> list[Tensor]:
    group = "shared experts" if suffix else "dense MLP"
    return [
        Tensor(f"blk.{layer}.ffn_{name}{suffix}.weight", shape, "Q8_0", group)
        for name, shape in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner)))
    ]


def _moe(config: Mapping, layer: int) -> list[Tensor]:
    experts, width, inner = config["num_experts"], config["hidden_size"], config["moe_intermediate_size"]
    share = config["num_experts_per_tok"] / experts
    routed = [
        Tensor(f"blk.{layer}.ffn_{name}_exps.weight", (experts, *shape), "MXFP4", "routed experts", share)
        for name, shape in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner)))
    ]
    shared = _mlp(config["moe_shared_expert_intermediate_size"], width, layer, "_shexp")
    return (
        [
            Tensor(f"blk.{layer}.ffn_gate_inp.weight", (experts, width), "F32", "router"),
            Tensor(f"blk.{layer}.exp_probs_b.bias", (experts,), "F32", "router"),
        ]
        + routed
        + shared
    )


def step_bytes(config: Mapping) -> dict[str, float]:
    """Bytes of weights that llama.cpp reads for one token, by group, plus "total" (no KV cache, no state)."""
    groups: dict[str, float] = {}
    for tensor in tensors(config):
        groups[tensor.group] = groups.get(tensor.group, 0.0) + tensor.step_bytes
    return groups | {"total": sum(groups.values())}


def metadata(config: Mapping) -> dict[str, int | float | bool | str | list]:
    """The GGUF key-value pairs of the architecture, without the tokenizer's; ints are uint32, floats float32."""
    layers, rank, rope = config["num_hidden_layers"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope = config["qk_nope_head_dim"]
    values = {
        "block_count": layers,
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "attention.head_count": config["num_attention_heads"],
        # llama.cpp takes a layer without KV heads for a recurrent one
        "attention.head_count_kv": [1 if full_attention(config, layer) else 0 for layer in range(layers)],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": nope + rope,
        "attention.value_length_mla": config["v_head_dim"],
        "rope.freq_base": float(config["rope_theta"]),
        "rope.dimension_count": rope,
        "expert_count": config["num_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
        "expert_shared_count": config["num_shared_experts"],
        "leading_dense_block_count": config["first_k_dense_replace"],
        "expert_gating_func": SIGMOID,
        "expert_weights_norm": bool(config["norm_topk_prob"]),
        "expert_weights_scale": float(config["routed_scaling_factor"]),
        "ssm.conv_kernel": config["short_conv_kernel_size"],
        "kda.head_dim": config["head_dim"],
        "kda.safe_gate": True,
        "kda.gate_lower_bound": float(config["kda_lower_bound"]),
    }
    return {f"{ARCHITECTURE}.{key}": value for key, value in values.items()}
