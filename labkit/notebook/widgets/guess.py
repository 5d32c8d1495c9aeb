"""The guess's widgets: the question, the number, Commit and Skip, and the line that holds Run back until then."""

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.errors import LabError
from labkit.notebook import render
from labkit.notebook.gate import OPEN
from labkit.notebook.widgets import controls
from labkit.notebook.widgets.action import Action

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel


class GuessRow:
    """A panel's gate on the page. opened: called once the guess is committed or skipped."""

    def __init__(self, panel: "Panel", opened: Callable[[], None]):
        self.panel, self._opened = panel, opened
        # Not the bounded kind, which moves a number into its range without a word.
        self.number = W.FloatText(description="your guess", layout=W.Layout(width="220px"))
        self.state = W.HTML()
        tip = "Go on without a guess; none is scored then."
        self.commit_button = Action("Commit guess", "check", "Fix the guess; predictions then appear.")
        self.skip_button = controls.button("Skip", "forward", tip)
        beside_run = controls.button("Skip the guess", "forward", tip)
        self.row = W.HBox([W.HTML(render.note(OPEN)), beside_run])
        self.commit_button.carry([self.number])
        self.commit_button.on_click(lambda _: self.commit())
        for button in (self.skip_button, beside_run):
            button.on_click(lambda _: self.skip())

    def question(self) -> W.Widget:
        """What the cell `ask` shows."""
        g = self.panel.experiment.guess
        if g is None:
            return W.HTML("This notebook asks for no guess.")
        self.number.value = given if (given := self.panel.gate.given) is not None else g.start
        row = W.HBox([self.number, W.HTML(html.escape(g.unit)), self.commit_button, self.skip_button])
        instead = [W.HTML(render.note(s)) for s in self.panel.experiment.instead()]
        return W.VBox([*instead, W.HTML(html.escape(g.question)), row, self.state])

    def show(self) -> None:
        """Once the gate is open, nothing of the guess can be changed."""
        shut = self.panel.veiled
        for widget in (self.number, self.commit_button, self.skip_button):
            widget.disabled = not shut
        self.row.layout.display = "" if shut else "none"

    def commit(self) -> None:
        gate = self.panel.gate
        try:
            value = gate.commit(self.number.value, self.panel.key())
        except LabError as e:
            self.state.value = render.note(str(e), "alert")
            return
        self.state.value = render.note(f"Committed: {value:g} {gate.guess.unit}. The prediction is below.")
        self._opened()

    def skip(self) -> None:
        self.panel.gate.skip()
        self.state.value = render.note("Skipped: no guess is scored in this notebook.")
        self._opened()
