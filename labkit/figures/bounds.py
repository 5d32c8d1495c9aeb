"""Figures of what follows from bytes: batches, a gain's two factors, what a bound depends on, drafting simulated."""

from collections.abc import Sequence

import plotly.graph_objects as go

from labkit.evidence import Evidence, Tier
from labkit.figures.marks import hover, vertical
from labkit.figures.theme import SERIES, VERMILION, new, tier_name
from labkit.roofline.predictions import BatchPoint, Influence, Split

DERIVED = Tier.DERIVED


def batches(points: Sequence[BatchPoint], ends: str = "", here: int = 1) -> go.Figure:
    """Tokens per second over batch size, all of it analytical.

    ends: why the curve stops before the axis does. here: the reader's batch, marked where it is not 1.
    """
    figure = new(
        f"Batches ({points[0].label})",
        x="sequences decoded together",
        y="tok/s at most, all sequences",
        height=380,
        alt="; ".join(f"batch {p.batch}: at most {p.tokens_per_s:.0f} tokens per second" for p in points)
        + f". {points[0].label}.",
    )
    ideal = points[0].tokens_per_s / points[0].batch
    for name, ys, look in (
        ("if no more bytes were read", [p.batch * ideal for p in points], 4),
        ("more experts, KV and state per sequence", [p.tokens_per_s for p in points], 0),
    ):
        figure.add_scatter(
            x=[p.batch for p in points],
            y=ys,
            mode="lines+markers",
            name=tier_name(name, DERIVED),
            line=dict(color=SERIES[look].colour, dash=SERIES[look].dash, width=2),
            marker_symbol=SERIES[look].marker,
            hovertemplate=f"{name}: %{{y:.4g}} tok/s at batch %{{x}}<extra>◇ analytical, not measured</extra>",
        )
    turn = next((p for p in points if p.bound == "compute"), None)
    if turn is not None:
        vertical(figure, turn.batch, f"compute-bound from batch {turn.batch}", "right", log=True, row=1)
    if ends:
        vertical(figure, points[-1].batch, ends, "right" if points[-1].batch > 1 else "left", log=True)
    if 1 < here <= points[-1].batch:
        vertical(figure, here, f"batch {here}", "right", log=True, row=2)
    figure.update_xaxes(type="log", tickvals=[p.batch for p in points])
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def split(curve: Sequence[Split], stated: float, gain: float) -> go.Figure:
    """The same gain as fewer bytes times more bandwidth, over the c that one assumes."""
    at = min(curve, key=lambda s: abs(s.c - stated))
    figure = new(
        f"One gain of x{gain:.2f}, split by an assumed c",
        x="assumed c (round over plain step, as bytes)",
        y="factor",
        height=380,
        alt=f"At c = {at.c:.2f} the gain of {gain:.2f} splits into {at.bytes_factor:.2f} by bytes and "
        f"{at.bandwidth_factor:.2f} by bandwidth; any other c splits it differently; the product stays the same.",
    )
    for name, ys, look in (
        ("fewer bytes per token", [s.bytes_factor for s in curve], 0),
        ("more bandwidth", [s.bandwidth_factor for s in curve], 1),
        ("their product", [s.bytes_factor * s.bandwidth_factor for s in curve], 2),
    ):
        figure.add_scatter(
            x=[s.c for s in curve],
            y=ys,
            mode="lines",
            name=tier_name(name, DERIVED),
            line=dict(color=SERIES[look].colour, dash=SERIES[look].dash, width=2),
            hovertemplate=f"{name} at c = %{{x:.2f}}: x%{{y:.2f}}<extra>◇ derived</extra>",
        )
    vertical(figure, stated, f"stated c = {stated:g}")
    figure.update_yaxes(rangemode="tozero")
    return figure


def tornado(influences: Sequence[Influence], centre: Evidence, swing: float) -> go.Figure:
    """How far a prediction moves when one input moves by +-swing; bars from low to high, strongest on top."""
    value = centre.value
    figure = new(
        f"What the lower bound depends on: each input ±{swing:.0%}",
        x=f"ms per step ({centre.badge()})",
        height=340,
        alt="; ".join(f"{i.name}: {i.elasticity:+.2f} % for 1 %" for i in influences) + ".",
    )
    shown = list(reversed(influences))
    for name, side, look in (("input lower", "low", 0), ("input higher", "high", 1)):
        figure.add_bar(
            y=[i.name for i in shown],
            x=[(getattr(i, side) - value) * 1e3 for i in shown],
            base=value * 1e3,
            orientation="h",
            name=name,
            hovertext=[hover(centre, i.name) for i in shown],
            marker=dict(color=SERIES[look].colour, pattern=dict(shape="" if look == 0 else "/")),
            hovertemplate="%{y}, " + name + ": %{x:.4g} ms<extra>◇ derived</extra>",
        )
    figure.update_layout(barmode="overlay")
    return figure


def simulated_gain(rows: Sequence[tuple[int, float, float, float]]) -> go.Figure:
    """S over the number of drafts as simulated. rows: (drafts, S, low, high), the range of short runs."""
    figure = new(
        "Simulated, not measured: speed-up over the number of drafts",
        x="drafts per round",
        y="S: times as fast as without drafting",
        height=380,
        alt="Simulated: " + "; ".join(f"{k} drafts S = {s:.2f}, {lo:.2f} to {hi:.2f}" for k, s, lo, hi in rows) + ".",
    )
    figure.add_scatter(
        x=[k for k, *_ in rows],
        y=[s for _, s, *_ in rows],
        error_y=dict(
            type="data",
            symmetric=False,
            array=[hi - s for _, s, _, hi in rows],
            arrayminus=[s - lo for _, s, lo, _ in rows],
        ),
        mode="lines+markers",
        name=tier_name("expected, with the range of 95% of simulated runs", DERIVED),
        line=dict(color=SERIES[1].colour, dash=SERIES[1].dash, width=2),
        marker=dict(symbol=f"{SERIES[1].marker}-open", size=9),
        hovertemplate="%{x} drafts: S = %{y:.2f}<extra>◇ simulated, not measured</extra>",
    )
    figure.add_hline(y=1, line=dict(color=VERMILION, width=1.5))
    figure.add_annotation(
        text="S = 1: no gain", x=0, xref="paper", y=1, yanchor="bottom", xanchor="left", showarrow=False
    )
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(rangemode="tozero")
    return figure
