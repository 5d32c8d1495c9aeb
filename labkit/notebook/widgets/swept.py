"""A sweep at a front end: its figures follow the folder while any process works on it, and points can be clicked."""

import threading
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit import disk
from labkit.errors import LabError
from labkit.figures import live
from labkit.figures.show import bundle
from labkit.notebook import render
from labkit.notebook.widgets import controls
from labkit.notebook.widgets.saved import Alive, Outputs, Saved
from labkit.records.sweep import RUNNING, SweepRun
from labkit.report import sweep as parts

if TYPE_CHECKING:
    from labkit.notebook.swept import Swept

EVERY_S = 2.0  # how often the folder of a running sweep is looked at
PICTURES = 6
CLICK = "Click a point, or choose a configuration: its command line, record and params file are shown here."


class Watcher:
    """The figures of a sweep, what it does now, and one chosen configuration.

    `thread` looks at the folder while the sweep runs, and ends when the sweep does; Look again starts it anew.
    """

    def __init__(self, lab: "Swept"):
        self.lab, self.sweep = lab, lab.read()
        self.status, self.chosen, self.board = W.HTML(), W.HTML(), live.Board(on_click=self.choose)
        self.chosen.layout = W.Layout(max_height="340px", overflow="auto")  # a click must not move its point away
        self.menu = controls.menu("configuration", [("", "")], "", CLICK, "420px")
        self.again = controls.button("Look again", "refresh", "Read the sweep's folder anew, and follow it if it runs.")
        self.save = controls.button("Save params file", "save", "Write the chosen configuration for labkit ladder -f.")
        self.menu.observe(lambda change: self._shown(change["new"]), "value")
        self.note = controls.Alert()
        self.again.on_click(lambda _: self.note.guarded(self.follow))
        self.save.on_click(lambda _: self.note.guarded(self._written))
        tools = W.HBox([self.menu, self.save, self.again], layout=W.Layout(flex_flow="row wrap"))
        self.box = W.VBox([self.status, tools, self.note, self.chosen, self.board], layout=W.Layout(width="100%"))
        self.thread: threading.Thread | None = None
        self._stop, self._seen, self._figures = threading.Event(), None, []
        self._saved = Saved(self._plain, lambda which: 1 + PICTURES)

    def show(self) -> None:
        """Display, and follow the sweep if it runs."""
        from IPython.display import display

        display(Alive(self.box))
        self._saved.place("run", empty=True)
        self.follow()

    def follow(self) -> None:
        """Read the folder now, and again and again while the sweep runs."""
        self._stop.set()
        self._seen = None
        if self.refresh() != RUNNING:
            return
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._poll, args=(self._stop,), daemon=True, name="sweep")
        self.thread.start()

    def refresh(self) -> str:
        """Read the folder; draw anew where it has changed. Returns how the sweep stands."""
        self.sweep = run = self.lab.read()
        for chosen in (self.menu, self.save):  # without a sweep there is nothing to choose
            chosen.layout.display = "none" if run is None else ""
        if run is None:
            self.status.value = render.note(self.lab.none())
            self.board.show([])
            return ""
        state = run.state
        self.status.value = render.note(parts.standing(run))
        stamp = state, run.directory, len(run.lines)  # drawing takes a core that a measurement may need
        if stamp != self._seen:
            self._seen = stamp
            self._figures = parts.drawn(run)
            self.board.show(self._figures)
            self._menu(run)
            self.lab.renew()
            if state != RUNNING:
                self._saved.refresh()
        return state

    def choose(self, name: str) -> None:
        """Show this configuration, as a click on its point does."""
        if any(value == name for _, value in self.menu.options):
            self.menu.value = name

    def _poll(self, stop: threading.Event) -> None:
        while not stop.wait(EVERY_S):
            try:
                if self.refresh() != RUNNING:
                    return
            except (LabError, OSError) as e:  # the folder was moved away
                self.status.value = render.note(str(e), "alert")
                return

    def _menu(self, run: SweepRun) -> None:
        options = [("", ""), *((f"{r['config']}: {r['status']}", r["config"]) for r in run.rows)]
        if list(self.menu.options) != options:
            kept = self.menu.value
            self.menu.options = options
            self.menu.value = kept if any(v == kept for _, v in options) else ""
        self._shown(self.menu.value)

    def _shown(self, name: str) -> None:
        self.save.disabled = not name
        self.chosen.value = self.lab.details(self.sweep, name) if name else render.note(CLICK)

    def _written(self) -> None:
        text = self.lab.params_text(self.sweep, self.menu.value)
        path = disk.fresh(self.lab.out_dir, f"{self.menu.value}-params", ".yaml")
        disk.write_text(path, text, "the sweep is kept")
        self.note.value = render.note(f"written: {path}")

    def _plain(self, which: str) -> Outputs:
        """What stays in the notebook's file."""
        said = parts.standing(self.sweep) if self.sweep is not None else self.lab.none()
        return [({"text/plain": said}, {}), *map(bundle, self._figures)]
