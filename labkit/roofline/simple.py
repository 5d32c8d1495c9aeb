"""The simple account, one width for all active parameters, and the bridge from it to the per-tensor one. Bytes."""

from dataclasses import dataclass

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.account import Account
from labkit.roofline.architectures import shape_of
from labkit.roofline.formats import Format
from labkit.roofline.quantization import Quantization, quantization_of
from labkit.roofline.tensors import Shape


@dataclass(frozen=True)
class Simple:
    """The short formula: active parameters at one width plus the head at its own."""

    active_parameters: float
    weight_bits: float
    head_parameters: float
    head_bits: float

    @property
    def weight_bytes(self) -> float:
        return self.active_parameters * self.weight_bits / 8

    @property
    def head_bytes(self) -> float:
        return self.head_parameters * self.head_bits / 8

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.head_bytes


def simple(
    config: "dict | ModelConfig",
    head_bits: float = 16,
    *,
    active_parameters: float | None = None,
    weight_bits: float | None = None,
) -> Simple:
    """The simple account (facts.md): P_act * b_w / 8 + V * d * b_lm / 8, in bytes.

    P_act comes from the config unless a published figure is given; b_w is the width of the routed experts, or of a
    dense model's projections, unless given.
    """
    shape = shape_of(config)
    active = shape.active_parameters if active_parameters is None else active_parameters
    bits = _body_bits(shape, quantization_of(config)) if weight_bits is None else weight_bits
    for name, value in (("active_parameters", active), ("weight_bits", bits), ("head_bits", head_bits)):
        if not value > 0:
            raise BadInput(name, value, "a positive number")
    return Simple(active, bits, shape.vocab * shape.hidden, head_bits)


def _body_bits(shape: Shape, quant: Quantization) -> float:
    return (quant.experts if shape.experts else quant.dense).bits


def bridge(short: Simple, account: Account) -> list[tuple[str, float]]:
    """From the simple account's total to the per-tensor one: (what the simple account has wrong, bytes it is off by).

    The parts add up to the difference exactly; where `short` uses other active parameters than the account (a published
    figure, say), what remains is a line of its own.
    """
    width = short.weight_bits / 8
    head = account.group("head")
    parts = [("the head, counted twice", -head.parameters * width)]
    off: dict[str, float] = {}
    for g in account.groups:
        if g.name != "head":
            kind = g.format.partition("-block")[0].upper()
            same = Format.parse(g.format).bits == short.weight_bits
            label = f"wider parts among the {kind}" if same else f"{kind} parts, not {short.weight_bits:g}-bit"
            off[label] = off.get(label, 0.0) + g.payload_bytes - g.parameters * width
    parts += off.items()
    parts += [
        ("head in another format", head.payload_bytes - short.head_bytes),
        ("block scales and padding", sum(g.scale_bytes + g.padding_bytes for g in account.groups)),
        ("KV of the context", account.kv_bytes),
        ("linear-attention state", account.state_bytes + account.convolution_bytes),
    ]
    rest = account.total_bytes - short.total_bytes - sum(size for _, size in parts)
    parts.append(("other active parameters", rest))
    return [(name, size) for name, size in parts if abs(size) > 1e-6 * account.total_bytes]
