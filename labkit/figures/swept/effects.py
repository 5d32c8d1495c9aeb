"""What each setting of a sweep does, with intervals."""

from collections.abc import Sequence

import plotly.graph_objects as go

from labkit.evidence import Tier
from labkit.figures.decode import waiting
from labkit.figures.marks import bars
from labkit.figures.swept import words
from labkit.figures.theme import SERIES, VERMILION, new, tier_name
from labkit.measure.sweep.effects import Effect

LONG = 46  # characters of a label at an axis


def by_field(effects: Sequence[Effect], *, title: str = "What each setting does to the speed-up") -> go.Figure:
    """Ratio of speed-ups of configurations that differ in one field alone, with its interval; 1 is no effect."""
    if not effects:
        return waiting(title, why="No two measured configurations differ in one field alone.")
    names = [words.plain(f"{words.axis(e.field)} {e.value} / {e.against}"[:LONG]) for e in effects]
    ratios = [e.ratio for e in effects]
    figure = new(
        title,
        x="times the speed-up, all else equal (95% interval over blocks)",
        height=140 + 26 * len(effects),
        alt="; ".join(f"{n}: x{r.value:.3f}" for n, r in zip(names, ratios, strict=True)) + ".",
    )
    at = list(range(len(effects)))
    figure.add_scatter(
        x=[v for e in effects for v in (e.least, e.most, None)],
        y=[v for i in at for v in (i, i, None)],
        mode="lines",
        name="smallest to largest of the pairs",
        line=dict(color=SERIES[5].colour, width=7),
        opacity=0.45,
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[r.value for r in ratios],
        y=at,
        error_x=bars([(r.value, r.low, r.high) for r in ratios], width=6),
        mode="markers",
        name=tier_name("geometric mean", Tier.DERIVED),
        marker=dict(symbol="diamond", size=9, color=SERIES[0].colour),
        hovertext=[
            f"{n}: x{r.value:.3f}, {r.count} pairs in {r.repeats} blocks" for n, r in zip(names, ratios, strict=True)
        ],
        hoverinfo="text",
    )
    figure.add_vline(x=1, line=dict(color=VERMILION, width=1.5))
    figure.update_yaxes(tickvals=at, ticktext=names, range=[len(effects) - 0.4, -0.6])
    return figure
