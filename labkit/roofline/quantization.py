"""Which number format each role of tensor has, read from a config's quantization_config and never guessed."""

import dataclasses
from dataclasses import dataclass

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.formats import Format
from labkit.roofline.tensors import Role

_FIELDS = ("experts", "dense", "absorbed", "router", "head", "embedding", "gate", "small", "kv", "state", "convolution")


@dataclass(frozen=True)
class Recipe:
    """A format by role. `absorbed` is MLA's kv_b as a decode step reads it (engines that fold it into the query and
    the output expand it first); on disk it has the dense format. `kv`, `state` and `convolution` are caches."""

    experts: Format
    dense: Format
    absorbed: Format
    router: Format
    head: Format
    embedding: Format
    gate: Format
    small: Format
    kv: Format
    state: Format
    convolution: Format

    def of(self, role: Role, on_disk: bool = False) -> Format:
        """The format of a tensor of this role, as read by a step or as stored."""
        if role is Role.ABSORBED:
            return self.dense if on_disk else self.absorbed
        return self.small if role is Role.EXPERT_BIAS else getattr(self, role.value)

    def with_formats(self, **formats: "str | Format | None") -> "Recipe":
        """Some roles in other formats, e.g. with_formats(head='fp8-row', experts='int4-g32'); None changes nothing."""
        if unknown := set(formats) - set(_FIELDS):
            raise BadInput("recipe", ", ".join(sorted(unknown)), ", ".join(_FIELDS))
        return dataclasses.replace(self, **{k: Format.parse(v) for k, v in formats.items() if v is not None})

    def as_dict(self) -> dict[str, str]:
        return {name: getattr(self, name).name for name in _FIELDS}


def recipe_of(config: "dict | ModelConfig") -> Recipe:
    """The recipe that a config.json states. BadInput for a quantisation that is not known.

    Linear-attention state is FP32, as the released engines keep it; the router is FP32 where `router_dtype` says so.
    """
    c = ModelConfig.of(config)
    plain = _plain(c)
    recipe = Recipe(**dict.fromkeys(_FIELDS, plain)).with_formats(state="fp32")
    if str(c.fields.get("router_dtype", "")).lower() in ("fp32", "float32"):
        recipe = recipe.with_formats(router="fp32")
    if c.fields.get("quantization_config") is not None:
        recipe = recipe.with_formats(**_quantised(c, c.fields["quantization_config"]))
    return recipe.with_formats(**c.formats)


def _plain(c: ModelConfig) -> Format:
    """The dtype of what is not quantised."""
    name = c.fields.get("torch_dtype", c.fields.get("dtype", "bfloat16"))
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    if name not in names:
        raise BadInput(f"{c.name}: torch_dtype", name, ", ".join(names))
    return Format.parse(names[name])


def _quantised(c: ModelConfig, q: object) -> dict[str, str]:
    """Formats of experts and dense parts; head, embedding, router and small tensors stay plain in all of these."""
    if not isinstance(q, dict):
        raise BadInput(f"{c.name}: quantization_config", q, "an object")
    method = q.get("quant_method")
    if method == "fp8":
        block = q.get("weight_block_size")
        if block is None:
            dense = "fp8-tensor"
        elif isinstance(block, list) and len(block) == 2 and all(isinstance(b, int) and b > 0 for b in block):
            dense = f"fp8-block{block[0]}x{block[1]}" if block[0] != block[1] else f"fp8-block{block[0]}"
        else:
            raise BadInput(f"{c.name}: weight_block_size", block, "[rows, columns]")
        routed = q.get("routed_experts_quant_method", "fp8")
        if routed not in ("fp8", "mxfp4"):
            raise BadInput(f"{c.name}: routed_experts_quant_method", routed, "'fp8', 'mxfp4'")
        group = q.get("routed_experts_group_size", 32)
        if routed == "mxfp4" and group != 32:
            raise BadInput(f"{c.name}: routed_experts_group_size", group, "32, the group of MXFP4")
        return {"dense": dense, "experts": "mxfp4" if routed == "mxfp4" else dense}
    if method == "mxfp4":  # as gpt-oss ships it: the experts alone
        return {"experts": "mxfp4"}
    if method in ("gptq", "awq"):
        packed = _packed(c, q.get("bits"), q.get("group_size"))
        return {"dense": packed, "absorbed": packed, "experts": packed}
    if method == "compressed-tensors":
        return _compressed(c, q)
    raise BadInput(
        f"{c.name}: quantization_config.quant_method", method, "'fp8', 'mxfp4', 'gptq', 'awq', 'compressed-tensors'"
    )


def _compressed(c: ModelConfig, q: dict) -> dict[str, str]:
    """compressed-tensors with one group of weights; `ignore` that names attention leaves the dense parts plain."""
    groups = q.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise BadInput(f"{c.name}: config_groups", groups, "one group of weights")
    weights = (next(iter(groups.values())) or {}).get("weights") or {}
    packed = _packed(c, weights.get("num_bits"), weights.get("group_size"))
    ignored = " ".join(map(str, q.get("ignore") or ()))
    dense = {} if "attn" in ignored or "attention" in ignored else {"dense": packed, "absorbed": packed}
    return {"experts": packed, **dense}


def _packed(c: ModelConfig, bits: object, group: object) -> str:
    if bits not in (4, 8) or isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise BadInput(f"{c.name}: weight bits and group size", (bits, group), "4 or 8 bits, a group of at least 1")
    return f"int{bits}-g{group}"
