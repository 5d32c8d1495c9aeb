"""How every figure of the lab looks: colours, dashes, markers, and the shape of each evidence tier.

Colours are Okabe and Ito's set (distinct under the common colour deficiencies), and never carry a meaning alone:
each series also has a dash and a marker, each tier a shape and a word. Text and lines are a grey that is readable
on white and on near-black, on a transparent ground; `THEME_CSS` sharpens them to the page's own theme.
"""

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from labkit.evidence import Tier

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
INK = "#747b85"  # contrast 4.3 on white, 4.4 on #111
GRID = "rgba(128,135,145,0.28)"


@dataclass(frozen=True)
class Series:
    """The look of one series: three cues, so that any two of them can fail."""

    colour: str
    dash: str
    marker: str


SERIES = (
    Series(BLUE, "solid", "circle"),
    Series(VERMILION, "dash", "square"),
    Series(GREEN, "dot", "diamond"),
    Series(PURPLE, "dashdot", "triangle-up"),
    Series(ORANGE, "longdash", "cross"),
    Series(SKY, "longdashdot", "x"),
)


@dataclass(frozen=True)
class TierLook:
    """How a tier is drawn: marker for points, dash for lines. Its word and its shape in text are the tier's own."""

    marker: str
    dash: str


TIERS = {
    Tier.MEASURED: TierLook("circle", "solid"),
    Tier.DERIVED: TierLook("diamond-open", "dash"),
    Tier.SPEC: TierLook("triangle-up-open", "dot"),
    Tier.REPORTED: TierLook("square-open", "dashdot"),
}


def series(index: int) -> Series:
    """The look of the index-th series; after six the colours come again with open markers."""
    look = SERIES[index % len(SERIES)]
    return look if index < len(SERIES) else Series(look.colour, look.dash, f"{look.marker}-open")


def tier_name(name: str, tier: Tier | str) -> str:
    """Legend text of a trace: `TPOT ● measured`."""
    return f"{name} {Tier(tier).badge()}"


AXIS = dict(
    gridcolor=GRID,
    linecolor=INK,
    zerolinecolor=GRID,
    ticks="outside",
    automargin=True,
    title=dict(standoff=8, font=dict(size=13)),
)
TEMPLATE = go.layout.Template(
    layout=dict(
        font=dict(family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size=13, color=INK),
        # From the page's edge, not the plot's: long names at the axis would push the title to the right.
        title=dict(
            font=dict(size=16), x=0, xanchor="left", xref="container", pad_l=12, yref="container", y=0.97, yanchor="top"
        ),
        colorway=[s.colour for s in SERIES],
        showlegend=True,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis=AXIS,
        yaxis=AXIS,
        # From the figure's lower edge up: a share of the plot's height would put it into a flat figure's axis title.
        legend=dict(
            orientation="h", yref="container", y=0, yanchor="bottom", x=0, xanchor="left", bgcolor="rgba(0,0,0,0)"
        ),
        # The bar of buttons stands in the right margin: across the top it would lie over the title.
        margin=dict(l=60, r=44, t=56, b=56),
        modebar=dict(orientation="v", bgcolor="rgba(0,0,0,0)", color=GRID, activecolor=INK),
        hoverlabel=dict(align="left", font=dict(size=12)),
        height=400,
    )
)


def new(
    title: str,
    *,
    x: str = "",
    y: str = "",
    alt: str = "",
    height: int = 400,
    cls: type = go.Figure,
    **layout: Any,
) -> go.Figure:
    """An empty figure in the lab's look.

    x, y are axis titles with their units. alt is the description for a reader who cannot see it (required: an empty
    one raises ValueError). cls may be `go.FigureWidget`. Zoom and hidden traces survive updates (uirevision).
    """
    if not alt:
        raise ValueError(f"figure {title!r} needs an alt text")
    figure = cls()
    figure.update_layout(template=TEMPLATE, title_text=title, height=height, uirevision="labkit", meta={"alt": alt})
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    figure.update_layout(**layout)
    return figure


def set_alt(figure: go.Figure, alt: str) -> go.Figure:
    """Replace the figure's alt text once its numbers are known."""
    figure.update_layout(meta={"alt": alt})
    return figure


def alt_of(figure: go.Figure) -> str:
    """The figure's alt text, or its title when it has none."""
    meta = figure.layout.meta
    alt = meta.get("alt") if isinstance(meta, dict) else None
    return alt or figure.layout.title.text or "figure"


_TEXT = (
    ".xtick text, .ytick text, .x2tick text, .y2tick text, .gtitle, .xtitle, .ytitle, .x2title, .y2title, .legendtext,"
    " .bartext-outside, .textpoint text, .colorbar text"
)


def _rules(scope: str, ink: str, grid: str) -> str:
    texts = ", ".join(f"{scope} .js-plotly-plot {part}" for part in f"{_TEXT}, .annotation-text".split(", "))
    return (
        f"{texts} {{ fill: {ink} !important; }}\n"
        # plotly puts a white shadow under these, which blurs light text on a dark page.
        f"{scope} .js-plotly-plot .parcoords text {{ fill: {ink} !important; text-shadow: none !important; }}\n"
        f"{scope} .js-plotly-plot .gridlayer path {{ stroke: {grid} !important; }}\n"
    )


# For a page that says its theme: JupyterLab on <body>, the report on <html>.
THEME_CSS = (
    _rules("[data-jp-theme-light='true']", "#24292f", "rgba(110,118,129,0.25)")
    + _rules("[data-jp-theme-light='false']", "#e6e8eb", "rgba(160,168,180,0.25)")
    + _rules("[data-theme='light']", "#24292f", "rgba(110,118,129,0.25)")
    + _rules("[data-theme='dark']", "#e6e8eb", "rgba(160,168,180,0.25)")
)


def for_paper(figure: go.Figure) -> go.Figure:
    """A copy on white with dark text: what a PNG needs, whose page may be dark (as GitHub's)."""
    copy = go.Figure(figure)
    copy.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#24292f")
    copy.update_xaxes(linecolor="#57606a", gridcolor="#e3e6ea", zerolinecolor="#c9ced6")
    copy.update_yaxes(linecolor="#57606a", gridcolor="#e3e6ea", zerolinecolor="#c9ced6")
    return copy
