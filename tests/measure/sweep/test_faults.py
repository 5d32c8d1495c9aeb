"""What a night brings, each with the real thing: a full disk, a disk that may not be written, an engine without memory,
one that stands still, two sweeps of one folder. Nothing that was finished is lost, and the rest is measured later."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from labkit.measure.sweep import drive
from labkit.records.sweep import LOG, RUNNING, read_sweep

LOAD = {"workload": "repetitive", "count": 1, "repeats": 3, "warmup": 0, "output_tokens": 8}
GRID = {"fp8_lm_head": [False, True], "output_tokens": [8, 9]}


def begun(directory, sweep, **common):
    directory.mkdir(parents=True)
    drive.create({"common": {**LOAD, **common}, "sweep": sweep}, directory)
    return directory


@pytest.fixture
def sweep(tmp_path):
    """Starts `labkit sweep` with these arguments; whatever a test leaves running is ended."""
    started = []

    def start(*args, runtime="runtime"):
        env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / runtime)}
        argv = [sys.executable, "-m", "labkit.cli", "sweep", *map(str, args)]
        started.append(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for lab in started:
        lab.kill()
        lab.communicate(timeout=60)


def whole(sweep, *args):
    """Run a sweep to its end: (exit code, what it said last)."""
    lab = sweep(*args)
    _, err = lab.communicate(timeout=240)
    assert "Traceback" not in err, err[-2000:]
    return lab.returncode, err.splitlines()[-1] if err else ""


def until(lab, condition):
    end = time.monotonic() + 240
    while not (found := condition()):
        assert lab.poll() is None, lab.stderr.read()[-2000:]
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def mounted(where, options):
    """A file system of its own in memory; skips where this user may not mount one."""
    where.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
    if not shutil.which("mount") or subprocess.run(argv, capture_output=True, timeout=60).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=False, timeout=60)


def test_a_disk_that_may_not_be_written_is_one_line(tmp_path, sweep):
    params = tmp_path / "s.yaml"
    params.write_text(yaml.safe_dump({"common": LOAD, "sweep": {"grid": GRID}}))
    with mounted(tmp_path / "disk", "size=1m") as disk:
        begun(disk / "old", {"grid": GRID})
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=60)
        for args in ((params, "--out", disk), (params, "--out", disk / "new"), ("--resume", disk / "old")):
            code, said = whole(sweep, *args)
            assert code in (1, 2) and said.startswith("labkit sweep: ") and "Read-only" in said, said
        assert len(read_sweep(disk / "old").rows) == 4  # and it can still be read


@pytest.mark.parametrize("runtime", ["runtime", "of another machine"])
def test_a_second_process_on_one_folder_is_refused_and_the_first_goes_on(tmp_path, sweep, runtime):
    """By the machine's turn, and by the folder's own lock where the two do not share a machine."""
    folder = begun(tmp_path / "s", {"grid": GRID, "block": 1}, repeats=50)
    first = sweep("--resume", folder)
    until(first, lambda: read_sweep(folder).state == RUNNING)
    second = sweep("--resume", folder, "--no-wait", runtime=runtime)
    _, err = second.communicate(timeout=120)
    assert second.returncode in (1, 2) and "Traceback" not in err and "labkit sweep: " in err
    assert first.poll() is None


@pytest.mark.slow
def test_a_full_disk_costs_nothing_finished_and_with_room_again_it_goes_on(tmp_path, sweep):
    with mounted(tmp_path / "disk", "size=4m") as disk:
        folder = begun(disk / "s", {"grid": GRID, "block": 1})
        lab = sweep("--resume", folder)
        until(lab, lambda: any("block" in x for x in read_sweep(folder).lines))
        with contextlib.suppress(OSError), open(disk / "ballast", "wb", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * 4096)
        _, err = lab.communicate(timeout=120)
        last = err.splitlines()[-1]
        assert lab.returncode == 1 and "Traceback" not in err
        assert "No space left" in last and "kept" in last, last
        kept = (folder / LOG).read_bytes()
        assert kept.endswith(b"\n") and read_sweep(folder).rows
        (disk / "ballast").unlink()
        assert whole(sweep, "--resume", folder)[0] == 0
        assert (folder / LOG).read_bytes().startswith(kept)
        assert [r["status"] for r in read_sweep(folder).rows] == ["measured"] * 4


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prlimit"), reason="needs prlimit (util-linux)")
def test_an_engine_that_gets_no_memory_is_a_row_with_its_reason(tmp_path, sweep):
    poor = {"fp8_lm_head": True, "python": sys.executable, "command_prefix": ["prlimit", f"--as={300 << 20}"]}
    folder = begun(tmp_path / "s", {"list": [poor, {"moe_runner_backend": "jit"}]})
    assert whole(sweep, "--resume", folder)[0] == 0
    failed, measured = read_sweep(folder).rows
    assert (failed["status"], measured["status"]) == ("failed", "measured")
    assert failed["reason"] and "\n" not in failed["reason"] and "tpot_s" not in failed
    assert "emory" in failed["reason"] or "alloc" in failed["reason"] or "map" in failed["reason"], failed["reason"]


def engine_of(lab, word):
    """The lab's pocket engine with this word on its command line."""
    for child in psutil.Process(lab.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            if "labkit.pocket" in words and word in words:
                return child
    return None


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_an_engine_that_hangs_or_dies_is_a_row_and_the_others_are_measured(tmp_path, sweep, how):
    grid = {
        "list": [{"moe_runner_backend": "jit"}, {"fp8_lm_head": True}],
        "baseline": {"moe_runner_backend": "generic"},
    }
    folder = begun(tmp_path / "s", grid, timeout_s=1, repeats=12, output_tokens=64)
    lab = sweep("--resume", folder)

    def rows():
        log = folder / "blocks" / "r0-000" / "requests.jsonl"
        return log.exists() and log.read_text().count('"arm":"c001"') > 2

    until(lab, rows)
    engine = engine_of(lab, "jit")
    assert engine is not None
    before = (folder / "blocks" / "r0-000" / "requests.jsonl").read_bytes()
    os.kill(engine.pid, how)
    _, err = lab.communicate(timeout=280)
    assert lab.returncode == 0 and "Traceback" not in err, err[-2000:]
    bad, good = read_sweep(folder).rows
    assert (bad["status"], good["status"]) == ("failed", "measured"), bad
    assert ("silent" if how == signal.SIGSTOP else "signal 9") in bad["reason"], bad["reason"]
    assert (folder / "blocks" / "r0-000" / "requests.jsonl").read_bytes().startswith(before)
    assert psutil.wait_procs([engine], timeout=60)[1] == []
