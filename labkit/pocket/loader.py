"""The weights on disk: configuration, checksums, tensors as NumPy views. Nothing is downloaded."""

import hashlib
import json
import mmap
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from labkit.errors import BadInput, LabError

DTYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "U8": np.uint8}
ARCHITECTURE = "BailingMoeV3ForCausalLM"


@dataclass(frozen=True)
class PocketConfig:
    """The fields of a BailingMoeV3 config.json that the engine needs, under that file's names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    layer_group_size: int
    first_k_dense_replace: int
    num_attention_heads: int
    head_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    moe_shared_expert_intermediate_size: int
    routed_scaling_factor: float
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope_theta: float
    short_conv_kernel_size: int
    kda_lower_bound: float
    rms_norm_eps: float
    num_nextn_predict_layers: int
    max_position_embeddings: int
    eos_token_ids: tuple[int, ...]

    def is_mla(self, layer: int) -> bool:
        return layer == self.num_hidden_layers or (layer + 1) % self.layer_group_size == 0

    def is_moe(self, layer: int) -> bool:
        return layer >= self.first_k_dense_replace

    @classmethod
    def from_json(cls, path: Path) -> "PocketConfig":
        raw = json.loads(path.read_text())
        if ARCHITECTURE not in raw.get("architectures", ()):
            raise BadInput("architectures", raw.get("architectures"), f"{ARCHITECTURE} (in {path})")
        eos = raw.get("eos_token_id", ())
        raw["eos_token_ids"] = (eos,) if isinstance(eos, int) else tuple(eos or ())
        fields = cls.__dataclass_fields__
        missing = [name for name in fields if name not in raw]
        if missing:
            raise BadInput("config.json", ", ".join(missing), f"a file that has these fields ({path})")
        config = cls(**{name: raw[name] for name in fields})
        config._check(raw)
        return config

    def _check(self, raw: dict) -> None:
        """What the kernels take for granted."""
        same = self.head_dim == self.qk_nope_head_dim == self.v_head_dim
        for name, ok, accepted in (
            ("head_dim", same and self.head_dim % 16 == 0, "one width, a multiple of 16, for KDA, nope and value"),
            ("hidden_size", self.hidden_size % 128 == 0, "a multiple of 128"),
            ("moe_intermediate_size", self.moe_intermediate_size % 128 == 0, "a multiple of 128"),
            (
                "kv_lora_rank",
                self.kv_lora_rank == 128 and 2 * self.head_dim == 128,
                "128, with heads of 64: each head's up-projection is then one scale block",
            ),
            ("qk_rope_head_dim", self.qk_rope_head_dim % 32 == 0, "a multiple of 32"),
            ("vocab_size", self.vocab_size % 32 == 0, "a multiple of 32"),
            ("score_function", raw.get("score_function", "sigmoid") == "sigmoid", "sigmoid"),
            ("q_lora_rank", raw.get("q_lora_rank") is None, "null"),
            ("n_group", raw.get("n_group", 1) == 1, "1"),
            ("num_shared_experts", raw.get("num_shared_experts", 1) == 1, "1"),
        ):
            if not ok:
                raise BadInput(name, raw.get(name), accepted)


class Weights:
    """Tensors by name, as read-only views of the mapped files."""

    def __init__(self, folder: Path, config: PocketConfig, metadata: dict, where: dict[str, str]):
        self.folder, self.config, self.provenance = folder, config, metadata.get("provenance", "unknown")
        self._tensors: dict[str, np.ndarray] = {}
        for file in sorted(set(where.values())):
            self._map(folder / file)
        absent = sorted(set(where) - set(self._tensors))
        if absent:
            raise LabError(f"{folder}: the index names tensors that no file holds: {', '.join(absent[:3])}")

    def _map(self, path: Path) -> None:
        with open(path, "rb") as f:
            data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype = np.dtype(DTYPES[entry["dtype"]])
            start, end = entry["data_offsets"]
            array = np.frombuffer(data, dtype, (end - start) // dtype.itemsize, 8 + size + start)
            self._tensors[name] = array.reshape(entry["shape"])

    def tensor(self, name: str, *shape: int) -> np.ndarray:
        """The tensor called `name`; LabError when it is absent or not of `shape`."""
        if name not in self._tensors:
            raise LabError(f"{self.folder}: no tensor called {name}")
        array = self._tensors[name]
        if shape and array.shape != shape:
            raise LabError(f"{self.folder}: {name} has shape {array.shape}, not {shape}")
        return array


def load(model_path: str | Path) -> Weights:
    """Open a model folder, checking every file against the sha256 in its index.

    LabError, in one line, for a missing folder or file and for a file that is not what the index says."""
    folder = Path(model_path)
    config_path, index_path = folder / "config.json", folder / "model.safetensors.index.json"
    for path in (config_path, index_path):
        if not path.is_file():
            raise BadInput("model_path", str(folder), f"a folder with {path.name}")
    config = PocketConfig.from_json(config_path)
    index = json.loads(index_path.read_text())
    sums = index.get("metadata", {}).get("sha256", {})
    for file in sorted(set(index["weight_map"].values())):
        path = folder / file
        if not path.is_file():
            raise LabError(f"{path}: missing; the index lists it. Restore it from the repository")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != sums.get(file):
            raise LabError(
                f"{path}: damaged: its sha256 is {found[:16]}..., the index says {str(sums.get(file))[:16]}... "
                "Restore it from the repository"
            )
    return Weights(folder, config, index["metadata"], index["weight_map"])
