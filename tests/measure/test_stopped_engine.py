"""An engine that stands still in mid-stream, through a whole command: one line, rows kept, nothing left running."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from labkit.records import read_run

SOON_S = 240.0  # the limits of this run sum up to a fraction of it


def _until(condition, lab: subprocess.Popen):
    end = time.monotonic() + SOON_S
    while time.monotonic() < end and lab.poll() is None:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("never happened")


def _engine(lab: subprocess.Popen) -> psutil.Process | None:
    for child in psutil.Process(lab.pid).children(recursive=True):
        words = child.cmdline()
        if "labkit.pocket" in words:
            return child
    return None


def _gone(process: psutil.Process) -> bool:
    try:
        process.wait(SOON_S)
    except psutil.TimeoutExpired:
        return False
    return True


@pytest.mark.slow  # half a minute of waiting for limits
def test_an_engine_that_was_stopped_ends_the_run_in_one_line(tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("timeout_s: 2\n")
    flags = ["-f", str(params), "--arms", "baseline", "--count", "2", "--repeats", "200", "--output-tokens", "192"]
    env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / "runtime")}
    argv = [sys.executable, "-m", "labkit.cli", "ladder", *flags, "--out", str(tmp_path)]
    lab = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:

        def rows():
            found = list(tmp_path.glob("*ladder*/run.json"))
            measured = [r for r in read_run(found[0].parent).rows if r["status"] == "ok"] if found else []
            return measured if len(measured) >= 5 else None

        before = _until(rows, lab)
        family = psutil.Process(lab.pid).children(recursive=True)
        os.kill(_engine(lab).pid, signal.SIGSTOP)
        _, said = lab.communicate(timeout=SOON_S)
        assert lab.returncode == 1, said
        assert "Traceback" not in said
        last = said.splitlines()[-1]
        assert last.startswith("labkit ladder: ") and "requests in a row" in last and "silent for" in last
        assert all(_gone(p) for p in family)
        run = read_run(next(tmp_path.glob("*ladder*")))
        kept = [r for r in run.rows if r["status"] == "ok"]
        assert kept[: len(before)] == before
        failed = run.rows[len(kept) + sum(r["status"] == "warmup" for r in run.rows) :]
        assert [r["status"] for r in failed] == ["error"] * 3
        assert run.meta["status"] == "failed" and "requests in a row" in run.meta["error"]
    finally:
        lab.kill()
        lab.wait(60)
        lab.stderr.close()
