"""Waiting for another thread, process, lock or server: never without a limit, and with words for what did not come.

Standard library only, so that the pocket engine and the processes between lab and engine may use it.
"""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO

from labkit.errors import LabError

COMPILE_S = 300.0  # one translation unit; the slowest takes 8 s on one core of 2013
LOCK_S = 60.0  # a file lock is held for milliseconds; a process that was stopped holds it until it goes on
_POLL_S = 0.02
_running: set[subprocess.Popen] = set()


class TookTooLong(LabError):
    """Something that was waited for did not come within its limit. Has what and seconds."""

    def __init__(self, what: str, seconds: float, advice: str = ""):
        self.what, self.seconds = what, seconds
        super().__init__(f"timed out after {seconds:g} s waiting for {what}" + (f": {advice}" if advice else ""))


class Deadline:
    """A limit for several waits together."""

    def __init__(self, seconds: float, what: str, advice: str = ""):
        self._what, self._seconds, self._advice = what, seconds, advice
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain. Raises TookTooLong when none do."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TookTooLong(self._what, self._seconds, self._advice)
        return left


def run(
    argv: Sequence[str],
    *,
    what: str,
    timeout_s: float,
    merged: bool = False,
    cwd: str | os.PathLike | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess:
    """Run a program to its end: CompletedProcess with its text, whatever its exit code; `merged`: stderr inside stdout.

    Past the limit it ends with all that it started: a compiler's children hold its output open, and whoever killed the
    compiler alone would go on waiting for them. Raises TookTooLong, OSError when it cannot be started.
    """
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=cwd,
        env=env,
    )
    _running.add(child)
    try:
        out, err = child.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(list(argv), child.returncode, out, err or "")
    except subprocess.TimeoutExpired:
        _drop(child)
        raise TookTooLong(f"{what} to end", timeout_s, "it was ended") from None
    except BaseException:
        _drop(child)
        raise
    finally:
        _running.discard(child)


def end_running() -> None:
    """End every program that `run` waits for in another thread: Ctrl-C reaches only this one, and they would go on."""
    for child in list(_running):
        kill_group(child.pid)


def _drop(child: subprocess.Popen) -> None:
    """End it with its group, which outlives a leader that has ended; read nothing more."""
    kill_group(child.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(5.0)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def kill_group(pid: int) -> None:
    """SIGKILL to the process group that `pid` leads; nothing for our own, which 0 would mean too."""
    if pid <= 1 or pid == os.getpgrp():
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def flock(file: IO, what: str, timeout_s: float = LOCK_S) -> None:
    """Take the exclusive lock of an open file. Raises TookTooLong when another process does not let go."""
    limit = Deadline(timeout_s, what, "another process holds it; end that one first")
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(min(_POLL_S, limit.left()))


@contextlib.contextmanager
def holding(lock: threading.Lock, what: str, timeout_s: float) -> Iterator[None]:
    """`with lock:` that gives up. Raises TookTooLong when another thread does not let go."""
    if not lock.acquire(timeout=timeout_s):
        raise TookTooLong(what, timeout_s, "another thread of this program is at it")
    try:
        yield
    finally:
        lock.release()


def join(threads: Sequence[threading.Thread], what: str, timeout_s: float) -> None:
    """Wait until all of these threads have ended. Raises TookTooLong; a thread cannot be ended from outside."""
    limit = Deadline(timeout_s, what)
    for thread in threads:
        while thread.is_alive():
            thread.join(limit.left())


def read_line(fd: int, what: str, timeout_s: float) -> bytes:
    """One line from a pipe, without reading beyond it; what came so far at end of file. Raises TookTooLong."""
    limit, line = Deadline(timeout_s, what), b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], limit.left())
        if ready:
            piece = os.read(fd, 1)
            if not piece:
                break
            line += piece
    return line


def write(fd: int, data: bytes, what: str, timeout_s: float) -> None:
    """All of `data` into a pipe whose reader may have stopped. Raises TookTooLong, OSError when the reader is gone."""
    limit, left = Deadline(timeout_s, what), memoryview(data)
    os.set_blocking(fd, False)
    while left:
        select.select([], [fd], [], limit.left())
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(fd, left) :]
