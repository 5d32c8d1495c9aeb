"""Figures of several requests at once."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.figures.marks import bars
from labkit.figures.theme import new, series, tier_name


def throughput(
    levels: Mapping[str, Sequence[Mapping]], *, title: str = "Throughput against time per token"
) -> go.Figure:
    """For each arm a line over its levels: output tokens/s of the server (x) against TPOT in ms (y), each point
    labelled with its level; the open mark above it is the 99th percentile.

    levels: arm -> labkit.measure.concurrent.summary of each level.
    """
    there = {arm: [s for s in mine if s["output_tok_s"]] for arm, mine in levels.items()}
    figure = new(
        title,
        x="output tokens per second, all requests together",
        y="ms per output token of one request",
        height=460,
        alt="; ".join(
            f"{arm}: "
            + ", ".join(
                f"{s['level']} {s['output_tok_s']['median']:.3g} tok/s at {1e3 * s['tpot_s']['median']:.3g} ms"
                for s in mine
            )
            for arm, mine in there.items()
        )
        + ".",
    )
    for index, (arm, mine) in enumerate(there.items()):
        for loop in ("closed", "open"):
            points = [s for s in mine if s["loop"] == loop]
            if not points:
                continue
            look = series(2 * index + (loop == "open"))
            x = [s["output_tok_s"]["median"] for s in points]
            figure.add_scatter(
                x=x,
                y=[1e3 * s["tpot_s"]["median"] for s in points],
                error_x=_bars([s["output_tok_s"] for s in points], 1),
                error_y=_bars([s["tpot_s"] for s in points], 1e3),
                mode="lines+markers+text",
                text=[f"{s['clients']}" if s["clients"] else f"{s['rate']:g}/s" for s in points],
                textposition="bottom center",
                name=tier_name(f"{arm}, {loop} loop", "measured"),
                marker=dict(symbol=look.marker, size=9, color=look.colour),
                line=dict(color=look.colour, dash=look.dash),
                hovertext=[_hover(arm, s) for s in points],
                hoverinfo="text",
            )
            figure.add_scatter(
                x=x,
                y=[1e3 * s["p99"]["tpot_s"] for s in points],
                mode="markers",
                name=tier_name(f"{arm}, {loop} loop, P99", "measured"),
                marker=dict(symbol=f"{look.marker}-open", size=8, color=look.colour),
                hovertext=[_hover(arm, s) for s in points],
                hoverinfo="text",
            )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _bars(found: Sequence[Mapping], scale: float) -> dict | None:
    return bars([(f["median"], f["low"], f["high"]) for f in found], scale=scale, width=4)


def _hover(arm: str, s: Mapping) -> str:
    return (
        f"<b>{arm}, {s['level']} ({s['loop']} loop)</b><br>{s['output_tok_s']['median']:.1f} tok/s together<br>"
        f"TPOT {1e3 * s['tpot_s']['median']:.2f} ms, P99 {1e3 * s['p99']['tpot_s']:.2f} ms<br>"
        f"TTFT {1e3 * s['ttft_s']['median']:.0f} ms, P99 {1e3 * s['p99']['ttft_s']:.0f} ms<br>"
        f"{s['ok']} of {s['asked']} requests answered · ● measured"
    )
