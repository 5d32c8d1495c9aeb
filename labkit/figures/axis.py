"""Axes of a picture: plotly's ranges, ticks, categories and grids, put on matplotlib's."""

import math

import numpy as np

from labkit.figures.ink import PT, colour, formatted, values, words

MOST_TICKS = 60  # of a figure's own step; more would be a black bar


def names_of(traces: list[dict], way: str, own: dict) -> list | None:
    """The names along a category axis in the order met, None on an axis of numbers."""
    met = [v for t in traces for v in values(t.get(way))]
    if own.get("type") != "category" and not any(isinstance(v, str) for v in met):
        return None
    return list(dict.fromkeys([*values(own.get("categoryarray")), *(v for v in met if v is not None)]))


def finish(axes, way: str, own: dict, names: list | None, font: dict, *, cells: bool = False) -> None:
    """Give matplotlib's x or y axis plotly's range, ticks, grid and title, once all is drawn.

    own: plotly's axis, merged with its template. names: the categories along it, None for numbers. font: the layout's.
    """
    from matplotlib import ticker

    axis = getattr(axes, f"{way}axis")
    spine = axes.spines["bottom" if way == "x" else "left"]
    axes.spines["top" if way == "x" else "right"].set_visible(False)
    _range(axes, way, own, names, cells)
    if own.get("visible") is False:
        axis.set_visible(False)
        spine.set_visible(False)
        return
    ink, own_font = font["color"], own.get("tickfont", {})
    spine.set_color(colour(own.get("linecolor"), ink))
    if own.get("showgrid", True) and names is None and not cells:
        axis.grid(True, which="major", color=colour(own.get("gridcolor"), "#e3e6ea"), linewidth=PT)
    axes.set_axisbelow(True)
    low, high = getattr(axes, f"get_{way}lim")()
    if own.get("type") != "log" and names is None and own.get("zeroline", True) and low < 0 < high:
        line = axes.axhline if way == "y" else axes.axvline
        line(0, color=colour(own.get("zerolinecolor"), "#c9ced6"), linewidth=PT, zorder=1)
    spec, suffix = own.get("tickformat"), own.get("ticksuffix", "")
    if own.get("tickvals") is not None:
        marks = values(own["tickvals"])
        said = values(own.get("ticktext")) or [formatted(v, spec, suffix) for v in marks]
        axis.set_major_locator(ticker.FixedLocator([float(m) for m in marks]))
        axis.set_major_formatter(ticker.FixedFormatter([words(t) for t in said]))
        axis.set_minor_locator(ticker.NullLocator())
    elif names is not None:
        axis.set_major_locator(ticker.FixedLocator(range(len(names))))
        axis.set_major_formatter(ticker.FixedFormatter([words(n) for n in names]))
    else:
        _steps(axis, own, low, high)
        axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: formatted(v, spec, suffix)))
    title = own.get("title", {})
    axis.set_label_text(words(title.get("text")), parse_math=False)
    axis.label.set(fontsize=title.get("font", {}).get("size", 13) * PT, color=colour(ink))
    size = own_font.get("size", font["size"]) * PT
    axes.tick_params(
        way,
        which="major",
        labelsize=size,
        labelcolor=colour(own_font.get("color"), ink),
        color=colour(own.get("linecolor"), ink),
    )
    if own.get("tickangle"):
        axis.set_tick_params(labelrotation=-own["tickangle"])
    if own.get("showticklabels") is False:
        axis.set_tick_params(labelbottom=False, labelleft=False)


def _range(axes, way: str, own: dict, names: list | None, cells: bool) -> None:
    low, high = getattr(axes, f"get_{way}lim")()
    log, given = own.get("type") == "log", values(own.get("range")) or [None, None]
    if names is not None and given[0] is None and not cells:
        given = [-0.5, len(names) - 0.5]
    elif own.get("rangemode") == "tozero" and not log and given[0] is None:
        low, top = (min(low, 0.0) if _ends(axes, way)[0] < 0 else 0.0), max(_ends(axes, way)[1], 0.0)
        high = max(high, top + 0.07 * (top - low))
    elif not log and 0 < abs(low) < 1e-3 * high:
        low = 0.0  # bars that start a rounding error above it would leave it without its tick
    low, high = (
        end if asked is None else 10.0**asked if log else float(asked)
        for end, asked in zip((low, high), given, strict=True)
    )
    if own.get("autorange") == "reversed":
        low, high = high, low
    if math.isfinite(low) and math.isfinite(high) and low != high:
        getattr(axes, f"set_{way}lim")(low, high)


def _ends(axes, way: str) -> tuple[float, float]:
    """Least and greatest value drawn, 0 and 0 where nothing is."""
    ends = axes.dataLim.intervalx if way == "x" else axes.dataLim.intervaly
    return (float(ends[0]), float(ends[1])) if np.isfinite(ends).all() else (0.0, 0.0)


def _steps(axis, own: dict, low: float, high: float) -> None:
    from matplotlib import ticker

    step = own.get("dtick")
    if own.get("type") == "log":
        decades = math.log10(max(high, low) / min(high, low)) if low > 0 and high > 0 else 9
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if step == "D2" or decades < 2 else (1,)))
        axis.set_minor_locator(ticker.NullLocator())
    elif isinstance(step, (int, float)) and step > 0 and abs(high - low) / step <= MOST_TICKS:
        axis.set_major_locator(ticker.MultipleLocator(step))
    else:
        axis.set_major_locator(ticker.MaxNLocator(nbins=9 if axis.axis_name == "x" else 7, steps=[1, 2, 5, 10]))


def apart(axes) -> None:
    """Turn the x labels where they would run into each other. The picture must have been drawn once."""
    boxes = [t.get_window_extent() for t in axes.get_xticklabels() if t.get_text() and t.get_visible()]
    if any(a.x1 + 2 > b.x0 for a, b in zip(boxes, boxes[1:], strict=False)):
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
