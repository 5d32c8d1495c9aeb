"""Single controls: a setting as a slider, menu or switch with its tooltip; buttons."""

import ipywidgets as W

from labkit.panels.settings import Setting

_WIDE = {"description_width": "150px"}


def control(setting: Setting, value: object) -> W.Widget:
    """The control of a setting at a value. Sliders answer the arrow keys and report when they come to rest."""
    tip = setting.tip + (" Changing it restarts the engine." if setting.restarts else "")
    common = dict(value=value, description=setting.label, tooltip=tip, style=_WIDE, layout=W.Layout(width="400px"))
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
    return W.Dropdown(options=list(setting.choices), **common)


def button(text: str, icon: str, tip: str) -> W.Button:
    """A button wide enough for its words."""
    # flex: a long text beside it must not squeeze the words away.
    return W.Button(description=text, icon=icon, tooltip=tip, layout=W.Layout(width="auto", flex="0 0 auto"))
