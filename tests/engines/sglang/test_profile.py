"""Kernel times from a trace as SGLang's profiler writes it."""

import gzip
import json
import time

import pytest

from labkit.engines.sglang import profile
from labkit.errors import LabError

EVENTS = [
    {"name": "void humming<MmaOpClass, 64>", "cat": "kernel", "ts": 100.0, "dur": 40.0},
    {"name": "fused_recurrent_kda_fwd_kernel", "cat": "kernel", "ts": 150.0, "dur": 20.0},
    {"name": "fused_recurrent_kda_fwd_kernel", "cat": "kernel", "ts": 160.0, "dur": 20.0},  # overlaps
    {"name": "deep_gemm::sm90_fp8_gemm_1d2d_impl", "cat": "kernel", "ts": 200.0, "dur": 100.0},
    {"name": "Memcpy DtoD", "cat": "gpu_memcpy", "ts": 300.0, "dur": 10.0},
    {"name": "cudaGraphLaunch", "cat": "cuda_runtime", "ts": 0.0, "dur": 500.0},  # on the CPU: not counted
]


@pytest.mark.parametrize("packed", [False, True])
def test_busy_and_idle_time_of_a_step(tmp_path, packed):
    path = tmp_path / ("t.trace.json.gz" if packed else "t.trace.json")
    text = json.dumps({"traceEvents": EVENTS})
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    got = profile.summarise(profile.read_trace(path), steps=2)
    assert got["kernels_per_step"] == 2.5
    assert got["span_s"] == pytest.approx(105e-6)
    assert got["busy_s"] == pytest.approx((40 + 30 + 100 + 10) / 2 * 1e-6)  # the overlap counts once
    assert got["idle_s"] == pytest.approx(got["span_s"] - got["busy_s"])
    assert got["by_name"]["fused_recurrent_kda_fwd_kernel"] == {"count": 1.0, "time_s": pytest.approx(20e-6)}


def test_kernels_are_grouped_and_nothing_is_lost():
    by_name = profile.summarise([e for e in EVENTS if e["cat"] != "cuda_runtime"], 1)["by_name"]
    by_name["a_kernel_from_elsewhere"] = {"count": 1, "time_s": 5e-6}
    groups = profile.grouped(by_name)
    assert groups["expert products"] == pytest.approx(40e-6) and groups["KDA"] == pytest.approx(40e-6)
    assert groups["FP8 projections"] == pytest.approx(100e-6) and groups["other"] == pytest.approx(5e-6)
    assert sum(groups.values()) == pytest.approx(sum(e["time_s"] for e in by_name.values()))
    assert list(groups.values()) == sorted(groups.values(), reverse=True)


def test_broken_and_empty_traces_are_errors(tmp_path):
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"na')
    with pytest.raises(LabError, match="cut.json"):
        profile.read_trace(tmp_path / "cut.json")
    with pytest.raises(LabError, match="no GPU events"):
        profile.summarise([], 12)


def test_the_newest_trace_is_found(tmp_path):
    began = time.time() - 1
    assert profile.newest(tmp_path, began) is None
    (tmp_path / "small.json").write_text("{}")
    (tmp_path / "big.json.gz").write_bytes(b"x" * 100)
    assert profile.newest(tmp_path, began).name == "big.json.gz"
    assert profile.newest(tmp_path, time.time() + 60) is None
