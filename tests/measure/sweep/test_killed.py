"""A sweep that is killed again and again: nothing that was committed is lost or asked twice, and no engine is left."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

from labkit.measure.sweep import drive
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, LOG, read_sweep

LOAD = {"workload": "repetitive", "count": 1, "repeats": 3, "warmup": 0, "output_tokens": 8}
GRID = {"fp8_lm_head": [False, True], "output_tokens": [8, 9]}
# (seed, kills): 200 in all.
PIECES = [(1, 20), *(pytest.param(seed, 20, marks=pytest.mark.slow) for seed in range(2, 11))]


def _kept(directory):
    log = directory / LOG
    rows = {
        p.name: (p / "requests.jsonl").read_bytes()
        for p in directory.glob(f"{BLOCKS}/*")
        if (p / "requests.jsonl").exists()
    }
    return {LOG: log.read_bytes() if log.exists() else b""} | rows


def _begun(directory):
    directory.mkdir()
    drive.create({"common": LOAD, "sweep": {"grid": GRID, "block": 1}}, directory)
    return directory


def _whole(directory):
    """A sweep that has ended: every configuration once, every request once."""
    run = read_sweep(directory)
    assert [r["status"] for r in run.rows] == ["measured"] * 4 and len(run.finals) == 2
    assert max(Counter(x["block"] for x in run.lines if "block" in x).values()) == 1
    for block in (directory / BLOCKS).iterdir():
        asked = Counter((r["arm"], r["repeat"], r["index"]) for r in read_run(block).rows if r["status"] == "ok")
        assert set(asked.values()) == {1}
    assert len(run.table) == 4 and run.table["tpot_s"].notna().all()


def _has_engine(lab):
    """Whether the lab's process has started an engine by now, however fast the machine is."""
    try:
        return any("labkit.pocket" in p.cmdline() for p in psutil.Process(lab.pid).children(recursive=True))
    except psutil.Error:
        return False


def _ended_before_its_kill(lab, order):
    """Wait for a random moment: of the start, or of the time in which engines start and are measured."""
    if order.random() < 0.8:
        while lab.poll() is None and not _has_engine(lab):
            time.sleep(0.05)
    try:
        lab.wait(order.uniform(0.0, 1.6))
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("seed", "kills"), PIECES)
def test_nothing_is_lost_and_nothing_is_left_running(tmp_path, seed, kills):
    order, env = random.Random(seed), os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / "runtime")}
    sweeps, killed = [_begun(tmp_path / "0")], 0

    def argv():
        return [sys.executable, "-m", "labkit.cli", "sweep", "--resume", str(sweeps[-1])]

    while killed < kills:
        before = _kept(sweeps[-1])
        lab = subprocess.Popen(argv(), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            if _ended_before_its_kill(lab, order):
                assert lab.returncode == 0, lab.stderr.read()[-2000:]
                _whole(sweeps[-1])
                sweeps.append(_begun(tmp_path / str(len(sweeps))))
                continue
            family = psutil.Process(lab.pid).children(recursive=True)
            os.kill(lab.pid, signal.SIGKILL)
            lab.wait(60)
            killed += 1
            assert psutil.wait_procs(family, timeout=60)[1] == []
        finally:
            lab.kill()
            lab.wait(60)
            lab.stderr.close()
        after = _kept(sweeps[-1])
        assert all(after[name].startswith(text) for name, text in before.items())
    last = subprocess.run(argv(), env=env, capture_output=True, text=True, timeout=600)
    assert last.returncode == 0, last.stderr[-2000:]
    _whole(sweeps[-1])
