"""Figures of runs: every request in order, latency distributions, sweeps over context."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from labkit.evidence import Evidence
from labkit.figures.marks import add_guess, add_points
from labkit.figures.theme import INK, Series, new, series, tier_name
from labkit.measure.stats import at_rank

BY_BYTES = Series(INK, "dash", "cross")  # what the account says, beside what was measured
BY_ROOFS = Series(INK, "dot", "diamond-open")  # and what bytes, arithmetic and fixed parts say


def run_order(
    rows_by_arm: Mapping[str, Sequence[dict]], *, title: str = "Every request in the order it ran"
) -> go.Figure:
    """TPOT in ms of single requests over the time they started: a drift of the machine shows as a slope.

    rows_by_arm: arm -> rows as recorded; only rows with status ok are drawn. The line at each arm is its median.
    """
    ok = {arm: [r for r in rows if r["status"] == "ok" and r.get("tpot_s")] for arm, rows in rows_by_arm.items()}
    starts = [r["started_unix"] for rows in ok.values() for r in rows]
    zero = min(starts, default=0.0)
    figure = new(
        title,
        x="seconds since the first request",
        y="ms per output token",
        alt="; ".join(f"{arm}: {len(rows)} requests, {_range(rows)}" for arm, rows in ok.items()) + ".",
    )
    for index, (arm, rows) in enumerate(ok.items()):
        rows, look = sorted(rows, key=lambda r: r["started_unix"]), series(index)
        figure.add_scatter(
            x=[r["started_unix"] - zero for r in rows],
            y=[r["tpot_s"] * 1e3 for r in rows],
            mode="markers",
            name=tier_name(arm, "measured"),
            marker=dict(symbol=look.marker, size=8, color=look.colour, opacity=0.85),
            # Counted from 1, as the line beside the progress bar does.
            customdata=[
                [r["repeat"] + 1, r["index"] + 1, r["output_tokens"], r["latency_s"], r["ttft_s"]] for r in rows
            ],
            hovertemplate=f"{arm}, "
            + "repeat %{customdata[0]}, prompt %{customdata[1]}<br>TPOT = (latency %{customdata[3]:.4f} s"
            " - TTFT %{customdata[4]:.4f} s) / (%{customdata[2]} - 1 tokens) = %{y:.4f} ms<extra>● measured</extra>",
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


def _range(rows: Sequence[dict]) -> str:
    values = sorted(r["tpot_s"] * 1e3 for r in rows)
    return f"{values[0]:.3g} to {values[-1]:.3g} ms" if values else "none usable"


def latency_ecdf(items: Sequence[tuple[str, Sequence[float]]], *, title: str = "End-to-end latency") -> go.Figure:
    """Share of requests that ended within a time, with a 95% band (Dvoretzky-Kiefer-Wolfowitz, Massart).

    items: (arm, latencies in s).
    """
    figure = new(
        title,
        x="seconds from sending to the last token",
        y="share of requests",
        alt="; ".join(f"{n}: median {median(v):.2f} s, 95th percentile {at_rank(v, 0.95):.2f} s" for n, v in items)
        + ".",
    )
    for index, (name, values) in enumerate(items):
        look, values, n = series(index), sorted(values), len(values)
        half = math.sqrt(math.log(2 / 0.05) / (2 * n))
        share = [(i + 1) / n for i in range(n)]
        figure.add_scatter(
            x=[*values, *reversed(values)],
            y=[*(min(1.0, s + half) for s in share), *(max(0.0, s - half) for s in reversed(share))],
            mode="lines",
            fill="toself",
            fillcolor=look.colour,
            opacity=0.14,
            line=dict(width=0, shape="hv"),
            hoverinfo="skip",
            showlegend=False,
        )
        figure.add_scatter(
            x=values,
            y=share,
            mode="lines+markers",
            line=dict(color=look.colour, dash=look.dash, shape="hv"),
            marker=dict(symbol=look.marker, size=5, color=look.colour),
            name=tier_name(name, "measured"),
            hovertemplate=f"{name}: " + "%{y:.0%} within %{x:.3f} s<extra>● measured, band ± " + f"{half:.0%}</extra>",
        )
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    figure.update_xaxes(rangemode="tozero")
    return figure


def context_sweep(
    measured: Mapping[str, Sequence[tuple[int, Evidence]]],
    floors: Mapping[str, Sequence[tuple[int, Evidence]]] | None = None,
    *,
    roofs: Mapping[str, Sequence[tuple[int, Evidence]]] | None = None,
    guess: tuple[int, float] | None = None,
    unit: str = "ms",
    y: str = "ms per output token",
    title: str = "Time per token over context",
) -> go.Figure:
    """A value over context length (logarithmic axis), measured with intervals and derived without a marker of its own.

    measured, floors (by bytes), roofs (by both roofs): name -> [(tokens of context, evidence)].
    guess: the reader's (tokens of context, value in `unit`).
    """
    shown = "" if unit == "1" else unit
    figure = new(
        title,
        x="tokens of context",
        y=y,
        alt="; ".join(
            f"{n}{by}: " + ", ".join(f"{_tokens(x)} {e.to(unit).value:.3g} {shown}".strip() for x, e in v)
            for by, said in (("", measured), (" by bytes", floors), (" by both roofs", roofs))
            for n, v in (said or {}).items()
            if v
        )
        + ("" if guess is None else f"; your guess: {guess[1]:.3g} {shown}".rstrip() + f" at {_tokens(guess[0])}")
        + ".",
    )
    for index, (name, items) in enumerate(measured.items()):
        lines = (
            (items, name, series(index)),
            ((floors or {}).get(name, ()), f"{name}, by bytes", BY_BYTES),
            ((roofs or {}).get(name, ()), f"{name}, by both roofs", BY_ROOFS),
        )
        for points, label, look in lines:
            if points:
                xs, values = zip(*points, strict=True)
                add_points(figure, xs, values, unit=unit, name=label, look=look, lines=True)
    if guess is not None:
        add_guess(figure, guess[0], guess[1], ":.3g")
    ticks = sorted({x for side in (measured, floors or {}, roofs or {}) for v in side.values() for x, _ in v})
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[_tokens(t) for t in ticks])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _tokens(n: int) -> str:
    return f"{n / 1024:g}K" if n >= 1024 and n % 128 == 0 else str(n)


def starts(items: Sequence[tuple[str, float, float | None]], *, title: str = "Start of each engine") -> go.Figure:
    """Seconds until each engine was ready, and how much of them it spent compiling (as it says itself).

    items: (arm, start in s, compile in s or None). Single values: an engine starts once a run, so there is no interval.
    """
    figure = new(
        title,
        y="seconds, one start each",
        alt="; ".join(f"{n}: ready after {s:.2f} s" + (f", compiling {c:.2f} s" if c else "") for n, s, c in items)
        + ".",
    )
    names = [n.replace(", ", "<br>") for n, _, _ in items]
    rest = [max(0.0, s - (c or 0.0)) for _, s, c in items]
    parts = (("compiling", [c or 0.0 for _, _, c in items], ""), ("loading and the rest", rest, "/"))
    for label, seconds, shape in parts:
        figure.add_bar(
            x=names,
            y=seconds,
            name=tier_name(label, "measured"),
            marker_pattern_shape=shape,
            customdata=[s for _, s, _ in items],
            hovertemplate=f"%{{x}}: {label} %{{y:.2f}} s of %{{customdata:.2f}} s<extra>● measured</extra>",
        )
    figure.update_layout(barmode="stack")
    return figure


def arrivals(rows: Sequence[dict], *, title: str = "Tokens as they arrive") -> go.Figure:
    """Cumulative tokens over the time since a request was sent, one line a request: the slope is the decode speed.

    rows: recorded requests with chunk_times (s) and chunk_tokens.
    """
    figure = new(
        title,
        x="milliseconds since the request was sent",
        y="tokens received",
        alt="; ".join(
            f"request {i + 1}: {r['output_tokens']} tokens in {r['latency_s']:.2f} s" for i, r in enumerate(rows)
        )
        + ".",
    )
    for index, row in enumerate(rows):
        look = series(index)
        figure.add_scatter(
            x=[1e3 * t for t in row["chunk_times"]],
            y=row["chunk_tokens"],
            mode="lines",
            line=dict(color=look.colour, dash=look.dash, shape="hv"),
            name=tier_name(f"request {index + 1}", "measured"),
            hovertemplate="%{y} tokens after %{x:.1f} ms<extra>● measured</extra>",
        )
    figure.update_layout(yaxis_rangemode="tozero", xaxis_rangemode="tozero")
    return figure
