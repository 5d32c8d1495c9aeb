"""Write a GGUF with random weights of the pocket model's shape, for llama.cpp (needs the package gguf).

python -m benchmarks.gguf_random random.gguf [--config config.json] [--seed 0]
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labkit.errors import BadInput
from labkit.pocket.options import SHIPPED_WEIGHTS

from . import gguf_shape
from .common import existing, need, run

WORD = "Ġw{:05d}"  # Ġ is how byte-level BPE spells a leading space


def weights(tensor: gguf_shape.Tensor, rng: np.random.Generator) -> np.ndarray:
    """Random contents in the tensor's own format: float32 [shape], or uint8 [..., bytes a row] for a block format.

    Matrices get a spread near 1/sqrt(row length), so activations keep their size through the layers.
    """
    shape, rows = tensor.shape, tensor.shape[:-1]
    if tensor.kind == "F32":
        if tensor.name.endswith("norm.weight"):
            return np.ones(shape, np.float32)
        if tensor.name.endswith("ssm_a"):
            return rng.uniform(0.5, 2.0, shape).astype(np.float32)
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
    spread = 1 / np.sqrt(shape[-1])
    if tensor.kind == "BF16":
        values = (rng.standard_normal(shape) * spread).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(*rows, -1)
    blocks = shape[-1] // 32
    if tensor.kind == "Q8_0":
        scale = np.full((*rows, blocks, 1), spread / 73, "<f2").view(np.uint8)  # uniform int8 has a spread of 73
        return np.concatenate([scale, rng.integers(0, 256, (*rows, blocks, 32), np.uint8)], -1).reshape(*rows, -1)
    exponent = 127 + int(np.round(np.log2(spread / 2.9)))  # uniform E2M1 codes have a spread of 2.9
    scale = np.full((*rows, blocks, 1), exponent, np.uint8)
    return np.concatenate([scale, rng.integers(0, 256, (*rows, blocks, 16), np.uint8)], -1).reshape(*rows, -1)


def vocabulary(size: int) -> list[str]:
    """`size` distinct ASCII pieces, so that no random token leaves a server waiting for the rest of a UTF-8 letter."""
    if size < 200:
        raise BadInput("vocab_size", size, "at least 200")
    letters = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
    return letters + [WORD.format(index) for index in range(size - len(letters) - 1)] + ["<|end|>"]


def write(path: Path, config: Mapping, seed: int) -> int:
    """Write the model and return its tensors' bytes. LabError without the package gguf."""
    gguf = need("gguf", "gguf")
    writer = gguf.GGUFWriter(str(path), gguf_shape.ARCHITECTURE)
    writer.add_name("random weights, pocket shape")
    for key, value in gguf_shape.metadata(config).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
        add[type(value)](key, value)
    pieces = vocabulary(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_types([1] * (len(pieces) - 1) + [3])  # 1 normal, 3 control
    writer.add_token_merges(["Ġ w"])
    writer.add_eos_token_id(len(pieces) - 1)
    rng, total = np.random.default_rng(seed), 0
    for tensor in gguf_shape.tensors(config):
        kind = gguf.GGMLQuantizationType[tensor.kind]
        data = weights(tensor, rng)
        writer.add_tensor(tensor.name, data, raw_dtype=None if tensor.kind == "F32" else kind)
        total += tensor.bytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total


def read_config(path: str | Path | None) -> dict:
    """The config.json at `path` (a file or its folder); the shipped model's when None."""
    found = existing("config", path or SHIPPED_WEIGHTS, "a config.json or a folder with one")
    found = found / "config.json" if found.is_dir() else found
    try:
        return json.loads(found.read_text())
    except (OSError, ValueError) as error:
        raise BadInput("config", str(found), f"a readable config.json ({error})") from None


def main(args: argparse.Namespace) -> dict:
    config = read_config(args.config)
    total = write(Path(args.path), config, args.seed)
    return {"path": args.path, "tensor_bytes": total, "step_bytes": gguf_shape.step_bytes(config)}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("path", help="the GGUF to write")
    made.add_argument("--config", help="config.json of the shape (default: the shipped model's)")
    made.add_argument("--seed", type=int, default=0)
    return made


if __name__ == "__main__":
    sys.exit(
        run(
            main,
            parser(),
            lambda r: (
                f"{r['path']}: {r['tensor_bytes'] / 1e6:.1f} MB of tensors, "
                f"{r['step_bytes']['total'] / 1e6:.2f} MB read a step"
            ),
        )
    )
