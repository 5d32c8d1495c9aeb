"""Who runs an engine on this machine: one lab at a time, because two engines would measure each other."""

import fcntl
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit import disk
from labkit.errors import LabError


@dataclass(frozen=True)
class Owner:
    """The lab process that owns the running engines.

    engines: {"url", "pid", "digest", "engine", "log", "started_unix", "ready"} each; measuring: requests are timed now.
    """

    pid: int
    engines: tuple[dict, ...]
    measuring: bool = False

    @property
    def mine(self) -> bool:
        return self.pid == os.getpid()

    @property
    def url(self) -> str | None:
        """Address of its newest engine, None while it is starting one."""
        return self.engines[-1]["url"] if self.engines else None


class Owned(LabError):
    """Another lab runs an engine; `owner` says which, and where one can attach."""

    def __init__(self, owner: Owner):
        self.owner = owner
        where = ", which is starting"
        if owner.url:
            where = f" at {owner.url}: attach to it (engine: attach, url: {owner.url})"
        super().__init__(f"process {owner.pid} already runs an engine{where}, or stop it there first")


def runtime_dir() -> Path:
    """A directory of this user for the lock: $LABKIT_RUNTIME_DIR, else $XDG_RUNTIME_DIR/labkit, else below /tmp."""
    given = os.environ.get("LABKIT_RUNTIME_DIR")
    base = os.environ.get("XDG_RUNTIME_DIR")
    if given:
        path = Path(given)
    elif base and os.access(base, os.W_OK):
        path = Path(base) / "labkit"
    else:
        path = Path(tempfile.gettempdir()) / f"labkit-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        # Below /tmp anybody may have made it, and could then say that they own our engine.
        raise LabError(f"{path} belongs to another user; set LABKIT_RUNTIME_DIR to a directory of your own")
    return path


def owner() -> Owner | None:
    """Who owns an engine now, None when nobody does. A lab that was killed owns nothing: the kernel drops its lock."""
    if _held is not None:
        return _read()
    with open(runtime_dir() / "engine.lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read()
    return None


_held = None
_engines: list[dict] = []
_timing = 0  # measurements under way in this process
_turn = threading.Lock()  # two threads that both found nothing held would lock each other out: a process has two files


def acquire() -> None:
    """Become the owner (again); any thread may ask. Raises Owned."""
    global _held
    with _turn:
        if _held is not None:
            return
        file = open(runtime_dir() / "engine.lock", "a")  # noqa: SIM115 held as long as the lab owns an engine
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Owned(_read()) from None
        _held = file
        publish([])


def publish(engines: list[dict]) -> None:
    """Tell others which engines this lab runs."""
    global _engines
    _engines = engines
    told = {"pid": os.getpid(), "engines": engines, "measuring": _timing > 0}
    disk.write_json(runtime_dir() / "engine.json", told)


@contextmanager
def measuring() -> Iterator[None]:
    """While this lab times requests: then even who wants to measure one of its engines has to wait."""
    _time(1)
    try:
        yield
    finally:
        _time(-1)


def _time(more: int) -> None:
    global _timing
    with _turn:
        _timing += more
        if _held is not None and _timing <= 1:
            publish(_engines)


def release() -> None:
    """Own nothing any more."""
    global _held
    with _turn:
        if _held is not None:
            Path(_held.name).with_name("engine.json").unlink(missing_ok=True)
            fcntl.flock(_held, fcntl.LOCK_UN)
            _held.close()
            _held = None


def sign() -> tuple:
    """Something that differs once the owner or its engines have changed. Takes no lock, so it may be asked often."""
    try:
        written = (runtime_dir() / "engine.json").stat().st_mtime_ns
    except OSError:
        return ()
    pid = _read().pid
    try:
        os.kill(pid, 0) if pid else None
    except OSError:  # killed: nobody tidied up
        return ()
    return pid, written


def _read() -> Owner:
    try:
        found = json.loads((runtime_dir() / "engine.json").read_text(encoding="utf-8"))
        return Owner(int(found["pid"]), tuple(found["engines"]), bool(found.get("measuring")))
    except (OSError, ValueError, KeyError):
        return Owner(os.getpid() if _held is not None else 0, ())  # between taking the lock and publishing


def _forget() -> None:
    global _held, _turn, _timing
    _turn, _timing = threading.Lock(), 0  # the threads that held it and that measured were not copied
    if _held is not None:
        _held.close()  # close, not unlock: unlocking here would take the lock from the parent
        _held = None


# A forked worker shares the lock's open file: without this it would keep the lock after the lab has died.
os.register_at_fork(after_in_child=_forget)
