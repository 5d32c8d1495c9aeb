"""What stays in the notebook's file: beside each live cell its figures, tables and text as plain outputs.

Widgets live in the kernel alone. The plain copies are hidden where the widgets are alive and shown everywhere else:
reopened without a kernel, on GitHub, in VS Code. They are redrawn when a run ends, not while sliders move.
"""

import json
from typing import TYPE_CHECKING

from labkit.figures.show import PLOTLY_MIME
from labkit.notebook import render

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

LIVE = "labkit-live"  # the class of every live part
HIDE = f"<style>.jp-OutputArea-child:has(.{LIVE}) ~ .jp-OutputArea-child{{display:none}}</style>"


class Saved:
    """The plain outputs of one panel's cells."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        self._handles: dict[str, list] = {}
        self._shown: dict[str, str] = {}

    def place(self, which: str) -> None:
        """Put the plain outputs of a cell below its widgets; called while that cell runs."""
        from IPython.display import display

        made = self._outputs(which)
        self._shown[which] = json.dumps([d for d, _ in made])
        self._handles[which] = [display(d, metadata=m, raw=True, display_id=True) for d, m in made]

    def refresh(self) -> None:
        """Bring every plain output up to date; a cell that shows what it showed costs nothing."""
        for which, handles in self._handles.items():
            made = self._outputs(which)
            text = json.dumps([d for d, _ in made])
            if text == self._shown[which]:
                continue
            self._shown[which] = text
            for handle, (data, metadata) in zip(handles, made, strict=True):
                handle.update(data, metadata=metadata, raw=True)

    def _outputs(self, which: str) -> list[tuple[dict, dict]]:
        made = self.panel.static(which)
        if which != "run":
            return made
        # As many as there will be: an output can be replaced later, but none can be added from outside its cell.
        places = len(self.panel.experiment.figures(self.panel.results, None))
        made = [({k: v for k, v in d.items() if k != PLOTLY_MIME}, m) for d, m in made]
        return (made + [({"text/plain": ""}, {})] * places)[:places]


def hiding() -> str:
    """The style that hides plain outputs where the widgets are alive; it is one of these itself."""
    return HIDE + render.STYLE
