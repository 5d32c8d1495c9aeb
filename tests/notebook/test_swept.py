"""10: a sweep's notebook, headless and live, however the sweep stands. The folder is read; nothing is measured."""

import fcntl
import json
import time
from types import SimpleNamespace

import pytest
from sweeps import DOCUMENT, finished, made

from labkit.errors import BadInput
from labkit.measure.sweep import points
from labkit.notebook.swept import Swept
from labkit.notebook.widgets import swept as widgets
from labkit.records.sweep import EMPTY, FINISHED, INTERRUPTED, LOCK, LOG, RUNNING, read_sweep

FIGURES = 6


@pytest.fixture
def shown(monkeypatch):
    """What cells put on the page: MIME data."""
    found = []
    monkeypatch.setattr("IPython.display.display", lambda data, **how: found.append(data))
    monkeypatch.setenv("LABKIT_STATIC", "0")
    return found


def cells(lab):
    for cell in ("run", "findings", "configs", "summary"):
        getattr(lab, cell)()


def failed_and_cut(directory):
    """Two blocks measured, one configuration failed, then the process was killed in mid-line."""
    lines = finished(points.read(DOCUMENT))[:3]
    lines.append(
        {"config": "c004", "status": "failed", "reason": "did not start: <b>out of memory</b>", "blocks": ["b"]}
    )
    made(directory, lines=lines, ended=False)
    with open(directory / LOG, "a") as log:
        log.write('{"config": "c005", "sta')
    return directory


@pytest.mark.parametrize(
    ("make", "state", "numbers"),
    [
        (made, FINISHED, 9),
        (failed_and_cut, INTERRUPTED, 3),
        (lambda d: made(d, lines=[], ended=False), EMPTY, 0),
    ],
    ids=["finished", "interrupted, one failed", "empty"],
)
def test_every_cell_works_however_the_sweep_stands(tmp_path, shown, make, state, numbers):
    folder = make(tmp_path / "out" / "sweep")
    assert read_sweep(folder).state == state
    lab = Swept(out_dir=str(tmp_path / "out"), live=False)
    assert lab.folder == folder
    cells(lab)
    assert sum("application/vnd.plotly.v1+json" in d for d in shown) == FIGURES
    text = shown[-1]["text/plain"]
    assert state in text and (numbers == 0 or "c001" in text)
    assert len(read_sweep(folder).table) == 9
    markup = "".join(d.get("text/html", "") for d in shown)
    assert "<b>out of memory</b>" not in markup
    if state == INTERRUPTED:
        assert "&lt;b&gt;out of memory" in markup and "--resume" in text and "out of memory" in text
    if state == FINISHED:
        assert "winner" not in text and "no best" in text and "x1.20" in text and "-9.0%" in text


def test_without_any_sweep_the_notebook_says_how_to_make_one(tmp_path, shown):
    cells(Swept(out_dir=str(tmp_path), live=False))
    assert "labkit sweep" in shown[0]["text/plain"] and str(tmp_path) in shown[0]["text/plain"]


def test_a_folder_that_is_no_sweep_is_refused_at_once(tmp_path):
    with pytest.raises(BadInput, match=r"sweep\.json"):
        Swept(folder=str(tmp_path), live=False)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_STATIC", "0")
    monkeypatch.setattr(widgets, "EVERY_S", 0.02)
    return Swept(
        folder=str(made(tmp_path / "out" / "s", lines=[], ended=False)), out_dir=str(tmp_path / "out"), live=True
    )


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_figures_follow_a_sweep_of_another_holder_and_stop_when_it_ends(lab, monkeypatch):
    lines = finished(points.read(DOCUMENT))
    with open(lab.folder / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watcher = widgets.Watcher(lab)
        told = []
        monkeypatch.setattr("IPython.display.display", lambda *what, **how: SimpleNamespace(update=told_of(told)))
        lab.summary()
        watcher.follow()
        assert lab.read().state == RUNNING and watcher.thread.is_alive()
        assert "No configuration measured" in json.dumps(watcher.board.figures[0])
        with open(lab.folder / LOG, "a") as log:
            log.write("".join(json.dumps(x) + "\n" for x in lines[:4]))
        until(lambda: "4 configurations" in watcher.board.figures[0]["layout"]["meta"]["alt"])
        assert watcher.thread.is_alive() and len(watcher.menu.options) == 10
    watcher.thread.join(60)
    assert not watcher.thread.is_alive() and INTERRUPTED in watcher.status.value
    assert INTERRUPTED in told[-1] and "c004" in told[-1]  # tables and text follow too


def told_of(told):
    return lambda data, **how: told.append(data["text/plain"])


def test_a_click_shows_command_record_and_params_file_which_can_be_written(lab):
    (lab.folder / LOG).write_text("".join(json.dumps(x) + "\n" for x in finished(points.read(DOCUMENT))))
    watcher = widgets.Watcher(lab)
    watcher.follow()
    assert watcher.thread is None and watcher.save.disabled
    drawn = [t["customdata"] for f in watcher.board.figures for t in f["data"] if t.get("customdata")]
    assert len(drawn) >= 4 and any("c002" in names for names in drawn)
    watcher.board._asked(None, {"kind": "click", "point": "c002"}, [])
    for word in ("c002", "labkit.pocket --port", "blocks/r0-000", "prompt_tokens: 256"):
        assert word in watcher.chosen.value
    watcher.save.click()
    (path,) = lab.out_dir.glob("c002-params-*.yaml")
    assert str(path) in watcher.note.value
    watcher.board._asked(None, {"kind": "click", "point": "c999"}, [])
    assert watcher.menu.value == "c002"


def test_a_folder_that_was_moved_away_ends_the_polling_with_a_line(lab, tmp_path):
    with open(lab.folder / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watcher = widgets.Watcher(lab)
        watcher.follow()
        lab.folder.rename(tmp_path / "elsewhere")
        watcher.thread.join(60)
    assert not watcher.thread.is_alive() and "alert" in watcher.status.value
