"""The PNG beside a figure: made without a browser, true to the numbers, cut nowhere, small, and never in the way."""

import base64
import importlib
import io
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from labkit.figures import areas, ink, picture, theme, traces

show = importlib.import_module("labkit.figures.show")  # the package's own `show` is the function
ROOT = Path(__file__).parents[2]
BLUE, RED = (0, 114, 178), (213, 94, 0)


def pixels(figure: go.Figure) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(show.png(figure))).convert("RGB")).astype(int)


def where(image: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """[height, width] of bool: pixels of this colour, as near as a palette keeps it."""
    return np.abs(image - np.array(colour)).max(axis=2) < 24


def centre(image: np.ndarray, colour) -> tuple[float, float]:
    rows, columns = np.nonzero(where(image, colour))
    return columns.mean(), rows.mean()


def new(**more) -> go.Figure:
    return theme.new("x", alt="a figure", **more)


# --- no browser, no other program ------------------------------------------------------------------------------------

ALONE = """
import sys
def refuse(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "os.system"):
        raise PermissionError(f"no program may start here: {args}")
sys.addaudithook(refuse)
import json, pathlib
import plotly.graph_objects as go
from labkit.figures import decode, runs
from labkit.figures.show import PLOTLY_MIME, bundle
assert "matplotlib" not in sys.modules, "drawing costs its import only where a picture is drawn"
nb = json.loads(pathlib.Path(sys.argv[1]).read_text())
made = 0
for cell in nb["cells"]:
    for output in cell.get("outputs", []):
        if PLOTLY_MIME in output.get("data", {}):
            data, metadata = bundle(go.Figure(output["data"][PLOTLY_MIME]), picture=True)
            assert "image/png" in data, data["text/plain"]
            made += 1
assert "matplotlib.pyplot" not in sys.modules, "a notebook's own plots are not ours to touch"
print(made)
"""


@pytest.mark.parametrize("name", ["01_bytes", "05_mtp"])
def test_pictures_are_made_where_no_program_can_be_started(tmp_path, name):
    """The real absence: nothing on PATH, and whoever starts a program fails. A user's first run: no font cache yet."""
    example = ROOT / f"outputs/examples/pocket/{name}.ipynb"
    environ = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path / "mpl")}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(example)], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 6


def test_a_picture_needs_neither_a_display_nor_the_users_matplotlib_settings(tmp_path):
    (tmp_path / "matplotlibrc").write_text("figure.facecolor: black\nbackend: TkAgg\ntext.usetex: True\n")
    code = (
        "from labkit.figures import theme; from labkit.figures.show import png; f = theme.new('a_b $5', alt='x');"
        "f.add_scatter(x=[1, 2], y=[1, 2], name='$n$'); import sys; sys.stdout.buffer.write(png(f))"
    )
    environ = {"PYTHONPATH": str(ROOT), "MATPLOTLIBRC": str(tmp_path), "HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    image = np.asarray(Image.open(io.BytesIO(done.stdout)).convert("RGB"))
    assert (image[0] == 255).all() and (image < 100).any()


# --- true to the numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["v", "h"])
def test_bars_are_as_long_as_their_numbers(way):
    figure = new(showlegend=False)
    for name, value, colour in (("a", 1, "#0072B2"), ("b", 2, "#D55E00")):
        x, y = ([name], [value]) if way == "v" else ([value], [name])
        figure.add_bar(x=x, y=y, orientation=way, marker_color=colour)
    figure.update_layout(barmode="overlay")
    image = pixels(figure)
    assert where(image, RED).sum() / where(image, BLUE).sum() == pytest.approx(2, rel=0.03)


def test_stacked_bars_lie_on_each_other_and_a_waterfall_on_what_it_changes():
    stacked = new(barmode="stack", showlegend=False)
    stacked.add_bar(x=["a"], y=[2], marker_color="#0072B2")
    stacked.add_bar(x=["a"], y=[1], marker_color="#D55E00")
    image = pixels(stacked)
    assert np.nonzero(where(image, RED))[0].max() <= np.nonzero(where(image, BLUE))[0].min() + 2
    fall = new(showlegend=False)
    fall.add_waterfall(
        x=["a", "b"],
        y=[4, -1],
        measure=["absolute", "relative"],
        totals_marker_color="#0072B2",
        decreasing_marker_color="#D55E00",
    )
    image = pixels(fall)
    tops = [np.nonzero(where(image, c))[0].min() for c in (BLUE, RED)]
    assert abs(tops[0] - tops[1]) <= 3  # the change hangs from where the first bar ended
    assert where(image, BLUE).sum() / where(image, RED).sum() == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("kind", ["linear", "log"])
def test_a_point_lies_where_its_value_says(kind):
    figure = new(showlegend=False)
    ends, middle = ([1, 100], 10) if kind == "log" else ([0, 4], 1)
    share = 0.5 if kind == "log" else 0.25
    figure.add_scatter(x=ends, y=ends, mode="markers", marker=dict(color="#0072B2", size=14))
    figure.add_scatter(x=[middle], y=[middle], mode="markers", marker=dict(color="#D55E00", size=14))
    figure.update_xaxes(type=kind)
    figure.update_yaxes(type=kind)
    image = pixels(figure)
    rows, columns = np.nonzero(where(image, BLUE))
    half = (columns.min() + columns.max()) / 2
    left, right = columns[columns < half].mean(), columns[columns > half].mean()
    low, high = rows[columns < half].mean(), rows[columns > half].mean()
    x, y = centre(image, RED)
    assert (x - left) / (right - left) == pytest.approx(share, abs=0.01)
    assert (low - y) / (low - high) == pytest.approx(share, abs=0.02)


def test_an_interval_reaches_from_its_low_to_its_high_end():
    figure = new(showlegend=False)
    error = dict(type="data", symmetric=False, array=[2], arrayminus=[1], thickness=3)
    figure.add_scatter(x=[0], y=[3], error_y=error, mode="markers", marker=dict(color="#0072B2", size=1))
    figure.add_scatter(x=[1, 1], y=[2, 5], mode="lines", line=dict(color="#D55E00", width=3))
    image = pixels(figure)
    spans = [np.ptp(np.nonzero(where(image, c))[0]) for c in (BLUE, RED)]
    assert spans[0] == pytest.approx(spans[1], abs=8)


def test_a_gap_in_a_line_stays_a_gap():
    figure = new(showlegend=False)
    figure.add_scatter(x=[0, 1, 2, 3, 4], y=[1, 1, None, 1, 1], mode="lines", line=dict(color="#0072B2", width=4))
    columns = np.nonzero(where(pixels(figure), BLUE).any(axis=0))[0]
    assert np.diff(columns).max() > 100


def test_cells_of_a_heat_map_have_the_colours_of_their_values():
    figure = new()
    figure.add_heatmap(z=[[0, 1], [2, 3]], x=["a", "b"], y=["1K", "2K"], colorscale="Viridis", showscale=False)
    image = pixels(figure)
    height, width = image.shape[:2]
    corners = [image[int(height * r), int(width * c)] for r in (0.7, 0.3) for c in (0.3, 0.8)]
    assert np.abs(corners[0] - (68, 1, 84)).max() < 10 and np.abs(corners[3] - (253, 231, 37)).max() < 10
    assert len({tuple(c) for c in corners}) == 4


def test_parallel_coordinates_draw_a_line_for_each_row():
    figure = new()
    columns = [dict(label="steps", values=[1, 2]), dict(label="TPOT", values=[5, 3])]
    figure.add_parcoords(dimensions=columns, line=dict(color=[0, 1], colorscale=[[0, "#0072B2"], [1, "#D55E00"]]))
    image = pixels(figure)
    middle = image[:, image.shape[1] // 3]
    assert all(where(middle[:, None], c).any() for c in ((38, 136, 190), (219, 118, 38)))


sizes = st.lists(st.floats(0.01, 1000), min_size=1, max_size=30)


@given(sizes)
def test_areas_of_a_treemap_are_its_numbers(numbers):
    boxes = areas.squarified(numbers, 300, 200)
    for (x, y, w, h), size in zip(boxes, numbers, strict=True):
        assert w * h == pytest.approx(size / sum(numbers) * 60_000, rel=1e-6)
        assert x >= -1e-6 and y >= -1e-6 and x + w <= 300 + 1e-3 and y + h <= 200 + 1e-3
    for i, (x, y, w, h) in enumerate(boxes):
        for a, b, c, d in boxes[:i]:
            assert min(x + w, a + c) - max(x, a) < 1e-3 or min(y + h, b + d) - max(y, b) < 1e-3


# --- readable --------------------------------------------------------------------------------------------------------


def examples() -> list:
    """One committed figure of each title."""
    found = {}
    for path in sorted((ROOT / "outputs/examples").glob("*/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if show.PLOTLY_MIME in output.get("data", {}):
                    figure = go.Figure(output["data"][show.PLOTLY_MIME])
                    found.setdefault(str(figure.layout.title.text).split(" (")[0], figure)
    return [pytest.param(f, id=title.replace(" ", "_")[:40]) for title, f in found.items()]


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_lines_above_the_plot_do_not_lie_on_the_title(lines):
    figure = theme.new("Where the time goes", x="a", y="b", alt="a line")
    figure.add_scatter(x=[1, 2], y=[1, 2])
    place = dict(x=0, y=1.0, xref="paper", yref="paper", xanchor="left", yanchor="bottom", align="left")
    figure.add_annotation(text="<br>".join(["a line of words"] * lines), showarrow=False, font_size=11, **place)
    page = picture._Page(theme.for_paper(figure).to_plotly_json(), 900, 400)
    page.png(1.0, 256)
    title, note = (t.get_window_extent() for t in (page.axes._left_title, page.axes.texts[0]))
    assert note.y1 <= title.y0


@pytest.mark.parametrize("figure", examples())
def test_every_figure_of_the_lab_fits_its_picture(figure):
    """Nothing is cut: the picture's rim is white. And it stays small enough to be committed beside its numbers."""
    data, metadata = show.bundle(figure, picture=True)
    made = base64.b64decode(data["image/png"])
    image = np.asarray(Image.open(io.BytesIO(made)).convert("RGB"))
    assert all((rim == 255).all() for rim in (image[:2], image[-2:], image[:, :2], image[:, -2:]))
    assert len(made) < 60_000 and (image < 128).any()
    assert metadata["image/png"]["width"] == 900 and metadata["image/png"]["alt"] == figure.layout.meta["alt"]


def test_a_long_legend_is_cut_nowhere_and_leaves_room_for_the_figure():
    figure = new()
    for i in range(24):
        figure.add_scatter(x=[0, 1], y=[i, i], name=f"a long name of a setting with many knobs, number {i} ● measured")
    data, metadata = show.bundle(figure, picture=True)
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB"))
    assert (image[:, -2:] == 255).all() and (image[-2:] == 255).all()
    assert metadata["image/png"]["height"] > 400  # and the viewer is told


def test_labels_that_would_overlap_are_turned():
    figure = new()
    figure.add_bar(x=[f"quite a long name of setting {i}" for i in range(9)], y=[1] * 9, marker_color="#0072B2")
    image = pixels(figure)
    below = image[np.nonzero(where(image, BLUE))[0].max() + 12 :]
    ink_rows = np.nonzero((below < 100).any(axis=(1, 2)))[0]
    assert np.ptp(ink_rows) > 100


@pytest.mark.parametrize(
    ("said", "rgba"),
    [
        ("#ff0000", (1, 0, 0, 1)),
        ("rgb(0, 255, 0)", (0, 1, 0, 1)),
        ("rgba(0,0,255,0.5)", (0, 0, 1, 0.5)),
        ("red", (1, 0, 0, 1)),
    ],
)
def test_colours_as_plotly_writes_them(said, rgba):
    assert ink.colour(said) == pytest.approx(rgba)


def test_text_numbers_and_arrays_as_plotly_writes_them():
    assert ink.words("<b>a</b> &lt; 5<br>b") == "a < 5\nb"
    assert [ink.formatted(v, None) for v in (0.5, 12_000, -3, 2e6)] == ["0.5", "12k", "\N{MINUS SIGN}3", "2M"]
    assert ink.formatted(0.25, ".0%") == "25%"
    packed = go.Figure(go.Scatter(y=np.arange(4.0))).to_plotly_json()["data"][0]["y"]
    assert ink.values(packed) == [0, 1, 2, 3]


def test_the_lab_s_markers_differ_in_the_picture_too():
    figure = new()
    symbols = {s for look in theme.SERIES for s in (look.marker, f"{look.marker}-open")}
    symbols |= {"diamond-open-dot", "diamond-cross-open", "diamond-x-open", "diamond-tall-open", "diamond-wide-open"}
    drawn = set()
    for symbol in sorted(symbols):
        figure = new(showlegend=False)
        figure.add_scatter(x=[0], y=[0], mode="markers", marker=dict(symbol=symbol, size=30, color="#0072B2"))
        drawn.add(picture.png(figure, width=200, height=150))
    assert len(drawn) == len(symbols)


# --- never in the way ------------------------------------------------------------------------------------------------


def _pie(figure):
    figure.add_pie(values=[1, 2])


def _two_axes(figure):
    figure.add_scatter(x=[1], y=[1])
    figure.add_scatter(x=[1], y=[1], yaxis="y2")


def _too_much(figure):
    figure.add_scatter(y=np.zeros(traces.MOST_POINTS + 1))


def _a_path(figure):
    figure.add_shape(type="path", path="M0,0L1,1", x0=0, x1=1, y0=0, y1=1)


@pytest.mark.parametrize(
    ("fill", "said"),
    [(_pie, "of the type pie"), (_two_axes, "several"), (_too_much, "100,000 points"), (_a_path, "of the type path")],
)
def test_what_cannot_be_drawn_is_one_sentence_and_the_figure_stays(fill, said):
    figure = new()
    fill(figure)
    data, metadata = show.bundle(figure, picture=True)
    assert said in data["text/plain"] and "no picture" in data["text/plain"] and "\n" not in data["text/plain"]
    assert show.PLOTLY_MIME in data and "image/png" not in data and metadata == {}


@pytest.mark.parametrize("fill", [_pie, _too_much])
def test_after_what_cannot_be_drawn_the_next_picture_is_drawn(fill):
    figure = new()
    fill(figure)
    show.bundle(figure, picture=True)
    assert show.png(new())[:4] == b"\x89PNG"


def test_threads_draw_the_same_picture():
    figure = new(showlegend=True)
    figure.add_scatter(x=[1, 2, 3], y=[3, 1, 2], name="one")
    alone = show.png(figure)
    before = threading.active_count()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: show.png(figure), range(8))) == {alone}
    assert threading.active_count() == before


@pytest.mark.parametrize("step", [1e-9, 0, -1])
def test_a_step_that_makes_too_many_ticks_is_not_taken(step):
    figure = new()
    figure.add_scatter(x=[0, 1e6], y=[0, 1])
    figure.update_xaxes(dtick=step or None)
    assert len(show.png(figure)) > 1000
