"""What lies above a picture's traces: plotly's shapes and annotations, on matplotlib's axes."""

from labkit.figures.ink import PT, colour, dash, merged, words
from labkit.figures.traces import CannotDraw


def _transform(axes, thing: dict):
    """Where its x and y count from: data, or the plot's own 0..1."""
    from matplotlib.transforms import blended_transform_factory

    x, y = (
        axes.transAxes if thing.get(f"{way}ref", way) in ("paper", f"{way} domain") else axes.transData for way in "xy"
    )
    return blended_transform_factory(x, y)


def shape(axes, shape: dict, names: dict) -> None:
    """A line or a rectangle. Raises CannotDraw for paths."""
    line, kind = shape.get("line", {}), shape.get("type", "rect")
    ends = {
        way: [
            names[way].index(v) if names[way] and v in names[way] else float(v)
            for v in (shape[f"{way}0"], shape[f"{way}1"])
        ]
        for way in "xy"
    }
    width, z = line.get("width", 2), 1.5 if shape.get("layer") == "below" else 8
    style = dict(
        linewidth=width * PT, linestyle=dash(line.get("dash"), width), zorder=z, transform=_transform(axes, shape)
    )
    ink = colour(line.get("color"), opacity=shape.get("opacity", 1.0))
    if kind == "line":
        axes.plot(ends["x"], ends["y"], color=ink, scalex=False, scaley=False, **style)
    elif kind == "rect":
        from matplotlib.patches import Rectangle

        (x0, x1), (y0, y1) = ends["x"], ends["y"]
        face = colour(shape.get("fillcolor"), "#00000000", opacity=shape.get("opacity", 1.0))
        axes.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=face, edgecolor=ink, **style))
    else:
        raise CannotDraw(f"the picture does not know shapes of the type {kind}")


def note(axes, note: dict, names: dict, settings: dict, font: dict) -> None:
    """Words at a place, with an arrow where the figure has one. settings: both axes; font: the layout's."""
    spots = []
    for way in "xy":
        at, on_page = note.get(way, 0.5), note.get(f"{way}ref", way) != way
        known = names[way] is not None and at in names[way] and not on_page
        log = settings[way].get("type") == "log" and not on_page  # plotly places notes on such an axis by exponent
        spots.append(names[way].index(at) if known else 10.0 ** float(at) if log else float(at))
    across, up = _anchors(note, spots)
    arrow = note.get("showarrow", True)
    if arrow and note.get("axref") == "x" and note.get("ayref") == "y":  # from one place in the data to another
        style = dict(arrowstyle="->", color=colour(note.get("arrowcolor"), font["color"]), shrinkA=0, shrinkB=4)
        axes.annotate("", spots, xytext=(float(note["ax"]), float(note["ay"])), arrowprops=style, zorder=9)
        return
    off = (note.get("ax", -10), -note.get("ay", -30)) if arrow else (0, 0)
    font = merged(font, note.get("font"))
    axes.annotate(
        words(note.get("text")),
        spots,
        xycoords=_transform(axes, note),
        xytext=((note.get("xshift", 0) + off[0]) * PT, (note.get("yshift", 0) + off[1]) * PT),
        textcoords="offset points",
        ha=across,
        va=up,
        fontsize=font["size"] * PT,
        color=colour(font["color"]),
        arrowprops=dict(arrowstyle="->", color=colour(note.get("arrowcolor"), font["color"])) if arrow else None,
        annotation_clip=False,
        parse_math=False,
        zorder=9,
    )


def room(layout: dict) -> float:
    """Points between plot and title that lines of text above the plot take."""
    heights = [0.0]
    for note in layout.get("annotations") or []:
        if note.get("yref") == "paper" and note.get("y", 0) >= 1 and note.get("yanchor") == "bottom":
            size = note.get("font", {}).get("size", layout["font"]["size"])
            heights.append(1.4 * size * PT * (words(note.get("text")).count("\n") + 1))
    return max(heights)


def _anchors(note: dict, spots: list[float]) -> tuple[str, str]:
    across, up = note.get("xanchor", "auto"), note.get("yanchor", "auto")
    if across == "auto":
        at = spots[0] if note.get("xref") == "paper" and not note.get("showarrow", True) else 0.5
        across = "left" if at < 1 / 3 else "right" if at > 2 / 3 else "center"
    if up == "auto":
        at = spots[1] if note.get("yref") == "paper" and not note.get("showarrow", True) else 0.5
        up = "bottom" if at < 1 / 3 else "top" if at > 2 / 3 else "center"
    return across, {"middle": "center"}.get(up, up)
