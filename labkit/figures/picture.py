"""The PNG that stands beside a plotly figure, drawn by matplotlib from the figure itself: no browser, no other program.

One figure in, one picture out: page and legend here, the axes in `axis`, traces in `traces` and `areas`, shapes and
annotations in `above`. What only moves (hover, zoom) is left out; what the picture cannot show raises CannotDraw.
matplotlib is used without pyplot, so neither a notebook's own plots nor its backend are touched, and one picture is
drawn at a time.
"""

import io
import math
import textwrap
import threading
import warnings
from typing import Any

import numpy as np
import plotly.graph_objects as go

from labkit.figures import above, areas, axis
from labkit.figures.ink import PT, colour, merged, values, words
from labkit.figures.theme import for_paper
from labkit.figures.traces import CannotDraw, Pen

DPI = 100
WHOLE = {"treemap", "heatmap", "parcoords"}
_one = threading.Lock()  # matplotlib's font cache is shared by all of its figures


def png(figure: go.Figure, *, width: int, height: int, scale: float = 1.0, most_bytes: float = math.inf) -> bytes:
    """The figure on white as PNG bytes, `scale` picture pixels for each of width x height; one of many crossing lines
    that would weigh over `most_bytes` has one pixel for each and fewer colours. Raises CannotDraw."""
    import matplotlib

    # The defaults, so that a picture looks the same whatever a person has set for plots of his own. Not the backend: to
    # name one loads pyplot.
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if k not in ("backend", "interactive")}
    with _one, warnings.catch_warnings(), matplotlib.rc_context(defaults):
        warnings.simplefilter("ignore")  # a letter that no font has, a plot squeezed by its legend: seen in the picture
        return _Page(for_paper(figure).to_plotly_json(), width, height).png(scale, most_bytes)


class _Page:
    """One picture being drawn."""

    def __init__(self, document: dict, width: int, height: int):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        template = document["layout"].get("template", {})
        self.layout = merged(template.get("layout"), document["layout"])
        self.layout["font"] = {"size": 12, "color": "#24292f", **self.layout.get("font", {})}
        looks = template.get("data", {})
        self.traces = [merged((looks.get(t.get("type", "scatter")) or [{}])[0], t) for t in document["data"]]
        self.traces = [t for t in self.traces if t.get("visible", True) is True]
        self.width, self.height = width, height
        self.page = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained", facecolor="white")
        self.page.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
        self.canvas = FigureCanvasAgg(self.page)
        self.axes = self.page.add_subplot(facecolor="white")

    def png(self, scale: float, most_bytes: float) -> bytes:
        self._draw()
        made = self._encoded(scale, 256)
        return made if len(made) <= most_bytes else self._encoded(1.0, 64)

    def _draw(self) -> None:
        ink = self.layout["font"]["color"]
        title = words(self.layout.get("title", {}).get("text"))
        size = self.layout.get("title", {}).get("font", {}).get("size", 16)
        lines = [
            part for line in title.split("\n") for part in textwrap.wrap(line, int(self.width / size / 0.6)) or [""]
        ]
        self.axes.set_title(
            "\n".join(lines),
            loc="left",
            fontsize=size * PT,
            color=colour(ink),
            pad=9 + above.room(self.layout),
            parse_math=False,
        )
        if len({(t.get("xaxis", "x"), t.get("yaxis", "y")) for t in self.traces}) > 1:
            raise CannotDraw("the picture has one pair of axes, and the figure has several")
        whole = [t for t in self.traces if t.get("type") in WHOLE]
        if whole and len(self.traces) > 1:
            raise CannotDraw(f"the picture shows a {whole[0]['type']} alone, and the figure has further traces")
        if whole and whole[0]["type"] != "heatmap":
            self._alone(whole[0])
        else:
            self._plot(whole)

    def _encoded(self, scale: float, colours: int) -> bytes:
        from PIL import Image

        self.page.set_dpi(DPI * scale)
        self.canvas.draw()
        whole_colours = Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
        out = io.BytesIO()
        # Colours of its own, at most 256 of them: half the bytes, and no difference that an eye finds.
        whole_colours.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        return out.getvalue()

    def _alone(self, trace: dict) -> None:
        if trace["type"] == "treemap":
            areas.treemap(self.axes, trace, self.width - 16, self.height - 48)
        else:
            areas.parallel(self.page, self.axes, trace, self.layout["font"])

    def _plot(self, whole: list[dict]) -> None:
        axes, settings = self.axes, {way: self.layout.get(f"{way}axis", {}) for way in "xy"}
        names = {way: axis.names_of(self.traces, way, settings[way]) for way in "xy"}
        for way in "xy":
            if settings[way].get("type") == "log":
                getattr(axes, f"set_{way}scale")("log")
        axes.margins(x=0.03, y=0.07)
        pen = Pen(axes, names, self.layout, sum(t.get("type") == "bar" for t in self.traces))
        if whole:
            places = [list(pen.place(w, _count(whole[0], w) if whole[0].get(w) is None else whole[0][w])) for w in "xy"]
            areas.heatmap(self.page, axes, whole[0], *places, self.layout["font"])
        else:
            wheel = self.layout.get("colorway") or ["#1f77b4"]
            for index, trace in enumerate(self.traces):
                pen.draw(trace, index, wheel[index % len(wheel)])
        for way in "xy":
            axis.finish(axes, way, settings[way], names[way], self.layout["font"], cells=bool(whole))
        for shape in self.layout.get("shapes", ()):
            above.shape(axes, shape, names)
        for note in self.layout.get("annotations", ()):
            above.note(axes, note, names, settings, self.layout["font"])
        if self.layout.get("showlegend", len(pen.handles) > 1) and pen.handles:
            self._legend(pen.handles)
        self.canvas.draw()
        axis.apart(axes)

    def _legend(self, handles: list[tuple[Any, str]]) -> None:
        """Below the plot, in as many columns as the width allows."""
        from matplotlib.font_manager import FontProperties

        font = FontProperties(size=self.layout["font"]["size"] * PT)
        draw = self.canvas.get_renderer()
        wide = [max(draw.get_text_width_height_descent(p, font, False)[0] for p in n.split("\n")) for _, n in handles]
        columns = next((n for n in range(min(6, len(wide)), 1, -1) if _row(wide, n) < self.width - 16), 1)
        rows = math.ceil(len(wide) / columns)
        if rows > 4:
            self.height += 20 * (rows - 4)
            self.page.set_size_inches(self.width / DPI, self.height / DPI)
        # matplotlib fills column by column; people read row by row, as plotly writes.
        order = [i for first in range(columns) for i in range(first, len(handles), columns)]
        made = self.page.legend(
            [handles[i][0] for i in order],
            [handles[i][1] for i in order],
            loc="outside lower left",
            ncols=columns,
            prop=font,
            frameon=False,
            labelcolor=colour(self.layout["font"]["color"]),
            handlelength=3.0,
            handletextpad=0.6,
            columnspacing=1.4,
            borderpad=0.1,
        )
        for text in made.get_texts():
            text.set_parse_math(False)


def _row(wide: list[float], columns: int) -> float:
    """Pixels that a legend of names this wide takes in so many columns, 5 em beside each name."""
    return sum(max(wide[first::columns]) + 5 * 13 for first in range(columns))


def _count(trace: dict, way: str) -> list[int]:
    """A heat map without names counts its cells."""
    rows = values(trace.get("z"))
    return list(range(len(rows) if way == "y" else len(values(rows[0])) if rows else 0))
