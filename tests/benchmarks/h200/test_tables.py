"""Tables of a campaign's records: numbers follow from the rows, nothing else."""

import json

import pytest

from benchmarks.h200 import tables as campaign
from labkit.errors import BadInput
from labkit.roofline.account import per_tensor

GPU = {"copy": {"device": "some GPU", "median": 4e12, "low": 3.9e12, "high": 4.1e12}, "nvidia_smi": {}}
SERVERS = {
    "baseline": {"moe_runner_backend": "flashinfer_mxfp4", "enable_fp32_lm_head": True},
    "kernels": {"moe_runner_backend": "humming", "enable_fp32_lm_head": True},
    "fp8-head": {"moe_runner_backend": "humming", "fp8_lm_head": True},
    "mtp": {
        "moe_runner_backend": "humming",
        "fp8_lm_head": True,
        "speculative": {"steps": 3, "topk": 1, "draft_tokens": 4},
    },
}
TIMES = {"baseline": 5.4e-3, "kernels": 4.8e-3, "fp8-head": 4.7e-3, "mtp a=1": 12e-3, "mtp a=3": 4e-3}


@pytest.fixture
def folder(tmp_path):
    arms, rows = [], []
    for name, seconds in TIMES.items():
        server, _, accept = name.partition(" a=")
        asked = {"engine": "sglang", "model": "models/ling", **SERVERS[server]}
        info = {
            "version": "0.5.23",
            "moe_runner_backend": asked["moe_runner_backend"],
            "enable_fp32_lm_head": asked.get("enable_fp32_lm_head", False),
        }
        start = {
            "start": 0,
            "start_seconds": 13.0,
            "gpu": {"clocks.sm": "1980"},
            "kernel_caches_before": {"triton": True},
        }
        arms.append({"name": name, "engine": asked, "server_info": info, "launch": {"env": {}}, "starts": [start]})
        for i in range(10):
            rows.append(
                {
                    "arm": name,
                    "status": "ok",
                    "error": None,
                    "start": i // 5,
                    "repeat": i,
                    "prompt_tokens": 1024,
                    "output_tokens": 193,
                    "tpot_s": seconds,
                    "ttft_s": 0.1,
                    "latency_s": 0.1 + 192 * seconds,
                    "verify_ct": 192 / float(accept) if accept else None,
                    "server_decode_tok_s": 1 / (seconds * 1.001),
                }
            )
    run = tmp_path / "1k"
    run.mkdir()
    meta = {
        "schema": 1,
        "label": "campaign 1k",
        "id": "R",
        "created_utc": "now",
        "parameters": {},
        "arms": arms,
        "gpu": GPU,
        "summary": {},
    }
    (run / "run.json").write_text(json.dumps(meta))
    (run / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    by_name = {"void humming<1>": {"count": 2, "time_s": 0.002}, "deep_gemm_k": {"count": 1, "time_s": 0.001}}
    profile = {
        "steps": 12,
        "kernels_per_step": 3,
        "span_s": 0.005,
        "busy_s": 0.003,
        "idle_s": 0.002,
        "by_name": by_name,
    }
    (tmp_path / "profile.json").write_text(json.dumps({"07-kernels": profile}))
    return tmp_path


def test_arms_and_accounts(folder):
    record = campaign.read(folder)
    table = campaign.arms_table(record, "1k")
    assert list(table.index) == list(TIMES) and (table["by start, ms"].str.count(",") == 1).all()
    assert table.loc["mtp a=3", "round ms"] == pytest.approx(12.0) and table["between starts"].max() < 1e-9
    accounts = campaign.accounts_table(record, "1k")
    bytes_read = per_tensor(campaign.load_config("ling-3.0-flash"), context=1120, head="bf16").total_bytes
    assert accounts.loc["kernels", "per tensor GB"] == pytest.approx(bytes_read / 1e9)
    assert accounts.loc["kernels", "share of copy"] == pytest.approx(bytes_read / 4.8e-3 / 4e12)
    assert accounts.loc["fp8-head", "simple GB"] == pytest.approx(2.952, abs=0.01)


def test_the_head_s_saving_is_predicted_at_copy_speed(folder):
    got = campaign.head_step(campaign.read(folder), "1k")
    assert got["saved_bytes"] == pytest.approx(0.402e9, rel=0.01) and got["saved_s"] == pytest.approx(1e-4)
    assert got["predicted_at_copy_s"] == pytest.approx(4.8e-3 - got["saved_bytes"] / 4e12)
    assert abs(got["error_at_copy"]) < 0.001


def test_law_profile_clock_and_starts(folder):
    record = campaign.read(folder)
    held = campaign.speculation_table(record, "1k", "fp8-head", "mtp a=1")
    assert held.loc["mtp a=3", "S measured"] == pytest.approx(4.7 / 4) and abs(held.loc["mtp a=3", "error"]) < 1e-6
    profiled = campaign.profile_table(record)
    assert profiled["kernels"].to_dict() == pytest.approx({"expert products": 2.0, "FP8 projections": 1.0})
    gaps = campaign.gaps_table(record).loc["kernels"]
    assert gaps["gap ms"] == pytest.approx(4.8 - 3.0) and gaps["gap share"] == pytest.approx(1.8 / 4.8)
    assert campaign.clock_table(record)["median"].tolist() == pytest.approx([-0.001] * 5, abs=1e-4)
    assert campaign.starts_table(record).loc[("kernels", 0), "warm caches"] == "triton"


def test_checks_on_the_records(folder):
    table = campaign.checks_table(campaign.read(folder))
    by_server = {s: set(g.verdict) for s, g in table.groupby("server")}
    assert "fail" not in by_server["baseline"] | by_server["kernels"]
    head = table[(table.server == "fp8-head") & (table.name == "FP8 head")]
    assert list(head.verdict) == ["cannot tell"]  # no log was kept here


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(BadInput):
        campaign.read(tmp_path)
