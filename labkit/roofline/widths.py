"""From what a quantiser says of a group of weights, or of a KV cache, to a number format; refused where not known."""

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.formats import Format


def packed(c: ModelConfig, bits: object, group: object, zeros: bool) -> Format:
    """Whole numbers in groups along a row; group -1: the whole row."""
    known = isinstance(bits, int) and not isinstance(bits, bool) and 2 <= bits <= 8
    if not known or isinstance(group, bool) or not isinstance(group, int) or (group < 1 and group != -1):
        raise BadInput(
            f"{c.name}: weight bits and group size", (bits, group), "2 to 8 bits, a group of at least 1 or -1"
        )
    return Format.parse(f"int{bits}-{'row' if group == -1 else f'g{group}'}{'z' if zeros else ''}")


def weights(c: ModelConfig, w: dict) -> Format:
    """The weights of one group of compressed-tensors, by type, bits, strategy and group."""
    bits, kind, group = w.get("num_bits"), w.get("type", "int"), w.get("group_size")
    strategy = w.get("strategy") or ("group" if group not in (None, -1) else "tensor" if group is None else "channel")
    told = f"{kind} of {bits} bits, strategy {strategy}, group {group}"
    if kind == "float" and bits == 8:
        if strategy in ("channel", "tensor"):
            return Format.parse("fp8-row" if strategy == "channel" else "fp8-tensor")
        block = w.get("block_structure")
        if strategy == "block" and isinstance(block, list) and len(block) == 2:
            return Format.parse(f"fp8-block{block[0]}x{block[1]}" if block[0] != block[1] else f"fp8-block{block[0]}")
        if strategy == "group" and group == 32:
            return Format.parse("mxfp8")
    if kind == "float" and bits == 4 and strategy in ("tensor_group", "group") and group in (16, 32):
        return Format.parse("nvfp4" if group == 16 else "mxfp4")
    if kind == "int":
        zeros = w.get("symmetric") is False
        if strategy == "channel":
            return packed(c, bits, -1, zeros) if bits != 8 else Format.parse("int8-row")
        if strategy == "tensor" and bits == 8:
            return Format.parse("int8-tensor")
        if strategy == "group":
            return packed(c, bits, group, zeros)
    if kind not in ("int", "float") or bits is None:
        raise BadInput(f"{c.name}: weight bits and group size", (bits, group), "bits and group of int or float weights")
    raise BadInput(
        f"{c.name}: quantised weights",
        told,
        "int by group, channel or tensor; float of 8 bits by channel, tensor, block or group 32; float of 4 bits by "
        "group 16 or 32",
    )


# ModelOpt's algorithms; None: the group size decides.
_ALGOS = {
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "NVFP4_SVDQUANT": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "FP8": "fp8-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-row",
    "FP8_PB_WO": "fp8-block128",
    "FP8_PB_REAL": "fp8-block128",
    "FP8_BLOCK_SCALES": "fp8-block128",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "W4A16_MXFP4": "mxfp4",
    "INT8_SQ": "int8-row",
    "W8A8_SQ_PER_CHANNEL": "int8-row",
    "W8A16": "int8-row",
    "W4A16_AWQ": None,
    "W4A8_AWQ": None,
    "INT4_AWQ": None,
    "W4A16": None,
}


def algorithm(c: ModelConfig, algo: object, group: object) -> Format:
    """The format of one of ModelOpt's algorithms. BadInput names it where it is not known."""
    name = str(algo).upper()
    if name not in _ALGOS:
        raise BadInput(f"{c.name}: quant_algo", algo, ", ".join(_ALGOS))
    if _ALGOS[name] is None:
        return packed(c, 4, group if group else 128, False)
    if _ALGOS[name] == "nvfp4" and group not in (None, 16):
        raise BadInput(f"{c.name}: group_size", group, "16, the group of NVFP4")
    return Format.parse(_ALGOS[name])


def modelopt_kv(c: ModelConfig, algo: object) -> str | None:
    """ModelOpt's kv_cache_quant_algo as a format name; None: the cache stays plain."""
    known = {"FP8": "fp8-tensor", "INT8": "int8-tensor", "NVFP4": "nvfp4", "NVFP4_AFFINE": "nvfp4"}
    if algo is None or str(algo).upper() == "NONE":
        return None
    if str(algo).upper() not in known:
        raise BadInput(f"{c.name}: kv_cache_quant_algo", algo, ", ".join(known))
    return known[str(algo).upper()]


def kv(c: ModelConfig, scheme: object) -> str | None:
    """kv_cache_scheme of compressed-tensors and ModelOpt."""
    if scheme is None:
        return None
    if isinstance(scheme, str):
        return modelopt_kv(c, scheme)
    told = (scheme.get("type"), scheme.get("num_bits")) if isinstance(scheme, dict) else scheme
    known = {("float", 8): "fp8-tensor", ("int", 8): "int8-tensor", ("float", 4): "nvfp4"}
    if told not in known:
        raise BadInput(f"{c.name}: kv_cache_scheme", told, "float of 8 or 4 bits, int of 8 bits")
    return known[told]


def quark_weight(c: ModelConfig, layer: object) -> Format:
    """The weight of one of AMD Quark's layer settings."""
    weight = layer.get("weight") if isinstance(layer, dict) else None
    if not isinstance(weight, dict):
        raise BadInput(f"{c.name}: quark weight", weight, "one object with dtype and qscheme")
    dtype, scheme, group = weight.get("dtype"), weight.get("qscheme"), weight.get("group_size")
    known = {
        ("fp4", "per_group", 32): "mxfp4",
        ("fp8_e4m3", "per_tensor", None): "fp8-tensor",
        ("fp8_e4m3", "per_channel", None): "fp8-row",
        ("int8", "per_tensor", None): "int8-tensor",
        ("int8", "per_channel", None): "int8-row",
    }
    key = (dtype, scheme, group if scheme == "per_group" else None)
    if key in known:
        return Format.parse(known[key])
    if dtype in ("int4", "uint4") and scheme == "per_group":
        return packed(c, 4, group, dtype == "uint4")
    raise BadInput(f"{c.name}: quark weight", key, ", ".join(" ".join(map(str, k)) for k in known))
