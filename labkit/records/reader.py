"""Read a run back: finished, still running, or cut off at any byte."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import BadInput
from labkit.records import schema

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Run:
    """meta: run.json as a dict. rows: complete rows, in order. requests: the same as a DataFrame (all COLUMNS)."""

    directory: Path
    meta: dict
    rows: list[dict]

    @cached_property
    def requests(self) -> "pd.DataFrame":
        return to_frame(self.rows)

    @property
    def arms(self) -> list[str]:
        """Names of the arms, in the order described in run.json, then as met in the rows."""
        named = [a["name"] for a in self.meta.get("arms", [])]
        return list(dict.fromkeys(named + [r["arm"] for r in self.rows]))

    def arm(self, name: str) -> list[dict]:
        """Rows of one arm, warm-up included. Raises BadInput for an unknown name."""
        if name not in self.arms:
            raise BadInput("arm", name, "one of " + ", ".join(self.arms))
        return [r for r in self.rows if r["arm"] == name]

    def described(self, name: str) -> dict:
        """What run.json says about an arm (engine, server_info, launch); {} when it says nothing."""
        return next((a for a in self.meta.get("arms", []) if a["name"] == name), {})


def read_run(directory: str | Path) -> Run:
    """Read a run directory. Raises BadInput when there is no run or its schema is newer than this lab."""
    directory = Path(directory)
    path = directory / schema.META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput("run", str(directory), f"a run directory (one that holds {schema.META})") from None
    except ValueError:
        raise BadInput("run", str(path), "valid JSON") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("schema"), int) or meta["schema"] > schema.SCHEMA:
        raise BadInput("run schema", meta.get("schema") if isinstance(meta, dict) else None, f"at most {schema.SCHEMA}")
    return Run(directory, meta, read_rows(directory / schema.LOG))


def read_rows(path: Path) -> list[dict]:
    """Complete rows of an append-only log; [] when it is missing."""
    try:
        return parse_rows(Path(path).read_bytes())
    except FileNotFoundError:
        return []


def parse_rows(data: bytes) -> list[dict]:
    """Rows of a log's bytes; a last line without its newline, and a line cut by a kill, are dropped."""
    rows = []
    for line in data.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def to_frame(rows: list[dict]) -> "pd.DataFrame":
    """Rows as a DataFrame with every column of the schema (and any further ones), numbers as numbers."""
    import pandas as pd

    names = list(schema.COLUMNS) + sorted({k for r in rows for k in r} - set(schema.COLUMNS))
    return pd.DataFrame({n: pd.Series([r.get(n) for r in rows], dtype=_dtype(n, rows)) for n in names})


def _dtype(name: str, rows: list[dict]) -> str:
    values = [r.get(name) for r in rows if r.get(name) is not None]
    if not values or any(isinstance(v, (list, dict, str)) for v in values):
        return "object"
    if all(isinstance(v, bool) for v in values):
        return "object" if len(values) < len(rows) else "bool"
    whole = all(isinstance(v, int) for v in values) and len(values) == len(rows)
    return "int64" if whole else "float64"
