"""From a config.json to a Shape: families as data (families.yaml), nothing guessed.

An architecture that is not listed is an error, and so are a missing field and a geometry field that its family does
not know: the account of a model must not rest on a default that its authors never wrote.
"""

import difflib
from functools import cache
from pathlib import Path

import yaml

from labkit.catalog.config import ModelConfig
from labkit.catalog.read import SafeLoader
from labkit.errors import BadInput
from labkit.roofline import feedforward, gguf_shape, layers
from labkit.roofline.attention import ATTENTION
from labkit.roofline.geometry import Geometry
from labkit.roofline.memo import by_config
from labkit.roofline.part import Part
from labkit.roofline.recurrent import LINEAR
from labkit.roofline.tensors import Role, Shape, Tensor


@cache
def _table() -> dict:
    text = (Path(__file__).parent / "families.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=SafeLoader)  # noqa: S506 (a SafeLoader)


@cache
def _by_name() -> dict[str, str]:
    """Architecture or model_type -> family."""
    return {
        name: family
        for family, spec in _table()["families"].items()
        for name in (*spec["architectures"], *spec.get("model_types", ()))
    }


FAMILIES = {family: spec["architectures"] for family, spec in _table()["families"].items()}
KNOWN = tuple(name for names in FAMILIES.values() for name in names)


def family_of(config: ModelConfig) -> dict:
    """The family of a config, by its architecture or, where that is a wrapper, by the language model's model_type."""
    names = [*config.architectures, config.fields.get("model_type")]
    for name in names:
        if name in _by_name():
            return _table()["families"][_by_name()[name]]
    nearest = ", ".join(difflib.get_close_matches(config.architecture, KNOWN, 3, 0))
    raise BadInput(
        f"{config.name}: architecture",
        config.architecture,
        f"one of `labkit catalog --architectures` (nearest by name: {nearest}); no guess is made from a resemblance",
    )


@by_config
def shape_of(config: ModelConfig) -> Shape:
    """The Shape of a model, from a ModelConfig or the content of a config.json.

    BadInput names the architecture, all missing fields, or the fields that are not known.
    """
    if config.gguf is not None:
        return gguf_shape.shape_of(config)
    spec = family_of(config)
    f = Geometry(config, spec, _table()["fields"])
    counted = ["num_hidden_layers"] if not spec.get("blocks") else []
    wanted = [n for n in spec.get("needs", ()) if n != "first_k_dense_replace" or "mlp_layer_types" not in f.fields]
    f.need(["vocab_size", "hidden_size", *counted, "num_attention_heads", *wanted])
    shape = _build(f, spec)
    f.finish()
    if shape.top_k > shape.experts:
        raise BadInput(f"{f.name}: experts per token", shape.top_k, f"at most the number of experts ({shape.experts})")
    return shape


def with_top_k(config: "dict | ModelConfig", top_k: int) -> ModelConfig:
    """The config with another number of experts per token, under whatever name it has there."""
    config = ModelConfig.of(config)
    names = _table()["fields"]["top_k"] if config.gguf is None else []
    return config.with_fields({n: top_k for n in names if n in config.fields} | {"_top_k": top_k})


def _build(f: Geometry, spec: dict) -> Shape:
    singles = layers.blocks(f, "hybrid_override_pattern", "layers_block_type") if spec.get("blocks") else None
    if spec.get("blocks") and singles is None:
        f.need(["hybrid_override_pattern"])
    if singles is not None:
        number = f.raw("layers", len(singles))
        if number != len(singles):
            raise BadInput(f"{f.name}: num_hidden_layers", number, f"{len(singles)}, as the pattern has")
        plan = singles
    else:
        kinds, forward = layers.mixers(f, spec), layers.feed_forward(f, spec)
        if spec.get("last_full"):
            kinds[len(forward) - 1] = "full"
        plan = [(kind, forward[i] if i < len(forward) else None) for i, kind in enumerate(kinds)]
    number = f.count("layers") if singles is None else len(singles)
    parts = _parts(f, spec, plan[:number])
    tensors = [t for p in parts for t in p.tensors]
    experts = f.count("experts") if any(ff == "sparse" for _, ff in plan) else 0
    nextn, nextn_caches, nextn_layers = _nextn(f, spec, plan, number)
    tied = f.flag("tie_word_embeddings")
    d, vocab = f.count("hidden_size"), f.count("vocab_size")
    _mark_optional(f, spec, experts, {kind for kind, _ in plan})
    return Shape(
        f.config.architecture,
        d,
        vocab,
        experts,
        f.config.fields.get("_top_k") or f.count("top_k") if experts else 0,
        (*tensors, *_ends(f, spec, d, vocab, tied)),
        tuple(c for p in parts for c in p.caches),
        nextn=nextn,
        nextn_caches=nextn_caches,
        nextn_layers=nextn_layers,
        recurrent=sum(p.recurrent for p in parts),
        convolution=sum(p.convolution for p in parts),
        tied=tied,
        state_format=_state_format(f),
        layers=number,
        notes=tuple([*f.config.notes, *f.notes, *spec.get("notes", ())]),
    )


def _mark_optional(f: Geometry, spec: dict, experts: int, kinds: set[str | None]) -> None:
    """Fields that say nothing in this model: the experts' of a dense one, its list of layer kinds, and the like."""
    quiet = ["layer_types", "mlp_layer_types", "nextn", "tie_word_embeddings", "top_k", "moe_layer_freq"]
    if not experts:
        quiet += ["experts", "moe_inner", "shared_experts", "shared_inner", "first_dense", "decoder_sparse_step"]
        quiet += ["mlp_only_layers"]
    if not spec.get("moe") or experts:
        sparse = spec.get("blocks") or spec.get("ffn") in ("all", "steps", "first", "listed", "if experts")
        quiet += ["dense_inner"] if sparse else []
    if spec.get("attention", {}).get("kind") == "mla":
        quiet += ["kv_heads", "head_dim", "qk_head_dim"]
    if "sliding_window" in f.fields and not any(k in str(spec.get("layers")) for k in ("chunk",)):
        quiet += ["sliding_window"]
    if "linear" not in kinds:
        quiet += ["conv_L_cache", "conv_bias", "mamba_heads", "mamba_head_dim", "mamba_groups", "mamba_state"]
        quiet += ["mamba_conv", "mamba_expand", "mamba_conv_bias", "mamba_proj_bias"]
    if not kinds & {"full", "sliding", "chunked"}:
        quiet += ["heads", "kv_heads", "head_dim"]
    if not f.count("nextn", 0, least=0):
        quiet += ["mtp_layers_block_type", "mtp_hybrid_override_pattern", "mtp_layer_types", "mtp_mlp_layer_types"]
    for key in quiet:
        f.raw(key)


def _parts(f: Geometry, spec: dict, plan: list[tuple[str | None, str | None]], after: int | None = None) -> list[Part]:
    """The layers of a plan, gathered by kind. NEXTN layers stand after the model's own."""
    start = after if after is not None else 0
    prefix = spec.get("prefix", "model.layers") + ".{}"
    names = {"attention": "self_attn", "linear": "linear_attn", "ffn": "mlp"} | spec.get("names", {})
    found: list[Part] = []
    for kind in sorted({k for k, _ in plan if k}, key=layers.ORDER.index):
        part = Part(_at(plan, 0, kind, start), f"{prefix}.{names['linear' if kind == 'linear' else 'attention']}")
        options = spec["linear"] if kind == "linear" else spec["attention"]
        (LINEAR if kind == "linear" else ATTENTION)[options["kind"]](f, options, part, kind)
        found.append(part)
    for kind in dict.fromkeys(k for _, k in plan if k):
        home = names.get("dense", names["ffn"]) if kind == "dense" else names["ffn"]
        part = Part(_at(plan, 1, kind, start), f"{prefix}.{home}")
        found.append(part)
        if kind == "dense":
            feedforward.dense(f, spec.get("dense", {}), part)
            continue
        feedforward.sparse(f, spec["moe"], part)
        if spec["moe"].get("beside_dense"):  # Gemma 4: every such layer has a dense MLP too
            found.append(Part(part.at, f"{prefix}.{names['dense']}"))
            feedforward.dense(f, spec.get("dense", {}), found[-1])
    every = Part(tuple(range(start, start + len(plan))), prefix)
    norms, singles = spec.get("norms", 2), 1 if spec.get("blocks") else 0
    vectors = (1 if singles else norms) * (2 if spec.get("norm_bias") else 1)
    every.add("layer_norms", "norms", Role.SMALL, vectors * f.count("hidden_size"))
    if spec.get("residuals") and f.raw(spec["residuals"]) is not None:  # Kimi K3's attention residuals
        every.add("residuals", "norms", Role.SMALL, 4 * f.count("hidden_size"))
    _per_layer_inputs(f, every)
    found.append(every)
    return found


def _at(plan: list[tuple[str | None, str | None]], side: int, kind: str, start: int) -> tuple[int, ...]:
    return tuple(start + i for i, layer in enumerate(plan) if layer[side] == kind)


def _per_layer_inputs(f: Geometry, part: Part) -> None:
    """Gemma 4's per-layer embeddings: a gate and a projection per layer (the table is an embedding of its own)."""
    if "hidden_size_per_layer_input" in f.defaults:
        width, d = f.count("hidden_size_per_layer_input", 0, least=0), f.count("hidden_size")
        if width:
            part.add("per_layer_input_gate", "per-layer inputs", Role.DENSE, width, d)
            part.add("per_layer_projection", "per-layer inputs", Role.DENSE, d, width)
            part.add("post_per_layer_input_norm", "norms", Role.SMALL, d)


def _nextn(f: Geometry, spec: dict, plan: list, number: int) -> tuple[tuple[Tensor, ...], tuple, int]:
    """One NEXTN layer: its own norms and projection of (embedding, hidden), then an ordinary layer of the family."""
    how = spec.get("nextn", {})
    count = f.count("nextn", 0, least=0)
    if how is None or not count:
        return (), (), 0
    for field in how.get("refuses", ()):
        if f.raw(field):
            raise BadInput(f"{f.name}: {field}", f.raw(field), "false (a NEXTN layer with MLA)")
    inner = None
    if spec.get("blocks"):
        inner = layers.blocks(f, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if inner is None:
        kind = plan[number][0] if len(plan) > number else "full"
        sparse = any(ff == "sparse" for _, ff in plan) and how.get("ffn") != "dense"
        inner = [(kind, "sparse" if sparse else "dense")]
    parts = _parts(f, spec, inner, after=number)
    d = f.count("hidden_size")
    prefix = f"{spec.get('prefix', 'model.layers')}.{number}"
    own = (
        Tensor(
            "nextn.eh_proj", "NEXTN projection", Role.DENSE, d, 2 * d, path=how.get("projection", f"{prefix}.eh_proj")
        ),
        Tensor("nextn.norms", "norms", Role.SMALL, 3 * d, 1),
    )
    caches = tuple(c for p in parts for c in p.caches)
    return (*own, *(t for p in parts for t in p.tensors)), caches, count


def _ends(f: Geometry, spec: dict, d: int, vocab: int, tied: bool) -> list[Tensor]:
    """Embedding, final norm and head. A tied head is the embedding table and not stored twice."""
    names = {"embedding": "model.embed_tokens", "head": "lm_head"} | spec.get("names", {})
    ends = [
        Tensor("embedding", "embedding row", Role.EMBEDDING, vocab, d, path=names["embedding"]),
        Tensor("final_norm", "norms", Role.SMALL, d * (2 if spec.get("norm_bias") else 1), 1),
    ]
    if not tied:
        ends.append(Tensor("lm_head", "head", Role.HEAD, vocab, d, path=names["head"]))
    if spec.get("head_bias") is True or (spec.get("head_bias") and f.flag(spec["head_bias"])):
        ends.append(Tensor("lm_head.bias", "norms", Role.SMALL, vocab, 1))
    if "hidden_size_per_layer_input" in f.defaults and (width := f.count("hidden_size_per_layer_input", 0, least=0)):
        wide, table = f.count("layers") * width, f.count("vocab_size_per_layer_input", vocab)
        ends.append(Tensor("per_layer_embedding", "embedding row", Role.EMBEDDING, table, wide))
        ends.append(Tensor("per_layer_model_projection", "per-layer inputs", Role.DENSE, wide, d))
        ends.append(Tensor("per_layer_projection_norm", "norms", Role.SMALL, width, 1))
    return ends


def _state_format(f: Geometry) -> str | None:
    """The recurrent state's number format, where the config names one."""
    named = f.raw("state_dtype")
    formats = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    if named is not None and named not in formats:
        raise BadInput(f"{f.name}: {f.label('state_dtype')}", named, ", ".join(formats))
    return formats.get(named)
