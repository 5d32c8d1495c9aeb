"""What a pass is made of, for models of its cost: pieces (Engine.piece), their parts, and the matrices of each part."""

from dataclasses import dataclass

from labkit.pocket.loader import PocketConfig
from labkit.pocket.options import Options
from labkit.pocket.tiles import TILE


@dataclass(frozen=True)
class Matrix:
    """Products of one shape in a part of a piece. kernel: as Engine.products names it; tiles: of 16 rows; k: columns;
    count: how often one run of the piece multiplies one (an expert's: for each of the top_k experts of a token)."""

    kernel: str
    tiles: int
    k: int
    bytes: int
    count: int = 1


_BITS = {"fp8": 8, "fp8 head": 8, "bf16": 16, "bf16 head": 16, "f32": 32, "int8": 8}


def matrices(c: PocketConfig, options: Options) -> dict[str, dict[str, list[Matrix]]]:
    """{piece: {part: matrices}}. dense_dtype must be resolved (not "auto")."""
    width, heads = c.num_attention_heads * c.head_dim, c.num_attention_heads
    latent = c.kv_lora_rank + c.qk_rope_head_dim

    def matrix(kernel: str, rows: int, k: int, count: int = 1) -> Matrix:
        tiles = -(-rows // TILE)
        return Matrix(kernel, tiles, k, tiles * TILE * k * _BITS[kernel] // 8, count)

    def dense(rows: int, k: int, count: int = 1) -> Matrix:
        return matrix(options.dense_dtype, rows, k, count)

    def expert(kernel: str, rows: int, k: int) -> Matrix:  # a code of 4 bits for each weight, a scale for each 32
        return Matrix(kernel, rows // TILE, k, rows * k // 2 + rows * k // 32, c.num_experts_per_tok)

    h, inter, shared = c.hidden_size, c.moe_intermediate_size, c.moe_shared_expert_intermediate_size
    return {
        "kda": {"kda_projections": [dense(5 * width, h), dense(h, width)]},
        "mla": {
            "mla_projections": [
                dense(heads * (c.head_dim + c.qk_rope_head_dim) + latent + width, h),
                dense(c.kv_lora_rank, c.head_dim, heads),
                dense(c.head_dim, c.kv_lora_rank, heads),
                dense(h, width),
            ]
        },
        "dense": {"mlp": [dense(2 * c.intermediate_size, h), dense(h, c.intermediate_size)]},
        "moe": {
            "router": [matrix("f32", c.num_experts, h)],
            "mlp": [dense(2 * shared, h), dense(h, shared)],
            "experts": [expert("expert gate and up", 2 * inter, h), expert("expert down", h, inter)],
        },
        "mix": {"nextn_mix": [dense(h, 2 * h)]},
        "head": {"head": [matrix("fp8 head" if options.fp8_lm_head else "bf16 head", c.vocab_size, h)]},
        "around": {},
    }


def layers(c: PocketConfig, draft: bool) -> dict[str, int]:
    """How often a pass runs each piece: of the model, or of a draft (the NEXTN layer alone)."""
    at = [c.num_hidden_layers] if draft else range(c.num_hidden_layers)
    mla, moe = sum(map(c.is_mla, at)), sum(map(c.is_moe, at))
    out = {"kda": len(at) - mla, "mla": mla, "dense": len(at) - moe, "moe": moe, "head": 1}
    return {**out, "mix": int(draft), "around": int(not draft)}
