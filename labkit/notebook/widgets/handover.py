"""Engines change hands: a notebook that wants them asks, the one that has them stops them unless it is measuring."""

import os
import threading
import time
import weakref
from typing import Protocol

from labkit.engines import owner as ownership
from labkit.engines.turn import notebook_of
from labkit.errors import LabError

REQUEST = "hand-over"  # a file in the runtime directory: the process that is asked
LIMIT_S = 20.0
EVERY_S = 0.5


class Holder(Protocol):
    """A panel's front: `busy` while it measures; `yield_engines` stops them and says so; `owner_changed` is told when
    the engines of another notebook have come or gone."""

    busy: bool

    def owner_changed(self) -> None: ...

    def yield_engines(self) -> None: ...


_holders: "weakref.WeakSet[Holder]" = weakref.WeakSet()
_watch: threading.Thread | None = None


def listen(holder: Holder) -> None:
    """From now on answer requests of other notebooks for this kernel's engines."""
    global _watch
    _holders.add(holder)
    if _watch is None:
        _watch = threading.Thread(target=_answer, daemon=True)
        _watch.start()


def ask(limit_s: float = LIMIT_S) -> None:
    """Have the engines' owner stop them. Raises LabError when it does not within limit_s seconds."""
    seen = ownership.owner()
    if seen is None or seen.mine:
        return
    path, until = ownership.runtime_dir() / REQUEST, time.monotonic() + limit_s
    path.write_text(str(seen.pid), encoding="utf-8")
    try:
        while time.monotonic() < until:
            now = ownership.owner()
            if now is None or now.pid != seen.pid:
                return
            time.sleep(EVERY_S)
    finally:
        path.unlink(missing_ok=True)
    raise LabError(
        f"{notebook_of(seen.pid)} did not hand over its engine within {limit_s:.0f} s: it is measuring, or no panel is"
        " open in it. Press Cancel and Stop engine there, or shut its kernel down."
    )


def _answer() -> None:
    mine, before = str(os.getpid()), None
    while True:
        time.sleep(EVERY_S)
        before = _told(before)
        try:
            asked = (ownership.runtime_dir() / REQUEST).read_text(encoding="utf-8") == mine
        except (OSError, LabError):
            continue
        if asked and not any(h.busy for h in list(_holders)):
            for holder in list(_holders):
                holder.yield_engines()


def _told(before: tuple | None) -> tuple | None:
    """Tell the panels where the engines' owner is another one than `before`; returns the present sign of it."""
    try:
        now = ownership.sign()
    except LabError:
        return before
    if before is not None and now != before:
        for holder in list(_holders):
            holder.owner_changed()
    return now
