"""One configuration as SGLang's command line; phases and failures told from real log lines."""

import re

import pytest
from small import drafting

from labkit.engines import ladder, process
from labkit.engines.config import EngineConfig
from labkit.engines.sglang import launch

BASE = EngineConfig.from_dict({"engine": "sglang", "model": "/models/ling", "python": "py", "seed": 7})


ARMS = {a.name: a.config for a in ladder.choose(ladder.arms(BASE))}


def _argv(config):
    return launch.command(config, 30000).argv


def test_arms_differ_by_exactly_their_flags():
    lines = {name: launch.command(config, 30000) for name, config in ARMS.items()}
    argv = {r: line.argv for r, line in lines.items()}
    assert _value(argv["baseline"], "--moe-runner-backend") == "flashinfer_mxfp4"
    assert "--enable-fp32-lm-head" in argv["baseline"] and "--enable-fp32-lm-head" in argv["kernels"]
    assert _value(argv["kernels"], "--moe-runner-backend") == "humming"
    assert "--enable-fp32-lm-head" not in argv["fp8-head"] + argv["mtp"]
    assert [lines[r].env.get("SGLANG_ENABLE_FP8_LM_HEAD") for r in lines] == [None, None, "1", "1"]
    added = argv["mtp"][len(argv["fp8-head"]) :]
    assert argv["mtp"][: len(argv["fp8-head"])] == argv["fp8-head"]
    assert added == [*drafting(), "--speculative-draft-model-path", "/models/ling"]


def test_remote_code_is_never_trusted_unasked_and_batch_is_one():
    assert not any("trust" in a for config in ARMS.values() for a in _argv(config))
    assert _value(_argv(BASE), "--max-running-requests") == "1"


def test_extra_arguments_come_last_so_that_they_win():
    spec = {"steps": 1, "topk": 1, "draft_tokens": 2, "draft_model_path": "/d"}
    argv = _argv(BASE.replace(extra_args=["--max-running-requests", 2], speculative=spec))
    assert argv[-2:] == ["--max-running-requests", "2"]
    assert argv.count("--speculative-draft-model-path") == 1 and "/d" in argv


def test_simulated_accept_length_is_an_environment_variable():
    config = BASE.replace(speculative={"steps": 3, "topk": 1, "draft_tokens": 4}, simulate_acc_len=2.68)
    env = launch.command(config, 1).env
    assert env["SGLANG_SIMULATE_ACC_LEN"] == "2.68" and env["SGLANG_SIMULATE_ACC_TOKEN_MODE"] == "real-draft-token"


@pytest.mark.parametrize("log", ["baseline", "humming", "fp8-head", "mtp", "trap"])
def test_phases_appear_in_order_in_recorded_logs(recorded, log):
    lines = recorded(log).splitlines()
    at = [next(i for i, line in enumerate(lines) if re.search(p.pattern, line)) for p in launch.PHASES]
    assert at == sorted(at) and len(set(at)) == len(at)
    assert "fired up" in lines[at[-1]]


@pytest.mark.parametrize("log", ["baseline", "humming", "fp8-head", "mtp", "trap"])
def test_a_log_without_failure_is_not_explained(recorded, log):
    assert launch.explain(recorded(log)) is None


FAILURES = {
    "RuntimeError: --fp8-gemm-backend=cutlass is deprecated on this hardware. Please switch to DeepGEMM": "leave out",
    "ModuleNotFoundError: No module named 'humming.layer'": "package humming is missing",
    "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' "
    "(ModuleNotFoundError: No module named 'sglang')": "not installed",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.": "raise mem_fraction_static",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "lower mem_fraction_static",
    "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.": "no usable GPU",
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).": "update the driver",
    "OSError: nowhere/ling does not appear to have a file named config.json.": "holds no checkpoint",
    "ImportError: common_ops.abi3.so: undefined symbol: CUDAErrorLogCapture": "CUDAErrorLogCapture",
    "error: [Errno 98] error while attempting to bind on address: address already in use": "port 0",
    "ValueError: The repository /m contains custom code which must be executed": "--trust-remote-code",
    "RuntimeError: labkit plugin: SGLANG_ENABLE_FP8_LM_HEAD=1 and --enable-fp32-lm-head exclude each other": "exclude",
    "launch_server.py: error: unrecognized arguments: --nonsense": "--nonsense",
}


@pytest.mark.parametrize("line, advice", FAILURES.items(), ids=lambda s: s[:40])
def test_known_failures_become_one_line_with_advice(recorded, line, advice):
    said = launch.explain(recorded("humming")[:2000] + "\nTraceback (most recent call last):\n" + line + "\n")
    assert said and advice in said and "\n" not in said


def test_starts_follows_the_log_and_stops(scripted, tmp_path):
    events = []
    with process.start(scripted("mtp"), tmp_path / "run", events.append) as engine:
        assert [n for n, _ in engine.phases] == [p.name for p in launch.PHASES]
        info = engine.server_info()
        assert info["version"] == "0.5.23" and "api_key" not in info
        pid = engine.pid
    assert events[0].kind == "command" and events[0].text.endswith(
        f"MODELS/full --host 127.0.0.1 --port {engine.url.rsplit(':', 1)[1]} --max-running-requests 1 --random-seed 0"
    )
    with pytest.raises(ProcessLookupError):
        import os

        os.kill(pid, 0)


def test_a_start_that_breaks_names_phase_and_last_lines(scripted, tmp_path):
    config = scripted("humming", env={"SCRIPT_UNTIL": "Load weight begin"})
    with pytest.raises(process.EngineFailed) as failed:
        process.start(config, tmp_path)
    assert failed.value.phase == "weights" and failed.value.returncode == 1
    assert "Load weight begin" in failed.value.log_tail[-1]


def test_a_planted_key_reaches_no_record_and_no_log(scripted, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "PLANTED-KEY")
    with process.start(scripted("baseline", api_key_env="MY_KEY"), tmp_path) as engine:
        import json

        kept = json.dumps([engine.server_info(), engine.launch_record()])
    assert "PLANTED-KEY" not in kept and "$MY_KEY" in kept
    log = engine.log_path.read_text()
    assert "server_args=" in log and "PLANTED-KEY" not in log


@pytest.mark.parametrize("n,sizes", [(1, ["1"]), (6, ["1", "2", "4", "6"]), (8, ["1", "2", "4", "8"])])
def test_room_for_several_requests_has_its_graphs(n, sizes):
    graphs = ["--cuda-graph-max-bs-decode", 1, "--cuda-graph-bs-decode", 1]
    argv = _argv(launch.at_once(BASE.replace(extra_args=graphs), n))
    assert argv[-len(sizes) :] == sizes and argv[-len(sizes) - 1] == "--cuda-graph-bs-decode"
    last = len(argv) - 1 - argv[::-1].index("--max-running-requests")
    assert argv[last + 1] == str(n)
    assert "--cuda-graph-bs-decode" not in _argv(launch.at_once(BASE, n))


def _value(argv, flag):
    return argv[argv.index(flag) + 1]


def test_starts_at_once_may_publish_at_once(tmp_path, monkeypatch):
    """Seen on an H200: two starts that published ownership together took each other's file away and one was lost."""
    from concurrent.futures import ThreadPoolExecutor

    from labkit.engines import owner

    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: [owner.publish([{"n": n}]) for _ in range(50)], range(8)))
    assert not list(tmp_path.glob("*.part")) and (tmp_path / "engine.json").exists()
