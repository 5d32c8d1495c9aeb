"""Headless measurements take turns: the second waits, with a word and a limit, until the machine is free."""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from labkit.engines import owner
from labkit.errors import LabError

WAIT_S = 3600.0  # a full book of notebooks takes less
VARIABLE = "LABKIT_WAIT_S"  # the limit for kernels that a headless run starts
_POLL_S = 0.5

Say = Callable[[str], None]


class Busy(LabError):
    """Somebody else measures on this machine, for longer than one was ready to wait."""


def wait_s() -> float:
    """How long a headless notebook waits for the engines: $LABKIT_WAIT_S, else an hour."""
    try:
        return float(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return WAIT_S


@contextmanager
def turn(what: str, limit_s: float, say: Say, urls: Collection[str] = ()) -> Iterator[None]:
    """Hold the machine for a measurement; `what` is what others are told. Raises Busy after limit_s seconds (0: at
    once) of waiting for another run or for a lab that owns engines.

    urls: servers to be measured; the lab that owns one of them is waited for only while it measures: it may keep its
    idle engines for days.
    """
    until = time.monotonic() + limit_s
    with open(owner.runtime_dir() / "run.lock", "a+") as file:
        _await(lambda: _locked(file), lambda: _other_run(file), until, limit_s, say)
        file.truncate(0)
        file.write(f"{os.getpid()} {what}")
        file.flush()
        wait_for_engines(limit_s, say, until, urls)
        yield


def wait_for_engines(limit_s: float, say: Say, until: float | None = None, urls: Collection[str] = ()) -> None:
    """Return when no other lab owns engines on this machine, except idle ones at `urls`. Raises Busy after limit_s
    seconds."""
    until = time.monotonic() + limit_s if until is None else until
    ports = {_port(url) for url in urls} - {None}

    def free() -> bool:
        seen = owner.owner()
        return (
            seen is None or seen.mine or (not seen.measuring and bool(ports & {_port(e["url"]) for e in seen.engines}))
        )

    _await(free, _other_lab, until, limit_s, say)


def _port(url: str) -> int | None:
    """The port of an address on this machine, whose host has several names; None elsewhere."""
    parts = urlsplit(url)
    return parts.port if parts.hostname in ("127.0.0.1", "localhost", "::1") else None


def _await(free: Callable[[], bool], who: Callable[[], str], until: float, limit_s: float, say: Say) -> None:
    told = ""
    while not free():
        now = who()
        if time.monotonic() >= until:
            waited = f"waited {limit_s:g} s" if limit_s else "not waiting, as asked"
            raise Busy(f"{now}; {waited}: two at once would measure each other. Run again when it is done")
        if now != told:
            say(f"{now}: waiting for it, at most {limit_s / 60:.0f} min (Ctrl-C ends the wait)")
            told = now
        time.sleep(_POLL_S)


def _locked(file) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _other_run(file) -> str:
    file.seek(0)
    pid, _, what = file.read().partition(" ")
    return f"another run measures on this machine (process {pid}: {what})" if pid else "another run is starting here"


def _other_lab() -> str:
    seen = owner.owner()
    if seen is None:
        return "another lab is just ending"
    where = f" at {seen.url}" if seen.url else ", which is starting"
    if seen.measuring or not seen.url:
        return f"{notebook_of(seen.pid)} {'measures' if seen.url else 'runs'} an engine{where}"
    return f"{notebook_of(seen.pid)} keeps an idle engine{where}: stop it there, or measure that one by its address"


def notebook_of(pid: int) -> str:
    """The notebook behind a process, as far as its environment can be read."""
    import psutil

    try:
        name = psutil.Process(pid).environ().get("JPY_SESSION_NAME", "")
    except psutil.Error:
        name = ""
    return f"{name.rsplit('/', 1)[-1]} (process {pid})" if name else f"process {pid}"
