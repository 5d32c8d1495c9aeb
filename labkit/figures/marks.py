"""Draw evidence: a point, a line or a bar always shows its tier's shape, its interval and, on hover, its formula."""

import html
from collections.abc import Iterable, Iterator, Sequence
from math import log10

import plotly.graph_objects as go

from labkit.evidence import Evidence, Tier
from labkit.figures.theme import INK, ORANGE, TIERS, VERMILION, Series, tier_name

Ends = tuple[float, float | None, float | None]  # value, low, high


def hover(e: Evidence, name: str = "") -> str:
    """Hover text of one number: value with interval, tier, formula with its numbers filled in, sources.

    An input that was derived itself says from what, so that no number in the formula is left unexplained.
    """
    lines = [f"<b>{_plain(name)}</b>"] if name else []
    lines.append(f"{_plain(e.quantity())} · {e.badge()}")
    if e.formula:
        lines.append("= " + _plain(e.formula))
        lines += ["&nbsp;&nbsp;" + _plain(f"{i} = {i.formula}" if i.formula else str(i)) for i in e.inputs]
    return "<br>".join([*lines, *_wrapped(_plain(e.source))])


def _plain(text: str) -> str:
    """Text for plotly's small HTML, which shows an escaped quotation mark as it is written."""
    return html.escape(text, quote=False)


def _wrapped(text: str, width: int = 72) -> list[str]:
    import textwrap

    return [f"<i>{line}</i>" for line in textwrap.wrap(text, width)[:4]]


def bars_of(points: Sequence[Evidence], unit: str) -> dict | None:
    """plotly's error bars of these points in `unit`; None when no point has an interval."""
    return bars([(p.value, p.low, p.high) for p in (p.to(unit) for p in points)])


def bars(points: Sequence[Ends], *, scale: float = 1, thickness: float = 2, width: int = 9) -> dict | None:
    """plotly's error bars of values with their intervals, `scale` times as long; None when no point has one."""
    if all(low is None for _, low, _ in points):
        return None
    return dict(
        type="data",
        symmetric=False,
        array=[0 if high is None else scale * (high - value) for value, _, high in points],
        arrayminus=[0 if low is None else scale * (value - low) for value, low, _ in points],
        thickness=thickness,
        width=width,
    )


def by_tier(pairs: Iterable[tuple[float, Evidence]]) -> Iterator[tuple[Tier, list[float], list[Evidence]]]:
    """Points of mixed tiers as add_points takes them: of each tier, in order of appearance, the xs and the evidence."""
    pairs = list(pairs)
    for tier in dict.fromkeys(e.tier for _, e in pairs):
        same = [(x, e) for x, e in pairs if e.tier == tier]
        yield tier, [x for x, _ in same], [e for _, e in same]


def add_guess(figure: go.Figure, x: float, y: float, spec: str = "") -> None:
    """Add the reader's guess, a star: it has no tier. spec: plotly's number format of the hover."""
    figure.add_scatter(
        x=[x],
        y=[y],
        mode="markers",
        name="your guess ✎",
        marker=dict(symbol="star-open", size=13, color=ORANGE),
        hovertemplate=f"your guess: %{{y{spec}}}<extra></extra>",
    )


def add_no_gain(figure: go.Figure) -> None:
    """Add the line at 1 below which a change made things slower."""
    figure.add_hline(
        y=1,
        line=dict(color=VERMILION, width=1.5),
        annotation=dict(text="no gain", xshift=6),
        annotation_position="top left",
    )


def add_points(
    figure: go.Figure,
    x: Sequence,
    points: Sequence[Evidence],
    *,
    unit: str,
    name: str,
    look: Series,
    lines: bool = False,
) -> None:
    """Add evidence of one tier at x, in `unit`, with intervals and hover text. Mixed tiers raise ValueError: a trace
    has one shape, so draw one trace for each tier."""
    tiers = {p.tier for p in points}
    if len(tiers) > 1:
        raise ValueError(f"one trace, one tier: {name} has {', '.join(sorted(tiers))}")
    tier = tiers.pop() if tiers else Tier.MEASURED
    marker = look.marker if tier is Tier.MEASURED else _variant(TIERS[tier].marker, look)
    figure.add_scatter(
        x=list(x),
        y=[p.to(unit).value for p in points],
        error_y=bars_of(points, unit),
        mode="lines+markers" if lines else "markers",
        name=tier_name(name, tier),
        marker=dict(symbol=marker, size=9, color=look.colour, line=dict(width=2, color=look.colour)),
        line=dict(color=look.colour, dash=TIERS[tier].dash if tier is not Tier.MEASURED else look.dash, width=2),
        hovertext=[hover(p, name) for p in points],
        hoverinfo="text",
    )


def _variant(marker: str, look: Series) -> str:
    """The tier's shape, told apart between series: all derived points are diamonds, of different kinds."""
    if marker != "diamond-open":
        return marker
    kinds = {
        "square": "diamond-cross-open",
        "diamond": "diamond-open-dot",
        "triangle-up": "diamond-x-open",
        "cross": "diamond-tall-open",
        "x": "diamond-wide-open",
    }
    return kinds.get(look.marker, marker)


def add_level(figure: go.Figure, x: Sequence, level: Evidence, *, unit: str, name: str, look: Series) -> None:
    """Add a horizontal line from x[0] to x[-1] at a level, in its tier's dash."""
    value = level.to(unit).value
    figure.add_scatter(
        x=[x[0], x[-1]],
        y=[value, value],
        mode="lines",
        name=tier_name(name, level.tier),
        line=dict(color=look.colour, dash=TIERS[level.tier].dash, width=2),
        hovertext=[hover(level, name)] * 2,
        hoverinfo="text",
    )


def add_segments(
    figure: go.Figure, levels: Sequence[tuple[float, Evidence]], *, unit: str, name: str, look: Series
) -> None:
    """Add a short horizontal line at each position x: levels that belong to one arm each, such as floors.

    The interval of a level stands near its left end, clear of the points of the arm.
    """
    tier = levels[0][1].tier
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for x, level in levels:
        value = level.to(unit).value
        xs += [x - 0.3, x, x + 0.3, None]
        ys += [value, value, value, None]
        texts += [hover(level, name)] * 4
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        name=tier_name(name, tier),
        line=dict(color=look.colour, dash=TIERS[tier].dash, width=2.5),
        hovertext=texts,
        hoverinfo="text",
    )
    bars = bars_of([level for _, level in levels], unit)
    if bars is not None:
        # A trace of its own: on the line, plotly would put the caps of an empty bar at every corner.
        figure.add_scatter(
            x=[x - 0.24 for x, _ in levels],
            y=[level.to(unit).value for _, level in levels],
            error_y=bars | dict(thickness=1.5, width=5),
            mode="markers",
            marker=dict(color=look.colour, opacity=0),
            name=f"{name}, interval",
            showlegend=False,
            hoverinfo="skip",
        )


def add_ranges(
    figure: go.Figure, items: Sequence[tuple[float, Evidence, Evidence]], *, unit: str, name: str, look: Series
) -> None:
    """Add what is predicted between two ends at each x: a broad upright line. items: (x, low, high)."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for x, low, high in items:
        xs += [x, x, None]
        ys += [low.to(unit).value, high.to(unit).value, None]
        texts += [hover(low, f"{name}, one end"), hover(high, f"{name}, other end"), ""]
    if items:
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines",
            name=tier_name(name, Tier.DERIVED),  # whatever its ends are made of, a prediction is a formula's
            line=dict(color=look.colour, width=6),
            opacity=0.55,
            hovertext=texts,
            hoverinfo="text",
        )


def add_arrows(figure: go.Figure, moves: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> None:
    """Arrows from what was predicted to what was measured, each ((x, y), (x, y)) in the figure's own axes."""
    for (x0, y0), (x1, y1) in moves:
        figure.add_annotation(
            x=x1,
            y=y1,
            ax=x0,
            ay=y0,
            xref="x",
            yref="y",
            axref="x",
            ayref="y",
            text="",
            showarrow=True,
            arrowhead=2,
            arrowsize=1,
            arrowwidth=1.5,
            arrowcolor=INK,
            standoff=6,
        )


def positions(figure: go.Figure, names: Sequence[str]) -> None:
    """Names along the x axis at 0, 1, 2, ...: numbers, so that lines and points can share the axis."""
    figure.update_xaxes(
        tickmode="array",
        tickvals=list(range(len(names))),
        ticktext=list(names),
        range=[-0.6, max(len(names), 1) - 0.4],
        zeroline=False,
        showgrid=False,
    )


def vertical(figure: go.Figure, x: float, text: str, side: str = "left", log: bool = False, row: int = 0) -> None:
    """A vertical line with its words beside it, inside the plot; `side` is the end of the words at the line.

    log: the axis is logarithmic, where Plotly places lines by their value and words by its logarithm. row: words of
    several lines stand below each other.
    """
    figure.add_shape(type="line", x0=x, x1=x, xref="x", y0=0, y1=1, yref="paper", line=dict(color=INK, dash="dot"))
    figure.add_annotation(
        x=log10(x) if log else x,
        xref="x",
        y=1,
        yref="paper",
        text=text,
        showarrow=False,
        xanchor=side,
        yanchor="top",
        xshift=4 if side == "left" else -4,
        yshift=-36 * row,  # two lines, on a narrow page
    )
