"""A whole campaign against the scripted SGLang child: order, held starts, alternating accept lengths, nothing lost."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.h200 import campaign, tables
from labkit.errors import BadInput
from labkit.records import read_run

SCRIPTED = Path(__file__).parents[2] / "engines" / "sglang"
PARAMS = f"""
engine:
  engine: sglang
  model: MODELS/full
  python: {sys.executable}
  env: {{PYTHONPATH: "{SCRIPTED / "standin"}", SCRIPT_LOG: "{SCRIPTED / "data" / "mtp.log"}",
        SCRIPT_TPOT_S: 0.006}}
workload: synthetic
tokenizer: MODEL
seed: 3
"""
PLAN = """
params: params.yaml
budget_s: 120
warmup: 1
loads:
  short: {prompt_tokens: 16, output_tokens: 12, count: 3}
  long: {prompt_tokens: 64, output_tokens: 6}
arms:
  - {name: broken, from: kernels, env: {SCRIPT_UNTIL: Load weight begin}}
stops:
  - {server: kernels, estimate_s: 1, visits: [{load: short, repeats: 1}]}
  - {server: mtp, estimate_s: 1, visits: [{load: short, repeats: 1, accept: [3.0, 0, 2.0]}]}
  - {server: broken, estimate_s: 1, visits: [{load: short, repeats: 1}]}
  - {server: kernels, estimate_s: 1, visits: [{load: short, repeats: 1}, {load: long, repeats: 2}]}
  - {server: mtp, estimate_s: 5000, visits: [{load: short, repeats: 1}]}
"""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"vocab_size": 5000}')
    (tmp_path / "params.yaml").write_text(PARAMS.replace("MODEL\n", f"{model}\n"))
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path / "plan.yaml"


def test_a_campaign_measures_what_fits_and_names_what_it_left_out(plan, tmp_path, capsys):
    out = tmp_path / "out"
    assert campaign.main([str(plan), "--out", str(out), "--work", str(tmp_path / "work")]) == 0
    run = read_run(out / "short")
    rows = run.requests
    measured = rows[rows.status == "ok"]
    assert measured.groupby("arm").size().to_dict() == {"kernels": 6, "mtp": 3, "mtp a=3": 3, "mtp a=2": 3}
    assert sorted(measured[measured.arm == "kernels"].repeat) == [0, 0, 0, 1, 1, 1]
    # The same prompts for every arm, and both starts are told apart.
    by_arm = measured.groupby("arm").prompt_sha256.unique().map(sorted)
    assert all(list(v) == list(by_arm.iloc[0]) for v in by_arm)
    lengths = measured[measured.arm.str.startswith("mtp a")].groupby("arm").accept_length.median()
    assert lengths["mtp a=3"] == pytest.approx(3.0, abs=0.3) and lengths["mtp a=2"] == pytest.approx(2.0, abs=0.3)
    assert set(json.loads((out / "short" / "requests.jsonl").read_text().splitlines()[-1])) > {"start", "chunk_times"}
    skipped = run.meta["summary"]["skipped"]
    assert len(skipped) == 2 and skipped[0].startswith("02-broken") and "Load weight begin" in skipped[0]
    assert skipped[1].startswith("04-mtp") and "needs 5000" in skipped[1]
    assert len(read_run(out / "long").requests.query("status == 'ok'")) == 2
    arm = next(a for a in run.meta["arms"] if a["name"] == "mtp a=3")
    assert arm["engine"]["simulate_acc_len"] == 3.0 and arm["accept_switched_at_run_time"] is True
    assert "PLANTED-KEY" not in (out / "short" / "run.json").read_text()


@pytest.mark.parametrize(
    "change, named",
    [
        (("server: broken, estimate_s: 1", "server: nobody, estimate_s: 1"), "stops[2].server"),
        (("load: long", "load: wide"), "stops[3].visits[1].load"),
        (("from: kernels", "from: fastest"), "arms[5].from"),
        (("prompt_tokens: 16, ", ""), "loads.short.prompt_tokens"),
        (("budget_s: 120", "budget_s: soon"), "budget_s"),
    ],
)
def test_a_bad_plan_names_its_field(plan, change, named):
    plan.write_text(PLAN.replace(*change))
    with pytest.raises(BadInput) as refused:
        campaign.read_plan(plan)
    assert refused.value.field == named


def test_the_shipped_h200_plan_is_valid():
    shipped = campaign.read_plan(Path(campaign.__file__).with_name("plan.yaml"))
    assert {s.server for s in shipped.stops} == set(shipped.servers), "every arm has its stop"
    assert shipped.servers["mtp"].attention_backend == "fa3"
    assert shipped.servers["mtp-flashinfer"].attention_backend == "flashinfer"
    trap = shipped.servers["broken-head"]
    assert trap.fp8_lm_head and trap.enable_fp32_lm_head


def test_the_pocket_engine_runs_a_campaign_too(tmp_path, monkeypatch):
    """A real engine through the general runner: rows in pairs of one session, numbers by the lab's estimates."""
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "params.yaml").write_text("{engine: {engine: pocket}, workload: repetitive}")
    (tmp_path / "plan.yaml").write_text("""
params: params.yaml
budget_s: 250
warmup: 1
loads: {short: {prompt_tokens: 32, output_tokens: 24}}
stops:
  - {server: kernels, estimate_s: 1, visits: [{load: short, repeats: 2}]}
  - {server: mtp, estimate_s: 1, visits: [{load: short, repeats: 3}]}
  - {server: kernels, estimate_s: 1, visits: [{load: short, repeats: 2}]}
""")
    out = tmp_path / "out"
    assert campaign.main([str(tmp_path / "plan.yaml"), "--out", str(out), "--work", str(tmp_path / "work")]) == 0
    record = tables.read(out)
    arms = record.results["short"]
    assert [(r["repeat"], r["start"]) for r in arms["kernels"].rows if r["repeat"] >= 0] == [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    assert all(r["session"] and r["decode_tokens"] + r["first_tokens"] == 24 for r in arms["mtp"].used)
    described = {a["name"]: a for a in record.runs["short"].meta["arms"]}
    assert [s["start"] for s in described["kernels"]["starts"]] == [0, 1]
    # What the runner records of any arm: which options are in effect, and under which load.
    assert described["mtp"]["options"] and described["mtp"]["load"]["output_tokens"] == 24
    assert set(tables.arms_table(record, "short").index) == {"mtp", "kernels"}
