"""Find a measurement again by what was measured, so that going back to a setting shows its result at once."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from labkit import disk, waits
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.records.reader import read_rows


@dataclass(frozen=True)
class Kept:
    """All rows of one setting, under one version of its engine."""

    config: dict
    load: dict
    version: str
    rows: list[dict]

    @property
    def digest(self) -> str | None:
        """Digest of the configuration; None where this lab no longer knows such a one."""
        try:
            return EngineConfig.of_record(self.config).digest()
        except BadInput:
            return None

    @property
    def measured_unix(self) -> float:
        """When the newest of its requests ended."""
        return max(r["started_unix"] + (r.get("latency_s") or 0) for r in self.rows)


def clock(unix: float, now: float) -> str:
    """A moment as this machine's clock showed it, with the date where that is not today's. Not "5 min ago": a page that
    stays open and a saved notebook would go on saying it."""
    then, today = datetime.fromtimestamp(unix), datetime.fromtimestamp(now).date()
    return f"at {then:%H:%M}" if then.date() == today else f"on {then.day} {then:%b %Y}, {then:%H:%M}"


def key(config: EngineConfig, load: dict, version: str) -> str:
    """Digest of (engine configuration, load, engine version); load must be JSON-ready (Params.load())."""
    document = json.dumps([config.digest(), load, version], sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:16]


class Store:
    """A directory of append-only files, one per key. Several notebooks may share it: appends are locked."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self._read: dict[Path, tuple[tuple[int, int], list[dict]]] = {}

    def get(self, config: EngineConfig, load: dict, version: str | None = None) -> Kept | None:
        """What was measured under this setting, None when nothing was. version None: the newest measurement's, for a
        time when no engine runs that could be asked."""
        if version is None:
            fitting = [k for k in self.settings() if k.load == load and k.digest == config.digest()]
            return max(fitting, key=lambda k: k.measured_unix, default=None)
        return self._kept(self._path(key(config, load, version)))

    def add(self, config: EngineConfig, load: dict, version: str, rows: Iterable[dict]) -> Kept:
        """Append measured rows under a setting; a request that is kept already is refused (BadInput)."""
        rows = list(rows)
        name = key(config, load, version)
        path = self._path(name)
        disk.folder(self.directory)
        with _locked(self.directory / ".lock"):
            old = read_rows(path)
            taken = {_request(r) for r in old if "arm" in r}
            for row in rows:
                if _request(row) in taken:
                    raise BadInput("repeat", row["repeat"], "a repeat that is not kept yet")
            head = [] if old else [{"config": config.as_dict(), "load": load, "version": version}]
            lines = [json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n" for row in head + rows]
            kept = f"the {len(old)} lines before are kept there, the new rows in the record of their run"
            with disk.open_log(path, kept) as file:
                disk.append(file, b"".join(lines), kept)
        return self.get(config, load, version)

    def settings(self) -> list[Kept]:
        """Every setting that has rows here."""
        found = [self._kept(path) for path in sorted(self.directory.glob("*.jsonl"))]
        return [kept for kept in found if kept is not None]

    def _kept(self, path: Path) -> Kept | None:
        """A file's rows, read again only when it has changed: panels ask at every move of a slider."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        stamp = (found.st_mtime_ns, found.st_size)
        if self._read.get(path, ((), []))[0] != stamp:
            self._read[path] = (stamp, read_rows(path))
        head, *rows = self._read[path][1] or [{}]
        rows = [r for r in rows if "arm" in r and "repeat" in r]
        return Kept(head["config"], head["load"], head["version"], rows) if rows and "config" in head else None

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"


def _request(row: dict) -> tuple:
    return row.get("session"), row["repeat"], row["index"]


@contextmanager
def _locked(path: Path):
    with open(path, "w") as file:
        waits.flock(file, f"the lock of the kept measurements ({path})")
        yield
