"""Headers behind an address that the user gives: small requests for what describes the weights, never the weights."""

import hashlib
import json
import os
import struct
from pathlib import Path
from urllib.parse import urlsplit

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput

FIRST = 1 << 20  # bytes of a shard that one range request asks for; a longer header is asked for once more
MOST = 64 << 20  # no header is longer


def open_address(url: str, read: bool = True) -> tuple[ModelConfig, "object | None"]:
    """(config, headers or None) of a GGUF file, a safetensors file, or a folder with config.json at an address.

    A hub's model page stands for its main branch. BadInput for an address that does not answer as it should.
    """
    from labkit.roofline import stored

    url = url.rstrip("/")
    if url.partition("?")[0].endswith(".gguf"):
        return _gguf(url), None
    base = url.rpartition("/")[0] if url.endswith((".safetensors", ".json")) else url
    parts = urlsplit(base)
    if parts.hostname == "huggingface.co" and parts.path.count("/") == 2:
        base += "/resolve/main"
    text = _text(f"{base}/config.json")
    if text is None:
        raise BadInput("model", url, "an address with a config.json")
    try:
        fields = json.loads(text)
    except ValueError as e:
        raise BadInput("model", f"{base}/config.json", f"readable JSON ({e})") from None
    fields |= dict(stored.sidecars(lambda name: _text(f"{base}/{name}")))
    config = ModelConfig.made(fields, parts.path.rstrip("/").rpartition("/")[2] or url, f"{base}/config.json")
    if not read:
        return config, None
    if url.endswith(".safetensors"):
        return config, stored.whole({url.rpartition("/")[2]: _shard(url)}, base)
    index = _text(f"{base}/{stored.INDEX}")
    names = ["model.safetensors"] if index is None else stored.read_index(index, f"{base}/{stored.INDEX}")[0]
    if index is None and _range(f"{base}/{names[0]}", 0, 8) is None:
        return config, None
    return config, stored.whole({n: _shard(f"{base}/{n}") for n in names}, base)


def _shard(url: str) -> dict[str, int]:
    from labkit.roofline import stored

    raw = _range(url, 0, FIRST)
    if raw is None or len(raw[0]) < 8:
        raise BadInput("model", url, "a safetensors file that answers a range request")
    size = struct.unpack("<Q", raw[0][:8])[0]
    if not 0 < size < MOST:
        raise BadInput("model", url, "a safetensors file with its header")
    head = raw[0][8 : 8 + size]
    if len(head) < size:
        head = _range(url, 8, size)[0]
    return stored.read_header(head, url)


def _gguf(url: str) -> ModelConfig:
    """The header of a GGUF file in a local file as long as the remote one, the rest of it a hole."""
    from labkit.roofline.gguf import read_gguf

    name = url.partition("?")[0].rpartition("/")[2]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labkit" / "headers"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}"
    size = 4 * FIRST
    while not path.exists():
        raw = _range(url, 0, size)
        if raw is None:
            raise BadInput("model", url, "a GGUF file that answers a range request")
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            file.write(raw[0])
            file.truncate(raw[1])
        try:
            read_gguf(part)
            os.replace(part, path)
        except BadInput:
            if size >= min(MOST, raw[1]):
                raise
            size *= 4
        finally:
            part.unlink(missing_ok=True)
    return ModelConfig({}, Path(name).stem, url, architectures=("GGUF",), gguf=path)


def _text(url: str) -> str | None:
    """A small document; None where the server has none."""
    answer = _ask(url, {})
    return None if answer is None else answer.text


def _range(url: str, start: int, size: int) -> tuple[bytes, int] | None:
    """(bytes, size of the whole file) by one range request; None where the server has no such file."""
    answer = _ask(url, {"Range": f"bytes={start}-{start + size - 1}"})
    if answer is None:
        return None
    total = answer.headers.get("content-range", "").rpartition("/")[2]
    if answer.status_code != 206 or not total.isdigit():
        raise BadInput("model", url, "a server that answers range requests (this one would send the whole file)")
    return answer.content, int(total)


def _ask(url: str, headers: dict[str, str]):
    import httpx

    try:
        with httpx.Client(follow_redirects=True, timeout=30) as client, client.stream("GET", url, headers=headers) as a:
            if a.status_code in (404, 401, 403, 410):
                return None
            if a.status_code not in (200, 206):
                raise BadInput("model", url, f"an address that can be read (it answers {a.status_code})")
            if "Range" not in headers or a.status_code == 206:
                a.read()
            return a
    except httpx.HTTPError as e:
        raise BadInput("model", url, f"an address that can be read ({type(e).__name__})") from None
