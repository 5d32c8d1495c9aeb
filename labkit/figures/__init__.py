"""Plotly figures, one function per figure, in one look (theme.py) and shown one way (show.py)."""

from pathlib import Path

from labkit.figures.show import show
from labkit.figures.theme import new

__all__ = ["fit_js", "new", "show"]


def fit_js() -> str:
    """Script that breaks a figure's texts into lines on narrow pages: labkitFit(figure, width) -> {data, layout}."""
    return (Path(__file__).parent / "fit.js").read_text(encoding="utf-8")
