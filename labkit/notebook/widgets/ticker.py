"""What a run does at this moment: tokens/s, acceptance, the engine's share of a core, how steady the passes are, and
the text as it is written."""

import html
import threading
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.measure import estimates
from labkit.measure.answer import Answer
from labkit.measure.wire import RequestError
from labkit.notebook import render

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

EVERY_S = 0.5
TEXT = 300  # characters of the newest answer that are shown
EVENTS = 64  # of the stream, for its speed


class Ticker:
    """A line that moves while requests stream, and a box with the end of the text that is being written.

    A thread of its own looks at the answer twice a second; the one that measures does nothing for it.
    """

    def __init__(self, panel: "Panel"):
        self.panel = panel
        self.line, self.text = W.HTML(), W.HTML()
        self.box = W.VBox([self.line, self.text])
        self._now: tuple[str, Answer] | None = None
        self._row: dict | None = None
        self._stop = threading.Event()

    def watch(self, arm: str, answer: Answer) -> None:
        """An answer is about to stream."""
        self._now = (arm, answer)

    def row(self, row: dict | None) -> None:
        """A request has ended."""
        if row is not None:
            self._row = row

    def start(self) -> None:
        """Tick until `stop`."""
        self._row = self._now = None
        self._stop = threading.Event()
        threading.Thread(target=self._tick, args=(self._stop,), daemon=True).start()

    def stop(self) -> None:
        """Leave the badge, which belongs to the result."""
        self._stop.set()
        self.text.value = ""
        self.line.value = self.badge()

    def badge(self) -> str:
        """How far the passes of the shown results lie apart, in words and a colour; "" before two passes."""
        spreads = [r.estimates.tpot.spread for r in self.panel.results.values() if r.used]
        passes = max((r.estimates.tpot.repeats for r in self.panel.results.values() if r.used), default=0)
        if passes < 2:
            return ""
        noisy = max(spreads) > estimates.UNSTABLE
        what = "noisy" if noisy else "steady"
        return f"<span class='labkit-badge labkit-{what}'>{what}: passes differ by {max(spreads):.0%}</span>"

    def _tick(self, stop: threading.Event) -> None:
        while not stop.wait(EVERY_S):
            parts = [self._rate()]
            if self._row is not None:
                if self._row.get("accept_length"):
                    parts.append(f"a {self._row['accept_length']:.2f}")
                share = estimates.core_share(self._row)
                if share is not None:
                    parts.append(f"core {share:.0%}")
            line, text = f"{render.note(' · '.join(filter(None, parts)))} {self.badge()}", self._writing()
            if stop.is_set():
                return
            self.line.value, self.text.value = line, text or self.text.value

    def _writing(self) -> str:
        """The end of the text that streams now, escaped; "" before there is any."""
        if self._now is None:
            return ""
        arm, answer = self._now
        try:
            text = answer.so_far(TEXT)
        except RequestError:  # the stream is broken: the run says so
            return ""
        told = " ".join(text.split())
        box = f"<div class='labkit-writing'><span>{html.escape(told)}</span></div>"
        return f"<b>{html.escape(arm)}</b>{box}" if told else ""  # the box shows the text's end, so the name is outside

    def _rate(self) -> str:
        if self._now is None:
            return ""
        r = self._now[1].result
        tokens = list(r.chunk_tokens)  # the shorter one: an event's time is noted first
        times, tokens = r.chunk_times[: len(tokens)][-EVENTS:], tokens[-EVENTS:]
        if len(tokens) < 2:
            return ""
        if tokens[0] is None or tokens[-1] is None:  # a server that tells no count: an event a token
            tokens = list(range(len(tokens)))
        spent = times[-1] - times[0]
        return f"{(tokens[-1] - tokens[0]) / spent:.0f} tok/s" if spent > 0 else ""
