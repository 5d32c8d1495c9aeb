"""The sections of notebook 01 by name: what each draws and lists at the reader's choice, without widgets."""

from collections.abc import Callable
from dataclasses import dataclass

import plotly.graph_objects as go

from labkit.notebook.bytes import amounts, simulator, speed
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.render import Line


@dataclass(frozen=True)
class Section:
    """figures, lines: of a Choice. controls: names of settings shown beside it, live."""

    name: str
    figures: tuple[Callable[[Choice], go.Figure], ...]
    lines: Callable[[Choice], list[Line]]
    controls: tuple[str, ...] = ()


def _none(_: Choice) -> list[Line]:
    return []


_FOUND = (
    Section("fits", (amounts.fits_figure,), amounts.fits_lines, ("machine", "context", "batch", "experts")),
    Section("read", (amounts.read_figure,), amounts.read_lines, ("machine", "context", "experts", "head", "top_k")),
    Section("accounts", (amounts.accounts_figure,), amounts.accounts_lines, ("context", "experts", "head", "top_k")),
    Section("roof", (speed.roof_figure,), speed.roof_lines, ("machine", "context", "head")),
    Section("used", (), speed.used_lines, ("machine", "bandwidth", "context", "head")),
    Section("context", (amounts.context_figure,), amounts.context_lines, ("machine", "context", "batch", "head")),
    Section("window", (amounts.window_figure,), amounts.window_lines, ("context", "experts", "top_k", "window")),
    Section("simulate", (simulator.plane, simulator.gains), simulator.lines, simulator.CONTROLS),
    Section("change", (amounts.change_figure,), amounts.change_lines, ("machine", "context", "experts", "head")),
    Section("batch", (amounts.batch_figure,), amounts.batch_lines, ("machine", "context", "batch", "experts")),
    Section("depends", (speed.depends_figure,), _none, ("machine", "bandwidth", "context", "experts", "head")),
    Section("story", (speed.story_figure,), speed.story_lines),
)
SECTIONS = {s.name: s for s in _FOUND}
