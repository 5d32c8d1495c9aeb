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


def _kept(directory):
    log = directory / LOG
    rows = {
        p.name: (p / "requests.jsonl").read_bytes()
        for p in directory.glob(f"{BLOCKS}/*")
        if (p / "requests.jsonl").exists()
    }
    return {LOG: log.read_bytes() if log.exists() else b""} | rows


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_is_left_running(tmp_path, kills):
    directory, order = tmp_path / "sweep", random.Random(kills)
    grid = {"fp8_lm_head": [False, True], "output_tokens": [8, 9]}
    drive.create({"common": LOAD, "sweep": {"grid": grid, "block": 1}}, directory_made(directory))
    argv = [sys.executable, "-m", "labkit.cli", "sweep", "--resume", str(directory)]
    env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / "runtime")}
    ended = 0
    for _ in range(kills):
        before = _kept(directory)
        lab = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            try:
                assert lab.wait(order.uniform(0.5, 4.0)) == 0
                ended += 1
                continue
            except subprocess.TimeoutExpired:
                pass
            family = psutil.Process(lab.pid).children(recursive=True)
            os.kill(lab.pid, signal.SIGKILL)
            lab.wait(60)
            assert psutil.wait_procs(family, timeout=60)[1] == []
        finally:
            lab.kill()
            lab.wait(60)
        after = _kept(directory)
        assert all(after[name].startswith(text) for name, text in before.items())
    until = time.monotonic() + 600
    last = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=until - time.monotonic())
    assert last.returncode == 0, last.stderr[-2000:]
    run = read_sweep(directory)
    assert [r["status"] for r in run.rows] == ["measured"] * 4 and len(run.finals) == 2
    assert max(Counter(x["block"] for x in run.lines if "block" in x).values()) == 1
    for block in (directory / BLOCKS).iterdir():
        asked = Counter((r["arm"], r["repeat"], r["index"]) for r in read_run(block).rows if r["status"] == "ok")
        assert set(asked.values()) == {1}
    assert len(run.table) == 4 and run.table["tpot_s"].notna().all()


def directory_made(directory):
    directory.mkdir()
    return directory
