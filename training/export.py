"""Writes a trained (or random) model as the folder that the engine loads, and reads such a folder back into the model.

Dense projections FP8 in 128x128 blocks, routed experts MXFP4 in groups of 32, embedding and head BF16, small vectors
and the router FP32. `tensors` lists the names; the quantisers are NumPy (quantise.py), so that any reader can check
them without PyTorch.
"""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from . import quantise
from .config import Shape, config_json

SHARD = 15 * 2**20  # below the 16 MiB that one file may have
INDEX = "model.safetensors.index.json"


def _attention(s: Shape, mla: bool, name: str, a: str) -> list[tuple[str, str, str, object]]:
    """(tensor, how, parameter, slice) of one attention; `a` is the parameter prefix."""
    if mla:
        return [
            (f"{name}.{t}.weight", how, f"{a}.{p}", None)
            for t, how, p in (
                ("q_proj", "fp8", "w_q"),
                ("kv_a_proj_with_mqa", "fp8", "w_kva"),
                ("kv_a_layernorm", "f32", "kv_norm"),
                ("g_proj", "fp8", "w_gate"),
                ("o_proj", "fp8", "w_out"),
            )
        ] + [(f"{name}.kv_b_proj.weight", "fp8", f"{a}.w_kvb", None)]
    rows = [(f"{name}.{t}_proj.weight", "fp8", f"{a}.w_in", i) for i, t in enumerate("qkvfg")]
    rows += [(f"{name}.{t}_conv1d.weight", "f32", f"{a}.conv", i) for i, t in enumerate("qkv")]
    return rows + [
        (f"{name}.b_proj.weight", "bf16", f"{a}.w_beta", None),
        (f"{name}.A_log", "f32", f"{a}.A_log", None),
        (f"{name}.dt_bias", "f32", f"{a}.dt_bias", None),
        (f"{name}.o_norm.weight", "f32", f"{a}.o_norm", None),
        (f"{name}.o_proj.weight", "fp8", f"{a}.w_out", None),
    ]


def _mlp(s: Shape, dense: bool, name: str, m: str) -> list[tuple[str, str, str, object]]:
    def halves(prefix: str, parameter: str, size: int):
        return [
            (f"{prefix}gate_proj.weight", "fp8", parameter, slice(0, size)),
            (f"{prefix}up_proj.weight", "fp8", parameter, slice(size, 2 * size)),
        ]

    if dense:
        return halves(f"{name}.", f"{m}.w_in", s.dense_inter) + [
            (f"{name}.down_proj.weight", "fp8", f"{m}.w_out", None)
        ]
    return [
        (f"{name}.gate.weight", "f32", f"{m}.w_router", None),
        (f"{name}.gate.expert_bias", "f32", f"{m}.bias", None),
        (f"{name}.experts.gate_up", "mxfp4", f"{m}.w_in", None),
        (f"{name}.experts.down", "mxfp4", f"{m}.w_out", None),
        *halves(f"{name}.shared_experts.", f"{m}.shared_in", s.inter),
        (f"{name}.shared_experts.down_proj.weight", "fp8", f"{m}.shared_out", None),
    ]


def tensors(s: Shape) -> list[tuple[str, str, str, object]]:
    """Every tensor of the folder: (name on disk, how it is stored, parameter of model.Pocket, index into it or
    None).
    """
    rows = [("model.word_embeddings.weight", "bf16", "embedding", None)]
    for i in range(s.layers + 1):
        draft = i == s.layers
        mine, name = ("nextn" if draft else f"layers.{i}"), f"model.layers.{i}"
        rows += [
            (f"{name}.input_layernorm.weight", "f32", f"{mine}.attention.norm", None),
            (f"{name}.post_attention_layernorm.weight", "f32", f"{mine}.mlp.norm", None),
        ]
        rows += _attention(s, draft or s.is_mla(i), f"{name}.attention", f"{mine}.attention")
        rows += _mlp(s, not draft and i < s.dense_layers, f"{name}.mlp", f"{mine}.mlp")
        if draft:
            rows += [
                (f"{name}.enorm.weight", "f32", f"{mine}.e_norm", None),
                (f"{name}.hnorm.weight", "f32", f"{mine}.h_norm", None),
                (f"{name}.eh_proj.weight", "fp8", f"{mine}.w_eh", None),
                (f"{name}.final_layernorm.weight", "f32", f"{mine}.norm", None),
            ]
    return rows + [("model.norm.weight", "f32", "norm", None), ("lm_head.weight", "bf16", "head", None)]


def encode(s: Shape, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """FP32 parameters by name -> tensors by name on disk."""
    out: dict[str, np.ndarray] = {}
    for name, how, parameter, part in tensors(s):
        w = np.asarray(state[parameter], np.float32)
        w = w if part is None else w[part]
        if how == "fp8":
            out[name], out[f"{name}_scale_inv"] = quantise.fp8_encode(w)
        elif how == "mxfp4":
            out[f"{name}_codes"], out[f"{name}_scales"] = quantise.mxfp4_encode(w)
        else:
            out[name] = quantise.to_bf16(w) if how == "bf16" else np.ascontiguousarray(w)
    return out


def decode(s: Shape, stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors on disk -> FP32 parameters by name, as the model holds them after rounding."""
    pieces: dict[str, list] = {}
    for name, how, parameter, part in tensors(s):
        if how == "fp8":
            w = quantise.fp8_decode(stored[name], stored[f"{name}_scale_inv"])
        elif how == "mxfp4":
            w = quantise.mxfp4_decode(stored[f"{name}_codes"], stored[f"{name}_scales"])
        else:
            w = stored[name].astype(np.float32)
        pieces.setdefault(parameter, []).append((part, w))
    return {
        p: (
            ws[0][1]
            if ws[0][0] is None
            else np.stack([w for _, w in ws])
            if isinstance(ws[0][0], int)
            else np.concatenate([w for _, w in ws])
        )
        for p, ws in pieces.items()
    }


def save(
    s: Shape, state: dict[str, np.ndarray], folder: Path, data: Path, *, provenance: str, extra: dict | None = None
) -> dict:
    """Writes the model folder: config, shards below 16 MiB, index with a SHA-256 per file, tokenizer. -> the index.

    state: FP32 arrays by parameter name. data: folder that holds tokenizer.json. provenance: "trained" or "generated".
    """
    if provenance not in ("trained", "generated"):
        raise ValueError(f"provenance: got {provenance!r}; accepted: trained, generated")
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, np.ndarray]] = [{}]
    room = SHARD
    for name, w in encode(s, state).items():
        if w.nbytes > room:
            shards.append({})
            room = SHARD
        shards[-1][name] = w
        room -= w.nbytes
    for old in folder.glob("model-*.safetensors"):
        old.unlink()
    index = {"metadata": {"total_size": 0, "provenance": provenance, "sha256": {}, **(extra or {})}, "weight_map": {}}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)
        index["metadata"]["sha256"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        index["metadata"]["total_size"] += sum(w.nbytes for w in shard.values())
        index["weight_map"].update(dict.fromkeys(shard, file))
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        if data != folder:
            shutil.copyfile(data / file, folder / file)
    (folder / "config.json").write_text(json.dumps(config_json(s, eos=0, pad=1), indent=1) + "\n")
    return index


_TYPES = {"F32": np.float32, "U8": np.uint8, "BF16": quantise.BF16, "F8_E4M3": quantise.FP8}


def load_file(path: Path) -> dict[str, np.ndarray]:
    """One safetensors file with its FP8 and BF16 tensors as ml_dtypes arrays (safetensors.numpy reads no FP8)."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(
            raw[8 + size + e["data_offsets"][0] : 8 + size + e["data_offsets"][1]], _TYPES[e["dtype"]]
        ).reshape(e["shape"])
        for name, e in header.items()
    }


def load(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a model folder, as stored."""
    index = json.loads((folder / INDEX).read_text())
    stored: dict[str, np.ndarray] = {}
    for file in index["metadata"]["sha256"]:
        stored.update(load_file(folder / file))
    return stored


def state_of(model) -> dict[str, np.ndarray]:
    """FP32 arrays of a model.Pocket (parameters and expert biases)."""
    return {k: v.detach().float().cpu().numpy() for k, v in model.state_dict().items()}


def restore(model, folder: Path) -> None:
    """Puts a folder's rounded weights into a model.Pocket, in place."""
    import torch

    state = decode(model.s, load(folder))
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()})
