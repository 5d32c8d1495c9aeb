"""A GGUF file as a Shape: every tensor as the header has it, caches and state from the metadata.

Names and cache sizes: llama.cpp's (its naming table and its KV and recurrent memories).
"""

import re
from functools import lru_cache

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.formats import Format
from labkit.roofline.gguf import Gguf, GgufTensor, Length, read_gguf
from labkit.roofline.tensors import Cache, Role, Shape, Tensor

# Which layers see a window where the file gives a window and no pattern: every so many layers one that sees all.
_PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "llama4": 4, "olmo2": 4, "exaone4": 4}
# (pattern of the name after blk.N., group, role); the first that matches.
_BLOCK = (
    (r"ffn_(gate|up|down|gate_up)_exps\.bias", "routed experts", Role.EXPERT_BIAS),
    (r"ffn_(gate|up|down|gate_up)_exps", "routed experts", Role.EXPERTS),
    (r"ffn_gate_inp_shexp", "shared experts", Role.GATE),
    (r"ffn_\w+_shexp", "shared experts", Role.DENSE),
    (r"ffn_gate_inp|exp_probs_b", "router", Role.ROUTER),
    (r"nextn\.eh_proj", "NEXTN projection", Role.DENSE),
    (r"nextn\.embed_tokens", "embedding row", Role.EMBEDDING),
    (r"nextn\.shared_head_head", "head", Role.HEAD),
    (r".*(norm|_b\.bias|\.bias|_scale|layer_output_scale|sinks)", "norms", Role.SMALL),
    (r"ssm_(in|out)|shortconv\.(in|out)_proj|ssm_(f|g)_[ab]", "linear attention projections", Role.DENSE),
    (r"ssm_|shortconv", "linear attention small parts", Role.SMALL),
    (r"attn_(q_a|q_b|kv_a_mqa|kv_b|k_b|v_b)", "MLA", Role.DENSE),
    (r"indexer", "indexer", Role.DENSE),
    (r"attn_", "attention projections", Role.DENSE),
    (r"ffn_", "dense MLP", Role.DENSE),
    (r"inp_gate|proj\.|per_layer", "per-layer inputs", Role.DENSE),
)
_OUTER = {
    "token_embd.weight": ("embedding row", Role.EMBEDDING),
    "per_layer_token_embd.weight": ("embedding row", Role.EMBEDDING),
    "output.weight": ("head", Role.HEAD),
    "per_layer_model_proj.weight": ("per-layer inputs", Role.DENSE),
}


def shape_of(config: ModelConfig) -> Shape:
    """The Shape of a GGUF model. BadInput names what the metadata lacks or what the lab does not know."""
    return _shape(config.gguf, config.name, config.gguf.stat().st_mtime_ns if config.gguf.exists() else 0)


def formats_of(config: ModelConfig) -> dict[Tensor, Format]:
    """The format of each tensor of `shape_of`."""
    types = {t.name: t.type for t in read_gguf(config.gguf).tensors}
    shape = shape_of(config)
    return {t: Format.parse(types[t.name]) for t in (*shape.tensors, *shape.nextn)}


@lru_cache(maxsize=8)
def _shape(path, name: str, _written: int) -> Shape:
    header = read_gguf(path)
    m = _Metadata(header, name)
    layers, drafts = m.count("block_count"), m.count("nextn_predict_layers", 0)
    experts, top_k = m.count("expert_count", 0), m.count("expert_used_count", 0)
    tensors, nextn = [], []
    for t in header.tensors:
        made = _tensor(t, header.source)
        block = _block(t.name)
        (nextn if block is not None and block >= layers - drafts else tensors).append(made)
    caches, recurrent, convolution = _memory(m, header, layers - drafts)
    tied = not any(t.role is Role.HEAD for t in tensors)
    embedding = next((t for t in tensors if t.name == "token_embd.weight"), None)
    if embedding is None:
        raise BadInput(f"{name}: tensors", "no token_embd.weight", "a language model's GGUF file")
    return Shape(
        f"GGUF {header.architecture}",
        embedding.cols,
        embedding.rows,
        experts,
        top_k,
        tuple(tensors),
        caches,
        nextn=tuple(nextn),
        nextn_caches=tuple(Cache(drafts and 1, c.values, None) for c in caches[:1]) if nextn else (),
        nextn_layers=drafts,
        recurrent=recurrent,
        convolution=convolution,
        tied=tied,
        layers=layers - drafts,
    )


def _block(name: str) -> int | None:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else None


def _tensor(t: GgufTensor, source: str) -> Tensor:
    """[columns, rows, experts] as the account's rows, columns and experts; a vector is a column."""
    if t.name in _OUTER:
        group, role = _OUTER[t.name]
    elif _block(t.name) is None:
        group, role = "norms", Role.SMALL
    else:
        rest = t.name.split(".", 2)[2]
        found = next(((g, r) for pattern, g, r in _BLOCK if re.match(pattern, rest)), None)
        if found is None:
            raise BadInput(f"{source}: tensor", t.name, "a tensor whose part in a step the lab knows")
        group, role = found
    sides = (*t.shape, 1, 1)[:3] if len(t.shape) < 4 else (t.shape[0], t.parameters // t.shape[0], 1)
    if role in (Role.EXPERTS, Role.EXPERT_BIAS):
        cols, rows, experts = sides if role is Role.EXPERTS else (1, sides[0], sides[1])
    else:
        cols, rows, experts = (sides[0], sides[1] * sides[2], 0) if len(t.shape) > 1 else (1, sides[0], 0)
    return Tensor(t.name, group, role, rows, cols, 1, experts)


class _Metadata:
    def __init__(self, header: Gguf, name: str):
        self.fields, self.prefix, self.name = header.metadata, header.architecture, name

    def get(self, key: str) -> object:
        return self.fields.get(f"{self.prefix}.{key}")

    def count(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadInput(f"{self.name}: {self.prefix}.{key}", value, "a whole number in the metadata")
        return value

    def each(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """One number per layer, from a number or a list."""
        value = self.get(key)
        if isinstance(value, list):
            if len(value) < layers:
                raise BadInput(f"{self.name}: {self.prefix}.{key}", value, f"a number for each of {layers} layers")
            return [int(v) for v in value[:layers]]
        return [self.count(key, default)] * layers


def _memory(m: _Metadata, header: Gguf, layers: int) -> tuple[tuple[Cache, ...], int, int]:
    """Caches, recurrent values and convolution values, by what tensors each layer has."""
    has: dict[int, set[str]] = {i: set() for i in range(layers)}
    for t in header.tensors:
        if (block := _block(t.name)) is not None and block < layers:
            has[block].add(t.name.split(".", 2)[2].removesuffix(".weight"))
    if m.prefix.startswith(("rwkv", "arwkv")):
        raise BadInput(f"{m.name}: general.architecture", m.prefix, "an architecture with attention, Mamba-2 or KDA")
    recurrent = [i for i, names in has.items() if any(n.startswith(("ssm_", "shortconv")) for n in names)]
    attends = [
        i
        for i, names in has.items()
        if names & {"attn_k", "attn_kv_a_mqa"} or ("attn_qkv" in names and i not in recurrent)
    ]
    windows, kv = _windows(m, layers), m.each("attention.head_count_kv", layers, m.each("attention.head_count", 1)[0])
    shared = m.count("attention.shared_kv_layers", 0)
    sizes: dict[tuple[int, int | None], int] = {}
    readers: dict[int | None, int] = {}
    for i in attends:
        readers[windows[i]] = readers.get(windows[i], 0) + 1
        if i < layers - shared:
            key = _values(m, has[i], kv[i], windows[i] is not None), windows[i]
            sizes[key] = sizes.get(key, 0) + 1
    caches = [
        Cache(n, values, window, readers=readers[window] if shared else None) for (values, window), n in sizes.items()
    ]
    state, convolution = _state(m) if recurrent else (0, 0)
    return tuple(caches), len(recurrent) * state, len(recurrent) * convolution


def _values(m: _Metadata, names: set[str], kv_heads: int, windowed: bool) -> int:
    """KV values of one token in one layer."""
    if "attn_k_b" in names:  # the latent form: one latent and one rotary key
        return m.count("attention.kv_lora_rank") + m.count("rope.dimension_count")
    even = m.count("embedding_length") // max(1, m.each("attention.head_count", 1)[0])
    widths = [
        m.get(f"attention.{side}_length_swa")
        if windowed and m.get(f"attention.{side}_length_swa")
        else m.count(f"attention.{side}_length", even)
        for side in ("key", "value")
    ]
    if "attn_kv_a_mqa" in names:
        kv_heads = m.count("attention.head_count")
    return kv_heads * sum(int(w) for w in widths)


def _windows(m: _Metadata, layers: int) -> list[int | None]:
    window = m.get("attention.sliding_window") or m.get("attention.chunk_size")
    if not window:
        return [None] * layers
    pattern = m.get("attention.sliding_window_pattern")
    if isinstance(pattern, list) and not isinstance(pattern, Length) and len(pattern) >= layers:
        return [int(window) if on else None for on in pattern[:layers]]
    every = pattern if isinstance(pattern, int) and pattern > 1 else _PATTERNS.get(m.prefix)
    if every is None:
        if m.prefix in ("phi3", "llama", "qwen2", "mistral3"):  # llama.cpp does not apply the window to these
            return [None] * layers
        raise BadInput(
            f"{m.name}: {m.prefix}.attention.sliding_window", window, "a file that says which layers have it"
        )
    return [None if (i + 1) % every == 0 else int(window) for i in range(layers)]


def _state(m: _Metadata) -> tuple[int, int]:
    """(recurrent, convolution) values of one recurrent layer."""
    if (taps := m.get("shortconv.l_cache")) is not None:
        return 0, (int(taps) - 1) * m.count("embedding_length")
    conv = m.count("ssm.conv_kernel") - 1
    if (width := m.get("kda.head_dim")) is not None:
        heads = m.each("attention.head_count", 1)[0]
        return heads * int(width) ** 2, 3 * conv * heads * int(width)
    inner, state = m.count("ssm.inner_size"), m.count("ssm.state_size")
    return inner * state, conv * (inner + 2 * m.count("ssm.group_count", 0) * state)
