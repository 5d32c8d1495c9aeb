"""Draw one trace of a plotly figure on matplotlib's axes: lines, points, bars and waterfalls. `areas` has the rest."""

import math
from typing import Any

import numpy as np

from labkit.errors import LabError
from labkit.figures.ink import PT, colour, dash, formatted, marker, numbers, values, words

MOST_POINTS = 100_000  # of one trace; drawing time grows with them, and a picture has 1,350 columns
HATCHES = {"/": "///", "\\": "\\\\\\", "x": "xxx", "-": "---", "|": "|||", "+": "+++", ".": "..."}


class CannotDraw(LabError):
    """A figure holds something that the picture cannot show; the live figure can."""


class Pen:
    """One pair of axes and what traces on it share: categories, and how far bars and areas are stacked.

    axes        matplotlib's
    categories  {"x": names in order, or None for numbers, "y": likewise}
    layout      the figure's, merged with its template
    """

    def __init__(self, axes, categories: dict[str, list | None], layout: dict, bars: int):
        self.axes, self.categories, self.layout, self.bars = axes, categories, layout, max(1, bars)
        self.handles: list[tuple[Any, str]] = []
        self._bar = 0
        self._tops: dict[tuple[float, bool], float] = {}
        self._areas: dict[str, np.ndarray] = {}

    def place(self, way: str, found: Any) -> np.ndarray:
        """Coordinates along x or y: numbers as they are, names by their place."""
        names = self.categories[way]
        if names is None:
            return numbers(found)
        return np.array([names.index(v) if v in names else math.nan if v is None else float(v) for v in values(found)])

    def draw(self, trace: dict, index: int, default: str) -> None:
        """Draw it and note what its legend entry looks like. Raises CannotDraw."""
        kind = trace.get("type", "scatter")
        drawer = {"scatter": self._scatter, "scattergl": self._scatter, "bar": self._bars, "waterfall": self._waterfall}
        if kind not in drawer:
            raise CannotDraw(f"the picture does not know traces of the type {kind}")
        if max((len(values(trace.get(part))) for part in ("x", "y")), default=0) > MOST_POINTS:
            raise CannotDraw(f"a trace has more than {MOST_POINTS:,} points")
        handle = drawer[kind](trace, 3 + index / 100, default)
        if handle is not None and trace.get("showlegend", True) and trace.get("name"):
            self.handles.append((handle, words(trace["name"])))

    # -- points and lines

    def _scatter(self, trace: dict, z: float, default: str):
        ys = trace.get("y")
        xs = trace.get("x") if trace.get("x") is not None else list(range(len(values(ys))))
        x, y = self.place("x", xs), self.place("y", ys)
        mode = trace.get("mode") or ("lines+markers" if len(x) < 20 else "lines")
        line, look, opacity = trace.get("line", {}), trace.get("marker", {}), trace.get("opacity", 1.0)
        single = look.get("color") if isinstance(look.get("color"), str) else None
        ink = line.get("color") or single or default
        step = {"hv": "steps-post", "vh": "steps-pre", "hvh": "steps-mid"}.get(line.get("shape"), "default")
        y = self._filled(trace, x, y, ink, step, z)
        width = line.get("width", 2.0)
        symbol, size, is_open = marker(look.get("symbol") if isinstance(look.get("symbol"), str) else None)
        many = any(not isinstance(look.get(part), (str, int, float, type(None))) for part in ("color", "size"))
        rim = colour(look.get("line", {}).get("color") or single or ink, opacity=opacity * look.get("opacity", 1.0))
        style = dict(
            color=colour(ink, opacity=opacity),
            linewidth=width * PT,
            linestyle=dash(line.get("dash"), width) if "lines" in mode and width else "none",
            drawstyle=step,
            marker=symbol if "markers" in mode and not many else "none",
            markersize=look.get("size", 6) * size * PT,
            markerfacecolor="none" if is_open else colour(single or ink, opacity=opacity * look.get("opacity", 1.0)),
            markeredgecolor=rim,
            markeredgewidth=look.get("line", {}).get("width", 1 if is_open else 0) * PT,
        )
        (drawn,) = self.axes.plot(x, y, zorder=z, solid_capstyle="butt", dash_capstyle="butt", **style)
        if many and "markers" in mode:
            self._many(x, y, look, symbol, size, default, z)
        for way, error in (("x", trace.get("error_x")), ("y", trace.get("error_y"))):
            self._interval(way, x, y, error, ink, z)
        if "text" in mode:
            self._texts(trace, x, y)
        return drawn

    def _many(self, x, y, look: dict, symbol, size: float, default: str, z: float) -> None:
        """Points whose colour or size differs from one to the next."""
        from matplotlib import colormaps

        colours = look.get("color") or default
        if not isinstance(colours, str):
            colours = values(colours)
            if colours and not isinstance(colours[0], str):
                scaled = np.array(colours, float)
                low, high = np.nanmin(scaled), np.nanmax(scaled)
                colours = colormaps["viridis"]((scaled - low) / ((high - low) or 1.0))
            else:
                colours = [colour(c) for c in colours]
        sizes = look.get("size", 6)
        area = np.array(values(sizes) if not isinstance(sizes, (int, float)) else [sizes], float) * size * PT
        self.axes.scatter(x, y, s=area**2, c=colours, marker=symbol, zorder=z + 0.001)

    def _interval(self, way: str, x, y, error: dict | None, ink: str, z: float) -> None:
        if not error or error.get("array") is None or error.get("visible") is False:
            return
        above = numbers(error["array"])
        below = numbers(error["arrayminus"]) if error.get("arrayminus") is not None else above
        width, cap = error.get("thickness", 2) * PT, error.get("width", 4) * PT
        self.axes.errorbar(
            x,
            y,
            # A hair below 0 is rounding in whoever computed the interval.
            **{f"{way}err": np.maximum(0, [np.nan_to_num(below), np.nan_to_num(above)])},
            fmt="none",
            ecolor=colour(error.get("color") or ink),
            elinewidth=width,
            capsize=cap,
            capthick=width,
            zorder=z,
        )

    def _filled(self, trace: dict, x, y, ink: str, step: str, z: float):
        """Fill what the trace fills, and stack it on what lies below. -> where its line runs"""
        group, fill = trace.get("stackgroup"), trace.get("fill")
        soft = colour(
            trace.get("fillcolor") or ink, opacity=trace.get("opacity", 1.0) if trace.get("fillcolor") else 0.5
        )
        kind = {"steps-post": "post", "steps-pre": "pre", "steps-mid": "mid"}.get(step)
        if group:
            below = self._areas.get(group, np.zeros(len(y)))
            y = below + np.nan_to_num(y)
            self._areas[group] = y
            self.axes.fill_between(x, below, y, color=soft, step=kind, linewidth=0, zorder=z - 1)
        elif fill in ("tozeroy", "tonexty"):
            self.axes.fill_between(x, 0, y, color=soft, step=kind, linewidth=0, zorder=z - 1)
        elif fill == "toself":
            if kind == "post" and len(x):
                x, y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
                self.axes.fill(x, y, color=soft, linewidth=0, zorder=z - 1)
                return numbers(trace.get("y"))
            self.axes.fill(x, y, color=soft, linewidth=0, zorder=z - 1)
        return y

    def _texts(self, trace: dict, x, y) -> None:
        given = trace.get("textposition", "middle center")
        places = [given] * len(x) if isinstance(given, str) else given  # one for all, or one each
        for a, b, text, place in zip(x, y, values(trace.get("text")), places, strict=False):
            vertical, _, side = place.partition(" ")
            self.axes.annotate(
                words(text),
                (a, b),
                xytext=({"left": -6, "right": 6}.get(side, 0), {"top": 6, "bottom": -6}.get(vertical, 0)),
                textcoords="offset points",
                ha={"left": "right", "right": "left"}.get(side, "center"),
                va={"top": "bottom", "bottom": "top"}.get(vertical, "center"),
                fontsize=12 * PT,
                color=colour(trace.get("textfont", {}).get("color"), self.layout["font"]["color"]),
                parse_math=False,
                zorder=9,
            )

    # -- bars

    def _bars(self, trace: dict, z: float, default: str):
        from matplotlib.patches import Patch

        lying = trace.get("orientation") == "h"
        along, across = ("y", "x") if lying else ("x", "y")
        place, size = self.place(along, trace.get(along)), np.nan_to_num(numbers(trace.get(across)))
        mode, thick = self.layout.get("barmode", "group"), 1 - self.layout.get("bargap", 0.2)
        if mode == "group":
            thick /= self.bars
            place = place + thick * (self._bar - (self.bars - 1) / 2)
        self._bar += 1
        base = self._base(trace, place, size, mode)
        look = trace.get("marker", {})
        shades = look.get("color") or default
        face = [colour(shades)] if isinstance(shades, str) else [colour(c) for c in values(shades)]
        hatch = HATCHES.get(look.get("pattern", {}).get("shape") or "")
        # A pattern is drawn in the bar's colour on white, as plotly draws it.
        style = dict(color="white", hatch=hatch, edgecolor=face, linewidth=0) if hatch else dict(color=face)
        bar = self.axes.barh if lying else self.axes.bar
        drawn = bar(place, size, thick, zorder=z - 1, **{"left" if lying else "bottom": base}, **style)
        for part in drawn:
            part.set_hatch_linewidth(1.6)
        end = base + size
        error = trace.get(f"error_{across}")
        self._interval(across, *((end, place) if lying else (place, end)), error, self.layout["font"]["color"], z)
        self._bar_texts(trace, place, end, size, lying)
        key = face[0] if face else colour(default)
        return Patch(facecolor="white", hatch=hatch, edgecolor=key, linewidth=0) if hatch else Patch(facecolor=key)

    def _base(self, trace: dict, place, size, mode: str):
        if trace.get("base") is not None:
            given = trace["base"]
            return np.full(len(size), float(given)) if isinstance(given, (int, float)) else numbers(given)
        base = np.zeros(len(size))
        if mode in ("stack", "relative"):
            for i, (where, height) in enumerate(zip(place, size, strict=True)):
                key = (float(where), height < 0)
                base[i] = self._tops.get(key, 0.0)
                self._tops[key] = base[i] + height
        return base

    def _bar_texts(self, trace: dict, place, end, size, lying: bool) -> None:
        texts = trace.get("text")
        texts = [texts] * len(end) if isinstance(texts, str) else values(texts)
        for where, tip, height, text in zip(place, end, size, texts, strict=False):
            away = 4 if height >= 0 else -4
            side = ("left" if height >= 0 else "right") if lying else ("bottom" if height >= 0 else "top")
            self.axes.annotate(
                words(text if text is not None else formatted(height, None)),
                (tip, where) if lying else (where, tip),
                xytext=(away, 0) if lying else (0, away),
                textcoords="offset points",
                ha=side if lying else "center",
                va="center" if lying else side,
                fontsize=12 * PT,
                color=colour(self.layout["font"]["color"]),
                parse_math=False,
                annotation_clip=False,
                zorder=9,
            )

    def _waterfall(self, trace: dict, z: float, default: str):
        from matplotlib.patches import Patch

        place, given = self.place("x", trace.get("x")), numbers(trace.get("y"))
        kinds = values(trace.get("measure")) or ["relative"] * len(given)
        shades = {
            side: colour(trace.get(side, {}).get("marker", {}).get("color"), fallback)
            for side, fallback in (("increasing", "#3D9970"), ("decreasing", "#FF4136"), ("totals", "#4499FF"))
        }
        level, thick, tips = 0.0, 1 - self.layout.get("waterfallgap", 0.2), []
        for where, value, kind in zip(place, given, kinds, strict=False):
            start = level if kind == "relative" else 0.0
            level = level + value if kind == "relative" else level if kind == "total" else value
            side = "totals" if kind != "relative" else "increasing" if value >= 0 else "decreasing"
            self.axes.bar(where, level - start, thick, bottom=start, color=shades[side], zorder=z - 1)
            tips.append((where, level, max(start, level)))
        join = trace.get("connector", {}).get("line", {})
        for (left, height, _), (right, _, _) in zip(tips, tips[1:], strict=False):
            ends = [left + thick / 2, right - thick / 2]
            self.axes.plot(ends, [height] * 2, color=colour(join.get("color")), linewidth=PT, zorder=z)
        if trace.get("text") is not None:
            top = np.array([t for _, _, t in tips])
            self._bar_texts(trace, place, top, np.ones(len(top)), lying=False)
        return Patch(facecolor=shades["decreasing"])
