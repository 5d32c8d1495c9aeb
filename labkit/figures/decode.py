"""Figures of plain decoding: time a token beside its floor, where the bytes go, the roofline, the ladder."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from labkit.evidence import Evidence
from labkit.figures.marks import add_level, add_points, add_ranges, add_segments, by_tier, hover, positions
from labkit.figures.theme import (
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SERIES,
    SKY,
    TIERS,
    Series,
    alt_of,
    new,
    series,
    set_alt,
    tier_name,
)

if TYPE_CHECKING:
    from labkit.roofline.account import Account

Named = tuple[str, Evidence]
PREDICTED = (Series(ORANGE, "dash", "circle"), Series(PURPLE, "dash", "square"))
ELSEWHERE = Series(SKY, "dash", "circle")


def tpot(
    measured: Sequence[Named],
    *,
    floors: Sequence[Named] = (),
    predicted: Sequence[Named] | Mapping[str, Sequence[Named]] = (),
    reported: Sequence[Named] = (),
    guess_s: float | None = None,
    arms: Sequence[str] = (),
    ranges: Sequence[tuple[str, Evidence, Evidence]] = (),
    title: str = "Time per output token",
) -> go.Figure:
    """TPOT in ms of each arm: measured with its interval, and what floor, prediction, report and reader said.

    Each item is (arm, evidence in seconds). `arms` fixes the order on the axis, also of arms not measured yet.
    Predictions of several kinds come by name, and are drawn apart. ranges: (arm, least, most), both predicted.
    guess_s: the reader's guess, across the figure.
    """
    kinds = predicted if isinstance(predicted, Mapping) else {"predicted": predicted}
    predicted = [(n, e) for items in kinds.values() for n, e in items]
    named = [*(n for n, _ in [*measured, *floors, *predicted, *reported]), *(n for n, *_ in ranges)]
    order = list(dict.fromkeys([*arms, *named]))
    alt = _tpot_alt(measured, floors, kinds, guess_s, ranges)
    figure = new(title, y="ms per output token, lower is better", alt=alt)
    positions(figure, order)
    figure.update_yaxes(rangemode="tozero")
    for index, name in enumerate(order):
        points = [e for n, e in measured if n == name]
        if points:
            add_points(figure, [index] * len(points), points, unit="ms", name=name, look=series(index))
    for _, xs, same in by_tier((order.index(n), e) for n, e in floors):
        levels = list(zip(xs, same, strict=True))
        add_segments(figure, levels, unit="ms", name="byte floor", look=Series(INK, "dash", "x"))
    spans = [(float(order.index(n)), a, z) for n, a, z in ranges]
    add_ranges(figure, spans, unit="ms", name="predicted, all drafts right to none", look=PREDICTED[0])
    beside = [(items, label, look) for (label, items), look in zip(kinds.items(), PREDICTED, strict=False)]
    for place, (items, label, look) in enumerate([*beside, (reported, "reported elsewhere", ELSEWHERE)], start=1):
        for _, xs, same in by_tier((order.index(n) + 0.11 * place, e) for n, e in items):  # beside the measured point
            add_points(figure, xs, same, unit="ms", name=label, look=look)
    if guess_s is not None:
        # The reader's guess has no tier: a line of its own kind, named as what it is.
        figure.add_scatter(
            x=[-0.5, len(order) - 0.5],
            y=[guess_s * 1e3] * 2,
            mode="lines",
            name="your guess ✎",
            line=dict(color=ORANGE, width=1.5, dash="longdashdot"),
            hovertemplate="your guess: %{y:.3g} ms<extra></extra>",
        )
    return figure


def add_kept(figure: go.Figure, items: Sequence[tuple[str, str, Evidence]]) -> None:
    """Results of other settings or of another time beside a comparison: hollow, grey, each with its time.

    items: (arm, when it was measured ("at 14:32"), TPOT). A figure that is not in ms over names (`marks.positions`)
    stays as it is.
    """
    names = list(figure.layout.xaxis.ticktext or ())
    if not items or not names or not (figure.layout.yaxis.title.text or "").startswith("ms"):
        return
    look = Series(INK, "dot", "circle-open")
    at = list(range(len(names), len(names) + len(items)))
    add_points(figure, at, [e for *_, e in items], unit="ms", name="measured earlier, not compared", look=look)
    positions(figure, [*names, *(f"{n}<br>{when}" for n, when, _ in items)])
    kept = "; ".join(f"{n} {e.to('ms').quantity('.3g')}, {when}" for n, when, e in items)
    set_alt(figure, f"{alt_of(figure)} Measured earlier, not compared: {kept}.")


def _tpot_alt(
    measured: Sequence[Named],
    floors: Sequence[Named],
    kinds: Mapping[str, Sequence[Named]],
    guess: float | None,
    ranges: Sequence[tuple[str, Evidence, Evidence]],
) -> str:
    parts = [f"{n} measured {e.to('ms').quantity('.3g')}" for n, e in measured]
    parts += [f"byte floor of {n} {e.to('ms').quantity('.3g')}" for n, e in floors]
    parts += [f"{n} {kind} {e.to('ms').quantity('.3g')}" for kind, items in kinds.items() for n, e in items]
    parts += [f"{n} predicted between {a.to('ms').value:.3g} and {z.to('ms').value:.3g} ms" for n, a, z in ranges]
    if guess is not None:
        parts.append(f"your guess {guess * 1e3:.3g} ms")
    return "Time per output token: " + ("; ".join(parts) if parts else "nothing measured yet") + "."


def bandwidths(
    arms: Sequence[Named], sustained: Evidence, *, order: Sequence[str] = (), title: str = "Effective bandwidth"
) -> go.Figure:
    """Bytes by account over measured time of each arm, GB/s with intervals, under what memory sustains."""
    order = list(dict.fromkeys([*order, *(n for n, _ in arms)]))
    figure = new(
        title,
        y="GB/s, counted bytes over time",
        alt="; ".join(f"{n} {e.to('GB/s').quantity('.3g')}" for n, e in arms)
        + f"; memory sustains {sustained.to('GB/s').quantity('.3g')}.",
    )
    positions(figure, order)
    for name, e in arms:
        index = order.index(name)
        add_points(figure, [index], [e], unit="GB/s", name=name, look=series(index))
    levels = [(float(i), sustained) for i in range(len(order))]
    add_segments(figure, levels, unit="GB/s", name="memory sustains", look=Series(INK, "dash", "x"))
    figure.update_yaxes(rangemode="tozero")
    return figure


def account_bars(account: "Account", *, title: str = "What one decode step reads") -> go.Figure:
    """The account's groups as horizontal bars in MB, largest first: payload and scales apart."""
    lines = sorted(parts(account), key=lambda g: g[1] + g[2])
    total = sum(g[1] + g[2] for g in lines)
    figure = new(
        title,
        x="MB per step (◇ derived from the config)",
        height=max(300, 110 + 27 * len(lines)),
        alt=f"{account.model}, {account.what} at {account.context} tokens of context: {total / 1e6:.2f} MB. "
        + "; ".join(f"{n} {100 * (p + s) / total:.0f}%" for n, p, s, _ in reversed(lines[-4:]))
        + " and smaller parts.",
    )
    for index, (label, part) in enumerate((("values", 1), ("block scales", 2))):
        figure.add_bar(
            y=[g[0] for g in lines],
            x=[g[part] / 1e6 for g in lines],
            orientation="h",
            name=label,
            marker=dict(color=SERIES[index].colour, pattern=dict(shape="" if index == 0 else "/")),
            customdata=[[g[3], 100 * (g[1] + g[2]) / total] for g in lines],
            hovertemplate="%{y} (%{customdata[0]}): %{x:.3f} MB "
            + label
            + ", the group is %{customdata[1]:.1f}% of the step"
            "<extra>◇ derived</extra>",
        )
    figure.update_layout(barmode="stack")
    return figure


def parts(account: "Account") -> list[tuple[str, float, float, str]]:
    """(name, value bytes, scale and padding bytes, format) of everything that a step moves."""
    lines = [(g.name, g.payload_bytes, g.scale_bytes + g.padding_bytes, g.format) for g in account.groups]
    lines += [
        ("KV cache", account.kv_bytes, 0.0, account.quant.kv.name),
        ("KDA state, read and write", account.state_bytes, 0.0, account.quant.state.name),
        ("convolution memory", account.convolution_bytes, 0.0, account.quant.convolution.name),
    ]
    return [line for line in lines if line[1] + line[2] > 0]


def bytes_treemap(account: "Account", *, title: str = "Bytes per step, by area") -> go.Figure:
    """The same account as a treemap; areas are bytes."""
    lines = parts(account)
    total = sum(p + s for _, p, s, _ in lines)
    figure = new(
        title,
        height=420,
        alt=f"Areas in proportion to bytes; the whole is {total / 1e6:.2f} MB. Largest: "
        + ", ".join(n for n, *_ in sorted(lines, key=lambda g: -(g[1] + g[2]))[:3])
        + ".",
    )
    figure.update_layout(uniformtext=dict(minsize=9, mode="hide"))  # what is too small to read is in the hover
    figure.add_treemap(
        labels=[n for n, *_ in lines],
        parents=[""] * len(lines),
        values=[p + s for _, p, s, _ in lines],
        text=[f"{(p + s) / 1e6:.2f} MB, {f}" for _, p, s, f in lines],
        textinfo="label+text+percent root",
        hovertemplate="%{label}<br>%{text}<br>%{percentRoot:.1%} of the step<extra>◇ derived</extra>",
        marker=dict(colors=[SERIES[i % len(SERIES)].colour for i in range(len(lines))], line=dict(width=1, color=INK)),
        textfont=dict(color=["white" if i % len(SERIES) == 0 else "#14171b" for i in range(len(lines))]),
        tiling=dict(pad=2),
    )
    figure.update_layout(margin=dict(l=8, r=44, t=56, b=8))
    return figure


def roofline(
    points: Sequence[tuple[str, Evidence, Evidence]],
    bandwidth: Evidence,
    *,
    peak: Evidence | None = None,
    peak_name: str = "compute roof",
    title: str = "Roofline",
) -> go.Figure:
    """FLOP/s over FLOP/byte, both logarithmic. points: (name, FLOP per byte, FLOP/s), the latter with its interval.

    bandwidth: the slanted roof, B/s; peak: the flat one, FLOP/s, left out where nobody knows it. Each ends where the
    other is lower.
    """
    top = max([f.si for _, _, f in points] + ([peak.si] if peak is not None else []), default=0.0)
    unit, scale = ("TFLOP/s", 1e12) if top >= 2e12 else ("GFLOP/s", 1e9)
    figure = new(
        title,
        x="FLOP per byte",
        y=unit,
        alt="Points below the bandwidth roof: "
        + "; ".join(f"{n} reaches {100 * f.si / (i.si * bandwidth.si):.0f}% of it" for n, i, f in points)
        + ".",
    )
    xs = [i.si for _, i, _ in points] or [1.0]
    left, right = min(xs) / 4, max(xs) * 8
    corner = right if peak is None else min(right, peak.si / bandwidth.si)
    figure.add_scatter(
        x=[left, corner],
        y=[left * bandwidth.si / scale, corner * bandwidth.si / scale],
        mode="lines",
        name=tier_name("bandwidth roof", bandwidth.tier),
        line=dict(color=INK, width=2, dash=TIERS[bandwidth.tier].dash),
        hovertext=[hover(bandwidth, "bandwidth roof")] * 2,
        hoverinfo="text",
    )
    if peak is not None:
        add_level(figure, [corner, right], peak, unit=unit, name=peak_name, look=SERIES[4])
    for index, (name, intensity, flops) in enumerate(points):
        add_points(figure, [intensity.si], [flops], unit=unit, name=name, look=series(index))
    # Ticks at 1, 2 and 5 of each decade.
    figure.update_xaxes(type="log", dtick="D2")
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def ladder(arms: Sequence[Named], *, title: str = "The ladder: ms per token, arm by arm") -> go.Figure:
    """A waterfall of TPOT: the first arm's time, what each further arm took off (or added), and the last arm's time.

    arms: (name, measured TPOT) in order, at least one. The measured value of each arm has its interval on its step.
    """
    values = [e.to("ms") for _, e in arms]
    changes = [b.value - a.value for a, b in zip(values, values[1:], strict=False)]
    figure = new(
        title,
        y="ms per output token",
        alt="; ".join(f"{n} {v.quantity('.3g')}" for (n, _), v in zip(arms, values, strict=True)) + ".",
    )
    texts = [f"{values[0].value:.2f} ms", *(f"{c:+.2f} ms" for c in changes)]
    names = [f"{'+ ' if i else ''}{n}<br>{t}" for i, ((n, _), t) in enumerate(zip(arms, texts, strict=True))]
    figure.add_waterfall(
        x=names,
        y=[values[0].value, *changes],
        measure=["absolute", *["relative"] * len(changes)],
        customdata=texts,
        name="change ◇ derived",
        decreasing_marker_color=GREEN,
        increasing_marker_color=SERIES[1].colour,
        totals_marker_color=SERIES[0].colour,
        connector_line_color=INK,
        hovertemplate="%{customdata}<extra>◇ derived from measured</extra>",
    )
    add_points(figure, names, values, unit="ms", name="TPOT", look=Series(INK, "solid", "circle"))
    figure.update_yaxes(rangemode="tozero", range=[0, 1.2 * max(v.high or v.value for v in values)])
    return figure


NOT_YET = "Nothing measured yet: press Run."


def waiting(title: str, *, why: str = NOT_YET) -> go.Figure:
    """The place of a figure before there is anything to draw; says so instead of showing an empty frame."""
    figure = new(title, alt=why, height=150)
    figure.add_annotation(text=why, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_size=14)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return set_alt(figure, why)
