"""The walk on the real engine from the command line to the mailed picture: one record, read by five notebooks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.batch import run as batch
from labkit.batch import walk as walks
from labkit.cli import main
from labkit.cli.walk import NOTEBOOKS
from labkit.measure.pool import together
from labkit.notebook.experiments.fallback import COMPLAINTS
from labkit.params import Params, common, read_yaml
from labkit.records import read_run

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)  # one fixture has it all
LADDER = ["baseline", "kernels", "fp8-head", "mtp", "broken-head"]
QUICK = """
common: {engine: {engine: pocket, threads: 1}, workload: repetitive, count: 1, repeats: 3, warmup: 1, output_tokens: 64,
  out_dir: OUT}
notebooks: {05_mtp: {longest: 1}}
"""


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """(what --json said, what went to stderr) of one short walk."""
    folder = tmp_path_factory.mktemp("walk")
    params = folder / "quick.yaml"
    params.write_text(QUICK.replace("OUT", str(folder / "out")))
    env = {k: v for k, v in os.environ.items() if not k.startswith("JPY_")} | {"LABKIT_RUNTIME_DIR": str(folder / "l")}
    env["LABKIT_STATIC"] = "0"  # no picture beside each figure: nobody looks at them here
    argv = [sys.executable, "-m", "labkit.cli", "walk", "-f", str(params), "--json"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(done.stdout), done.stderr


def test_one_record_holds_every_arm_in_turns(walked):
    run = read_run(walked[0]["record"])
    assert run.meta["status"] == "finished" and run.arms == [*LADDER, "mtp 1/1/2"]
    rows = [r for r in run.rows if r["repeat"] >= 0]
    assert len(rows) == 6 * 3 and len({r["session"] for r in rows}) == 1
    first_pass = [r["arm"] for r in sorted(rows, key=lambda r: r["started_unix"])][:6]
    assert sorted(first_pass) == sorted(run.arms)  # each once before any comes again


def test_what_was_predicted_was_said_before_the_arm_was_asked_anything(walked):
    said = {p["arm"]: p for p in read_run(walked[0]["record"]).meta["predictions"]}
    (pilot,) = Path(walked[0]["record"]).parent.glob("*-pilot")
    everything = [*read_run(pilot).rows, *read_run(walked[0]["record"]).rows]
    assert list(said) == [*LADDER, "mtp 1/1/2"]
    for name, found in said.items():
        assert found["made_unix"] < min(r["started_unix"] for r in everything if r["arm"] == name)
    assert not said["baseline"]["bound"]
    # Which of the two is larger hangs on the machine: on a busy one the plain step's probes may be the slower ones.
    assert said["mtp"]["c"]["value"] > 1 and said["mtp"]["c_bytes"]["value"] > 1
    errors = read_run(walked[0]["record"]).meta["prediction_errors"]
    assert set(errors) == set(said) and all(isinstance(e, float) for e in errors.values())
    shown = {r["arm"]: r["prediction_error"] for r in walked[0]["arms"]}
    assert shown == {n: errors[n] for n in LADDER} and said["mtp"]["worst"]["value"] > said["mtp"]["best"]["value"]


def test_the_table_is_the_records(walked):
    arms = {r["arm"]: r for r in walked[0]["arms"]}
    summary = read_run(walked[0]["record"]).meta["summary"]
    assert list(arms) == LADDER
    for name, row in arms.items():
        assert row["tpot_s"] == pytest.approx(summary[name]["tpot_s"])
    assert arms["broken-head"]["accept_length"]["median"] < 1.2 < arms["mtp"]["accept_length"]["median"]
    assert arms["broken-head"]["stop"] and summary[COMPLAINTS] == []


def test_the_notebooks_read_the_record_and_measure_nothing(walked):
    directory = Path(walked[0]["directory"])
    assert [n["status"] for n in walked[0]["notebooks"]] == ["ok"] * 5
    assert len(list((directory / "records").iterdir())) == 2  # pilot and walk
    for name in ("02_baseline", "06_silent_fallback"):
        nb = nbformat.read(directory / f"{name}.ipynb", as_version=4)
        text = json.dumps(nb)
        assert "read from" in text and "said before it was measured" in text and "not in turns" not in text
    summary = next(c for c in nb.cells if "summary" in c.metadata.get("tags", []))
    assert "TPOT, broken-head" in json.dumps(summary)


def test_the_report_leads_with_the_ladder_and_the_picture_travels(walked):
    report = Path(walked[0]["report"]).read_text(encoding="utf-8")
    first = nbformat.read(Path(walked[0]["directory"]) / "00_walk.ipynb", as_version=4)
    later = nbformat.read(Path(walked[0]["directory"]) / "02_baseline.ipynb", as_version=4)
    places = [report.index(nb.cells[0].source.splitlines()[0].lstrip("# ")[:40]) for nb in (first, later)]
    assert places == sorted(places) and report.count("plotly.js v") == 1
    assert Path(walked[0]["picture"]).read_bytes().startswith(b"\x89PNG")


def test_progress_names_stages_and_the_time_that_is_left(walked):
    lines = walked[1].strip().splitlines()
    assert any("starting baseline" in line for line in lines) and any("of 18 requests" in line for line in lines)
    assert all(" left" in line for line in lines if "requests" in line) and "\r" not in walked[1]


def test_each_setting_of_the_shipped_walk_is_measured_once_whatever_it_is_called():
    given = read_yaml(ROOT / "params/walk.yaml")
    plans = batch.checked([ROOT / f"notebooks/{name}.ipynb" for name in NOTEBOOKS], given, {})
    params = Params.checked(common(given))
    wanted = walks._every(params.ladder(), params, [walks._experiment(n, values) for n, values in plans])
    assert [a.name for a in wanted] == [*LADDER, "mtp 1/1/2", "mtp 2/1/3", "mtp 4/1/5"]
    assert together([a.config for a in wanted]) and len({str(a.load) for a in wanted}) == 1


def test_a_wrong_value_is_one_line_before_anything_starts(tmp_path, capsys):
    (tmp_path / "p.yaml").write_text("common: {repeats: many}")
    assert main(["walk", "-f", str(tmp_path / "p.yaml"), "--folder", str(ROOT / "notebooks")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("labkit walk: repeats: got 'many'")
