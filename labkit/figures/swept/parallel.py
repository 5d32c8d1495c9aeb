"""Parallel coordinates of a sweep, as plain lines that can be clicked."""

from collections.abc import Sequence

import plotly.graph_objects as go

from labkit.figures.decode import waiting
from labkit.figures.swept import words
from labkit.figures.swept.words import Row
from labkit.figures.theme import BLUE, GREEN, INK, ORANGE, new
from labkit.measure.sweep import effects as found

SHADES = 6  # colours from the slowest to the fastest


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
    axes += [_count(mine, text, key, scale) for text, key, scale in counts if all(r.get(key) is not None for r in mine)]
    names = ", ".join(text.replace("<br>", "") for text, *_ in axes)
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
                hovertext=[t for r in some for t in (*[words.hover(r)] * len(axes), None)],
                hoverinfo="text",
            )
    for x, (_, _, ticks) in enumerate(axes):
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, line=dict(color=INK, width=1), layer="below")
        for y, text in ticks:
            figure.add_annotation(
                x=x, y=y, text=text, name="wide", showarrow=False, xanchor="left", xshift=5, yshift=7, font_size=11
            )
    figure.update_xaxes(
        tickvals=list(range(len(axes))), ticktext=[w for w, *_ in axes], range=[-0.2, len(axes) - 0.35], showgrid=False
    )
    figure.update_yaxes(visible=False, range=[-0.06, 1.1])
    return figure


def _shade(step: int) -> str:
    """From blue over green to orange: all of them readable on white and on black."""
    from plotly.colors import sample_colorscale

    return sample_colorscale([[0, BLUE], [0.5, GREEN], [1, ORANGE]], [step / (SHADES - 1)])[0]


def _field(rows: Sequence[Row], name: str) -> tuple[str, list[float], list[tuple[float, str]]]:
    """A field as an axis: (its name, the place of each row from 0 to 1, the values along it)."""
    values = _sorted({found.value_of(r, name) for r in rows})
    last = max(1, len(values) - 1)
    short = [(i / last, words.plain(v if len(v) <= 14 else f"{v[:13]}…")) for i, v in enumerate(values)]
    return _lines(name), [values.index(found.value_of(r, name)) / last for r in rows], short


def _count(rows: Sequence[Row], text: str, key: str, scale: float) -> tuple[str, list[float], list[tuple[float, str]]]:
    values = [scale * r[key] for r in rows]
    low, high = min(values), max(values)
    places = [(v - low) / ((high - low) or 1.0) for v in values]
    return text, places, [(0.0, f"{low:.3g}"), *([(1.0, f"{high:.3g}")] if high > low else [])]


def _lines(name: str) -> str:
    """A field's name in lines that stand side by side above axes."""
    lines = [""]
    for part in words.axis(name).replace("_", "_ ").split(" "):
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
