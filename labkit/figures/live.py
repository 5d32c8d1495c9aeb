"""Figures that change while one looks at them: updated in place, so that nothing flickers and a zoom stays."""

import copy

import plotly.graph_objects as go


class LiveFigure(go.FigureWidget):
    """plotly tells the front end of a new figure before the figure's content is in its state, and sends that after it.
    On a busy machine the front end has drawn an empty figure by then and ignores what follows. So: content first."""

    def __init__(self, figure: go.Figure):
        self._complete = False
        super().__init__(figure)
        self._complete = True
        self.open()

    def open(self) -> None:
        """Called by ipywidgets while the constructor is at work; waits until it is done."""
        if self._complete:
            super().open()


def widget(figure: go.Figure) -> go.FigureWidget:
    """A live figure with this content."""
    return LiveFigure(figure)


def sync(live: go.FigureWidget, figure: go.Figure) -> None:
    """Give a live figure the content of another one. Traces of equal kind are updated in place; only what differs is
    sent."""
    same = [a.type == b.type for a, b in zip(live.data, figure.data, strict=False)]
    with live.batch_update():
        if not all(same) or len(live.data) > len(figure.data):
            live.data = []
        for old, new in zip(live.data, figure.data, strict=False):
            old.update(new.to_plotly_json(), overwrite=True)
        live.add_traces(list(figure.data[len(live.data) :]))
        live.layout.annotations, live.layout.shapes = (), ()
        live.update_layout(figure.layout.to_plotly_json())


def persist(live: go.FigureWidget) -> None:
    """After a page reload the front end asks for the state that the constructor got: hand it the present one."""
    live._widget_data = copy.deepcopy(live._data)
    live._widget_layout = copy.deepcopy(live._layout)
