"""Dense and mixture-of-experts layers as tensors."""

from labkit.errors import BadInput
from labkit.roofline.attention import at_shared
from labkit.roofline.geometry import Geometry
from labkit.roofline.part import Part
from labkit.roofline.tensors import Role

EXPERTS, SHARED = "routed experts", "shared experts"


def dense(f: Geometry, spec: dict, part: Part) -> None:
    """A dense MLP. spec: gated (default), bias (a field), inner (name of its width), fit (LFM2's own rule)."""
    inner = _width(f, spec)
    shared = at_shared(f, part.at)
    if shared and f.flag("use_double_wide_mlp"):  # Gemma 4: layers without KV of their own
        alone = Part(tuple(i for i in part.at if i not in shared), part.prefix)
        wide = Part(tuple(i for i in part.at if i in shared), part.prefix)
        for where, size in ((alone, inner), (wide, 2 * inner)):
            _matrices(f, spec, where, size)
            part.tensors += where.tensors
        return
    _matrices(f, spec, part, inner)


def _matrices(f: Geometry, spec: dict, part: Part, inner: int) -> None:
    bias = spec.get("bias") is True or (isinstance(spec.get("bias"), str) and f.flag(spec["bias"]))
    _mlp(part, "", "dense MLP", Role.DENSE, f.count("hidden_size"), inner, spec.get("gated", True), bias)


def _width(f: Geometry, spec: dict) -> int:
    inner = f.count(spec.get("inner", "dense_inner"))
    if spec.get("fit") and f.flag("block_auto_adjust_ff_dim", True):  # LFM2: two thirds, up to a round number
        inner = int(2 * inner / 3)
        factor = f.raw("block_ffn_dim_multiplier")
        if factor is not None:
            inner = int(factor * inner)
        step = f.count("block_multiple_of", 256)
        inner = -(-inner // step) * step
    return inner


def _mlp(
    part: Part, name: str, group: str, role: Role, d: int, inner: int, gated: bool, bias: bool, experts: int = 0
) -> None:
    """The two or three matrices of an MLP; with biases where the family has them."""
    dot = f"{name}." if name else ""
    rows = {"gate_proj": inner} if gated else {}
    rows |= {"up_proj": inner}
    for module, out in rows.items():
        part.add(f"{dot}{module}", group, role, out, d, experts)
    part.add(f"{dot}down_proj", group, role, d, inner, experts)
    if bias and experts:
        part.add(f"{dot}bias", group, Role.EXPERT_BIAS, sum(rows.values()) + d, 1, experts)
    elif bias:
        part.add(f"{dot}bias", group, Role.SMALL, sum(rows.values()) + d)


def sparse(f: Geometry, spec: dict, part: Part) -> None:
    """Router, routed experts, shared experts and, where the experts work in a narrower space, its two projections.

    spec: router_bias (true, or a field), bias (of router and experts), gated, shared (how the shared expert's width is
    told), shared_gate, latent (field of the narrower width), latent_norm, beside_dense (Gemma 4), scales.
    """
    d, experts = f.count("hidden_size"), f.count("experts")
    inner, gated = f.count(spec.get("inner", "moe_inner")), spec.get("gated", True)
    part.add(spec.get("router", "gate"), "router", Role.ROUTER, experts, d)
    told = spec.get("router_bias", False)
    if told is True or (isinstance(told, str) and f.flag(told, spec.get("router_bias_default", False))):
        part.add("gate.e_score_correction_bias", "router", Role.ROUTER, experts)
    if spec.get("scales"):
        part.add("router.scales", "router", Role.SMALL, d + experts)
    width = d
    if spec.get("latent") and f.raw(spec["latent"]) is not None:
        width = f.count(spec["latent"])
        down, up = spec.get("latent_names", ["fc1_latent_proj", "fc2_latent_proj"])
        part.add(down, "latent projections", Role.DENSE, width, d)
        part.add(up, "latent projections", Role.DENSE, d, width)
        if spec.get("latent_norm") and f.flag(spec["latent_norm"]):
            part.add("routed_expert_norm", "latent projections", Role.SMALL, width)
    _mlp(part, "experts.{e}", EXPERTS, Role.EXPERTS, width, inner, gated, bool(spec.get("bias")), experts)
    if shared := _shared_width(f, spec, inner):
        name = spec.get("shared_name", "shared_experts")
        _mlp(part, name, SHARED, Role.DENSE, d, shared, gated, False)
        if spec.get("shared_gate"):
            part.add("shared_expert_gate", SHARED, Role.GATE, 1, d)


def _shared_width(f: Geometry, spec: dict, inner: int) -> int:
    """Width of all shared experts of a layer together."""
    how = spec.get("shared")
    if how is None:
        return 0
    if how == "width":  # one expert, its width told
        return f.count("shared_inner", 0, least=0)
    if how == "inner":  # always one, as wide as a routed one
        return inner
    number = f.count("shared_experts", spec.get("shared_default"), least=0)
    if how == "count":  # so many, each as wide as a routed one
        return number * inner
    if how == "count x width":
        return number * f.count("shared_inner", inner, least=0)
    if how == "width if count":  # one expert of its own width, or none
        return f.count("shared_inner", number * inner, least=0) if number else 0
    raise BadInput("families.yaml: shared", how, "width, inner, count, count x width, width if count")
