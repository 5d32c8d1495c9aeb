"""A block's record as it comes from a worker: checked, completed by where it was measured, and put in place whole."""

import json
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from labkit import disk
from labkit.errors import LabError
from labkit.measure.sweep.block import Task
from labkit.records import read_run, schema
from labkit.records.reader import parse_rows
from labkit.records.sweep import BLOCKS


class NoRecord(LabError):
    """What a worker sent is no record."""


_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
CUT = "cut"  # folder of records that were begun on another machine, and are begun anew on one


def whole(task: Task, directory: Path) -> bool:
    """Whether the record of this block is there and was finished: a kill between it and its commit costs nothing. One
    that was begun elsewhere is put aside, because a block stays on one machine."""
    place = directory / BLOCKS / task.name
    if not place.exists():
        return False
    if (place / schema.META).exists() and read_run(place).meta["status"] != "running":
        return True
    with disk.told(place, "the sweep is kept"):
        (directory / CUT).mkdir(exist_ok=True)
        place.rename(directory / CUT / f"{task.name}-{time.time_ns()}")
    return False


def keep(task: Task, directory: Path, files: object, about: dict) -> None:
    """Write a record. files: name -> text; about: worker, attempts. Raises NoRoom, NoRecord for what is none."""
    if not isinstance(files, Mapping) or not all(_NAME.fullmatch(n) and isinstance(t, str) for n, t in files.items()):
        raise NoRecord("it sent no record")
    try:
        meta = json.loads(files[schema.META])
        if not isinstance(meta, dict) or meta["schema"] != schema.SCHEMA or not isinstance(meta["failed"], dict):
            raise ValueError
    except (ValueError, KeyError):
        raise NoRecord(f"it sent no {schema.META} that this lab can read") from None
    log = files.get(schema.LOG, "")
    if len(parse_rows(log.encode())) != log.count("\n"):
        raise NoRecord(f"it sent a {schema.LOG} that cannot be read")
    _put(task, directory, {**files, schema.META: json.dumps(meta | about, indent=1) + "\n"})


def fail(task: Task, directory: Path, why: str, about: dict, facts: dict) -> None:
    """A record of a block that could not be measured, so that each of its configurations is a row with the reason."""
    meta = {
        "schema": schema.SCHEMA,
        "id": f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{task.name}",
        "label": f"sweep block {task.name}",
        "created_utc": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "status": "failed",
        "error": why,
        "parameters": task.baselines[0].params.as_dict(),
        "arms": [],
        "seeds": {"seed": task.seed},
        "environment": facts.get("environment", {}),
        "git": None,
        "summary": {},
        "failed": {a.name: why for a in task.arms},
    }
    _put(task, directory, {schema.META: json.dumps(meta | about, indent=1) + "\n", schema.LOG: ""})


def _put(task: Task, directory: Path, files: Mapping[str, str]) -> None:
    place = directory / BLOCKS / task.name
    part = place.with_name(f"{task.name}.part")
    with disk.told(place, "finished blocks are kept"):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, text in files.items():
            disk.write_text(part / name, text, "finished blocks are kept")
        part.rename(place)
