"""Tensors and state of the recurrent token mixers: KDA, gated delta, Mamba-2, lightning, short convolution.

Shapes: those of the models' public implementations in transformers and SGLang.
"""

from labkit.roofline.geometry import Geometry
from labkit.roofline.part import Part
from labkit.roofline.tensors import Role

SMALL_LINEAR = "linear attention small parts"


def kda(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Kimi Delta Attention. The decay gate f and the output gate g are whole or go through a head's width."""
    d, heads, width, taps = (f.count(n) for n in ("hidden_size", "linear_heads", "linear_head_dim", "conv_taps"))
    wide, group = heads * width, "KDA projections"
    for name in ("q_proj", "k_proj", "v_proj"):
        part.add(name, group, Role.DENSE, wide, d)
    low = {"f": True, "g": True}
    if spec.get("whole"):
        low = dict.fromkeys(low, False)
    elif spec.get("whole_gates"):  # Ling 3: both whole
        low = dict.fromkeys(low, not f.flag(spec["whole_gates"]))
    elif spec.get("whole_g"):  # Kimi K3: the output gate alone
        low["g"] = not f.flag(spec["whole_g"])
    for gate, is_low in low.items():
        if is_low:
            part.add(f"{gate}_a_proj", group, Role.DENSE, width, d)
            part.add(f"{gate}_b_proj", group, Role.DENSE, wide, width)
        else:
            part.add(f"{gate}_proj", group, Role.DENSE, wide, d)
    part.add("o_proj", "KDA output projection", Role.DENSE, d, wide)
    part.add("b_proj", "KDA small parts", Role.GATE, heads, d)
    part.add("conv1d", "KDA small parts", Role.SMALL, 3 * wide, taps)
    part.add("dt_bias", "KDA small parts", Role.SMALL, wide + heads)
    part.add("o_norm", "KDA small parts", Role.SMALL, width)
    part.recurrent = len(part.at) * heads * width * width
    part.convolution = len(part.at) * 3 * wide * (taps - 1)


def gated_delta(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Gated DeltaNet of Qwen3-Next and Qwen3.5. spec split: qkv, z, b and a are modules of their own."""
    d, taps = f.count("hidden_size"), f.count("linear_conv_kernel_dim")
    keys = f.count("linear_num_key_heads") * f.count("linear_key_head_dim")
    value_heads, width = f.count("linear_num_value_heads"), f.count("linear_value_head_dim")
    values = value_heads * width
    group = "linear attention projections"
    if spec.get("split"):
        part.add("in_proj_qkv", group, Role.DENSE, 2 * keys + values, d)
        part.add("in_proj_z", group, Role.DENSE, values, d)
        part.add("in_proj_b", SMALL_LINEAR, Role.GATE, value_heads, d)
        part.add("in_proj_a", SMALL_LINEAR, Role.GATE, value_heads, d)
    else:
        part.add("in_proj_qkvz", group, Role.DENSE, 2 * keys + 2 * values, d)
        part.add("in_proj_ba", SMALL_LINEAR, Role.GATE, 2 * value_heads, d)
    part.add("out_proj", group, Role.DENSE, d, values)
    part.add("conv1d", SMALL_LINEAR, Role.SMALL, 2 * keys + values, taps)
    part.add("dt_bias", SMALL_LINEAR, Role.SMALL, 2 * value_heads)
    part.add("norm", SMALL_LINEAR, Role.SMALL, width)
    part.recurrent = len(part.at) * values * f.count("linear_key_head_dim")
    part.convolution = len(part.at) * (2 * keys + values) * (taps - 1)


def mamba2(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Mamba-2: one projection in (gate, values, B, C, time step), a convolution, one projection out."""
    d, heads, taps = f.count("hidden_size"), f.count("mamba_heads"), f.count("mamba_conv")
    width = f.raw("mamba_head_dim")
    if width in (None, "auto"):
        inner = f.count("mamba_expand") * d
        width = inner // heads
    else:
        width = f.count("mamba_head_dim")
        inner = heads * width
        f.raw("mamba_expand")
    groups, state = f.count("mamba_groups"), f.count("mamba_state")
    wide = inner + 2 * groups * state
    group = "Mamba projections"
    part.add("in_proj", group, Role.DENSE, inner + wide + heads, d)
    part.add("out_proj", group, Role.DENSE, d, inner)
    if f.flag("mamba_proj_bias"):
        part.add("in_proj.bias", SMALL_LINEAR, Role.SMALL, inner + wide + heads)
        part.add("out_proj.bias", SMALL_LINEAR, Role.SMALL, d)
    part.add("conv1d", SMALL_LINEAR, Role.SMALL, wide, taps + (1 if f.flag("mamba_conv_bias", True) else 0))
    part.add("dt_bias", SMALL_LINEAR, Role.SMALL, 3 * heads)
    part.add("norm", SMALL_LINEAR, Role.SMALL, inner)
    part.recurrent = len(part.at) * heads * width * state
    part.convolution = len(part.at) * wide * (taps - 1)


def lightning(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """Lightning attention of Ling 2.5 and Ring-linear: every head with its own keys, a fixed decay, an output gate."""
    d, heads, width = f.count("hidden_size"), f.count("heads"), f.count("head_dim")
    wide, group = heads * width, "linear attention projections"
    bias = f.flag("use_bias") or f.flag("use_qkv_bias")
    part.add("query_key_value", group, Role.DENSE, 3 * wide, d)
    part.add("g_proj", group, Role.DENSE, wide, d)
    part.add("dense", group, Role.DENSE, d, wide)
    if bias:
        part.add("query_key_value.bias", SMALL_LINEAR, Role.SMALL, 3 * wide)
    if f.flag("use_qk_norm"):
        part.add("qk_norms", SMALL_LINEAR, Role.SMALL, 2 * width)
    part.add("g_norm", SMALL_LINEAR, Role.SMALL, wide)
    part.recurrent = len(part.at) * heads * width * width


def short_convolution(f: Geometry, spec: dict, part: Part, kind: str) -> None:
    """LFM2's gated short convolution: the last few values are its whole memory."""
    d, taps, bias = f.count("hidden_size"), f.count("conv_L_cache"), f.flag("conv_bias")
    group = "short convolutions"
    part.add("in_proj", group, Role.DENSE, 3 * d, d)
    part.add("out_proj", group, Role.DENSE, d, d)
    part.add("conv", SMALL_LINEAR, Role.SMALL, d, taps + (1 if bias else 0))
    if bias:
        part.add("in_proj.bias", SMALL_LINEAR, Role.SMALL, 4 * d)
    part.convolution = len(part.at) * d * (taps - 1)


LINEAR = {
    "kda": kda,
    "gated_delta": gated_delta,
    "mamba2": mamba2,
    "lightning": lightning,
    "short_convolution": short_convolution,
}
