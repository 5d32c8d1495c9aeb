"""The notebooks as they lie in git: stripped, one parameters cell, prose enough, calls instead of logic."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
import yaml

from labkit.batch import schema

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
CELLS = {"ask", "predict", "run", "findings", "summary"}


def test_the_notebooks_are_there():
    expected = (
        "00_start_here 01_bytes 02_baseline 03_humming 04_fp8_head 05_mtp 06_silent_fallback 07_real_load"
        " 08_long_context 09_report 10_sweep"
    ).split()
    assert [n.stem for n in NOTEBOOKS] == expected


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem)
def notebook(request):
    return request.param, nbformat.read(request.param, as_version=4)


def code(nb):
    return [c for c in nb.cells if c.cell_type == "code"]


def test_no_output_no_count_no_widget_state(notebook):
    _, nb = notebook
    assert not any(c.outputs or c.execution_count for c in code(nb))
    assert set(nb.metadata) <= {"kernelspec", "language_info"} and nb.metadata.kernelspec.name == "python3"
    assert not any(set(c.metadata) - {"tags"} for c in nb.cells)


def test_parameters_cell_is_typed_and_every_line_says_what_it_is(notebook):
    path, _ = notebook
    assert all(p.help for p in schema.parameters_of(path).values())


def test_the_shipped_parameters_fit(notebook):
    path, _ = notebook
    given = yaml.safe_load((ROOT / "params/pocket.yaml").read_text())
    assert schema.unknown(NOTEBOOKS, given) == []
    schema.check_values(path, schema.for_notebook(path, given))


def test_it_asks_one_question_in_its_title(notebook):
    _, nb = notebook
    titles = re.findall(r"^# (.+)$", "\n".join(c.source for c in nb.cells if c.cell_type == "markdown"), re.M)
    assert len(titles) == 1 and titles[0].endswith("?")


def test_prose_stands_in_proportion_to_code(notebook):
    """About five words a line of code, the parameters cell aside (it is a form, not a program)."""
    _, nb = notebook
    words = sum(len(c.source.split()) for c in nb.cells if c.cell_type == "markdown")
    lines = sum(len([x for x in c.source.splitlines() if x.strip()]) for c in code(nb) if "tags" not in c.metadata)
    assert words >= 5 * lines


def test_no_logic_only_calls_of_the_labs_names(notebook):
    _, nb = notebook
    for cell in code(nb):
        if "parameters" in cell.metadata.get("tags", []):
            continue
        for node in ast.walk(ast.parse(cell.source)):
            logic = (ast.If, ast.For, ast.While, ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Try, ast.comprehension)
            assert not isinstance(node, logic), ast.unparse(node)[:60]
            if isinstance(node, ast.ImportFrom | ast.Import):
                assert (getattr(node, "module", None) or node.names[0].name).split(".")[0] == "labkit"


def test_links_lead_to_notebooks_that_exist(notebook):
    path, nb = notebook
    for cell in nb.cells:
        for target in re.findall(r"\]\(([^)#]+\.ipynb)\)", cell.source):
            assert (path.parent / target).exists(), target


def test_there_is_a_guess_before_a_prediction_before_a_run(notebook):
    path, nb = notebook
    calls = [c.source.strip() for c in code(nb)]
    if path.stem in ("01_bytes", "09_report", "10_sweep"):
        pytest.skip("its own order")
    order = [calls.index(f"lab.{n}()") for n in ("ask", "predict", "run", "findings", "summary")]
    assert order == sorted(order)
