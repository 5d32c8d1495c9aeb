"""The committed H200 records: what the report says of them follows from them."""

import json
import re
import tarfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from benchmarks.h200 import drafting
from benchmarks.h200 import tables as campaign
from labkit.measure import estimates
from labkit.measure.results import cost

FOLDER = Path(__file__).parents[3] / "outputs" / "examples" / "h200"


@pytest.fixture(scope="module")
def record():
    return campaign.read(FOLDER)


def test_every_must_was_measured_in_both_visits(record):
    for load, requests in (("1k", 10), ("32k", 6)):
        arms, rows = record.results[load], record.runs[load].rows
        must = {"baseline", "kernels", "fp8-head", "fa3", "mtp-flashinfer a=3.9", *(n for _, n in drafting.STEPS)}
        must |= {"mtp", "mtp a=1", "mtp a=2.68", "broken-head"} if load == "1k" else set()
        assert must <= set(arms)
        assert all(len(estimates.good(arms[n].rows)) == requests for n in must)
        assert all({(r["call"], r["start"]) for r in arms[n].rows} == {(1, 0), (2, 1)} for n in must)
        assert all(r["flush_status"] == 200 and r["cached_tokens"] == 0 for r in rows)
        sent = {a: {r["prompt_sha256"] for r in rows if r["arm"] == a and r["repeat"] >= 0} for a in must}
        assert all(s == sent["baseline"] for s in sent.values())


def test_a_round_costs_less_on_fa3_than_on_flashinfer(record):
    for load in record.runs:
        arms = record.results[load]
        fast, slow = cost(arms["mtp a=3.9"], arms["fa3"]), cost(arms["mtp-flashinfer a=3.9"], arms["fp8-head"])
        assert 1.6 < fast.low < fast.high < 1.8 and slow.value > 1.94 and slow.low > fast.high
        got = drafting.lost(record, load)
        assert got["S fa3"].low > 2.2 and got["S flashinfer"].high < 2.05 and 0.15 < got["share"] < 0.35
    assert cost(record.results["1k"]["mtp-flashinfer a=3.9"], record.results["1k"]["fp8-head"]).value > 1.95


def test_more_draft_steps_cost_more(record):
    for load in record.runs:
        seen, told = drafting.cost_by_steps(record, load)
        assert [n for n, _ in seen] == [2, 3, 4, 5, 6]
        assert all(before.high < after.low for (_, before), (_, after) in zip(seen, seen[1:], strict=False))
        assert all(before.value < after.value for (_, before), (_, after) in zip(told, told[1:], strict=False))


def test_the_gpu_waits_on_flashinfer_and_hardly_on_fa3(record):
    gaps = campaign.gaps_table(record)
    assert gaps.loc["mtp", "gap share"] < 0.05 < 0.1 < gaps.loc["mtp-flashinfer", "gap share"]
    assert gaps.loc["mtp", "busy ms"] == pytest.approx(gaps.loc["mtp-flashinfer", "busy ms"], rel=0.02)


def test_parts_are_all_there_and_bytes_explain_the_head_alone(record):
    parts, kernels = drafting.parts_table(record), campaign.profile_table(record)
    for server in ("fa3", "mtp"):
        measured, told = parts[server, "● measured"], parts[server, "◇ by bytes"]
        assert measured.sum() == pytest.approx(kernels[server].sum())
        assert told["head and sampling"] == pytest.approx(measured["head and sampling"], rel=0.15)
        assert told.sum() < 0.3 * measured.sum()
        assert measured["other"] < 0.01 * measured.sum()
    floor = campaign.accounts_table(record, "1k").loc["fp8-head", "floor ms"]
    assert parts["fa3", "◇ by bytes"].sum() == pytest.approx(floor, rel=0.01)


def test_kernel_costs_explain_far_more_than_bytes_and_the_rest_is_named(record):
    parts = drafting.parts_table(record)
    for server in ("fa3", "mtp"):
        measured, kernels, read = (parts[server, side] for side in ("● measured", "◇ by kernels", "◇ by bytes"))
        assert (kernels >= read * 0.99).all()
        assert 2.5 * read.sum() < kernels.sum() < measured.sum()
        assert drafting.largest_residual(parts, server)[0] == "expert products"
    counted = campaign.kernels_table(record)["fa3"]
    assert counted.sum() == pytest.approx(campaign.gaps_table(record).loc["fa3", "kernels"])
    assert campaign.kernels_table(record, drafting.READERS)["fa3"].sum() < counted.sum()


def test_the_head_is_predicted_within_three_percent_and_the_whole_step_is_not(record):
    for load in ("1k", "32k"):
        got = campaign.head_step(record, load)
        assert abs(got["error_at_copy"]) < campaign.WITHIN < abs(got["error_at_step"])


def test_the_client_agrees_with_the_engine_s_own_clock(record):
    assert campaign.clock_table(record)["largest"].abs().max() < 0.002


def test_traps_are_told_by_the_logs_and_nothing_else_fails(record):
    arms = record.results["1k"]
    assert arms["broken-head"].tpot.value > 2 * arms["baseline"].tpot.value
    checks = campaign.checks_table(record)
    failed = {s: set(g[g.verdict == "fail"].name) for s, g in checks.groupby("server")}
    assert failed.pop("broken-head") == {"draft shares the head", "conflicting options"}
    assert failed.pop("mtp-flashinfer") == {"rounds wait for the host", "draft-extend CUDA graph"}
    assert not any(failed.values())
    mtp = checks[checks.server == "mtp"].set_index("name")
    assert "simulated" in mtp.seen["accept length"] and mtp.verdict["accept length"] == "cannot tell"
    assert mtp.verdict["draft-extend CUDA graph"] == mtp.verdict["rounds wait for the host"] == "pass"


def test_records_hold_no_key_and_no_folder_of_the_machine_they_were_merged_on():
    ours = re.compile(r"(?<![\w/.])/(work|home|root)/|admin_api_key\"|PLANTED|sk-\w{8}")
    for path in FOLDER.rglob("*.json*"):
        assert not ours.search(path.read_text()), path
    for path in FOLDER.rglob("*.json"):
        assert json.loads(path.read_text())
    with tarfile.open(FOLDER / "logs.tar.gz") as tar:
        for member in tar.getmembers():
            text = tar.extractfile(member).read().decode()
            assert not re.search(r"(?<![\w/.])/(work|home|root)/", text), member.name
            assert not re.search(r"api_key['\"]?[=:] ?['\"](?!\(hidden\))\w", text), member.name


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
