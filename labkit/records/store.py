"""Find a measurement again by what was measured, so that going back to a setting shows its result at once."""

import hashlib
import json
import time
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit import disk, waits
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.records.reader import read_rows


@dataclass(frozen=True)
class Kept:
    """All rows of one setting. age_s: since the newest of them was measured."""

    key: str
    rows: list[dict]
    age_s: float

    @property
    def repeats(self) -> int:
        return len({r["repeat"] for r in self.rows if r["repeat"] >= 0})

    @property
    def next_repeat(self) -> int:
        """The number that the next pass should carry, so that "measure again" adds and never overwrites."""
        return 1 + max((r["repeat"] for r in self.rows), default=-1)

    def age(self) -> str:
        """The age in words, e.g. "3 min ago"."""
        for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
            if self.age_s >= size:
                return f"{self.age_s / size:.0f} {word} ago"
        return "just now"


def key(config: EngineConfig, load: dict, version: str) -> str:
    """Digest of (engine configuration, load, engine version); load must be JSON-ready (Params.load())."""
    document = json.dumps([config.digest(), load, version], sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:16]


class Store:
    """A directory of append-only files, one per key. Several notebooks may share it: appends are locked."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)

    def get(self, config: EngineConfig, load: dict, version: str) -> Kept | None:
        """What was measured under this setting, None when nothing was."""
        name = key(config, load, version)
        rows = read_rows(self._path(name))
        rows = [r for r in rows if "arm" in r and "repeat" in r]
        if not rows:
            return None
        newest = max(r["started_unix"] + (r.get("latency_s") or 0) for r in rows)
        return Kept(name, rows, max(0.0, time.time() - newest))

    def add(self, config: EngineConfig, load: dict, version: str, rows: Iterable[dict]) -> Kept:
        """Append measured rows under a setting; rows whose repeat number is taken are refused (BadInput)."""
        rows = list(rows)
        name = key(config, load, version)
        path = self._path(name)
        disk.folder(self.directory)
        with _locked(self.directory / ".lock"):
            old = read_rows(path)
            taken = {(r["repeat"], r["index"]) for r in old if "arm" in r}
            for row in rows:
                if (row["repeat"], row["index"]) in taken:
                    raise BadInput("repeat", row["repeat"], "a repeat that is not kept yet (Kept.next_repeat)")
            head = [] if old else [{"config": config.as_dict(), "load": load, "version": version}]
            lines = [json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n" for row in head + rows]
            with open(path, "ab", buffering=0) as file:
                if file.tell() and not path.read_bytes().endswith(b"\n"):
                    lines.insert(0, b"\n")  # a kill cut the last line: end it, so that it costs only itself
                kept = f"the {len(old)} lines before are kept there, the new rows in the record of their run"
                disk.append(file, b"".join(lines), kept)
        return self.get(config, load, version)

    def settings(self) -> list[dict]:
        """Every setting kept here: {"config", "load", "version", "rows"}."""
        out = []
        for path in sorted(self.directory.glob("*.jsonl")):
            rows = read_rows(path)
            if rows and "config" in rows[0]:
                out.append({**rows[0], "rows": rows[1:]})
        return out

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"


@contextmanager
def _locked(path: Path):
    with open(path, "w") as file:
        waits.flock(file, f"the lock of the kept measurements ({path})")
        yield
