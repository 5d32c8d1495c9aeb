"""The report: offline, escaped, without secrets, complete. Its strictest reader is a browser that may ask nobody."""

import re
import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.cli import main
from labkit.errors import BadInput
from labkit.figures import theme
from labkit.figures.show import bundle
from labkit.report import html as report
from labkit.report import page

EVIL = "<script>alert(1)</script><img src=https://example.com/x onerror=alert(2)>"


def figure(title="Time & <b>", alt='An "alt" <text>'):
    f = theme.new(title, alt=alt)
    f.add_scatter(x=[1, 2], y=[2, 1], name="</script><script>alert(3)</script>")
    return bundle(f, picture=False)


def notebook(**metadata):
    data, meta = figure()
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "root"}, "text/plain": "VBox()"}
    nb = new_notebook(
        cells=[
            new_markdown_cell(f"# What <it> costs\n\nText with `code`, a [link](javascript:alert(1)) and {EVIL}"),
            new_code_cell('n: int = 3  # how many\nadmin_api_key: str = "hunter2"', metadata={"tags": ["parameters"]}),
            new_code_cell("show()", outputs=[new_output("display_data", data=data, metadata=meta)] * 2),
            new_code_cell("x", outputs=[new_output("stream", name="stdout", text=f"\x1b[31m{EVIL}\x1b[0m")]),
            new_code_cell(
                "y", outputs=[new_output("display_data", data={"text/html": f"<style>b</style><b>t</b>{EVIL}"})]
            ),
            new_code_cell("z", outputs=[new_output("error", ename="E", evalue=EVIL, traceback=[EVIL])]),
            new_code_cell("w", outputs=[new_output("display_data", data=widget)]),
        ],
        metadata=metadata,
    )
    nb.metadata["widgets"] = {
        report.STATE_MIME: {
            "state": {
                "root": {"state": {"children": ["IPY_MODEL_a"]}},
                "a": {"state": {"description": f"steps{EVIL}", "value": 4}},
                "elsewhere": {"state": {"description": "not shown", "value": 5}},
            }
        }
    }
    return nb


@pytest.fixture(scope="module")
def text():
    return report.render([("02_x", notebook(papermill={"parameters": {"n": 7}, "start_time": "2026-01-02T03:04:05"}))])


def test_plotly_is_inlined_once_and_nothing_asks_outside(text):
    assert text.count("plotly.js v") == 1
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"']?(https?:)?//", text)
    assert "default-src 'none'" in text


def test_scripts_run_only_with_the_pages_nonce(text):
    nonce = re.search(r"script-src 'nonce-([^']+)'", text)[1]
    executable = re.findall(r"<script(?![^>]*application/json)[^>]*>", text)
    assert executable and all(f'nonce="{nonce}"' in tag for tag in executable)
    body = text.split("<main>")[1].split("</main>")[0]
    assert "<script" not in body and "onerror=" not in re.sub(r"&lt;.*?&gt;", "", body) and "javascript:" not in body


def test_parameters_are_a_table_with_what_the_run_was_given_and_no_secret(text):
    assert "<td>n</td><td>7</td>" in text and "Run 2026-01-02 03:04:05 UTC" in text
    assert "hunter2" not in text and "<td>admin_api_key</td><td>(not shown)</td>" in text


def test_widget_values_of_that_view_are_a_table(text):
    assert "<td>4</td>" in text and "steps&lt;script&gt;" in text
    assert "<td>5</td>" not in text


def test_words_of_outputs_are_kept_and_escaped(text):
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "\x1b" not in text and "<b>t</b>" in text
    assert 'role="alert"' in text


def test_pieces_of_one_stream_become_one_block():
    pieces = [new_output("stream", name="stdout", text=t) for t in ("a\n", "b\n")]
    nb = new_notebook(cells=[new_code_cell("x", outputs=[*pieces, new_output("stream", name="stderr", text="c")])])
    shown = report.render([("x", nb)])
    assert '<pre class="stdout">a\nb\n</pre>' in shown and '<pre class="stderr">c</pre>' in shown


def test_figures_have_their_alt_text(text):
    assert text.count('aria-label="An &quot;alt&quot; &lt;text&gt;"') == 2 and text.count('id="figure-1"') == 1


def test_style_and_script_elements_lose_their_text_too():
    assert page.clean("a<style>p{}</style>b<script>x</script>c<SCRIPT>unclosed") == "abc"


def test_pictures_only_as_data():
    assert "src" not in page.clean('<img src="https://example.com/a.png">')
    assert "src" in page.clean('<img src="data:image/png;base64,AAAA" alt="x">')
    assert "svg" not in page.clean('<img src="data:image/svg+xml;base64,AAAA">')


def test_several_notebooks_share_one_page_with_contents():
    text = report.render([("00_a", notebook()), ("02_b", notebook())])
    assert text.count("plotly.js v") == 1 and text.count("<section") == 3  # the appendix too
    assert 'href="#nb-00_a"' in text and 'id="nb-02_b"' in text and text.count('id="figure-3"') == 1


def test_a_damaged_picture_cannot_break_out_of_its_attribute():
    broken = new_output("display_data", data={"image/png": '"><script>'})
    nb = new_notebook(cells=[new_code_cell("p", outputs=[broken])])
    assert '"><script>' not in report.render([("x", nb)]).split("<main>")[1].split("</main>")[0]


def test_command_writes_beside_the_run(tmp_path, capsys):
    nbformat.write(notebook(), tmp_path / "02_x.ipynb")
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").stat().st_size > 4_000_000 and "report.html" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "02_x.ipynb"), "--json"]) == 0 and (tmp_path / "02_x.html").exists()


@pytest.mark.parametrize("what", ["nothing", "empty", "damaged"])
def test_bad_input_is_one_line_and_exit_2(tmp_path, capsys, what):
    target = tmp_path / "run"
    if what != "nothing":
        target.mkdir()
    if what == "damaged":
        (target / "02_x.ipynb").write_text("{")
    assert main(["report", str(target)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_render_needs_a_notebook(tmp_path):
    with pytest.raises(BadInput):
        report.notebooks_of(tmp_path)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_without_asking_anyone(tmp_path, scheme):
    from playwright.sync_api import sync_playwright

    path = tmp_path / "r.html"
    path.write_text(report.render([("02_x", notebook())]), encoding="utf-8")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(color_scheme=scheme)
        asked, said = [], []
        tab.on("request", lambda r: asked.append(r.url))
        tab.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        tab.on("dialog", lambda d: said.append(f"dialog {d.message}") or d.dismiss())
        tab.goto(path.as_uri())
        tab.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 2")
        assert tab.evaluate("document.documentElement.dataset.theme") == scheme
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = tab.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light") and ink != ground
        tab.get_by_role("button", name="light / dark").click()
        assert tab.evaluate("document.documentElement.dataset.theme") != scheme
        browser.close()
    assert [u for u in asked if not u.startswith(("file:", "data:", "blob:"))] == []
    assert [s for s in said if "Content Security Policy" not in s] == []


def test_markdown_tables_and_lists_survive():
    shown = page.markdown("| a | b |\n|---|---|\n| 1 | 2 |\n\n- x\n- y")
    assert "<table>" in shown and shown.count("<li>") == 2
