"""Figures of a sweep, from its rows: all configurations ranked, axis by axis, in the a-c plane, against a second count,
what each field does, and what became of the best on fresh prompts. A point's customdata is its configuration's name."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.evidence import Tier
from labkit.figures.decode import waiting
from labkit.figures.explored import plane as plane_of
from labkit.figures.marks import add_no_gain
from labkit.figures.theme import BLUE, GREEN, INK, ORANGE, SERIES, VERMILION, new, series, tier_name
from labkit.measure.sweep import effects as found

Row = Mapping[str, object]
SPEED = "times faster than the block's baseline"
LONG = 46  # characters of a label at an axis


def figures(rows: Sequence[Row], finals: Sequence[Mapping], *, seed: int = 0) -> list[go.Figure]:
    """Every figure, the same number whatever has been measured so far."""
    return [
        ranked(rows),
        coordinates(rows),
        plane(rows),
        fronts(rows),
        by_field(found.effects(rows, seed=seed)),
        again(rows, finals),
    ]


def label(row: Row) -> str:
    """What a configuration sets, short."""
    return ", ".join(f"{name.rpartition('.')[2]} {found.value_of(row, name)}" for name in row["fields"])


def _hover(row: Row) -> str:
    lines = [f"<b>{row['config']}</b>", *(f"{n}: {found.value_of(row, n)}" for n in row["fields"])]
    lines += [f"x{row['speedup']:.3f}{_ends(row, 'speedup', '.3f')} ◇", f"TPOT {1e3 * row['tpot_s']:.3f} ms ●"]
    if row.get("accept_length"):
        lines.append(f"a {row['accept_length']:.2f} ●" + (f", c {row['cost']:.2f} ◇" if row.get("cost") else ""))
    if row.get("accuracy") is not None:
        lines.append(f"accuracy {row['accuracy']:.0%}{_ends(row, 'accuracy', '.0%')} ●")
    return "<br>".join(_plain(line) if i else line for i, line in enumerate(lines))


def _ends(row: Row, name: str, spec: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return "" if low is None else f" [{low:{spec}}, {high:{spec}}]"


def _bars(rows: Sequence[Row], name: str, scale: float = 1.0) -> dict | None:
    if all(r.get(f"{name}_low") is None for r in rows):
        return None
    ends = [(r.get(f"{name}_low"), r.get(f"{name}_high")) for r in rows]
    values = [r[name] for r in rows]
    return dict(
        type="data",
        symmetric=False,
        array=[0 if h is None else scale * (h - v) for v, (_, h) in zip(values, ends, strict=True)],
        arrayminus=[0 if low is None else scale * (v - low) for v, (low, _) in zip(values, ends, strict=True)],
        thickness=1.5,
        width=4,
    )


def ranked(rows: Sequence[Row], *, title: str = "All configurations, slowest to fastest") -> go.Figure:
    """The speed-up of each measured configuration over its own baseline, with its interval; one series a load."""
    order = sorted(found.measured(rows), key=lambda r: r["speedup"])
    if not order:
        return waiting(title, why="No configuration measured yet.")
    best, worst = order[-1], order[0]
    figure = new(
        title,
        x="rank",
        y=SPEED,
        alt=f"{len(order)} configurations; fastest {best['config']} ({label(best)}) x{best['speedup']:.2f}; slowest"
        f" {worst['config']} ({label(worst)}) x{worst['speedup']:.2f}.",
    )
    place = {r["config"]: i + 1 for i, r in enumerate(order)}
    for index, (load, mine) in enumerate(found.loads(order).items()):
        look = series(index)
        figure.add_scatter(
            x=[place[r["config"]] for r in mine],
            y=[r["speedup"] for r in mine],
            error_y=_bars(mine, "speedup"),
            mode="markers",
            name=tier_name(load or "speed-up", Tier.DERIVED),
            marker=dict(symbol=look.marker, size=8, color=look.colour),
            **_points(mine),
        )
    add_no_gain(figure)
    figure.update_xaxes(range=[-0.08 * len(order), len(order) + 1])  # room for the words at the line
    return figure


def _points(rows: Sequence[Row]) -> dict:
    return dict(customdata=[r["config"] for r in rows], hovertext=[_hover(r) for r in rows], hoverinfo="text")


def coordinates(rows: Sequence[Row], *, title: str = "All configurations, axis by axis") -> go.Figure:
    """Parallel coordinates: an axis per varied field, then what came out; a line per configuration, coloured by its
    speed-up. Drawn as plain lines: plotly's own kind needs WebGL, which not every browser has, and takes no click."""
    mine = sorted(found.measured(rows), key=lambda r: r["speedup"])
    if len(mine) < 2:
        return waiting(title, why="At least two measured configurations are needed.")
    axes = [_field(mine, name) for name in found.deciding(mine)]
    counts = (
        ("TPOT, ms", "tpot_s", 1e3),
        ("TTFT, ms", "ttft_s", 1e3),
        ("accuracy", "accuracy", 1.0),
        ("S", "speedup", 1),
    )
    axes += [
        _count(mine, words, key, scale) for words, key, scale in counts if all(r.get(key) is not None for r in mine)
    ]
    names = ", ".join(words.replace("<br>", "") for words, *_ in axes)
    figure = new(title, height=440, alt=f"{len(mine)} configurations over {names}; the colour is the speed-up S.")
    low, high = mine[0]["speedup"], mine[-1]["speedup"]
    for shade in range(SHADES):
        some = [r for r in mine if min(SHADES - 1, int(SHADES * (r["speedup"] - low) / ((high - low) or 1))) == shade]
        at = [mine.index(r) for r in some]
        if some:
            ends = f"S {some[0]['speedup']:.2f} to {some[-1]['speedup']:.2f}"
            figure.add_scatter(
                x=[x for _ in some for x in (*range(len(axes)), None)],
                y=[y for i in at for y in (*(places[i] for _, places, _ in axes), None)],
                mode="lines+markers",
                line=dict(color=_shade(shade), width=1.5),
                marker=dict(size=5, color=_shade(shade)),
                name=ends,
                customdata=[c for r in some for c in (*[r["config"]] * len(axes), None)],
                hovertext=[t for r in some for t in (*[_hover(r)] * len(axes), None)],
                hoverinfo="text",
            )
    for x, (_, _, ticks) in enumerate(axes):
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, line=dict(color=INK, width=1), layer="below")
        for y, text in ticks:
            figure.add_annotation(
                x=x, y=y, text=text, showarrow=False, xanchor="left", xshift=5, yshift=7, font_size=11
            )
    figure.update_xaxes(
        tickvals=list(range(len(axes))), ticktext=[w for w, *_ in axes], range=[-0.2, len(axes) - 0.35], showgrid=False
    )
    figure.update_yaxes(visible=False, range=[-0.06, 1.1])
    return figure


SHADES = 6  # colours from the slowest to the fastest


def _shade(step: int) -> str:
    """From blue over green to orange: all of them readable on white and on black."""
    from plotly.colors import sample_colorscale

    return sample_colorscale([[0, BLUE], [0.5, GREEN], [1, ORANGE]], [step / (SHADES - 1)])[0]


def _field(rows: Sequence[Row], name: str) -> tuple[str, list[float], list[tuple[float, str]]]:
    """A field as an axis: (its name, the place of each row from 0 to 1, the values along it)."""
    values = _sorted({found.value_of(r, name) for r in rows})
    last = max(1, len(values) - 1)
    short = [(i / last, _plain(v if len(v) <= 14 else f"{v[:13]}…")) for i, v in enumerate(values)]
    return _lines(name), [values.index(found.value_of(r, name)) / last for r in rows], short


def _count(rows: Sequence[Row], words: str, key: str, scale: float) -> tuple[str, list[float], list[tuple[float, str]]]:
    values = [scale * r[key] for r in rows]
    low, high = min(values), max(values)
    places = [(v - low) / ((high - low) or 1.0) for v in values]
    return words, places, [(0.0, f"{low:.3g}"), *([(1.0, f"{high:.3g}")] if high > low else [])]


def _axis(name: str) -> str:
    short = name.rpartition(".")[2]
    return short if len(short) <= 24 else f"{short[:23]}…"


def _plain(text: str) -> str:
    """Text for plotly's small HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _lines(name: str) -> str:
    """A field's name in lines that stand side by side above axes."""
    lines = [""]
    for part in _axis(name).replace("_", "_ ").split(" "):
        if lines[-1] and len(lines[-1] + part) > 12:
            lines.append(part)
        else:
            lines[-1] += part
    return "<br>".join(lines)


def _sorted(values: set[str]) -> list[str]:
    """Numbers by size, then words; what is not set comes first."""

    def key(v: str) -> tuple:
        try:
            return (1, float(v), "")
        except ValueError:
            return (0 if v == found.DEFAULT else 2, 0.0, v)

    return sorted(values, key=key)


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
    scale, words = (1.0, "accuracy: share of right answers") if more else (1e3, "TTFT, ms (lower is better)")
    best = {load: found.front(mine) for load, mine in by_load.items()}
    figure = new(
        title,
        x="TPOT, ms per token (lower is better)",
        y=words,
        height=440,
        alt="; ".join(f"on the front{', ' + load if load else ''}: {', '.join(n)}" for load, n in best.items()) + ".",
    )
    for index, (load, mine) in enumerate(by_load.items()):
        look, mine = series(index), [r for r in mine if r.get(other) is not None]
        figure.add_scatter(
            x=[1e3 * r["tpot_s"] for r in mine],
            y=[scale * r[other] for r in mine],
            error_x=_bars(mine, "tpot_s", 1e3) if len(mine) <= 20 else None,
            error_y=_bars(mine, other, scale) if len(mine) <= 20 else None,
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


def by_field(effects: Sequence[found.Effect], *, title: str = "What each setting does to the speed-up") -> go.Figure:
    """Ratio of speed-ups of configurations that differ in one field alone, with its interval; 1 is no effect."""
    if not effects:
        return waiting(title, why="No two measured configurations differ in one field alone.")
    names = [_plain(f"{_axis(e.field)} {e.value} / {e.against}"[:LONG]) for e in effects]
    ratios = [e.ratio for e in effects]
    figure = new(
        title,
        x="times the speed-up, all else equal (95% interval over blocks)",
        height=140 + 26 * len(effects),
        alt="; ".join(f"{n}: x{r.value:.3f}" for n, r in zip(names, ratios, strict=True)) + ".",
    )
    at = list(range(len(effects)))
    figure.add_scatter(
        x=[v for e in effects for v in (e.least, e.most, None)],
        y=[v for i in at for v in (i, i, None)],
        mode="lines",
        name="smallest to largest of the pairs",
        line=dict(color=SERIES[5].colour, width=7),
        opacity=0.45,
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[r.value for r in ratios],
        y=at,
        error_x=_intervals(ratios),
        mode="markers",
        name=tier_name("geometric mean", Tier.DERIVED),
        marker=dict(symbol="diamond", size=9, color=SERIES[0].colour),
        hovertext=[
            f"{n}: x{r.value:.3f}, {r.count} pairs in {r.repeats} blocks" for n, r in zip(names, ratios, strict=True)
        ],
        hoverinfo="text",
    )
    figure.add_vline(x=1, line=dict(color=VERMILION, width=1.5))
    figure.update_yaxes(tickvals=at, ticktext=names, range=[len(effects) - 0.4, -0.6])
    return figure


def _intervals(ratios: Sequence) -> dict | None:
    if all(r.low is None for r in ratios):
        return None
    return dict(
        type="data",
        symmetric=False,
        array=[0 if r.high is None else r.high - r.value for r in ratios],
        arrayminus=[0 if r.low is None else r.value - r.low for r in ratios],
        thickness=2,
        width=6,
    )


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
        y=SPEED,
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
            error_y=_bars(mine, "speedup"),
            mode="markers",
            name=tier_name(name, Tier.DERIVED),
            marker=dict(symbol=look.marker, size=10, color=look.colour),
            customdata=[s["config"] for _, s, _ in looked],
            hovertext=[f"{n}: x{r['speedup']:.3f}" for (n, *_), r in zip(looked, mine, strict=True)],
            hoverinfo="text",
        )
    names = [n for n, *_ in looked]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.5, len(names) - 0.5])
    add_no_gain(figure)
    return figure
