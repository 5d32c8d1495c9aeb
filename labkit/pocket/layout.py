"""Weights packed in the order in which a step reads them, in huge pages, several times over.

Why several copies: a step reads some 20 MB, and a last-level cache may hold that. Each pass reads the next copy, so
that decoding is bound by memory here as it is for a large model, instead of being served from the cache.
"""

import ctypes
import json
import mmap
import os
import re
from pathlib import Path

import numpy as np

from labkit.errors import BadInput
from labkit.pocket.loader import PocketConfig, Weights
from labkit.pocket.options import Options
from labkit.pocket.packing import Packer, Plan

HUGE = 2 << 20
MOST_MIB = "POCKET_COPIES_MIB"  # environment: the most that all copies take together, where memory is short
DEFAULT_MIB = "1024"
LEAST_COPIES = 2  # of a model however large: a pass must not read what the pass before it left in the cache
_FREQUENT = Path(__file__).parent / "draft_vocab.json"
_SLOTS_FILE = Path(__file__).parent / "kernels" / "slots.h"
SLOTS = re.findall(r"SLOT_([A-Z_]+)\b", re.sub(r"//.*", "", _SLOTS_FILE.read_text()))
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


def last_level_cache_bytes() -> int:
    """Size of this machine's last-level cache; 32 MiB when the system does not say."""
    best = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        best = max(best, int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0) if text[-1] in "KM" else int(text))
    return best or 32 << 20


def most_mib() -> int:
    """MiB that all copies may take together. Raises BadInput."""
    given = os.environ.get(MOST_MIB, DEFAULT_MIB)
    if not given.isdecimal() or not 1 <= int(given) <= 1 << 20:
        raise BadInput(MOST_MIB, given, "a whole number of MiB from 1 (two copies are made however small it is)")
    return int(given)


class Arena:
    """All copies in one mapping. `describe` accounts for the bytes of a step."""

    def __init__(
        self,
        plan: Plan,
        config: PocketConfig,
        options: Options,
        packer: Packer,
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
        mib = most_mib()
        most = max(LEAST_COPIES, (mib << 20) // self.plan.size)
        why = (
            f"each pass reads the next of {min(wanted, most)} copies, so that {self.cache_bytes >> 19} MiB, twice "
            "the last-level cache, pass before one is read again"
        )
        if wanted > most:
            room = f"fit in {mib} MiB" if most * self.plan.size <= mib << 20 else f"are the least, in {mib} MiB or more"
            why = f"{most} copies {room}; only {wanted} would surely defeat the last-level cache"
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
    packer = Packer(weights, options, jit)
    ids = draft_ids(options, weights.config.vocab_size)
    plan = packer.run(ids)
    embedding = weights.tensor("model.word_embeddings.weight", weights.config.vocab_size, weights.config.hidden_size)
    return Arena(plan, weights.config, options, packer, embedding, ids)


def pointer(array: np.ndarray, kind) -> ctypes.Array:
    return array.ctypes.data_as(ctypes.POINTER(kind))
