"""A sweep's folder: sweep.json (what was asked), configs.jsonl (what is finished, append-only), a record a block."""

import fcntl
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import BadInput
from labkit.records.reader import read_rows

if TYPE_CHECKING:
    import pandas as pd

META, LOG, BLOCKS, PROGRESS, LOCK = "sweep.json", "configs.jsonl", "blocks", "progress.json", "sweep.lock"
RUNNING, FINISHED, INTERRUPTED, EMPTY = "running", "finished", "interrupted", "not begun"  # how a sweep stands
SCHEMA = 1


@dataclass(eq=False)
class SweepRun:
    """meta: sweep.json. lines: configs.jsonl, in the order in which they were finished (rows and decisions). Two that
    were read from one folder are two: it may have grown in between."""

    directory: Path
    meta: dict
    lines: list[dict]

    @property
    def rows(self) -> list[dict]:
        """One row per configuration, its newest: measured, failed, skipped or pending; in the order of the sweep."""
        found = {c["config"]: {**c, "status": c.get("status", "pending")} for c in self.meta["configs"]}
        for line in self.lines:
            if "config" in line and line["config"] in found:
                found[line["config"]] = {**found[line["config"]], **line}
        return list(found.values())

    @property
    def finals(self) -> list[dict]:
        """What the second look at the best found, one line per machine and load."""
        return [line for line in self.lines if "final" in line]

    @cached_property
    def table(self) -> "pd.DataFrame":
        """The rows as one tidy table: a column per varied field (its name behind "set "), times in s."""
        import pandas as pd

        flat = []
        for row in self.rows:
            plain = (str, int, float, bool)
            fields = {f"set {k}": v if isinstance(v, plain) else json.dumps(v) for k, v in row["fields"].items()}
            flat.append({**{k: v for k, v in row.items() if k != "fields"}, **fields})
        return pd.DataFrame(flat)

    @property
    def state(self) -> str:
        """RUNNING while any process works on it, FINISHED, INTERRUPTED (it can go on), EMPTY before the first line."""
        try:
            with open(self.directory / LOCK, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return RUNNING
        except OSError:
            pass  # nobody has worked on it yet, or its disk has no locks
        if not self.lines:
            return EMPTY
        return FINISHED if self.progress.get("text") == FINISHED else INTERRUPTED

    @property
    def progress(self) -> dict:
        """What it did last: done, total, text, eta_s, unix; {} before the first block."""
        try:
            return json.loads((self.directory / PROGRESS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}


def read_sweep(directory: str | Path) -> SweepRun:
    """Read a sweep: finished, running or cut off at any byte. Raises BadInput where there is none."""
    directory = Path(directory)
    try:
        meta = json.loads((directory / META).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput("sweep", str(directory), f"a sweep's folder (one that holds {META})") from None
    except ValueError:
        raise BadInput("sweep", str(directory / META), "valid JSON") from None
    if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
        raise BadInput("sweep schema", meta.get("schema") if isinstance(meta, dict) else None, str(SCHEMA))
    return SweepRun(directory, meta, read_rows(directory / LOG))
