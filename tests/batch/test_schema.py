"""Parameters are checked before a kernel starts: papermill would take a banana for an int."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.batch import run, schema
from labkit.cli import main
from labkit.errors import BadInput

CELL = """repeats: int = 5  # measured passes
output_tokens: int | None = 192  # fixed length
guess: float | None = None  # a number
engine: dict = {"engine": "pocket"}  # which
names: list[str] = ["a"]
quick: bool = False"""


def write(folder, name, *cells):
    nb = new_notebook(cells=list(cells), metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    nbformat.write(nb, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


@pytest.fixture
def notebook(tmp_path):
    return write(tmp_path, "02_x", new_code_cell(CELL, metadata={"tags": ["parameters"]}))


def test_parameters_have_type_default_and_help(notebook):
    found = schema.parameters_of(notebook)
    assert list(found) == ["repeats", "output_tokens", "guess", "engine", "names", "quick"]
    assert found["repeats"].help == "measured passes"
    assert found["output_tokens"].optional and found["guess"].kind == "float"


def test_values_arrive_in_their_types(notebook):
    given = {"repeats": "3", "guess": "1e-3", "output_tokens": None, "names": ["b"], "quick": "true"}
    assert schema.check_values(notebook, given) == {
        "repeats": 3,
        "guess": 0.001,
        "output_tokens": None,
        "names": ["b"],
        "quick": True,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"repeats": "banana"},
        {"repeats": 2.5},
        {"repeats": 0},
        {"repeats": None},
        {"guess": "x"},
        {"engine": 3},
        {"engine": {"engine": "warp"}},
        {"names": "ab"},
        {"quick": 1},
    ],
)
def test_a_wrong_value_names_its_field(notebook, given):
    with pytest.raises(BadInput) as e:
        schema.check_values(notebook, given)
    assert next(iter(given)) in str(e.value)


@pytest.mark.parametrize("cell", ["x = 3", "import os", "x: complex = 3", "x: int = f()"])
def test_a_cell_that_is_no_list_of_parameters_is_refused(tmp_path, cell):
    path = write(tmp_path, "02_x", new_code_cell(cell, metadata={"tags": ["parameters"]}))
    with pytest.raises((BadInput, ValueError)):
        schema.parameters_of(path)


def test_exactly_one_parameters_cell(tmp_path):
    with pytest.raises(BadInput, match="exactly one"):
        schema.parameters_of(write(tmp_path, "02_x", new_code_cell("x: int = 1")))


def test_a_notebooks_own_lines_lie_over_the_common_ones(notebook):
    given = {"repeats": 4, "notebooks": {"02_x": {"repeats": 2}, "03_y": {"other": 1}}}
    assert schema.for_notebook(notebook, given)["repeats"] == 2
    with pytest.raises(BadInput, match="notebooks.02_x.reapeats"):
        schema.for_notebook(notebook, {"notebooks": {"02_x": {"reapeats": 1}}})


def test_misspelt_names_are_found_and_common_ones_are_not(notebook):
    assert schema.unknown([notebook], {"reapeats": 1, "only": [], "repeats": 1}) == ["reapeats"]


def test_nothing_runs_when_one_value_is_wrong(notebook, tmp_path):
    with pytest.raises(BadInput, match="reapeats"):
        run.run([notebook], {"reapeats": 1}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def plain(tmp_path):
    """A notebook that needs no engine."""
    return write(
        tmp_path,
        "02_plain",
        new_code_cell("n: int = 1\nout_dir: str = '.'", metadata={"tags": ["parameters"]}),
        new_code_cell("import os\nassert os.environ['LABKIT_LIVE'] == '0'\nassert n != 3\nn == 4 and os._exit(1)"),
        new_code_cell("print(f'n is {n} in {out_dir}')", metadata={"tags": ["summary"]}),
    )


def test_a_run_leaves_notebook_report_and_summary(plain, tmp_path, capsys):
    args = ["run", "02", "--folder", str(plain.parent), "-p", "n", "7", "-p", "out_dir", str(tmp_path / "out")]
    assert main(args) == 0
    printed = capsys.readouterr().out
    (made,) = (tmp_path / "out").iterdir()
    assert f"n is 7 in {made / 'records'}" in printed
    nb = nbformat.read(made / "02_plain.ipynb", 4)
    assert nb.metadata.labkit.status == "ok" and nb.metadata.papermill.parameters.n == 7
    assert "/" not in nb.metadata.papermill.input_path and "n is 7" in (made / "report.html").read_text()


def test_a_failure_and_a_dead_kernel_are_marked_and_exit_1(plain, tmp_path, capsys):
    for n, status in ((3, "failed"), (4, "dead")):
        out = tmp_path / f"out{n}"
        assert main(["run", str(plain), "-p", "n", str(n), "-p", "out_dir", str(out)]) == 1
        (made,) = out.iterdir()
        nb = nbformat.read(made / "02_plain.ipynb", 4)
        assert nb.metadata.labkit.status == status and (made / "report.html").exists()
        assert status in capsys.readouterr().out or status == "failed"


def test_a_timeout_is_marked(tmp_path):
    path = write(
        tmp_path,
        "02_slow",
        new_code_cell("n: int = 1", metadata={"tags": ["parameters"]}),
        new_code_cell("import time; time.sleep(30)"),
    )
    done = run.run([path], {}, tmp_path / "out", cell_timeout_s=2)
    assert done.outcomes[0].status == "timeout" and not done.ok


def test_unknown_notebook_names_the_ones_there_are(plain):
    with pytest.raises(BadInput, match="02_plain"):
        run.find(["05"], plain.parent)
