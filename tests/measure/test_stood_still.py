"""A laptop that is closed in mid-request, and a clock that is set: with real processes, a real engine, real signals."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from labkit.measure import estimates
from labkit.records import read_run

DAY_S = 86400
# Of the calls that Python asks the time with, one clock is a day off as soon as a file is there.
JUMP = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
  int r = syscall(SYS_clock_gettime, id, t);
  if (!r && id == atoi(getenv("JUMP_CLOCK")) && !access(getenv("JUMP_FILE"), F_OK)) t->tv_sec += atol(getenv("JUMP_S"));
  return r;
}
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """(process, url) of a pocket engine."""
    env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path_factory.mktemp("runtime"))}
    argv = [sys.executable, "-m", "labkit.pocket", "--port", "0"]
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = ""
        while "http://" not in url:
            url = process.stdout.readline()
            assert url, "the engine ended"
        yield process, "http://" + url.split("http://")[1].split()[0].rstrip("/.,")
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


@pytest.fixture
def bench(engine, tmp_path):
    """Starts `labkit bench` on the engine; gives (process, a function that reads its measured rows)."""
    started = []

    def start(repeats=400, **env):
        load = ["--workload", "repetitive", "--count", "1", "--repeats", str(repeats), "--output-tokens", "96"]
        argv = [sys.executable, "-m", "labkit.cli", "bench", "--url", engine[1], *load, "--out", str(tmp_path)]
        env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / "rt"), **env}
        lab = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(lab)

        def rows():
            found = list(tmp_path.glob("*bench*/run.json"))
            return [r for r in read_run(found[0].parent).rows if r["repeat"] >= 0] if found else []

        return lab, rows

    yield start
    for lab in started:
        lab.kill()
        lab.communicate(timeout=60)


def until(lab, condition):
    end = time.monotonic() + 120
    while not condition():
        assert lab.poll() is None and time.monotonic() < end, lab.stderr.read()[-1000:] if lab.poll() else ""
        time.sleep(0.1)


def still(rows):
    return [r for r in rows if any(d["kind"] == "stood still" for d in r["doubts"])]


def longest_gap(row):
    times = [0.0, *row["chunk_times"]]
    return max(b - a for a, b in zip(times, times[1:], strict=False))


def test_a_request_during_which_everything_stood_still_is_thrown_away_with_a_word(engine, bench):
    lab, rows = bench()
    until(lab, lambda: len(rows()) >= 4)
    before = rows()
    for _ in range(20):  # a stop between two requests disturbs nothing: again
        for pid in (lab.pid, engine[0].pid):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.4)
        for pid in (engine[0].pid, lab.pid):
            os.kill(pid, signal.SIGCONT)
        count = len(rows())
        until(lab, lambda count=count: len(rows()) >= count + 2)
        if still(rows()):
            break
    seen = still(rows())
    assert seen and all(r["status"] == "refused" and "stood still" in r["error"] for r in seen)
    assert rows()[: len(before)] == before
    assert all(longest_gap(r) < 1.4 for r in rows() if r["status"] == "ok")
    assert any("stood still" in w for w in estimates.summarise(rows())["warnings"])


@pytest.fixture(scope="module")
def jump(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler or not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("needs a C compiler and Linux's clocks")
    folder = tmp_path_factory.mktemp("jump")
    (folder / "jump.c").write_text(JUMP)
    argv = [compiler, "-shared", "-fPIC", "-o", str(folder / "jump.so"), str(folder / "jump.c")]
    subprocess.run(argv, check=True, timeout=120)
    return folder / "jump.so"


@pytest.mark.parametrize("days", [-1, pytest.param(1, marks=pytest.mark.slow)])
def test_a_clock_that_is_set_changes_no_measured_time(bench, jump, tmp_path, days):
    env = {"LD_PRELOAD": str(jump), "JUMP_FILE": str(tmp_path / "now"), "JUMP_S": str(days * DAY_S)}
    lab, rows = bench(12, JUMP_CLOCK=str(time.CLOCK_REALTIME), **env)
    until(lab, lambda: len(rows()) >= 4)
    (tmp_path / "now").touch()
    out, err = lab.communicate(timeout=120)
    assert lab.returncode == 0, err
    found = rows()
    started = [r["started_unix"] for r in found]
    assert max(started) - min(started) > 0.9 * DAY_S  # it did jump
    assert len(found) == 12 and not still(found)
    for r in found:
        assert 0 < r["ttft_s"] <= r["latency_s"] < 60
    assert "still" not in out


def test_a_machine_that_was_asleep_in_mid_request_is_noticed(bench, jump, tmp_path):
    """Suspended, Linux stops the clock of measurements and lets the one since boot go on."""
    env = {"LD_PRELOAD": str(jump), "JUMP_FILE": str(tmp_path / "now"), "JUMP_S": str(DAY_S)}
    lab, rows = bench(JUMP_CLOCK=str(time.CLOCK_BOOTTIME), **env)
    until(lab, lambda: len(rows()) >= 4)
    for _ in range(20):  # between two requests a sleep disturbs nothing
        count = len(rows())
        (tmp_path / "now").touch()
        until(lab, lambda count=count: len(rows()) >= count + 2)
        (tmp_path / "now").unlink()
        if still(rows()):
            break
    assert any(r["status"] == "refused" and f"{DAY_S}." in r["error"] for r in still(rows()))
