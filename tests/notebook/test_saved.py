"""The plain outputs beside the widgets: what a cell shows may change in number after it has run."""

import IPython.display
import pytest

from labkit.notebook.widgets.saved import Saved


class Handle:
    def __init__(self, data):
        self.data = data

    def update(self, data, **_):
        self.data = data


@pytest.mark.parametrize("then", [[], ["b"], ["b", "c"], ["b", "c", "d"]])
def test_a_cell_that_shows_more_or_less_later_fills_the_places_it_has(monkeypatch, then):
    monkeypatch.setattr(IPython.display, "display", lambda data, **_: Handle(data))
    shown = ["a", "a"]
    kept = Saved(lambda which: [({"text/plain": text}, {}) for text in shown])
    kept.place("predict")
    shown[:] = then
    kept.refresh()
    assert [h.data["text/plain"] for h in kept._handles["predict"]] == [*then, "", ""][:2]
