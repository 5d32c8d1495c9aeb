"""A disk that takes no more: one line that names the file and what is kept, and nothing half-written."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from labkit import disk
from labkit.batch import run as batch
from labkit.engines import owner
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.measure import probe
from labkit.notebook.widgets import export
from labkit.records import Store
from labkit.report import html


@contextlib.contextmanager
def no_room(limit: int):
    """No file may grow beyond `limit` bytes, here and in children (Python ignores the signal that comes with it)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refused(folder: Path, call, limit: int = 20) -> str:
    """The line that `call` ends in, after a look that it leaves in `folder` exactly what was there."""
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}
    with pytest.raises(disk.NoRoom) as failed, no_room(limit):
        call()
    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}
    assert {p: t for p, t in after.items() if t} == before
    assert not list(folder.rglob("*.part"))
    line = str(failed.value)
    assert "\n" not in line and ("kept" in line or "as they were" in line) and str(folder) in line
    return line


def notebook(path: Path, *cells: str) -> Path:
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nb.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nb, path)
    return path


def test_text_and_documents(tmp_path):
    path = tmp_path / "a.json"
    disk.write_json(path, {"a": 1})
    refused(tmp_path, lambda: disk.write_json(path, {"a": "x" * 100}))
    refused(tmp_path, lambda: disk.write_text(tmp_path / "new.txt", "x" * 100))
    disk.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    disk.write_text(path, "old")
    with pytest.raises(ValueError), disk.whole(path) as part:
        part.write_text("half")
        raise ValueError
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_links_and_pipes_stay_what_they_are(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    disk.write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "text"
    disk.write_text("/dev/null", "text")
    assert not Path("/dev/null").is_file()
    code = "from labkit import disk; disk.write_text('/dev/stdout', 'text')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "text"


def test_appending_takes_back_what_does_not_fit(tmp_path):
    with open(tmp_path / "log", "ab", buffering=0) as file:
        disk.append(file, b"first\n")
        refused(tmp_path, lambda: disk.append(file, b"x" * 100))
        disk.append(file, b"second\n")
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_report(tmp_path):
    notebook(tmp_path / "n.ipynb", "x = 1")
    html.write(tmp_path)
    assert "report.html" in refused(tmp_path, lambda: html.write(tmp_path), 2000)


def test_report_into_a_folder_that_is_missing(tmp_path):
    source = notebook(tmp_path / "n.ipynb", "x = 1")
    with pytest.raises(BadInput, match="folder that exists"):
        html.write(source, tmp_path / "missing" / "x.html")


def test_exports_of_a_panel(tmp_path, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    experiment = SimpleNamespace(name="02_baseline", parameters=lambda: {"count": 4, "workload": "word-problems"})
    panel = SimpleNamespace(out_dir=tmp_path, experiment=experiment, static=lambda name: [], record=None)
    for one in (export.save_parameters, export.export_report):
        assert "02_baseline" in refused(tmp_path, lambda one=one: one(panel))


def test_kept_measurements(tmp_path):
    store, config = Store(tmp_path), EngineConfig()
    row = {"arm": "a", "repeat": 0, "index": 0, "status": "ok", "started_unix": 1.0, "latency_s": 1.0}
    store.add(config, {}, "1", [row])
    size = next(tmp_path.glob("*.jsonl")).stat().st_size
    line = refused(tmp_path, lambda: store.add(config, {}, "1", [row | {"repeat": 1}]), size + 10)
    assert "record of their run" in line
    assert len(store.get(config, {}, "1").rows) == 1


def test_what_others_are_told_of_running_engines(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path))
    owner.publish([])
    refused(owner.runtime_dir(), lambda: owner.publish([{"url": "http://127.0.0.1:30000"}]))


def test_a_figure_that_cannot_be_kept_is_a_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = SimpleNamespace(bytes_s=1e10)
    monkeypatch.setattr(probe, "_measure", lambda threads: found)
    monkeypatch.setattr(probe, "asdict", vars)
    (tmp_path / "labkit").write_text("no folder can be made below a file")
    assert probe.probe() is found
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "bandwidth-1" in said and "was measured" in said


def test_an_executed_notebook(tmp_path, monkeypatch):
    """The notebook keeps what was saved before the cell whose output does not fit; the run ends there."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # the kernel keeps a history there
    source = notebook(tmp_path / "99_big.ipynb", "x: int = 1", "print('y' * 9)", "print('z' * 600_000)")
    out = tmp_path / "out"
    with pytest.raises(disk.NoRoom, match=r"99_big\.ipynb: .*kept in records") as failed, no_room(300_000):
        batch.run([source], {}, out, say=lambda text: None)
    assert "\n" not in str(failed.value)
    left = nbformat.read(next(out.rglob("*.ipynb")), as_version=4)
    assert left.cells[1].outputs[0].text == "yyyyyyyyy\n" and not left.cells[2].outputs
    assert not list(out.rglob("*.part"))


def test_a_death_that_could_not_be_told_is_a_death(tmp_path):
    assert batch._late(tmp_path / "a.deaths") == []
    (tmp_path / "a.deaths").write_text("")
    assert "died" in batch._late(tmp_path / "a.deaths")[0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_command_whose_output_does_not_fit():
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-c", "import sys; from labkit.cli import main; sys.exit(main(['catalog']))"]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1
    assert (
        done.stderr.count("\n") == 1 and done.stderr.startswith("labkit catalog: ") and "No space left" in done.stderr
    )
