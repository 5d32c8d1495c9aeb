"""One request at a time, in order; a client that hangs up frees the engine."""

import json
import socket
import threading
import time

import httpx
import pytest

LONG = {"input_ids": [20, 30], "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True}}


def metric(server, name: str) -> float:
    lines = [line for line in server.get("/metrics").text.splitlines() if line.startswith(f"sglang:{name}{{")]
    return float(lines[0].split()[-1])


def until(condition, timeout_s: float = 60.0) -> None:
    """Wait until `condition()` holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, "never happened"
        time.sleep(0.005)


@pytest.mark.parametrize(
    "path, body",
    [
        ("/generate", LONG | {"stream": True}),
        ("/generate", LONG),
        ("/v1/completions", {"prompt": [20, 30], "max_tokens": 400, "ignore_eos": True, "stream": True}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "the"}], "max_tokens": 400, "ignore_eos": True},
        ),
    ],
)
def test_hanging_up_frees_the_engine(slow_server, path, body):
    """400 tokens of 0.2 s would hold the engine for longer than `until` waits."""
    before = metric(slow_server, "num_aborted_requests_total")
    document = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(document)}\r\n\r\n"
    url = httpx.URL(slow_server.url)
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head.encode() + document)
        if body.get("stream"):
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        until(lambda: metric(slow_server, "num_running_reqs") == 1)
    until(lambda: metric(slow_server, "num_running_reqs") == 0)
    assert metric(slow_server, "num_aborted_requests_total") == before + 1
    assert slow_server.post("/flush_cache", None).status_code == 200


def test_flush_is_refused_while_a_request_runs(slow_server):
    with httpx.stream("POST", slow_server.url + "/generate", json=LONG | {"stream": True}, timeout=240) as response:
        chunks = response.iter_raw()  # kept: the stream is closed with its iterator
        next(chunks)
        for method in ("GET", "POST"):
            refused = httpx.request(method, slow_server.url + "/flush_cache")
            assert refused.status_code == 400
    until(lambda: httpx.get(slow_server.url + "/flush_cache").status_code == 200)
    assert httpx.get(slow_server.url + "/flush_cache").text.startswith("Cache flushed")


def test_flush_with_a_timeout_waits(slow_server):
    body = {"input_ids": [20], "sampling_params": {"max_new_tokens": 20, "ignore_eos": True}}
    asked = threading.Thread(target=slow_server.post, args=("/generate", body))
    asked.start()
    until(lambda: metric(slow_server, "num_running_reqs") == 1)
    assert httpx.post(slow_server.url + "/flush_cache?timeout=0.05").status_code == 400
    assert httpx.post(slow_server.url + "/flush_cache?timeout=60", timeout=60).status_code == 200
    assert metric(slow_server, "num_running_reqs") == 0
    asked.join(30)
    refused = httpx.post(slow_server.url + "/flush_cache?timeout=soon")
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "timeout"


def test_aborting_ends_the_running_and_the_waiting_request(slow_server):
    """On SGLang a client names its request and another connection can end it."""
    answers = {}

    def ask(rid: str):
        answers[rid] = slow_server.post("/generate", LONG | {"rid": rid}).json()["meta_info"]

    threads = [threading.Thread(target=ask, args=(f"mine-{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: metric(slow_server, "num_running_reqs") + metric(slow_server, "num_queue_reqs") == 2)
    assert slow_server.post("/abort_request", {"rid": "somebody"}).status_code == 200
    assert metric(slow_server, "num_running_reqs") == 1
    assert slow_server.post("/abort_request", {"rid": "mine"}).status_code == 200
    for thread in threads:
        thread.join(30)
    assert {m["finish_reason"]["type"] for m in answers.values()} == {"abort"}
    assert all(m["completion_tokens"] < 400 for m in answers.values())
    assert slow_server.post("/abort_request", {}).json()["error"]["param"] == "rid"


def test_requests_are_served_in_the_order_they_came(slow_server):
    finished, threads = [], []

    def ask(n: int):
        body = {"input_ids": [20 + n], "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}}
        slow_server.post("/generate", body)
        finished.append(n)

    for n in range(6):
        threads.append(threading.Thread(target=ask, args=(n,)))
        threads[-1].start()
        until(
            lambda n=n: (
                len(finished) + metric(slow_server, "num_queue_reqs") + metric(slow_server, "num_running_reqs") >= n + 1
            )
        )
    for thread in threads:
        thread.join(240)
    assert finished == list(range(6))


def test_a_waiting_client_that_leaves_is_forgotten(slow_server):
    with httpx.stream("POST", slow_server.url + "/generate", json=LONG | {"stream": True}, timeout=240) as response:
        chunks = response.iter_raw()  # kept: the stream is closed with its iterator
        next(chunks)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(slow_server.url + "/generate", json=LONG, timeout=0.3)
        until(lambda: metric(slow_server, "num_queue_reqs") == 0)
        assert metric(slow_server, "num_running_reqs") == 1
    until(lambda: metric(slow_server, "num_running_reqs") == 0)


def test_a_full_queue_answers_429(start):
    server = start("--max-queued-requests", "1", env={"POCKET_TEST_STEP_S": "0.2"})
    with httpx.stream("POST", server.url + "/generate", json=LONG | {"stream": True}, timeout=240) as response:
        chunks = response.iter_raw()  # kept: the stream is closed with its iterator
        next(chunks)
        short = LONG | {"sampling_params": {"max_new_tokens": 1}}
        waiting = threading.Thread(target=server.post, args=("/generate", short))
        waiting.start()
        until(lambda: metric(server, "num_queue_reqs") == 1)
        for stream in (False, True):
            refused = server.post("/generate", LONG | {"stream": stream})
            assert refused.status_code == 429 and "queue" in refused.json()["error"]["message"]
    waiting.join(240)
    server.stop()


def test_a_health_check_that_leaves_is_forgotten(slow_server):
    with httpx.stream("POST", slow_server.url + "/generate", json=LONG | {"stream": True}, timeout=240) as response:
        chunks = response.iter_raw()  # kept: the stream is closed with its iterator
        next(chunks)
        with pytest.raises(httpx.TimeoutException):
            slow_server.get("/health_generate", timeout=0.5)
        until(lambda: metric(slow_server, "num_queue_reqs") == 0)
        assert metric(slow_server, "num_running_reqs") == 1
