"""What a checkpoint says about its quantisation, in each of the dialects: rules from modules to number formats.

Nothing is guessed: a dialect, a width or a scheme that is not known is refused by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from labkit.catalog.config import SIDECARS, ModelConfig
from labkit.errors import BadInput
from labkit.roofline import widths
from labkit.roofline.formats import Format
from labkit.roofline.modules import LINEAR, Patterns
from labkit.roofline.tensors import Role


@dataclass(frozen=True)
class Rule:
    """A format (None: left plain) for the modules that the patterns name (None: all) and whose role is listed."""

    format: Format | None
    patterns: Patterns | None = None
    roles: frozenset[Role] = frozenset(LINEAR)


@dataclass(frozen=True)
class Scheme:
    """The first rule that applies decides; no rule, plain. `kv`: the cache's format where the checkpoint says one."""

    method: str
    rules: tuple[Rule, ...] = ()
    kv: str | None = None
    patterns: tuple[Patterns, ...] = field(default=())

    def format_of(self, names: list[str], role: Role) -> Format | None:
        for rule in self.rules:
            if role in rule.roles and (rule.patterns is None or rule.patterns.match(names)):
                return rule.format
        return None


BODY = frozenset({Role.EXPERTS, Role.DENSE, Role.ABSORBED})
EVERY = frozenset({*LINEAR, Role.EMBEDDING, Role.ROUTER, Role.GATE})


def scheme_of(c: ModelConfig) -> Scheme:
    """The quantisation of a config.json or of the file beside it. BadInput for what is not known."""
    given = {k: c.fields[k] for k in ("quantization_config", "compression_config") if c.fields.get(k) is not None}
    mlx = c.fields.get("quantization")
    found = next(iter(given.values()), None)
    if found is None and mlx is not None:
        return _mlx(c, mlx)
    for sidecar in SIDECARS:
        beside = c.fields.get(sidecar)
        if beside is not None and found is None:
            return _sidecar(c, sidecar, beside)
    if found is None:
        return Scheme("none")
    if not isinstance(found, dict):
        raise BadInput(f"{c.name}: quantization_config", found, "an object")
    method = found.get("quant_method")
    if method is None and ("quantization" in found or "quant_algo" in found):
        method = "modelopt"
    if method not in DIALECTS:
        raise BadInput(f"{c.name}: quantization_config.quant_method", method, ", ".join(map(repr, DIALECTS)))
    return DIALECTS[method](c, found)


def _sidecar(c: ModelConfig, name: str, q: dict) -> Scheme:
    if name == "hf_quant_config.json":
        return _modelopt(c, q)
    if "w_bit" in q:  # AutoAWQ's own file
        return _awq(c, {"bits": q["w_bit"], "group_size": q.get("q_group_size"), **q})
    if "bits" in q:
        return _gptq(c, q)
    raise BadInput(f"{c.name}: {name}", ", ".join(q), "a file of ModelOpt, AutoAWQ or GPTQ")


def _names(q: dict, *keys: str) -> list[str]:
    return [str(n) for k in keys for n in (q.get(k) or ())]


def _fp8(c: ModelConfig, q: dict) -> Scheme:
    block = q.get("weight_block_size")
    if block is None:
        dense = "fp8-tensor"
    elif isinstance(block, list) and len(block) == 2 and all(isinstance(b, int) and b > 0 for b in block):
        dense = f"fp8-block{block[0]}x{block[1]}" if block[0] != block[1] else f"fp8-block{block[0]}"
        if block == [1, 32] and q.get("scale_fmt") == "ue8m0":
            dense = "mxfp8"
    else:
        raise BadInput(f"{c.name}: weight_block_size", block, "[rows, columns]")
    routed = q.get("routed_experts_quant_method", q.get("moe_quant_method", "fp8"))
    if routed not in ("fp8", "mxfp4"):
        raise BadInput(f"{c.name}: routed_experts_quant_method", routed, "'fp8', 'mxfp4'")
    group = q.get("routed_experts_group_size", 32)
    if routed == "mxfp4" and group != 32:
        raise BadInput(f"{c.name}: routed_experts_group_size", group, "32, the group of MXFP4")
    left = _left(q, "modules_to_not_convert", "ignored_layers")
    return Scheme(
        "fp8",
        (
            left,
            Rule(Format.parse("mxfp4" if routed == "mxfp4" else dense), None, frozenset({Role.EXPERTS})),
            Rule(Format.parse(dense), None, BODY),
        ),
        widths.kv(c, q.get("kv_cache_scheme")),
    )


def _left(q: dict, *keys: str) -> Rule:
    """The modules that stay plain."""
    return Rule(None, Patterns(_names(q, *keys)))


def _mxfp4(c: ModelConfig, q: dict) -> Scheme:
    """As gpt-oss ships it: the experts alone."""
    return Scheme(
        "mxfp4", (_left(q, "modules_to_not_convert"), Rule(Format.parse("mxfp4"), None, frozenset({Role.EXPERTS})))
    )


def _gptq(c: ModelConfig, q: dict) -> Scheme:
    """GPTQ: zero points are stored also where they are symmetric. `dynamic` leaves out (-:) or changes (+:) modules."""
    plain = widths.packed(c, q.get("bits"), q.get("group_size"), True)
    rules = [_left(q, "modules_to_not_convert", "modules_in_block_to_not_quantize")]
    for pattern, change in (q.get("dynamic") or {}).items():
        sign, _, regex = str(pattern).partition(":")
        regex = regex if sign in "+-" else pattern
        form = None
        if sign != "-":
            change = {"bits": q.get("bits"), "group_size": q.get("group_size")} | (change or {})
            form = widths.packed(c, change["bits"], change["group_size"], True)
        rules.append(Rule(form, Patterns([f"re:{regex}"])))
    for name, change in (q.get("extra_config") or {}).items():  # AutoRound
        bits = change.get("bits", q.get("bits")) if isinstance(change, dict) else None
        kept = not isinstance(bits, int) or bits >= 16
        form = None if kept else widths.packed(c, bits, change.get("group_size", q.get("group_size")), True)
        rules.append(Rule(form, Patterns([name])))
    roles = BODY | ({Role.HEAD} if q.get("lm_head") is True else set())
    return Scheme(str(q.get("quant_method", "gptq")), (*rules, Rule(plain, None, roles)))


def _awq(c: ModelConfig, q: dict) -> Scheme:
    plain = widths.packed(c, q.get("bits"), q.get("group_size"), q.get("zero_point", True) is not False)
    return Scheme("awq", (_left(q, "modules_to_not_convert"), Rule(plain, None, BODY)))


def _compressed(c: ModelConfig, q: dict) -> Scheme:
    """compressed-tensors: groups of targets, each with its weights; `ignore` leaves modules plain."""
    sparsity = (q.get("sparsity_config") or {}).get("format", "dense")
    if sparsity != "dense":
        raise BadInput(f"{c.name}: sparsity_config.format", sparsity, "'dense' (weights without stored sparsity)")
    groups = q.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise BadInput(f"{c.name}: config_groups", groups, "groups of weights with their targets")
    named, classes = [], []
    for key, group in groups.items():
        if not isinstance(group, dict) or not isinstance(group.get("weights"), dict):
            if isinstance(group, dict) and group.get("weights", 0) is None and "targets" in group:
                continue  # activations alone
            raise BadInput(f"{c.name}: config_groups.{key}.weights", group, "bits, type, strategy and group size")
        form = widths.weights(c, group["weights"])
        targets = [str(t) for t in group.get("targets") or ["Linear"]]
        if "Linear" in targets:
            classes.append(Rule(form))
        if "Embedding" in targets:
            classes.append(Rule(form, None, frozenset({Role.EMBEDDING})))
        if modules := [t for t in targets if t not in ("Linear", "Embedding")]:
            if unknown := [t for t in modules if "." not in t and ":" not in t and t != "lm_head" and t[:1].isupper()]:
                raise BadInput(f"{c.name}: config_groups.{key}.targets", unknown, "Linear, Embedding, or module names")
            named.append(Rule(form, Patterns(modules), frozenset({*LINEAR, Role.EMBEDDING, Role.GATE})))
    kv = widths.kv(c, q.get("kv_cache_scheme"))
    return Scheme("compressed-tensors", (_left(q, "ignore"), *named, *classes), kv)


def _modelopt(c: ModelConfig, q: dict) -> Scheme:
    """NVIDIA ModelOpt, in config.json or in hf_quant_config.json: one algorithm, or one for each listed module."""
    inner = q["quantization"] if isinstance(q.get("quantization"), dict) else q
    algo, group = inner.get("quant_algo"), inner.get("group_size")
    left = _left(inner, "exclude_modules", "ignore", "ignored_layers")
    kv = inner.get("kv_cache_quant_algo")
    if kv is None and inner.get("kv_cache_scheme"):
        kv_format = widths.kv(c, inner["kv_cache_scheme"])
    else:
        kv_format = widths.modelopt_kv(c, kv)
    listed = inner.get("quantized_layers")
    if str(algo).upper() == "MIXED_PRECISION" or (algo is None and listed):
        if not isinstance(listed, dict) or not listed:
            if isinstance(inner.get("config_groups"), dict):
                mixed = _compressed(c, {"ignore": left.patterns.listed, **inner})
                return Scheme("modelopt", mixed.rules, kv_format)
            raise BadInput(f"{c.name}: quantized_layers", listed, "a module list with an algorithm each")
        by_format: dict[Format, list[str]] = {}
        for name, how in listed.items():
            if not isinstance(how, dict):
                raise BadInput(f"{c.name}: quantized_layers.{name}", how, "an object with quant_algo")
            form = widths.algorithm(c, how.get("quant_algo"), how.get("group_size", group))
            by_format.setdefault(form, []).append(name)
        rules = [Rule(form, Patterns(names), frozenset({*LINEAR, Role.GATE})) for form, names in by_format.items()]
        return Scheme("modelopt", (left, *rules), kv_format)
    if algo is None and isinstance(inner.get("config_groups"), dict):
        return Scheme("modelopt", _compressed(c, inner).rules, kv_format)
    return Scheme("modelopt", (left, Rule(widths.algorithm(c, algo, group))), kv_format)


def _bitsandbytes(c: ModelConfig, q: dict) -> Scheme:
    left = Rule(None, Patterns([*_names(q, "llm_int8_skip_modules"), "lm_head"]))
    if q.get("load_in_8bit") or q.get("_load_in_8bit"):
        return Scheme("bitsandbytes", (left, Rule(Format.parse("int8-row"), None, BODY)))
    if not (q.get("load_in_4bit") or q.get("_load_in_4bit")):
        raise BadInput(f"{c.name}: bitsandbytes", "neither load_in_4bit nor load_in_8bit", "one of them")
    double = q.get("bnb_4bit_use_double_quant") is True
    return Scheme("bitsandbytes", (left, Rule(Format.parse("nf4-g64-double" if double else "nf4-g64"), None, BODY)))


def _fbgemm(c: ModelConfig, q: dict) -> Scheme:
    return Scheme("fbgemm_fp8", (_left(q, "modules_to_not_convert"), Rule(Format.parse("fp8-row"), None, BODY)))


def _quark(c: ModelConfig, q: dict) -> Scheme:
    """AMD Quark: one scheme, others for named layers, and an exclude list."""
    rules = [_left(q, "exclude")]
    for pattern, layer in (q.get("layer_quant_config") or {}).items():
        rules.append(Rule(widths.quark_weight(c, layer), Patterns([pattern])))
    rules.append(Rule(widths.quark_weight(c, q.get("global_quant_config"))))
    return Scheme("quark", tuple(rules))


def _mlx(c: ModelConfig, q: object) -> Scheme:
    """MLX: linear layers, embedding and head alike; entries named after modules override or switch off."""
    if not isinstance(q, dict):
        raise BadInput(f"{c.name}: quantization", q, "an object with bits and group_size")

    def form(part: dict) -> Format:
        mode, bits, group = part.get("mode", "affine"), part.get("bits"), part.get("group_size")
        if mode in ("mxfp4", "nvfp4", "mxfp8"):
            return Format.parse(mode)
        if mode != "affine" or bits not in (2, 3, 4, 5, 6, 8) or not isinstance(group, int) or group < 1:
            raise BadInput(f"{c.name}: quantization", (mode, bits, group), "mode affine, 2 to 8 bits, a group size")
        return Format.parse(f"mlx{bits}-g{group}")

    rules = [
        Rule(form(q | v) if isinstance(v, dict) else None, Patterns([name]), EVERY)
        for name, v in q.items()
        if isinstance(v, dict) or v is False
    ]
    return Scheme("mlx", (*rules, Rule(form(q), None, EVERY)))


DIALECTS: dict[str, Callable[[ModelConfig, dict], Scheme]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "auto-round": _gptq,
    "bitsandbytes": _bitsandbytes,
    "fbgemm_fp8": _fbgemm,
    "quark": _quark,
}
