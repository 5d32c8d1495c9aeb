"""Headers behind an address that the user gives: small requests for what describes the weights, never the weights."""

import hashlib
import os
from pathlib import Path

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.gguf import read_gguf

FIRST = 1 << 20  # bytes of a shard that one range request asks for; a longer header is asked for once more
MOST = 64 << 20  # no header is longer


def gguf(url: str) -> ModelConfig:
    """The header of a GGUF file in a local file as long as the remote one, the rest of it a hole."""
    name = url.partition("?")[0].rpartition("/")[2]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labkit" / "headers"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}"
    size = 4 * FIRST
    while not path.exists():
        raw = ranged(url, 0, size)
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


def text(url: str) -> str | None:
    """A small document; None where the server has none."""
    answer = _ask(url, {})
    return None if answer is None else answer.text


def ranged(url: str, start: int, size: int) -> tuple[bytes, int] | None:
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
