"""Two settings against each other: the speed-up at every pair of their values, as far as it is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from labkit.figures.theme import INK, new

MARKS = {"skipped": "–", "failed": "×", "waiting": "·"}


@dataclass(frozen=True)
class Cell:
    """One pair of values. state: measured, waiting, skipped or failed; S: None where it is not measured; sure: whether
    S has an interval by now; hover: what it is, or why it is not measured; best: the fastest under its load."""

    state: str
    hover: str
    S: float | None = None
    sure: bool = False
    best: bool = False


def heat(
    x: str, xs: Sequence[object], y: str, ys: Sequence[object], cells: Mapping[tuple, Cell], *, title: str
) -> go.Figure:
    """The speed-up over the reference at (x, y); white is S = 1. Cells without a number carry a mark and the best one a
    frame; the hover says what each cell is."""
    measured = {at: c for at, c in cells.items() if c.S is not None}
    counts = {s: sum(c.state == s for c in cells.values()) for s in ("measured", *MARKS)}
    told = "; ".join(f"{x} {a}, {y} {b}: S {c.S:.2f}" for (a, b), c in measured.items())
    figure = new(
        title,
        x=x,
        y=y,
        height=180 + 48 * max(3, len(ys)),
        alt=f"{counts['measured']} of {len(cells)} settings measured, {counts['skipped']} skipped,"
        f" {counts['failed']} failed. {told}",
    )
    far = max([0.1, *(abs(c.S - 1) for c in measured.values())])
    rows = [[cells.get((a, b)) for a in xs] for b in ys]
    figure.add_heatmap(
        x=list(map(str, xs)),
        y=list(map(str, ys)),
        z=[[c.S if c else None for c in row] for row in rows],
        text=[[_number(c) for c in row] for row in rows],
        customdata=[[c.hover if c else "" for c in row] for row in rows],
        texttemplate="%{text}",
        textfont=dict(size=14, weight=700),  # on a cell of middling colour neither black nor white stands out much
        colorscale="RdBu",
        zmin=1 - far,
        zmax=1 + far,
        colorbar=dict(title="S"),
        xgap=2,
        ygap=2,
        hoverongaps=True,  # a gap's hover says why it is one
        hovertemplate="%{customdata}<extra></extra>",
    )
    for (a, b), cell in cells.items():
        if cell.state in MARKS and cell.S is None:
            figure.add_annotation(
                x=xs.index(a), y=ys.index(b), text=MARKS[cell.state], showarrow=False, font=dict(size=16, color=INK)
            )
        if cell.best:
            i, j = xs.index(a), ys.index(b)
            around = dict(x0=i - 0.48, x1=i + 0.48, y0=j - 0.46, y1=j + 0.46)
            figure.add_shape(type="rect", line=dict(color="#E69F00", width=4), **around)
    # Marks and frames stand at a cell's number on these axes.
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def _number(cell: Cell | None) -> str:
    if cell is None or cell.S is None:
        return ""
    return f"{cell.S:.2f}" if cell.sure else f"~{cell.S:.1f}"
