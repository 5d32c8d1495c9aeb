"""No wait is without a limit: each kind with its other side really dead, stopped or stuck."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from labkit import waits
from labkit.batch import run as batch
from labkit.engines import http as asking
from labkit.errors import LabError
from labkit.measure import client, probe
from labkit.pocket import build
from labkit.records.store import _locked

SOON_S = 30.0  # what a second's limit may take on a machine that is busy


@contextlib.contextmanager
def program(code: str):
    """A Python program that has said its first line."""
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        child.stdout.readline()
        yield child
    finally:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
        child.stdout.close()


def gone(pid: int) -> bool:
    end = time.monotonic() + SOON_S
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


# --- programs


def test_a_program_that_never_ends_is_ended_with_all_that_it_started(tmp_path):
    """The child of a compiler holds its output open: whoever kills the compiler alone goes on waiting."""
    script = f"sleep 1000 & echo $! > {tmp_path}/kid; wait"
    began = time.monotonic()
    with pytest.raises(waits.TookTooLong, match=r"\b1 s\b.*the compiler"):
        waits.run(["sh", "-c", script], what="the compiler", timeout_s=1.0)
    assert time.monotonic() - began < SOON_S and gone(int((tmp_path / "kid").read_text()))


def test_a_program_whose_child_keeps_its_output_open_is_not_waited_for_either(tmp_path):
    script = f"sleep 1000 & echo $! > {tmp_path}/kid; exit 0"
    with pytest.raises(waits.TookTooLong):
        waits.run(["sh", "-c", script], what="the program", timeout_s=1.0)
    assert gone(int((tmp_path / "kid").read_text()))


def test_a_program_that_ends_gives_what_it_said():
    done = waits.run(["sh", "-c", "echo out; echo err >&2; exit 3"], what="it", timeout_s=30)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    done = waits.run(["sh", "-c", "echo out; echo err >&2"], what="it", timeout_s=30, merged=True)
    assert done.stdout == "out\nerr\n"


@pytest.fixture
def endless_compiler(tmp_path, monkeypatch):
    """A compiler that says its version and then compiles for ever; where it writes the id of its child."""
    path = tmp_path / "cc"
    path.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo "cc 1"; exit 0;; esac\n'
        f"sleep 1000 & echo $! >> {tmp_path}/kids; wait\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    monkeypatch.setattr(waits, "COMPILE_S", 1.0)
    return tmp_path / "kids"


def test_kernels_are_not_waited_for_without_end(tmp_path, endless_compiler):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    with pytest.raises(LabError, match=r"\b1 s\b.*compiler of one"):
        build.compile_units(build.find_compiler(), {"one": ["-O3"], "two": ["-O3"]}, cache)
    assert not list(cache.iterdir())  # nothing half-made is left
    assert all(gone(int(kid)) for kid in endless_compiler.read_text().split())


def test_the_probe_reads_with_numpy_where_the_compiler_never_ends(tmp_path, endless_compiler, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(probe, "working_set", lambda: 8 << 20)
    assert "NumPy" in probe.probe(1).how


def test_a_version_that_is_never_said_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "cc"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    monkeypatch.setattr(build, "VERSION_S", 1.0)
    with pytest.raises(LabError, match="to say its version"):
        build.compile_units([str(path)], {"one": []}, tmp_path)


# --- locks and threads


def test_a_lock_that_a_stopped_process_holds_is_given_up(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    monkeypatch.setattr(waits.flock, "__defaults__", (1.0,))
    holder = f"""
        import fcntl, time
        file = open({str(path)!r}, "w"); fcntl.flock(file, fcntl.LOCK_EX); print("held", flush=True); time.sleep(1000)
    """
    with program(holder) as child:
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(waits.TookTooLong, match=r"lock of the kept measurements .*another process holds it"):
            with _locked(path):
                pass
    with _locked(path):  # the kernel dropped the lock of the dead
        pass


def test_a_lock_that_a_thread_keeps_is_given_up():
    lock, held, done = threading.Lock(), threading.Event(), threading.Event()

    def keep():
        with lock:
            held.set()
            done.wait(SOON_S)

    thread = threading.Thread(target=keep)
    thread.start()
    held.wait(SOON_S)
    with pytest.raises(waits.TookTooLong, match=r"\b0.2 s\b.*its turn"), waits.holding(lock, "its turn", 0.2):
        pass
    with pytest.raises(waits.TookTooLong, match="the thread"):
        waits.join([thread], "the thread", 0.2)
    done.set()
    waits.join([thread], "the thread", SOON_S)
    with waits.holding(lock, "its turn", 0.2):
        assert lock.locked()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_reading_thread_that_dies_ends_the_probe_with_a_word(threads):
    def work(i):
        if i == threads - 1:
            raise MemoryError("no room")

    with pytest.raises(LabError, match="MemoryError: no room"):
        probe._at_once(work, threads)


def test_a_reading_thread_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(probe, "PASSES_S", 0.2)
    stop = threading.Event()
    try:
        with pytest.raises(waits.TookTooLong, match="reading threads"):
            probe._at_once(lambda i: stop.wait(SOON_S), 1)
    finally:
        stop.set()


# --- pipes


def test_a_pipe_whose_other_side_stopped_is_given_up():
    out, into = os.pipe()
    try:
        os.write(into, b"half a li")
        with pytest.raises(waits.TookTooLong, match=r"\b0.3 s\b.*a line"):
            waits.read_line(out, "a line", 0.3)
        os.write(into, b"ne\nnext\n")
        assert waits.read_line(out, "a line", 5) == b"ne\n"  # and nothing beyond it
        with pytest.raises(waits.TookTooLong, match=r"\b0.3 s\b.*a reader"):
            waits.write(into, bytes(1 << 20), "a reader", 0.3)
    finally:
        os.close(out)
        os.close(into)


def test_our_own_group_is_never_killed():
    """Group 0 is one's own: an engine that never said its process id once took the whole lab with it."""
    code = "from labkit import waits; import os; waits.kill_group(0); waits.kill_group(os.getpgrp()); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, start_new_session=True, env=_env()
    )
    assert (done.returncode, done.stdout) == (0, "alive\n")


def _env() -> dict:
    return {**os.environ, "PYTHONPATH": str(Path(waits.__file__).parents[1])}


# --- servers


@contextlib.contextmanager
def server(answer):
    """A server that answers each connection with `answer(connection, stop)` in a thread of its own. -> url"""
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)

    def serve():
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, contextlib.suppress(OSError):
                answer(connection, stop)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        thread.join(SOON_S)
        listener.close()


def silent(connection, stop):
    stop.wait(SOON_S)


def dripping(connection, stop):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not stop.wait(0.05):
        connection.sendall(b"x")


def endless_header(connection, stop):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not stop.wait(0.02):
        connection.sendall(b"X: 1\r\n"[:1])


def header_of_many_lines(connection, stop):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not stop.wait(0.3):
        connection.sendall(b"X-More: 1\r\n")


@pytest.mark.parametrize("answer", [silent, dripping, endless_header, header_of_many_lines])
def test_a_server_that_never_gives_a_whole_answer_is_not_waited_for(answer):
    with server(answer) as url:
        began = time.monotonic()
        with pytest.raises(asking.Unreachable, match=r"\b1 s\b"):
            asking.get_json(url, "/server_info", timeout_s=1.0)
        assert time.monotonic() - began < SOON_S


def dripping_stream(connection, stop):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
    while not stop.wait(0.02):
        connection.sendall(b"x")


@pytest.mark.parametrize("answer", [silent, dripping, endless_header, header_of_many_lines, dripping_stream])
def test_a_request_that_is_measured_has_a_limit_too(answer):
    with server(answer) as url:
        with pytest.raises(client.RequestError, match="for 1 s"):
            client.generate(url, text="x", timeout_s=1.0)
        with pytest.raises(client.RequestError, match="for 1 s"):
            client.get_json(url, "/server_info", timeout_s=1.0)


def test_a_kernel_that_never_comes_up_is_not_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "kernels" / "python3"
    folder.mkdir(parents=True)
    spec = {"argv": ["sh", "-c", "exec sleep 1000"], "display_name": "stuck", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setattr(batch, "KERNEL_START_S", 2)
    notebook = Path(waits.__file__).parents[1] / "notebooks" / "01_bytes.ipynb"
    outcome = batch.execute(notebook, tmp_path / "out.ipynb", {}, 60, 0)
    assert outcome.status == "dead" and "2 s" in outcome.error and "kernel" in outcome.error
    assert not [c for c in psutil.Process().children() if "sleep 1000" in " ".join(c.cmdline())]


def test_a_stopped_server_process_is_not_waited_for():
    """SIGSTOP: its kernel still accepts the connection, and nobody reads it."""
    code = """
        import http.server
        s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        print(s.server_address[1], flush=True); s.serve_forever()
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{int(child.stdout.readline())}"
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(asking.Unreachable, match=r"\b1 s\b"):
            asking.get_json(url, "/health", timeout_s=1.0)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_server_that_is_not_there_says_so_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(asking.Unreachable, match="refused"):
        asking.get_json(url, "/health", timeout_s=60)
