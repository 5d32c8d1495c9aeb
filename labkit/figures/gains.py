"""Figures of a gain: by load, split into bytes and bandwidth, where it goes, and what became of the answers."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.evidence import Evidence
from labkit.figures.marks import add_guess, add_no_gain, add_points, by_tier, hover, positions
from labkit.figures.theme import GREEN, INK, SERIES, VERMILION, Series, new, series

Named = tuple[str, Evidence]
REPORTED = Series(INK, "dash", "square")


def by_load(
    measured: Mapping[str, Sequence[Named]],
    reported: Mapping[str, Sequence[Named]],
    *,
    order: Sequence[str],
    guess: tuple[str, float] | None = None,
    title: str = "The same changes on two loads",
) -> go.Figure:
    """Speed-ups of parts of a ladder, side by side for several loads; a line at 1 is no gain.

    measured, reported: load -> [(part, speed-up)]. order: the parts along the axis. guess: (part, the reader's guess).
    """
    everything = {**measured, **reported}
    figure = new(
        title,
        y="times faster",
        alt="; ".join(
            f"{load}: " + ", ".join(f"{part} {e.quantity('.3g')}" for part, e in items)
            for load, items in everything.items()
            if items
        )
        + ".",
    )
    positions(figure, order)
    half = (len(everything) - 1) / 2
    for place, (load, items) in enumerate(everything.items()):
        look = series(place) if load in measured else Series(INK, "dash", series(place).marker)
        there = [(order.index(part) + 0.13 * (place - half), e) for part, e in items]
        for _, xs, same in by_tier(there):
            name = load if load in measured else f"{load}, from reported times"
            add_points(figure, xs, same, unit="1", name=name, look=look)
    if guess is not None:
        add_guess(figure, order.index(guess[0]) + 0.32, guess[1])
    add_no_gain(figure)
    figure.update_yaxes(rangemode="tozero")
    return figure


def lost(start: Named, factors: Sequence[Named], end: Named, *, title: str = "Where the gain goes") -> go.Figure:
    """A waterfall from one speed-up to another by factors that multiply: each bar spans what its factor changes."""
    levels = [start[1].value]
    for _, factor in factors:
        levels.append(levels[-1] * factor.value)
    changes = [b - a for a, b in zip(levels, levels[1:], strict=False)]
    figure = new(
        title,
        y="times faster than the first arm",
        alt=f"{start[0]}: {start[1].quantity('.3g')}; "
        + "; ".join(f"{n}: times {f.value:.2f}" for n, f in factors)
        + f"; {end[0]}: {end[1].quantity('.3g')}.",
    )
    texts = [f"x{start[1].value:.2f}", *(f"x{f.value:.2f}" for _, f in factors), f"x{end[1].value:.2f}"]
    names = [n for n, _ in (start, *factors, end)]
    figure.add_waterfall(
        x=[f"{n}<br>{t}" for n, t in zip(names, texts, strict=True)],
        y=[start[1].value, *changes, end[1].value],
        measure=["absolute", *["relative"] * len(changes), "absolute"],
        hovertext=[hover(e, n) for n, e in (start, *factors, end)],
        hoverinfo="text",
        name="change ◇ derived",
        decreasing_marker_color=SERIES[1].colour,
        increasing_marker_color=GREEN,
        totals_marker_color=SERIES[0].colour,
        connector_line_color=INK,
    )
    add_points(
        figure,
        [f"{names[0]}<br>{texts[0]}", f"{names[-1]}<br>{texts[-1]}"],
        [start[1], end[1]],
        unit="1",
        name="speed-up",
        look=Series(INK, "solid", "circle"),
    )
    figure.add_hline(y=1, line=dict(color=VERMILION, width=1.5))
    figure.update_yaxes(rangemode="tozero")
    return figure


def splits(
    items: Sequence[tuple[str, Evidence, Evidence]], *, title: str = "Each gain: fewer bytes x more bandwidth"
) -> go.Figure:
    """Both factors of several gains. items: (name, fewer bytes, more bandwidth), published ones among them."""
    figure = new(
        title,
        y="factor",
        alt="; ".join(
            f"{n}: bytes x{b.value:.2f}, bandwidth x{w.value:.2f}, together x{b.value * w.value:.2f}"
            for n, b, w in items
        )
        + ".",
    )
    names = [f"{n}<br>x{b.value * w.value:.2f}" for n, b, w in items]
    positions(figure, names)
    for label, part, look, shift in (
        ("fewer bytes per token", 1, SERIES[0], -0.08),
        ("more bandwidth", 2, SERIES[1], 0.08),
    ):
        points = [(i + shift, item[part]) for i, item in enumerate(items)]
        for _, xs, same in by_tier(points):
            add_points(figure, xs, same, unit="1", name=label, look=look)
    figure.add_hline(y=1, line=dict(color=VERMILION, width=1.5))
    figure.update_yaxes(rangemode="tozero")
    return figure


def accuracy(
    items: Sequence[Named], reported: Sequence[Named] = (), *, title: str = "Accuracy on the same questions"
) -> go.Figure:
    """Share of right answers of each arm, with Wilson's 95% interval. items: (arm, share)."""
    figure = new(
        title,
        y="right answers",
        alt="; ".join(f"{n}: {100 * e.value:.1f}%" for n, e in (*items, *reported)) + ", with 95% Wilson intervals.",
    )
    positions(figure, [n for n, _ in (*items, *reported)])
    for index, (name, share) in enumerate((*items, *reported)):
        look = series(index) if index < len(items) else REPORTED
        add_points(figure, [index], [share], unit="1", name=name, look=look)
    figure.update_yaxes(range=[0, 1.04], tickformat=".0%")
    return figure


def paired_times(
    items: Sequence[tuple[str, Evidence, Evidence]],
    names: tuple[str, str],
    *,
    title: str,
    y: str = "ms",
) -> go.Figure:
    """Two times of several things side by side, in ms. items: (thing, time one way, time the other way)."""
    figure = new(
        title,
        y=y,
        alt="; ".join(
            f"{n}: {names[0]} {a.to('ms').quantity('.3g')}, {names[1]} {b.to('ms').quantity('.3g')}"
            for n, a, b in items
        )
        + ".",
    )
    positions(figure, [n for n, _, _ in items])
    for side, (label, shift) in enumerate(zip(names, (-0.08, 0.08), strict=True)):
        xs, points = [i + shift for i in range(len(items))], [item[1 + side] for item in items]
        add_points(figure, xs, points, unit="ms", name=label, look=series(side))
    figure.update_yaxes(rangemode="tozero")
    return figure


def experts(
    expected: Sequence[tuple[int, Evidence]],
    counted: Mapping[str, Mapping[int, Evidence]],
    *,
    title: str = "Distinct experts per layer",
) -> go.Figure:
    """Distinct experts over positions in one step: expected for independent choices, and counted on each load."""
    figure = new(
        title,
        x="positions computed together",
        y="distinct experts read",
        alt="expected: "
        + ", ".join(f"{m}: {e.value:.1f}" for m, e in expected)
        + "".join(f"; {load}: " + ", ".join(f"{m}: {e.value:.1f}" for m, e in c.items()) for load, c in counted.items())
        + ".",
    )
    xs, points = zip(*expected, strict=True)
    add_points(figure, xs, points, unit="1", name="expected, independent choices", look=SERIES[5], lines=True)
    for index, (load, found) in enumerate(counted.items()):
        shift = 0.06 * (index - (len(counted) - 1) / 2)
        xs = [m + shift for m in found]
        add_points(figure, xs, list(found.values()), unit="1", name=f"counted, {load}", look=series(index))
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(rangemode="tozero")
    return figure
