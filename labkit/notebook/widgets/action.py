"""A button that acts on settings: its click carries them as they stand in the page, for their own messages may still be
on the way while the kernel is busy."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anywidget
import ipywidgets as W
import traitlets


class Action(anywidget.AnyWidget):
    """As ipywidgets' Button, with `carry`: the controls whose values a click brings."""

    _esm = (Path(__file__).parent / "action.js").read_text(encoding="utf-8")
    description = traitlets.Unicode().tag(sync=True)
    icon = traitlets.Unicode().tag(sync=True)
    tooltip = traitlets.Unicode().tag(sync=True)
    button_style = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    carries = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, text: str, icon: str, tip: str):
        # flex: a long text beside it must not squeeze the words away.
        layout = W.Layout(width="auto", flex="0 0 auto")
        super().__init__(description=text, icon=icon, tooltip=tip, layout=layout)
        self._controls: dict[str, W.Widget] = {}
        self._work: list[Callable[[object], None]] = []
        self.on_msg(self._told)

    def carry(self, controls: Sequence[W.Widget]) -> None:
        """A click brings the values of these from now on."""
        self._controls = {c.model_id: c for c in controls}
        self.carries = list(self._controls)

    def on_click(self, work: Callable[[object], None]) -> None:
        """Call this at each click, with the button."""
        self._work.append(work)

    def click(self) -> None:
        """As a click does, with the settings that the kernel has."""
        for work in self._work:
            work(self)

    def _told(self, _, content: dict, __) -> None:
        if content.get("event") != "click":
            return
        for model_id, value in content.get("settings", {}).items():
            control = self._controls.get(model_id)
            if control is None or value is None:
                continue
            try:
                setattr(control, "index" if control.has_trait("index") else "value", value)
            except traitlets.TraitError:  # half a number in a field: it stays as it was
                continue
        self.click()
