"""From a config.json to a Shape: one function an architecture, nothing guessed.

An architecture that is not listed is an error, and so is a missing field: the account of a model must not rest on a
default that its authors never wrote.
"""

from collections.abc import Callable, Iterable

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline import attention
from labkit.roofline.tensors import Cache, Role, Shape, Tensor, ends, mlp

_COMMON = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


def shape_of(config: "dict | ModelConfig") -> Shape:
    """The Shape of a model. BadInput names the architecture or all missing fields."""
    config = ModelConfig.of(config)
    name = config.architecture
    if name not in _BUILDERS:
        nearest = min(_BUILDERS, key=lambda known: len(config.missing(_BUILDERS[known][1])))
        missing = config.missing(_BUILDERS[nearest][1])
        hint = (
            f"; for the nearest, {nearest}, it lacks: {', '.join(missing)}"
            if missing
            else f"; its fields resemble {nearest}, but the lab does not guess tensors from a resemblance"
        )
        raise BadInput(f"{config.name}: architecture", name, ", ".join(_BUILDERS) + hint)
    build, fields = _BUILDERS[name]
    config.need(fields)
    return build(config)


def _moe(c: ModelConfig, layers: int, experts: int, inner: int, shared: int, bias: bool) -> Iterable[Tensor]:
    """Router, routed and shared experts of `layers` layers; `shared` is the shared expert's inner size or 0."""
    d = c.count("hidden_size")
    yield Tensor("router", "router", Role.ROUTER, experts, d, layers)
    if bias:
        yield Tensor("router.bias", "router", Role.ROUTER, experts, 1, layers)
    yield from mlp("experts", "routed experts", Role.EXPERTS, d, inner, layers, experts)
    if shared:
        yield from mlp("shared_experts", "shared experts", Role.DENSE, d, shared, layers)


def _norms(c: ModelConfig, layers: int, per_layer: int = 2) -> Iterable[Tensor]:
    yield Tensor("layer_norms", "norms", Role.SMALL, per_layer * c.count("hidden_size"), 1, layers)


def _nextn(c: ModelConfig, layer: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """One NEXTN layer: its own norms and projection of (embedding, hidden), then an ordinary layer."""
    d = c.count("hidden_size")
    return (
        Tensor("nextn.eh_proj", "NEXTN projection", Role.DENSE, d, 2 * d),
        Tensor("nextn.norms", "norms", Role.SMALL, 3 * d, 1),
        *layer,
    )


def _split(c: ModelConfig, layers: int) -> tuple[int, int]:
    """(dense layers, MoE layers)."""
    dense = c.count("first_k_dense_replace", least=0)
    if dense >= layers:
        raise BadInput(f"{c.name}: first_k_dense_replace", dense, f"fewer than num_hidden_layers ({layers})")
    return dense, layers - dense


def _finish(
    c: ModelConfig, tensors: list[Tensor], caches: tuple[Cache, ...], experts: int, top_k: int, **more
) -> Shape:
    if not top_k <= experts:
        raise BadInput(f"{c.name}: experts per token", top_k, f"at most the number of experts ({experts})")
    tied = bool(c.choice("tie_word_embeddings", (True, False), False))
    d, vocab = c.count("hidden_size"), c.count("vocab_size")
    tensors = [*tensors, *ends(d, vocab, tied)]
    return Shape(
        c.architecture,
        d,
        vocab,
        experts,
        top_k,
        tuple(t for t in tensors if t.layers and t.rows),
        caches,
        tied=tied,
        **more,
    )


def _bailing_v3(c: ModelConfig) -> Shape:
    """Ling 3.0: KDA layers with one MLA layer at the end of each group (and in a ragged tail), DeepSeek-style MoE."""
    layers, group = c.count("num_hidden_layers"), c.count("layer_group_size")
    full = sum((i + 1) % group == 0 or i >= layers // group * group for i in range(layers))
    dense, sparse = _split(c, layers)
    experts, d = c.count("num_experts"), c.count("hidden_size")
    shared = c.count("num_shared_experts", least=0) * c.count("moe_shared_expert_intermediate_size", least=0)
    heads, head_dim, taps = (c.count(n) for n in ("num_attention_heads", "head_dim", "short_conv_kernel_size"))

    def moe(n: int) -> Iterable[Tensor]:
        return _moe(c, n, experts, c.count("moe_intermediate_size"), shared, True)

    linear = layers - full
    low_rank = not c.choice("no_kda_lora", (True, False), False)
    tensors = [
        *attention.kda(d, heads, head_dim, taps, linear, low_rank),
        *attention.mla(c, full),
        *_norms(c, layers),
        *mlp("mlp", "dense MLP", Role.DENSE, d, c.count("intermediate_size"), dense),
        *moe(sparse),
    ]
    cache = attention.mla_cache(c, full)
    nextn = c.count("num_nextn_predict_layers", 0, least=0)
    if c.fields.get("mtp_use_kda"):
        raise BadInput(f"{c.name}: mtp_use_kda", True, "false (a NEXTN layer with MLA)")
    return _finish(
        c,
        tensors,
        (cache,),
        experts,
        c.count("num_experts_per_tok"),
        nextn=_nextn(c, [*attention.mla(c, 1), *_norms(c, 1), *moe(1)]) if nextn else (),
        nextn_cache=attention.mla_cache(c, 1) if nextn else None,
        recurrent=linear * heads * head_dim * head_dim,
        convolution=linear * 3 * heads * head_dim * (taps - 1),
    )


def _kimi_linear(c: ModelConfig) -> Shape:
    """Kimi-Linear: KDA with low-rank gates, and MLA without rotary positions, at the layers that the config lists."""
    d, layers = c.count("hidden_size"), c.count("num_hidden_layers")
    linear = ModelConfig.of(c.fields["linear_attn_config"])
    linear = ModelConfig(linear.fields | {"architectures": [c.architecture]}, f"{c.name}: linear_attn_config")
    linear.need(("kda_layers", "full_attn_layers", "num_heads", "head_dim", "short_conv_kernel_size"))
    kda, full = len(linear.fields["kda_layers"]), len(linear.fields["full_attn_layers"])
    if kda + full != layers:
        raise BadInput(f"{c.name}: linear_attn_config", f"{kda} + {full} layers", f"lists of {layers} layers together")
    heads, head_dim, taps = (linear.count(n) for n in ("num_heads", "head_dim", "short_conv_kernel_size"))
    dense, sparse = _split(c, layers)
    experts, inner = c.count("num_experts"), c.count("moe_intermediate_size")
    tensors = [
        *attention.kda(d, heads, head_dim, taps, kda, True),
        *attention.mla(c, full),
        *_norms(c, layers),
        *mlp("mlp", "dense MLP", Role.DENSE, d, c.count("intermediate_size"), dense),
        *_moe(c, sparse, experts, inner, c.count("num_shared_experts", least=0) * inner, True),
    ]
    return _finish(
        c,
        tensors,
        (attention.mla_cache(c, full),),
        experts,
        c.count("num_experts_per_token"),
        recurrent=kda * heads * head_dim * head_dim,
        convolution=kda * 3 * heads * head_dim * (taps - 1),
    )


def _deepseek_v3(c: ModelConfig) -> Shape:
    d, layers = c.count("hidden_size"), c.count("num_hidden_layers")
    dense, sparse = _split(c, layers)
    experts, inner = c.count("n_routed_experts"), c.count("moe_intermediate_size")

    def moe(n: int) -> Iterable[Tensor]:
        return _moe(c, n, experts, inner, c.count("n_shared_experts", least=0) * inner, True)

    tensors = [
        *attention.mla(c, layers),
        *_norms(c, layers),
        *mlp("mlp", "dense MLP", Role.DENSE, d, c.count("intermediate_size"), dense),
        *moe(sparse),
    ]
    nextn = c.count("num_nextn_predict_layers", 0, least=0)
    return _finish(
        c,
        tensors,
        (attention.mla_cache(c, layers),),
        experts,
        c.count("num_experts_per_tok"),
        nextn=_nextn(c, [*attention.mla(c, 1), *_norms(c, 1), *moe(1)]) if nextn else (),
        nextn_cache=attention.mla_cache(c, 1) if nextn else None,
    )


def _glm4_moe(c: ModelConfig) -> Shape:
    d, layers = c.count("hidden_size"), c.count("num_hidden_layers")
    dense, sparse = _split(c, layers)
    experts, inner = c.count("n_routed_experts"), c.count("moe_intermediate_size")
    bias = bool(c.choice("attention_bias", (True, False), False))
    norms = 2 if c.choice("use_qk_norm", (True, False), False) else 0

    def layer(n: int, moe_layers: int) -> list[Tensor]:
        return [
            *attention.grouped(c, n, qkv_bias=bias, head_norms=norms),
            *_norms(c, n),
            *_moe(c, moe_layers, experts, inner, c.count("n_shared_experts", least=0) * inner, True),
        ]

    nextn = c.count("num_nextn_predict_layers", 0, least=0)
    return _finish(
        c,
        [*layer(layers, sparse), *mlp("mlp", "dense MLP", Role.DENSE, d, c.count("intermediate_size"), dense)],
        (attention.grouped_cache(c, layers),),
        experts,
        c.count("num_experts_per_tok"),
        nextn=_nextn(c, layer(1, 1)) if nextn else (),
        nextn_cache=attention.grouped_cache(c, 1) if nextn else None,
    )


def _qwen3_moe(c: ModelConfig) -> Shape:
    d, layers = c.count("hidden_size"), c.count("num_hidden_layers")
    plain, step = set(c.fields.get("mlp_only_layers") or ()), c.count("decoder_sparse_step", 1)
    experts = c.count("num_experts")
    sparse = sum(i not in plain and (i + 1) % step == 0 for i in range(layers))
    bias = bool(c.choice("attention_bias", (True, False), False))
    tensors = [
        *attention.grouped(c, layers, qkv_bias=bias, out_bias=bias, head_norms=2),
        *_norms(c, layers),
        *mlp("mlp", "dense MLP", Role.DENSE, d, c.count("intermediate_size"), layers - sparse),
        *_moe(c, sparse, experts, c.count("moe_intermediate_size"), 0, False),
    ]
    return _finish(c, tensors, (attention.grouped_cache(c, layers),), experts, c.count("num_experts_per_tok"))


def _gpt_oss(c: ModelConfig) -> Shape:
    """gpt-oss: every second layer sees a sliding window; projections, router and experts have biases."""
    d, layers = c.count("hidden_size"), c.count("num_hidden_layers")
    kinds = c.fields["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise BadInput(f"{c.name}: layer_types", kinds, f"{layers} times sliding_attention or full_attention")
    sliding, experts = kinds.count("sliding_attention"), c.count("num_local_experts")
    inner = c.count("intermediate_size")
    tensors = [
        *attention.grouped(c, layers, qkv_bias=True, out_bias=True),
        Tensor("sinks", "attention projections", Role.SMALL, c.count("num_attention_heads"), 1, layers),
        *_norms(c, layers),
        *_moe(c, layers, experts, inner, 0, True),
        Tensor("experts.bias", "routed experts", Role.EXPERT_BIAS, 2 * inner + d, 1, layers, experts),
    ]
    caches = (
        attention.grouped_cache(c, layers - sliding),
        attention.grouped_cache(c, sliding, c.count("sliding_window")),
    )
    return _finish(c, tensors, caches, experts, c.count("num_experts_per_tok"))


_MLA = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_SPARSE = ("intermediate_size", "moe_intermediate_size")
_BUILDERS: dict[str, tuple[Callable[[ModelConfig], Shape], tuple[str, ...]]] = {
    "BailingMoeV3ForCausalLM": (
        _bailing_v3,
        _COMMON
        + _MLA
        + _SPARSE
        + (
            "layer_group_size",
            "head_dim",
            "short_conv_kernel_size",
            "no_kda_lora",
            "num_experts",
            "num_experts_per_tok",
            "num_shared_experts",
            "moe_shared_expert_intermediate_size",
            "first_k_dense_replace",
            "gated_attention_proj_granularity_type",
        ),
    ),
    "GptOssForCausalLM": (
        _gpt_oss,
        _COMMON
        + (
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "num_local_experts",
            "num_experts_per_tok",
            "layer_types",
            "sliding_window",
        ),
    ),
    "Qwen3MoeForCausalLM": (
        _qwen3_moe,
        _COMMON + _SPARSE + ("num_key_value_heads", "head_dim", "num_experts", "num_experts_per_tok"),
    ),
    "DeepseekV3ForCausalLM": (
        _deepseek_v3,
        _COMMON
        + _MLA
        + _SPARSE
        + ("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "first_k_dense_replace"),
    ),
    "Glm4MoeForCausalLM": (
        _glm4_moe,
        _COMMON
        + _SPARSE
        + (
            "num_key_value_heads",
            "head_dim",
            "n_routed_experts",
            "num_experts_per_tok",
            "n_shared_experts",
            "first_k_dense_replace",
            "attention_bias",
            "use_qk_norm",
        ),
    ),
    "KimiLinearForCausalLM": (
        _kimi_linear,
        _COMMON
        + _MLA
        + _SPARSE
        + ("linear_attn_config", "num_experts", "num_experts_per_token", "num_shared_experts", "first_k_dense_replace"),
    ),
}
KNOWN = tuple(_BUILDERS)
