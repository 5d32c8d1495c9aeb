"""One lab owns the engines of a machine, and a dead lab owns nothing."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from labkit.engines import owner as ownership
from labkit.engines import process
from labkit.engines.config import EngineConfig


def lab(code: str) -> subprocess.Popen:
    """Another lab process; it prints "held" when it owns."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)


HOLD = """
    import time
    from labkit.engines import owner
    owner.acquire()
    owner.publish([{"url": "http://127.0.0.1:1234", "pid": 1, "engine": "pocket", "digest": "d"}])
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_lab_is_told_who_owns_and_a_killed_one_owns_nothing(tmp_path, scripted):
    other = lab(HOLD)
    try:
        assert other.stdout.readline() == "held\n"
        found = ownership.owner()
        assert (found.pid, found.url, found.mine) == (other.pid, "http://127.0.0.1:1234", False)
        with pytest.raises(process.Owned, match=f"process {other.pid}.*attach.*http://127.0.0.1:1234"):
            process.start(EngineConfig(), tmp_path, launcher=scripted())
    finally:
        other.kill()
        other.wait()
    assert ownership.owner() is None
    process.start(EngineConfig(), tmp_path, launcher=scripted()).stop()


def test_own_engines(tmp_path, scripted):
    assert process.owner() is None
    with process.start(EngineConfig(), tmp_path, launcher=scripted()) as one:
        assert process.owner().mine and process.owner().url == one.url
        with pytest.raises(process.Owned):
            process.start(EngineConfig(), tmp_path, launcher=scripted())
        with process.start(EngineConfig(), tmp_path, launcher=scripted(), beside=True) as two:
            assert [e["url"] for e in process.owner().engines] == [one.url, two.url]
        assert [e["url"] for e in process.owner().engines] == [one.url]
    assert process.owner() is None


def test_a_forked_worker_does_not_keep_the_lock():
    """multiprocessing's fork copies the lab's descriptors; the worker may outlive the lab."""
    code = """
        import os, sys, time
        from labkit.engines import owner
        owner.acquire()
        if os.fork() == 0:
            time.sleep(600)
        print("held", flush=True)
        time.sleep(600)
    """
    other = lab(code)
    children = []
    try:
        assert other.stdout.readline() == "held\n"
        import psutil

        children = psutil.Process(other.pid).children()
        assert len(children) == 1 and ownership.owner().pid == other.pid
        other.kill()
        other.wait()
        assert children[0].is_running() and ownership.owner() is None
    finally:
        other.kill()
        for child in children:
            child.kill()


def test_threads_of_one_lab_do_not_lock_each_other_out(monkeypatch):
    """Each finds nothing held and opens a file of its own: the second file's lock would be refused by the first's."""
    real, gate, refused = ownership.fcntl.flock, threading.Barrier(6), []

    def slow(*args):
        time.sleep(0.05)
        real(*args)

    def take():
        gate.wait()
        try:
            ownership.acquire()
        except process.Owned as e:
            refused.append(str(e))

    monkeypatch.setattr(ownership.fcntl, "flock", slow)
    threads = [threading.Thread(target=take) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    try:
        assert refused == [] and ownership.owner().mine
    finally:
        ownership.release()


def test_a_failed_start_does_not_give_away_what_another_thread_starts(tmp_path, scripted):
    failed, seen = threading.Event(), []
    slow = scripted()
    plain = slow.command

    def command(config, port):  # after the lock is taken, before there is a process
        failed.wait(120)
        seen.append(ownership.owner())
        return plain(config, port)

    slow.command = command
    started = []
    thread = threading.Thread(target=lambda: started.append(process.start(EngineConfig(), tmp_path, launcher=slow)))
    thread.start()
    while ownership.owner() is None:
        time.sleep(0.01)
    with pytest.raises(process.EngineFailed):
        process.start(EngineConfig(), tmp_path, launcher=scripted("--die", "1"), beside=True)
    failed.set()
    thread.join(240)
    started[0].stop()
    assert seen[0] is not None and seen[0].mine and ownership.owner() is None


def test_runtime_dir_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert ownership.runtime_dir() == tmp_path / "labkit"
    assert os.stat(tmp_path / "labkit").st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert str(os.getuid()) in ownership.runtime_dir().name


def test_between_taking_the_lock_and_publishing_the_owner_is_this_process():
    ownership.acquire()
    try:
        (ownership.runtime_dir() / "engine.json").unlink()
        assert ownership.owner().mine
    finally:
        ownership.release()
