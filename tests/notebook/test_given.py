"""Which value a notebook measures with: the same order for papermill by hand as for `labkit run`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.batch import schema
from labkit.errors import BadInput
from labkit.notebook import given

ROOT = Path(__file__).parents[2]
CELL = "repeats: int = 5\nengine: dict = {}\nout_dir: str = 'outputs'\ncommon: dict = {}\nnotebooks: dict = {}"
DEFAULTS = {"repeats": 5, "engine": {}, "out_dir": "outputs"}


def settle(common=None, notebooks=None, injected="", later="", **variables):
    cells = ["", CELL, *([f"# Parameters\n{injected}"] if injected else []), later, "%matplotlib inline"]
    return given.settle(
        "05_mtp", {**DEFAULTS, "common": common or {}, "notebooks": notebooks or {}, **variables}, cells
    )


def test_the_order_of_precedence():
    assert settle()["repeats"] == 5
    assert settle({"repeats": 4})["repeats"] == 4
    assert settle({"repeats": 4}, {"05_mtp": {"repeats": 3}, "02_baseline": {"repeats": 9}})["repeats"] == 3
    both = {"common": {"repeats": 4}, "notebooks": {"05_mtp": {"repeats": 3}}}
    assert settle(**both, injected="repeats = 2", repeats=2)["repeats"] == 2
    assert settle(**both, injected="repeats = 5")["repeats"] == 5  # said, even if it says what the cell says
    assert settle(**both, later="repeats = 2", repeats=2)["repeats"] == 2


def test_what_the_lab_knows_and_the_notebook_does_not_name_reaches_it():
    assert settle({"timeout_s": 9})["timeout_s"] == 9
    assert "timeout_s" not in given.settle("09_report", {"out_dir": "x", "common": {"timeout_s": 9}}, [])


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"common": {"reapeats": 4}}, "^common.reapeats: got 4"),
        ({"notebooks": {"05_mtp": {"reapeats": 4}}}, "^notebooks.05_mtp.reapeats: got 4"),
        (
            {"notebooks": {"05_mpt": {"repeats": 4}}},
            "^notebooks.05_mpt: got .*; accepted: a section for one of 00_start",
        ),
        ({"notebooks": ["05_mtp"]}, "^notebooks: got .*; accepted: a mapping"),
        ({"injected": "reapeats = 99"}, "^reapeats: got '?99'?; accepted: one of repeats"),
    ],
)
def test_a_value_that_would_reach_nobody_is_refused(variables, says):
    with pytest.raises(BadInput, match=says):
        settle(**variables)


def test_called_from_python_the_arguments_win():
    assert given.settle("05_mtp", {"repeats": 2, "common": {"repeats": 4}}, [])["repeats"] == 2


def test_records_land_in_the_labs_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_ROOT", raising=False)
    for name in ("notebooks", "params"):
        (tmp_path / "lab" / name).mkdir(parents=True)
    (tmp_path / "else").mkdir()
    for here, path in (("lab", "outputs"), ("lab/notebooks", "../outputs"), ("else", str(ROOT / "outputs"))):
        monkeypatch.chdir(tmp_path / here)
        assert settle()["out_dir"] == path
    assert settle(injected="out_dir = '/tmp/x'", out_dir="/tmp/x")["out_dir"] == "/tmp/x"
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path / "lab"))
    assert settle()["out_dir"] == str(tmp_path / "lab" / "outputs")


def test_names_are_those_of_the_notebooks():
    assert [p.stem for p in sorted((ROOT / "notebooks").glob("*.ipynb"))] == given.NAMES


@pytest.mark.parametrize(
    "start", ["notebooks", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lab", "elsewhere"))]
)
def test_papermill_by_hand_is_as_good_as_labkit_run(tmp_path, start):
    """No warning, the file's own lines for this notebook, records in the lab's outputs/, nothing left elsewhere."""
    lab, elsewhere = tmp_path / "lab", tmp_path / "elsewhere"
    for folder in (lab / "notebooks", lab / "params", elsewhere):
        folder.mkdir(parents=True)
    notebook = lab / "notebooks" / "02_baseline.ipynb"
    notebook.write_bytes((ROOT / "notebooks/02_baseline.ipynb").read_bytes())
    params = lab / "params" / "quick.yaml"
    params.write_text(
        "common: {engine: {engine: pocket, threads: 1}, warmup: 1, count: 9, repeats: 2, timeout_s: 250}\n"
        "notebooks:\n  02_baseline: {count: 1, guess: 3.0}\n  05_mtp: {workload: repetitive}\n"
    )
    here = {"lab": lab, "notebooks": lab / "notebooks", "elsewhere": elsewhere}[start]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JPY_", "LABKIT_"))}
    env["LABKIT_RUNTIME_DIR"] = str(tmp_path / "lock")
    if start == "elsewhere":
        env["LABKIT_ROOT"] = str(lab)  # otherwise the checkout that labkit comes from
    argv = [sys.executable, "-m", "papermill", os.path.relpath(notebook, here), str(tmp_path / "out.ipynb")]
    argv += ["-f", os.path.relpath(params, here), "-p", "output_tokens", "48", "--no-progress-bar"]
    done = subprocess.run(argv, cwd=here, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "unknown parameter" not in done.stderr and "Warning" not in done.stderr
    (record,) = (lab / "outputs").glob("*-02_baseline/run.json")
    meta = json.loads(record.read_text())
    asked = {n: meta["parameters"][n] for n in ("count", "repeats", "output_tokens", "guess", "timeout_s")}
    assert asked == {"count": 1, "repeats": 2, "output_tokens": 48, "guess": 3.0, "timeout_s": 250}
    left = {p.name for folder in (lab, lab / "notebooks", elsewhere) for p in folder.iterdir()}
    assert left == {"notebooks", "params", "outputs", "02_baseline.ipynb"}
    assert nbformat.read(tmp_path / "out.ipynb", as_version=4).metadata.papermill.exception is None


def test_what_labkit_run_passes_on():
    notebook = ROOT / "notebooks/02_baseline.ipynb"
    found = schema.for_notebook(
        notebook, {"common": {"timeout_s": 9, "repeats": 2}, "notebooks": {"02_baseline": {"count": 1}}}
    )
    assert found == {"repeats": 2, "count": 1, "common": {"timeout_s": 9}}
