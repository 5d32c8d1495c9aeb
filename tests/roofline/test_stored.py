"""Weight files' headers against the config: local folders, and an address that answers range requests."""

import json
import struct
from http.server import BaseHTTPRequestHandler

import gguf_file
import pytest
import shapes
from served import served

from labkit import catalog
from labkit.errors import BadInput
from labkit.roofline import stored
from labkit.roofline.account import per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.gguf import read_gguf
from labkit.roofline.sizes import checkpoint_bytes

CONFIG = shapes.QWEN | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}}


def entries(config, shrink=1.0):
    """name -> bytes as a checkpoint of this config has them, one entry a matrix; `shrink` changes the experts."""
    shape, quant = shape_of(config), stored.quantization.quantization_of(config)
    found = {}
    for t in shape.tensors:
        for form, _ in quant.formats(t, on_disk=True)[:1]:
            for layer in t.at or (0,):
                for e in range(max(1, t.experts)):
                    name = (t.path or f"model.{t.name}").format(layer, e=e)
                    size = form.size(t.rows, t.cols)
                    scale = int(shrink) if t.experts else 1
                    found[f"{name}.weight"] = int(size.payload * (shrink if t.experts else 1))
                    if size.scale:
                        found[f"{name}.weight_scale_inv"] = int(size.scale * (shrink if t.experts else 1)) * (
                            scale or 1
                        )
    return found


def write(path, sizes):
    at, header = 0, {"__metadata__": {"format": "pt"}}
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + at)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    sizes = entries(CONFIG)
    half = len(sizes) // 2
    files = {"model-00001-of-00002.safetensors": dict(list(sizes.items())[:half])}
    files["model-00002-of-00002.safetensors"] = dict(list(sizes.items())[half:]) | {"visual.patch_embed.weight": 77}
    for name, part in files.items():
        write(tmp_path / name, part)
    index = {"metadata": {"total_size": sum(sizes.values()) + 77}}
    index["weight_map"] = {n: f for f, part in files.items() for n in part}
    (tmp_path / stored.INDEX).write_text(json.dumps(index))
    return tmp_path


def opened(model):
    config, headers = stored.open_model(str(model), catalog.load_config)
    return config, headers, *stored.quantization_of(config, headers)


def test_headers_that_agree(folder):
    config, headers, quant, held = opened(folder)
    assert headers.whole and held.towers == 77 and not held.notes
    assert all(b == pytest.approx(a, rel=0.01) for _, a, b in held.parts)
    assert "agree with the config" in held.sentence() and held.as_dict()["agree"]
    plain, read = (per_tensor(config, context=9, quant=r).total_bytes for r in (None, quant))
    assert read == pytest.approx(plain, rel=0.01)
    assert checkpoint_bytes(config, quant) == pytest.approx(headers.total - 77)


def test_the_account_is_read_from_the_files_where_they_disagree(folder):
    """Experts stored at half the width that the config claims: the account follows the files, and says so."""
    sizes = {n: s // 2 if ".experts." in n else s for n, s in entries(CONFIG).items()}
    for name in folder.glob("*.safetensors"):
        name.unlink()
    (folder / stored.INDEX).unlink()
    write(folder / "model.safetensors", sizes)
    config, _, quant, held = opened(folder)
    assert "do NOT agree" in held.sentence() and not held.as_dict()["agree"]
    group = per_tensor(config, context=0, quant=quant).group("routed experts")
    assert group.total_bytes == pytest.approx(
        per_tensor(config, context=0).group("routed experts").total_bytes / 2, 0.02
    )
    assert group.format.endswith("as stored")


def test_an_index_alone_gives_its_total(folder):
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    _, headers, _, held = opened(folder)
    assert not headers.whole and "index" in held.notes[0]
    assert held.parts[0][2] == pytest.approx(held.parts[0][1], rel=0.01)


def test_files_that_cannot_be_read(folder):
    shard = next(iter(folder.glob("*.safetensors")))
    shard.write_bytes(b"\x05\0\0\0\0\0\0\0nojson")
    with pytest.raises(BadInput, match="safetensors file with its header"):
        opened(folder)
    (folder / stored.INDEX).write_text("{}")
    with pytest.raises(BadInput, match="weight_map"):
        opened(folder)


class _Ranges(BaseHTTPRequestHandler):
    ranges, asked = True, []

    def do_GET(self):
        path = self.server.folder / self.path.lstrip("/")
        self.asked.append((self.path, self.headers.get("Range")))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        asked = self.headers.get("Range") if self.ranges else None
        if asked:
            first, last = asked.removeprefix("bytes=").split("-")
            part = data[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        else:
            part = data
            self.send_response(200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_):
        pass


@pytest.fixture
def address(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(_Ranges, "asked", [])
    with served(_Ranges, folder=folder) as server:
        yield server.url


def test_an_address_is_asked_for_headers_alone(address, folder):
    config, headers = stored.open_model(address, catalog.load_config)
    local = stored.of_folder(folder)
    assert headers.tensors == local.tensors and config.fields["hidden_size"] == shapes.D
    assert sum(".safetensors" in path and path.endswith("s") for path, _ in _Ranges.asked) == 2
    assert all(r for path, r in _Ranges.asked if path.endswith(".safetensors")), "weights are only asked for by range"
    one, _ = stored.open_model(f"{address}/model-00001-of-00002.safetensors", catalog.load_config)
    assert one.fields == config.fields


def test_a_gguf_behind_an_address(address, folder):
    tensors = {"token_embd.weight": ("Q8_0", (64, 32)), "blk.0.attn_k.weight": ("Q8_0", (64, 64))}
    meta = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 64}
    meta |= {"llama.attention.head_count": 4}
    gguf_file.write(folder / "m.gguf", meta, tensors)
    config, headers = stored.open_model(f"{address}/m.gguf", catalog.load_config)
    assert headers is None and config.source.endswith("/m.gguf")
    assert checkpoint_bytes(config) == read_gguf(folder / "m.gguf").tensor_bytes


def test_addresses_that_do_not_serve(address, folder, monkeypatch):
    with pytest.raises(BadInput, match="config.json"):
        stored.open_model(f"{address}/nothing", catalog.load_config)
    with pytest.raises(BadInput, match="can be read"):
        stored.open_model("http://127.0.0.1:9/m", catalog.load_config)
    monkeypatch.setattr(_Ranges, "ranges", False)
    with pytest.raises(BadInput, match="range requests"):
        stored.open_model(address, catalog.load_config)
