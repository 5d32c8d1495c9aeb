"""Draw what fills the whole figure: treemaps, heat maps, parallel coordinates. As `traces`, on matplotlib's axes."""

import math

import numpy as np

from labkit.figures.ink import PT, colour, formatted, numbers, plain, values, words


def squarified(sizes: list[float], width: float, height: float) -> list[tuple[float, float, float, float]]:
    """(x, y, width, height) of each size, in the order given, on a ground of width x height; areas in proportion.

    Squarified treemap of Bruls, Huizing and van Wijk (2000): rows along the shorter side, as square as they come.
    """
    total = sum(sizes)
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    areas = [sizes[i] / total * width * height for i in order] if total > 0 else []
    out: dict[int, tuple[float, float, float, float]] = {}
    x = y = 0.0
    at = 0
    while at < len(areas):
        side = min(width, height)
        end = at + 1
        while end < len(areas) and _worst(areas[at : end + 1], side) <= _worst(areas[at:end], side):
            end += 1
        row = areas[at:end]
        deep, along = sum(row) / side if side else 0.0, 0.0
        for i, area in zip(order[at:end], row, strict=True):
            length = area / deep if deep else 0.0
            out[i] = (x, y + along, deep, length) if width >= height else (x + along, y, length, deep)
            along += length
        if width >= height:
            x, width = x + deep, width - deep
        else:
            y, height = y + deep, height - deep
        at = end
    return [out.get(i, (0.0, 0.0, 0.0, 0.0)) for i in range(len(sizes))]


def _worst(row: list[float], side: float) -> float:
    """The worst ratio of sides in a row laid along `side`."""
    total = sum(row)
    return (
        max(side**2 * max(row) / total**2, total**2 / (side**2 * min(row))) if total and side and min(row) else math.inf
    )


def treemap(axes, trace: dict, width: float, height: float) -> None:
    """A treemap's leaves as areas; width, height: pixels of the axes, which say what text fits."""
    from matplotlib.patches import Rectangle

    labels, parents, sizes = values(trace.get("labels")), values(trace.get("parents")), numbers(trace.get("values"))
    keys = values(trace.get("ids")) or labels
    leaves = [i for i, key in enumerate(keys) if key not in set(parents)]
    shades, inks = (values(trace.get(p, {}).get(f)) for p, f in (("marker", "colors"), ("textfont", "color")))
    texts, total = values(trace.get("text")), float(sum(sizes[i] for i in leaves))
    rim = colour(trace.get("marker", {}).get("line", {}).get("color"))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for i, (x, y, w, h) in zip(leaves, squarified([float(sizes[i]) for i in leaves], width, height), strict=True):
        face = colour(shades[i] if i < len(shades) else None, "#56B4E9")
        axes.add_patch(Rectangle((x + 1, y + 1), max(w - 2, 0), max(h - 2, 0), facecolor=face, edgecolor=rim))
        lines = [*plain(labels[i]), *(plain(texts[i]) if texts else []), f"{sizes[i] / total:.0%}" if total else ""]
        size = next((s for s in (12, 11, 10, 9) if _fits(lines, s, w - 8, h - 6)), None)
        if size is None and _fits(lines[:1], 9, w - 6, h - 4):
            size, lines = 9, lines[:1]
        if size is not None:
            shade = inks[i] if i < len(inks) else "#14171b"
            axes.text(x + 5, y + 4, "\n".join(lines), fontsize=size * PT, va="top", color=shade, parse_math=False)


def _fits(lines: list[str], size: int, width: float, height: float) -> bool:
    return max(map(len, lines)) * size * 0.57 <= width and len(lines) * size * 1.25 <= height


def heatmap(figure, axes, trace: dict, x: list, y: list, font: dict) -> None:
    """Cells at places x and y (names by their place) with a colour bar, and the text of cells that bring one."""
    grid = np.array([numbers(row) for row in values(trace.get("z"))])
    cells = axes.pcolormesh(
        _edges(x),
        _edges(y),
        grid,
        cmap=_scale(trace.get("colorscale"), bool(trace.get("reversescale"))),
        vmin=trace.get("zmin"),
        vmax=trace.get("zmax"),
    )
    if trace.get("showscale", True):
        title = trace.get("colorbar", {}).get("title")
        bar = figure.colorbar(cells, ax=axes, pad=0.02)
        bar.set_label(words(title.get("text") if isinstance(title, dict) else title), color=font["color"])
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=12 * PT, colors=font["color"])
    texts = values(trace.get("text"))
    for i, row in enumerate(texts):
        for j, text in enumerate(values(row)):
            red, green, blue, _ = cells.cmap(cells.norm(grid[i, j]))
            shade = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "#14171b"
            axes.text(
                x[j], y[i], words(text), ha="center", va="center", fontsize=11 * PT, color=shade, parse_math=False
            )


def _edges(places: list) -> np.ndarray:
    """The borders of cells around these places."""
    at = np.array(places, float)
    if len(at) < 2:
        return np.array([at[0] - 0.5, at[0] + 0.5]) if len(at) else np.array([0.0, 1.0])
    middle = (at[1:] + at[:-1]) / 2
    return np.concatenate([[at[0] - (middle[0] - at[0])], middle, [at[-1] + (at[-1] - middle[-1])]])


def _scale(found: object, reverse: bool):
    """matplotlib's colour map of a plotly colour scale: by its name, or from its [place, colour] pairs."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    if isinstance(found, (list, tuple)) and found:
        made = LinearSegmentedColormap.from_list("given", [(float(p), colour(c)) for p, c in found])
    else:
        names = {name.lower(): name for name in colormaps}
        made = colormaps[names.get(str(found or "viridis").lower().removesuffix("_r"), "viridis")]
    return made.reversed() if reverse or str(found).endswith("_r") else made


def parallel(figure, axes, trace: dict, font: dict) -> None:
    """Parallel coordinates: one line a row, coloured by `line.color`, each dimension scaled to its own range."""
    dimensions = [d for d in values(trace.get("dimensions")) if d.get("visible", True)]
    columns = [numbers(d.get("values")) for d in dimensions]
    spans = [
        tuple(float(v) for v in d.get("range") or (np.nanmin(c), np.nanmax(c)))
        for d, c in zip(dimensions, columns, strict=True)
    ]
    scaled = [(c - low) / ((high - low) or 1.0) for c, (low, high) in zip(columns, spans, strict=True)]
    line = trace.get("line", {})
    given = line.get("color")
    tint = None if given is None or isinstance(given, str) else numbers(given)
    scale = _scale(line.get("colorscale"), bool(line.get("reversescale")))
    low, high = (float(np.nanmin(tint)), float(np.nanmax(tint))) if tint is not None and len(tint) else (0.0, 1.0)
    for row in range(len(scaled[0]) if scaled else 0):
        shade = colour(given, "#0072B2") if tint is None else scale((tint[row] - low) / ((high - low) or 1.0))
        axes.plot(range(len(scaled)), [c[row] for c in scaled], color=shade, linewidth=1.5 * PT, alpha=0.85)
    for i, (dimension, (least, most)) in enumerate(zip(dimensions, spans, strict=True)):
        axes.axvline(i, color=font["color"], linewidth=PT)
        marks = values(dimension.get("tickvals")) or [least, (least + most) / 2, most]
        names = values(dimension.get("ticktext")) or [formatted(v, dimension.get("tickformat") or ".4g") for v in marks]
        for value, name in zip(marks, names, strict=False):
            at = (value - least) / ((most - least) or 1.0)
            axes.annotate(
                words(name),
                (i, at),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=11 * PT,
                va="center",
                color=font["color"],
                parse_math=False,
                annotation_clip=False,
                bbox=dict(facecolor="white", edgecolor="none", alpha=0.7, pad=0.5),
            )
    axes.set(xticks=range(len(dimensions)), yticks=[], xlim=(-0.1, max(len(dimensions) - 0.7, 0.5)), ylim=(-0.06, 1.06))
    axes.set_xticklabels([words(d.get("label")) for d in dimensions], parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=12 * PT, labelcolor=font["color"])
    for spine in axes.spines.values():
        spine.set_visible(False)
