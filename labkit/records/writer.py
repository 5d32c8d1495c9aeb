"""Write a run so that nothing measured is lost: every row is on disk before the next request starts."""

import contextlib
import json
import re
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from labkit import disk
from labkit.disk import NoRoom
from labkit.engines.secrets import hide, hide_text
from labkit.engines.server_info import allowed
from labkit.errors import BadInput, LabError
from labkit.records import environment, schema

_ROOT = str(Path(__file__).resolve().parents[2])


class RunWriter:
    """One run directory. Use as a context manager: leaving it writes the end status.

    directory   created; refused when it already holds a run (records are never overwritten)
    parameters  JSON-ready parameters, at measurement time
    Files: run.json (replaced atomically), requests.jsonl (append-only, fsync per row).
    Raises NoRoom when the disk takes no more; every row before that one is kept.
    """

    def __init__(self, directory: str | Path, parameters: dict, *, label: str = "", seeds: dict | None = None):
        self.directory = Path(directory)
        if any((self.directory / name).exists() for name in (schema.META, schema.LOG)):
            raise BadInput("run directory", str(directory), "a directory without a run; records are never overwritten")
        disk.folder(self.directory)
        self.rows, self.resumed = 0, []
        self._log = disk.open_log(self.directory / schema.LOG, "nothing was measured yet")
        self.meta = {
            "schema": schema.SCHEMA,
            "id": f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
            "label": label,
            "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": "running",
            "parameters": portable(parameters),
            "arms": [],
            "seeds": seeds if seeds is not None else {"seed": parameters.get("seed")},
            "environment": environment.capture(),
            "git": environment.git_state(),
            "summary": {},
        }
        self.save()

    @classmethod
    def resume(cls, directory: str | Path) -> "RunWriter":
        """Go on with a record that was cut short; `resumed` has the rows that it holds. Raises BadInput without one."""
        from labkit.records.reader import read_run

        found = read_run(directory)
        self = cls.__new__(cls)
        self.directory, self.meta, self.resumed = Path(directory), found.meta, found.rows
        self.rows = len(found.rows)
        self.meta |= {"status": "running", "sessions": self.meta.get("sessions", 1) + 1}
        log = self.directory / schema.LOG
        cut = log.exists() and not log.read_bytes().endswith(b"\n") and log.stat().st_size > 0
        with disk.told(log, f"{self.rows} rows are kept"):
            self._log = open(log, "ab", buffering=0)
            if cut:
                self._log.write(b"\n")  # ends the line that a kill cut, so that it costs only itself
        self.save()
        return self

    @property
    def session(self) -> str:
        """Name of this go at the record: rows of one go were measured without a break between them."""
        number = self.meta.get("sessions", 1)
        return self.meta["id"] + (f".{number}" if number > 1 else "")

    def add_arm(
        self,
        name: str,
        *,
        requested: dict | None = None,
        server_info: dict | None = None,
        launch: dict | None = None,
        **more: object,
    ) -> None:
        """Describe one arm: the configuration asked for, what the server resolved, how it was launched.

        server_info may be the server's whole document: only the allow-list of fields is kept, scrubbed of keys.
        """
        self.meta["arms"] = [a for a in self.meta["arms"] if a["name"] != name]
        found = {"name": name, "engine": requested, "server_info": allowed(server_info or {}), "launch": launch, **more}
        self.meta["arms"].append(portable(found))
        self.save()

    def append(self, row: dict) -> None:
        """Add one row; it is on disk when this returns. A NaN or an unserialisable value raises, so none gets in."""
        if row.get("error"):
            row = row | {"error": hide_text(str(row["error"]))}
        line = json.dumps(row, allow_nan=False, separators=(",", ":"), default=_plain).encode() + b"\n"
        disk.append(self._log, line, f"{self.rows} rows are kept")
        self.rows += 1

    def save(self) -> None:
        """Replace run.json in one step; where the disk has no room for a second one, its end status in place."""
        path = self.directory / schema.META
        try:
            disk.write_json(path, hide(self.meta), f"{self.rows} rows are kept", _plain)
        except NoRoom:
            if self.meta["status"] != "running":
                _end_in_place(path, self.meta)
            raise

    def finish(self, summary: dict | None = None, status: str = "finished") -> Path:
        """Close the log and write the end status. Returns the directory. May be called once more."""
        if summary is not None:
            self.meta["summary"] = summary
        self._log.close()
        self.meta["environment_end"] = environment.changing()
        self.meta["finished_utc"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.meta["status"] = status
        self.save()
        return self.directory

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, kind, error, _):
        if self.meta["status"] == "running":
            interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
            if kind is not None:
                self.meta["error"] = str(error) if isinstance(error, LabError) else f"{kind.__name__}: {error}"
            try:
                self.finish(status="finished" if kind is None else "interrupted" if interrupted else "failed")
            except NoRoom:
                if kind is None:
                    raise  # otherwise the first error says it


def _end_in_place(path: Path, meta: dict) -> None:
    """Write the end status over the old document, which took more room: a record that ended must not say "running".

    Not atomic, and so only where the atomic way has failed; the rows lie in a file of their own.
    """
    short = {k: v for k, v in hide(meta).items() if k not in ("environment_end", "summary")}
    text = json.dumps(short, separators=(",", ":"), default=_plain).encode() + b"\n"
    with contextlib.suppress(OSError):
        there = path.stat()
        if len(text) <= max(there.st_size, there.st_blocks * 512):  # blocks that the file has already
            with open(path, "r+b") as file:
                file.write(text)
                file.truncate()


def portable(value: object) -> object:
    """A copy whose strings name this checkout as "." and the home directory as "~": records travel, folders do not."""
    if isinstance(value, str):
        for path, short in ((_ROOT, "."), (str(Path.home()), "~")):
            if len(path) > 1:
                value = re.sub(rf"{re.escape(path)}(?=/|$)", short, value)
        return value
    if isinstance(value, dict):
        return {k: portable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [portable(v) for v in value]
    return value


def new_directory(parent: str | Path, name: str) -> Path:
    """A directory path below `parent` that no run uses yet: TIME-name, with a counter when two start in one second.

    Raises BadInput for a parent that is no folder, or cannot be written.
    """
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    for n in range(1000):
        path = Path(parent) / (stem if n == 0 else f"{stem}-{n}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            if not Path(parent).is_dir():
                break
        except OSError as e:
            raise BadInput("out_dir", str(parent), f"a folder that can be made and written ({e.strerror})") from None
    raise BadInput("out_dir", str(parent), "a folder that can be made and written")


def _plain(value: object) -> object:
    if hasattr(value, "item"):  # NumPy scalars
        return value.item()
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot record {type(value).__name__}")
