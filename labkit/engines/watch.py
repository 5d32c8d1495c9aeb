"""Runs between the lab and an engine so that the engine never outlives the lab: `python -m labkit.engines.watch`.

It works for engines that are not ours and know nothing of it. The lab writes one JSON line to its stdin (argv, env,
log, secrets, grace_s, keep_stdin) and keeps that pipe open; end of file there means that the lab stopped the engine or
died, however it died, and the whole tree of the engine's processes is ended: SIGTERM, then SIGKILL after grace_s. On
Linux the kernel also kills the engine if this watcher is killed. stdout carries "pid N" and at the end "exit CODE".

The engine's output passes through here into the log, because SGLang logs its arguments with the API key in them and the
key must not reach a file. Between log lines this process sleeps; it wakes once a second to look after its parent.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

import psutil

from labkit.engines.server_info import scrub

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LONGEST_LINE = 1 << 16


def main() -> int:
    spec = json.loads(sys.stdin.buffer.readline())
    parent = os.getppid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None:
        # Descendants that leave the group or session still end up as our children, so that none is missed.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_out, wake_in = os.pipe()
    for end in (wake_out, wake_in):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_in)
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    log = _Log(spec["log"], spec["secrets"])
    try:
        child = subprocess.Popen(
            spec["argv"],
            env=spec["env"],
            stdin=subprocess.PIPE if spec["keep_stdin"] else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=(lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) if libc is not None else None,
        )
    except OSError as e:
        log.write(f"cannot run {spec['argv'][0]}: {e.strerror}\n".encode())
        log.close()
        _say("exit 127")
        return 127
    _say(f"pid {child.pid}")
    output = child.stdout.fileno()
    os.set_blocking(output, False)
    reaper = _Reaper(child.pid)
    poll = select.poll()
    for fd in (0, output, wake_out):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while reaper.code is None and not stopping:
        for fd, _ in poll.poll(1000):
            if fd == 0 and not os.read(0, 4096):
                stopping.append(True)
            elif fd == output and not log.pump(output):
                poll.unregister(output)
            elif fd == wake_out:
                os.read(wake_out, 4096)
        if os.getppid() != parent:
            stopping.append(True)
        reaper.reap()
    if child.stdin is not None:
        child.stdin.close()  # ends the command at the far side of ssh or docker
    _end_tree(child.pid, reaper, spec["grace_s"], lambda: log.pump(output))
    log.pump(output)
    log.close()
    child.returncode = reaper.code
    _say(f"exit {reaper.code}")
    return reaper.code if 0 <= reaper.code < 128 else 128 + abs(reaper.code) % 128


class _Reaper:
    """Collects dead children, adopted ones too; `code` is the engine's: exit status, or minus the signal."""

    def __init__(self, pid: int):
        self.pid, self.code = pid, None

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)


class _Log:
    """Append whole lines without secrets; goes on draining the engine's pipe when the disk is full."""

    def __init__(self, path: str, secrets: list[str]):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._secrets, self._rest = secrets, b""

    def pump(self, fd: int) -> bool:
        """Move what is there; False at end of file."""
        while True:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._rest += data
            cut = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r")) + 1
            if cut == 0 and len(self._rest) > _LONGEST_LINE:
                cut = len(self._rest)
            self.write(self._rest[:cut])
            self._rest = self._rest[cut:]

    def write(self, data: bytes) -> None:
        if data:
            try:
                os.write(self._file, scrub(data.decode(errors="replace"), self._secrets).encode())
            except OSError:
                pass

    def close(self) -> None:
        self.write(self._rest)
        os.close(self._file)


def _end_tree(pid: int, reaper: _Reaper, grace_s: float, pump) -> None:
    """SIGTERM to every process of the engine, SIGKILL to those left after grace_s. Returns within grace_s + 5 s."""
    for sent, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        told: set[int] = set()
        while True:
            reaper.reap()
            left = [p.pid for p in _family(pid)]
            if not left:
                break
            for one in left:
                if one not in told:  # once each: a second SIGTERM makes some servers skip their clean-up
                    told.add(one)
                    _kill(one, sent)
            if time.monotonic() > deadline:
                break
            pump()
            time.sleep(0.02)
    if reaper.code is None:
        reaper.code = -signal.SIGKILL


def _family(pid: int) -> list[psutil.Process]:
    """Live processes of the engine: our descendants (we adopt orphans); its process group where we cannot adopt."""
    own = psutil.Process()
    found = {p.pid: p for p in own.children(recursive=True)}
    if sys.platform != "linux":
        for p in psutil.process_iter():
            try:
                if os.getpgid(p.pid) == pid:
                    found[p.pid] = p
            except OSError:
                continue
    alive = []
    for p in found.values():
        try:
            if p.status() != psutil.STATUS_ZOMBIE:
                alive.append(p)
        except psutil.NoSuchProcess:
            continue
    return alive


def _kill(pid: int, sent: int) -> None:
    try:
        os.kill(pid, sent)
    except ProcessLookupError:
        pass


def _say(line: str) -> None:
    try:
        os.write(1, line.encode() + b"\n")
    except OSError:
        pass  # the lab is gone; the work here goes on


if __name__ == "__main__":
    sys.exit(main())
