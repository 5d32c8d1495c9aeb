"""Figures of the byte accounts: one account against the other, bytes over context, experts over window, what fits."""

from collections.abc import Sequence

import plotly.graph_objects as go

from labkit.evidence import Evidence, Tier
from labkit.figures.marks import vertical
from labkit.figures.theme import GREEN, INK, SERIES, new, tier_name
from labkit.roofline.account import Account
from labkit.roofline.capacity import Capacity
from labkit.roofline.predictions import RoundBytes
from labkit.roofline.simple import Simple, bridge

DERIVED = Tier.DERIVED


def two_accounts(short: Simple, account: Account) -> go.Figure:
    """A waterfall from the simple account's total to the per-tensor one, by what the simple one has wrong."""
    steps = bridge(short, account)
    low = 1 - short.total_bytes / account.total_bytes
    figure = new(
        f"The simple account is {abs(low):.0%} too {'low' if low > 0 else 'high'}: what it misses",
        y="GB per step ◇ derived",
        height=440,
        alt=f"Simple account {short.total_bytes / 1e9:.3g} GB, per-tensor account {account.total_bytes / 1e9:.3g} GB. "
        + "; ".join(f"{name} {off / 1e9:+.2g} GB" for name, off in steps)
        + ".",
    )
    names = ["simple account", *(name for name, _ in steps), "per-tensor account"]
    values = [short.total_bytes, *(off for _, off in steps), account.total_bytes]
    figure.add_waterfall(
        x=[_wrap(n) for n in names],
        y=[v / 1e9 for v in values],
        measure=["absolute", *["relative"] * len(steps), "total"],
        text=[
            f"{v / 1e9:.2f}" if n in (names[0], names[-1]) else f"{v / 1e9:+.2f}"
            for n, v in zip(names, values, strict=True)
        ],
        textposition="outside",
        increasing_marker_color=SERIES[1].colour,
        decreasing_marker_color=GREEN,
        totals_marker_color=SERIES[0].colour,
        connector_line_color=INK,
        showlegend=False,
        cliponaxis=False,
        hovertemplate="%{x}: %{text} GB<extra>◇ derived</extra>",
    )
    figure.update_xaxes(tickfont_size=11)
    figure.update_yaxes(range=[0, 1.15 * max(account.total_bytes, short.total_bytes) / 1e9])
    return figure


def _wrap(text: str, width: int = 12) -> str:
    """Axis labels in short lines."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


def against_context(
    accounts: Sequence[Account], crossover: float | None, bandwidth: Evidence, here: int, full: int | None = None
) -> go.Figure:
    """Milliseconds of a step's lower bound by parts over context length; accounts in order of context.

    crossover: tokens at which KV equals the weights; full: tokens at which memory is full; None where neither happens.
    """
    xs = [a.context for a in accounts]
    figure = new(
        "Context: the KV grows, the weights do not",
        x="tokens of context",
        y=f"lower bound, ms per step, at {bandwidth.quantity('g')}",
        height=420,
        alt=f"At {here} tokens the KV is {_share(accounts, here):.0%} of the step's bytes. "
        + (f"KV equals the weights at {crossover:,.0f} tokens." if crossover else "KV never equals the weights here."),
    )
    parts = (
        ("weights", [a.weight_bytes for a in accounts]),
        ("linear-attention state", [a.state_bytes + a.convolution_bytes for a in accounts]),
        ("KV read", [a.kv_bytes for a in accounts]),
    )
    for index, (name, sizes) in enumerate(parts):
        if any(sizes):
            figure.add_scatter(
                x=xs,
                y=[s / bandwidth.si * 1e3 for s in sizes],
                stackgroup="step",
                mode="lines",
                name=tier_name(name, DERIVED),
                line=dict(color=SERIES[index].colour, dash=SERIES[index].dash, width=2),
                customdata=[s / 1e6 for s in sizes],
                hovertemplate=f"{name} at %{{x:,}} tokens: %{{customdata:.1f}} MB, %{{y:.3g}} ms"
                "<extra>◇ derived</extra>",
            )
    end = xs[-1] or 1
    vertical(figure, here, "you are here", "left" if here < 0.6 * end else "right")
    if crossover and xs[0] <= crossover <= xs[-1]:
        vertical(figure, crossover, f"KV = weights at {crossover / 1e3:,.0f}k", "right", row=1)
    if full is not None and xs[0] <= full <= xs[-1]:
        said = f"memory is full at {full / 1e3:,.0f}k"
        vertical(figure, full, said, "left" if full < 0.6 * end else "right", row=2)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _share(accounts: Sequence[Account], here: int) -> float:
    nearest = min(accounts, key=lambda a: abs(a.context - here))
    return nearest.kv_bytes / nearest.total_bytes


def against_window(
    verifies: Sequence[Account], rounds: Sequence[RoundBytes], experts: int, top_k: int, here: int
) -> go.Figure:
    """Distinct experts a layer touches over the positions computed together, and what that does to the step's bytes.

    verifies: steps of 1, 2, ... positions. rounds: rounds with drafts = positions - 1 (empty without a NEXTN layer).
    """
    xs = [a.positions for a in verifies]
    one = verifies[0].total_bytes
    chosen = next(a for a in verifies if a.positions == here)
    touched = (
        f"{chosen.distinct_experts:.1f} distinct experts of {experts} per layer" if experts else "all weights once"
    )
    figure = new(
        "Window: more positions, more experts" if experts else "Window: more positions, hardly more bytes",
        x="positions computed together",
        y="relative to one position",
        height=420,
        alt=f"{here} positions touch {touched}; the step then reads {chosen.total_bytes / one:.2f} times the bytes of "
        "a plain one.",
    )
    curves = [("bytes of the step", [a.total_bytes / one for a in verifies], 0)]
    if experts:
        curves = [
            ("distinct experts, if none were shared", [min(experts, m * top_k) / top_k for m in xs], 4),
            ("distinct experts, independent choices", [a.distinct_experts / top_k for a in verifies], 1),
            *curves,
        ]
    if rounds:
        curves.append(("bytes of a whole draft-and-verify round", [r.c for r in rounds], 2))
    for name, ys, look in curves:
        xs_here = xs if len(ys) == len(xs) else xs[len(xs) - len(ys) :]
        figure.add_scatter(
            x=xs_here,
            y=ys,
            mode="lines+markers",
            name=tier_name(name, DERIVED),
            line=dict(color=SERIES[look].colour, dash=SERIES[look].dash, width=2),
            marker=dict(symbol=SERIES[look].marker, size=8),
            hovertemplate=f"{name}, %{{x}} positions: %{{y:.2f}} times one<extra>◇ derived</extra>",
        )
    vertical(figure, here, f"window {here}")
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(dtick=1 if len(xs) <= 16 else None)
    return figure


def held(room: Capacity) -> go.Figure:
    """What must be held, part by part, against what may be filled: one stacked bar and a line."""
    usable = room.usable.si / 1e9
    figure = new(
        f"{'It fits' if room.fits else 'It does not fit'}: {room.held_bytes / 1e9:.1f} GB of {usable:.1f} GB usable",
        x="GB held ◇ derived",
        height=320,
        alt="; ".join(f"{name} {size / 1e9:.3g} GB" for name, size in room.parts) + f". Usable: {usable:.3g} GB.",
    )
    for i, (name, size) in enumerate(room.parts):
        look = SERIES[i % len(SERIES)]
        figure.add_bar(
            y=["held"],
            x=[size / 1e9],
            orientation="h",
            name=tier_name(name, DERIVED),
            marker=dict(color=look.colour, pattern=dict(shape=("", "/", "x", "-", ".")[i % 5])),
            hovertemplate=f"{name}: {size / 1e9:.3f} GB<extra>◇ derived</extra>",
        )
    figure.add_bar(
        y=["read per step"],
        x=[room.read_bytes / 1e9],
        orientation="h",
        name=tier_name("read by one step", DERIVED),
        marker=dict(color=GREEN),
        hovertemplate=f"one step reads {room.read_bytes / 1e9:.3f} GB<extra>◇ derived</extra>",
    )
    figure.update_layout(barmode="stack")
    vertical(figure, usable, "usable", "right")
    figure.update_xaxes(range=[0, 1.05 * max(usable, room.held_bytes / 1e9)])  # a line alone widens no axis
    return figure


def held_unknown(machine: str) -> go.Figure:
    """An empty plot that says why."""
    return new(f"The memory of {machine} is not in the catalog", height=160, alt=f"The memory of {machine} is unknown.")


def changes(rows: Sequence[tuple[str, Account]], bandwidth: Evidence) -> go.Figure:
    """Floors after single changes, the present settings on top, each bar split into weights, KV and state."""
    shown = list(reversed(rows))
    base = rows[0][1].total_bytes
    figure = new(
        "What one change does to the floor",
        x=f"lower bound, ms per step, at {bandwidth.quantity('g')}",
        height=120 + 34 * len(rows),
        alt="; ".join(f"{name}: {a.total_bytes / bandwidth.si * 1e3:.3g} ms" for name, a in rows) + ".",
    )
    parts = (
        ("weights", [a.weight_bytes for _, a in shown]),
        ("KV read", [a.kv_bytes for _, a in shown]),
        ("state", [a.state_bytes + a.convolution_bytes for _, a in shown]),
    )
    for i, (name, sizes) in enumerate(parts):
        if any(sizes):
            figure.add_bar(
                y=[n for n, _ in shown],
                x=[s / bandwidth.si * 1e3 for s in sizes],
                orientation="h",
                name=tier_name(name, DERIVED),
                marker=dict(color=SERIES[i].colour, pattern=dict(shape=("", "/", "x")[i])),
                customdata=[s / 1e6 for s in sizes],
                hovertemplate=f"%{{y}}, {name}: %{{customdata:.1f}} MB, %{{x:.3g}} ms<extra>◇ derived</extra>",
            )
    for name, account in shown:
        figure.add_annotation(
            y=name,
            x=account.total_bytes / bandwidth.si * 1e3,
            text=f" {account.total_bytes / base - 1:+.0%}" if account.total_bytes != base else "",
            showarrow=False,
            xanchor="left",
        )
    figure.update_layout(barmode="stack")
    return figure
