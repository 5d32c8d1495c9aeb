"""Figures of many settings at once: all of them in the a-c plane, S over steps and topk, and parallel coordinates."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.figures.names import beside
from labkit.figures.theme import BLUE, GREEN, INK, ORANGE, VERMILION, new, series

SCALE = [[0.0, BLUE], [0.5, GREEN], [1.0, ORANGE]]  # thin lines in these can be seen on white and on near-black
PLOT = (390, 220)  # pixels of the narrowest and flattest plot that shows names
AXES = ("steps", "topk", "verified", "context", "load", "a", "c", "S")


def plane(
    rows: Sequence[Mapping[str, object]], *, title: str = "All settings: yield a over cost c", named: bool = True
) -> go.Figure:
    """Each setting as a point (c, a), one series a load. rows: name, load, a, c, S; named: with names beside them."""
    told = rows if named else sorted(rows, key=lambda r: -r["S"])[:3]
    figure = new(
        title,
        x="c: time per round, in plain steps",
        y="a: tokens per verify step",
        height=420,
        alt=("" if named else f"{len(rows)} points, the fastest: ")
        + "; ".join(f"{r['name']} ({r['load']}): a {r['a']:.2f}, c {r['c']:.2f}, S {r['S']:.2f}" for r in told)
        + ".",
    )
    end = 1.1 * max([4.0, *(max(r["a"], r["c"]) for r in rows)])
    sides = beside([(_short(r["name"]), PLOT[0] * r["c"] / end, PLOT[1] * r["a"] / end) for r in rows], wide=PLOT[0])
    where = {id(r): side for r, side in zip(rows, sides, strict=True)}
    figure.add_scatter(
        x=[0, end], y=[0, end], mode="lines", name="S = 1", line=dict(color=VERMILION, width=2), hoverinfo="skip"
    )
    for index, load in enumerate(dict.fromkeys(r["load"] for r in rows)):
        mine, look = [r for r in rows if r["load"] == load], series(index)
        figure.add_scatter(
            x=[r["c"] for r in mine],
            y=[r["a"] for r in mine],
            mode="markers+text" if named else "markers",
            text=[_short(r["name"]) if where[id(r)] else "" for r in mine] if named else None,
            textposition=[where[id(r)] or "top center" for r in mine] if named else None,
            name=f"{load} ● measured",
            marker=dict(symbol=look.marker, size=10, color=look.colour),
            customdata=[r["name"] for r in mine],
            hovertext=[f"{r['name']}, {load}: a {r['a']:.3f}, c {r['c']:.3f}, S {r['S']:.3f}" for r in mine],
            hoverinfo="text",
        )
    figure.update_xaxes(range=[0, end])
    figure.update_yaxes(range=[0, end])
    return figure


def _short(name: str) -> str:
    """The numbers of a draft setting without the arm's name; any other name as it is."""
    head, _, rest = name.rpartition(" ")
    return rest if head and "/" in rest else name


def grid(rows: Sequence[Mapping[str, object]], *, load: str) -> go.Figure:
    """The best S over draft steps and topk under one load, of all numbers of verified tokens."""
    best: dict[tuple[int, int], Mapping[str, object]] = {}
    for r in rows:
        at = (r["topk"] or 1, r["steps"])
        if r["load"] == load and (at not in best or r["S"] > best[at]["S"]):
            best[at] = r
    topks, steps = (sorted({at[i] for at in best}) for i in (0, 1))
    cells = [[best.get((k, s)) for s in steps] for k in topks]
    figure = new(
        f"S over steps and topk: {load}",
        x="draft steps",
        y="topk",
        height=120 + 60 * max(3, len(topks)),
        alt=f"Speed-up under {load}: " + "; ".join(f"{r['name']} {r['S']:.2f}" for r in best.values()) + ".",
    )
    figure.add_heatmap(
        x=[str(s) for s in steps],
        y=[str(k) for k in topks],
        z=[[None if r is None else r["S"] for r in line] for line in cells],
        text=[["" if r is None else f"{r['S']:.2f}" for r in line] for line in cells],
        texttemplate="%{text}",
        textfont=dict(size=14, weight=700),  # as in labkit.figures.grid
        colorscale="Viridis",
        colorbar=dict(title="S"),
        hoverongaps=False,
        hovertemplate="steps %{x}, topk %{y}: S %{z:.3f}<extra>● measured</extra>",
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category")
    return figure


def coordinates(rows: Sequence[Mapping[str, object]], *, title: str = "All settings, axis by axis") -> go.Figure:
    """Parallel coordinates of every setting; drag along an axis to pick some."""
    loads = list(dict.fromkeys(r["load"] for r in rows))
    figure = new(title, height=360, alt=f"{len(rows)} settings over {', '.join(AXES)}, coloured by S.")
    dimensions = []
    for name in AXES:
        values = [loads.index(r["load"]) if name == "load" else (r[name] or 0) for r in rows]
        ticks = dict(tickvals=list(range(len(loads))), ticktext=loads) if name == "load" else {}
        if name in ("steps", "topk", "verified"):
            ticks = dict(tickvals=sorted(set(values)), tickformat="d")
        dimensions.append(dict(label=name, values=values, **ticks))
    speeds = [r["S"] for r in rows]
    figure.add_parcoords(
        dimensions=dimensions, line=dict(color=speeds, colorscale=SCALE, showscale=True), labelfont_color=INK
    )
    figure.update_layout(margin=dict(l=60, r=24, t=96, b=32))
    return figure
