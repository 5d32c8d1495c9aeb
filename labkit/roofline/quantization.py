"""Which number format each tensor has, read from what the checkpoint says and never guessed."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline import gguf_shape
from labkit.roofline.architectures import shape_of
from labkit.roofline.dialects import Scheme, scheme_of
from labkit.roofline.formats import Format
from labkit.roofline.memo import by_config
from labkit.roofline.modules import Patterns, names_of
from labkit.roofline.tensors import Role, Shape, Tensor

_FIELDS = ("experts", "dense", "absorbed", "router", "head", "embedding", "gate", "small", "kv", "state", "convolution")
Mixed = tuple[tuple[Format, int], ...]


@dataclass(frozen=True)
class Quantization:
    """A format by role, and the tensors that differ from their role's (`modules`: format and number of layers).

    `absorbed` is MLA's kv_b as a decode step reads it (engines that fold it into the query and the output expand it
    first); on disk it has the dense format. `kv`, `state` and `convolution` are caches. A role's own format is the one
    that most of its bytes have.
    """

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
    modules: Mapping[Tensor, Mixed] = field(default_factory=dict, compare=False, repr=False)

    def of(self, role: Role, on_disk: bool = False) -> Format:
        """The format of most tensors of this role, as read by a step or as stored."""
        if role is Role.ABSORBED:
            return self.dense if on_disk else self.absorbed
        return self.small if role is Role.EXPERT_BIAS else getattr(self, role.value)

    def formats(self, tensor: Tensor, on_disk: bool = False) -> Mixed:
        """(format, number of layers that have it) of a tensor, as read by a step or as stored."""
        if tensor in self.modules and not (tensor.role is Role.ABSORBED and not on_disk):
            return self.modules[tensor]
        return ((self.of(tensor.role, on_disk), tensor.layers),)

    def with_formats(self, **formats: "str | Format | None") -> "Quantization":
        """Some roles in other formats, e.g. with_formats(head='fp8-row', experts='int4-g32'); None changes nothing."""
        if unknown := set(formats) - set(_FIELDS):
            raise BadInput("quantization", ", ".join(sorted(unknown)), ", ".join(_FIELDS))
        given = {k: Format.parse(v) for k, v in formats.items() if v is not None}
        kept = {t: m for t, m in self.modules.items() if t.role.value not in given}
        return dataclasses.replace(self, **given, modules=kept)

    def as_dict(self) -> dict[str, str]:
        return {name: getattr(self, name).name for name in _FIELDS}


@by_config
def quantization_of(c: ModelConfig) -> Quantization:
    """The quant that a checkpoint states, from a ModelConfig or the content of a config.json. BadInput for a
    quantisation that is not known.

    Linear-attention state is FP32 unless the config names its dtype; the router is FP32 where `router_dtype` says so.
    """
    if c.gguf is not None:
        return _gguf(c)
    shape, plain = shape_of(c), _plain(c)
    quant = Quantization(**dict.fromkeys(_FIELDS, plain)).with_formats(state=shape.state_format or "fp32")
    if str(c.fields.get("router_dtype", "")).lower() in ("fp32", "float32"):
        quant = quant.with_formats(router="fp32")
    scheme = scheme_of(c)
    if scheme.rules:
        found = _assign(shape, scheme, quant)
        quant = _by_role(quant, found)
    return quant.with_formats(kv=scheme.kv).with_formats(**c.formats)


def _plain(c: ModelConfig) -> Format:
    """The dtype of what is not quantised."""
    name = c.fields.get("torch_dtype") or c.fields.get("dtype") or "bfloat16"
    name = str(name).removeprefix("torch.")
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    if name not in names:
        raise BadInput(f"{c.name}: torch_dtype", name, ", ".join(names))
    return Format.parse(names[name])


def _assign(shape: Shape, scheme: Scheme, plain: Quantization) -> dict[Tensor, Mixed]:
    """The format of each tensor that the scheme may quantise, layer by layer."""
    found = {}
    for t in (*shape.tensors, *shape.nextn):
        if t.role in (Role.SMALL, Role.EXPERT_BIAS):
            continue
        counts: dict[Format, int] = {}
        for layer in t.at or (0,):
            names = names_of(t, layer, shape.layers)
            form = scheme.format_of(names, t.role) or plain.of(t.role, on_disk=True)
            counts[form] = counts.get(form, 0) + (1 if t.at else t.layers)
        found[t] = tuple(counts.items())
    return found


def _by_role(quant: Quantization, found: dict[Tensor, Mixed]) -> Quantization:
    """Each role's format is the one of most of its values; tensors that have it alone need no entry."""
    weights: dict[Role, dict[Format, float]] = {}
    for t, mixed in found.items():
        role = Role.DENSE if t.role is Role.ABSORBED else t.role
        for form, layers in mixed:
            line = weights.setdefault(role, {})
            line[form] = line.get(form, 0) + layers * max(1, t.experts) * t.rows * t.cols
    quant = quant.with_formats(**{role.value: max(line, key=line.get) for role, line in weights.items()})
    differ = {t: m for t, m in found.items() if m != ((quant.of(t.role, on_disk=True), t.layers),)}
    return dataclasses.replace(quant, modules=differ)


# Parts of a checkpoint that a step of text does not read, or that no scheme quantises.
_ELSEWHERE = (
    "vision",
    "visual",
    "audio",
    "mm_",
    "multi_modal",
    "projector",
    "vit",
    "tower",
    "norm",
    "mtp",
    "embed",
    "indexers_proj",
)


def unmatched(config: "dict | ModelConfig") -> tuple[str, ...]:
    """A note on each module pattern of the quantisation that names nothing in the account (five at most): the tensor
    that it leaves plain may go by another name here."""
    c = ModelConfig.of(config)
    if c.gguf is not None:
        return ()
    shape, notes = shape_of(c), []
    named = {n for t in (*shape.tensors, *shape.nextn) for i in (t.at or (0,)) for n in names_of(t, i, shape.layers)}
    spans = {
        ".".join(p[i:j]) for n in named for p in [n.split(".")] for i in range(len(p)) for j in range(i, len(p) + 1)
    }
    for rule in scheme_of(c).rules:
        for pattern in rule.patterns.listed if rule.patterns else ():
            if any(word in pattern for word in _ELSEWHERE) or re.search(r"\.experts\.[1-9]", pattern):
                continue
            if shape.tied and pattern.endswith("lm_head"):
                continue
            one = Patterns([pattern])
            if not (one.plain & spans if one.plain else one.match(named)):
                notes.append(f"The quantisation names {pattern}, which is no module of the account.")
    return tuple(notes[:5])


def _gguf(c: ModelConfig) -> Quantization:
    """Each tensor as its header says; llama.cpp's own caches: KV in F16, state in F32."""
    found = {t: ((form, 1),) for t, form in gguf_shape.formats_of(c).items()}
    plain = Quantization(**dict.fromkeys(_FIELDS, Format.parse("fp16")))
    quant = _by_role(plain, found).with_formats(state="fp32", convolution="fp32")
    return quant.with_formats(**c.formats)
