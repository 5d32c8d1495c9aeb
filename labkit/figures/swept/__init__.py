"""Figures of a sweep, from its rows. A point's customdata is its configuration's name."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.figures.swept.effects import by_field
from labkit.figures.swept.parallel import coordinates
from labkit.figures.swept.points import again, fronts, plane, ranked
from labkit.figures.swept.words import Row, label
from labkit.measure.sweep.effects import Effect

__all__ = ["figures", "label"]


def figures(rows: Sequence[Row], finals: Sequence[Mapping], found: Sequence[Effect]) -> list[go.Figure]:
    """Every figure, the same number whatever has been measured so far. found: the effects of these rows' fields."""
    return [
        ranked(rows),
        coordinates(rows),
        plane(rows),
        fronts(rows),
        by_field(found),
        again(rows, finals),
    ]
