"""A panel's page: settings, engine, buttons, and where everything stands. What runs is `running`, what is shown
`readout`, the guess `guess`."""

import threading
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.errors import BadInput
from labkit.measure.runner import Block
from labkit.notebook import render
from labkit.notebook.widgets import controls, export, handover, saved
from labkit.notebook.widgets.action import Action
from labkit.notebook.widgets.compare import Overlay
from labkit.notebook.widgets.explored import Table
from labkit.notebook.widgets.grid import Scan
from labkit.notebook.widgets.guess import GuessRow
from labkit.notebook.widgets.knobs import Knobs, Prompts
from labkit.notebook.widgets.link import Link
from labkit.notebook.widgets.queue import Queue
from labkit.notebook.widgets.readout import Readout
from labkit.notebook.widgets.running import LiveRun
from labkit.notebook.widgets.status import EngineStrip

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel


class Front:
    """All widgets of one panel; `part(name)` is what one cell shows."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        self._showing = False  # sliders show what runs; nobody moved them
        e = panel.experiment
        self.controls = {s.name: controls.control(s, e.values[s.name]) for s in e.settings}
        for name, control in self.controls.items():
            control.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        self.alert = controls.Alert()
        self._guarded = self.alert.guarded
        self.strip = EngineStrip(panel, self._guarded, self._announce)
        self.run_button = Action("Run", "play", "Measure these settings (stored results are not repeated).")
        self.sweep_button = Action("Sweep", "signal", "Measure the whole curve of this notebook.")
        self.again_button = Action(
            "Measure again", "repeat", "Add passes to the stored results; nothing is overwritten."
        )
        self.cancel_button = controls.button("Cancel", "stop", "Stop at once, also in the middle of a request.")
        self.queue_button = Action("Queue these settings", "plus", "Keep these settings for the next Run.")
        self.save_button = Action("Save parameters", "save", "Write these settings as YAML for `labkit run`.")
        self.report_button = controls.button("Export report", "file", "Write this notebook as one offline HTML file.")
        self.run_button.button_style = "primary"
        self.queue, self.saved = Queue(self._announce), Link()
        self.run, self.kept = LiveRun(panel, self), saved.Saved(panel.static, self._places)
        self.guess, self.readout = GuessRow(panel, self._gate), Readout(panel)
        self.explored = Table(panel.out_dir, self._guarded)
        self.explored_button = controls.button("Show all settings", "table", "Read every record in outputs/ again.")
        self.scan = Scan(self, list(self.controls.values())) if len(e.axes()) > 1 else None
        self.overlay = Overlay(panel)
        taken = {f.split(".")[0] for a in e.ladder for f in e.changed(a)}
        self.knobs = Knobs(e.params.engine, taken, self._engine, self._guarded)
        self.prompts = Prompts(panel.out_dir, self._own_prompts, self._guarded)
        self.more = W.Accordion([self.knobs.box, self.prompts.box], selected_index=None)
        for at, title in enumerate(("Engine settings", "Own prompts")):
            self.more.set_title(at, title)
        for action in (self.run_button, self.sweep_button, self.again_button, self.queue_button, self.save_button):
            action.carry(list(self.controls.values()))
        self._wire()
        handover.listen(self)
        self.panel.recall()
        self._gate()

    # --- parts -----------------------------------------------------------------------------------------------------

    def part(self, name: str) -> W.Widget:
        """The widgets of one cell: ask, predict, run, findings, summary."""
        shown = {"predict": self.readout.predicted, "findings": self.readout.lines, "summary": self.readout.block}
        made = self.guess.question() if name == "ask" else shown[name] if name in shown else self._desk()
        return saved.Alive(made)

    def _places(self, which: str) -> int:
        return self.panel.places if which == "run" else 0

    def _desk(self) -> W.Widget:
        """Knobs and state at the left, staying in view, and the figures beside them; below each other where narrow."""
        grid = W.VBox(list(self.controls.values()))
        grid.add_class("labkit-sliders")
        sweep = [self.sweep_button] if self.panel.experiment.sweep() else []
        actions = W.HBox(
            [self.run_button, *sweep, self.again_button, self.cancel_button, self.queue_button],
            layout=W.Layout(flex_flow="row wrap"),
        )
        knobs = W.VBox(
            [
                self.guess.row,
                grid,
                actions,
                self.run.bar,
                self.run.doing,
                self.alert,
                self.run.ticker.box,
                self.readout.note,
                self.readout.forecast,
                self.queue.box,
                self.strip.box,
                self.more,
            ]
        )
        knobs.add_class("labkit-knobs")
        desk = W.Box([knobs, self.readout.board])
        desk.add_class("labkit-desk")
        take = W.HBox(
            [self.save_button, self.report_button, self.explored_button], layout=W.Layout(flex_flow="row wrap")
        )
        grid = [self.scan.box] if self.scan else []
        parts = [desk, *grid, take, self.saved, self.explored.box, self.overlay.box]
        whole = W.VBox(parts, layout=W.Layout(width="100%"))
        whole.add_class("labkit-run")
        return whole

    def _wire(self) -> None:
        self.run_button.on_click(lambda _: self.run.start())
        self.sweep_button.on_click(lambda _: self.run.start(sweep=True))
        self.again_button.on_click(lambda _: self.run.start(again=True))
        self.cancel_button.on_click(lambda _: self.run.cancel())
        self.queue_button.on_click(lambda _: self._enqueue())
        self.explored_button.on_click(lambda _: self._guarded(self.explored.refresh))
        self.save_button.on_click(lambda _: self._guarded(lambda: self.saved.show(export.save_parameters(self.panel))))
        self.report_button.on_click(lambda _: self._guarded(self._export))
        self.strip.take_button.on_click(lambda _: self._take_over())

    # --- guess and settings ----------------------------------------------------------------------------------------

    def _gate(self) -> None:
        """Show what the open guess held back."""
        shut = self.panel.veiled
        self.guess.show()
        grid = [self.scan.box] if self.scan else []
        for held in (self.overlay.box, self.explored.box, self.explored_button, *grid):
            held.layout.display = "none" if shut else ""
        if not shut:  # the first prediction on a machine takes seconds, and Run is locked until it is there
            self.run.doing.value = render.note("predicting: this machine's rates are probed once")
        self._show()
        self.run.forget()
        self._buttons()
        self._guarded(self.kept.refresh)
        if not shut:
            self._guarded(self.explored.refresh)

    def _moved(self, name: str, value: object) -> None:
        if self._showing:
            return
        if self.run.hold(name, value):
            waits = "Settings changed: the current run keeps its own; these apply after it."
            self.readout.note.value = render.note(waits)
            return
        self._set(name, value)
        self.run.forget()
        self._recall()

    def _set(self, name: str, value: object) -> None:
        """A setting of the experiment, where the value fits it."""
        setting = next(s for s in self.panel.experiment.settings if s.name == name)
        self._guarded(lambda: self.panel.experiment.values.__setitem__(name, setting.check(value)))

    def _recall(self) -> None:
        """Show what the store knows of the present settings."""
        self._guarded(self.panel.recall)
        self._show()

    def _show(self) -> None:
        self.refresh(final=True)
        self._announce()

    def _announce(self) -> None:
        def say():
            self.readout.announce(self._queued_blocks() if self.queue.items and not self.busy else None)
            if not self.busy and not self.panel.veiled:
                self.strip.enable(True)
            if self.scan:
                self.scan.announce()

        self._guarded(say)

    def _enqueue(self) -> None:
        values = {**self.panel.experiment.values, **self.run.moved}
        label = ", ".join(f"{s.label} {values[s.name]}" for s in self.panel.experiment.settings)
        self.queue.add(label, values)
        if not self.busy:
            self._announce()

    def _queued_blocks(self) -> list[Block]:
        """What the queued settings have to measure, with their sliders' values for a moment."""
        values = self.panel.experiment.values
        present, blocks = dict(values), []
        try:
            for _, queued in self.queue.items:
                values.update(queued)
                blocks += self.panel.blocks()
        finally:
            values.update(present)
        return blocks

    def _engine(self, section: dict) -> None:
        """Other engine settings: the same experiment on them. Raises BadInput and leaves all as it was."""
        self.panel.rebuild(section)
        self._recall()

    def _own_prompts(self, workload: str, count: int) -> None:
        """A load of the reader's own in the menu, and chosen."""
        e = self.panel.experiment
        if "workload" not in self.controls:
            raise BadInput("prompts", workload, "a notebook that offers a load")
        self._guarded(lambda: e.values.__setitem__("count", min(e.values["count"], count)))
        self._showing = True
        self.controls["count"].value = e.values["count"]
        self._showing = False
        e.offer("workload", workload)
        self.controls["workload"].options = [*self.controls["workload"].options, workload]
        self.controls["workload"].value = workload

    # --- a run (running.Page) --------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self.run.busy

    def begun(self) -> None:
        self.readout.hush()
        self._buttons()

    def apply(self, values: dict) -> None:
        if values == self.panel.experiment.values:
            return
        self.panel.experiment.values.update(values)
        self._showing = True
        for name, control in self.controls.items():
            control.value = values[name]
        self._showing = False
        self.panel.recall()

    def refresh(self, *, final: bool = False) -> None:
        self._guarded(lambda: self.readout.draw(final=final))

    def ended(self, measured: bool) -> None:
        self._show()
        self._guarded(self.strip.refresh)
        self.overlay.refresh()
        if measured:
            self._guarded(self.explored.refresh)
            if self.scan:
                self._guarded(self.scan.draw)
        self._guarded(self.kept.refresh)

    def idle(self, moved: dict) -> None:
        values = self.panel.experiment.values
        if any(values[name] != value for name, value in moved.items()):
            for name, value in moved.items():
                self._set(name, value)
            self._recall()
        self._buttons()

    def _buttons(self) -> None:
        """On where a press would do something."""
        for button in (self.save_button, self.report_button):
            button.disabled = self.busy
        grid = [self.scan.go] if self.scan else []
        for button in (self.run_button, self.sweep_button, self.again_button, *grid):
            button.disabled = self.busy or self.panel.veiled
        self.queue_button.disabled = self.panel.veiled
        self.cancel_button.disabled = not self.busy
        self.strip.enable(not self.busy)

    # --- engines of other notebooks, reports -----------------------------------------------------------------------

    def owner_changed(self) -> None:
        """Another notebook's engines have come or gone."""
        if not self.busy and not self.panel.runner.pool.running():
            self._guarded(self.strip.refresh)

    def yield_engines(self) -> None:
        """Another notebook asked for them."""
        self.panel.runner.pool.stop()
        self._guarded(self.strip.handed_over)
        self._announce()

    def _take_over(self) -> None:
        def work():
            self.strip.say("asking the other notebook to stop its engine")
            self._guarded(handover.ask)
            self._guarded(self.strip.refresh)

        threading.Thread(target=work, daemon=True).start()

    def _export(self) -> None:
        """Some seconds: every figure is drawn as a picture too."""
        self.report_button.disabled, self.report_button.icon = True, "spinner"
        try:
            self.saved.show(export.export_report(self.panel))
        finally:
            self.report_button.disabled, self.report_button.icon = False, "file"
