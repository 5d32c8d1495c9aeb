"""The engine's strip in a panel: what runs, start and stop, its log and its resolved configuration."""

import collections
import html
import json
import os.path
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.engines.process import owner
from labkit.engines.turn import notebook_of
from labkit.errors import LabError
from labkit.measure.pool import engine_name
from labkit.measure.results import Arm
from labkit.notebook import render
from labkit.notebook.widgets import controls

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

KEPT_LINES = 60


def _names(arms: Sequence[Arm]) -> dict[str, str]:
    """What engines are called, by configuration: as their arm, or by what the names of several loads' arms share."""
    words: dict[str, list[list[str]]] = {}
    for a in arms:
        words.setdefault(a.config.digest(), []).append(a.name.split())
    shared = {digest: os.path.commonprefix(names) for digest, names in words.items()}
    return {d: " ".join(w[:-1] if w[1:] and w[-1] in ("on", "at") else w) for d, w in shared.items()}


class EngineStrip:
    """State, buttons, log and configuration of the kernel's engines. changed: called after a start or stop by hand."""

    def __init__(
        self, panel: "Panel", guarded: Callable[[Callable[[], None]], None], changed: Callable[[], None] = lambda: None
    ):
        self.panel, self._guarded, self._changed = panel, guarded, changed
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self.state, self._handed_over = W.HTML(), False
        self.start_button = controls.button("Start engine", "power-off", "Start the engine with these settings now.")
        self.stop_button = controls.button("Stop engine", "ban", "Stop every engine of this notebook.")
        self.take_button = controls.button("Take over", "exchange", "Ask the other notebook to stop its engine.")
        self.log_view, self.config_view = W.HTML(), W.HTML()
        self.details = W.Accordion([self.log_view, self.config_view], selected_index=None)
        self.details.set_title(0, "Engine log")
        self.details.set_title(1, "Resolved configuration")
        self.box = W.VBox([W.HBox([self.start_button, self.stop_button, self.take_button]), self.state, self.details])
        self.start_button.on_click(lambda _: self._start())
        self.stop_button.on_click(lambda _: self._stop())
        self._guarded(self.refresh)

    def log(self, line: str) -> None:
        """One more line of the engine's log or of its start."""
        self._lines.append(line)
        self._show_log()

    def say(self, text: str) -> None:
        """A state of its own until the next refresh."""
        self.state.value = render.note(text)

    def enable(self, on: bool) -> None:
        """Buttons that would do something: none during a run, else Start before one is there, Stop after."""
        pool = self.panel.runner.pool
        self.start_button.disabled = not on or not any(pool.needs_start(a.config) for a in self.panel.arms()[:1])
        self.stop_button.disabled = not on or not pool.running()
        found = owner()
        self.take_button.layout.display = "none" if found is None or found.mine else ""

    def refresh(self) -> None:
        """State, log tail and configuration as they are now."""
        running = self.panel.runner.pool.running()
        if running:
            self._handed_over = False
            # An arm of the panel by its name; what another panel of this kernel started, by its engine.
            names = _names([*self.panel.arms(sweep=True), *self.panel.arms()])
            text = "; ".join(
                f"{names.get(e.config.digest()) or engine_name(e)} at {e.url}"
                + (f", started in {e.start_seconds:.1f} s" if e.start_seconds else "")
                for e in running
            )
            self.state.value = render.note(f"running: {text}")
            for engine in running:
                if hasattr(engine, "tail"):
                    self._lines.extend(line for line in engine.tail(20) if line not in self._lines)
            infos = {e.url: e.server_info() for e in running}
            document = html.escape(json.dumps(infos, indent=1, default=str))
            self.config_view.value = f"<pre class='labkit-log'>{document}</pre>"
        else:
            self.state.value = render.note(self._idle())
        self._show_log()
        self.enable(True)

    def handed_over(self) -> None:
        """Another notebook asked for the engines and has them; said until one runs here again."""
        self._handed_over = True
        self.refresh()

    def _idle(self) -> str:
        found, before = owner(), "another notebook took over; " if self._handed_over else ""
        if found is None or found.mine:
            return f"{before}no engine runs; Run starts what it needs"
        who = notebook_of(found.pid)
        return (
            f"{before}{who} owns an engine at {found.url}: identical settings reuse it; otherwise stop it there first"
        )

    def _show_log(self) -> None:
        text = html.escape("\n".join(self._lines)) or "nothing logged yet"
        self.log_view.value = f"{render.STYLE}<pre class='labkit-log'>{text}</pre>"

    def _start(self) -> None:
        """Start the engines of the present settings, in a thread: a start can take minutes on a GPU."""

        def work():
            try:
                arms = self.panel.arms()[:1]
                self.panel.runner.pool.ensure(
                    [a.config for a in arms],
                    self.panel.out_dir / "engine",
                    cancel=self.panel.cancel,
                    on_event=lambda e: self.log(e.text),
                )
            except LabError as e:
                self._lines.extend(str(e).splitlines())
                self.state.value = render.note(str(e).splitlines()[0], "alert")
                self._show_log()
            else:
                self._guarded(self.refresh)
                self._changed()
            finally:
                self.enable(True)

        self.enable(False)
        self.panel.cancel.clear()
        self.state.value = render.note("starting")
        threading.Thread(target=work, daemon=True).start()

    def _stop(self) -> None:
        self.panel.runner.pool.stop()
        self._guarded(self.refresh)
        self._changed()
