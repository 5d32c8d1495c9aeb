"""The sweep's notebook in real JupyterLab, while a real sweep runs in another process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.measure.sweep import drive
from labkit.records.sweep import FINISHED, RUNNING, read_sweep

sys.path.insert(0, str(Path(__file__).parent))
import lab as driver  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
DOCUMENT = {
    "common": {"workload": "repetitive", "count": 1, "repeats": 3, "warmup": 0, "output_tokens": 16},
    "sweep": {"grid": {"fp8_lm_head": [False, True], "output_tokens": [16, 20]}, "block": 1},
}
POINTS = "() => document.querySelectorAll('.js-plotly-plot')[0]?.data?.flatMap(t => t.customdata || []).length || 0"


@pytest.fixture
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=driver.CHROMIUM, args=driver.FLAGS)
        yield chromium
        chromium.close()


@pytest.mark.slow
def test_figures_follow_the_sweep_and_a_click_shows_a_configuration(browser, tmp_path):
    folder = tmp_path / "root" / "outputs" / "s"
    with driver.jupyterlab(tmp_path, parameters={}) as running:
        folder.mkdir(parents=True)
        drive.create(DOCUMENT, folder)
        argv = [sys.executable, "-m", "labkit.cli", "sweep", "--resume", str(folder)]
        env = os.environ | {"LABKIT_RUNTIME_DIR": str(tmp_path / "sweep-runtime")}
        sweep = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        page = driver.Page(browser.new_page(viewport={"width": 1300, "height": 1600}), running, "10_sweep")
        try:
            page.open()
            assert page.run_all(120) == []
            page.until(lambda: page.tab.evaluate(POINTS) > 0, timeout_s=240, note="a first point")
            if sweep.poll() is None:  # a point was there before the end: the page follows from now on
                before = page.tab.evaluate(POINTS)
                sweep.send_signal(signal.SIGSTOP)
                assert read_sweep(folder).state == RUNNING
                sweep.send_signal(signal.SIGCONT)
                page.until(lambda: page.tab.evaluate(POINTS) > before, timeout_s=240, note="a further point")
            assert sweep.wait(240) == 0
            page.until(lambda: any(f"is {FINISHED}" in n for n in page.notes()), timeout_s=60, note="the end")
            assert page.tab.evaluate(POINTS) == 4
            point = page.tab.locator(".js-plotly-plot .scatterlayer .point").first
            point.scroll_into_view_if_needed()
            point.click(force=True)
            shown = page.until(
                lambda: page.tab.evaluate(
                    "() => [...document.querySelectorAll('.labkit-live pre')].map(e => e.innerText)"
                ),
                note="the configuration's command line",
            )
            assert any("labkit.pocket" in text for text in shown) and any("arms:" in text for text in shown)
            assert page.errors == []
        finally:
            sweep.kill()
            sweep.wait(60)
            page.settle()
            page.shut_down()
    assert json.loads((folder / "progress.json").read_text())["done"] == 4
