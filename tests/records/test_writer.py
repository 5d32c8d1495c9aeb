"""A record survives a kill at any byte, is never overwritten and holds no secret."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.disk import NoRoom
from labkit.errors import BadInput, LabError
from labkit.records import RunWriter, read_run, schema
from labkit.records.reader import parse_rows, to_frame
from labkit.records.writer import new_directory


def row(index=0, **over):
    return {
        "arm": "a",
        "repeat": 0,
        "index": index,
        "status": "ok",
        "tpot_s": 0.001,
        "output_tokens": 8,
        "chunk_times": [0.1, 0.2],
        "histogram": None,
    } | over


def test_a_finished_run(tmp_path):
    with RunWriter(tmp_path / "r", {"seed": 4, "workload": "code"}) as writer:
        writer.add_arm("a", requested={"engine": "pocket"}, server_info={"version": "1", "api_key": "sk-planted"})
        for i in range(3):
            writer.append(row(i))
    meta = json.loads((tmp_path / "r" / "run.json").read_text())
    assert (meta["schema"], meta["status"], meta["seeds"]) == (1, "finished", {"seed": 4})
    assert meta["parameters"] == {"seed": 4, "workload": "code"}
    assert meta["arms"] == [
        {"name": "a", "engine": {"engine": "pocket"}, "server_info": {"version": "1"}, "launch": None}
    ]
    assert meta["environment"]["python"].count(".") == 2 and meta["environment"]["cpu"]
    assert "load_average" in meta["environment_end"] and meta["finished_utc"] >= meta["created_utc"]
    run = read_run(tmp_path / "r")
    assert [r["index"] for r in run.rows] == [0, 1, 2] and run.arms == ["a"]
    frame = run.requests
    assert set(schema.COLUMNS) <= set(frame.columns) and frame["tpot_s"].dtype == "float64"
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == ["requests.jsonl", "run.json"]


def test_a_running_run_can_be_read(tmp_path):
    writer = RunWriter(tmp_path / "r", {})
    writer.append(row())
    run = read_run(tmp_path / "r")
    assert run.meta["status"] == "running" and len(run.requests) == 1


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_folder_is_refused_by_name(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="out_dir.*file"):
        new_directory(tmp_path / place, "run")


def test_failures_are_recorded(tmp_path):
    with pytest.raises(LabError), RunWriter(tmp_path / "a", {}) as writer:
        writer.append(row())
        raise LabError("engine gone")
    meta = read_run(tmp_path / "a").meta
    assert (meta["status"], meta["error"]) == ("failed", "engine gone")
    with pytest.raises(KeyboardInterrupt), RunWriter(tmp_path / "b", {}):
        raise KeyboardInterrupt
    assert read_run(tmp_path / "b").meta["status"] == "interrupted"


def test_a_run_is_never_overwritten(tmp_path):
    RunWriter(tmp_path / "r", {}).finish()
    with pytest.raises(BadInput, match="never overwritten"):
        RunWriter(tmp_path / "r", {})


@pytest.mark.parametrize("bad", [{"tpot_s": math.nan}, {"tpot_s": math.inf}, {"x": object()}])
def test_a_row_that_cannot_be_kept_is_an_error_not_half_a_line(tmp_path, bad):
    writer = RunWriter(tmp_path / "r", {})
    writer.append(row(0))
    with pytest.raises((ValueError, TypeError)):
        writer.append(row(1, **bad))
    writer.append(row(2))
    assert [r["index"] for r in read_run(tmp_path / "r").rows] == [0, 2]


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=25)
@given(st.lists(st.tuples(TEXT, st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3)), max_size=5))
def test_cut_at_every_byte(contents):
    """Whatever byte a kill comes at: every row whose newline was written is there, unchanged, and nothing else is."""
    rows = [row(i, error=text, chunk_times=times) for i, (text, times) in enumerate(contents)]
    lines = [json.dumps(r).encode() + b"\n" for r in rows]
    whole = b"".join(lines)
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    for cut in range(len(whole) + 1):
        assert parse_rows(whole[:cut]) == rows[: sum(e <= cut for e in ends)]
    assert len(to_frame(parse_rows(whole))) == len(rows)


def test_the_writer_writes_the_lines_that_were_cut_above(tmp_path):
    writer = RunWriter(tmp_path / "r", {})
    for i in range(3):
        writer.append(row(i, error="ä\n\u2028"))
    data = (tmp_path / "r" / schema.LOG).read_bytes()
    assert data.count(b"\n") == 3 and data.endswith(b"\n")
    assert [json.loads(line)["error"] for line in data.splitlines()] == ["ä\n\u2028"] * 3


WRITE = """
    import sys
    from labkit.records import RunWriter
    writer = RunWriter(sys.argv[1], {"seed": 1})
    n = 0
    while True:
        writer.append({"arm": "a", "repeat": 0, "index": n, "status": "ok", "pad": "x" * 5000})
        n += 1
        print(n, flush=True)
        writer.meta["summary"] = {"n": n, "pad": "y" * 20000}
        writer.save()
"""


def test_kill_9_in_the_middle_of_writing(tmp_path):
    """Every row that was reported as kept is there, and run.json is whole."""
    p = subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITE), str(tmp_path / "r")], stdout=subprocess.PIPE)
    for _ in range(40):
        p.stdout.readline()
    os.kill(p.pid, signal.SIGKILL)
    told = [int(n) for n in p.stdout.read().split()] or [40]
    run = read_run(tmp_path / "r")
    assert [r["index"] for r in run.rows][: told[-1]] == list(range(told[-1]))
    assert run.meta["summary"]["n"] in (told[-1] - 1, told[-1])


def test_unreadable_runs_are_refused_with_a_reason(tmp_path):
    with pytest.raises(BadInput, match="run.json"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(BadInput, match="a run directory"):
        read_run(tmp_path / "run.json")
    with pytest.raises(BadInput, match="valid JSON"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(BadInput, match="99.*at most 1"):
        read_run(tmp_path)


def test_no_machine_paths_in_the_description(tmp_path):
    from pathlib import Path

    import labkit

    root = Path(labkit.__file__).parents[1]
    with RunWriter(tmp_path / "r", {}) as writer:
        writer.add_arm(
            "a",
            requested={"model": str(Path.home() / "m")},
            server_info={"model_path": str(root / "w")},
            launch={"argv": [str(root / ".venv/bin/python"), "-m", "x"]},
        )
    arm = read_run(tmp_path / "r").meta["arms"][0]
    assert arm["launch"]["argv"][0] == "./.venv/bin/python" and arm["server_info"]["model_path"] == "./w"
    assert arm["engine"]["model"] == "~/m"


# --- a disk that takes no more


def _fill(directory, count=400):
    """Rows until the disk is full; one of them is some 2 KB."""
    with RunWriter(directory, {"seed": 1}) as writer:
        for i in range(count):
            writer.append(row(i, text="x" * 2000))


def _what_is_left(directory, error) -> None:
    assert "\n" not in str(error) and "rows are kept" in str(error) and "Make room" in str(error)
    rows = read_run(directory).rows
    assert len(rows) >= 3 and [r["index"] for r in rows] == list(range(len(rows)))
    assert f"{len(rows)} rows" in str(error)
    assert (directory / "requests.jsonl").read_bytes().endswith(b"\n")  # no half row
    meta = read_run(directory).meta
    assert meta["status"] == "failed" and "rows are kept" in meta["error"]
    assert not list(directory.glob("*.part"))


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 96 KB."""
    where = tmp_path / "tiny"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(where)], capture_output=True)
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    yield where
    subprocess.run(["umount", str(where)], check=False, timeout=60)


def test_a_full_disk_is_one_line_and_keeps_the_rows(tiny_disk):
    with pytest.raises(NoRoom) as failed:
        _fill(tiny_disk / "r")
    _what_is_left(tiny_disk / "r", failed.value)


def test_a_file_that_may_not_grow_is_one_line_and_keeps_the_rows(tmp_path):
    """The same where nobody may mount: a limit of the process, in one of its own."""
    code = textwrap.dedent(f"""
        import resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_writer import _fill
        from labkit.errors import LabError
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
        try:
            _fill(__import__("pathlib").Path({str(tmp_path / "r")!r}))
        except LabError as e:
            print(e)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0, done.stderr[-1500:]
    _what_is_left(tmp_path / "r", done.stdout.strip())
