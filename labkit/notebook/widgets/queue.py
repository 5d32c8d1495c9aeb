"""Settings that wait for the next run: in order, each can be moved up or taken out."""

from collections.abc import Callable

import ipywidgets as W

from labkit.notebook import render
from labkit.notebook.widgets import controls


class Queue:
    """(label, values) in the order in which they will run. changed: called after every change by a person."""

    def __init__(self, changed: Callable[[], None]):
        self.items: list[tuple[str, dict]] = []
        self._changed = changed
        self.box = W.VBox([])

    def add(self, label: str, values: dict) -> None:
        """One more, at the end."""
        self.items.append((label, values))
        self._show()

    def next(self) -> dict:
        """Take the first one out and return its values."""
        _, values = self.items.pop(0)
        self._show()
        return values

    def move(self, at: int, by: int) -> None:
        """Change places with a neighbour."""
        if 0 <= at + by < len(self.items):
            self.items[at], self.items[at + by] = self.items[at + by], self.items[at]
            self._show()
            self._changed()

    def remove(self, at: int) -> None:
        """Take one out."""
        del self.items[at]
        self._show()
        self._changed()

    def _show(self) -> None:
        rows = [self._row(i, label) for i, (label, _) in enumerate(self.items)]
        head = W.HTML(render.note("Queued for the next Run, before the present settings:"))
        self.box.children = (head, *rows) if rows else ()

    def _row(self, at: int, label: str) -> W.Widget:
        up = controls.button("", "arrow-up", f"Run this earlier: {label}")
        out = controls.button("", "times", f"Take this out of the queue: {label}")
        up.disabled = at == 0
        up.on_click(lambda _: self.move(at, -1))
        out.on_click(lambda _: self.remove(at))
        return W.HBox([up, out, W.HTML(render.note(f"{at + 1}. {label}"))])
