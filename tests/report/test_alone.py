"""A report is one file: it says what was measured, under which conditions, and stays whole and harmless when mailed."""

import json
import re
import shutil

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.cli import main
from labkit.engines.config import EngineConfig
from labkit.figures import theme
from labkit.figures.show import bundle
from labkit.records import RunWriter, read_run
from labkit.report import html as report
from labkit.report import row, tables, verdict

EVIL = '</script><script>alert(1)</script><img src="https://example.com/x" onerror=alert(2)>'
LOAD = {"workload": "code", "prompt_tokens": None, "output_tokens": 64, "seed": 1, "count": 2, "repeats": 4}


def record(
    path, arms=(("plain", 2e-3), ("fast", 1e-3)), *, load=LOAD, info=None, requested=None, launch=None, label=""
):
    """A finished record of these (arm, TPOT in s)."""
    with RunWriter(path, {"engine": {"engine": "pocket"}} | load, label=label) as writer:
        for name, tpot in arms:
            engine = EngineConfig.model_validate({"engine": "pocket"} | (requested or {})).as_dict()
            told = {"engine": "pocket", "model_path": "m", "version": "1"} | (info or {})
            started = launch or {"command": f"python -m labkit.pocket --arm {name}", "start_seconds": 1.0}
            known = {k: load[k] for k in LOAD}
            writer.add_arm(name, requested=engine, server_info=told, launch=started, title=name, load=known)
            for repeat in range(4):
                for index in range(2):
                    writer.append(request(name, repeat, index, tpot * (1 + 0.002 * repeat)))
    return path


def request(arm, repeat, index, tpot):
    return {
        "arm": arm,
        "repeat": repeat,
        "index": index,
        "status": "ok",
        "prompt_sha256": f"p{index}",
        "asked_sha256": f"p{index}",
        "tpot_s": tpot,
        "ttft_s": 0.01,
        "latency_s": 0.01 + 63 * tpot,
        "output_tokens": 64,
        "decode_tokens": 63,
        "prompt_tokens": 9,
        "accept_length": None,
        "verify_ct": None,
        "error": None,
        "temperature": 0.0,
        "started_unix": 1e9 + 10 * repeat + index,
    }


def notebook(*cells):
    return new_notebook(cells=[new_markdown_cell("# What is it?"), *cells])


def body(text):
    return text.split("<main>")[1].split("</main>")[0]


# --- links ---


@pytest.mark.parametrize(
    "to, kept",
    [
        ("02_b.ipynb", "#nb-02_b"),
        ("./02_b.ipynb#part", "#nb-02_b"),
        ("../notebooks/02_b.ipynb", "#nb-02_b"),
        ("03_elsewhere.ipynb", None),
        ("outputs/run.json", None),
        ("/etc/passwd", None),
        ("//example.com/x", None),
        ("file:///tmp/x", None),
        ("data:text/html,x", None),
        ("#here", "#here"),
        ("https://example.com/page", "https://example.com/page"),
        ("mailto:a@example.com", "mailto:a@example.com"),
    ],
)
def test_no_link_leads_from_the_file_to_a_folder(to, kept):
    texts = [new_markdown_cell(f"Next: [words]({to}).")]
    texts.append(
        new_code_cell("x", outputs=[new_output("display_data", data={"text/html": f'<a href="{to}">words</a>'})])
    )
    text = report.render([("00_a", notebook(*texts)), ("02_b", notebook())])
    shown = body(text).split('id="nb-00_a"')[1].split("</section>")[0]
    assert re.findall(r'href="([^"]*)"', shown) == ([kept] * 2 if kept else []) and shown.count("words") == 2


def test_every_link_of_the_shipped_notebooks_is_whole_in_a_report():
    from pathlib import Path

    paths = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
    for chosen in (paths, paths[:1]):
        text = report.render([(p.stem, nbformat.read(p, 4)) for p in chosen])
        ids = set(re.findall(r'id="([^"]+)"', text))
        for to in re.findall(r'<a [^>]*href="([^"]*)"', body(text)):
            assert to.startswith("https://") or to.removeprefix("#") in ids, to


def test_what_only_helps_at_the_notebook_is_left_out():
    cell = new_markdown_cell('It starts. <span class="labkit-live">Press the\nbutton.</span> It ends.')
    text = report.render([("a", notebook(cell))])
    assert "Press the" not in text and "It starts." in text and "It ends." in text


# --- hostile text ---

HOSTILE = st.text(max_size=40) | st.sampled_from(
    [
        EVIL,
        "<b onclick=x>",
        '" autofocus onfocus=alert(1) x="',
        "<!--",
        "]]>",
        "&lt;script&gt;",
        "{{x}}",
        "\u202ex",
        "`a`|b",
    ]
)
SCRIPT = re.compile(r"<script|<iframe|<object|<embed|<form|<style|<svg|<link|<meta|\son\w+\s*=\s*[\"']?\w", re.I)


def live_markup(text):
    """Tags of the body, without what stands in attribute values and text."""
    return [re.sub(r'"[^"]*"', '""', tag) for tag in re.findall(r"<[a-zA-Z/!][^>]*>", body(text))]


@settings(max_examples=40)
@given(name=HOSTILE, value=HOSTILE, output=HOSTILE, markup=HOSTILE)
def test_hostile_text_stays_text(name, value, output, markup):
    nb = notebook(
        new_code_cell("x", outputs=[new_output("stream", name="stdout", text=output)]),
        new_code_cell(output, outputs=[new_output("display_data", data={"text/html": markup, "text/plain": "t"})]),
        new_code_cell("y", outputs=[new_output("display_data", data={"text/markdown": markup})]),
        new_code_cell("z", outputs=[new_output("error", ename=output, evalue=value, traceback=[output])]),
    )
    nb.metadata["papermill"] = {"parameters": {name: value, "nested": {name: [value, {"key": value}]}}}
    text = report.render([("a", nb)])
    assert not [tag for tag in live_markup(text) if SCRIPT.search(tag)]


@settings(max_examples=60)
@given(words=st.lists(HOSTILE, min_size=1, max_size=4))
def test_a_table_escapes_whatever_it_is_given(words):
    shown = tables.table(["<i>", *words], [tuple(words), tuple(words)])
    assert set(re.findall(r"<[^>]*>", shown)) <= {
        *("<table>", "</table>", "<thead>", "</thead>", "<tbody>", "</tbody>", "<tr>", "</tr>"),
        *("<th>", "</th>", "<td>", "</td>"),
    }


@settings(max_examples=60)
@given(text=st.text(max_size=60))
def test_a_row_is_one_line(text):
    assert len(row.one_line(f"a {text} b").splitlines()) == 1


# --- secrets ---

SECRET = "hunter2-0123456789"
PLACES = [
    {"api_key": SECRET},
    {"nested": {"hf_token": SECRET}},
    {"list": [{"password": SECRET}]},
    {"extra_args": ["--api-key", SECRET]},
    {"extra": f"--api-key {SECRET}"},
    {"header": f"Authorization: Bearer {SECRET}"},
    {"url": f"http://user:{SECRET}@spark:30000"},
    {"assigned": f"api_key='{SECRET}'"},
    {"prefix": f"docker run -e HF_TOKEN={SECRET} image"},
    {"words": ["docker", "run", "-e", f"HF_TOKEN={SECRET}"]},
]


@pytest.mark.parametrize("given", PLACES, ids=lambda p: next(iter(p)))
def test_no_secret_reaches_a_record_a_report_or_a_row(tmp_path, given):
    """Whatever a careless parameters cell, command line or server says."""
    said = next(iter(given.values()))
    command = said if isinstance(said, str) and said != SECRET else f"--api-key {SECRET}"
    path = record(
        tmp_path / "run", load=LOAD | given, info=given, launch={"command": f"serve {command}", "argv": command}
    )
    written = "".join(p.read_text() for p in path.iterdir())
    assert SECRET not in written
    nb = notebook(
        new_code_cell(f"x = {given!r}", outputs=[new_output("stream", name="stdout", text=json.dumps(given))]),
        new_code_cell("y", outputs=[new_output("display_data", data={"text/plain": str(given)})]),
    )
    nb.metadata["papermill"] = {"parameters": given}
    nbformat.write(nb, path / "00_a.ipynb")
    assert SECRET not in report.write(path).read_text()
    assert SECRET not in "".join(row.rows(read_run(path)))
    assert main(["report", str(path), str(path), "-o", str(tmp_path / "two.html")]) == 0
    assert SECRET not in (tmp_path / "two.html").read_text()


# --- card, row, two runs ---


def test_the_card_leads_with_the_ladder_what_is_in_effect_and_the_doubts(tmp_path):
    path = record(tmp_path / "run", requested={"moe_runner_backend": "jit"}, info={"moe_runner_backend": "generic"})
    nbformat.write(notebook(), path / "00_a.ipynb")
    text = body(report.write(path).read_text())
    shown = text[: text.index("nb-00_a")]
    assert text.index('class="verdict"') < text.index("<nav") and "2.00 [0.00" not in shown
    assert "plain" in shown and "fast" in shown and "● " in shown.replace("●<", "● <")
    assert "NO: " in shown and "generic" in shown and "Before you trust this" in shown


def test_behind_the_numbers_stand_command_lines_parameters_and_environment(tmp_path):
    path = record(tmp_path / "run")
    nbformat.write(notebook(), path / "00_a.ipynb")
    text = report.write(path).read_text().split('id="behind"')[1]
    environment = read_run(path).meta["environment"]
    for said in ("python -m labkit.pocket --arm fast", "workload", environment["cpu"], environment["python"]):
        assert said.replace("&", "&amp;") in text


def test_a_row_carries_its_conditions(tmp_path, capsys):
    path = record(tmp_path / "run")
    assert main(["report", "--row", "--arm", "fast", str(path)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    environment = read_run(path).meta["environment"]
    said = ["fast: 1.00", "ms per token", "pocket 1", "model m", environment["cpu"], "code", "64 tokens out", "seed 1"]
    said += ["8 requests in 4 repeats", "--arm fast", read_run(path).meta["id"], "measured"]
    assert [s for s in said if s not in line] == []
    assert main(["report", "--row", "--json", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


@pytest.mark.parametrize("flags", [["--row", "--arm", "none"], ["--arm", "fast"], ["--row", "-o", "x.html"]])
def test_bad_flags_are_one_line(tmp_path, capsys, flags):
    path = record(tmp_path / "run")
    assert main(["report", *flags, str(path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_two_runs_side_by_side(tmp_path, capsys):
    a, b = record(tmp_path / "a"), record(tmp_path / "b", (("plain", 2e-3), ("fast", 1.2e-3)))
    assert main(["report", str(a), str(b), "-o", str(tmp_path / "two.html")]) == 0
    text = (tmp_path / "two.html").read_text()
    cells = re.findall(r"<td>([^<]*)</td>", text)
    assert "slower" in cells and "no clear difference" in cells and any(c.startswith("x1.2") for c in cells)
    other = record(tmp_path / "c", load=LOAD | {"seed": 2})
    assert main(["report", str(a), str(other), "-o", str(tmp_path / "two.html")]) == 0
    assert "not comparable" in (tmp_path / "two.html").read_text()
    assert main(["report", str(a), str(tmp_path)]) in (0, 2) and main(["report", str(a), str(tmp_path / "none")]) == 2


def test_damaged_records_do_not_keep_a_report_from_being_written(tmp_path):
    (tmp_path / "records" / "x").mkdir(parents=True)
    (tmp_path / "records" / "x" / "run.json").write_text('{"schema": 1}')
    nbformat.write(notebook(), tmp_path / "00_a.ipynb")
    assert verdict.records_of(tmp_path) == [] and "verdict" not in body(report.write(tmp_path).read_text())


# --- in a browser ---


@pytest.mark.browser
def test_on_a_phone_on_paper_and_under_attack(tmp_path):
    """No request leaves, the console stays silent, nothing is wider than a phone, paper shows figures whole."""
    from playwright.sync_api import sync_playwright

    hostile = LOAD | {"workload": EVIL}
    path = record(tmp_path / "run", ((f"arm {EVIL}", 2e-3), ("b", 1e-3)), load=hostile, label=EVIL)
    figure = theme.new("A long title of a figure that no phone holds in one line of text", x="x " * 60, alt=EVIL)
    figure.add_scatter(x=[1, 2], y=[1, 2], name=f"a long name {EVIL} " * 2)
    data, metadata = bundle(figure, picture=False)
    nb = notebook(
        new_markdown_cell(f"{EVIL} [a](https://example.com)"),
        new_code_cell("f()", outputs=[new_output("display_data", data=data, metadata=metadata)]),
        new_code_cell("s()", outputs=[new_output("stream", name="stdout", text=EVIL + "x" * 400)]),
    )
    nb.metadata["papermill"] = {"parameters": {"prompt": EVIL}}
    nbformat.write(nb, path / "00_a.ipynb")
    target = report.write(path)
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 390, "height": 800})
        asked, said = [], []
        tab.on("request", lambda r: asked.append(r.url))
        tab.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda e: said.append(str(e)))
        tab.on("dialog", lambda d: said.append(f"dialog {d.message}") or d.dismiss())
        tab.goto(target.as_uri())
        tab.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 1")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        # Whatever a script on the page tries, the policy of the page forbids.
        tried = "fetch('https://example.com/x').then(() => 'sent', () => 'refused')"
        assert tab.evaluate(tried) == "refused"
        said = [s for s in said if "Content Security Policy" not in s and "Fetch API" not in s]
        asked = [u for u in asked if not u.startswith(("file:", "data:", "blob:")) and "example.com/x" not in u]
        assert asked == [] and said == []
        tab.set_viewport_size({"width": 700, "height": 900})
        tab.emulate_media(media="print")
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        tab.wait_for_function("document.querySelector('.js-plotly-plot .main-svg').clientWidth === 640")
        hidden = "[...document.querySelectorAll('#theme, .modebar-container')].every(e => !e.offsetWidth)"
        assert tab.evaluate(hidden) and tab.evaluate("[...document.querySelectorAll('details.parameters')][0].open")
        assert len(tab.pdf(format="A4")) > 10_000
        browser.close()


def test_no_button_of_a_panel_is_named_in_a_report_of_the_shipped_notebooks():
    from pathlib import Path

    paths = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
    for path in paths:
        prose = re.findall(
            r'<div class="prose">(.*?)</div>', report.render([(path.stem, nbformat.read(path, 4))]), re.S
        )
        for word in ("Run button", "press Run", "press Sweep", "press Stop", "Move a slider", "move a slider"):
            assert word not in " ".join(" ".join(prose).split()), (path.stem, word)
