"""One line of progress: rewritten in place on a terminal, plain lines now and then anywhere else."""

import shutil
import time
from typing import TextIO

from labkit.units import minutes

EVERY_S = 10.0  # between plain lines of one stage


class Line:
    """Use as a context manager; `tell(text, seconds left)` shows what happens now. stage: the text up to a colon or
    comma, whose change is always shown."""

    def __init__(self, out: TextIO, clock=time.monotonic):
        self._out, self._clock = out, clock
        self._live = out.isatty()
        self._began, self._shown, self._stage = clock(), float("-inf"), ""

    def tell(self, text: str, left_s: float | None = None) -> None:
        """Show this now."""
        now = self._clock()
        left = "" if left_s is None else f", about {minutes(left_s)} left"
        line = f"[{minutes(now - self._began)}] {text}{left}"
        if self._live:
            columns = shutil.get_terminal_size().columns
            self._write("\r\x1b[2K" + line[: columns - 1])
            return
        stage = "" if text[:1].isdigit() else text.partition(",")[0]
        if stage != self._stage or now - self._shown >= EVERY_S:
            self._stage, self._shown = stage, now
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_) -> None:
        if self._live:
            self._write("\r\x1b[2K")
