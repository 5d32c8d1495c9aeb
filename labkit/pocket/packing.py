"""A plan of what goes where in memory, filled from the weights layer by layer."""

from dataclasses import dataclass, field

import numpy as np

from labkit.pocket import tiles
from labkit.pocket.loader import Weights
from labkit.pocket.options import Options
from labkit.pocket.tiles import BLOCK, E4M3_AS_BF16, E4M3_VALUES, TILE


@dataclass
class Plan:
    """What goes where, before it is copied: chunks of bytes at 64-byte boundaries, in reading order."""

    layers: int
    chunks: list[tuple[int, np.ndarray]] = field(default_factory=list)
    at: dict[tuple[int, str], int] = field(default_factory=dict)
    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    size: int = 0

    def add(self, layer: int, slot: str, array: np.ndarray) -> None:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.chunks.append((self.size, flat))
        self.at[layer, slot], self.sizes[layer, slot] = self.size, flat.nbytes
        self.size += -(-flat.nbytes // 64) * 64


class Packer:
    """Fills a Plan from weights, layer by layer."""

    def __init__(self, weights: Weights, options: Options, jit: bool):
        self.w, self.c, self.options, self.jit = weights, weights.config, options, jit
        self.plan = Plan(self.c.num_hidden_layers + 2)
        self.expert_bytes = self.expert_down = 0

    def matrix(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """FP8 tensor -> codes uint8 [N, K] and one scale per row and block of 128 k [N, K/128]."""
        codes = tiles.without_subnormals(self.w.tensor(name).view(np.uint8))
        scale = np.repeat(self.w.tensor(name + "_scale_inv"), BLOCK, 0)[: len(codes)]
        return codes, scale

    def dense(self, layer: int, slot: str, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
        codes, scale = (np.concatenate(p) for p in zip(*parts, strict=True))
        self.dense_tiles(layer, slot, codes, scale)

    def dense_tiles(self, layer: int, slot: str, codes: np.ndarray, scale: np.ndarray) -> None:
        kind, scale = self.options.dense_dtype, scale[::TILE]
        if kind == "int8":
            whole, unit = tiles.in_units(E4M3_VALUES[codes])
            packed, scale = tiles.int8_tiles(whole), scale * unit
        else:
            packed = tiles.bf16_tiles(E4M3_AS_BF16[codes]) if kind == "bf16" else tiles.fp8_tiles(codes)
        # Scales first: they are read first.
        self.plan.add(layer, slot + "_SCALE", scale.astype(np.float32))
        self.plan.add(layer, slot, packed)

    def gate_up(self, layer: int, prefix: str) -> None:
        gate, up = self.matrix(prefix + "gate_proj.weight"), self.matrix(prefix + "up_proj.weight")
        self.dense_tiles(layer, "GATE_UP", tiles.in_turns(gate[0], up[0]), tiles.in_turns(gate[1], up[1]))
        self.dense(layer, "DOWN", [self.matrix(prefix + "down_proj.weight")])

    def kda(self, layer: int, prefix: str) -> None:
        c, t = self.c, self.w.tensor
        self.dense(layer, "ATTN_IN", [self.matrix(f"{prefix}{x}_proj.weight") for x in "qkvfg"])
        self.plan.add(layer, "BETA", t(prefix + "b_proj.weight", c.num_attention_heads, c.hidden_size))
        self.plan.add(layer, "CONV", np.concatenate([t(f"{prefix}{x}_conv1d.weight") for x in "qkv"]).T)
        self.plan.add(layer, "DECAY_RATE", np.exp(t(prefix + "A_log")))
        self.plan.add(layer, "DECAY_BIAS", t(prefix + "dt_bias"))
        self.plan.add(layer, "HEAD_NORM", t(prefix + "o_norm.weight"))
        self.dense(layer, "ATTN_OUT", [self.matrix(prefix + "o_proj.weight")])

    def mla(self, layer: int, prefix: str) -> None:
        c = self.c
        self.dense(
            layer, "ATTN_IN", [self.matrix(f"{prefix}{x}.weight") for x in ("q_proj", "kv_a_proj_with_mqa", "g_proj")]
        )
        self.plan.add(layer, "KV_NORM", self.w.tensor(prefix + "kv_a_layernorm.weight"))
        codes, scale = self.matrix(prefix + "kv_b_proj.weight")
        heads, d = c.num_attention_heads, c.head_dim
        codes, scale = codes.reshape(heads, 2 * d, -1), scale.reshape(heads, 2 * d, -1)
        # Absorbed: a head's keys as [latent, d], so that they take the query into latent space.
        keys = codes[:, :d].transpose(0, 2, 1).reshape(-1, d)
        self.dense_tiles(layer, "K_UP", keys, np.repeat(scale[:, 0], c.kv_lora_rank, 0))
        self.dense_tiles(layer, "V_UP", codes[:, d:].reshape(heads * d, -1), scale[:, d:].reshape(heads * d, -1))
        self.dense(layer, "ATTN_OUT", [self.matrix(prefix + "o_proj.weight")])

    def experts(self, layer: int, prefix: str) -> None:
        t = self.w.tensor
        self.plan.add(layer, "ROUTER", tiles.f32_tiles(t(prefix + "gate.weight")))
        self.plan.add(layer, "ROUTER_BIAS", t(prefix + "gate.expert_bias"))
        self.gate_up(layer, prefix + "shared_experts.")
        pack = tiles.mxfp4_tiles if self.jit else tiles.mxfp4_rows
        inter, out = self.c.moe_intermediate_size, []
        gate_up = [t(f"{prefix}experts.gate_up_{x}") for x in ("codes", "scales")]
        down = [t(f"{prefix}experts.down_{x}") for x in ("codes", "scales")]
        for i in range(self.c.num_experts):
            first = pack(*(tiles.in_turns(x[i, :inter], x[i, inter:]) for x in gate_up))
            second = pack(down[0][i], down[1][i])
            self.expert_down, self.expert_bytes = first.nbytes, first.nbytes + second.nbytes
            out += [first, second]
        self.plan.add(layer, "EXPERTS", np.concatenate(out))

    def layer(self, layer: int) -> None:
        prefix = f"model.layers.{layer}."
        self.plan.add(layer, "INPUT_NORM", self.w.tensor(prefix + "input_layernorm.weight"))
        (self.mla if self.c.is_mla(layer) else self.kda)(layer, prefix + "attention.")
        self.plan.add(layer, "POST_NORM", self.w.tensor(prefix + "post_attention_layernorm.weight"))
        if self.c.is_moe(layer):
            self.experts(layer, prefix + "mlp.")
        else:
            self.gate_up(layer, prefix + "mlp.")

    def nextn(self) -> None:
        n, t = self.c.num_hidden_layers, self.w.tensor
        prefix = f"model.layers.{n}."
        self.plan.add(n, "EMBED_NORM", t(prefix + "enorm.weight"))
        self.plan.add(n, "HIDDEN_NORM", t(prefix + "hnorm.weight"))
        self.dense(n, "MIX", [self.matrix(prefix + "eh_proj.weight")])
        self.layer(n)
        self.plan.add(n, "FINAL_NORM", t(prefix + "final_layernorm.weight"))

    def head(self, slot: str, words: np.ndarray) -> None:
        whole = self.c.num_hidden_layers + 1
        if self.options.fp8_lm_head:
            codes, scale = tiles.quantise_head(words)
            self.plan.add(whole, slot + "_SCALE", scale)
            self.plan.add(whole, slot, tiles.fp8_tiles(codes))
        else:
            self.plan.add(whole, slot, tiles.bf16_tiles(words))

    def run(self, draft_ids: np.ndarray | None) -> Plan:
        c, whole = self.c, self.c.num_hidden_layers + 1
        for layer in range(c.num_hidden_layers):
            self.layer(layer)
        self.plan.add(whole, "FINAL_NORM", self.w.tensor("model.norm.weight"))
        words = self.w.tensor("lm_head.weight", c.vocab_size, c.hidden_size).view(np.uint16)
        self.head("HEAD", words)
        if self.options.speculative:
            self.nextn()
            if draft_ids is not None:
                self.head("DRAFT_HEAD", words[draft_ids])
        return self.plan
