"""The real pocket engine under the lab: started, measured, recorded, and gone when the lab is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from labkit.cli import main
from labkit.engines import process
from labkit.engines.config import EngineConfig, Speculative
from labkit.measure import session
from labkit.records import read_run
from labkit.workloads import load


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_RUNTIME_DIR", str(folder / "runtime"))
        with process.start(EngineConfig().replace(speculative=Speculative()), folder) as running:
            yield running


def test_bench(engine, tmp_path, capsys):
    load_ = ["--workload", "repetitive", "--count", "2", "--repeats", "2", "--output-tokens", "48"]
    assert main(["bench", "--url", engine.url, "--json", *load_, "--out", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["engine"] == "pocket" and 1e-5 < said["tpot_s"]["median"] < 1
    assert 1 <= said["accept_length"]["median"] <= 4.5
    rows = [r for r in read_run(said["run"]).rows if r["status"] == "ok"]
    assert len(rows) == 4 and {r["output_tokens"] for r in rows} == {48}
    for r in rows:
        assert r["chunk_tokens"][-1] == 48 and sorted(r["chunk_times"]) == r["chunk_times"]
        assert sum(i * n for i, n in enumerate(r["histogram"])) == r["correct_drafts"]
        assert sum(r["histogram"]) == r["verify_ct"] and r["thread_cpu_s"] > 0
    # Greedy on equal prompts: what is said does not depend on when it is asked.
    texts = {(r["index"], r["text_sha256"]) for r in rows}
    assert len(texts) == 2


def test_exact_prompt_lengths_reach_the_engine(engine):
    prompts = load("word-problems", count=1, seed=1, prompt_tokens=300, output_tokens=8)
    (row,) = session.measure(engine.url, prompts, arm="a", repeats=1, warmup=0)
    assert (row["status"], row["prompt_tokens"], row["output_tokens"]) == ("ok", 300, 8)


def test_what_the_engine_refuses_becomes_a_row(engine):
    (prompt,) = load("synthetic", count=1, seed=1, prompt_tokens=40_000, output_tokens=8)
    (row,) = session.measure(engine.url, [prompt], arm="a", repeats=1, warmup=0)
    assert row["status"] == "error" and "400" in row["error"]


def test_kill_9_of_a_ladder_leaves_no_engine_and_loses_no_row(tmp_path, is_gone):
    flags = ["--count", "2", "--repeats", "50", "--output-tokens", "48", "--arms", "baseline,mtp"]
    env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / "runtime")}
    argv = [sys.executable, "-m", "labkit.cli", "ladder"]
    lab = subprocess.Popen([*argv, *flags, "--out", str(tmp_path)], env=env, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 240
        rows = []
        while len(rows) < 10 and time.monotonic() < deadline and lab.poll() is None:
            time.sleep(0.2)
            found = list(tmp_path.glob("*ladder*/run.json"))
            rows = read_run(found[0].parent).rows if found else []
        assert len(rows) >= 10
        family = psutil.Process(lab.pid).children(recursive=True)
        assert sum("labkit.pocket" in " ".join(p.cmdline()) for p in family) == 2
        os.kill(lab.pid, signal.SIGKILL)
        for p in family:
            assert is_gone(p.pid)
        after = read_run(found[0].parent)
        assert after.rows[: len(rows)] == rows and after.meta["status"] == "running"
        assert len(after.meta["arms"]) == 2
    finally:
        lab.kill()
        lab.wait()
