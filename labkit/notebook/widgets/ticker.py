"""What a run does at this moment: tokens/s, acceptance, the engine's share of a core, how steady the passes are."""

import threading
import time
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.measure import estimates
from labkit.notebook import render

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

EVERY_S = 0.5
TEXT = 300  # characters of the newest answer that are shown


class Ticker:
    """One line that moves while requests stream, and the newest answer's text."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        self.line, self.text = W.HTML(), W.HTML()
        self.box = W.VBox([self.line, self.text])
        self._seen: list[tuple[float, int]] = []  # (time, tokens) of the stream's events
        self._row: dict | None = None
        self._stop = threading.Event()

    def heard(self, _: float, tokens: int) -> None:
        """An event of a stream: called between two of them, so it only notes."""
        self._seen.append((time.monotonic(), tokens))

    def row(self, row: dict | None) -> None:
        """A request has ended."""
        if row is not None:
            self._row, self._seen = row, []

    def start(self) -> None:
        """Tick until `stop`."""
        self._row, self._seen = None, []
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
                told = " ".join((self._row.get("text") or "").split())
                self.text.value = render.note(f"{self._row['arm']} wrote: {told[:TEXT]}") if told else ""
            self.line.value = f"{render.note(' · '.join(filter(None, parts)))} {self.badge()}"

    def _rate(self) -> str:
        seen = self._seen[-64:]
        spent = seen[-1][0] - seen[0][0] if len(seen) > 1 else 0
        return f"{sum(n for _, n in seen[1:]) / spent:.0f} tok/s" if spent > 0 else ""
