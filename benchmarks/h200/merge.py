"""Several visits of one campaign to a machine become one record: python -m benchmarks.h200.merge

Each visit is what one call of `benchmarks.h200.campaign` left: its `--out` and its `--work` folder. Nothing is averaged
or left out. A later visit's starts, repeats and stops are numbered on, so that a start stays a start (`start` in a row
and in an arm's `starts`) and the visit it belongs to stays known (`call`, from 1).
"""

import argparse
import io
import json
import sys
import tarfile
from pathlib import Path

from labkit.engines.server_info import scrub
from labkit.errors import BadInput, LabError


def merge(visits: list[tuple[Path, Path]], out: Path) -> None:
    """visits: (out folder, work folder) in order of time. Writes one folder per load, profile.json and logs.tar.gz.

    Raises BadInput for visits with different loads or a folder without a record.
    """
    loads = [sorted(p.parent.name for p in record.glob("*/run.json")) for record, _ in visits]
    if not loads or not loads[0] or any(names != loads[0] for names in loads):
        raise BadInput("visits", str(loads), "folders of campaign records with the same loads")
    for load in loads[0]:
        meta, rows = _load([record / load for record, _ in visits])
        (out / load).mkdir(parents=True, exist_ok=True)
        (out / load / "run.json").write_text(json.dumps(meta, indent=1) + "\n")
        (out / load / "requests.jsonl").write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows))
    profiles, logs, first = {}, {}, 0
    for call, (record, work) in enumerate(visits, 1):
        found = json.loads((record / "profile.json").read_text()) if (record / "profile.json").exists() else {}
        profiles |= {_stop(label, first): told for label, told in found.items()}
        stops = sorted(p.parent for p in work.glob("*/engine-1.log"))
        logs |= {f"{_stop(s.name, first)}/engine-1.log": (s / "engine-1.log").read_text() for s in stops}
        if (work / "packages.txt").exists():
            logs[f"packages-call-{call}.txt"] = (work / "packages.txt").read_text()
        first += len(stops)
    (out / "profile.json").write_text(json.dumps(profiles, indent=1) + "\n")
    with tarfile.open(out / "logs.tar.gz", "w:gz") as tar:
        for name, text in logs.items():
            data = scrub(text).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _load(folders: list[Path]) -> tuple[dict, list[dict]]:
    """One load of all visits: the first one's run.json with the arms' starts of all, and every row."""
    merged, rows, start, repeat = {}, [], 0, 0
    for call, folder in enumerate(folders, 1):
        meta = json.loads((folder / "run.json").read_text())
        mine = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
        for arm in meta["arms"]:
            arm["starts"] = [{**s, "start": s["start"] + start, "call": call} for s in arm["starts"]]
        visit = {k: meta.get(k) for k in ("id", "created_utc", "finished_utc", "summary", "gpu")} | {"call": call}
        if not merged:
            merged = {**meta, "calls": [visit]}
        else:
            _join(merged, meta, visit)
        for row in mine:
            again = {"start": row["start"] + start, "call": call}
            again["repeat"] = row["repeat"] + repeat if row["repeat"] >= 0 else row["repeat"]
            rows.append({**row, **again})
        start = max((r["start"] for r in rows), default=-1) + 1
        repeat = max((r["repeat"] for r in rows), default=-1) + 1
    return merged, rows


def _join(merged: dict, meta: dict, visit: dict) -> None:
    arms = {a["name"]: a for a in merged["arms"]}
    for arm in meta["arms"]:
        if arm["name"] not in arms:
            merged["arms"].append(arm)
            continue
        if arm["engine"] != arms[arm["name"]]["engine"]:
            raise BadInput("visits", arm["name"], "an arm of the same configuration in every visit")
        arms[arm["name"]]["starts"] += arm["starts"]
    merged["calls"].append(visit)
    for name in ("environment_end", "finished_utc"):
        merged[name] = meta.get(name)


def _stop(label: str, first: int) -> str:
    """A stop's label `NN-server`, numbered on after `first` stops of earlier visits."""
    number, server = label.split("-", 1)
    return f"{int(number) + first:02d}-{server}"


def main(argv: list[str] | None = None) -> int:
    """Command line of the merge; see the module's first line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200.merge", description=__doc__.splitlines()[0])
    parser.add_argument("--visit", nargs=2, action="append", required=True, type=Path, metavar=("OUT", "WORK"))
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args(argv)
    try:
        merge([tuple(v) for v in args.visit], args.out)
    except LabError as e:
        print(e, file=sys.stderr)
        return 2 if isinstance(e, BadInput) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
