"""Plotly's words for colours, dashes, markers and text, said in matplotlib's: what picture.py and traces.py share.

matplotlib is imported inside functions: it takes a third of a second, and most programs of the lab draw no picture.
"""

import base64
import html
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

PT = 0.72  # points in a CSS pixel, at the 100 dots per inch that picture.py draws with
DOT, DASH, LONG = 3.0, 9.0, 15.0  # plotly's lengths for a line of 3 px, its least
DASHES = {
    "dot": (DOT, DOT),
    "dash": (DASH, DASH),
    "longdash": (LONG, LONG),
    "dashdot": (DASH, DOT, DOT, DOT),
    "longdashdot": (LONG, 2 * DOT, DOT, 2 * DOT),
}


def merged(under: Mapping | None, over: Mapping | None) -> dict:
    """`over` above `under`, nested: how plotly fills a figure from its template."""
    out = dict(under or {})
    for key, value in (over or {}).items():
        out[key] = (
            merged(out[key], value) if isinstance(value, Mapping) and isinstance(out.get(key), Mapping) else value
        )
    return out


def values(found: Any) -> list:
    """A plotly array as a list: a list, a tuple, a NumPy array, or base64 as plotly writes arrays into JSON."""
    if found is None:
        return []
    if isinstance(found, Mapping):
        flat = np.frombuffer(base64.b64decode(found["bdata"]), dtype=np.dtype(found["dtype"]))
        if "shape" in found:
            flat = flat.reshape([int(n) for n in str(found["shape"]).split(",")])
        return flat.tolist()
    return found.tolist() if isinstance(found, np.ndarray) else list(found)


def numbers(found: Any) -> np.ndarray:
    """As floats; a gap (None) becomes NaN, where a line breaks."""
    return np.array([math.nan if v is None else float(v) for v in values(found)])


def colour(name: Any, default: str = "#444", opacity: float = 1.0) -> tuple[float, float, float, float]:
    """RGBA in 0..1 of any colour that plotly takes: hex, a CSS name, rgb(), rgba()."""
    from matplotlib.colors import to_rgba

    name = name or default
    if found := re.fullmatch(r"rgba?\(([^)]*)\)", str(name).replace(" ", "")):
        parts = [float(p) for p in found[1].split(",")]
        red, green, blue = (p / 255 for p in parts[:3])
        return red, green, blue, (parts[3] if len(parts) > 3 else 1.0) * opacity
    *rgb, alpha = to_rgba(name)
    return (*rgb, alpha * opacity)


def dash(name: str | None, width: float) -> Any:
    """matplotlib's linestyle: lengths in line widths, as it scales them by the width again."""
    if not name or name == "solid":
        return "-"
    lengths = DASHES.get(name) or [float(p.removesuffix("px")) for p in re.split(r"[ ,]+", name)]
    scale = max(width, 3.0) / 3.0 if name in DASHES else 1.0
    return 0, tuple(n * scale / max(width, 0.1) for n in lengths)


def plain(text: Any) -> list[str]:
    """The lines of a text in plotly's small HTML, without its tags."""
    lines = re.split(r"<br\s*/?>", str(text if text is not None else ""))
    return [html.unescape(re.sub(r"</?[a-zA-Z][^>]*>", "", line)) for line in lines]


def words(text: Any) -> str:
    """The same as one text of several lines."""
    return "\n".join(plain(text))


_DIAMOND = [(0, 1), (1, 0), (0, -1), (-1, 0)]
_OUTLINES = {
    "circle": ("o", 1.0),
    "square": ("s", 1.0),
    "cross": ("P", 1.15),
    "x": ("X", 1.15),
    "star": ("*", 1.6),
    "pentagon": ("p", 1.1),
    "hexagon": ("h", 1.1),
    "triangle-up": ("^", 1.15),
    "triangle-down": ("v", 1.15),
    "triangle-left": ("<", 1.15),
    "triangle-right": (">", 1.15),
}
_DIAMONDS = {  # outline of the diamond, strokes inside it
    "diamond": (_DIAMOND, ()),
    "diamond-tall": ([(0, 1.4), (0.7, 0), (0, -1.4), (-0.7, 0)], ()),
    "diamond-wide": ([(0, 0.7), (1.4, 0), (0, -0.7), (-1.4, 0)], ()),
    "diamond-cross": (_DIAMOND, (((-1, 0), (1, 0)), ((0, -1), (0, 1)))),
    "diamond-x": (_DIAMOND, (((-0.5, -0.5), (0.5, 0.5)), ((-0.5, 0.5), (0.5, -0.5)))),
}


def marker(symbol: str | None) -> tuple[Any, float, bool]:
    """(matplotlib's marker, its size in plotly's, open?) of a plotly symbol; one that is not known is a circle."""
    from matplotlib.path import Path

    name = str(symbol or "circle")
    is_open, dotted = "-open" in name, name.endswith("-dot")
    name = name.replace("-open", "").removesuffix("-dot")
    if name not in _DIAMONDS:
        shape, size = _OUTLINES.get(name, _OUTLINES["circle"])
        return shape, size, is_open
    outline, strokes = _DIAMONDS[name]
    points, codes = [*outline, outline[0]], [Path.MOVETO, *[Path.LINETO] * (len(outline) - 1), Path.CLOSEPOLY]
    for begin, end in strokes:
        points += [begin, end]
        codes += [Path.MOVETO, Path.LINETO]
    path = Path(points, codes)
    if dotted:
        path = Path.make_compound_path(path, Path.circle((0, 0), 0.12))
    return path, 1.3 * max(abs(n) for point in outline for n in point), is_open


def formatted(value: float, spec: str | None, suffix: str = "") -> str:
    """A tick's number by plotly's tickformat, which for what the lab uses is Python's own."""
    if spec:
        try:
            return format(int(value) if spec.endswith("d") else value, spec) + suffix
        except ValueError:
            pass
    for least, letter in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= least:
            return f"{value / (1e3 if letter == 'k' else least):.6g}{letter}{suffix}".replace("-", "\N{MINUS SIGN}")
    return f"{value:.6g}{suffix}".replace("-", "\N{MINUS SIGN}")
