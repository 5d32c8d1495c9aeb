"""Notebook 01's widgets: one control for each setting, shown wherever it matters, and figures that follow them."""

from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets as W
import traitlets

from labkit.errors import BadInput
from labkit.figures.live import Board
from labkit.notebook import render
from labkit.notebook.bytes import amounts, link
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.bytes.sections import SECTIONS, Section
from labkit.notebook.widgets import controls
from labkit.notebook.widgets.saved import Outputs, Saved

CHOOSING = ("model", "machine", "bandwidth", "context", "batch", "experts", "head", "top_k")


class Link(anywidget.AnyWidget):
    """A link that keeps the settings. query: the present ones; applied: those of the link that opened the page."""

    _esm = (Path(__file__).parent / "link.js").read_text(encoding="utf-8")
    name = traitlets.Unicode(link.NAME).tag(sync=True)
    query = traitlets.Unicode().tag(sync=True)
    applied = traitlets.Unicode().tag(sync=True)


class Front:
    """All widgets of one panel."""

    def __init__(self, at: Choice, static: Callable[[str], Outputs] = lambda name: []):
        self.at = at
        self._begun: set[str] = set()  # sections that are shown: `read` waits for a guess
        self.kept = Saved(lambda name: static(name) if name in self._begun else [], _places)
        self.controls: dict[str, W.Widget] = {}
        self.drawn: list[Callable[[], None]] = []  # each draws one section again
        self.alert = W.HTML()
        self._syncing = False
        self.link = Link(query=link.query(at))
        self.link.observe(lambda change: self._change(lambda: link.apply(at, change["new"])), "applied")

    # --- cells ----------------------------------------------------------------------------------------------------

    def choosing(self) -> W.Widget:
        """The controls of model, machine and load, a place for a pasted config, and the link."""
        text = W.Textarea(
            placeholder='{"architectures": [...], ...}', layout=W.Layout(width="min(100%, 640px)", height="110px")
        )
        take = controls.button("Count this config", "check", "Count the pasted config.json instead of a model.")
        take.on_click(lambda _: self._change(lambda: self.at.paste(text.value)))
        paste = W.Accordion([W.VBox([text, take])], titles=("Paste a config.json",), selected_index=None)
        self.again = W.HTML()
        self._begin("choose", lambda: setattr(self.again, "value", render.STYLE + self._command()))
        return W.VBox([self._row(CHOOSING), paste, self.alert, self.link, self.again])

    def section(self, section: Section) -> W.Widget:
        """Controls, figures and table of one section, drawn at once."""
        widget, begin = self._made(section)
        begin()
        return widget

    def guessed(self, section: Section) -> W.Widget:
        """The same, drawn once the reader has named a part of the step."""
        widget, begin = self._made(section)
        parts = sorted(amounts.shares(self.at))
        options = [("choose a part", ""), *((p, p) for p in parts)]
        menu = controls.menu("longest bar", options, "", "Commit to a guess; the figure then appears.", "400px")
        said, begun = W.HTML(render.note("The figure appears once you have chosen.")), []

        def chosen(change) -> None:
            if change["new"]:
                said.value = render.note(amounts.guessed(self.at, change["new"]))
                if not begun:
                    begun.append(True)
                    begin()

        menu.observe(chosen, "value")
        return W.VBox([W.HBox([menu, said], layout=W.Layout(flex_flow="row wrap")), widget])

    # --- parts ----------------------------------------------------------------------------------------------------

    def _made(self, section: Section) -> tuple[W.Widget, Callable[[], None]]:
        board, note = Board() if section.figures else None, W.HTML()

        def draw() -> None:
            if board is not None:
                board.show([figure(self.at) for figure in section.figures])
            lines = section.lines(self.at)
            note.value = render.STYLE + render.table(lines) if lines else ""

        shown = [w for w in (self._row(section.controls), board, note) if w is not None]
        return W.VBox(shown), lambda: self._begin(section.name, draw)

    def _begin(self, name: str, draw: Callable[[], None]) -> None:
        self.drawn.append(draw)
        self._begun.add(name)
        draw()
        self.kept.soon()

    def _row(self, names: tuple[str, ...]) -> W.Widget:
        return W.HBox([self._control(n) for n in names], layout=W.Layout(flex_flow="row wrap"))

    def _control(self, name: str) -> W.Widget:
        """The one control of a setting: shown in several sections it is the same widget, and moves in all of them."""
        if name not in self.controls:
            made = self.controls[name] = controls.control(self.at.setting(name), self.at.values[name])
            made.observe(lambda change: self._change(lambda: self.at.choose(name, change["new"])), "value")
        return self.controls[name]

    def _command(self) -> str:
        words = "The same in a terminal, in the lab's folder:"
        return render.note(words) + render.block(link.command(self.at))

    # --- changes --------------------------------------------------------------------------------------------------

    def _change(self, work: Callable[[], None]) -> None:
        """Change the choice, then show it everywhere; what does not fit is said, and nothing changes."""
        if self._syncing:
            return
        self.alert.value = ""
        try:
            work()
            for draw in self.drawn:
                draw()
        except BadInput as e:
            self.alert.value = render.note(str(e), "alert")
        self._sync()
        self.link.query = link.query(self.at)
        self.kept.soon()

    def _sync(self) -> None:
        """Bring the controls to the choice: another model has other ranges."""
        self._syncing = True
        try:
            for name, widget in self.controls.items():
                setting, value = self.at.setting(name), self.at.values[name]
                if setting.kind == "choice":
                    widget.options = list(setting.choices)
                else:  # wide first, so that no end passes the other or the value
                    widget.max = max(widget.max, setting.high)
                    widget.min = min(widget.min, setting.low)
                    widget.value = value
                    widget.min, widget.max, widget.step = setting.low, setting.high, setting.step
                widget.value = value
        finally:
            self._syncing = False


def _places(name: str) -> int:
    """Plain outputs of a cell: a section's figures and its table."""
    return len(SECTIONS[name].figures) + 1 if name in SECTIONS else 1
