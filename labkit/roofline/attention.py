"""Tensors and caches of the attention kinds: KDA (linear), MLA (latent), grouped-query."""

from collections.abc import Iterable

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.tensors import Cache, Role, Tensor


def kda(hidden: int, heads: int, head_dim: int, taps: int, layers: int, low_rank: bool) -> Iterable[Tensor]:
    """Kimi Delta Attention with `heads` heads of `head_dim`; `low_rank` gates go through head_dim, others are whole.

    Source: the public implementations of Kimi-Linear and BailingMoeV3 in vLLM.
    """
    wide = heads * head_dim
    for part in "qkv":
        yield Tensor(f"kda.{part}_proj", "KDA projections", Role.DENSE, wide, hidden, layers)
    for part in "fg":
        if low_rank:
            yield Tensor(f"kda.{part}_a_proj", "KDA projections", Role.DENSE, head_dim, hidden, layers)
            yield Tensor(f"kda.{part}_b_proj", "KDA projections", Role.DENSE, wide, head_dim, layers)
        else:
            yield Tensor(f"kda.{part}_proj", "KDA projections", Role.DENSE, wide, hidden, layers)
    yield Tensor("kda.o_proj", "KDA output projection", Role.DENSE, hidden, wide, layers)
    yield Tensor("kda.b_proj", "KDA small parts", Role.GATE, heads, hidden, layers)
    yield Tensor("kda.convolutions", "KDA small parts", Role.SMALL, 3 * wide, taps, layers)
    yield Tensor("kda.decay", "KDA small parts", Role.SMALL, wide + heads, 1, layers)
    yield Tensor("kda.o_norm", "KDA small parts", Role.SMALL, head_dim, 1, layers)


def mla(c: ModelConfig, layers: int) -> Iterable[Tensor]:
    """Multi-head latent attention: direct or low-rank queries, a latent for keys and values, perhaps an output gate."""
    d, heads, latent = (c.count(n) for n in ("hidden_size", "num_attention_heads", "kv_lora_rank"))
    nope, rope, value = (c.count(n) for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    group = "MLA"
    if c.fields["q_lora_rank"] is None:
        yield Tensor("mla.q_proj", group, Role.DENSE, heads * (nope + rope), d, layers)
    else:
        rank = c.count("q_lora_rank")
        yield Tensor("mla.q_a_proj", group, Role.DENSE, rank, d, layers)
        yield Tensor("mla.q_a_norm", group, Role.SMALL, rank, 1, layers)
        yield Tensor("mla.q_b_proj", group, Role.DENSE, heads * (nope + rope), rank, layers)
    yield Tensor("mla.kv_a_proj", group, Role.DENSE, latent + rope, d, layers)
    yield Tensor("mla.kv_a_norm", group, Role.SMALL, latent, 1, layers)
    yield Tensor("mla.kv_b_proj", group, Role.ABSORBED, heads * (nope + value), latent, layers)
    gate = c.choice("gated_attention_proj_granularity_type", (None, "head_wise", "element_wise"), None)
    if gate == "head_wise":
        yield Tensor("mla.g_proj", group, Role.GATE, heads, d, layers)
    elif gate == "element_wise":
        yield Tensor("mla.g_proj", group, Role.DENSE, heads * value, d, layers)
    yield Tensor("mla.o_proj", group, Role.DENSE, d, heads * value, layers)


def mla_cache(c: ModelConfig, layers: int) -> Cache:
    """One latent and one rotary key a token, whatever the number of heads."""
    return Cache(layers, c.count("kv_lora_rank") + c.count("qk_rope_head_dim"))


def grouped(
    c: ModelConfig, layers: int, qkv_bias: bool = False, out_bias: bool = False, head_norms: int = 0
) -> Iterable[Tensor]:
    """Grouped-query attention; `head_norms` counts norms of one head's width (of queries, of keys)."""
    d, heads, kv, width = _grouped(c)
    group = "attention projections"
    for part, out in (("q_proj", heads * width), ("k_proj", kv * width), ("v_proj", kv * width)):
        yield Tensor(f"attention.{part}", group, Role.DENSE, out, d, layers)
        if qkv_bias:
            yield Tensor(f"attention.{part}.bias", group, Role.SMALL, out, 1, layers)
    yield Tensor("attention.o_proj", group, Role.DENSE, d, heads * width, layers)
    if out_bias:
        yield Tensor("attention.o_proj.bias", group, Role.SMALL, d, 1, layers)
    if head_norms:
        yield Tensor("attention.head_norms", group, Role.SMALL, head_norms * width, 1, layers)


def grouped_cache(c: ModelConfig, layers: int, window: int | None = None) -> Cache:
    """Keys and values of every KV head."""
    _, _, kv, width = _grouped(c)
    return Cache(layers, 2 * kv * width, window)


def _grouped(c: ModelConfig) -> tuple[int, int, int, int]:
    d, heads, kv, width = (
        c.count(n) for n in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    )
    if heads % kv:
        raise BadInput(f"{c.name}: num_key_value_heads", kv, f"a divisor of num_attention_heads ({heads})")
    return d, heads, kv, width
