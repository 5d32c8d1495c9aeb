"""No title, axis title, legend, label or button of a figure lies on another one, at any width that a page gives it."""

import json
import shutil
from pathlib import Path

import pytest

from labkit.engines.config import EngineConfig
from labkit.figures import decode, explored, fit_js, new
from labkit.figures.marks import positions
from labkit.figures.theme import TEMPLATE, THEME_CSS
from labkit.measure import machine
from labkit.notebook.bytes import BytesPanel

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
EXECUTED = Path(__file__).parents[2] / "outputs" / "examples" / "pocket"
# A notebook's figures in a window of 1000 and of 1400 pixels with the file browser open; a report on a phone.
WIDTHS = (350, 620, 960)
PLOTLY = "application/vnd.plotly.v1+json"

# Boxes by kind. Turned labels are left out: their upright boxes meet where the words do not.
BOXES = """g => {
  const at = g.getBoundingClientRect(), found = [];
  const kinds = {title: '.gtitle', xtitle: '.xtitle', ytitle: '.ytitle', legend: '.legend .traces',
    xtick: '.xtick text', ytick: '.ytick text', words: '.annotation-text-g', buttons: '.modebar-group',
    name: '.textpoint text', axis: '.parcoords .axis-title'};
  for (const [kind, selector] of Object.entries(kinds)) for (const e of g.querySelectorAll(selector)) {
    const box = e.getBoundingClientRect();
    const turned = /rotate\\((?!0,)/.test(e.getAttribute('transform') || '');
    if (!box.width || !box.height || (kind.endsWith('tick') && turned)) continue;
    found.push([kind, e.textContent, box.left - at.left, box.right - at.left, box.top - at.top, box.bottom - at.top]);
  }
  const places = ((g.layout || {}).xaxis || {}).ticktext || [], shown = [...g.querySelectorAll('.xtick text')];
  for (const name of places) if (!shown.some(e => e.textContent === String(name).replace(/<br>/g, '')
      && getComputedStyle(e).opacity !== '0' && getComputedStyle(e).display !== 'none'))
    found.push(['hidden', String(name), 0, 0, 0, 0]);
  const high = at.height;
  for (const [kind, text, , , top, bottom] of [...found]) if (top < -2 || bottom > high + 2)
    found.push(['outside', `${kind} ${text}`, 0, 0, 0, 0]);
  return found; }"""


def meeting(boxes: list, width: float) -> list[str]:
    """What lies on what, and what is cut at the side."""
    found = []
    for i, (kind, text, left, right, top, bottom) in enumerate(boxes):
        if kind in ("hidden", "outside"):  # a name that is left out, a text above or below its figure
            found.append(f"{kind}: {text!r}")
        if right > width + 2 or left < -2:
            found.append(f"{kind} {text!r} is cut")
        for other, words, x0, x1, y0, y1 in boxes[i + 1 :]:
            if min(right, x1) - max(left, x0) > 2 and min(bottom, y1) - max(top, y0) > 2:
                found.append(f"{kind} {text!r} meets {other} {words!r}")
    return found


def figures_of_01(model: str, machine: str) -> list[tuple[str, dict]]:
    from labkit.notebook.bytes.sections import SECTIONS

    lab = BytesPanel(
        **dict(model=model, machine=machine, context=32768, experts="as released", head="as released", top_k=0),
        **dict(window=4, tpot_ms=None, my_model=model, my_machine=machine, live=False),
    )
    made = [(f"01 {s.name} {i} {model}", f(lab.at)) for s in SECTIONS.values() for i, f in enumerate(s.figures)]
    return [(name, json.loads(figure.to_json())) for name, figure in made]


def figures_of_runs() -> list[tuple[str, dict]]:
    """Every figure of the executed notebooks that measure, in today's look."""
    found = []
    for path in sorted(EXECUTED.glob("*.ipynb")):
        if path.stem == "01_bytes":  # drawn anew above
            continue
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        shown = [o["data"][PLOTLY] for c in cells for o in c.get("outputs", []) if PLOTLY in o.get("data", {})]
        # The a-c plane is drawn anew above too, by 01's simulation.
        shown = [f for f in shown if "S = 1" not in {n.get("text") for n in f["layout"].get("annotations", [])}]
        for i, figure in enumerate(shown):
            figure["layout"]["template"] = TEMPLATE.to_plotly_json()
            found.append((f"{path.stem} figure {i}", json.loads(json.dumps(figure, default=list))))
    return found


@pytest.fixture(scope="module")
def tab():
    from playwright.sync_api import sync_playwright
    from plotly.offline import get_plotlyjs

    with sync_playwright() as p:
        path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_content(f"<body style='margin:0'><script>{get_plotlyjs()}\n{fit_js()}</script><div id=g></div>")
        yield page
        browser.close()


def drawn(tab, figure: dict, width: int) -> list:
    tab.evaluate(
        """async ([f, w]) => { const g = document.getElementById('g'); Plotly.purge(g); g.style.width = w + 'px';
        const {data, layout} = labkitFit(f, w);
        await Plotly.newPlot(g, data, layout, {displayModeBar: true, displaylogo: false, responsive: true,
          modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]}); }""",
        [figure, width],
    )
    return tab.evaluate(f"() => ({BOXES})(document.getElementById('g'))")


def test_nothing_meets_in_the_figures_of_bytes(tab):
    figures = figures_of_01("ling-3.0-flash", "dgx-spark") + figures_of_01("qwen3-8b", "rtx-4090")
    assert len(figures) >= 20
    bad = {(n, w): m for n, f in figures for w in WIDTHS if (m := meeting(drawn(tab, f, w), w))}
    assert bad == {}


def test_nothing_meets_in_the_figures_of_runs(tab):
    figures = figures_of_runs()
    assert len(figures) >= 30
    bad = {(n, w): m for n, f in figures for w in WIDTHS if (m := meeting(drawn(tab, f, w), w))}
    assert bad == {}


def test_nothing_meets_in_the_figures_of_many_settings(tab):
    rows = [
        dict(name=f"mtp {n}/1/{n + 1}", load=load, steps=n, topk=1, verified=n + 1, context=256, a=a, c=c, S=a / c)
        for load, far in (("repetitive", 1.0), ("word-problems", 0.8))
        for n, a, c in ((1, 1.9 * far, 1.4), (2, 2.8 * far, 1.75), (3, 3.6 * far, 2.1), (5, 5.0 * far, 2.9))
    ]
    made = [explored.plane(rows), explored.grid(rows, load="repetitive"), explored.coordinates(rows)]
    figures = [(f.layout.title.text, json.loads(f.to_json())) for f in made]
    bad = {(n, w): m for n, f in figures for w in WIDTHS if (m := meeting(drawn(tab, f, w), w))}
    assert bad == {}


def test_names_of_places_and_of_points_stay_apart_and_none_is_lost(tab):
    """Long names along an axis, points that lie close together, and a place that waits with a title of two lines."""
    arms = ["timing load", "real load", "DGX Spark, synthetic", "DGX Spark, GSM8K"]
    long = new("Each gain", alt="four loads")
    positions(long, [f"{a}<br>x1.43" for a in arms])
    long.add_scatter(x=[0, 1, 2, 3], y=[1, 2, 3, 4])
    near = [("mtp on real", 2.5, 1.7), ("mtp on timing", 3.92, 2.22), ("mtp on questions", 3.95, 2.25)]
    near += [("mtp on greedy", 3.16, 2.12), ("mtp on sampled as greedy", 3.16, 2.24), ("mtp 3/1/4", 3.9, 2.3)]
    rows = [dict(name=n, load="code", a=a, c=c, S=a / c) for n, a, c in near]
    waits = decode.waiting("What sampling itself costs: the same text, greedy and sampled")
    figures = [(f.layout.title.text, json.loads(f.to_json())) for f in (long, explored.plane(rows), waits)]
    bad = {(n, w): m for n, f in figures for w in (350, 380, 620, 960) if (m := meeting(drawn(tab, f, w), w))}
    assert bad == {}
    names = [text for kind, text, *_ in drawn(tab, figures[1][1], 620) if kind == "name" and text]
    assert len(names) > len(rows) / 2 and "3/1/4" in names and "on real" not in names


def test_a_narrow_treemap_still_names_its_parts(tab):
    """Nine parts in ten of the bytes have their name on them, at the width beside a notebook's knobs."""
    account = machine.account(EngineConfig(engine="pocket"), context=256, model="pocket")
    figure = json.loads(decode.bytes_treemap(account).to_json())
    sizes = dict(zip(figure["data"][0]["labels"], figure["data"][0]["values"], strict=True))
    for width in (380, 620):
        drawn(tab, figure, width)
        named = tab.evaluate("() => [...document.querySelectorAll('.slicetext')].map(e => e.textContent)")
        seen = {
            name
            for name in sizes
            if any(text.startswith(name.replace(" ", "")) for text in (t.replace(" ", "") for t in named))
        }
        assert sum(sizes[n] for n in seen) > 0.9 * sum(sizes.values()), (width, named)


def test_every_word_beside_a_plot_has_the_ink_of_the_theme(tab):
    """Names of points and the numbers of a colour bar too, on a page that is light or dark."""
    rows = [dict(name=f"mtp {n}/1/{n + 1}", load="code", steps=n, topk=1, a=1.0 + n, c=1.5, S=n / 1.5) for n in (1, 2)]
    made = [explored.plane(rows), explored.grid(rows, load="code")]
    css = "css => { const s = document.createElement('style'); s.textContent = css; document.head.append(s); }"
    tab.evaluate(css, THEME_CSS)
    for theme, ink in (("light", "rgb(36, 41, 47)"), ("dark", "rgb(230, 232, 235)")):
        tab.evaluate("t => { document.documentElement.dataset.theme = t; }", theme)
        for figure in made:
            drawn(tab, json.loads(figure.to_json()), 620)
            words = ".gtitle, .xtick text, .textpoint text, .colorbar text, .legendtext"
            fills = "w => [...document.querySelectorAll(w)].map(e => getComputedStyle(e).fill)"
            assert set(tab.evaluate(fills, words)) == {ink}, (theme, figure.layout.title.text)


def test_it_would_see_an_axis_title_under_a_legend(tab):
    """The look of before: a legend at a share of the plot's height, in a flat figure with long names."""
    figure = {
        "data": [{"type": "bar", "x": [3], "y": ["held"], "orientation": "h", "name": "weights of the model " * 3}] * 3,
        "layout": {
            "height": 220,
            "xaxis": {"title": {"text": "GB held"}},
            "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
            "showlegend": True,
        },
    }
    assert any("xtitle" in m and "legend" in m for m in meeting(drawn(tab, figure, 620), 620))
