"""Figures of what a pass consists of: measured parts beside predicted ones, and each part under the two roofs."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from labkit.figures.names import beside
from labkit.figures.theme import INK, SERIES, new

if TYPE_CHECKING:
    from labkit.roofline.cost import Component

PLOT = (420, 330)  # pixels of a narrow figure's plot: where names are apart there, they are everywhere
SHADES = ("", "/", "x")  # after six colours they come again, hatched


def parts(
    passes: Sequence[tuple[str, "Sequence[Component]"]],
    bandwidth: float,
    *,
    title: str = "Where the time goes: measured parts beside predicted ones",
) -> go.Figure:
    """Two stacked bars for each pass (a plain step, a round): its parts as predicted by bytes and arithmetic, and as
    measured where they were. bandwidth: B/s. The part with the largest residual is named in the title of its pass."""
    from labkit.roofline.cost import largest_residual

    names = list(dict.fromkeys(p.name for _, parts in passes for p in parts))
    longest = {n: max(p.predicted_s(bandwidth) for _, parts in passes for p in parts if p.name == n) for n in names}
    names.sort(key=lambda n: -longest[n])
    columns: list[tuple[str, str, dict[str, float]]] = []
    words = []
    for what, ps in passes:
        columns.append((what, "predicted ◇", {p.name: p.predicted_s(bandwidth) for p in ps}))
        if all(p.measured_s is not None for p in ps):
            columns.append((what, "measured ●", {p.name: p.measured_s for p in ps}))
            worst = largest_residual(ps, bandwidth)
            name = worst.name.replace("_", " ")
            off = worst.measured_s - worst.predicted_s(bandwidth)
            sums = [sum(c[2].values()) for c in columns[-2:]]
            words.append(
                f"{what}: {sums[0] * 1e6:.0f} us predicted, {sums[1] * 1e6:.0f} us measured"
                f" ({sums[0] / sums[1] - 1:+.1%}); largest residual {name} ({off * 1e6:+.0f} us)"
            )
        else:
            words.append(f"{what}: {sum(columns[-1][2].values()) * 1e6:.0f} us predicted")
    figure = new(
        title,
        y="us",
        height=560,
        alt=". ".join(words) + ".",
    )
    for i, name in enumerate(names):
        figure.add_bar(
            x=[f"{what}<br>{kind}" for what, kind, _ in columns],
            y=[1e6 * took.get(name, 0.0) for *_, took in columns],
            name=name.replace("_", " "),
            marker=dict(color=SERIES[i % len(SERIES)].colour, pattern=dict(shape=SHADES[i // len(SERIES) % 3])),
            hovertemplate=f"{name.replace('_', ' ')}: %{{y:.1f}} us<extra></extra>",
        )
    figure.update_layout(barmode="stack")
    place = dict(x=0, y=1.0, xref="paper", yref="paper", xanchor="left", yanchor="bottom", align="left")
    figure.add_annotation(text="<br>".join(words), showarrow=False, font_size=11, **place)
    figure.update_layout(margin_t=64 + 16 * len(words))
    return figure


def roofs(
    parts: "Sequence[Component]",
    bandwidth: float,
    rates: Mapping[str, float],
    *,
    title: str = "Two roofs, and every part of a step under them",
) -> go.Figure:
    """FLOP/s over FLOP/byte, both logarithmic: the memory roof, a flat roof for each kernel, the parts that multiply.

    bandwidth: B/s; rates: FLOP/s that each kernel sustains on operands in a cache. A part stands at its measured rate,
    where it was measured, else at the predicted one; above it the roof that binds it. A part without a time has no
    place.
    """
    took = {p.name: p.measured_s or p.predicted_s(bandwidth) for p in parts}
    shown = [p for p in parts if p.operations and p.bytes_read and took[p.name] > 0]
    at = {p.name: (p.operations / p.bytes_read, p.operations / took[p.name]) for p in shown}
    kind = "●" if all(p.measured_s is not None for p in shown) else "◇"
    top = max([*rates.values(), *(f for _, f in at.values())], default=1.0)
    unit, scale = ("TFLOP/s", 1e12) if top >= 2e12 else ("GFLOP/s", 1e9)
    xs = [i for i, _ in at.values()] or [1.0]
    left, right = min(xs) / 3, max([*xs, top / bandwidth]) * 3
    figure = new(
        title,
        x="FLOP per byte",
        y=unit,
        height=480,
        alt="; ".join(
            f"{n.replace('_', ' ')}: {100 * f / (i * bandwidth):.0f}% of the memory roof" for n, (i, f) in at.items()
        )
        + ".",
    )
    figure.add_scatter(
        x=[left, top / bandwidth],
        y=[left * bandwidth / scale, top / scale],
        mode="lines",
        name=f"memory roof ● {bandwidth / 1e9:.1f} GB/s",
        line=dict(color=INK, width=2),
    )
    for i, (name, rate) in enumerate(sorted(rates.items(), key=lambda r: -r[1])):
        look = SERIES[i % len(SERIES)]
        figure.add_scatter(
            x=[rate / bandwidth, right],
            y=[rate / scale] * 2,
            mode="lines",
            name=f"{name} ●",
            line=dict(color=look.colour, width=1.5, dash=look.dash),
            hovertemplate=f"{name}: %{{y:.0f}} {unit}; ridge at {rate / bandwidth:.0f} FLOP/byte<extra></extra>",
        )
    figure.add_scatter(
        x=[i for i, _ in at.values()],
        y=[f / scale for _, f in at.values()],
        mode="markers+text",
        text=[n.replace("_", " ") for n in at],
        textposition=places([(n.replace("_", " "), *xy) for n, xy in at.items()], (left, right)),
        name=f"parts {kind}",
        marker=dict(color=SERIES[1].colour, size=9, symbol="circle" if kind == "●" else "diamond-open"),
        hovertemplate=f"%{{text}}: %{{x:.2f}} FLOP/byte, %{{y:.1f}} {unit}<extra></extra>",
    )
    figure.update_xaxes(type="log", dtick="D2")
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def places(points: Sequence[tuple[str, float, float]], ends: tuple[float, float]) -> list[str]:
    """Where the name of each point (name, x, y) stands, both axes logarithmic. ends: of the x axis."""
    if not points:
        return []
    high, low = max(y for *_, y in points), min(y for *_, y in points)
    across = PLOT[0] / math.log(ends[1] / ends[0])
    up = PLOT[1] / math.log(max(20.0, 20 * high / low))  # the roofs above take their share of the height
    return beside([(name, across * math.log(x / ends[0]), up * math.log(y / low)) for name, x, y in points])
