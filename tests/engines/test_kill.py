"""kill -9 of the lab: no engine is left, however the engine is made, and no row is lost."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from labkit.records import read_run

LAB = """
    import sys, time
    from types import SimpleNamespace
    from labkit.engines import process
    from labkit.engines.adapter import Launch, Phase
    from labkit.engines.config import EngineConfig
    from labkit.records import RunWriter

    script, run, prefix, *flags = sys.argv[1:]
    launcher = SimpleNamespace(
        PICKS_PORT=True, PHASES=[Phase("serve", r"ready on (?P<url>\\S+)", 30.0)], explain=lambda log: None,
        command=lambda config, port: Launch([sys.executable, script, *flags]),
    )
    config = EngineConfig().replace(command_prefix=prefix.split() if prefix else [])
    writer = RunWriter(run, {"seed": 1})
    engine = process.start(config, run, launcher=launcher, grace_s=1.0)
    print(engine.pid, engine.server_info()["pid"], engine.watch.pid, flush=True)
    n = 0
    while True:
        writer.append({"arm": "a", "repeat": 0, "index": n, "status": "ok"})
        n += 1
        print(n, flush=True)
"""


@pytest.fixture
def lab(tmp_path, script_path):
    """Starts a lab process that owns an engine and appends rows; gives (process, pids)."""
    started = []

    def make(prefix: str = "", *flags: str):
        argv = [sys.executable, "-c", textwrap.dedent(LAB), str(script_path), str(tmp_path / "run"), prefix, *flags]
        p = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        started.append(p)
        return p, [int(word) for word in p.stdout.readline().split()]

    yield make
    for p in started:
        p.kill()
        p.wait()


@pytest.mark.parametrize("prefix", ["", "nice -n 1"])
def test_no_orphan_and_no_lost_row(tmp_path, lab, is_gone, prefix):
    p, pids = lab(prefix, "--stubborn", "--kid", str(tmp_path / "kid"))
    told = [int(p.stdout.readline()) for _ in range(50)]
    os.kill(p.pid, signal.SIGKILL)
    told += [int(line) for line in p.stdout.read().split()]
    for pid in [*pids, int((tmp_path / "kid").read_text())]:
        assert is_gone(pid), f"process {pid} outlived its lab"
    rows = read_run(tmp_path / "run").rows
    assert [r["index"] for r in rows][: told[-1]] == list(range(told[-1]))
    assert len(rows) <= told[-1] + 1  # at most the one whose telling was cut off


def test_sigterm_of_the_lab(lab, is_gone):
    p, pids = lab()
    p.terminate()
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_killing_the_watcher_itself_kills_the_engine(lab, is_gone):
    _, (engine, _, watcher) = lab()
    os.kill(watcher, signal.SIGKILL)
    assert is_gone(engine)


def test_a_stopped_lab_is_not_a_dead_one(lab):
    """SIGSTOP (a suspended laptop, a debugger) must not end the engine."""
    p, (engine, _, _) = lab()
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(engine, 0)
    os.kill(p.pid, signal.SIGCONT)
