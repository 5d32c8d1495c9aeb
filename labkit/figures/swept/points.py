"""Points of a sweep: ranked, in the a-c plane, against a second count, and the best two on fresh prompts."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.evidence import Tier
from labkit.figures.decode import waiting
from labkit.figures.explored import plane as plane_of
from labkit.figures.marks import add_no_gain
from labkit.figures.swept import words
from labkit.figures.swept.words import Row
from labkit.figures.theme import new, series, tier_name
from labkit.measure.sweep import effects as found


def ranked(rows: Sequence[Row], *, title: str = "All configurations, slowest to fastest") -> go.Figure:
    """The speed-up of each measured configuration over its own baseline, with its interval; one series a load."""
    order = sorted(found.measured(rows), key=lambda r: r["speedup"])
    if not order:
        return waiting(title, why="No configuration measured yet.")
    best, worst = order[-1], order[0]
    figure = new(
        title,
        x="rank",
        y=words.SPEED,
        alt=f"{len(order)} configurations; fastest {best['config']} ({words.label(best)}) x{best['speedup']:.2f};"
        f" slowest {worst['config']} ({words.label(worst)}) x{worst['speedup']:.2f}.",
    )
    place = {r["config"]: i + 1 for i, r in enumerate(order)}
    for index, (load, mine) in enumerate(found.loads(order).items()):
        look = series(index)
        figure.add_scatter(
            x=[place[r["config"]] for r in mine],
            y=[r["speedup"] for r in mine],
            error_y=words.bars(mine, "speedup"),
            mode="markers",
            name=tier_name(load or "speed-up", Tier.DERIVED),
            marker=dict(symbol=look.marker, size=8, color=look.colour),
            **_points(mine),
        )
    add_no_gain(figure)
    figure.update_xaxes(range=[-0.08 * len(order), len(order) + 1])  # room for the words at the line
    return figure


def _points(rows: Sequence[Row]) -> dict:
    return dict(customdata=[r["config"] for r in rows], hovertext=[words.hover(r) for r in rows], hoverinfo="text")


def plane(rows: Sequence[Row], *, title: str = "Yield a over cost c, all configurations that draft") -> go.Figure:
    """Each drafting configuration as a point (c, a); above the line S = 1 drafting pays."""
    drafting = [r for r in found.measured(rows) if r.get("cost") and r.get("accept_length")]
    if not drafting:
        return waiting(title, why="No configuration drafts beside a baseline that does not.")
    named = [
        {
            "name": r["config"],
            "load": r["load"] or "the common load",
            "a": r["accept_length"],
            "c": r["cost"],
            "S": r["speedup"],
        }
        for r in drafting
    ]
    return plane_of(named, title=title, named=len(drafting) <= 8)


def fronts(rows: Sequence[Row]) -> go.Figure:
    """Speed against accuracy, or against the time to the first token where no configuration was asked questions; the
    line joins those that none beats on both counts (the Pareto front), one a load."""
    other, more = found.second_count(rows)
    against = "accuracy" if more else "time to first token"
    title = f"Speed against {against}"
    if not more:
        title += " (accuracy was not measured)"
    by_load = found.loads(rows)
    if not by_load:
        return waiting(title, why="No configuration measured yet.")
    scale, title_y = (1.0, "accuracy: share of right answers") if more else (1e3, "TTFT, ms (lower is better)")
    best = {load: found.front(mine) for load, mine in by_load.items()}
    figure = new(
        title,
        x="TPOT, ms per token (lower is better)",
        y=title_y,
        height=440,
        alt="; ".join(f"on the front{', ' + load if load else ''}: {', '.join(n)}" for load, n in best.items()) + ".",
    )
    for index, (load, mine) in enumerate(by_load.items()):
        look, mine = series(index), [r for r in mine if r.get(other) is not None]
        figure.add_scatter(
            x=[1e3 * r["tpot_s"] for r in mine],
            y=[scale * r[other] for r in mine],
            error_x=words.bars(mine, "tpot_s", 1e3) if len(mine) <= 20 else None,
            error_y=words.bars(mine, other, scale) if len(mine) <= 20 else None,
            mode="markers",
            name=tier_name(load or "configurations", Tier.MEASURED),
            marker=dict(symbol=look.marker, size=8, color=look.colour),
            **_points(mine),
        )
        line = sorted((r for r in mine if r["config"] in best[load]), key=lambda r: r["tpot_s"])
        figure.add_scatter(
            x=[1e3 * r["tpot_s"] for r in line],
            y=[scale * r[other] for r in line],
            mode="lines",
            name=f"front{', ' + load if load else ''}",
            line=dict(color=look.colour, width=2, dash="dot"),
            hoverinfo="skip",
        )
    if more:
        figure.update_yaxes(tickformat=".0%")
    return figure


def again(
    rows: Sequence[Row], finals: Sequence[Mapping], *, title: str = "The best two again, on fresh prompts"
) -> go.Figure:
    """Speed-up in the sweep, from which they were chosen, beside the one on prompts that chose nothing."""
    by_name = {r["config"]: r for r in found.measured(rows)}
    looked = []
    for f in finals:
        for role, name in (("best", f["best"]), ("runner-up", f["runner_up"])):
            if name in by_name and (f["fresh"].get(name) or {}).get("status") == "measured":
                load = by_name[name]["load"]
                looked.append((f"{name}, {role}" + f"<br>{load}" * bool(load), by_name[name], f["fresh"][name]))
    if not looked:
        return waiting(title, why="The sweep measures the best two again at its end.")
    figure = new(
        title,
        y=words.SPEED,
        alt="; ".join(
            f"{n.replace('<br>', ', ')}: x{s['speedup']:.3f} in the sweep, x{a['speedup']:.3f} on fresh prompts"
            for n, s, a in looked
        )
        + ".",
    )
    for index, (name, side) in enumerate((("in the sweep", 1), ("on fresh prompts", 2))):
        look, mine = series(index), [x[side] for x in looked]
        figure.add_scatter(
            x=[i + 0.12 * (2 * index - 1) for i in range(len(looked))],
            y=[r["speedup"] for r in mine],
            error_y=words.bars(mine, "speedup"),
            mode="markers",
            name=tier_name(name, Tier.DERIVED),
            marker=dict(symbol=look.marker, size=10, color=look.colour),
            customdata=[s["config"] for _, s, _ in looked],
            hovertext=[f"{n}: x{r['speedup']:.3f}" for (n, *_), r in zip(looked, mine, strict=True)],
            hoverinfo="text",
        )
    names = [n for n, *_ in looked]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.5, len(names) - 0.5])
    figure.update_yaxes(rangemode="tozero")  # so that the line of no gain is in it
    add_no_gain(figure)
    return figure
