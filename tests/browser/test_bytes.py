"""Notebook 01 in JupyterLab: a link brings its settings, a pasted config is counted, no text lies on another."""

import importlib.util
import json
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest

from labkit import catalog

sys.path.insert(0, str(Path(__file__).parent))
import lab as driver  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]


def overlap():
    """The rule of tests/figures: which boxes of a drawn figure meet."""
    path = Path(__file__).parents[1] / "figures" / "test_overlap.py"
    found = importlib.util.spec_from_file_location("overlap", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_link_a_pasted_config_and_figures_in_a_narrow_window(tmp_path):
    from playwright.sync_api import sync_playwright

    boxes = overlap()
    with sync_playwright() as p, driver.jupyterlab(tmp_path, parameters={}) as lab:
        browser = p.chromium.launch(executable_path=driver.CHROMIUM, args=driver.FLAGS)
        tab = browser.new_page(viewport={"width": 1000, "height": 1500})
        page = driver.Page(tab, lab, "01_bytes")
        settings = urlencode({"bytes": urlencode({"model": "qwen3-8b", "machine": "rtx-4090", "context": 8192})})
        tab.on("console", lambda m: page.errors.append(m.text[:300]) if m.type == "error" else None)
        tab.goto(f"{lab.url}/doc/tree/notebooks/01_bytes.ipynb?token={lab.token}&{settings}")
        tab.wait_for_function(driver._READY, timeout=90_000)
        assert page.run_all(150) == []

        top = "document.querySelector('.jp-WindowedPanel-outer')"
        tab.evaluate(f"() => {top}.scrollTo(0, 0)")
        chosen = "() => [...document.querySelectorAll('.widget-dropdown select')].slice(0, 2).map(s => s.value)"
        page.until(lambda: tab.evaluate(chosen) == ["qwen3-8b", "rtx-4090"], note="the link's model and machine")
        link = tab.locator("a", has_text="Link to these settings").first.get_attribute("href")
        assert "qwen3-8b" in link and lab.token not in link

        # A config that is none is one line and changes nothing; a real one is counted.
        tab.get_by_text("Paste a config.json").first.click()
        area = tab.locator(".widget-textarea textarea").first
        for text, model in (
            ("{", "qwen3-8b"),
            (json.dumps(catalog.load_config("gpt-oss-120b").fields), "pasted config"),
        ):
            area.fill(text)
            area.blur()
            page.press("Count this config")
            page.until(lambda m=model: tab.evaluate(chosen)[0] == m, note=model)
            alerts = tab.locator("[role=alert]")
            page.until(
                lambda m=model, a=alerts: bool(a.count()) == (m != "pasted config"), note=f"the alert at {model}"
            )

        # Down the page, figure by figure: what is far from the view is not in the page.
        seen, bad = set(), {}
        for _ in range(24):
            for plot in tab.locator(".js-plotly-plot").all():
                title = plot.evaluate("g => (g.layout && g.layout.title.text) || ''")
                if title and title not in seen and plot.evaluate("g => !!g.querySelector('.main-svg')"):
                    seen.add(title)
                    width = plot.evaluate("g => g.getBoundingClientRect().width")
                    if met := boxes.meeting(plot.evaluate(boxes.BOXES), width):
                        bad[title] = met
            if tab.evaluate(
                f"() => {{ const e = {top}; e.scrollBy(0, 700); return e.scrollTop + e.clientHeight + 5 >"
                " e.scrollHeight; }"
            ):
                break
            tab.wait_for_timeout(700)
        assert bad == {} and len(seen) >= 8, seen
        assert page.errors == []
        page.settle()
        page.shut_down()
        browser.close()
