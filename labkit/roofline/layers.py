"""Which mixer and which feed-forward part each layer has: the rules by which config files say it."""

from labkit.errors import BadInput
from labkit.roofline.geometry import Geometry

MIXERS = {
    "full_attention": "full",
    "attention": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "conv": "linear",
    "short_conv": "linear",
}
ORDER = ("full", "sliding", "chunked", "linear")
# One-block layers of Nemotron-H: (mixer, feed-forward part).
BLOCKS = {
    "M": ("linear", None),
    "*": ("full", None),
    "-": (None, "dense"),
    "E": (None, "sparse"),
}
BLOCK_NAMES = {
    "linear_attention": "M",
    "mamba": "M",
    "full_attention": "*",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}


def mixers(f: Geometry, spec: dict) -> list[str]:
    """The mixer of each layer, then of each NEXTN layer where the config lists those too."""
    layers = f.count("layers")
    rule = spec.get("layers", "full")
    listed = f.raw("layer_types")
    extra = max(0, len(listed) - layers) if isinstance(listed, list) else 0
    if extra > 0 and extra != f.count("nextn", 0, least=0):
        extra = 0
    kinds = f.kinds("layer_types", layers + extra, MIXERS)
    if isinstance(rule, dict):
        (name, argument), *_ = rule.items()
    else:
        name, argument = rule, None
    lists = name == "lists" and f.raw("full_attn_layers") is not None
    made = _RULES[name](f, layers, argument) if kinds is None or lists else kinds
    if "sliding" in made and f.raw("sliding_window") is None:
        made = ["full" if k == "sliding" else k for k in made]
    if kinds is not None and not lists and (other := _also_told(f, name, layers, argument)) not in (None, kinds):
        raise BadInput(f"{f.name}: layer_types", kinds, f"what the other fields say: {other}")
    return made


def _also_told(f: Geometry, name: str, layers: int, argument: object) -> list[str] | None:
    """The same told a second time by the fields of the family's rule, to be held against the list; marks them read."""
    if name in ("every", "tail"):
        return _RULES[name](f, layers, argument) if f.raw(argument) is not None else None
    if name == "pattern":
        f.raw("sliding_window_pattern")
    if name == "chunks":
        f.raw("no_rope_layers"), f.raw("no_rope_layer_interval"), f.raw("attention_chunk_size")
    return None


def _full(f: Geometry, layers: int, argument: object) -> list[str]:
    f.raw("sliding_window") if argument == "no window" else None
    return ["full"] * layers


def _window(f: Geometry, layers: int, argument: object) -> list[str]:
    """Mistral, Phi-3: where a window is told, all layers have it."""
    return ["sliding" if f.raw("sliding_window") is not None else "full"] * layers


def _qwen_window(f: Geometry, layers: int, argument: object) -> list[str]:
    """Qwen 2 and 3: a window only where use_sliding_window, and from max_window_layers on."""
    on, window = f.flag("use_sliding_window"), f.raw("sliding_window")
    first = f.count("max_window_layers", layers, least=0)
    return ["sliding" if on and window is not None and i >= first else "full" for i in range(layers)]


def _pattern(f: Geometry, layers: int, every: object) -> list[str]:
    """Gemma: every so many layers one that sees all. Gemma 4's last layer always does."""
    n = f.count("sliding_window_pattern", int(every))
    return ["full" if (i + 1) % n == 0 else "sliding" for i in range(layers)]


def _every(f: Geometry, layers: int, field: object) -> list[str]:
    n = f.count(str(field))
    return ["full" if (i + 1) % n == 0 else "linear" for i in range(layers)]


def _tail(f: Geometry, layers: int, field: object) -> list[str]:
    """Ling 3: as `every`, and a ragged tail is full too."""
    n = f.count(str(field))
    return ["full" if (i + 1) % n == 0 or i >= layers // n * n else "linear" for i in range(layers)]


def _chunks(f: Geometry, layers: int, argument: object) -> list[str]:
    """Llama 4: layers without rotary positions see all, the others their chunk."""
    given = f.numbers("no_rope_layers")
    step = f.count("no_rope_layer_interval", 4)
    ropes = given or [int((i + 1) % step != 0) for i in range(layers)]
    if len(ropes) != layers:
        raise BadInput(f"{f.name}: no_rope_layers", ropes, f"one number for each of {layers} layers")
    chunked = f.raw("attention_chunk_size") is not None
    return ["chunked" if rope and chunked else "full" for rope in ropes]


def _lists(f: Geometry, layers: int, argument: object) -> list[str]:
    """Kimi: two lists of layers, counted from 1."""
    f.need(["linear_attn_config.kda_layers", "linear_attn_config.full_attn_layers"])
    full, linear = f.numbers("full_attn_layers") or [], f.numbers("kda_layers") or []
    if sorted([*full, *linear]) != list(range(1, layers + 1)):
        told = f"{len(linear)} + {len(full)} layers"
        raise BadInput(f"{f.name}: linear_attn_config", told, f"lists of {layers} layers together")
    return ["full" if i + 1 in set(full) else "linear" for i in range(layers)]


def _indexes(f: Geometry, layers: int, field: object) -> list[str]:
    full = f.numbers(str(field))
    return ["full" if full is None or i in full else "linear" for i in range(layers)]


def _all_linear(f: Geometry, layers: int, argument: object) -> list[str]:
    return ["linear"] * layers


_RULES = {
    "full": _full,
    "window": _window,
    "qwen window": _qwen_window,
    "pattern": _pattern,
    "every": _every,
    "tail": _tail,
    "chunks": _chunks,
    "lists": _lists,
    "indexes": _indexes,
    "linear": _all_linear,
}


def blocks(f: Geometry, key: str, names: str) -> list[tuple[str | None, str | None]] | None:
    """One-block layers from a pattern of letters or from a list of names; None where neither is told."""
    pattern, listed = f.raw(key), f.raw(names)
    if isinstance(listed, list):
        if unknown := [n for n in listed if n not in BLOCK_NAMES]:
            raise BadInput(f"{f.name}: {f.label(names)}", unknown, ", ".join(BLOCK_NAMES))
        spelled = "".join(BLOCK_NAMES[n] for n in listed)
        if isinstance(pattern, str) and pattern != spelled:
            raise BadInput(f"{f.name}: {f.label(names)}", spelled, f"what {key} says: {pattern}")
        pattern = spelled
    if pattern is None:
        return None
    if not isinstance(pattern, str) or not pattern or set(pattern) - set(BLOCKS):
        raise BadInput(f"{f.name}: {f.label(key)}", pattern, "letters " + ", ".join(BLOCKS))
    return [BLOCKS[letter] for letter in pattern]


def feed_forward(f: Geometry, spec: dict) -> list[str]:
    """dense or sparse for each layer."""
    layers, rule = f.count("layers"), spec.get("ffn", "dense")
    listed = f.raw("mlp_layer_types")
    extra = len(listed) - layers if isinstance(listed, list) and len(listed) > layers else 0
    kinds = f.kinds("mlp_layer_types", layers + extra, {"dense": "dense", "sparse": "sparse", "moe": "sparse"})
    if rule == "dense":
        return ["dense"] * layers
    if rule == "if experts":
        return ["sparse" if f.count("experts", 0, least=0) else "dense"] * layers
    if rule == "all":
        return ["sparse"] * layers
    if kinds is not None:  # a list decides; the fields that say it another way are read all the same
        for key in ("first_dense", "moe_layer_freq", "mlp_only_layers", "decoder_sparse_step"):
            f.raw(key)
        return kinds[:layers]
    made = _first(f, layers) if rule == "first" else None
    if rule == "steps":
        plain, step = set(f.numbers("mlp_only_layers") or ()), f.count("decoder_sparse_step", 1)
        made = ["sparse" if i not in plain and (i + 1) % step == 0 else "dense" for i in range(layers)]
    elif rule == "listed":
        chosen = f.numbers("moe_layers")
        if chosen is None and f.raw("first_dense") is not None:
            chosen = range(f.count("first_dense", least=0), layers)
        step = f.count("interleave_moe_layer_step", 1)
        chosen = list(range(step - 1, layers, step)) if chosen is None else chosen
        made = ["sparse" if i in chosen else "dense" for i in range(layers)]
    if made is None:
        raise BadInput("families.yaml: ffn", rule, "dense, all, if experts, first, steps, listed")
    return made


def _first(f: Geometry, layers: int) -> list[str]:
    """DeepSeek: the first few dense, then every moe_layer_freq-th sparse."""
    dense, freq = f.count("first_dense", least=0), f.raw("moe_layer_freq", 1)
    if dense >= layers and not f.missing:
        raise BadInput(f"{f.name}: {f.label('first_dense')}", dense, f"fewer than num_hidden_layers ({layers})")
    if isinstance(freq, list):  # MiMo writes one number per layer
        if len(freq) != layers or set(freq) - {0, 1}:
            raise BadInput(f"{f.name}: moe_layer_freq", freq, f"a number, or 0 or 1 for each of {layers} layers")
        return ["sparse" if on else "dense" for on in freq]
    freq = f.count("moe_layer_freq", 1)
    return ["sparse" if i >= dense and i % freq == 0 else "dense" for i in range(layers)]
