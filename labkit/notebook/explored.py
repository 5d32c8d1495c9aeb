"""Every setting that was ever measured on this machine, whatever its load: one row each, read from the records.

Numbers of a row come from all records in which it ran beside the same reference, paired pass by pass: c and S are never
taken between two runs. A name that a reader gives is kept beside the records.
"""

import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from labkit import disk
from labkit.errors import BadInput, LabError
from labkit.evidence import Evidence
from labkit.measure.results import Result, cost, results_of, speedup, varies
from labkit.notebook import render
from labkit.params import load_params
from labkit.records import environment, read_run

NAMES = "names.json"  # what readers called their settings, by key
MACHINE = ("cpu", "memory_bytes", "gpus")  # of an environment: the same machine where they are equal
ASIDE = ("warnings", "engine", "other settings", "records", "newest record")  # of a table that is only read
SHOWN = 200  # rows of it
PLOTTED = ("a", "c", "S", "steps")
APART = ("engine", "model", "speculative")  # fields of a configuration that have a column of their own, or none


@dataclass
class Explored:
    """One setting. result: all of its rows that count; base: its reference in the same passes, None where it ran
    without one. records: the runs it was measured in, oldest first. key names it for good."""

    result: Result
    base: Result | None
    records: list[str] = field(default_factory=list)
    given: str = ""

    @property
    def key(self) -> str:
        return hashlib.sha256(self.result.arm.setting.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        return self.given or self.result.name

    @functools.cached_property
    def cost(self) -> Evidence | None:
        """c, None where this does not draft over a reference that does not."""
        if self.base is None or self.base.accept is not None or self.result.accept is None or varies(self.result):
            return None
        return cost(self.result, self.base)

    @functools.cached_property
    def speedup(self) -> Evidence | None:
        """S over its reference, None where it ran without one."""
        return None if self.base is None else speedup(self.result, self.base)

    def columns(self) -> dict[str, object]:
        """As a table shows it: plain values, None where there is none. Times in ms."""
        r, config = self.result, self.result.arm.config
        spec, load = config.speculative, r.arm.load
        tpot, c, s = r.tpot.to("ms"), self.cost, self.speedup
        rest = {k: v for k, v in config.given().items() if k not in APART}
        return {
            "name": self.name,
            "load": load["workload"],
            "TPOT, ms": round(tpot.value, 4),
            "low": tpot.low and round(tpot.low, 4),
            "high": tpot.high and round(tpot.high, 4),
            "a": r.accept and round(r.accept.value, 3),
            "c": c and round(c.value, 3),
            "S": s and round(s.value, 3),
            "over": self.base.name if self.base else "",
            "steps": spec and spec.steps,
            "topk": spec and spec.topk,
            "verified": spec and spec.draft_tokens,
            "tokens out": load.get("output_tokens"),
            "context": r.context,
            "requests": r.estimates.requests,
            "warnings": len(r.warnings),
            "engine": config.engine,
            "other settings": ", ".join(f"{k}={_short(v)}" for k, v in sorted(rest.items())),
            "last measured": _when(r),
            "records": len(self.records),
            "newest record": self.records[-1],
        }

    def parameters(self) -> dict:
        """A params document that measures this setting, and its reference where it has one, again."""
        arms = [{"name": "reference", "set": {}}] if self.base is not None else []
        engine = (self.base or self.result).arm.config.given()
        mine = self.result.arm.config.given()
        arm = {"name": "setting", "set": {k: v for k, v in mine.items() if engine.get(k) != v}}
        if self.result.accept is not None and self.base is not None:
            arm["expect"] = "a > c"
        load = {k: v for k, v in self.result.arm.load.items() if v is not None}
        return {"common": {"engine": engine, "arms": [*arms, arm], **load}}


class Shelf:
    """All records below a folder, read once each: a record that has ended does not change."""

    def __init__(self, out_dir: str | Path):
        self.out_dir = Path(out_dir)
        self._read: dict[Path, tuple[tuple, list]] = {}
        self._pools: dict[str, tuple[tuple, Explored]] = {}
        self.unreadable: list[str] = []

    def settings(self) -> list[Explored]:
        """Every setting with at least one request that counts, newest first."""
        self.unreadable, names = [], self.names()
        found: dict[str, list[tuple[str, Result, Result | None]]] = {}
        for path in (*self.out_dir.glob("*/run.json"), *self.out_dir.glob("*/records/*/run.json")):
            for run, result, base in self._of(path):
                found.setdefault(result.arm.setting, []).append((run, result, base))
        out = [self._pooled(name, seen) for name, seen in found.items()]
        for one in out:
            one.given = names.get(one.key, "")
        return sorted(out, key=lambda e: -_ended(e.result))

    def _pooled(self, setting: str, seen: list[tuple[str, Result, Result | None]]) -> Explored:
        """As it was, where no record of it has changed: its intervals are not drawn again."""
        stamp = tuple((run, len(r.rows), b and len(b.rows)) for run, r, b in seen)
        if self._pools.get(setting, (None, None))[0] != stamp:
            self._pools[setting] = stamp, _pooled(sorted(seen, key=lambda s: _ended(s[1])))
        return self._pools[setting][1]

    def names(self) -> dict[str, str]:
        """What settings were called, by key."""
        try:
            return json.loads((self.out_dir / NAMES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def name(self, settings: list[Explored], name: str) -> None:
        """Call these settings by a name; an empty one takes it back. Raises BadInput for none, or too long a one."""
        if not settings:
            raise BadInput("tick", 0, "at least one ticked row")
        if len(name) > 60 or not name.isprintable():
            raise BadInput("name", name, "at most 60 printable characters")
        mine = {e.key: f"{name} {i}" if len(settings) > 1 and name else name for i, e in enumerate(settings, start=1)}
        kept = {k: v for k, v in {**self.names(), **mine}.items() if v}
        disk.folder(self.out_dir)
        disk.write_json(self.out_dir / NAMES, kept)

    def _of(self, path: Path) -> list[tuple[str, Result, Result | None]]:
        stamp = tuple((p.stat().st_mtime_ns, p.stat().st_size) for p in path.parent.iterdir() if p.suffix in _KEPT)
        if self._read.get(path, ((), []))[0] != stamp:
            try:
                run = read_run(path.parent)
                here = {k: run.meta["environment"].get(k) for k in MACHINE}
                results = results_of(run) if here == _here() else {}
                before = {a["name"]: a.get("before") for a in run.meta["arms"]}
                seen = [(run.meta["id"], r, results.get(before.get(n))) for n, r in results.items()]
            except (LabError, KeyError) as e:
                self.unreadable.append(f"{path.parent.name}: {e}")
                seen = []
            self._read[path] = stamp, seen
        return self._read[path][1]


def plotted(settings: list[Explored]) -> list[dict[str, object]]:
    """Columns of the settings that have all numbers of a figure of draft settings."""
    rows = [e.columns() for e in settings]
    return [r for r in rows if all(r[n] is not None for n in PLOTTED)]


_KEPT = (".json", ".jsonl")


def as_outputs(settings: list[Explored]) -> tuple[dict, dict]:
    """The newest of these settings as a plain table, as MIME bundle: for a page without a kernel."""
    import pandas as pd

    shown = [{k: v for k, v in e.columns().items() if k not in ASIDE} for e in settings[:SHOWN]]
    frame = pd.DataFrame(shown).astype(object)
    frame = frame.where(frame.notna(), "")
    more = f", the newest {SHOWN} of them" if len(settings) > SHOWN else ""
    head = f"Settings measured on this machine, all loads: {len(settings)}{more}"
    table = frame.to_html(index=False, classes="labkit-table", border=0)
    style = "<div style='overflow-x:auto'>"
    return {
        "text/html": f"{render.STYLE}{style}{render.note(head)}{table}</div>",
        "text/plain": f"{head}\n\n{frame.to_string(index=False)}",
    }, {}


def save_table(folder: Path, settings: list[Explored]) -> Path:
    """Write these settings as CSV, every column, and return the path."""
    import pandas as pd

    path = disk.fresh(folder, "settings", ".csv")
    disk.write_text(path, pd.DataFrame([e.columns() for e in settings]).to_csv(index=False), "records are kept")
    return path


def save_params(folder: Path, one: Explored) -> Path:
    """Write a params file for `labkit ladder -f FILE` and return its path. Raises BadInput where it could not be read
    again."""
    document = one.parameters()
    load_params(document).ladder()
    path = disk.fresh(folder, "setting", ".yaml")
    head = f"# {one.name}, as measured in {one.records[-1]}. To measure it again: labkit ladder -f {path.name}\n"
    disk.write_text(path, head + yaml.safe_dump(document, sort_keys=False), "records are kept")
    return path


@functools.cache
def _here() -> dict:
    found = environment.machine()
    return {k: found[k] for k in MACHINE}


def _pooled(seen: list[tuple[str, Result, Result | None]]) -> Explored:
    """One setting from all of its records, oldest first: those that share the newest one's reference."""
    _, newest, base = seen[-1]
    same = [s for s in seen if (s[2] and s[2].arm.setting) == (base and base.arm.setting)]
    rows = [row for _, r, _ in same for row in r.rows]
    result = Result(newest.arm, rows, newest.info, newest.start_s, earlier=True)
    if base is not None:
        base = Result(base.arm, [row for *_, b in same for row in b.rows], base.info, earlier=True)
    return Explored(result, base, [run for run, *_ in seen])


def _ended(r: Result) -> float:
    return max(row["started_unix"] + (row.get("latency_s") or 0) for row in r.rows)


def _when(r: Result) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(_ended(r)).isoformat(sep=" ", timespec="seconds")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."
