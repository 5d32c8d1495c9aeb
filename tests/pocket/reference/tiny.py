"""A model folder of a few hundred kilobytes in the pocket model's format, its weights drawn from a seed."""

import hashlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "model_type": "bailing_hybrid",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 160,
    "first_k_dense_replace": 1,
    "num_hidden_layers": 4,
    "layer_group_size": 2,
    "num_attention_heads": 2,
    "head_dim": 32,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 48,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "rope_theta": 600000,
    "short_conv_kernel_size": 4,
    "kda_lower_bound": -5.0,
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}


class Draw:
    """Random tensors in the stored formats, named and collected."""

    def __init__(self, seed: int):
        self.rng, self.tensors = np.random.default_rng(seed), {}

    def normal(self, *shape: int, scale: float | None = None) -> np.ndarray:
        return self.rng.standard_normal(shape) * (shape[-1] ** -0.5 if scale is None else scale)

    def f32(self, name: str, value: np.ndarray) -> None:
        self.tensors[name] = value.astype(np.float32)

    def bf16(self, name: str, value: np.ndarray) -> None:
        self.tensors[name] = value.astype(ml_dtypes.bfloat16)

    def fp8(self, name: str, n: int, k: int) -> None:
        blocks = (-(-n // 128), -(-k // 128))
        scale = self.rng.uniform(0.5, 2, blocks).astype(np.float32) / 64
        wide = np.repeat(np.repeat(scale, 128, 0)[:n], 128, 1)[:, :k]
        self.tensors[name] = (self.normal(n, k) / wide).astype(ml_dtypes.float8_e4m3fn)
        self.f32(name + "_scale_inv", scale)

    def mxfp4(self, name: str, e: int, n: int, k: int) -> None:
        self.tensors[name + "_codes"] = self.rng.integers(0, 256, (e, n, k // 2), np.uint8)
        middle = 127 + round(np.log2(k**-0.5 / 3))
        self.tensors[name + "_scales"] = self.rng.integers(middle - 1, middle + 2, (e, n, k // 32)).astype(np.uint8)

    def norm(self, name: str, n: int) -> None:
        self.f32(name, 1 + self.normal(n, scale=0.1))


def write(folder: Path, seed: int = 0, config: dict = CONFIG) -> Path:
    """Write config, one safetensors file and its index -> folder."""
    d, c = Draw(seed), config
    hidden, heads, width = c["hidden_size"], c["num_attention_heads"], c["head_dim"]
    p_width, value = heads * width, heads * c["v_head_dim"]
    d.bf16("model.word_embeddings.weight", d.normal(c["vocab_size"], hidden, scale=0.5))
    d.bf16("lm_head.weight", d.normal(c["vocab_size"], hidden))
    d.norm("model.norm.weight", hidden)

    def mla(p: str) -> None:
        rank, rope, nope = c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"]
        d.fp8(p + "q_proj.weight", heads * (nope + rope), hidden)
        d.fp8(p + "kv_a_proj_with_mqa.weight", rank + rope, hidden)
        d.norm(p + "kv_a_layernorm.weight", rank)
        d.fp8(p + "kv_b_proj.weight", heads * (nope + c["v_head_dim"]), rank)
        d.fp8(p + "g_proj.weight", value, hidden)
        d.fp8(p + "o_proj.weight", hidden, value)

    def kda(p: str) -> None:
        for name in "qkvfg":
            d.fp8(f"{p}{name}_proj.weight", p_width, hidden)
        d.bf16(p + "b_proj.weight", d.normal(heads, hidden))
        for name in "qkv":
            d.f32(f"{p}{name}_conv1d.weight", d.normal(p_width, 4, scale=0.4) + [0, 0, 0, 1])
        d.f32(p + "A_log", d.normal(heads, scale=0.2))
        d.f32(p + "dt_bias", d.rng.uniform(-7, -1, p_width))
        d.norm(p + "o_norm.weight", width)
        d.fp8(p + "o_proj.weight", hidden, p_width)

    def swiglu(p: str, inner: int) -> None:
        d.fp8(p + "gate_proj.weight", inner, hidden)
        d.fp8(p + "up_proj.weight", inner, hidden)
        d.fp8(p + "down_proj.weight", hidden, inner)

    def moe(p: str) -> None:
        d.f32(p + "gate.weight", d.normal(c["num_experts"], hidden))
        d.f32(p + "gate.expert_bias", d.normal(c["num_experts"], scale=0.1))
        d.mxfp4(p + "experts.gate_up", c["num_experts"], 2 * c["moe_intermediate_size"], hidden)
        d.mxfp4(p + "experts.down", c["num_experts"], hidden, c["moe_intermediate_size"])
        swiglu(p + "shared_experts.", c["moe_shared_expert_intermediate_size"])

    layers = c["num_hidden_layers"]
    for i in range(layers + 1):
        p = f"model.layers.{i}."
        d.norm(p + "input_layernorm.weight", hidden)
        d.norm(p + "post_attention_layernorm.weight", hidden)
        (mla if i == layers or (i + 1) % c["layer_group_size"] == 0 else kda)(p + "attention.")
        if i < c["first_k_dense_replace"]:
            swiglu(p + "mlp.", c["intermediate_size"])
        else:
            moe(p + "mlp.")
    p = f"model.layers.{layers}."
    for name in ("enorm", "hnorm", "final_layernorm"):
        d.norm(f"{p}{name}.weight", hidden)
    d.fp8(p + "eh_proj.weight", hidden, 2 * hidden)

    folder.mkdir(parents=True, exist_ok=True)
    file = "model-00001-of-00001.safetensors"
    save_file(d.tensors, folder / file)
    (folder / "config.json").write_text(json.dumps(config))
    digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    size = sum(t.nbytes for t in d.tensors.values())
    metadata = {"provenance": "generated", "total_size": size, "sha256": {file: digest}}
    index = {"metadata": metadata, "weight_map": dict.fromkeys(d.tensors, file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
