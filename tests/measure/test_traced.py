"""A profile of a live SGLang: the engine writes its trace while it decodes, slowly, or not at all."""

import gzip
import json
import threading
import time
from pathlib import Path

import pytest

from labkit.cli import main
from labkit.errors import LabError
from labkit.measure import traced

KERNELS = [("void humming<A>", 30.0), ("deep_gemm::fp8", 50.0), ("fused_recurrent_kda", 10.0), ("unheard_of", 5.0)]


@pytest.fixture
def engine(server, wire):
    """Streams 40 tokens; /start_profile writes a trace in two halves, as an engine does that is still at it."""
    server.script = [wire.stream(*(wire.event(n) for n in range(1, 40)), wire.event(40, finish="length"))]
    server.profiles = []

    def write(folder):
        events = [{"name": n, "cat": "kernel", "ts": 100.0 * i, "dur": d} for i, (n, d) in enumerate(KERNELS * 2)]
        whole = gzip.compress(json.dumps({"traceEvents": events}).encode())
        path = Path(folder) / "1-TP-0.trace.json.gz"
        path.write_bytes(whole[:40])
        time.sleep(0.4)
        path.write_bytes(whole)

    def started(body):
        asked = json.loads(body)
        server.profiles.append(asked)
        threading.Thread(target=write, args=(asked["output_dir"],), daemon=True).start()

    server.on_profile = started
    return server


def test_passes_are_summed_by_kernel_once_the_trace_is_whole(engine, tmp_path):
    got = traced.capture(engine.url, tmp_path / "new", text="x", steps=2)
    assert engine.profiles[0]["num_steps"] == 2 and engine.profiles[0]["activities"] == ["GPU"]
    assert got["kernels_per_step"] == 4 and got["busy_s"] == pytest.approx(95e-6)


def test_the_command_groups_them(engine, capsys):
    assert main(["profile", "--url", engine.url]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("expert products", "FP8 projections", "KDA", "other"))
    assert main(["profile", "--url", engine.url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["groups"].values()) == pytest.approx(sum(e["time_s"] for e in found["by_name"].values()))


def test_no_profiler_and_no_trace_are_a_word(engine, tmp_path, capsys):
    engine.on_profile = lambda body: None
    with pytest.raises(LabError, match="no whole trace"):
        traced.capture(engine.url, tmp_path, text="x", trace_s=0.3)
    engine.on_profile = None
    assert main(["profile", "--url", engine.url]) == 1
    assert "/start_profile" in capsys.readouterr().err
    assert main(["profile", "--url", "http://127.0.0.1:9"]) == 1
