"""The committed H200 records: what the report says of them follows from them."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from benchmarks.h200 import tables as campaign
from labkit.measure import estimates

FOLDER = Path(__file__).parents[3] / "outputs" / "examples" / "h200"


@pytest.fixture(scope="module")
def record():
    return campaign.read(FOLDER)


def test_every_must_was_measured(record):
    arms = record.results["1k"]
    must = {"baseline", "kernels", "fp8-head", "mtp", "mtp a=1", "mtp a=2.68", "mtp a=3.9", "tensor-only-head"}
    assert must <= set(arms)
    assert all(len(estimates.good(arms[n].rows)) == 10 and len({r["start"] for r in arms[n].used}) <= 2 for n in must)
    assert {"baseline", "kernels", "fp8-head"} <= set(record.results["32k"])
    rows = record.runs["1k"].rows
    assert all(r["flush_status"] == 200 and r["cached_tokens"] == 0 for r in rows)
    sent = {a: {r["prompt_sha256"] for r in rows if r["arm"] == a and r["repeat"] >= 0} for a in must}
    assert all(s == sent["baseline"] for s in sent.values())


def test_the_head_is_predicted_within_three_percent_and_the_whole_step_is_not(record):
    for load in ("1k", "32k"):
        got = campaign.head_step(record, load)
        assert abs(got["error_at_copy"]) < campaign.WITHIN < abs(got["error_at_step"])


def test_bench_agrees_with_the_engine_s_own_benchmark_and_clock(record):
    assert abs(campaign.benchmark_table(record).loc["sglang.benchmark.serving", "against ours"]) < 0.02
    assert campaign.clock_table(record)["largest"].abs().max() < 0.001


def test_the_trap_is_slower_than_the_baseline_and_told_by_the_log(record):
    arms = record.results["1k"]
    assert arms["tensor-only-head"].tpot.value > 2 * arms["baseline"].tpot.value
    checks = campaign.checks_table(record)
    trap = checks[checks.server == "tensor-only-head"].set_index("name").verdict
    assert trap["draft shares the head"] == "fail" and trap["FP8 head"] == "pass"
    healthy = checks[checks.server != "tensor-only-head"]
    assert "fail" not in set(healthy.verdict)


def test_records_hold_no_key_and_no_folder_of_the_machine_they_were_merged_on():
    for path in FOLDER.rglob("*.json"):
        text = path.read_text()
        assert "/work" not in text and "admin_api_key" not in text, path
        document = json.loads(text)
        assert document


def test_the_head_s_numbers_came_from_the_gpu(record):
    table = campaign.head_checks(record)
    assert len(table) >= 8 and (table["M=1 and M=4 same"] == 1.0).all()
    assert table["relative error"].max() < 0.05 and table["top-1 agreement"].min() > 0.9


@pytest.mark.slow
def test_the_report_s_source_runs_on_the_committed_records():
    notebook = nbformat.read(Path(campaign.__file__).with_name("h200.ipynb"), as_version=4)
    assert not any(c.get("outputs") for c in notebook.cells)
    for cell in notebook.cells:
        cell.source = cell.source.replace('records = "."', f"records = {str(FOLDER)!r}")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER.parents[2])}}).execute()
