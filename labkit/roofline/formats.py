"""How many bytes a matrix takes in each number format: payload, scales, padding."""

import re
from dataclasses import dataclass

from labkit.errors import BadInput

ACCEPTED = (
    "fp32, bf16, fp16, fp8-block128, fp8-row, fp8-tensor, int8-row, mxfp4, mxfp8, nvfp4, int4-g32 (2 to 8 bits, any "
    "group; z at the end for zero points), int4-row, nf4-g64, mlx4-g64, any GGUF type such as Q4_K"
)


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
    bits: float
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
        """From a name such as 'bf16', 'fp8-block128', 'int4-g128', 'Q4_K'. BadInput for one that is not known."""
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
        if match := re.fullmatch(r"int([2-8])-(?:g([1-9]\d*)|row)(z?)", key):
            # A 16-bit scale per group and, with zero points, one packed value of the same width.
            bits = int(match[1])
            return cls(key, bits, 1, int(match[2] or 0), 2 + (bits / 8 if match[3] else 0))
        if match := re.fullmatch(r"mlx([2-8])-g([1-9]\d*)", key):
            return cls(key, int(match[1]), 1, int(match[2]), 4)  # a 16-bit scale and a 16-bit offset a group
        if str(name).upper() in GGUF_TYPES:
            block, size, bits = GGUF_TYPES[str(name).upper()]
            return cls(str(name).upper(), bits, 1, block, size - block * bits / 8)
        raise BadInput("format", name, ACCEPTED)


_PLAIN = {"fp32": 32, "bf16": 16, "fp16": 16}
# bits, block rows, block columns, bytes per scale
_SCALED = {
    "fp8-row": (8, 1, 0, 4),  # one FP32 scale per output row, as online FP8 quantisation makes it
    "fp8-tensor": (8, 0, 0, 4),
    "int8-row": (8, 1, 0, 4),
    "int8-tensor": (8, 0, 0, 4),
    "mxfp4": (4, 1, 32, 1),  # E2M1 values, one E8M0 byte a group of 32
    "mxfp8": (8, 1, 32, 1),
    "nvfp4": (4, 1, 16, 1),  # E2M1 values, one E4M3 byte a group of 16
    "nf4-g64": (4, 1, 64, 4),  # bitsandbytes: one FP32 scale per group
    "nf4-g64-double": (4, 1, 64, 1 + 4 / 256),  # its scales quantised again
}
# name: values in a block, bytes of a block, nominal bits of a value (ggml's block structs)
GGUF_TYPES = {
    "F32": (1, 4, 32),
    "F16": (1, 2, 16),
    "Q4_0": (32, 18, 4),
    "Q4_1": (32, 20, 4),
    "Q5_0": (32, 22, 5),
    "Q5_1": (32, 24, 5),
    "Q8_0": (32, 34, 8),
    "Q8_1": (32, 36, 8),
    "Q2_K": (256, 84, 2),
    "Q3_K": (256, 110, 3),
    "Q4_K": (256, 144, 4),
    "Q5_K": (256, 176, 5),
    "Q6_K": (256, 210, 6),
    "Q8_K": (256, 292, 8),
    "IQ2_XXS": (256, 66, 2),
    "IQ2_XS": (256, 74, 2),
    "IQ3_XXS": (256, 98, 3),
    "IQ1_S": (256, 50, 1),
    "IQ4_NL": (32, 18, 4),
    "IQ3_S": (256, 110, 3),
    "IQ2_S": (256, 82, 2),
    "IQ4_XS": (256, 136, 4),
    "I8": (1, 1, 8),
    "I16": (1, 2, 16),
    "I32": (1, 4, 32),
    "I64": (1, 8, 64),
    "F64": (1, 8, 64),
    "IQ1_M": (256, 56, 1),
    "BF16": (1, 2, 16),
    "TQ1_0": (256, 54, 1),
    "TQ2_0": (256, 66, 2),
    "MXFP4": (32, 17, 4),
    "NVFP4": (64, 36, 4),
    "Q1_0": (128, 18, 1),
    "Q2_0": (64, 18, 2),
}
