"""A panel's cells without widgets, as MIME bundles: headless runs, saved notebooks and exported reports show these."""

from typing import TYPE_CHECKING

from labkit.figures import decode
from labkit.figures.show import bundle
from labkit.figures.theme import alt_of
from labkit.notebook import explored, render
from labkit.notebook.gate import OPEN

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

NOTHING_HERE = "Nothing is measured in this notebook."

Outputs = list[tuple[dict, dict]]  # MIME data and metadata of each


def outputs(panel: "Panel", which: str) -> Outputs:
    """A cell's content: ask, predict, run, findings or summary."""
    e = panel.experiment
    if which == "ask":
        if e.guess is None:
            return []
        said = "none was made" if panel.gate.value is None else f"{panel.gate.value:g} {e.guess.unit}"
        note = "".join(f"<p>{render.note(s)}</p>" for s in e.instead())
        text = "\n".join([*e.instead(), f"Guess: {said}"])
        return [_html(note + render.note(f"{e.guess.question} Guess: {said}."), text)]
    if panel.veiled and which in ("predict", "findings", "summary"):
        return [_html(render.note(OPEN), OPEN)]
    if which == "predict":
        lines = panel.predictions()
        return [_html(render.table(lines, ("", "predicted", "evidence", "")), render.plain(lines))] if lines else []
    if which == "run":
        return _drawn(panel)
    if which in ("findings", "summary") and not panel.any:
        said = panel.grid.findings() if panel.grid is not None else []
        return [_html(render.paragraphs(said) or render.note(NOTHING_HERE), "\n".join(said) or NOTHING_HERE)]
    if which == "findings":
        return [_html(panel.found(), render.plain(panel.lines()))]
    if which == "summary":
        return [(render.mime(panel.summary_text()), {})]
    raise KeyError(which)


def _drawn(panel: "Panel") -> Outputs:
    """The figures that show something, then the grid and, live, the settings that were ever measured here."""
    figures = [f for f in panel.figures() if alt_of(f) not in (decode.NOT_YET, OPEN)]
    if panel.veiled:
        return []
    if panel.grid is not None:
        figures += panel.grid_figures()
    table = [explored.as_outputs(panel.explored)] if panel.explored else []
    return [*map(bundle, figures), *table]


def _html(markup: str, text: str) -> tuple[dict, dict]:
    return {"text/html": render.STYLE + markup, "text/plain": text}, {}
