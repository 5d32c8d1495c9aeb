"""The C engine behind the same face: its tokens, what it reports of speculation, its faults, its refusals to start."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import httpx
import numpy as np
import psutil
import pytest
from small import drafting

from training.reference import Reference

PROGRAM = ("-m", "labkit.pocket")
GREEDY = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}
MTP = tuple(drafting())


@pytest.fixture(scope="module")
def speculative(launch):
    return launch(*MTP)


@pytest.fixture(scope="module")
def expected(c_folder):
    model = Reference(c_folder, w4a8=True)
    state, ids, new = model.new_state(), [], [20, 30, 40]
    for _ in range(24):
        new = [int(np.argmax(model.logits(new, state)[-1]))]
        ids += new
    return ids


@pytest.mark.parametrize("more", [(), MTP], ids=["plain", "speculative"])
def test_greedy_tokens_are_the_references(launch, exact, more, expected):
    server = launch(*exact, *more)
    answer = server.post("/generate", {"input_ids": [20, 30, 40], "sampling_params": GREEDY}).json()
    assert answer["output_ids"] == expected


def test_speculation_is_reported(speculative):
    meta = speculative.post("/generate", {"input_ids": [20, 30, 40], "sampling_params": GREEDY}).json()["meta_info"]
    verify, histogram = meta["spec_verify_ct"], meta["spec_correct_drafts_histogram"]
    assert meta["spec_num_proposed_drafts"] == 3 * verify
    assert len(histogram) == 4 and sum(histogram) == verify
    assert meta["spec_num_correct_drafts"] == sum(n * count for n, count in enumerate(histogram))
    assert meta["spec_accept_length"] == pytest.approx(24 / verify)
    assert meta["spec_accept_rate"] == pytest.approx(meta["spec_num_correct_drafts"] / (3 * verify))


def test_server_info_has_the_accept_length_of_speculating_servers_only(plain, speculative):
    speculative.post("/generate", {"input_ids": [20], "sampling_params": GREEDY})
    [state] = speculative.get("/server_info").json()["internal_states"]
    assert 1 <= state["avg_spec_accept_length"] <= 4.5
    assert "avg_spec_accept_length" not in plain.get("/server_info").json()["internal_states"][0]


def test_info_names_what_runs(plain, speculative):
    info = speculative.get("/server_info").json()
    assert (
        info["speculative_algorithm"],
        info["speculative_num_steps"],
        info["speculative_eagle_topk"],
        info["speculative_num_draft_tokens"],
    ) == ("NEXTN", 3, 1, 4)
    assert info["kernel_variant"] in ("avx512bf16", "avx512", "avx2", "neon", "portable")
    assert info["fp8_lm_head"] is False and info["provenance"] == "generated"
    assert plain.get("/server_info").json()["speculative_algorithm"] is None


def test_a_client_that_hangs_up_frees_the_engine(plain):
    sampling = GREEDY | {"max_new_tokens": 480}
    body = {"input_ids": [20], "stream": True, "sampling_params": sampling}
    for _ in range(5):
        with httpx.stream("POST", plain.url + "/generate", json=body, timeout=240) as response:
            chunks = response.iter_raw()
            next(chunks)
        until = time.monotonic() + 60
        while plain.get("/flush_cache").status_code != 200:
            assert time.monotonic() < until


def test_nothing_leaks_over_many_requests(plain):
    def held():
        process = psutil.Process(plain.process.pid)
        return process.memory_info().rss, process.num_fds(), process.num_threads()

    def ask(n):
        for _ in range(n):
            plain.post("/generate", {"input_ids": [20], "sampling_params": {"max_new_tokens": 4}})

    ask(20)
    memory, descriptors, threads = held()
    ask(80)
    after = held()
    assert after[0] - memory < 16 * 2**20
    assert after[1] <= descriptors + 1
    assert after[2] <= threads + 8  # asyncio's pool grows on a busy machine, to a bound


def test_expert_distribution(speculative):
    assert speculative.post("/start_expert_distribution_record", None).status_code == 200
    answer = speculative.post("/generate", {"input_ids": [20, 30, 40], "sampling_params": GREEDY}).json()
    assert speculative.post("/stop_expert_distribution_record", None).status_code == 200
    record = speculative.post("/dump_expert_distribution_record", None).json()
    counts = np.array(record["counts"])
    assert counts.shape == (len(record["layers"]), 8) and (counts >= 0).all()
    main = [record["layers"].index(layer) for layer in (1, 2, 3)]
    # Every main layer chooses two experts for every token of every verify pass.
    assert len({int(counts[row].sum()) for row in main}) == 1
    assert counts[main[0]].sum() >= 2 * 4 * answer["meta_info"]["spec_verify_ct"]
    speculative.post("/generate", {"input_ids": [20], "sampling_params": GREEDY})
    assert speculative.post("/dump_expert_distribution_record", None).json() == record


def test_times_of_parts(speculative):
    assert speculative.post("/start_part_times", None).status_code == 200
    answer = speculative.post("/generate", {"input_ids": [20, 30, 40], "sampling_params": GREEDY}).json()
    times = speculative.post("/stop_part_times", None).json()
    assert times["verify"]["passes"] == answer["meta_info"]["spec_verify_ct"]
    assert {"draft 1", "prefill"} <= set(times) and "plain" not in times
    took = times["verify"]["seconds"]
    assert sum(took.values()) > took["experts"] > 0 == times["draft 1"]["seconds"]["kda_state"]
    speculative.post("/generate", {"input_ids": [20], "sampling_params": GREEDY})
    assert speculative.post("/stop_part_times", None).json() == times  # nobody asked for more


def test_reading_its_weights_alone(speculative):
    found = speculative.post("/read_weights", None).json()
    assert found["bytes"] == speculative.get("/server_info").json()["bytes_per_step"]
    assert len(found["seconds"]) >= 10 and min(found["seconds"]) > 0


# ---------------------------------------------------------------- faults look as they would on a real engine


def test_moe_fallback_shows_in_the_log_only(launch):
    server = launch("--moe-runner-backend", "jit", "--fault", "moe-fallback")
    info = server.get("/server_info").json()
    assert info["moe_runner_backend"] == "jit" and "moe_kernels" not in info
    assert "experts for generic backend" in server.text()
    assert "fault" not in json.dumps(info) and "moe-fallback" not in json.dumps(info)
    server.stop()


def test_rewritten_draft_tokens_show_as_resolved_and_as_a_warning(launch):
    server = launch(*MTP[:-1], "6", "--fault", "rewrite-draft-tokens")
    assert server.get("/server_info").json()["speculative_num_draft_tokens"] == 4
    assert re.search(r"speculative_num_draft_tokens is adjusted .* = 4", server.text())
    server.stop()


@pytest.mark.parametrize("fault, fp8", [((), True), (("--fault", "ignore-env"), False)])
def test_an_ignored_variable_leaves_the_head_as_it_was(launch, fault, fp8):
    server = launch(*fault, env={"SGLANG_ENABLE_FP8_LM_HEAD": "1"})
    assert server.get("/server_info").json()["fp8_lm_head"] is fp8
    assert ("Online FP8 quantization" in server.text()) is fp8
    server.stop()


def test_a_bare_head_accepts_nothing_and_says_nothing(launch):
    env, ask = {"SGLANG_ENABLE_FP8_LM_HEAD": "1"}, {"input_ids": [20, 30, 40], "sampling_params": GREEDY}
    whole, bare = launch(*MTP, env=env), launch(*MTP, "--fault", "bare-head", env=env)
    same = ("fp8_lm_head", "speculative_algorithm", "speculative_num_draft_tokens", "bytes_per_step")
    infos = [server.get("/server_info").json() for server in (whole, bare)]
    assert [infos[0][k] for k in same] == [infos[1][k] for k in same]
    answers = [server.post("/generate", ask).json() for server in (whole, bare)]
    assert answers[0]["output_ids"] == answers[1]["output_ids"]  # drafts never change what is said
    assert answers[1]["meta_info"]["spec_accept_length"] < 1.1
    whole.stop(), bare.stop()


# ---------------------------------------------------------------- refusals to start


def fails(folder, *flags, env=None) -> str:
    done = subprocess.run(
        [sys.executable, *PROGRAM, "--model-path", str(folder), "--port", "0", *flags],
        timeout=240,
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.strip().splitlines()
    return line


@pytest.fixture
def copy(c_folder, tmp_path):
    return shutil.copytree(c_folder, tmp_path / "copy")


def test_damaged_weights_are_named(copy):
    file = copy / "model-00001-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    assert "damaged" in fails(copy)


def test_missing_weights_are_named(copy):
    (copy / "model-00001-of-00001.safetensors").unlink()
    assert "model-00001-of-00001.safetensors: missing" in fails(copy)


def test_a_foreign_model_is_named(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    assert "BailingMoeV3ForCausalLM" in fails(copy)


def test_no_compiler_says_what_to_install(c_folder, tmp_path):
    line = fails(c_folder, "--kernel-cache", str(tmp_path / "cache"), env={"PATH": str(tmp_path), "CC": ""})
    assert "gcc" in line and "ziglang" in line


def test_labkit_serve_is_the_same_server(c_folder, tmp_path):
    """With --json its ready line is a document; a wrong flag is one line and exit code 2."""
    labkit = [sys.executable, "-m", "labkit.cli", "serve", "--model-path", str(c_folder), "--port", "0"]
    with subprocess.Popen([*labkit, "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = json.loads(next(line for line in process.stdout if line.startswith("{")))
            assert ready["pid"] == process.pid
            assert httpx.get(ready["url"] + "/server_info").json()["engine"] == "pocket"
        finally:
            process.terminate()
    done = subprocess.run([*labkit, "--threads", "9"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("labkit serve: threads: got 9")


def test_flushing_forgets_the_accept_statistics(launch):
    server = launch(*MTP)
    server.post("/generate", {"input_ids": [20], "sampling_params": GREEDY})
    assert server.get("/server_info").json()["internal_states"][0]["avg_spec_accept_length"] >= 1
    assert server.post("/flush_cache", None).status_code == 200
    assert server.get("/server_info").json()["internal_states"][0]["avg_spec_accept_length"] == 0
    server.stop()
