"""The table of everything that was measured: sort, search, tick to plot, name, take away."""

from collections.abc import Callable
from pathlib import Path

import ipywidgets as W
import pandas as pd  # here and not at the first use: two threads that import it at once get half of it
from itables.widget import ITable

from labkit.errors import BadInput
from labkit.figures import explored as figures
from labkit.figures import live
from labkit.notebook import explored, render
from labkit.notebook.widgets import controls

NUMBERS = ("low", "high", "a", "c", "S", "steps", "topk", "verified", "tokens out")
LAYOUT = dict(topStart=None, topEnd="search", bottomStart=None, bottomEnd="paging")
FORMAT = dict(maxBytes=0, showIndex=False, format_floats_in_python=False, layout=LAYOUT)  # an update forgets the rest


class Table:
    """Every setting of the records in outputs/, with figures of the ticked ones (of all where none is ticked)."""

    def __init__(self, out_dir: Path, guarded: Callable[[Callable[[], None]], None]):
        self.shelf, self._guarded = explored.Shelf(out_dir), guarded
        self.settings: list[explored.Explored] = []
        self.table = None  # made when there is something to show: it brings a library of its own
        self.note = W.HTML()
        self.place, self.board = W.VBox([]), live.Board()
        self.name = W.Text(placeholder="name of the ticked settings", layout=W.Layout(width="240px"))
        self.buttons = [
            controls.button("Name ticked", "tag", "Call the ticked settings by this name, in every notebook."),
            controls.button("Export CSV", "table", "Write the ticked settings, or all, with every column."),
            controls.button("Export params", "save", "Write the ticked setting as a params file for labkit ladder."),
        ]
        for button, work in zip(self.buttons, (self._named, self._table, self._params), strict=True):
            button.on_click(lambda _, work=work: self._guarded(work))
        self.tools = W.HBox([self.name, *self.buttons], layout=W.Layout(flex_flow="row wrap", display="none"))
        self.box = W.VBox([self.note, self.place, self.tools, self.board], layout=W.Layout(width="100%"))
        self.box.add_class("labkit-explored")

    @property
    def ticked(self) -> list[explored.Explored]:
        """The ticked settings, in the table's order."""
        return [self.settings[i] for i in sorted(self.table.selected_rows)] if self.table is not None else []

    def refresh(self) -> None:
        """Read the records again."""
        ticked = {e.key for e in self.ticked}
        self.settings = self.shelf.settings()
        count = len(self.settings)
        missing = "; ".join(self.shelf.unreadable)
        said = (
            f"{count} setting{'s' if count != 1 else ''} measured on this machine, all loads."
            " Tick rows to plot them. S: how many times faster than the setting under “over”; c: what a round costs in"
            " its steps; both from passes that ran side by side."
        )
        if not self.settings:
            said = "No setting has been measured on this machine yet; every one that is stays in a table here."
        self.note.value = render.note(said + (f" Not readable: {missing}." if missing else ""))
        if not self.settings:
            return
        self.tools.layout.display = ""
        frame = pd.DataFrame([e.columns() for e in self.settings])
        # Of this kind the page gets numbers and nulls: it sorts by them, and shows an empty cell where there is none.
        frame = frame.astype({n: "Float64" for n in NUMBERS})
        rows = [i for i, e in enumerate(self.settings) if e.key in ticked]
        if self.table is None:
            look = "display compact nowrap"
            self.table = ITable(frame, select=True, classes=look, pageLength=25, scrollX=True, **FORMAT)
            self.table.observe(lambda _: self._guarded(self.draw), "selected_rows")
            self.place.children = (self.table,)
        else:
            self.table.update(frame, selected_rows=rows, **FORMAT)
        self.draw()

    def draw(self) -> None:
        """The figures of the ticked settings, of all where none is ticked."""
        rows = explored.plotted(self.ticked or self.settings)
        if not rows:
            self.board.show([])
            return
        cells = {(r["load"], r["steps"], r["topk"]) for r in rows}
        loads = dict.fromkeys(r["load"] for r in rows)
        # One cell is no map, and one line no bundle.
        grids = [figures.grid(rows, load=load) for load in loads if sum(c[0] == load for c in cells) > 1]
        self.board.show([figures.plane(rows), *grids, *([figures.coordinates(rows)] if len(rows) > 1 else [])])

    def _named(self) -> None:
        self.shelf.name(self.ticked, self.name.value.strip())
        self.refresh()

    def _table(self) -> None:
        path = explored.save_table(self.shelf.out_dir, self.ticked or self.settings)
        self.note.value = render.note(f"written: {path}")

    def _params(self) -> None:
        if len(self.ticked) != 1:
            raise BadInput("tick", len(self.ticked), "one ticked row: a params file describes one setting")
        path = explored.save_params(self.shelf.out_dir, self.ticked[0])
        self.note.value = render.note(f"written: {path}")
