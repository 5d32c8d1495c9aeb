"""Plotly figures, one function per figure, in one look (theme.py) and shown one way (show.py)."""

from labkit.figures.show import show
from labkit.figures.theme import new

__all__ = ["new", "show"]
