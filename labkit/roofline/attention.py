"""Tensors and caches of the kinds of attention: grouped-query, latent (with a sparse indexer) and factorised.

Shapes: those of the models' public implementations in transformers and SGLang.
"""

from labkit.errors import BadInput
from labkit.roofline.geometry import Geometry
from labkit.roofline.part import Part
from labkit.roofline.tensors import Cache, Role

GQA = "attention projections"


def gqa(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Grouped-query attention. spec: bias and out_bias (true or a field), norm (head, wide), gate (query, head),
    sinks. kind: full, sliding or chunked. Gemma's shared KV and global heads come from its own fields."""
    d, at = f.count("hidden_size"), part.at
    heads, kv, width = head_counts(f, spec, kind)
    shared, same = at_shared(f, at), kind == "full" and "attention_k_eq_v" in spec and f.flag("attention_k_eq_v")
    owners = Part(tuple(i for i in at if i not in shared), part.prefix)
    bias, out_bias = (_option(f, spec, n) for n in ("bias", "out_bias"))
    query = heads * width * (2 if spec.get("gate") == "query" else 1)
    for where, name, rows in (
        (part, "q_proj", query),
        (owners, "k_proj", kv * width),
        *(() if same else ((owners, "v_proj", kv * width),)),
    ):
        where.add(name, GQA, Role.DENSE, rows, d)
        if bias:
            where.add(f"{name}.bias", GQA, Role.SMALL, rows)
    part.add("o_proj", GQA, Role.DENSE, d, heads * width)
    if out_bias:
        part.add("o_proj.bias", GQA, Role.SMALL, d)
    gate = spec.get("gate")
    if gate == "head" and _option(f, spec, "gate_if", True):
        part.add("g_proj", GQA, Role.GATE, heads, d)
    if norm := _norm(f, spec):
        part.add("q_norm", GQA, Role.SMALL, heads * width if norm == "wide" else width)
        owners.add("k_norm", GQA, Role.SMALL, kv * width if norm == "wide" else width)
    if spec.get("sinks"):
        part.add("sinks", GQA, Role.SMALL, heads)
    part.tensors += owners.tensors
    window = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}.get(kind)
    limit = f.count(window) if window else None
    if owners.at:
        part.caches.append(Cache(len(owners.at), 2 * kv * width, limit, readers=len(at)))


def head_counts(f: Geometry, spec: dict, kind: str) -> tuple[int, int, int]:
    """(query heads, KV heads, width of a head) of a layer of this kind."""
    heads = f.count("heads")
    kv = f.count("kv_heads", spec.get("kv_default", heads))
    d = f.count("hidden_size")
    width = f.count("head_dim", d // heads if spec.get("width_from_hidden") else _required(f))
    other = f.raw("attention_other_setting") if "attention_other_setting" in spec else None
    if other is not None and kind == "sliding":
        if not isinstance(other, dict) or not {"num_attention_heads", "num_attention_groups"} <= set(other):
            raise BadInput(f"{f.name}: attention_other_setting", other, "num_attention_heads and num_attention_groups")
        heads, kv = other["num_attention_heads"], other["num_attention_groups"]
        width = other.get("head_dim", width)
    if kind == "full" and "global_head_dim" in spec:
        width = f.count("global_head_dim", spec["global_head_dim"])
        if f.flag("attention_k_eq_v"):
            kv = f.count("num_global_key_value_heads", kv)
        f.raw("num_global_key_value_heads")
        width, kv = _per_layer(f, width, kv)
    if heads % kv:
        raise BadInput(f"{f.name}: {f.label('kv_heads')}", kv, f"a divisor of {f.label('heads')} ({heads})")
    return heads, kv, width


def _per_layer(f: Geometry, width: int, kv: int) -> tuple[int, int]:
    """Gemma 4 as transformers 5 saves it: what layers that see all have otherwise, the same for each of them."""
    told = f.raw("per_layer_config")
    if told is None:
        return width, kv
    entries = list(told.values()) if isinstance(told, dict) else [told]
    first = entries[0] if entries else {}
    known = isinstance(first, dict) and not set(first) - {"head_dim", "num_key_value_heads"}
    if not known or any(e != first for e in entries):
        raise BadInput(f"{f.name}: per_layer_config", told, "one head_dim and num_key_value_heads for all full layers")
    return first.get("head_dim", width), first.get("num_key_value_heads", kv)


def at_shared(f: Geometry, at: tuple[int, ...]) -> set[int]:
    """Layers of Gemma 3n and 4 that reuse the KV of an earlier layer."""
    if "num_kv_shared_layers" not in f.defaults:
        return set()
    layers, shared = f.count("layers"), f.count("num_kv_shared_layers", 0, least=0)
    return {i for i in at if i >= layers - shared} if shared < layers else set()


def _required(f: Geometry):
    """Head width is not hidden / heads for every family: where the family says nothing it must be given."""
    if f.raw("head_dim") is None:
        f.need(["head_dim"])
        return 1
    return f.raw("head_dim")


def _option(f: Geometry, spec: dict, name: str, default: bool = False) -> bool:
    """An option of the family: fixed, or the name of the field that sets it, perhaps with '=true' as its default."""
    value = spec.get(name, default)
    if isinstance(value, str):
        key, _, fallback = value.partition("=")
        return f.flag(key, fallback == "true")
    return bool(value)


def _norm(f: Geometry, spec: dict) -> str | None:
    """Which norm of queries and keys: fixed, or only where the field `norm_if` says so."""
    return spec.get("norm") if _option(f, spec, "norm_if", True) else None


def mla(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Multi-head latent attention, perhaps with an output gate and with a sparse-attention indexer.

    The cache is one latent and one rotary key per token, whatever the number of heads.
    """
    d, heads, latent = f.count("hidden_size"), f.count("heads"), f.count("kv_lora_rank")
    nope, rope, value = f.count("qk_nope_head_dim"), f.count("qk_rope_head_dim"), f.count("v_head_dim")
    if spec.get("drops_rope") and f.flag(spec["drops_rope"]):
        rope = 0
    rank = f.raw("q_lora_rank")
    if rank is None:
        part.add("q_proj", "MLA", Role.DENSE, heads * (nope + rope), d)
    else:
        rank = f.count("q_lora_rank")
        part.add("q_a_proj", "MLA", Role.DENSE, rank, d)
        part.add("q_a_layernorm", "MLA", Role.SMALL, rank)
        part.add("q_b_proj", "MLA", Role.DENSE, heads * (nope + rope), rank)
    part.add("kv_a_proj_with_mqa", "MLA", Role.DENSE, latent + rope, d)
    part.add("kv_a_layernorm", "MLA", Role.SMALL, latent)
    part.add("kv_b_proj", "MLA", Role.ABSORBED, heads * (nope + value), latent)
    gate = spec.get("gate")
    if gate == "granularity":
        gate = f.choice("gated_attention_proj_granularity_type", (None, "head_wise", "element_wise"), None)
    elif isinstance(gate, str) and gate != "head_wise":
        gate = "element_wise" if f.flag(gate) else None
    if gate == "head_wise":
        part.add("g_proj", "MLA", Role.GATE, heads, d)
    elif gate == "element_wise":
        part.add("g_proj", "MLA", Role.DENSE, heads * value, d)
    part.add("o_proj", "MLA", Role.DENSE, d, heads * value)
    if _option(f, spec, "bias"):
        if rank is not None:
            part.add("q_a_proj.bias", "MLA", Role.SMALL, rank)
        part.add("kv_a_proj_with_mqa.bias", "MLA", Role.SMALL, latent + rope)
        part.add("o_proj.bias", "MLA", Role.SMALL, d)
    top = f.count("index_topk") if spec.get("indexer") else None
    part.caches.append(Cache(len(part.at), latent + rope, top, keeps_all=top is not None))
    if top is not None:
        _indexer(f, part, rank, d)


def _indexer(f: Geometry, part: Part, rank: object, d: int) -> None:
    """The sparse-attention indexer (DeepSeek V3.2, GLM-5): layers marked shared reuse an earlier layer's choice."""
    if rank is None:
        raise BadInput(f"{f.name}: q_lora_rank", None, "a rank, from which the indexer's queries are made")
    heads, width = f.count("index_n_heads"), f.count("index_head_dim")
    at = tuple(i for i in part.at if _own_indexer(f, i))
    own = Part(at, f"{part.prefix}.indexer")
    own.add("wq_b", "indexer", Role.DENSE, heads * width, int(rank))
    own.add("wk", "indexer", Role.DENSE, width, d)
    own.add("weights_proj", "indexer", Role.GATE, heads, d)
    own.add("k_norm", "indexer", Role.SMALL, 2 * width)
    part.tensors += own.tensors
    if at:
        # FP8 keys with one FP32 scale per token, all of them read to choose the top k.
        part.caches.append(Cache(len(at), width, format="fp8-row", name="index keys"))


def _own_indexer(f: Geometry, layer: int) -> bool:
    layers = f.count("layers")
    kinds = f.kinds("indexer_types", layers, {"full": "full", "shared": "shared"})
    if kinds is not None and layer < layers:
        return kinds[layer] == "full"
    pattern = f.raw("index_topk_pattern")
    if isinstance(pattern, str) and layer < layers:
        if len(pattern) != layers or set(pattern) - {"F", "S"}:
            raise BadInput(f"{f.name}: index_topk_pattern", pattern, f"{layers} letters F or S")
        return pattern[layer] == "F"
    freq, offset = f.count("index_topk_freq", 1), f.count("index_skip_topk_offset", 2, least=0)
    return layer >= layers or max(layer - offset + 1, 0) % freq == 0


def mfa(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Step-3's factorised attention: a shared low-rank query, and a few KV heads."""
    d, heads, width = f.count("hidden_size"), f.count("heads"), f.count("head_dim")
    kv, rank = f.count("kv_heads"), f.count("share_q_dim")
    part.add("q_proj", GQA, Role.DENSE, rank, d)
    part.add("k_proj", GQA, Role.DENSE, kv * width, d)
    part.add("v_proj", GQA, Role.DENSE, kv * width, d)
    part.add("inter_norm", GQA, Role.SMALL, rank)
    part.add("wq", GQA, Role.DENSE, heads * width, rank)
    part.add("o_proj", GQA, Role.DENSE, d, heads * width)
    part.caches.append(Cache(len(part.at), 2 * kv * width))


ATTENTION = {"gqa": gqa, "mla": mla, "mfa": mfa}
