"""Starting, watching and stopping, against a scripted child process."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from labkit.engines import process, running
from labkit.engines.config import EngineConfig
from labkit.engines.http import Unreachable, get_json
from labkit.errors import BadInput, LabError

CONFIG = EngineConfig()


def start(tmp_path, launcher, config=CONFIG, **more):
    more.setdefault("grace_s", 30.0)  # nobody here is stubborn unless a test says so
    return process.start(config, tmp_path / "run", launcher=launcher, **more)


def test_start_and_stop(tmp_path, scripted, is_gone):
    events = []
    launcher = scripted(
        "--say",
        "weights loaded",
        "--say",
        "captured",
        "--mark",
        str(tmp_path / "mark"),
        env={"SCRIPTED_VALUE": "of-the-adapter"},
    )
    config = EngineConfig.from_dict({"env": {"SCRIPTED_VALUE": "mine"}})
    with start(tmp_path, launcher, config, on_event=events.append) as engine:
        assert engine.alive and engine.failure() is None
        assert engine.server_info()["pid"] == engine.pid  # the very process, and reachable where it said
        assert [n for n, _ in engine.phases] == ["load weights", "capture graphs", "serve"]
        assert sum(s for _, s in engine.phases) <= engine.start_seconds
        assert "seen mine" in engine.log_path.read_text()
        record = engine.launch_record()
        assert record["env"]["SCRIPTED_VALUE"] == "mine" and record["log"] == "engine-1.log"
    assert is_gone(engine.pid) and not engine.alive
    assert (tmp_path / "mark").read_text() == "clean\n"  # one SIGTERM, answered in time: no SIGKILL
    kinds = [e.kind for e in events]
    assert kinds[0] == "command" and kinds[-1] == "ready" and events[-1].text == engine.url
    assert [e.text for e in events if e.kind == "phase"] == ["load weights", "capture graphs", "serve"]
    engine.stop()  # again: nothing happens


def test_skipped_phases(tmp_path, scripted):
    with start(tmp_path, scripted()) as engine:
        assert [n for n, _ in engine.phases] == ["serve"]


def test_logs_of_two_starts_do_not_meet(tmp_path, scripted):
    for _ in range(2):
        start(tmp_path, scripted()).stop()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["engine-1.log", "engine-2.log"]


def test_everything_it_started_ends_with_it(tmp_path, scripted, is_gone):
    """Also a child in a session of its own; both ignore SIGTERM and are killed after the grace time."""
    engine = start(tmp_path, scripted("--stubborn", "--kid", str(tmp_path / "kid")), grace_s=0.5)
    kid = int((tmp_path / "kid").read_text())
    assert psutil.pid_exists(kid)
    engine.stop()
    assert is_gone(engine.pid) and is_gone(kid)


def test_a_death_at_start_is_explained(tmp_path, scripted):
    launcher = scripted("--say", "weights loaded", "--say", "ModelNotFound: /x", "--die", "7")
    with pytest.raises(process.EngineFailed) as failed:
        start(tmp_path, launcher)
    e = failed.value
    assert (e.returncode, e.phase) == (7, "capture graphs")
    assert e.explanation == "no such model: give an existing folder"
    assert e.log_tail[-1] == "ModelNotFound: /x"
    first = str(e).splitlines()[0]
    assert "exit code 7" in first and "capture graphs" in first and "give an existing folder" in first
    assert process.owner() is None


def test_a_phase_that_takes_too_long(tmp_path, scripted, is_gone):
    seen = []
    launcher = scripted("--say", "weights loaded", "--hang")
    launcher.PHASES[1] = replace(launcher.PHASES[1], timeout_s=0.5)  # it begins when "weights loaded" has been read
    with pytest.raises(process.EngineFailed, match='"capture graphs" took longer than 0.5 s') as failed:
        start(tmp_path, launcher, on_event=lambda e: seen.append(process.owner()))
    assert failed.value.returncode is None
    pids = {o.engines[0]["pid"] for o in seen if o and o.engines}
    assert pids and all(is_gone(p) for p in pids)


def test_a_command_that_does_not_exist(tmp_path, scripted):
    launcher = scripted()
    launcher.command = lambda config, port: process.Launch(["/nonexistent/engine"])
    with pytest.raises(process.EngineFailed, match="(?s)could not be started.*No such file") as failed:
        start(tmp_path, launcher)
    assert failed.value.returncode == 127


def test_cancel_while_starting(tmp_path, scripted, is_gone):
    cancel, pids = threading.Event(), []

    def on_event(event):
        if event.kind == "line" and event.text == "weights loaded":
            pids.append(process.owner().engines[0]["pid"])
            cancel.set()

    with pytest.raises(process.StartCancelled):
        start(tmp_path, scripted("--say", "weights loaded", "--hang"), cancel=cancel, on_event=on_event)
    assert is_gone(pids[0]) and process.owner() is None


def test_an_engine_that_dies_later_says_why(tmp_path, scripted):
    engine = start(tmp_path, scripted("--say", "weights loaded"))
    os.kill(engine.pid, 9)
    deadline = time.monotonic() + 90
    while engine.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    said = engine.failure()
    assert "killed by signal 9" in said and "weights loaded" in said
    assert "memory ran out" in said  # the likely cause, although the log names none
    with pytest.raises(process.EngineFailed, match="signal 9"):
        engine.server_info()
    engine.stop()
    assert "signal 9" in engine.failure()


@pytest.mark.parametrize(
    "code, cause",
    [
        (-9, "memory"),
        (137, "memory"),
        (-11, "native code crashed"),
        (-4, "instruction"),
        (1, None),
        (0, None),
        (None, None),
    ],
)
def test_a_signal_has_a_likely_cause(code, cause):
    said = running.by_signal(code)
    assert said is None if cause is None else cause in said


def test_a_port_that_is_taken_is_tried_again(tmp_path, scripted):
    events = []
    launcher = scripted("--busy-once", str(tmp_path / "busy"), picks_port=False)
    with start(tmp_path, launcher, on_event=events.append) as engine:
        assert engine.server_info()["version"] == "t"
    assert [e.kind for e in events].count("retry") == 1


def test_a_port_that_another_process_takes_before_the_engine_binds_it(tmp_path, scripted):
    """A real thief, a real bind: it listens on the port between the choice and the start, and answers there."""
    base, events, thieves = scripted(picks_port=False), [], []

    def command(config, port):
        if not thieves:
            thieves.append(subprocess.Popen(base.command(config, port).argv, stdout=subprocess.PIPE, text=True))
            while "ready" not in thieves[0].stdout.readline():
                assert thieves[0].poll() is None
        return base.command(config, port)

    stealing = type(base)(**{**vars(base), "command": command})
    try:
        with start(tmp_path, stealing, on_event=events.append) as engine:
            assert engine.server_info()["pid"] not in (thieves[0].pid, None)
        assert [e.kind for e in events].count("retry") == 1
    finally:
        thieves[0].kill()
        thieves[0].wait(60)
        thieves[0].stdout.close()


def test_a_port_that_was_asked_for_is_not_replaced(tmp_path, scripted):
    launcher = scripted("--busy-once", str(tmp_path / "busy"), picks_port=False)
    with pytest.raises(process.EngineFailed, match="Address already in use"):
        start(tmp_path, launcher, CONFIG.replace(port=process.free_port()))


@pytest.mark.parametrize("prefix", [["nice", "-n", "1"], ["sh", "-c", 'exec "$@"', "sh"]])
def test_a_command_prefix(tmp_path, scripted, is_gone, prefix):
    launcher = scripted("--kid", str(tmp_path / "kid"), env={"SCRIPTED_VALUE": "far side; $HOME"})
    with start(
        tmp_path, launcher, CONFIG.replace(command_prefix=prefix), grace_s=0.5
    ) as engine:  # the child is stubborn
        far = engine.server_info()["pid"]
        assert far != engine.pid
        assert "seen far side; $HOME" in engine.log_path.read_text()
        assert engine.launch_record()["command_prefix"] == prefix
    assert is_gone(far) and is_gone(int((tmp_path / "kid").read_text()))


def test_a_prefix_like_ssh_quotes_for_the_far_shell_and_stops_through_it(tmp_path, scripted, is_gone):
    """A stand-in named ssh does what ssh does: joins its arguments, runs them in a shell of another session, and is
    not there to forward signals. Only the end of standard input reaches the far side."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nhost=$1\nshift\nexec setsid -w sh -c \"trap '' TERM; $*\"\n")
    ssh.chmod(0o755)
    launcher = scripted("--mark", str(tmp_path / "mark"), env={"SCRIPTED_VALUE": "two words"})
    with start(tmp_path, launcher, CONFIG.replace(command_prefix=[str(ssh), "host"])) as engine:
        far = engine.server_info()["pid"]
        assert "seen two words" in engine.log_path.read_text()
    assert is_gone(far)
    assert (tmp_path / "mark").read_text().startswith("clean")


# -- secrets


def test_the_key_reaches_the_engine_and_nothing_that_is_kept(tmp_path, scripted, monkeypatch):
    monkeypatch.setenv("LAB_TEST_KEY", "sk-planted-0123")
    events = []
    config = CONFIG.replace(api_key_env="LAB_TEST_KEY")
    with start(tmp_path, scripted(), config, on_event=events.append) as engine:
        assert engine.server_info()["version"] == "t"  # 401 without the key
        shown = [repr(engine), repr(engine.launch_record()), repr(engine.server_info()), repr(process.owner())]
    everything = "".join(p.read_text() for p in (tmp_path / "run").iterdir()) + repr(events) + "".join(shown)
    assert "sk-planted" not in everything
    assert "api_key='(hidden)'" in everything and "--api-key $LAB_TEST_KEY" in everything


def _command_lines(pid):
    return [" ".join(p.cmdline()) for p in (psutil.Process(pid), psutil.Process(pid).parent())]


@pytest.mark.parametrize("ways", [{"key_env": "SCRIPTED_KEY"}, {"key_config": "--config"}], ids=["variable", "file"])
def test_the_key_is_on_no_command_line_where_the_engine_has_another_way(tmp_path, scripted, monkeypatch, ways):
    monkeypatch.setenv("LAB_TEST_KEY", "sk-planted-0123")
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir(mode=0o700)
    left = tmp_path / "runtime" / "key-999999999-x.yaml"  # of a lab that was killed
    left.write_text("api-key: sk-old")
    events = []
    config = CONFIG.replace(api_key_env="LAB_TEST_KEY")
    with start(tmp_path, scripted(**ways), config, on_event=events.append) as engine:
        assert engine.server_info()["version"] == "t"  # 401 without the key
        assert not any("sk-planted" in line for line in _command_lines(engine.pid))
        assert "--api-key $LAB_TEST_KEY" in repr(engine.launch_record())  # what one may type
        files = [p for p in (tmp_path / "runtime").rglob("*") if p.is_file()]
        assert not any(b"sk-planted" in p.read_bytes() for p in files)
    assert "sk-planted" not in repr(events) and not any("warning" in e.text for e in events)
    assert left.exists() is ("key_env" in ways)


@pytest.mark.parametrize("ways", [{}, {"key_config": "--config"}], ids=["a flag alone", "the option is taken"])
def test_a_key_that_every_user_can_see_is_said(tmp_path, scripted, monkeypatch, ways):
    monkeypatch.setenv("LAB_TEST_KEY", "sk-planted-0123")
    mine, events = tmp_path / "mine.yaml", []
    mine.write_text("say: hello\n")
    launcher = scripted(*(["--config", str(mine)] if ways else []), **ways)
    with start(tmp_path, launcher, CONFIG.replace(api_key_env="LAB_TEST_KEY"), on_event=events.append) as engine:
        assert engine.server_info()["version"] == "t"
        assert any("sk-planted" in line for line in _command_lines(engine.pid))
    assert [e.text for e in events if "warning" in e.text and "command line" in e.text]


def test_a_key_that_is_not_set(tmp_path, scripted):
    with pytest.raises(BadInput, match="api_key_env"):
        start(tmp_path, scripted(), CONFIG.replace(api_key_env="LAB_NO_SUCH_KEY"))


def test_an_adapter_that_would_record_a_secret_is_stopped(tmp_path, scripted):
    with pytest.raises(LabError, match="SGLANG_API_KEY"):
        start(tmp_path, scripted(env={"SGLANG_API_KEY": "x"}))


# --- the process between lab and engine stops or never speaks

NEVER_SPEAKS = """
import os, signal, sys, types
from labkit.engines import process
from labkit.engines.adapter import Launch, Phase
from labkit.engines.config import EngineConfig

real = process.subprocess.Popen
def stopped(*args, **more):
    child = real(*args, **more)
    os.kill(child.pid, signal.SIGSTOP)  # before it has read its task
    print(child.pid, flush=True)
    return child
process.subprocess.Popen = stopped
process.WATCHER_S = 1.0
launcher = types.SimpleNamespace(
    PICKS_PORT=True, PHASES=[Phase("serve", "ready", 60.0)], command=lambda c, p: Launch(["sleep", "1000"], {})
)
try:
    process.start(EngineConfig(), sys.argv[1], launcher=launcher, grace_s=0.2)
except process.LabError as e:
    print(e)
print("the lab lives", flush=True)
"""


def test_a_watcher_that_never_speaks_takes_nobody_with_it(tmp_path, is_gone):
    """Stopping its engine once killed process group 0: the lab's own."""
    lab = subprocess.run(
        [sys.executable, "-c", NEVER_SPEAKS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,  # a group of its own, so that a fault would not kill these tests
        env={**os.environ, "PYTHONPATH": str(Path(process.__file__).parents[2])},
    )
    pid, *said = lab.stdout.splitlines()
    late, lives = said
    assert "1 s" in late and "the process that watches the engine" in late and lives == "the lab lives", lab.stderr
    assert lab.returncode == 0 and is_gone(int(pid))


def test_stopping_ends_engine_and_kids_when_the_watcher_was_stopped(tmp_path, scripted, is_gone):
    engine = start(tmp_path, scripted("--stubborn", "--kid", str(tmp_path / "kid")), grace_s=0.2)
    kid = int((tmp_path / "kid").read_text())
    os.kill(engine.watch.pid, signal.SIGSTOP)
    began = time.monotonic()
    engine.stop()
    assert time.monotonic() - began < 60
    assert is_gone(engine.watch.pid) and is_gone(engine.pid) and is_gone(kid)
    assert not [e for e in running.ENGINES if e is engine]


def test_an_engine_that_is_stopped_in_mid_answer_is_said_to_be_silent(tmp_path, scripted):
    with start(tmp_path, scripted(), grace_s=0.5) as engine:
        psutil.Process(engine.pid).suspend()
        with pytest.raises(Unreachable, match="no whole answer within 1 s"):
            get_json(engine.url, "/server_info", timeout_s=1.0)
        assert engine.alive  # it is: somebody stopped it


def test_an_engine_that_talks_and_never_becomes_ready_is_given_up(tmp_path, scripted):
    launcher = scripted("--chatter", timeout_s=1.0)
    with pytest.raises(process.EngineFailed, match=r'"load weights" took longer than 1 s'):
        start(tmp_path, launcher, grace_s=0.5)
