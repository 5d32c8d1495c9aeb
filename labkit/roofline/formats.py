"""How many bytes a matrix takes in each number format: payload, scales, padding."""

import re
from dataclasses import dataclass

from labkit.errors import BadInput

ACCEPTED = "fp32, bf16, fp16, fp8-block128, fp8-row, fp8-tensor, int8-row, mxfp4, nvfp4, int4-g32 (any group)"


@dataclass(frozen=True)
class Size:
    """Bytes of one matrix. `padding` fills the last group of a row where the row does not divide into groups."""

    payload: float
    scale: float
    padding: float

    @property
    def total(self) -> float:
        return self.payload + self.scale + self.padding


@dataclass(frozen=True)
class Format:
    """A number format: `bits` a value and one scale of `scale_bytes` for each block of `block_rows` x `block_cols`.

    0 as a block side means the whole matrix in that direction; scale_bytes 0 means that the format has no scales.
    """

    name: str
    bits: int
    block_rows: int = 1
    block_cols: int = 1
    scale_bytes: float = 0

    def size(self, rows: int, cols: int) -> Size:
        """Bytes of a [rows, cols] matrix."""
        payload = rows * cols * self.bits / 8
        if not self.scale_bytes:
            return Size(payload, 0.0, 0.0)
        block_rows, block_cols = self.block_rows or rows, self.block_cols or cols
        groups_per_row = -(-cols // block_cols)
        scale = -(-rows // block_rows) * groups_per_row * self.scale_bytes
        # Packed formats store whole groups; formats of a byte or more store the values alone.
        spare = groups_per_row * block_cols - cols if self.bits < 8 else 0
        return Size(payload, scale, rows * spare * self.bits / 8)

    @classmethod
    def parse(cls, name: "str | Format") -> "Format":
        """From a name such as 'bf16', 'fp8-block128', 'int4-g128'. BadInput for one that is not known."""
        if isinstance(name, Format):
            return name
        key = str(name).lower().replace("_", "-")
        if key in _PLAIN:
            return cls(key, _PLAIN[key])
        if key in _SCALED:
            return cls(key, *_SCALED[key])
        if match := re.fullmatch(r"fp8-block([1-9]\d*)(?:x([1-9]\d*))?", key):
            rows = int(match[1])
            return cls(key, 8, rows, int(match[2] or rows), 4)
        if match := re.fullmatch(r"int([48])-g([1-9]\d*)", key):
            return cls(key, int(match[1]), 1, int(match[2]), 2)
        raise BadInput("format", name, ACCEPTED)


_PLAIN = {"fp32": 32, "bf16": 16, "fp16": 16}
# bits, block rows, block columns, bytes a scale
_SCALED = {
    "fp8-row": (8, 1, 0, 4),  # one FP32 scale an output row, as online FP8 quantisation makes it
    "fp8-tensor": (8, 0, 0, 4),
    "int8-row": (8, 1, 0, 4),
    "mxfp4": (4, 1, 32, 1),  # E2M1 values, one E8M0 byte a group of 32
    "nvfp4": (4, 1, 16, 1),  # E2M1 values, one E4M3 byte a group of 16
}
