"""The server as a process: its start, its refusals to start, its end."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from small import drafting

from labkit.pocket.server import _bind
from labkit.pocket.server import main as server_main

SERVER = str(Path(__file__).with_name("reference_engine.py"))
LONG = {
    "input_ids": [20, 30],
    "stream": True,
    "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
}


def fails(*flags: str, env: dict[str, str] | None = None, program=(SERVER,)) -> str:
    """The one line of a start that exits with 2."""
    done = subprocess.run(
        [sys.executable, *program, *flags], capture_output=True, text=True, timeout=240, env=os.environ | (env or {})
    )
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.strip().splitlines()
    return line


def test_sigterm_ends_an_idle_server(start):
    assert start().stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_busy_server_and_its_streams(start, number):
    """A running stream and a waiting request must not hold it."""
    server = start(env={"POCKET_TEST_STEP_S": "0.5"})  # 400 tokens: more than three minutes
    with httpx.stream("POST", server.url + "/generate", json=LONG, timeout=240) as response:
        chunks = response.iter_raw()
        next(chunks)
        answers = []

        def wait_in_line():
            try:
                answers.append(server.post("/generate", LONG).status_code)
            except httpx.HTTPError as e:
                answers.append(type(e))

        waiting = threading.Thread(target=wait_in_line)
        waiting.start()
        while "num_queue_reqs{" not in (said := server.get("/metrics").text) or not re.search(
            r"num_queue_reqs\{.*\} 1", said
        ):
            time.sleep(0.05)
        server.process.send_signal(number)
        assert server.process.wait(90) == 0
        waiting.join(90)
        assert answers and answers[0] != 200
        rest = b"".join(chunks)
    assert rest.rstrip().endswith(b"[DONE]") and b'"abort"' in rest


def test_the_port_is_free_again_at_once(start):
    server = start()
    port = httpx.URL(server.url).port
    server.stop()
    assert httpx.URL(start("--port", str(port)).url).port == port


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_parents_death_ends_it(folder, tmp_path, how):
    log = tmp_path / "log"
    command = [sys.executable, SERVER, "--model-path", str(folder), "--port", "0", "--context-length", "512"]
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "p = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], 'w'), stderr=subprocess.STDOUT)\n"
            "print(p.pid, flush=True)\ntime.sleep(600)",
            str(log),
            *command,
            "--watch-parent",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    server = psutil.Process(int(parent.stdout.readline()))
    try:
        while "ready" not in log.read_text():
            assert server.is_running() and server.status() != psutil.STATUS_ZOMBIE, log.read_text()
            time.sleep(0.05)
        parent.send_signal(how)
        parent.wait(90)
        until = time.monotonic() + 90
        while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, "still there"
            time.sleep(0.02)
    finally:
        parent.kill()
        if server.is_running():
            server.kill()


def test_a_port_in_use_is_named(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = fails("--model-path", str(folder), "--port", str(port))
    assert line.startswith(f"pocket: port: got {port}") and "another program listens" in line


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--port", "99999"], "port: got 99999"),
        (["--host", "203.0.113.9"], "host"),
        (["--colour", "red"], "--colour"),
        (["--moe-runner-backend", "humming"], "moe_runner_backend: got 'humming'; accepted: generic, jit"),
        (["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"], "all three or none"),
        (drafting(tokens=6), "steps + 1"),
        (["--fault", "gremlin"], "bare-head"),
        (["--threads", "64"], "threads"),
        (["--context-length", "0"], "context_length"),
        (["--api-key", "a", "--api-key-env", "B"], "api_key_env"),
        (["--api-key-env", "POCKET_NO_SUCH_VARIABLE"], "printable"),
        (["--max-queued-requests", "0"], "max_queued_requests"),
    ],
)
def test_wrong_flags_are_named(folder, flags, said, capsys):
    """In this process: each of these is found before there is anything to serve."""
    try:
        code = server_main(["--model-path", str(folder), "--port", "0", *flags])
    except SystemExit as e:
        code = e.code
    [line] = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and said in line


def test_an_fp8_head_beside_an_fp32_one_says_why(folder):
    line = fails(
        "--model-path", str(folder), "--port", "0", "--enable-fp32-lm-head", env={"SGLANG_ENABLE_FP8_LM_HEAD": "1"}
    )
    assert "enable_fp32_lm_head" in line and "because" in line


def test_a_missing_model_is_named(tmp_path):
    assert "tokenizer.json" in fails("--model-path", str(tmp_path), "--port", "0")


@pytest.fixture(scope="module")
def locked(start):
    return start("--api-key-env", "POCKET_TEST_KEY", env={"POCKET_TEST_KEY": "s3cret-key"})


def test_a_key_is_asked_for(locked):
    body = {"text": "the", "sampling_params": {"max_new_tokens": 1}}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret-key"}):
        for answer in (locked.post("/generate", body, headers=headers), locked.get("/server_info", headers=headers)):
            assert answer.status_code == 401 and "error" in answer.json()
    headers = {"Authorization": "Bearer s3cret-key"}
    assert locked.post("/generate", body, headers=headers).status_code == 200
    for path in ("/health", "/health_generate", "/metrics"):
        assert locked.get(path).status_code == 200


def test_no_key_is_ever_shown(locked, start):
    headers = {"Authorization": "Bearer s3cret-key"}
    for path in ("/server_info", "/get_server_info", "/model_info", "/metrics", "/v1/models"):
        assert "s3cret" not in locked.get(path, headers=headers).text
    assert "s3cret" not in locked.text()
    for flags in (("--api-key", "s3cret-too"), ("--api-key=s3cret-too",)):
        server = start(*flags)
        shown = server.get("/server_info", headers={"Authorization": "Bearer s3cret-too"})
        assert shown.status_code == 200 and "s3cret" not in shown.text + server.text()
        assert "--api-key" in shown.json()["launch_command"]
        server.stop()


def test_it_listens_on_this_machine_only(server):
    connections = psutil.Process(server.process.pid).net_connections()
    assert {c.laddr.ip for c in connections if c.status == "LISTEN"} == {"127.0.0.1"}


def test_chunks_do_not_wait_for_acknowledgements():
    """asyncio turns Nagle's algorithm off only on sockets that name their protocol, accepted ones inherit it."""
    with _bind("127.0.0.1", 0) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_info(server):
    info = server.get("/server_info").json()
    assert info == {**server.get("/get_server_info").json(), "internal_states": info["internal_states"]}
    assert (info["engine"], info["context_length"], info["moe_runner_backend"]) == ("pocket", 512, "generic")
    assert "last_gen_throughput" in info["internal_states"][0]
    assert "sglang" not in info["engine"].lower() and info["version"]
    assert server.get("/model_info").json()["architectures"] == ["BailingMoeV3ForCausalLM"]


def test_health_generate_makes_one_token(server):
    def generated():
        return float(re.search(r"^sglang:generation_tokens_total\{.*\} (\S+)$", server.get("/metrics").text, re.M)[1])

    before = generated()
    assert server.get("/health_generate").status_code == 200
    assert generated() == before + 1


def test_metrics_are_prometheus_text(server):
    server.post("/generate", {"text": "the", "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}})
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    line = re.compile(r'^(# (HELP|TYPE) sglang:\w+ .+|sglang:\w+\{(le="[^"]+",)?model_name="[^"]+"\} \S+)$')
    assert {f.name for f in text_string_to_metric_families(answer.text)} >= {"sglang:spec_verify_calls"}
    opened = server.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(openmetrics.text_string_to_metric_families(opened.text))) == 14
    assert all(line.match(row) for row in answer.text.splitlines())
    buckets = re.findall(r'^sglang:inter_token_latency_seconds_bucket\{le="([^"]+)",.*\} (\d+)\.0$', answer.text, re.M)
    counts = [int(n) for _, n in buckets]
    assert counts == sorted(counts) and counts[-1] >= 4 and buckets[-1][0] == "+Inf"


def test_the_log_has_a_line_for_each_request_and_proof_lines(server):
    sampling = {"max_new_tokens": 5, "ignore_eos": True}
    server.post("/generate", {"text": "the", "rid": "find-me", "sampling_params": sampling})
    assert re.search(r"request find-me: prompt \d+, output 5, finish length, ttft", server.text())
    assert "Preparing MXFP4 experts for generic backend" in server.text()
