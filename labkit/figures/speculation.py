"""Figures of drafting and verifying: what a round costs (c), what it yields (a), and where it pays (S = a / c)."""

from collections.abc import Sequence

import plotly.graph_objects as go

from labkit.evidence import Evidence, Tier
from labkit.figures.marks import (
    add_arrows,
    add_guess,
    add_no_gain,
    add_points,
    add_ranges,
    bars_of,
    by_tier,
    hover,
    positions,
)
from labkit.figures.theme import INK, ORANGE, SERIES, VERMILION, new, series, tier_name
from labkit.roofline.proportions import wilson


def ac_plane(
    points: Sequence[tuple[str, Evidence, Evidence]],
    *,
    guess: float | None = None,
    predicted: Sequence[tuple[str, Evidence, Evidence, Evidence]] = (),
    title: str = "Yield a over cost c",
) -> go.Figure:
    """Each setting as a point (c, a) with both intervals, among lines of equal speed-up S = a / c.

    Above the line S = 1 speculation pays; below it the same tokens come slower than without. guess: the reader's a.
    predicted: (name, c, least a, most a); an arrow leads from the predicted c of a setting to its measured point.
    """
    figure = new(
        title,
        x="c: time per round, in plain steps",
        y="a: tokens per verify step",
        height=460,
        alt=_listed(
            [
                *(f"{n}: a {a.value:.2f}, c {c.value:.2f}, S {a.value / c.value:.2f}" for n, a, c in points),
                *(f"{n} predicted: c {c.value:.2f}, a {_between(a, z)}" for n, c, a, z in predicted),
                *([] if guess is None else [f"your guess: a {guess:g}"]),
            ]
        )
        + " Above the line S = 1 speculation pays.",
    )
    right = 1.15 * max([4.0, *(c.high or c.value for _, _, c in points), *(c.value for _, c, *_ in predicted)])
    most = [*(a.high or a.value for _, a, _ in points), *(z.value for *_, z in predicted)]
    top = 1.1 * max([4.0, guess or 0.0, *most])
    for s in (0.5, 1.0, 2.0, 3.0) if right < 6 else (0.5, 1.0, 2.0):
        x = min(right, top / s)
        figure.add_scatter(
            x=[0, x],
            y=[0, s * x],
            mode="lines",
            line=dict(color=VERMILION if s == 1 else INK, width=2 if s == 1 else 1, dash="solid" if s == 1 else "dot"),
            showlegend=False,
            hoverinfo="skip",
        )
        # Beside a line that ends at the top, above one that ends at the side: over the top stands the title.
        place = dict(yanchor="top", xshift=-10 - 32 / s) if x < right else dict(yanchor="bottom")
        name = None if s == 1 else "wide"
        figure.add_annotation(x=x, y=s * x, text=f"S = {s:g}", name=name, showarrow=False, xanchor="right", **place)
    for index, (name, a, c) in enumerate(points):
        look = series(index + 1)  # the first look belongs to plain decoding
        figure.add_scatter(
            x=[c.value],
            y=[a.value],
            error_x=bars_of([c], "1"),
            error_y=bars_of([a], "1"),
            mode="markers",
            name=tier_name(name, a.tier),
            marker=dict(symbol=look.marker, size=12, color=look.colour),
            hovertext=[hover(a, f"{name}: a") + "<br>" + hover(c, "c")],
            hoverinfo="text",
        )
    there = {n: (a, c) for n, a, c in points}
    ranges = [(c.value, a, z) for n, c, a, z in predicted if n not in there]
    add_ranges(figure, ranges, unit="1", name="predicted c, any a", look=SERIES[4])
    moved = [
        ((c.value, there[n][0].value), (there[n][1].value, there[n][0].value)) for n, c, *_ in predicted if n in there
    ]
    add_arrows(figure, moved)
    if moved:
        figure.add_scatter(
            x=[start[0] for start, _ in moved],
            y=[start[1] for start, _ in moved],
            mode="markers",
            name="predicted c, at the measured a ◇ derived",
            marker=dict(symbol="diamond-open", size=9, color=SERIES[4].colour),
            hovertext=[hover(c, f"{n}: predicted c") for n, c, *_ in predicted if n in there],
            hoverinfo="text",
        )
    if guess is not None:
        figure.add_scatter(
            x=[0, right],
            y=[guess, guess],
            mode="lines",
            name="your guess ✎",
            line=dict(color=ORANGE, width=1.5, dash="longdashdot"),
            hovertemplate="your guess: a = %{y:.3g}<extra></extra>",
        )
    figure.update_xaxes(range=[0, right])
    figure.update_yaxes(range=[0, top])
    return figure


def by_position(items: Sequence[tuple[str, Sequence[int]]], *, title: str = "Which drafts are accepted") -> go.Figure:
    """Marginal acceptance by draft position from histograms of correct drafts per verify step, with 95% intervals.

    items: (name, histogram); histogram[i] counts the verify steps that accepted exactly i drafts.
    """
    from labkit.measure.estimates import by_position as rates

    figure = new(
        title,
        x="draft position",
        y="accepted in this share of verify steps",
        alt="; ".join(f"{n}: " + ", ".join(f"{r:.0%}" for r in rates(h)) for n, h in items) + " by position.",
    )
    for index, (name, histogram) in enumerate(items):
        look, total = series(index + 1), sum(histogram)
        values = rates(histogram)
        ends = [wilson(round(v * total), total) for v in values]
        figure.add_scatter(
            # Side by side: equal rates of several settings would hide each other.
            x=[i + 0.05 * (index - (len(items) - 1) / 2) for i in range(1, len(values) + 1)],
            y=values,
            error_y=dict(
                type="data",
                symmetric=False,
                array=[h - v for v, (_, h) in zip(values, ends, strict=True)],
                arrayminus=[v - low for v, (low, _) in zip(values, ends, strict=True)],
            ),
            mode="lines+markers",
            name=tier_name(name, "measured"),
            line=dict(color=look.colour, dash=look.dash),
            marker=dict(symbol=look.marker, size=9, color=look.colour),
            customdata=[[sum(histogram[i:]), total, i] for i in range(1, len(values) + 1)],
            hovertemplate=f"{name}, "
            + "position %{customdata[2]}: %{customdata[0]} of %{customdata[1]} verify steps = %{y:.1%}"
            "<extra>● measured, 95% interval</extra>",
        )
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")
    return figure


def cost_by_tokens(
    measured: Sequence[tuple[int, Evidence]],
    by_bytes: Sequence[tuple[int, Evidence]],
    accept: Sequence[tuple[int, Evidence]] = (),
    by_roofs: Sequence[tuple[int, Evidence]] = (),
    *,
    title: str = "c(n): what a round of n tokens costs",
) -> go.Figure:
    """c over the number of tokens that a round verifies: measured, what the byte account alone predicts, and
    what both roofs and fixed parts predict where they are known.

    accept: a at the same settings, on the same axis, because speculation pays where a lies above c.
    """
    figure = new(
        title,
        x="n: tokens verified per round",
        y="plain steps (c) or tokens (a)",
        alt=" ".join(
            f"{what}: " + _listed([f"{n}: {c.value:.2f}" for n, c in items])
            for what, items in (
                ("c by n, from measured times", measured),
                ("By bytes alone", by_bytes),
                ("By both roofs", by_roofs),
            )
            if items
        )
        or _listed([]),
    )
    for items, name, look in (
        (measured, "c from measured times", SERIES[1]),
        (by_bytes, "c by bytes alone", SERIES[5]),
        (by_roofs, "c by both roofs", SERIES[2]),
        (accept, "a", SERIES[0]),
    ):
        if items:
            ns, values = zip(*sorted(items, key=lambda i: i[0]), strict=True)
            add_points(figure, ns, values, unit="1", name=name, look=look, lines=True)
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(rangemode="tozero")
    return figure


def speedups(
    items: Sequence[tuple[str, Evidence | None, Evidence | None]],
    *,
    reported: Sequence[tuple[str, Evidence]] = (),
    guess: float | None = None,
    guess_at: str | None = None,
    ranges: Sequence[tuple[str, Evidence, Evidence]] = (),
    title: str = "Speed-up over plain decoding",
) -> go.Figure:
    """For each setting a speed-up as predicted and as measured; published ones and the reader's guess beside.

    items: (name, predicted, measured); either may be None; an arrow leads from the one to the other. guess: drawn at
    the item guess_at, or the last one. ranges: (name, least, most) of what is predicted before anything is measured.
    """
    figure = new(
        title,
        y="times faster",
        alt=_listed(
            [
                *(f"{n}: {_said(p, m)}" for n, p, m in items if p or m or n not in dict(reported)),
                *(f"reported elsewhere, {n}: {e.quantity('.3g')}" for n, e in reported),
                *(f"{n} predicted between {a.value:.3g} and {z.value:.3g}" for n, a, z in ranges),
                *([] if guess is None else [f"your guess: {guess:g}"]),
            ]
        ),
    )
    order = list(dict.fromkeys([*(n for n, _, _ in items), *(n for n, _, _ in ranges)]))
    positions(figure, order)
    at = {n: i for i, n in enumerate(order)}
    sides = (
        ([(n, e) for n, e, _ in items], "predicted", SERIES[4], -0.1),
        ([(n, e) for n, _, e in items], "from measured times", SERIES[0], 0.0),
        (list(reported), "reported elsewhere", SERIES[5], 0.1),
    )
    for pairs, name, look, shift in sides:
        there = [(n, e) for n, e in pairs if e is not None]
        for tier, xs, same in by_tier((at[n] + shift, e) for n, e in there):
            said = "from times reported elsewhere" if shift > 0 and tier is Tier.DERIVED else name
            add_points(figure, xs, same, unit="1", name=said, look=look)
    add_ranges(figure, [(at[n], a, z) for n, a, z in ranges], unit="1", name="predicted", look=SERIES[4])
    add_arrows(figure, [((at[n] - 0.1, p.value), (at[n], m.value)) for n, p, m in items if p and m])
    if guess is not None:
        add_guess(figure, at.get(guess_at, len(order) - 1) + 0.2, guess)
    add_no_gain(figure)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _listed(parts: Sequence[str]) -> str:
    """Parts of an alt text as one sentence."""
    return "; ".join(parts) + "." if parts else "Nothing measured yet."


def _between(least: Evidence, most: Evidence) -> str:
    return f"{least.value:.3g}" if least.value == most.value else f"{least.value:.3g} to {most.value:.3g}"


def _said(predicted: Evidence | None, measured: Evidence | None) -> str:
    pairs = (("predicted", predicted), ("measured", measured))
    return ", ".join(f"{what} {e.quantity('.3g')}" for what, e in pairs if e) or "not yet"
