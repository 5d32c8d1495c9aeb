"""A person's way through a notebook in real JupyterLab: run all, guess, sliders by keyboard, run, cancel, reload,
overlay, save, export, a crash. One Lab for all of it, because starting one takes longer than using it."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.figures import decode
from labkit.records import read_run

sys.path.insert(0, str(Path(__file__).parent))
import lab as driver  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
]
QUICK = {"count": "2", "repeats": "2", "warmup": "1", "output_tokens": "32"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with driver.chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with driver.jupyterlab(tmp_path_factory.mktemp("lab"), parameters=QUICK) as running:
        yield running


@pytest.fixture
def open_notebook(browser, lab):
    opened = []

    def start(name):
        tab = browser.new_page()
        page = driver.Page(tab, lab, name)
        opened.append(page)
        page.open()
        return page

    yield start
    for page in opened:
        page.settle()
        page.shut_down()
        page.tab.close()


def done(page):
    """The line of a run's end; nothing is left to do where another notebook has measured the same."""
    ends = ("done in", "nothing to measure")
    return page.until(lambda: [n for n in page.notes() if n.startswith(ends)], timeout_s=150, note="the run")


def test_a_person_walks_through_the_baseline(open_notebook, lab):
    page = open_notebook("02_baseline")
    assert page.run_all(120) == []
    # A guess comes before everything else.
    page.until(lambda: any("Commit your guess" in n for n in page.notes()), note="the first figure's place")
    assert not page.traces(0) and not tables(page)
    assert all(page.locked(b) for b in ("Run", "Measure again", "Queue these settings"))
    field = page.tab.locator(".widget-text", has_text="your guess").locator("input").first
    field.fill("-5")
    page.press("Commit guess")
    page.until(lambda: page.tab.locator("[role=alert]", has_text="-5").count(), note="the refused guess")
    assert not page.traces(0)
    field.fill("3")
    field.press("Tab")
    page.press("Commit guess")
    page.until(lambda: any(n.startswith("Committed: 3") for n in page.notes()), note="the guess")
    assert field.is_disabled() and page.locked("Commit guess") and page.locked("Skip")
    expected = ["about", "requests", "Run will first start the engine"]
    page.until(lambda: all(any(e in n for n in page.notes()) for e in expected), note="what Run will do")
    page.until(lambda: any("guess" in t["name"] for t in page.traces(0)), note="the guess in the figure")

    # Cancel in the middle of a request.
    page.slider("output tokens").focus()
    for _ in range(12):
        page.tab.keyboard.press("PageUp")  # five steps
    page.until(lambda: page.tab.locator(".widget-readout", has_text="992").count(), note="the slider's new value")
    page.press("Run")
    page.until(lambda: any("repeat 1" in n for n in page.notes()), timeout_s=120, note="a first request")
    page.press("Cancel")
    page.until(lambda: "cancelled" in page.notes(), timeout_s=15, note="the cancel")

    # Back by keyboard, and a whole run; points arrive while it runs.
    page.slider("output tokens").focus()
    page.tab.keyboard.press("Home")
    least = page.tab.locator(".widget-readout", has_text=re.compile("^16$"))
    page.until(lambda: least.count(), note="the slider at 16")
    page.press("Run")
    assert "TPOT baseline" in done(page)[0]
    first = page.until(lambda: page.measured(0), note="the measured point")
    page.until(lambda: "● measured" in tables(page)[-1], note="the table")

    # Measure again adds passes.
    page.press("Measure again")
    page.until(lambda: any("8 requests in 4 repeats" in t for t in tables(page)), timeout_s=120, note="more repeats")
    done(page)

    # Save, and papermill's own reader finds the slider's value.
    page.press("Save parameters")
    path = written(page)
    assert re.search(r"^output_tokens: 16$", Path(lab.root / "notebooks" / path).read_text(), re.M)

    # Export.
    page.command("docmanager:save")
    page.press("Export report")
    html = (lab.root / "notebooks" / written(page, ".html")).read_text(encoding="utf-8")
    assert html.count("plotly.js v") == 1 and "baseline ● measured" in html.replace("\\u25cf", "●")

    # Overlay an earlier run.
    menu = page.tab.locator(".widget-dropdown", has_text="overlay run").locator("select")

    def records():
        return menu.locator("option").evaluate_all("all => all.map(o => o.textContent)")[1:]

    named = page.until(records, note="the earlier run in the menu")
    assert all(
        re.search(r"baseline\s[\d.]+\sms", n) for n in named
    )  # cancelled ones of nothing and the shown one: none
    before = menu.bounding_box()["y"]
    menu.select_option(label=named[-1])
    page.until(lambda: any("now" in t["name"] for t in page.traces(4)), note="the overlay's figure")
    assert abs(menu.bounding_box()["y"] - before) < 5  # nothing jumps

    # In a narrow window, and in one of 150%, the knobs stay in view beside any figure, and nothing is cut.
    for width, height in ((1000, 900), (933, 667)):
        page.tab.set_viewport_size({"width": width, "height": height})
        for at in range(3):
            page.tab.locator(".js-plotly-plot").nth(at).scroll_into_view_if_needed()
            page.until(lambda: page.in_view("Run"), note=f"Run beside figure {at} at {width} px")
            assert page.sideways() == []
    page.tab.set_viewport_size({"width": 1300, "height": 1600})

    # After a reload of the page the kernel is alive and the figure shows what it showed.
    before = page.measured(0)
    assert before and first
    page.command("docmanager:save")
    page.tab.wait_for_timeout(1000)
    page.tab.reload()
    page.until(lambda: page.measured(0) == before, timeout_s=90, note="the figure after a reload")
    # The text at the end of the notebook has followed, and the engine stops at a press.
    block = page.tab.locator(".labkit-block", has_text="● measured")
    page.until(lambda: block.count(), note="the text after a reload")
    page.press("Stop engine")
    page.until(lambda: any("no engine runs" in n for n in page.notes()), note="the engine's end")
    assert page.errors == []


def tables(page):
    return page.tab.locator(".labkit-table").all_inner_texts()


def written(page, suffix=".yaml"):
    """The path of the newest file, once its link has been tried."""

    def line():
        return [n for n in page.notes() if n.startswith("written:") and suffix in n and "it opens" in n]

    return page.until(line, note="a file")[0].split()[1]


def test_a_crashed_engine_shows_its_log_and_the_notebook_goes_on(open_notebook, lab):
    page = open_notebook("03_humming")
    assert page.run_all(120) == []
    page.press("Skip the guess")
    page.until(lambda: not page.locked("Run"), note="the skipped guess")
    page.press("Run")
    page.until(lambda: any("repeat 1" in n for n in page.notes()), timeout_s=120, note="a first request")
    owner = json.loads((lab.root.parent / "lock" / "engine.json").read_text())
    for engine in owner["engines"]:
        os.kill(engine["pid"], signal.SIGKILL)
    page.until(lambda: page.tab.locator("[role=alert]").count(), timeout_s=30, note="the alert")
    alert = page.tab.locator("[role=alert]").first.inner_text()
    assert "killed by signal 9" in alert and "memory ran out" in alert and "last lines" in alert
    page.until(lambda: any(n.startswith("failed") for n in page.notes()), note="the run's end")
    page.press("Run")
    done(page)
    page.until(lambda: len(page.measured(0)) == 2, note="both arms")
    assert page.errors == []


def test_the_longest_bar_is_guessed_and_then_drawn_in_full_width(open_notebook):
    page = open_notebook("01_bytes")
    assert page.run_all(120) == []
    asked = page.tab.locator(".widget-dropdown", has_text="longest bar")
    asked.locator("select").select_option(label="head")
    asked.scroll_into_view_if_needed()  # JupyterLab takes cells far from the view out of the page
    page.until(lambda: any(re.search(r"\bhead\b.*\d+%", n) for n in page.notes()), note="the guess beside the account")
    filled = """() => { const g = document.querySelector('.js-plotly-plot'), s = g && g.querySelector('svg');
      return !!s && g.clientWidth > 600 && s.clientWidth === g.clientWidth; }"""
    page.until(lambda: page.tab.evaluate(filled), note="the figure in full width")
    aligned = "() => [...document.querySelectorAll('.labkit-table td')].map(e => getComputedStyle(e).textAlign)"
    # JupyterLab's own rule says right.
    page.until(lambda: set(page.tab.evaluate(aligned)) == {"left"}, note="the table's columns")
    assert page.errors == []


def test_knobs_that_restart_the_engine(open_notebook):
    """What a slider costs is said before, settings wait in a queue, what was measured is shown at once, a zoom stays,
    a hover explains its number."""
    page = open_notebook("05_mtp")
    tab = page.tab
    assert page.run_all(120) == []
    page.press("Skip the guess")
    predictions_follow_the_sliders(page)
    a_server_by_its_address(page)
    assert "acceptance differs by load" in tab.locator(".widget-dropdown [title]").first.get_attribute("title")
    page.press("Start engine")
    running = page.until(lambda: [n for n in page.notes() if n.startswith("running: plain at http")], timeout_s=60)
    assert "started in" in running[0]

    steps = page.slider("draft steps")
    steps.focus()
    for _ in range(2):
        tab.keyboard.press("ArrowRight")
    said = page.until(lambda: [n for n in page.notes() if "start the engine for: mtp 5/1/6" in n], note="the restart")
    assert re.search(r"the last start took [\d.]+ s", said[0])
    page.press("Queue these settings")
    page.until(lambda: any(n.startswith("Queue: about") for n in page.notes()), note="the queue's time")
    steps.focus()
    tab.keyboard.press("Home")
    page.until(lambda: any("mtp 1/1/2" in n for n in page.notes()), note="the slider at 1")
    page.press("Run")
    done(page)
    both = {"plain", "mtp 1/1/2"}
    page.until(lambda: {t["name"].split(" \u25cf")[0] for t in page.measured(0)} == both, note="both arms")

    # Back at the queued setting: measured meanwhile, shown at once.
    steps.focus()
    for _ in range(4):
        tab.keyboard.press("ArrowRight")
    page.until(lambda: any("mtp 5/1/6 measured at" in n for n in page.notes()), note="the kept result")
    page.until(lambda: any("mtp 5/1/6" in t["name"] for t in page.measured(0)), note="the kept result in the figure")

    plot = tab.locator(".js-plotly-plot").nth(1)
    hover = plot.locator(".hoverlayer .hovertext")

    def explained():
        plot.scroll_into_view_if_needed()
        point = plot.locator(".scatterlayer .point").last.bounding_box()
        middle = point["x"] + point["width"] / 2, point["y"] + point["height"] / 2
        tab.mouse.move(middle[0] + 40, middle[1] + 40)
        tab.mouse.move(*middle)
        tab.wait_for_timeout(400)  # plotly draws a hover when the mouse has rested
        return hover.first.evaluate("e => e.textContent") if hover.count() else ""

    formula = r"= a / c\W+\d+\.\d+.* \d+\.\d+"  # with the numbers in it
    page.until(lambda: re.search(formula, explained()), note="the formula with its numbers")

    plot = tab.locator(".js-plotly-plot").nth(0)
    plot.scroll_into_view_if_needed()
    ranges = "() => ['xaxis', 'yaxis'].map(a => document.querySelector('.js-plotly-plot').layout[a].range)"
    whole = tab.evaluate(ranges)
    area = plot.locator(".nsewdrag").first.bounding_box()
    tab.mouse.move(area["x"] + 50, area["y"] + 30)
    tab.mouse.down()
    tab.mouse.move(area["x"] + 300, area["y"] + 120, steps=5)
    tab.mouse.up()
    page.until(lambda: tab.evaluate(ranges) != whole, note="the zoom")
    tab.wait_for_timeout(500)
    zoomed = tab.evaluate(ranges)
    page.press("Measure again")
    page.until(lambda: not any(n.startswith("done in") for n in page.notes()), note="the run's start")
    done(page)
    assert tab.evaluate(ranges) == zoomed
    assert page.errors == []


@pytest.mark.slow  # without a browser, and quicker: tests/notebook/test_panel.py
def test_a_second_notebook_is_told_who_owns_the_engine_and_a_saved_file_measures_the_same(open_notebook, lab):
    page = open_notebook("05_mtp")
    assert page.run_all(120) == []
    page.press("Skip the guess")
    page.slider("draft steps").focus()
    page.tab.keyboard.press("Home")
    for _ in range(4):
        page.tab.keyboard.press("ArrowRight")
    page.until(lambda: any("mtp 5/1/6" in n for n in page.notes()), note="the slider at 5")
    page.press("Measure again")
    done(page)

    other = open_notebook("03_humming")
    assert other.run_all(120) == []
    owned = "owns an engine at http"
    other.until(lambda: any("05_mtp.ipynb" in n and owned in n for n in other.notes()), note="the owner's name")
    other.press("Skip the guess")
    other.until(lambda: not other.locked("Measure again"), note="the skipped guess")
    other.press("Measure again")  # Run has nothing to do where another test measured
    other.until(lambda: other.tab.locator("[role=alert]").count(), timeout_s=30, note="the refusal")
    told = other.tab.locator("[role=alert]").first.inner_text()
    assert "05_mtp.ipynb" in told and "runs an engine with other settings" in told and "Press Stop engine there" in told

    page.press("Save parameters")
    saved = (lab.root / "notebooks" / written(page)).resolve()
    page.press("Stop engine")
    page.until(lambda: any("no engine runs" in n for n in page.notes()), note="the engine's end")
    # The other notebook hears of it by itself.
    other.until(lambda: any("no engine runs" in n for n in other.notes()), note="the owner's end in the other notebook")
    assert page.errors == [] and other.errors == []
    same_again(lab, saved)


def a_server_by_its_address(page):
    """The engine menu takes the address of a server that runs already; what is none is refused and changes nothing."""
    page.unfold("Engine settings")
    menu = page.tab.locator(".widget-dropdown select", has=page.tab.locator("option", has_text="attach"))
    before = menu.input_value()
    menu.select_option(label="attach")
    field = page.tab.locator(".widget-text", has_text="url").locator("input").first
    page.until(field.count, note="the address's field")
    field.fill("no address")
    page.press("Use these engine settings")
    page.until(lambda: page.tab.locator("[role=alert]", has_text="url").count(), note="the refused address")
    menu.select_option(value=before)
    page.until(lambda: not field.count(), note="the fields of the engine in use")
    page.press("Use these engine settings")
    page.unfold("Engine settings")


def predictions_follow_the_sliders(page):
    """Before any engine runs, each figure of a prediction changes with the sliders."""

    def ends():
        spans = [t["y"] for t in page.traces(1) if t["name"].startswith("predicted")]
        return spans[0] if spans else None

    before = page.until(ends, note="the predicted range of the speed-up")
    steps = page.slider("draft steps")
    steps.focus()
    page.tab.keyboard.press("ArrowRight")
    page.until(lambda: ends() not in (None, before), note="the range of one more step")
    assert max(y for y in ends() if y) > max(y for y in before if y)  # one more draft may be right
    assert not page.measured(0) and any("no engine runs" in n for n in page.notes())
    page.tab.keyboard.press("ArrowLeft")
    page.until(lambda: ends() == before, note="the range as it was")


def same_again(lab, saved):
    """`labkit run -f` on saved parameters asks the same and is answered the same, token for token."""
    env = {k: v for k, v in os.environ.items() if k != "JPY_SESSION_NAME"}
    env |= {"LABKIT_STATIC": "0", "LABKIT_RUNTIME_DIR": str(lab.root.parent / "lock")}
    command = [sys.executable, "-m", "labkit.cli", "run", "05_mtp", "-f", str(saved), "--json"]
    ran = subprocess.run(command, cwd=lab.root, env=env, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert Path(json.loads(ran.stdout)["directory"]).parts[0] == "outputs"  # beside the live records
    directory = lab.root / json.loads(ran.stdout)["directory"]
    (headless,) = (directory / "records").glob("*-05_mtp")
    live = [read_run(p.parent) for p in (lab.root / "outputs").glob("*-05_mtp/run.json")]
    for arm in ("plain", "mtp 5/1/6"):
        asked = [r for r in live if r.meta["status"] == "finished" and arm in r.arms]
        assert asked and answers(read_run(headless), arm) == answers(asked[0], arm)
        assert read_run(headless).described(arm)["engine"] == asked[0].described(arm)["engine"]


def answers(run, arm):
    return {(r["prompt_sha256"], r["text_sha256"], r["output_tokens"]) for r in run.arm(arm) if r["repeat"] >= 0}


def explore(page, settings):
    """Queue each of these (load, draft steps) but the last, which is run from a busy kernel, and wait for the end."""
    *queued, last = settings
    for one in queued:
        choose(page, *one)
        number = one[1]
        page.until(lambda n=number: page.tab.locator(".widget-readout", has_text=re.compile(f"^{n}$")).count())
        page.press("Queue these settings")
        page.tab.wait_for_timeout(300)
    choose(page, last[0], 1)
    page.until(lambda: any("mtp 1/1/2" in n for n in page.notes()), note="the slider at 1")
    # The kernel is busy: the page sends the first of these moves, keeps the others back, and sends the click at once.
    page.occupy(2)
    choose(page, *last)
    writing = page.record(".labkit-writing")  # before the click: a short run's text may be gone before one looks
    page.tab.locator("button.jupyter-button").filter(has_text=re.compile(r"^\s*Run\s*$")).first.click()
    ends = ("done in", "failed")
    page.until(lambda: any(n.startswith(ends) for n in page.notes()), timeout_s=900, note="the run")
    seen = writing()
    assert seen and all(text for text, _ in seen), "no text was shown as it was written"
    assert max(high for _, high in seen) < 80  # few lines, whatever its length
    assert not page.tab.locator(".labkit-writing").count()


def choose(page, load, steps):
    """Move the menu and the slider, as fast as a hand on the keyboard."""
    page.tab.locator(".widget-dropdown", has_text="load").locator("select").first.select_option(label=load)
    page.slider("draft steps").focus()
    page.tab.keyboard.press("Home")
    for _ in range(steps - 1):
        page.tab.keyboard.press("ArrowRight")


def measure_a_grid(page):
    """Draft steps x topk: the map fills while it runs, what the engine would rewrite has a reason, nothing is lost."""
    page.unfold("Grid")
    fields = page.tab.locator(".labkit-grid .widget-text input[type=text]")
    for at, text in enumerate(("1-2", "nonsense")):
        fields.nth(at).fill(text)
        fields.nth(at).press("Tab")
    page.until(lambda: page.tab.locator(".labkit-grid [role=alert]").count(), note="the refused values")
    page.tab.locator(".labkit-grid .widget-dropdown select").nth(1).select_option(label="draft tokens")
    fields.nth(1).fill("2-3")
    page.press("Measure grid")
    seen = []

    def cells():
        found = page.tab.evaluate(
            """() => { const plots = [...document.querySelectorAll('.labkit-grid .js-plotly-plot')];
            const traces = plots.flatMap(g => g.data || []), one = type => traces.find(t => t.type === type);
            const map = one('heatmap'), lines = one('parcoords');
            return {map: map ? map.z.flat() : [], lines: lines ? lines.dimensions[0].values.length : 0}; }"""
        )
        seen.append(sum(v is not None for v in found["map"]))
        return found

    page.until(lambda: any(n.startswith("grid:") for n in page.notes()) and cells(), timeout_s=200, note="the grid")
    found = page.until(lambda: (f := cells()) and seen[-1] == 2 and f, note="both points")
    assert len(found["map"]) == 4 and found["map"][1] is None and found["map"][2] is None  # a chain: steps + 1
    assert page.tab.locator(".labkit-grid details li").count() == 2
    assert all(0.1 < v < 10 for v in (found["map"][0], found["map"][3]))
    assert seen == sorted(seen) and found["lines"] >= 2


def known(page):
    """(name, load) of the drafting settings in the table."""
    page.tab.evaluate("() => document.querySelector('.labkit-explored').scrollIntoView()")
    rows = ".labkit-explored table.dataTable tbody tr"
    page.until(lambda: page.tab.locator(rows).count(), note="the table of settings")
    cells = page.tab.locator(rows).evaluate_all("all => all.map(r => [...r.cells].map(c => c.innerText))")
    return {tuple(r[:2]) for r in cells if r[0].startswith("mtp")}


@pytest.mark.parametrize(
    "settings",
    [
        [("repetitive", 1), ("code", 2)],
        pytest.param(
            [(w, n) for w in ("word-problems", "word-problems-sampled", "repetitive", "code") for n in range(1, 6)],
            marks=[pytest.mark.slow, pytest.mark.timeout(1500)],
        ),
    ],
    ids=["two", "twenty"],
)
def test_no_explored_setting_is_lost_and_a_saved_notebook_shows_everything_without_a_kernel(
    open_notebook, lab, settings
):
    page = open_notebook("05_mtp")
    assert page.run_all(120) == []
    page.press("Skip the guess")
    page.until(lambda: not page.locked("Run"), note="the skipped guess")
    path = lab.root / "notebooks" / "05_mtp.ipynb"
    page.command("docmanager:save")
    page.until(lambda: "labkit-table" in path.read_text(encoding="utf-8"), note="the file before a run")
    assert decode.NOT_YET not in path.read_text(encoding="utf-8")
    explore(page, settings)
    measure_a_grid(page)
    wanted = {(f"mtp {n}/1/{n + 1}", load) for load, n in settings}
    wanted |= {(f"mtp {n}/1/{n + 1}", settings[-1][0]) for n in (1, 2)}
    page.until(lambda: wanted <= known(page), note="every setting in the table")
    # One comparison at a time: no number of another minute takes part in what is compared.
    compared = page.tab.locator(".labkit-table").first.inner_text()
    load, steps = settings[-1]
    assert not any(f"mtp {n}/1/{n + 1}" in compared for _, n in settings if n != steps)

    page.command("docmanager:save")

    def kept():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [o.get("data", {}) for c in cells if c["cell_type"] == "code" for o in c["outputs"]]

    page.until(lambda: sum("image/png" in d for d in kept()) >= 6, note="the pictures in the file")
    said = " ".join("".join(d.get("text/html", "")) for d in kept())
    assert f"mtp {steps}/1/{steps + 1}" in said and "● measured" in said
    assert all(f"<td>{name}</td>" in said and f"<td>{on}</td>" in said for name, on in wanted)  # the table of settings
    assert decode.NOT_YET not in said

    page.shut_down()
    page.settle()
    page.tab.reload()
    pictures = (
        "() => [...document.querySelectorAll('.jp-OutputArea-output img')].filter(i => i.clientHeight > 50).length"
    )

    opened = (
        "() => !!(window.jupyterapp && window.jupyterapp.shell.currentWidget && document.querySelector('.jp-Cell'))"
    )
    page.until(lambda: page.tab.evaluate(opened), timeout_s=90, note="the notebook without a kernel")

    shown, told = 0, ""
    for _ in page.walk():
        shown = max(shown, page.tab.evaluate(pictures))
        told += " ".join(tables(page))
    assert shown and f"mtp {steps}/1/{steps + 1}" in told and "● measured" in told


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_every_notebook_draws_in_both_themes(browser, tmp_path, theme):
    """Each notebook is run to its end, so that every figure of it is drawn from measurements, 09's from all records."""
    quick = {**QUICK, "max_context": "2048"}
    with driver.jupyterlab(tmp_path, parameters=quick, theme=theme) as running:
        for source in sorted((driver.ROOT / "notebooks").glob("[0-9]*.ipynb")):
            tab = browser.new_page()
            page = driver.Page(tab, running, source.stem)
            page.open()
            assert page.run_all(200) == [], source.stem
            if source.stem not in ("01_bytes", "09_report", "10_sweep"):
                page.press("Commit guess")
                page.until(lambda page=page: not page.locked("Run"), note="the guess")
                page.press("Run")
                done(page)
            if source.stem == "10_sweep":  # no sweep here: tests/browser/test_sweep.py has one
                page.shut_down()
                tab.close()
                continue
            page.until(lambda page=page: drawn(page), note=f"{source.stem}: every figure")
            ink = tab.evaluate("() => getComputedStyle(document.querySelector('.gtitle')).fill")
            assert ink == ("rgb(36, 41, 47)" if "Light" in theme else "rgb(230, 232, 235)"), source.stem
            meets = importlib.import_module("test_bytes").overlap()
            for width in (1400, 1000):
                tab.set_viewport_size({"width": width, "height": 1600})
                for _ in page.walk():
                    assert page.sideways() == [], source.stem
                    for plot in tab.locator(".js-plotly-plot:has(.main-svg)").all():
                        wide = plot.evaluate("g => g.getBoundingClientRect().width")
                        assert meets.meeting(plot.evaluate(meets.BOXES), wide) == [], source.stem
            assert page.errors == [], source.stem
            page.settle()
            page.shut_down()
            tab.close()


def drawn(page):
    """Are there figures, and has each of them something to show?"""
    filled = page.tab.evaluate("() => [...document.querySelectorAll('.js-plotly-plot')].map(g => g.data.length > 0)")
    return filled and all(filled)
