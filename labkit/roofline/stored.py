"""What the weight files themselves say: the headers of safetensors, held against the account of the config.

No weight is read. A folder's shards are opened for their headers alone; an address that the user gives is asked for
config.json, what stands beside it, and the first bytes of each shard (one range request each).
"""

import dataclasses
import json
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from labkit.catalog.config import SIDECARS, ModelConfig
from labkit.errors import BadInput
from labkit.roofline import quantization, remote
from labkit.roofline.architectures import shape_of
from labkit.roofline.formats import Format
from labkit.roofline.quantization import Quantization
from labkit.roofline.sizes import stored_bytes
from labkit.roofline.tensors import Role, Shape, Tensor

INDEX = "model.safetensors.index.json"
_TOWER = re.compile(r"vision|visual|audio|mm_projector|multi_modal|projector|image|speech|(^|\.)(vit|aligner)\.")
_PARTS = ("body", "routed experts", "embedding", "head", "NEXTN layers")


@dataclass(frozen=True)
class Headers:
    """Names and bytes of all tensors; `whole` is false where only the index with its total is at hand."""

    source: str
    tensors: dict[str, int]
    whole: bool
    total: float


@dataclass(frozen=True)
class HeaderBytes:
    """The config's account beside the files': (part, bytes by the config, bytes in the files)."""

    source: str
    parts: tuple[tuple[str, float, float], ...]
    towers: float
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        by_config, in_files = (sum(p[i] for p in self.parts) for i in (1, 2))
        off = in_files / by_config - 1
        word = "agree with the config" if abs(off) <= 0.01 else "do NOT agree with the config"
        return f"{in_files / 1e9:.3f} GB of the language model, {word} ({off:+.2%}); {self.source}"

    def lines(self) -> list[str]:
        found = [f"{n:28} {a / 1e9:11.3f} GB by config {b / 1e9:11.3f} GB stored" for n, a, b in self.parts if a or b]
        return found + (
            [f"{'towers, not read for text':28} {self.towers / 1e9:29.3f} GB stored"] if self.towers else []
        )

    def as_dict(self) -> dict:
        return {
            "source": self.source,
            "parts": [{"name": n, "config_bytes": a, "stored_bytes": b} for n, a, b in self.parts],
            "tower_bytes": self.towers,
            "agree": all(abs(b - a) <= 0.01 * max(a, b) for _, a, b in self.parts),
        }


def open_model(
    model: str, load_config: Callable[[str], ModelConfig], read: bool = True
) -> tuple[ModelConfig, Headers | None]:
    """(config, headers or None) from a catalog id, a path, or an http(s) address of a GGUF file, a safetensors file or
    a folder with config.json. BadInput for what cannot be read."""
    if model.startswith(("http://", "https://")):
        return _open_address(model, read)
    config = load_config(model)
    folder = Path(model)
    if not read or config.gguf is not None or not folder.exists():
        return config, None
    return config, of_folder(folder if folder.is_dir() else folder.parent)


def of_folder(folder: Path) -> Headers | None:
    """The headers in a folder; None where there is neither an index nor a safetensors file."""
    index = folder / INDEX
    shards = sorted(folder.glob("*.safetensors"))
    if not index.exists():
        return whole({s.name: _file_header(s) for s in shards}, str(folder)) if shards else None
    names, total = read_index(index.read_text(encoding="utf-8"), str(index))
    here = [folder / n for n in names if (folder / n).exists()]
    if len(here) < len(names):
        return Headers(f"{index.name} alone ({len(here)} of {len(names)} files at hand)", {}, False, total)
    return whole({s.name: _file_header(s) for s in here}, str(folder))


def read_index(text: str, source: str) -> tuple[list[str], float]:
    """(file names, total bytes) of a model.safetensors.index.json. BadInput when it is not one."""
    try:
        document = json.loads(text)
        return sorted(set(document["weight_map"].values())), float(
            (document.get("metadata") or {}).get("total_size", 0)
        )
    except (ValueError, KeyError, AttributeError, TypeError) as e:
        raise BadInput("model", source, f"an index with weight_map ({e})") from None


def _file_header(path: Path) -> dict[str, int]:
    try:
        with path.open("rb") as file:
            first = file.read(8)
            size = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
            return read_header(file.read(size) if 0 < size < 1 << 28 else b"", str(path))
    except OSError as e:
        raise BadInput("model", str(path), f"a readable safetensors file ({e.strerror})") from None


def read_header(raw: bytes, source: str) -> dict[str, int]:
    """Name -> bytes from the JSON of a safetensors header. BadInput when it is not one."""
    try:
        entries = json.loads(raw)
        return {n: e["data_offsets"][1] - e["data_offsets"][0] for n, e in entries.items() if n != "__metadata__"}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
        raise BadInput("model", source, f"a safetensors file with its header ({e})") from None


def whole(files: dict[str, dict[str, int]], source: str) -> Headers:
    """Headers of a model whose every file has been asked."""
    tensors = {n: size for header in files.values() for n, size in header.items()}
    return Headers(f"{len(files)} file(s) in {source}", tensors, True, float(sum(tensors.values())))


def quantization_of(config: ModelConfig, headers: Headers) -> tuple[Quantization, HeaderBytes]:
    """The quant with each part's bytes as the files have them, and the comparison that led there."""
    shape, quant = shape_of(config), quantization.quantization_of(config)
    by_config = {part: 0.0 for part in _PARTS}
    for tensor in shape.tensors:
        by_config[_part(tensor)] += stored_bytes(tensor, quant)
    by_config["NEXTN layers"] = max(1, shape.nextn_layers) * sum(stored_bytes(t, quant) for t in shape.nextn)
    if not headers.whole:
        total = sum(by_config.values())
        note = "Only the index is at hand: its total may hold towers that a step of text does not read."
        return quant, HeaderBytes(headers.source, (("all tensors", total, headers.total),), 0.0, (note,))
    found, towers = _sort(headers.tensors, shape)
    ratios = {p: found[p] / by_config[p] for p in _PARTS if by_config[p] and found[p]}
    notes = [f"The files hold no {p}, which the config has." for p in _PARTS if by_config[p] and not found[p]] + [
        f"The files hold {found[p] / 1e9:.3f} GB of {p}, of which the config says nothing."
        for p in _PARTS
        if found[p] and not by_config[p]
    ]
    modules = {}
    for tensor in (*shape.tensors, *shape.nextn):
        ratio = ratios.get("NEXTN layers" if tensor in shape.nextn else _part(tensor))
        if ratio and abs(ratio - 1) > 1e-9:
            mixed = quant.formats(tensor, on_disk=True)
            modules[tensor] = tuple((_scaled(form, tensor, ratio), n) for form, n in mixed)
    parts = tuple((p, by_config[p], found[p]) for p in _PARTS)
    merged = dataclasses.replace(quant, modules={**quant.modules, **modules})
    return merged, HeaderBytes(headers.source, parts, towers, tuple(notes))


def _scaled(form: Format, t: Tensor, ratio: float) -> Format:
    """A format whose matrices take `ratio` times the bytes: what the files hold, spread over the part's tensors."""
    name = form.name if abs(ratio - 1) <= 0.005 else f"{form.name}, as stored"
    size = form.size(t.rows, t.cols)
    bits = 8 * (size.payload + size.padding) * ratio / (t.rows * t.cols)
    return Format(name, bits, 1, 0, size.scale * ratio / t.rows)


def _part(tensor: Tensor) -> str:
    return {
        Role.EXPERTS: "routed experts",
        Role.EXPERT_BIAS: "routed experts",
        Role.EMBEDDING: "embedding",
        Role.HEAD: "head",
    }.get(tensor.role, "body")


def _sort(tensors: dict[str, int], shape: Shape) -> tuple[dict[str, float], float]:
    """Bytes by part, and of towers. A tied head stored a second time is not part of the model's account."""
    found, towers = {part: 0.0 for part in _PARTS}, 0.0
    for name, size in tensors.items():
        if _TOWER.search(name):
            towers += size
        elif shape.tied and re.search(r"(^|\.)(lm_head|output)\.", name):
            continue
        elif not re.search(r"(k_scale|v_scale|rotary_emb\.inv_freq|input_scale)$", name):
            found[_of_name(name, shape.layers)] += size
    return found, towers


def _of_name(name: str, layers: int) -> str:
    match = re.search(r"(?:layers|h|blocks)\.(\d+)\.", name)
    if re.search(r"(^|\.)(mtp|nextn)\w*\.", name) or (match and int(match[1]) >= layers):
        return "NEXTN layers"
    if re.search(r"\.experts\.|\.experts$|experts\.(gate_up|down)", name) and "shared" not in name:
        return "routed experts"
    if re.search(r"embed_tokens|word_embeddings|(^|\.)wte\.|(^|\.)embeddings\.", name):
        return "embedding"
    if re.search(r"(^|\.)lm_head\.", name):
        return "head"
    return "body"


def _open_address(url: str, read: bool = True) -> tuple[ModelConfig, Headers | None]:
    """(config, headers or None) of a GGUF file, a safetensors file, or a folder with config.json at an address.

    A hub's model page stands for its main branch. BadInput for an address that does not answer as it should.
    """
    url = url.rstrip("/")
    if url.partition("?")[0].endswith(".gguf"):
        return remote.gguf(url), None
    base = url.rpartition("/")[0] if url.endswith((".safetensors", ".json")) else url
    parts = urlsplit(base)
    if parts.hostname == "huggingface.co" and parts.path.count("/") == 2:
        base += "/resolve/main"
    text = remote.text(f"{base}/config.json")
    if text is None:
        raise BadInput("model", url, "an address with a config.json")
    try:
        fields = json.loads(text)
    except ValueError as e:
        raise BadInput("model", f"{base}/config.json", f"readable JSON ({e})") from None
    fields |= dict(_sidecars(lambda name: remote.text(f"{base}/{name}")))
    config = ModelConfig.made(fields, parts.path.rstrip("/").rpartition("/")[2] or url, f"{base}/config.json")
    if not read:
        return config, None
    if url.endswith(".safetensors"):
        return config, whole({url.rpartition("/")[2]: _shard(url)}, base)
    index = remote.text(f"{base}/{INDEX}")
    names = ["model.safetensors"] if index is None else read_index(index, f"{base}/{INDEX}")[0]
    if index is None and remote.ranged(f"{base}/{names[0]}", 0, 8) is None:
        return config, None
    return config, whole({n: _shard(f"{base}/{n}") for n in names}, base)


def _shard(url: str) -> dict[str, int]:
    raw = remote.ranged(url, 0, remote.FIRST)
    if raw is None or len(raw[0]) < 8:
        raise BadInput("model", url, "a safetensors file that answers a range request")
    size = struct.unpack("<Q", raw[0][:8])[0]
    if not 0 < size < remote.MOST:
        raise BadInput("model", url, "a safetensors file with its header")
    head = raw[0][8 : 8 + size]
    if len(head) < size:
        head = remote.ranged(url, 8, size)[0]
    return read_header(head, url)


def _sidecars(get: Callable[[str], str | None]) -> Iterable[tuple[str, dict]]:
    """The sidecars that an address has, through `get` (None: absent)."""
    for name in SIDECARS:
        text = get(name)
        if text is not None:
            try:
                yield name, json.loads(text)
            except ValueError as e:
                raise BadInput("model", name, f"readable JSON ({e})") from None
