"""GGUF files for tests, written by this short writer of the specification (so that the reader meets other hands)."""

import struct

from labkit.roofline.gguf import TYPES

_NUMBERS = {name: number for number, (name, *_) in TYPES.items()}


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v) -> bytes:
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if v and isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)


def write(path, metadata: dict, tensors: dict[str, tuple[str, tuple[int, ...]]], align: int = 32):
    """A file with zero weights: tensors maps a name to (type, shape with the fastest side first)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(text(k) + value(v) for k, v in metadata.items())
    at = 0
    for name, (kind, shape) in tensors.items():
        _, block, size, _ = TYPES[_NUMBERS[kind]]
        n = 1
        for side in shape:
            n *= side
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", _NUMBERS[kind], at)
        at += -(-(n // block * size) // align) * align
    with path.open("wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // align) * align + at)
    return path
