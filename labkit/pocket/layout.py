"""Weights packed in the order in which a step reads them, in huge pages, several times over.

Why several copies: a step reads some 20 MB, and a last-level cache may hold that. Each pass reads the next copy, so
that decoding is bound by memory here as it is for a large model, instead of being served from the cache.
"""

import ctypes
import json
import mmap
import re
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from labkit.errors import BadInput
from labkit.pocket.loader import PocketConfig, Weights
from labkit.pocket.options import Options

TILE, BLOCK, GROUP = 16, 128, 32
HUGE = 2 << 20
MOST_BYTES = 1 << 30  # of all copies together
LEAST_COPIES = 2  # of a model however large: a pass must not read what the pass before it left in the cache
E4M3_MAX = 448.0
_FREQUENT = Path(__file__).parent / "draft_vocab.json"
_SLOTS_FILE = Path(__file__).parent / "kernels" / "slots.h"
SLOTS = re.findall(r"SLOT_([A-Z_]+)\b", re.sub(r"//.*", "", _SLOTS_FILE.read_text()))
_E4M3_AS_BF16 = (
    np.arange(256, dtype=np.uint8)
    .view(ml_dtypes.float8_e4m3fn)
    .astype(np.float32)
    .astype(ml_dtypes.bfloat16)
    .view(np.uint16)
)
_E4M3_VALUES = np.nan_to_num(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32))

# The parts that the engine's stopwatch tells apart (profile.h), and which part reads a slot; the others are projections
_TIMERS = (_SLOTS_FILE.parent / "profile.h").read_text()
PARTS = tuple(name.lower() for name in re.findall(r"\bPART_([A-Z_]+)", _TIMERS.split("PARTS")[0]))
_PART_OF_SLOT = {
    **dict.fromkeys(("BETA", "CONV", "DECAY_RATE", "DECAY_BIAS"), "kda_input"),
    "HEAD_NORM": "kda_state",
    **dict.fromkeys(("POST_NORM", "ROUTER", "ROUTER_BIAS"), "router"),
    **dict.fromkeys(("GATE_UP", "DOWN"), "mlp"),
    **dict.fromkeys(("EMBED_NORM", "HIDDEN_NORM", "MIX"), "nextn_mix"),
    "FINAL_NORM": "rest",
}


# ---------------------------------------------------------------- tiles


def lanes(rows: np.ndarray) -> np.ndarray:
    """[N, ...] rows of 32-bit groups [N, G] -> tiles [N/16, G, 16]: what 16 rows need next lies side by side."""
    n, groups = rows.shape
    return np.ascontiguousarray(rows.reshape(n // TILE, TILE, groups).transpose(0, 2, 1))


def fp8_tiles(codes: np.ndarray) -> np.ndarray:
    """e4m3 codes uint8 [N, K] -> tiles of 16 rows, four k a lane, in simd.h's byte order."""
    n, k = codes.shape
    return lanes(np.ascontiguousarray(codes.reshape(n, k // 4, 4)[..., [3, 1, 2, 0]]).view(np.uint32)[..., 0])


def bf16_tiles(words: np.ndarray) -> np.ndarray:
    """bfloat16 bits uint16 [N, K] -> tiles of 16 rows, two k a lane, the first in its upper half."""
    n, k = words.shape
    return lanes(np.ascontiguousarray(words.reshape(n, k // 2, 2)[..., ::-1]).view(np.uint32)[..., 0])


def in_units(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e4m3 values [N, K] -> int8 [N, K] and their units float32 [N/16, K/128], one for each 16 rows by 128 columns.

    A unit is the smallest power of two in which the largest value is at most 127. A value of at least eight units, most
    of them as a rule, is then exact, as it would not be with a unit of largest / 127; a smaller one is rounded."""
    n, k = values.shape
    blocks = -(-k // BLOCK)
    padded = np.zeros((n, blocks * BLOCK), np.float32)
    padded[:, :k] = values
    tiles = padded.reshape(n // TILE, TILE, blocks, BLOCK)
    most = np.abs(tiles).max((1, 3))
    unit = np.exp2(np.ceil(np.log2(np.where(most > 0, most, 127) / 127))).astype(np.float32)
    whole = np.rint(tiles / unit[:, None, :, None]).reshape(n, -1)[:, :k]
    return whole.astype(np.int8), unit


def int8_tiles(values: np.ndarray) -> np.ndarray:
    """int8 [N, K] -> tiles of 16 rows, four k a lane, in k order."""
    return lanes(np.ascontiguousarray(values).view(np.uint32))


def f32_tiles(weight: np.ndarray) -> np.ndarray:
    """[N, K] float32, rows padded with zeros to a whole tile -> tiles of 16 rows, one k a lane."""
    padded = np.zeros((-(-len(weight) // TILE) * TILE, weight.shape[1]), np.float32)
    padded[: len(weight)] = weight
    return lanes(padded)


def in_turns(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two matrices [..., N, K] with their tiles in turns: 16 rows of a, 16 rows of b, ... [..., 2N, K]."""
    *lead, n, k = a.shape
    pair = np.stack([a.reshape(*lead, n // TILE, TILE, k), b.reshape(*lead, n // TILE, TILE, k)], -3)
    return pair.reshape(*lead, 2 * n, k)


def _nibbles(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)


def mxfp4_tiles(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """MXFP4 [N, K/2] (low nibble first) and scales [N, K/32] -> bytes of tiles: [K/32][16] scales, then per group of 32
    four times 16 rows x 4 bytes whose low nibbles are k 0-3 and whose high nibbles are k 4-7."""
    n, half = codes.shape
    v = _nibbles(codes).reshape(n, half // 4, 2, 4)
    packed = lanes(np.ascontiguousarray(v[:, :, 0] | v[:, :, 1] << 4).view(np.uint32)[..., 0])
    scale = scales.reshape(n // TILE, TILE, -1).transpose(0, 2, 1)
    return np.concatenate([scale.reshape(n // TILE, -1), packed.reshape(n // TILE, -1).view(np.uint8)], 1).ravel()


def mxfp4_rows(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The same weights row-major (generic kernel): byte i of a group holds elements i and i + 16; then scales."""
    n, half = codes.shape
    v = _nibbles(codes).reshape(n, half // 16, 2, 16)
    return np.concatenate([(v[:, :, 0] | v[:, :, 1] << 4).ravel(), np.ascontiguousarray(scales).ravel()])


def without_subnormals(codes: np.ndarray) -> np.ndarray:
    """e4m3 codes with the fourteen subnormal ones read as zero.

    They are below 2^-6 where a block's largest is 448, about one weight in ten thousand. The kernels decode a code by
    shifting it into a float's bits, where such a code is a subnormal float, and those cost many cores over a hundred
    cycles each."""
    return np.where(codes & 0x78, codes, 0).astype(np.uint8)


def quantise_head(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """BF16 head [V, D] -> e4m3 codes uint8 [V, D] and float32 scales [V]: each row's largest value becomes 448."""
    weight = words.view(ml_dtypes.bfloat16).astype(np.float32)
    scale = (np.abs(weight).max(1) / E4M3_MAX).astype(np.float32)
    scale[scale == 0] = 1
    codes = (weight / scale[:, None]).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return without_subnormals(codes), scale


# ---------------------------------------------------------------- the arena


@dataclass
class Plan:
    """What goes where, before it is copied: chunks of bytes at 64-byte boundaries, in reading order."""

    layers: int
    chunks: list[tuple[int, np.ndarray]] = field(default_factory=list)
    at: dict[tuple[int, str], int] = field(default_factory=dict)
    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    size: int = 0

    def add(self, layer: int, slot: str, array: np.ndarray) -> None:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.chunks.append((self.size, flat))
        self.at[layer, slot], self.sizes[layer, slot] = self.size, flat.nbytes
        self.size += -(-flat.nbytes // 64) * 64


class _Packer:
    """Fills a Plan from weights, layer by layer."""

    def __init__(self, weights: Weights, options: Options, jit: bool):
        self.w, self.c, self.options, self.jit = weights, weights.config, options, jit
        self.plan = Plan(self.c.num_hidden_layers + 2)
        self.expert_bytes = self.expert_down = 0

    def matrix(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """FP8 tensor -> codes uint8 [N, K] and one scale per row and block of 128 k [N, K/128]."""
        codes = without_subnormals(self.w.tensor(name).view(np.uint8))
        scale = np.repeat(self.w.tensor(name + "_scale_inv"), BLOCK, 0)[: len(codes)]
        return codes, scale

    def dense(self, layer: int, slot: str, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
        codes, scale = (np.concatenate(p) for p in zip(*parts, strict=True))
        self.dense_tiles(layer, slot, codes, scale)

    def dense_tiles(self, layer: int, slot: str, codes: np.ndarray, scale: np.ndarray) -> None:
        kind, scale = self.options.dense_dtype, scale[::TILE]
        if kind == "int8":
            whole, unit = in_units(_E4M3_VALUES[codes])
            tiles, scale = int8_tiles(whole), scale * unit
        else:
            tiles = bf16_tiles(_E4M3_AS_BF16[codes]) if kind == "bf16" else fp8_tiles(codes)
        # Scales first: they are read first.
        self.plan.add(layer, slot + "_SCALE", scale.astype(np.float32))
        self.plan.add(layer, slot, tiles)

    def gate_up(self, layer: int, prefix: str) -> None:
        gate, up = self.matrix(prefix + "gate_proj.weight"), self.matrix(prefix + "up_proj.weight")
        self.dense_tiles(layer, "GATE_UP", in_turns(gate[0], up[0]), in_turns(gate[1], up[1]))
        self.dense(layer, "DOWN", [self.matrix(prefix + "down_proj.weight")])

    def kda(self, layer: int, prefix: str) -> None:
        c, t = self.c, self.w.tensor
        self.dense(layer, "ATTN_IN", [self.matrix(f"{prefix}{x}_proj.weight") for x in "qkvfg"])
        self.plan.add(layer, "BETA", t(prefix + "b_proj.weight", c.num_attention_heads, c.hidden_size))
        self.plan.add(layer, "CONV", np.concatenate([t(f"{prefix}{x}_conv1d.weight") for x in "qkv"]).T)
        self.plan.add(layer, "DECAY_RATE", np.exp(t(prefix + "A_log")))
        self.plan.add(layer, "DECAY_BIAS", t(prefix + "dt_bias"))
        self.plan.add(layer, "HEAD_NORM", t(prefix + "o_norm.weight"))
        self.dense(layer, "ATTN_OUT", [self.matrix(prefix + "o_proj.weight")])

    def mla(self, layer: int, prefix: str) -> None:
        c = self.c
        self.dense(
            layer, "ATTN_IN", [self.matrix(f"{prefix}{x}.weight") for x in ("q_proj", "kv_a_proj_with_mqa", "g_proj")]
        )
        self.plan.add(layer, "KV_NORM", self.w.tensor(prefix + "kv_a_layernorm.weight"))
        codes, scale = self.matrix(prefix + "kv_b_proj.weight")
        heads, d = c.num_attention_heads, c.head_dim
        codes, scale = codes.reshape(heads, 2 * d, -1), scale.reshape(heads, 2 * d, -1)
        # Absorbed: a head's keys as [latent, d], so that they take the query into latent space.
        keys = codes[:, :d].transpose(0, 2, 1).reshape(-1, d)
        self.dense_tiles(layer, "K_UP", keys, np.repeat(scale[:, 0], c.kv_lora_rank, 0))
        self.dense_tiles(layer, "V_UP", codes[:, d:].reshape(heads * d, -1), scale[:, d:].reshape(heads * d, -1))
        self.dense(layer, "ATTN_OUT", [self.matrix(prefix + "o_proj.weight")])

    def experts(self, layer: int, prefix: str) -> None:
        t = self.w.tensor
        self.plan.add(layer, "ROUTER", f32_tiles(t(prefix + "gate.weight")))
        self.plan.add(layer, "ROUTER_BIAS", t(prefix + "gate.expert_bias"))
        self.gate_up(layer, prefix + "shared_experts.")
        pack = mxfp4_tiles if self.jit else mxfp4_rows
        inter, out = self.c.moe_intermediate_size, []
        gate_up = [t(f"{prefix}experts.gate_up_{x}") for x in ("codes", "scales")]
        down = [t(f"{prefix}experts.down_{x}") for x in ("codes", "scales")]
        for i in range(self.c.num_experts):
            first = pack(*(in_turns(x[i, :inter], x[i, inter:]) for x in gate_up))
            second = pack(down[0][i], down[1][i])
            self.expert_down, self.expert_bytes = first.nbytes, first.nbytes + second.nbytes
            out += [first, second]
        self.plan.add(layer, "EXPERTS", np.concatenate(out))

    def layer(self, layer: int) -> None:
        prefix = f"model.layers.{layer}."
        self.plan.add(layer, "INPUT_NORM", self.w.tensor(prefix + "input_layernorm.weight"))
        (self.mla if self.c.is_mla(layer) else self.kda)(layer, prefix + "attention.")
        self.plan.add(layer, "POST_NORM", self.w.tensor(prefix + "post_attention_layernorm.weight"))
        if self.c.is_moe(layer):
            self.experts(layer, prefix + "mlp.")
        else:
            self.gate_up(layer, prefix + "mlp.")

    def nextn(self) -> None:
        n, t = self.c.num_hidden_layers, self.w.tensor
        prefix = f"model.layers.{n}."
        self.plan.add(n, "EMBED_NORM", t(prefix + "enorm.weight"))
        self.plan.add(n, "HIDDEN_NORM", t(prefix + "hnorm.weight"))
        self.dense(n, "MIX", [self.matrix(prefix + "eh_proj.weight")])
        self.layer(n)
        self.plan.add(n, "FINAL_NORM", t(prefix + "final_layernorm.weight"))

    def head(self, slot: str, words: np.ndarray) -> None:
        whole = self.c.num_hidden_layers + 1
        if self.options.fp8_lm_head:
            codes, scale = quantise_head(words)
            self.plan.add(whole, slot + "_SCALE", scale)
            self.plan.add(whole, slot, fp8_tiles(codes))
        else:
            self.plan.add(whole, slot, bf16_tiles(words))

    def run(self, draft_ids: np.ndarray | None) -> Plan:
        c, whole = self.c, self.c.num_hidden_layers + 1
        for layer in range(c.num_hidden_layers):
            self.layer(layer)
        self.plan.add(whole, "FINAL_NORM", self.w.tensor("model.norm.weight"))
        words = self.w.tensor("lm_head.weight", c.vocab_size, c.hidden_size).view(np.uint16)
        self.head("HEAD", words)
        if self.options.speculative:
            self.nextn()
            if draft_ids is not None:
                self.head("DRAFT_HEAD", words[draft_ids])
        return self.plan


def last_level_cache_bytes() -> int:
    """Size of this machine's last-level cache; 32 MiB when the system does not say."""
    best = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        best = max(best, int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0) if text[-1] in "KM" else int(text))
    return best or 32 << 20


class Arena:
    """All copies in one mapping. `describe` accounts for the bytes of a step."""

    def __init__(
        self,
        plan: Plan,
        config: PocketConfig,
        options: Options,
        packer: _Packer,
        embedding: np.ndarray,
        draft_ids: np.ndarray | None,
    ):
        self.plan, self.config, self.options = plan, config, options
        self.expert_bytes, self.expert_down, self.draft_ids = packer.expert_bytes, packer.expert_down, draft_ids
        self.draft_vocab = (config.vocab_size if draft_ids is None else len(draft_ids)) if options.speculative else None
        self.cache_bytes = last_level_cache_bytes()
        self.replicas, self.why = self._replicas()
        self.stride = -(-plan.size // 4096) * 4096
        # Private: a shared anonymous mapping (Python's default) is not given huge pages.
        self._map = mmap.mmap(
            -1, self.stride * self.replicas + embedding.nbytes + 2 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        if hasattr(mmap, "MADV_HUGEPAGE"):  # without huge pages a step takes half as long again
            self._map.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(self._map, np.uint8)
        self._bytes = raw[-raw.ctypes.data % HUGE :]
        for offset, chunk in plan.chunks:
            self._bytes[offset : offset + chunk.nbytes] = chunk
        for r in range(1, self.replicas):
            self._bytes[r * self.stride : r * self.stride + plan.size] = self._bytes[: plan.size]
        end = self.replicas * self.stride
        self._bytes[end : end + embedding.nbytes] = embedding.reshape(-1).view(np.uint8)
        self.address, self.embedding_address = self._bytes.ctypes.data, self._bytes.ctypes.data + end
        plan.chunks.clear()

    def _layer_bytes(self, layer: int) -> int:
        """Bytes that one token reads of a layer."""
        c = self.config
        total = sum(n for (at, slot), n in self.plan.sizes.items() if at == layer and slot != "EXPERTS")
        return total + (c.num_experts_per_tok * self.expert_bytes if c.is_moe(layer) else 0)

    def _head_bytes(self, slot: str) -> int:
        whole = self.config.num_hidden_layers + 1
        return self.plan.sizes[whole, slot] + self.plan.sizes.get((whole, slot + "_SCALE"), 0)

    def step_bytes(self) -> int:
        """Bytes of weights that one plain step reads: all but the embedding's row, the cache and the state."""
        layers = sum(self._layer_bytes(i) for i in range(self.config.num_hidden_layers))
        return layers + self._head_bytes("HEAD") + self.config.hidden_size * 4

    def draft_bytes(self) -> int:
        slot = "HEAD" if self.draft_ids is None else "DRAFT_HEAD"
        return self._layer_bytes(self.config.num_hidden_layers) + self._head_bytes(slot)

    def part_bytes(self) -> dict[str, dict[str, float]]:
        """Bytes of weights by part of the engine's stopwatch: of the model's pass ("step") and of a draft pass
        ("draft"), without routed experts and cache, whose size depends on the text; "one": bytes of one of those."""
        c, out = self.config, {"step": dict.fromkeys(PARTS, 0), "draft": dict.fromkeys(PARTS, 0)}
        nextn = c.num_hidden_layers
        for (layer, slot), size in self.plan.sizes.items():
            if slot == "EXPERTS" or (layer > nextn and not slot.startswith("FINAL")):
                continue
            kind = "mla_projections" if c.is_mla(layer) else "kda_projections"
            part = _PART_OF_SLOT.get(slot.removesuffix("_SCALE"), kind)
            out["draft" if layer == nextn else "step"][part] += size
        out["step"]["head"] += self._head_bytes("HEAD")
        if self.options.speculative:
            out["draft"]["head"] += self._head_bytes("HEAD" if self.draft_ids is None else "DRAFT_HEAD")
        entry = 2 * (c.kv_lora_rank + c.qk_rope_head_dim)
        return {**out, "one": {"expert": self.expert_bytes, "position": entry}}

    def _replicas(self) -> tuple[int, str]:
        """As many copies as it takes for twice the last-level cache to pass between two readings of one copy."""
        least = self.draft_bytes() if self.options.speculative else self.step_bytes()
        steps = self.options.speculative_num_steps or 0
        per_pass = (self.step_bytes() + steps * least) / (steps + 1)
        wanted = 1 + -(-2 * self.cache_bytes // int(per_pass))
        most = max(LEAST_COPIES, MOST_BYTES // self.plan.size)
        why = (
            f"each pass reads the next of {min(wanted, most)} copies, so that {self.cache_bytes >> 19} MiB, twice "
            "the last-level cache, pass before one is read again"
        )
        if wanted > most:
            why = f"{most} copies fit in {MOST_BYTES >> 20} MiB; only {wanted} would surely defeat the last-level cache"
        return min(wanted, most), why

    def offsets(self) -> np.ndarray:
        """int64 [layers + 2, slots], -1 where a layer has no such slot."""
        table = np.full((self.config.num_hidden_layers + 2, len(SLOTS)), -1, np.int64)
        for (layer, slot), offset in self.plan.at.items():
            table[layer, SLOTS.index(slot)] = offset
        return table

    def describe(self) -> dict:
        c = self.config
        experts = c.num_experts_per_tok * self.expert_bytes * (c.num_hidden_layers - c.first_k_dense_replace)
        return {
            "replicas": self.replicas,
            "replicas_why": self.why,
            "last_level_cache_bytes": self.cache_bytes,
            "model_bytes": self.plan.size,
            "arena_bytes": self.stride * self.replicas,
            "bytes_per_step": self.step_bytes(),
            "head_bytes": self._head_bytes("HEAD"),
            "expert_bytes_per_step": experts,
            "draft_step_bytes": self.draft_bytes() if self.options.speculative else None,
        }

    def close(self) -> None:
        self._bytes = None
        try:
            self._map.close()
        except BufferError:  # a view is still held somewhere; the mapping goes when it does
            pass


def draft_ids(options: Options, vocab: int) -> np.ndarray | None:
    """Rows of the reduced draft vocabulary, ascending, a multiple of 32 of them; None for all."""
    text = options.speculative_token_map
    if not options.speculative or text == "0":
        return None
    try:
        if text.isdigit():  # how many of the shipped model's most frequent tokens
            ids = np.asarray(json.loads(_FREQUENT.read_text())["by_frequency"], np.int64)[: int(text)]
        else:
            ids = np.asarray(json.loads(Path(text).read_text()), dtype=np.int64)
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise BadInput(
            "speculative_token_map", text, f"a count, or a file with a JSON list of token ids ({e})"
        ) from None
    ids = np.unique(ids[: len(ids) // 32 * 32])
    if not len(ids) or len(ids) % 32 or ids[0] < 0 or ids[-1] >= vocab:
        raise BadInput(
            "speculative_token_map", text, f"at least 32 distinct ids from 0 to {vocab - 1} (a multiple of 32)"
        )
    return None if len(ids) == vocab else ids.astype(np.int32)


def pack(weights: Weights, options: Options, jit: bool) -> Arena:
    """Pack for the kernels that will run: `jit` takes tiled experts, generic row-major ones."""
    packer = _Packer(weights, options, jit)
    ids = draft_ids(options, weights.config.vocab_size)
    plan = packer.run(ids)
    embedding = weights.tensor("model.word_embeddings.weight", weights.config.vocab_size, weights.config.hidden_size)
    return Arena(plan, weights.config, options, packer, embedding, ids)


def pointer(array: np.ndarray, kind) -> ctypes.Array:
    return array.ctypes.data_as(ctypes.POINTER(kind))
