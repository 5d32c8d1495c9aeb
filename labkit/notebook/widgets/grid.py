"""The controls of a grid: two axes, a time budget, and a heat map that fills while it is measured."""

import html
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.errors import BadInput, LabError
from labkit.figures import live
from labkit.measure.runner import ArmFailed, Block
from labkit.notebook import render
from labkit.notebook.grid import Axis, Grid, forecast
from labkit.notebook.settings import Setting
from labkit.notebook.widgets import controls
from labkit.notebook.widgets.action import Action
from labkit.units import minutes

if TYPE_CHECKING:
    from labkit.notebook.widgets.front import Front

BUDGET_MIN = 10.0
TITLE = "Grid: two settings at once"


class Scan:
    """One grid of a panel. It runs in the panel's own thread, with its Cancel, and leaves each point in the records."""

    def __init__(self, front: "Front", sliders: list[W.Widget]):
        self.front, self.panel = front, front.panel
        self.axes = {s.label: s for s in self.panel.experiment.axes()}
        names, tip = list(self.axes), "A setting that the grid varies."
        self.x, self.y = (controls.menu(f"{way} axis", names, names[i], tip, "316px") for i, way in enumerate("xy"))
        self.xs, self.ys = (self._values(m) for m in (self.x, self.y))
        tip = "No new request is made after so many minutes."
        self.budget = W.FloatText(BUDGET_MIN, description="minutes, at most", tooltip=tip, **_look())
        self.early = W.Checkbox(True, description="stop when decided", indent=True, **_look())
        self.go = Action("Measure grid", "th", "Measure every point beside its reference, in turns.")
        self.go.carry([*sliders, self.x, self.y, self.xs, self.ys, self.budget, self.early])
        self.note, self.found, self.board = W.HTML(), W.HTML(), live.Board()
        rows = [W.HBox(r, layout=W.Layout(flex_flow="row wrap")) for r in self._rows()]
        self.inside = W.VBox([*rows, self.note, self.found, self.board], layout=W.Layout(width="100%"))
        self.box = W.Accordion([self.inside], selected_index=None)
        self.box.set_title(0, TITLE)
        self.box.add_class("labkit-grid")
        for menu, text in ((self.x, self.xs), (self.y, self.ys)):
            menu.observe(lambda _, menu=menu, text=text: self._chosen(menu, text), "value")
            text.observe(lambda _: self.announce(), "value")
        self.early.observe(lambda _: self.announce(), "value")
        self.box.observe(lambda _: self.announce(), "selected_index")
        self.go.on_click(lambda _: self.front.alert.guarded(self.start))

    def _rows(self) -> list[list[W.Widget]]:
        return [[self.x, self.xs], [self.y, self.ys], [self.budget, self.early, self.go]]

    def _values(self, menu: W.Dropdown) -> W.Text:
        tip = "Values with commas between them, or a range such as 1-4."
        return W.Text(
            _start(self.axes[menu.value]), description="values", tooltip=tip, continuous_update=False, **_look()
        )

    def _chosen(self, menu: W.Dropdown, text: W.Text) -> None:
        text.value = _start(self.axes[menu.value])
        self.announce()

    # --- before it runs --------------------------------------------------------------------------------------------

    def made(self) -> Grid:
        """The grid that the controls describe. Raises BadInput."""
        x, y = (Axis.read(self.axes[m.value], t.value) for m, t in ((self.x, self.xs), (self.y, self.ys)))
        return Grid(self.panel.experiment, x, y, until_decided=self.early.value)

    def budget_s(self) -> float:
        """Raises BadInput for no time at all, or more than a day."""
        value = self.budget.value
        if not 0.1 <= value <= 24 * 60:
            raise BadInput("minutes, at most", value, "a number from 0.1 to 1440")
        return 60 * value

    def announce(self) -> None:
        """What would be measured, what is left out and why, and how long it takes; or what is wrong."""
        if self.box.selected_index is None or self.front.busy or self.panel.veiled:
            return
        try:
            grid = self.made()
            grid.look(self.panel.runner)
            said = f"{grid.counts()}; a first look at the rest takes {forecast(grid, self.panel.runner)}"
        except LabError as e:
            self.note.value = render.note(str(e), "alert")
            return
        self.note.value = render.note(said) + _left_out(grid)

    def start(self) -> None:
        """Measure the grid in the panel's thread. Raises BadInput before anything starts."""
        grid, budget_s = self.made(), self.budget_s()
        self.front.run.launch(lambda: self._measure(grid, budget_s))

    # --- while it runs ---------------------------------------------------------------------------------------------

    def _measure(self, grid: Grid, budget_s: float) -> str:
        """Until the grid has its answer, the time is up, or Cancel; returns the line that says so."""
        panel, began = self.panel, time.monotonic()

        def left() -> float:
            return budget_s - (time.monotonic() - began)

        panel.grid = grid
        grid.look(panel.runner)
        self.note.value = render.note("measuring") + _left_out(grid)
        self.draw()
        try:
            while not panel.cancel.is_set():
                blocks = grid.next(left(), lambda blocks: panel.runner.forecast(blocks)[0])
                if not blocks:
                    break
                before = grid.passes()
                try:
                    self._chunk(grid, blocks, left)
                except ArmFailed as e:
                    panel.runner.pool.drop(*(a.config for b in blocks for a in b.arms if a.name == e.arm))
                    if not grid.fail(e.arm, str(e)):
                        raise
                else:
                    grid.look(panel.runner, blocks)
                    if left() > 0 and not panel.cancel.is_set():
                        grid.settle(blocks, before)
                self.front.alert.guarded(self.front.explored.refresh)
                self.draw()
        finally:
            panel.recall()
            self.note.value = render.note(f"{grid.counts()}.") + _left_out(grid)
        return f"grid: {grid.end}; {grid.counts()}"

    def _chunk(self, grid: Grid, blocks: list[Block], left: Callable[[], float]) -> None:
        run, label = self.front.run, f"{self.panel.experiment.name} grid"
        for progress in run.watch(blocks, label, enough=lambda: left() <= 0):
            if grid.look(self.panel.runner, blocks):
                self.draw()
            run.say(progress, f"{grid.counts()}; {progress.text}; {minutes(max(0.0, left()))} of the time left")

    def draw(self) -> None:
        """The heat map, and below it every setting that is measured, axis by axis."""
        grid = self.panel.grid
        if grid is None:
            return
        self.board.show(self.panel.grid_figures())
        self.found.value = render.paragraphs(grid.findings())


def _look() -> dict:
    return {"style": {"description_width": "122px"}, "layout": W.Layout(width="316px")}


def _start(setting: Setting) -> str:
    """Values to begin with: few enough for some minutes."""
    if setting.name == "prompt_tokens":
        return "128, 512"
    if setting.kind == "choice":
        return ", ".join(map(str, setting.choices[:2]))
    low = int(setting.low)
    return f"{low}-{min(low + 3, int(setting.high))}"


def _left_out(grid: Grid) -> str:
    """The points that are not measured, each with its reason, folded."""
    said = grid.left_out()
    if not said:
        return ""
    lines = "".join(f"<li>{html.escape(s)}</li>" for s in said)
    return f"<details class='labkit-note'><summary>{len(said)} left out</summary><ul>{lines}</ul></details>"
