"""What stays in the notebook's file: beside each live cell its figures, tables and text as plain outputs.

Widgets live in the kernel alone. The plain copies are hidden where the widgets are alive and shown everywhere else:
reopened without a kernel, on GitHub, in VS Code. They are redrawn when a run ends, not while sliders move.
"""

import json
import threading
from collections.abc import Callable

import ipywidgets as W

from labkit.figures.show import PLOTLY_MIME
from labkit.notebook import render

LIVE = "labkit-live"  # the class of every live part
HIDE = f"<style>.jp-OutputArea-child:has(.{LIVE}) ~ .jp-OutputArea-child{{display:none}}</style>"
QUIET_S = 4.0  # how long nobody must have moved anything before pictures are drawn

Outputs = list[tuple[dict, dict]]  # MIME data and metadata of each


class Alive(W.VBox):
    """A cell's widgets as they are shown: the plain outputs below them are hidden as long as these are there."""

    def __init__(self, widget: W.Widget):
        style = W.HTML(HIDE + render.STYLE)
        super().__init__([style, widget], layout=W.Layout(width="100%", overflow="visible"))
        self.add_class(LIVE)

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """GitHub shows a widget's text; that of a box is its construction in Python."""
        return super()._repr_mimebundle_(**kwargs) | {"text/plain": "[controls, alive where this notebook runs]"}


class Saved:
    """The plain outputs of one notebook's cells. static: those of a cell, by its name, as they are now. places: how
    many a cell will have at most, which may be more: one can be replaced later, and none added from outside its cell.
    """

    def __init__(self, static: Callable[[str], Outputs], places: Callable[[str], int] = lambda which: 0):
        self._static, self._places = static, places
        self._handles: dict[str, list] = {}
        self._shown: dict[str, str] = {}
        self._timer: threading.Timer | None = None
        self._drawing = threading.Lock()

    def place(self, which: str, *, empty: bool = False) -> None:
        """Put the plain outputs of a cell below its widgets; called while that cell runs. empty: their places alone,
        for `soon` to fill: twenty pictures take longer to draw than the cells of notebook 01 to run."""
        from IPython.display import display

        made = [({"text/plain": ""}, {})] * self._places(which) if empty else self._outputs(which)
        self._shown[which] = json.dumps([d for d, _ in made])
        self._handles[which] = [display(d, metadata=m, raw=True, display_id=True) for d, m in made]

    def refresh(self) -> None:
        """Bring every plain output up to date; a cell that shows what it showed costs nothing."""
        with self._drawing:
            for which, handles in list(self._handles.items()):
                made = self._outputs(which)
                text = json.dumps([d for d, _ in made])
                if text == self._shown[which]:
                    continue
                self._shown[which] = text
                for handle, (data, metadata) in zip(
                    handles, made, strict=False
                ):  # none can be added from outside its cell
                    handle.update(data, metadata=metadata, raw=True)

    def soon(self) -> None:
        """Refresh once nothing has called this for some seconds: pictures take longer to draw than a slider to move."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(QUIET_S, self.refresh)
        self._timer.daemon = True
        self._timer.start()

    def _outputs(self, which: str) -> Outputs:
        made = [({k: v for k, v in d.items() if k != PLOTLY_MIME}, m) for d, m in self._static(which)]
        places = max(len(made), len(self._handles[which]) if which in self._handles else self._places(which))
        return made + [({"text/plain": ""}, {})] * (places - len(made))
