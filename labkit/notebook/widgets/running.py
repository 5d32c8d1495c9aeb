"""A panel's run: a thread of its own, so that Cancel and the sliders stay alive, with its bar and its line of text.

Between requests the figures are refreshed at most every half second: the browser that draws them shares this machine's
cores with the engine.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import ipywidgets as W

from labkit.errors import LabError
from labkit.measure.runner import Block, Progress
from labkit.notebook import render
from labkit.notebook.widgets.controls import Alert
from labkit.notebook.widgets.queue import Queue
from labkit.notebook.widgets.status import EngineStrip
from labkit.notebook.widgets.ticker import Ticker
from labkit.units import minutes

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

REFRESH_S = 0.5


class Page(Protocol):
    """What a run needs of the page that it is on."""

    queue: Queue
    strip: EngineStrip
    alert: Alert

    def begun(self) -> None:
        """A run is under way from here on."""

    def apply(self, values: dict) -> None:
        """Make these settings the present ones and show them: nobody moved the sliders."""

    def refresh(self, *, final: bool = False) -> None:
        """Draw the present results; final: all of them, in words too."""

    def ended(self, measured: bool) -> None:
        """Show everything that the last line points to; it is not said before."""

    def idle(self, moved: dict) -> None:
        """The run is over. moved: settings by name that were moved meanwhile."""


class LiveRun:
    """The run under way; its own settings hold until it has ended."""

    def __init__(self, panel: "Panel", page: Page):
        self.panel, self.page = panel, page
        self.bar = W.IntProgress(min=0, max=1, value=0, layout=W.Layout(width="260px", display="none"))
        self.doing = W.HTML()
        self.ticker = Ticker(panel)
        panel.runner.watch = self.ticker.watch
        self.busy = False
        self._thread: threading.Thread | None = None
        self._state = threading.Lock()
        self._moved: dict[str, object] = {}
        self._measured = False  # did the run under way measure anything?
        self._drawn = 0.0

    def start(self, *, sweep: bool = False, again: bool = False) -> None:
        """Measure the queue and the present settings, unless a run is under way."""
        self.launch(lambda: self._measure_all(sweep=sweep, again=again))

    def launch(self, job: Callable[[], str | None]) -> None:
        """Begin a job that measures, unless one is under way. What it returns is said at its end, None: what a run of
        the panel came to."""
        with self._state:
            if self.busy:
                return
            self.busy = True
        self.panel.cancel.clear()
        self.page.alert.value = ""
        self.page.begun()
        self.bar.value, self.bar.layout.display = 0, "none"
        self.ticker.start()
        self.page.strip.say("busy: see the line beside the progress bar")
        self._thread = threading.Thread(target=self._work, args=(job,), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        self.panel.cancel.set()
        self.doing.value = render.note("cancelling")

    def hold(self, name: str, value: object) -> bool:
        """Keep a setting that was moved for after the run; False when none is under way."""
        with self._state:
            if self.busy:
                self._moved[name] = value
            return self.busy

    @property
    def moved(self) -> dict[str, object]:
        """Settings that wait for the run's end."""
        return dict(self._moved)

    def forget(self) -> None:
        """What the last run came to belongs to other settings."""
        self.doing.value, self.bar.layout.display = "", "none"

    def _measure_all(self, *, sweep: bool, again: bool) -> None:
        present, queue = dict(self.panel.experiment.values), self.page.queue
        while queue.items and not self.panel.cancel.is_set():
            self.page.apply(queue.next())
            self._measure(sweep=False, again=again)
        if not self.panel.cancel.is_set():
            self.page.apply(present)
            self._measure(sweep=sweep, again=again)

    def _work(self, job: Callable[[], str | None]) -> None:
        began, self._measured, alert = time.monotonic(), False, ""
        try:
            said = job()
            end = "cancelled" if self.panel.cancel.is_set() else said or self._done(time.monotonic() - began)
        except LabError as e:
            stopped = self.panel.cancel.is_set()
            end = "cancelled" if stopped else "failed: see below; the notebook goes on"
            alert = "" if stopped else render.note(str(e), "alert")
        except Exception as e:  # a thread's exception would vanish; the panel must say it
            end, alert = "failed: see below", render.note(f"{type(e).__name__}: {e}", "alert")
        self._finish(end, alert)

    def _finish(self, end: str, alert: str) -> None:
        try:
            self.ticker.stop()
            self.page.ended(self._measured)
        finally:
            self.page.alert.value = alert or self.page.alert.value
            self.doing.value = render.note(end)
            with self._state:
                moved, self._moved, self.busy = self._moved, {}, False
            self.page.idle(moved)

    def _measure(self, *, sweep: bool, again: bool) -> None:
        blocks = self.panel.blocks(sweep=sweep, again=again)
        if not blocks:
            return
        for progress in self.watch(blocks):
            now = time.monotonic()
            if now - self._drawn < REFRESH_S and progress.done < progress.total:
                continue
            self._drawn = now
            left = f", about {minutes(progress.eta_s)} left" if progress.eta_s else ""
            self.say(progress, f"{progress.done} of {progress.total}: {progress.text}{left}")
            self.page.refresh()

    def watch(
        self, blocks: Sequence[Block], label: str = "", enough: Callable[[], bool] = lambda: False
    ) -> Iterator[Progress]:
        """Measure blocks into a record of their own; what streams is on the page. enough: as of Panel.measure."""
        self._measured, self.bar.layout.display = True, ""
        self.doing.value = render.note("starting")
        writer = self.panel.writer(label)
        for progress in self.panel.measure(blocks, writer, tell=self._heard, enough=enough):
            self.ticker.row(progress.row)
            if progress.text == "warming up":
                self.page.alert.guarded(self.page.strip.refresh)
                self.page.strip.enable(False)
            yield progress

    def say(self, progress: Progress, text: str) -> None:
        """Where it stands, as a bar and in words."""
        self.bar.max, self.bar.value = max(1, progress.total), progress.done
        self.doing.value = render.note(text)

    def _heard(self, line: str) -> None:
        """A line of an engine's start or log: into the fold, and a phase of the start beside the progress bar too."""
        self.page.strip.log(line)
        if line.startswith("phase: "):
            text = f"starting the engine: {line.removeprefix('phase: ')} (a first start takes a few seconds to compile)"
            self.doing.value = render.note(text)

    def _done(self, seconds: float) -> str:
        """What a run came to, in the line that the reader looks at: the rest is further down."""
        if not self._measured:
            return "nothing to measure: these settings have been measured already; Measure again adds passes"
        times = [f"{r.name} {r.tpot.to('ms').quantity('.3g')}" for r in self.panel.results.values() if r.used]
        more = f" and {len(times) - 4} more" if len(times) > 4 else ""
        found = f": TPOT {', '.join(times[:4])}{more}; the table is below the figures" if times else ""
        return f"done in {minutes(seconds)}{found}"
