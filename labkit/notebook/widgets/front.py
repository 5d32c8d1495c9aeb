"""The widgets of a panel: settings, engine, run and cancel, progress, live figures, comparison, export.

Long work runs in a thread of its own, so that Cancel and the sliders stay alive. Between requests the figures are
refreshed at most every half second: the browser that draws them shares this machine's cores with the engine.
"""

import html
import threading
import time
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.errors import BadInput, LabError
from labkit.evidence import Evidence
from labkit.figures import live
from labkit.measure.runner import Block
from labkit.notebook import render
from labkit.notebook.gate import OPEN
from labkit.notebook.widgets import controls, export, handover, saved
from labkit.notebook.widgets.compare import Overlay
from labkit.notebook.widgets.explored import Table
from labkit.notebook.widgets.knobs import Knobs, Prompts
from labkit.notebook.widgets.link import Link
from labkit.notebook.widgets.queue import Queue
from labkit.notebook.widgets.status import EngineStrip
from labkit.notebook.widgets.ticker import Ticker
from labkit.units import minutes

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

REFRESH_S = 0.5


class Front:
    """All widgets of one panel; `part(name)` is what one cell shows."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        self._thread: threading.Thread | None = None
        self._measured = False  # did the run under way measure anything?
        self._state = threading.Lock()
        self._running = False  # the run's own settings hold until it has ended
        self._pending: dict[str, object] = {}  # settings moved meanwhile
        self._drawn = 0.0
        self._building = True
        e = panel.experiment
        self.controls = {s.name: controls.control(s, e.values[s.name]) for s in e.settings}
        for name, control in self.controls.items():
            control.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        self.strip = EngineStrip(panel, self._guarded)
        self.run_button = controls.button("Run", "play", "Measure these settings (stored results are not repeated).")
        self.sweep_button = controls.button("Sweep", "signal", "Measure the whole curve of this notebook.")
        self.again_button = controls.button(
            "Measure again", "repeat", "Add passes to the stored results; nothing is overwritten."
        )
        self.cancel_button = controls.button("Cancel", "stop", "Stop at once, also in the middle of a request.")
        self.queue_button = controls.button("Queue these settings", "plus", "Keep these settings for the next Run.")
        self.save_button = controls.button("Save parameters", "save", "Write these settings as YAML for `labkit run`.")
        self.report_button = controls.button("Export report", "file", "Write this notebook as one offline HTML file.")
        self.run_button.button_style = "primary"
        self.cancel_button.disabled = True
        self.bar = W.IntProgress(min=0, max=1, value=0, layout=W.Layout(width="260px", display="none"))
        self.doing, self.forecast, self.note = W.HTML(), W.HTML(), W.HTML()
        self.alert = W.HTML()
        self.queue, self.saved = Queue(self._announce), Link()
        self.ticker, self.kept = Ticker(panel), saved.Saved(panel)
        panel.runner.on_chunk = self.ticker.heard
        self.explored = Table(panel, self._guarded)
        self.explored_button = controls.button("Show all settings", "table", "Read every record in outputs/ again.")
        self.board = live.Board(panel.figures())
        self.overlay = Overlay(panel)
        self.lines, self.predicted, self.guess_state, self.block = W.HTML(), W.HTML(), W.HTML(), W.HTML()
        # Not the bounded kind, which moves a number into its range without a word.
        self.guess = W.FloatText(description="your guess", layout=W.Layout(width="220px"))
        self.commit_button = controls.button("Commit guess", "check", "Fix the guess; predictions then appear.")
        self.skip_button = controls.button("Skip", "forward", "Go on without a guess; none is scored then.")
        self.gate_skip = controls.button("Skip the guess", "forward", "Go on without a guess; none is scored then.")
        self.gate_row = W.HBox([W.HTML(render.note(OPEN)), self.gate_skip])
        taken = {f.split(".")[0] for a in panel.experiment.ladder for f in panel.experiment.changed(a)}
        self.knobs = Knobs(panel.experiment.params.engine, taken, self._engine, self._guarded)
        self.prompts = Prompts(panel.out_dir, self._own_prompts, self._guarded)
        self.more = W.Accordion([self.knobs.box, self.prompts.box], selected_index=None)
        for at, title in enumerate(("Engine settings", "Own prompts")):
            self.more.set_title(at, title)
        self.strip.take_button.on_click(lambda _: self._take_over())
        self._wire()
        self._building = False
        handover.listen(self)
        self.panel.recall()
        self._gate()

    # --- parts -----------------------------------------------------------------------------------------------------

    def part(self, name: str) -> W.Widget:
        """The widgets of one cell: ask, predict, run, findings, summary."""
        one = {"predict": self.predicted, "findings": self.lines, "summary": self.block}
        made = self._ask() if name == "ask" else one[name] if name in one else self._desk()
        part = W.VBox([W.HTML(saved.hiding()), made], layout=W.Layout(width="100%", overflow="visible"))
        part.add_class(saved.LIVE)
        return part

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
                self.gate_row,
                grid,
                actions,
                self.bar,
                self.doing,
                self.alert,
                self.ticker.box,
                self.note,
                self.forecast,
                self.queue.box,
                self.strip.box,
                self.more,
            ]
        )
        knobs.add_class("labkit-knobs")
        desk = W.Box([knobs, self.board])
        desk.add_class("labkit-desk")
        take = W.HBox(
            [self.save_button, self.report_button, self.explored_button], layout=W.Layout(flex_flow="row wrap")
        )
        whole = W.VBox([desk, take, self.saved, self.explored.box, self.overlay.box], layout=W.Layout(width="100%"))
        whole.add_class("labkit-run")
        return whole

    def _ask(self) -> W.Widget:
        g = self.panel.experiment.guess
        if g is None:
            return W.HTML("This notebook asks for no guess.")
        self.guess.value = given if (given := self.panel.gate.given) is not None else g.start
        row = W.HBox([self.guess, W.HTML(html.escape(g.unit)), self.commit_button, self.skip_button])
        instead = [W.HTML(render.note(s)) for s in self.panel.experiment.instead()]
        return W.VBox([*instead, W.HTML(html.escape(g.question)), row, self.guess_state])

    def _wire(self) -> None:
        self.commit_button.on_click(lambda _: self._commit())
        for skip in (self.skip_button, self.gate_skip):
            skip.on_click(lambda _: self._skip())
        self.run_button.on_click(lambda _: self._start())
        self.sweep_button.on_click(lambda _: self._start(sweep=True))
        self.again_button.on_click(lambda _: self._start(again=True))
        self.cancel_button.on_click(lambda _: self._cancel())
        self.queue_button.on_click(lambda _: self._enqueue())
        self.explored_button.on_click(lambda _: self._guarded(self.explored.refresh))
        self.save_button.on_click(lambda _: self._guarded(lambda: self.saved.show(export.save_parameters(self.panel))))
        self.report_button.on_click(lambda _: self._guarded(self._export))

    # --- events ----------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._running

    def _commit(self) -> None:
        gate = self.panel.gate
        try:
            value = gate.commit(self.guess.value, self.panel.key())
        except LabError as e:
            self.guess_state.value = render.note(str(e), "alert")
            return
        self.guess_state.value = render.note(f"Committed: {value:g} {gate.guess.unit}. The prediction is below.")
        self._gate()

    def _skip(self) -> None:
        self.panel.gate.skip()
        self.guess_state.value = render.note("Skipped: no guess is scored in this notebook.")
        self._gate()

    def _gate(self) -> None:
        """Show what the open guess held back; nothing of it can be changed afterwards."""
        shut = self.panel.veiled
        for widget in (self.guess, self.commit_button, self.skip_button):
            widget.disabled = not shut
        self.gate_row.layout.display = "" if shut else "none"
        self.overlay.box.layout.display = "none" if shut else ""
        self.explored.box.layout.display = self.explored_button.layout.display = "none" if shut else ""
        self._refresh(final=True)
        self._announce()
        self._buttons(running=self.busy)
        self._guarded(self.kept.refresh)
        if not shut:
            self._guarded(self.explored.refresh)

    def _moved(self, name: str, value: object) -> None:
        if self._building:
            return
        with self._state:
            if self._running:
                self._pending[name] = value
                self.note.value = render.note("Settings changed: the current run keeps its own; these apply after it.")
                return
        self._set(name, value)
        # What the last run came to belongs to other settings.
        self.doing.value, self.bar.layout.display = "", "none"
        self._recall()

    def _settle(self) -> None:
        """The run has ended: settings that were moved meanwhile apply now, and what is shown is theirs."""
        with self._state:
            moved, self._pending, self._running = self._pending, {}, False
        values = self.panel.experiment.values
        if any(values[name] != value for name, value in moved.items()):
            for name, value in moved.items():
                self._set(name, value)
            self._recall()

    def _set(self, name: str, value: object) -> None:
        """A setting of the experiment, where the value fits it."""
        setting = next(s for s in self.panel.experiment.settings if s.name == name)
        self._guarded(lambda: self.panel.experiment.values.__setitem__(name, setting.check(value)))

    def _recall(self) -> None:
        """Show what the store knows of the present settings."""
        self._guarded(self.panel.recall)
        self._refresh(final=True)
        self._announce()

    def _announce(self) -> None:
        """Predicted time, restarts, ages of what is shown."""

        def say():
            panel = self.panel
            if panel.veiled:
                self.forecast.value = self.note.value = ""
                return
            blocks = panel.blocks()
            said = ["Run: " + panel.forecast(blocks)]
            if self.queue.items and not self.busy:
                said.insert(0, "Queue: " + panel.forecast(self._queued_blocks()))
            if self.panel.experiment.sweep():
                said.append("Sweep: " + panel.forecast(panel.blocks(sweep=True)))
            if not blocks:
                said.append("Measure again: " + panel.forecast(panel.blocks(again=True)))
            self.forecast.value = "<br>".join(map(render.note, said))
            arms = [a for b in blocks for a in b.arms]
            # By configuration: arms that differ in their load alone share an engine.
            fresh = {a.config.digest(): a.name for a in reversed(arms) if panel.runner.pool.needs_start(a.config)}
            notes = self.panel.experiment.remarks()
            if fresh:
                last = max((panel.runner.pool.start_seconds(a.config) or 0 for a in arms), default=0)
                took = f"; the last start took {last:.1f} s" if last else ""
                notes.append(f"Run will first start the engine for: {', '.join(reversed(fresh.values()))}{took}.")
            ages = [f"{r.name} measured {r.age}" for r in panel.results.values() if r.age]
            if ages:
                notes.append("Stored results shown: " + ", ".join(ages) + ".")
            self.note.value = render.note(" ".join(notes))
            if not self.busy:
                self.strip.enable(True)

        self._guarded(say)

    def _enqueue(self) -> None:
        values = {**self.panel.experiment.values, **self._pending}
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

    def _start(self, *, sweep: bool = False, again: bool = False) -> None:
        with self._state:
            if self._running:
                return
            self._running = True
        self.panel.cancel.clear()
        self.alert.value = ""
        self._buttons(running=True)
        self.bar.value, self.bar.layout.display = 0, "none"
        self.ticker.start()
        self.strip.say("busy: see the line beside the progress bar")
        self._thread = threading.Thread(target=self._work, args=(sweep, again), daemon=True)
        self._thread.start()

    def yield_engines(self) -> None:
        """Another notebook asked for them."""
        self.panel.runner.pool.stop()
        self._guarded(self.strip.refresh)
        self.strip.say("another notebook took over: its engines run now, and Run here starts them again")

    def _take_over(self) -> None:
        def work():
            self.strip.say("asking the other notebook to stop its engine")
            self._guarded(handover.ask)
            self._guarded(self.strip.refresh)

        threading.Thread(target=work, daemon=True).start()

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
        self._building = True
        self.controls["count"].value = e.values["count"]
        self._building = False
        e.offer("workload", workload)
        self.controls["workload"].options = [*self.controls["workload"].options, workload]
        self.controls["workload"].value = workload

    def _cancel(self) -> None:
        self.panel.cancel.set()
        self.doing.value = render.note("cancelling")

    def _work(self, sweep: bool, again: bool) -> None:
        began, self._measured = time.monotonic(), False
        present = dict(self.panel.experiment.values)
        alert = ""
        try:
            while self.queue.items and not self.panel.cancel.is_set():
                self._apply(self.queue.next())
                self._measure(sweep=False, again=again)
            if not self.panel.cancel.is_set():
                self._apply(present)
                self._measure(sweep=sweep, again=again)
            end = "cancelled" if self.panel.cancel.is_set() else self._done(time.monotonic() - began)
        except LabError as e:
            stopped = self.panel.cancel.is_set()
            end = "cancelled" if stopped else "failed: see below; the notebook goes on"
            alert = "" if stopped else render.note(str(e), "alert")
        except Exception as e:  # a thread's exception would vanish; the panel must say it
            end, alert = "failed: see below", render.note(f"{type(e).__name__}: {e}", "alert")
        self._finish(end, alert)

    def _finish(self, end: str, alert: str) -> None:
        """Show what a run left, and only then say that it has ended: everything that line points to is there."""
        try:
            self.ticker.stop()
            self._refresh(final=True)
            self._announce()
            self._guarded(self.strip.refresh)
            self.overlay.refresh()
            if self._measured:
                self._guarded(self.explored.refresh)
            self._guarded(self.kept.refresh)
        finally:
            self.alert.value = alert or self.alert.value
            self.doing.value = render.note(end)
            self._settle()
            self._buttons(running=False)

    def _apply(self, values: dict) -> None:
        if values != self.panel.experiment.values:
            self.panel.experiment.values.update(values)
            self._building = True  # the sliders show what runs; nobody moved them
            for name, control in self.controls.items():
                control.value = values[name]
            self._building = False
            self.panel.recall()

    def _measure(self, *, sweep: bool, again: bool) -> None:
        blocks = self.panel.blocks(sweep=sweep, again=again)
        if not blocks:
            return
        self._measured, self.bar.layout.display = True, ""
        self.doing.value = render.note("starting")
        for progress in self.panel.measure(blocks, self.panel.writer(), tell=self._heard):
            now = time.monotonic()
            self.ticker.row(progress.row)
            if progress.text == "warming up":
                self._guarded(self.strip.refresh)
                self.strip.enable(False)
            if now - self._drawn < REFRESH_S and progress.done < progress.total:
                continue
            self._drawn = now
            self.bar.max, self.bar.value = max(1, progress.total), progress.done
            left = f", about {minutes(progress.eta_s)} left" if progress.eta_s else ""
            self.doing.value = render.note(f"{progress.done} of {progress.total}: {progress.text}{left}")
            self._refresh()

    def _heard(self, line: str) -> None:
        """A line of an engine's start or log: into the fold, and a phase of the start beside the progress bar too."""
        self.strip.log(line)
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

    def _buttons(self, *, running: bool) -> None:
        for button in (self.save_button, self.report_button):
            button.disabled = running
        for button in (self.run_button, self.sweep_button, self.again_button):
            button.disabled = running or self.panel.veiled
        self.queue_button.disabled = self.panel.veiled
        self.cancel_button.disabled = not running
        self.strip.enable(not running)

    def _export(self) -> None:
        """Some seconds: every figure is drawn as a picture too."""
        self.report_button.disabled, self.report_button.icon = True, "spinner"
        try:
            self.saved.show(export.export_report(self.panel))
        finally:
            self.report_button.disabled, self.report_button.icon = False, "file"

    def _guarded(self, work) -> None:
        """Run something that may fail in a way meant for people; the panel shows it and goes on."""
        try:
            work()
        except LabError as e:
            self.alert.value = render.note(str(e), "alert")

    # --- drawing ---------------------------------------------------------------------------------------------------

    def _refresh(self, final: bool = False) -> None:
        """Figures and tables from the present results."""

        def draw():
            self.board.show(self.panel.figures())
            if final and self.panel.veiled:
                self.lines.value = self.predicted.value = self.block.value = render.note(OPEN)
            elif final:
                self.lines.value = render.STYLE + self.panel.found() + self._kept()
                self.predicted.value = self._prediction()
                self.block.value = render.STYLE + render.block(self.panel.summary_text())

        self._guarded(draw)

    def _kept(self) -> str:
        """Other settings that were measured, apart from the comparison: another minute is no reference."""
        lines = self.panel.kept_lines()
        if not lines:
            return ""
        return render.note("Measured earlier under this load, not part of the comparison above:") + render.table(lines)

    def _prediction(self) -> str:
        panel = self.panel
        lines: list[tuple[str, Evidence | str, str]] = list(panel.predictions())
        if panel.gate.value is not None:
            about = "committed before measuring" if panel.guess is not None else "for other settings: not scored here"
            lines.insert(0, ("your guess", f"{panel.gate.value:g} {panel.gate.guess.unit}", about))
        return render.STYLE + render.table(lines, ("", "predicted", "evidence", ""))
