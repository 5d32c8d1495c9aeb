"""The header of a GGUF file: metadata and every tensor with its type, shape and exact bytes. No weight is read.

Source: the GGUF specification of ggml (versions 2 and 3); block sizes are those of ggml's quantised types.
"""

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from labkit.errors import BadInput
from labkit.roofline.formats import GGUF_TYPES

# A type's number in the file, and its name in formats.GGUF_TYPES.
_NUMBERS = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
    42: "Q2_0",
}
TYPES = {number: (name, *GGUF_TYPES[name]) for number, name in _NUMBERS.items()}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONG = 1 << 16  # longer arrays (the vocabulary) are walked over and only their length is kept


@dataclass(frozen=True)
class Length:
    """An array of the metadata that was not kept: how many entries it has."""

    entries: int


@dataclass(frozen=True)
class GgufTensor:
    """One tensor. `shape` as the file has it: the first side runs fastest (a matrix is [columns, rows, experts])."""

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int
    offset: int

    @property
    def parameters(self) -> int:
        values = 1
        for side in self.shape:
            values *= side
        return values


@dataclass(frozen=True)
class Gguf:
    """A header. `metadata` maps keys such as 'llama.block_count' to numbers, texts, lists, or a Length."""

    source: str
    version: int
    metadata: dict
    tensors: tuple[GgufTensor, ...]

    @property
    def architecture(self) -> str:
        """general.architecture. BadInput when the file does not say it."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise BadInput(f"{self.source}: general.architecture", name, "the architecture's name")
        return name

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without the padding between them."""
        return sum(t.bytes for t in self.tensors)


def read_gguf(path: Path | str) -> Gguf:
    """The header of a file, or of all parts of a file split as NAME-00001-of-00003.gguf.

    BadInput for a file that is not GGUF, is cut off, has an unknown tensor type, or lacks a part.
    """
    path = Path(path)
    parts = _parts(path)
    headers = []
    for part in parts:
        try:
            now = part.stat()
            header, size = _header(part, now.st_mtime_ns, now.st_size), now.st_size
        except OSError as e:
            raise BadInput("model", str(part), f"a readable GGUF file ({e.strerror})") from None
        ends = [t.offset + t.bytes for t in header.tensors]
        if ends and max(ends) > size:
            raise BadInput(str(part), f"{size} bytes", f"the {max(ends)} bytes that its header promises")
        headers.append(header)
    if len(headers) == 1:
        return headers[0]
    return Gguf(str(path), headers[0].version, headers[0].metadata, tuple(t for h in headers for t in h.tensors))


@lru_cache(maxsize=64)
def _header(part: Path, changed_ns: int, size: int) -> Gguf:
    """Read once: every account asks for it, and it lists a whole vocabulary. Time and size are part of the key, so that
    a file that was replaced is read again."""
    with part.open("rb") as file:
        return read_header(file, str(part))


def _parts(path: Path) -> list[Path]:
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if not match:
        return [path]
    parts = [path.with_name(f"{match[1]}-{i:05d}-of-{match[3]}.gguf") for i in range(1, int(match[3]) + 1)]
    if missing := [p.name for p in parts if not p.exists()]:
        raise BadInput("model", str(path), f"all its parts (missing: {', '.join(missing)})")
    return parts


def read_header(file: BinaryIO, source: str) -> Gguf:
    """The header from an open binary stream, read once from its start to the end of the tensor list."""
    return _Reader(file, source).header()


class _Reader:
    def __init__(self, file: BinaryIO, source: str):
        self.file, self.source, self.order, self.at = file, source, "<", 0

    def header(self) -> Gguf:
        if self._bytes(4) != b"GGUF":
            raise BadInput("model", self.source, "a GGUF file (it does not begin with GGUF)")
        version = self._number("I")
        if version & 0xFFFF == 0:  # written on a big-endian machine
            self.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise BadInput(f"{self.source}: GGUF version", version, "2 or 3")
        tensors, entries = self._number("Q"), self._number("Q")
        metadata = {self._text(): self._value(self._number("I")) for _ in range(entries)}
        listed = [self._tensor() for _ in range(tensors)]
        align = metadata.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1:
            raise BadInput(f"{self.source}: general.alignment", align, "a positive number of bytes")
        start = -(-self.at // align) * align
        return Gguf(
            self.source,
            version,
            metadata,
            tuple(GgufTensor(name, kind, shape, size, start + offset) for name, kind, shape, size, offset in listed),
        )

    def _tensor(self) -> tuple[str, str, tuple[int, ...], int, int]:
        name = self._text()
        shape = tuple(self._number("Q") for _ in range(self._number("I")))
        number, offset = self._number("I"), self._number("Q")
        if number not in TYPES:
            raise BadInput(f"{self.source}: type of {name}", number, ", ".join(n for n, *_ in TYPES.values()))
        kind, block, size, _ = TYPES[number]
        values = 1
        for side in shape:
            values *= side
        if shape and shape[0] % block:
            raise BadInput(f"{self.source}: {name}", shape, f"rows of whole blocks of {block} values ({kind})")
        return name, kind, shape, values // block * size, offset

    def _value(self, kind: int) -> object:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            raise BadInput(f"{self.source}: metadata type", kind, "a type of the GGUF specification")
        inner, length = self._number("I"), self._number("Q")
        if inner in _SCALARS and length <= _LONG:
            return [self._number(_SCALARS[inner]) for _ in range(length)]
        if inner in _SCALARS:
            self._skip(length * struct.calcsize("=" + _SCALARS[inner]))
        else:
            for _ in range(length):
                if inner == _STRING:
                    self._skip(self._number("Q"))
                else:
                    self._value(inner)
        return Length(length)

    def _number(self, code: str):
        size = struct.calcsize("=" + code)
        return struct.unpack(self.order + code, self._bytes(size))[0]

    def _text(self) -> str:
        return self._bytes(self._number("Q")).decode("utf-8", "replace")

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._bytes(min(size, 1 << 20)))

    def _bytes(self, size: int) -> bytes:
        if size > 1 << 24:  # a text of 16 MB is a damaged length
            raise BadInput("model", self.source, f"a whole GGUF header (a length of {size} at byte {self.at})")
        got = self.file.read(size)
        if len(got) != size:
            raise BadInput("model", self.source, f"a whole GGUF header (it ends at byte {self.at + len(got)})")
        self.at += size
        return got
