"""Figures that change while one looks at them: redrawn in place, so that nothing flickers and a zoom stays.

Not plotly's FigureWidget: each of those carries 5 MB of script of its own, which the front end must have started within
two seconds, and on two cores that also run an engine it has not. A Board holds any number of figures and asks for
plotly.js once a page. Its state is plain JSON, so a page that is loaded again shows what the kernel has now.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import anywidget
import plotly.graph_objects as go
import traitlets

from labkit.figures import fit_js


class Board(anywidget.AnyWidget):
    """Live figures, one below the other, each with its alt text as caption."""

    _esm = fit_js() + (Path(__file__).parent / "board.js").read_text(encoding="utf-8")
    figures = traitlets.List().tag(sync=True)

    def __init__(self, figures: Sequence[go.Figure] = (), on_click: Callable[[str], None] | None = None):
        """on_click: told the customdata of a point that is clicked, where that is a text."""
        super().__init__(figures=_plain(figures))
        self._clicked = on_click
        self.on_msg(self._asked)

    def show(self, figures: Sequence[go.Figure]) -> None:
        """Show these figures now; only those that differ are drawn again."""
        self.figures = _plain(figures)

    def _asked(self, _, content: dict, __) -> None:
        """The page has no plotly.js yet, or a point was clicked."""
        if content.get("kind") == "click" and self._clicked is not None and isinstance(content.get("point"), str):
            self._clicked(content["point"])
        if content.get("kind") == "plotly":
            from plotly.offline import get_plotlyjs

            self.send({"kind": "plotly"}, buffers=[get_plotlyjs().encode()])


def _plain(figures: Sequence[go.Figure]) -> list[dict]:
    return [json.loads(f.to_json()) for f in figures]
