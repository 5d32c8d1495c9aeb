"""Single controls: a setting as a slider, menu or switch with its tooltip; buttons; the line that says what failed."""

import html
from collections.abc import Callable

import ipywidgets as W

from labkit.errors import LabError
from labkit.notebook import render
from labkit.notebook.settings import Setting

_WIDE = {"description_width": "122px"}


def control(setting: Setting, value: object) -> W.Widget:
    """The control of a setting at a value. Sliders answer the arrow keys and report when they come to rest."""
    tip = setting.tip + (" Changing it restarts the engine." if setting.restarts else "")
    common = dict(value=value, description=setting.label, tooltip=tip, style=_WIDE, layout=W.Layout(width="316px"))
    if setting.kind == "int":
        return W.IntSlider(
            min=int(setting.low), max=int(setting.high), step=int(setting.step), continuous_update=False, **common
        )
    if setting.kind == "float":
        return W.FloatSlider(
            min=setting.low,
            max=setting.high,
            step=setting.step,
            continuous_update=False,
            readout_format=".3g",
            **common,
        )
    if setting.kind == "bool":
        return W.Checkbox(indent=True, **common)
    return menu(setting.label, list(setting.choices), value, tip, "316px")


def menu(label: str, options: list, value: object, tip: str, width: str) -> W.Dropdown:
    """A menu with its tooltip: ipywidgets shows a slider's on its label and drops a menu's, so the label carries it."""
    wide = max((len(str(o)) for o in options), default=0) > 22  # of these the label gives room to the words
    return W.Dropdown(
        options=options,
        value=value,
        tooltip=tip,
        style={"description_width": f"{9 * len(label) + 12}px"} if wide else _WIDE,
        layout=W.Layout(width=width),
        description=f'<span title="{html.escape(tip, quote=True)}">{html.escape(label)}</span>',
        description_allow_html=True,
    )


def button(text: str, icon: str, tip: str) -> W.Button:
    """A button wide enough for its words."""
    # flex: a long text beside it must not squeeze the words away.
    return W.Button(description=text, icon=icon, tooltip=tip, layout=W.Layout(width="auto", flex="0 0 auto"))


class Alert(W.HTML):
    """Where a panel says what failed."""

    def guarded(self, work: Callable[[], None]) -> None:
        """Run something that may fail in a way meant for people; the panel shows it and goes on."""
        try:
            work()
        except LabError as e:
            self.value = render.note(str(e), "alert")
