"""The committed executed set: small, complete, without traces of a machine, and made from today's sources."""

import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from structure import PLOTLY, outputs, sources

from labkit.records.sweep import FINISHED, read_sweep

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "outputs/examples/pocket"
NAMES = sorted(p.stem for p in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
LLAMACPP = sorted((ROOT / "outputs/examples/llamacpp").glob("*.ipynb"))
EVERY = [*(EXAMPLES / f"{n}.ipynb" for n in NAMES), *LLAMACPP]


def example(name):
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def test_the_set_is_whole_and_small():
    assert sorted(p.stem for p in EXAMPLES.glob("*.ipynb")) == NAMES
    assert sum(p.stat().st_size for p in EXAMPLES.rglob("*") if p.is_file()) < 10_000_000


@pytest.mark.parametrize("name", NAMES)
def test_it_was_made_from_the_sources_of_today(name):
    source = nbformat.read(ROOT / f"notebooks/{name}.ipynb", as_version=4)
    assert sources(example(name)) == sources(source)


def test_the_walk_on_llamacpp_is_there_and_small():
    walk = {"00_start_here", "02_baseline", "03_humming", "04_fp8_head", "05_mtp", "06_silent_fallback"}
    assert walk <= {p.stem for p in LLAMACPP}
    assert sum(p.stat().st_size for p in (ROOT / "outputs/examples/llamacpp").iterdir()) < 5_000_000
    for path in LLAMACPP:
        asked = nbformat.read(path, as_version=4).metadata.papermill.parameters
        assert "engine" not in asked or asked["engine"]["engine"] == "llamacpp"


@pytest.mark.parametrize("path", LLAMACPP, ids=lambda p: p.stem)
def test_llamacpps_drafts_are_not_those_of_earlier_answers_nor_called_mtp(path):
    """What is measured: figures, tables and sentences. The sources' own text describes the published case."""
    shown = " ".join(
        str(o.get("data", {}).get("text/plain", "")) for c in nbformat.read(path, 4).cells for o in c.get("outputs", [])
    )
    assert "earlier answers" not in shown
    measured = [line for line in shown.splitlines() if "measured" in line]
    assert not re.search(r"\b(MTP|NEXTN|FP8|MXFP4|Humming)\b", "\n".join(measured))


def test_the_sweep_behind_10_is_there_small_and_of_fifty_configurations():
    folder = ROOT / "outputs/examples/sweep"
    run = read_sweep(folder)
    assert run.state == FINISHED and sum(r["status"] == "measured" for r in run.rows) == 50
    files = [*folder.iterdir(), EXAMPLES / "10_sweep.ipynb"]
    assert sum(p.stat().st_size for p in files) < 2_000_000
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(^|[\s\"'(=])/(root|home|work|tmp|Users)/\w", text) and "Bearer " not in text
    table = pd.read_csv(folder / "configs.csv")
    assert len(table) == len(run.rows) and table["tpot_s"].notna().sum() == 50


@pytest.mark.parametrize("path", EVERY, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_it_ran_through_and_has_a_picture_beside_each_figure(path):
    nb = nbformat.read(path, as_version=4)
    assert nb.metadata.labkit.status == "ok" and "widgets" not in nb.metadata
    shown = [o for c in nb.cells for o in c.get("outputs", [])]
    assert not [o for o in shown if o.output_type == "error"]
    figures = [o for o in shown if PLOTLY in o.get("data", {})]
    assert figures and all(len(o.data["image/png"]) > 2000 for o in figures)
    assert sum(map(len, outputs(nb))) > 2
    assert not any("Nothing measured yet" in o.get("data", {}).get("text/plain", "") for o in shown)


@pytest.mark.parametrize("path", EVERY, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_it_names_no_machine_path_and_no_secret(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(^|[\s\"'(=])/(root|home|work|tmp|Users)/\w", text)
    assert "Bearer " not in text
