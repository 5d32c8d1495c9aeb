"""Two visits become one record: nothing lost, starts and repeats numbered on."""

import json

import pytest

from benchmarks.h200 import merge
from labkit.errors import BadInput


def _visit(folder, stop, *, load="1k", engine="humming"):
    run = folder / "out" / load
    run.mkdir(parents=True)
    start = {"start": 0, "start_seconds": 9.0}
    arms = [{"name": "mtp", "engine": {"moe_runner_backend": engine}, "starts": [start]}]
    (run / "run.json").write_text(json.dumps({"id": folder.name, "label": "campaign 1k", "arms": arms}))
    rows = [{"arm": "mtp", "repeat": r, "start": 0} for r in (-1, 0, 1)]
    (run / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "out" / "profile.json").write_text(json.dumps({stop: {"steps": 12}}))
    for name in {stop, "00-fa3"}:
        (folder / "work" / name).mkdir(parents=True)
        (folder / "work" / name / "engine-1.log").write_text(f"{folder.name} api_key='SECRET-KEY'\n")
    return folder / "out", folder / "work"


def test_both_visits_are_there_and_keep_apart(tmp_path):
    out = tmp_path / "merged"
    merge.merge([_visit(tmp_path / "a", "01-mtp"), _visit(tmp_path / "b", "01-mtp")], out)
    meta = json.loads((out / "1k" / "run.json").read_text())
    assert [(s["start"], s["call"]) for s in meta["arms"][0]["starts"]] == [(0, 1), (1, 2)]
    assert [c["id"] for c in meta["calls"]] == ["a", "b"]
    rows = [json.loads(line) for line in (out / "1k" / "requests.jsonl").read_text().splitlines()]
    assert [(r["call"], r["start"], r["repeat"]) for r in rows] == [
        *((1, 0, r) for r in (-1, 0, 1)),
        *((2, 1, r) for r in (-1, 2, 3)),
    ]
    assert set(json.loads((out / "profile.json").read_text())) == {"01-mtp", "03-mtp"}
    import tarfile

    with tarfile.open(out / "logs.tar.gz") as tar:
        logs = {m.name: tar.extractfile(m).read().decode() for m in tar.getmembers()}
    assert set(logs) == {f"{n}/engine-1.log" for n in ("00-fa3", "01-mtp", "02-fa3", "03-mtp")}
    assert not any("SECRET-KEY" in text for text in logs.values())


def test_visits_that_do_not_belong_together_are_refused(tmp_path):
    one = _visit(tmp_path / "a", "01-mtp")
    with pytest.raises(BadInput, match="same configuration"):
        merge.merge([one, _visit(tmp_path / "b", "01-mtp", engine="triton")], tmp_path / "x")
    with pytest.raises(BadInput, match="same loads"):
        merge.merge([one, _visit(tmp_path / "c", "01-mtp", load="32k")], tmp_path / "y")
    assert merge.main(["--visit", str(tmp_path), str(tmp_path), "--out", str(tmp_path / "z")]) == 2
