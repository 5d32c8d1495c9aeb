"""Whatever a client sends: a plain answer below 500, the field named, nothing left behind."""

import json
import math
import re
import socket

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.pocket.protocol.job import OFF
from labkit.pocket.protocol.native import OFF_GENERATE
from labkit.pocket.protocol.openai import OFF_OPENAI

GENERATION = ("/generate", "/v1/completions", "/v1/chat/completions")


def refused(server, path: str, body, status: int = 400) -> dict:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = server.client.post(path, content=content)
    assert answer.status_code == status, answer.text
    error = answer.json() if path.startswith("/v1/") else answer.json()["error"]
    assert error["code"] == status and error["message"]
    assert not path.startswith("/v1/") or error["object"] == "error"
    return error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"text": "\\ud800"}',
        b"{'text': 'x'}",
        b'{"text": 1' + b"0" * 5000 + b"}",
        b'{"text": "x"} {}',
    ],
)
@pytest.mark.parametrize("path", GENERATION)
def test_malformed_bodies(server, path, body):
    assert refused(server, path, body)["param"] in ("body", "text")


@pytest.mark.parametrize(
    "field, value",
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("temperature", 10**400),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", 0),
        ("top_k", 2.5),
        ("top_k", -2),
        ("min_p", 2),
        ("max_new_tokens", -1),
        ("max_new_tokens", 10**30),
        ("max_new_tokens", 512),
        ("max_new_tokens", "many"),
        ("ignore_eos", 1),
        ("stop", 7),
        ("stop", [7]),
        ("stop", ["x"] * 33),
        ("stop_token_ids", [320]),
        ("stop_token_ids", 3),
        ("sampling_seed", -1),
        ("skip_special_tokens", "no"),
        ("presence_penalty", 0.5),
        ("n", 65),
        ("regex", "a(+"),
        ("json_schema", "{"),
        ("json_schema", '{"type": "objec"}'),
        ("min_new_tokens", 4),
        ("tempreature", 1),
        ("logit_bias", {"3": 1.0}),
    ],
)
def test_a_sampling_parameter_is_named(server, field, value):
    error = refused(server, "/generate", {"text": "the", "sampling_params": {field: value}})
    assert error["param"] == f"sampling_params.{field}" and field in error["message"]


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "text, input_ids"),
        ({"text": "a", "input_ids": [1]}, "text, input_ids"),
        ({"text": ["a", 3]}, "text"),
        ({"text": []}, "text"),
        ({"text": ""}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[1], 2]}, "input_ids"),
        ({"text": ["a", "b"], "rid": ["c"]}, "rid"),
        ({"input_ids": [320]}, "input_ids"),
        ({"input_ids": [-1]}, "input_ids"),
        ({"input_ids": [True]}, "input_ids"),
        ({"input_ids": [1] * 512}, "input_ids"),
        ({"text": "the words " * 600}, "text"),
        ({"text": "a", "stream": "yes"}, "stream"),
        ({"text": "a", "sampling_params": [1]}, "sampling_params"),
        ({"text": "a", "colour": 1}, "colour"),
        ({"text": "a", "return_logprob": 1}, "return_logprob"),
        ({"text": "a", "return_logprob": True, "logprob_start_len": 9}, "logprob_start_len"),
        ({"text": "a", "return_hidden_states": True}, "return_hidden_states"),
        ({"text": "a", "rid": 5}, "rid"),
    ],
)
def test_a_field_of_generate_is_named(server, body, field):
    assert refused(server, "/generate", body)["param"] == field


def test_long_prompts_say_how_long(server):
    message = refused(server, "/generate", {"text": "the words " * 5000})["message"]
    assert "tokens" in message and "context_length is 512" in message


def test_null_is_the_default(server):
    sampling = dict.fromkeys(("temperature", "top_p", "top_k", "stop", "frequency_penalty", "regex"))
    answer = server.post("/generate", {"text": "the", "sampling_params": sampling | {"max_new_tokens": 1}})
    assert answer.status_code == 200


def test_a_body_that_is_too_large(server):
    assert refused(server, "/generate", b" " * (5 * 2**20))["param"] == "body"

    def endless():
        for _ in range(90):
            yield b" " * 65536

    try:
        answer = httpx.post(server.url + "/generate", content=endless(), timeout=240)
        assert answer.status_code == 400
    except httpx.WriteError:
        pass  # the server answered and closed before we had sent it all
    assert server.get("/health").status_code == 200


@pytest.mark.parametrize(
    "method, path, status",
    [("GET", "/generate", 405), ("DELETE", "/generate", 405), ("GET", "/nowhere", 404), ("POST", "/health", 405)],
)
def test_wrong_address_or_method(server, method, path, status):
    answer = httpx.request(method, server.url + path)
    assert answer.status_code == status and answer.json()["error"]["code"] == status


# ---------------------------------------------------------------- whatever hypothesis thinks of

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SAMPLING = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "sampling_seed",
    "n",
    "skip_special_tokens",
    "no_stop_trim",
    *OFF,
    "regex",
    "json_schema",
    "stream_interval",
]
FIELDS = {
    "/generate": ["text", "input_ids", "stream", "rid", "return_logprob", "top_logprobs_num", *OFF_GENERATE],
    "/v1/completions": [
        *("prompt", "stream", "model", "stream_options", "seed", "user", "echo", "logprobs", "response_format"),
        *SAMPLING,
        *OFF_OPENAI,
    ],
    "/v1/chat/completions": [
        *("messages", "stream", "model", "stream_options", "max_completion_tokens", "logprobs", "top_logprobs"),
        *("tools", "tool_choice", "response_format", "chat_template_kwargs", "modalities"),
        *SAMPLING,
    ],
}
VALID = {
    "/generate": {"input_ids": [20]},
    "/v1/completions": {"prompt": "the"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "the"}]},
}
LENGTH = {"/v1/completions": "max_tokens", "/v1/chat/completions": "max_tokens"}


@st.composite
def requests(draw) -> tuple[str, bytes]:
    """A path and a body: mostly nearly right documents, some of them damaged JSON, some plain bytes."""
    path = draw(st.sampled_from(GENERATION))
    if draw(st.integers(0, 9)) == 0:
        return path, draw(st.binary(max_size=60))
    body = dict(VALID[path])
    body.update(draw(st.dictionaries(st.sampled_from(FIELDS[path]) | st.text(max_size=6), values, max_size=3)))
    if path == "/generate":
        sampling = draw(st.dictionaries(st.sampled_from(SAMPLING), values, max_size=3))
        body["sampling_params"] = draw(st.sampled_from([sampling | {"max_new_tokens": 2}] * 9 + [draw(values)]))
    else:
        body[LENGTH[path]] = 2
    content = json.dumps(body).encode()
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=4)) + content[at + draw(st.integers(0, 4)) :]
    return path, content


def send_and_check(client: httpx.Client, path: str, content: bytes) -> int:
    answer = client.post(path, content=content)
    assert answer.status_code in (200, 400), (answer.status_code, answer.text, content)
    if answer.status_code == 400:
        told = answer.json()
        assert told.get("error", told)["param"] is not None, content
    return answer.status_code


def held(server) -> tuple[int, int]:
    """Resident bytes and open descriptors of the server."""
    process = psutil.Process(server.process.pid)
    return process.memory_info().rss, process.num_fds()


@settings(max_examples=300)
@given(requests())
def test_no_request_breaks_the_server(plain, request):
    send_and_check(plain.client, *request)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_requests_break_nothing_and_leave_nothing(launch):
    server = launch()
    seen: list[int] = []
    before: list[tuple[int, int]] = []

    @settings(max_examples=10_000, database=None, suppress_health_check=list(HealthCheck))
    @given(requests())
    def fuzz(request):
        seen.append(send_and_check(server.client, *request))
        if len(seen) == 500:
            before.append(held(server))

    fuzz()
    assert len(seen) >= 10_000 and set(seen) == {200, 400}
    memory, descriptors = held(server)
    assert memory - before[0][0] < 64 * 2**20
    assert descriptors - before[0][1] <= 4
    assert server.post("/flush_cache", None).status_code == 200  # nothing runs, nothing waits
    assert server.stop() == 0


# ---------------------------------------------------------------- not even HTTP

RAW = [
    b"\x00\xff" * 50,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /generate HTTP/1.1\r\n\r\n",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nContent-Length: 20\r\n\r\n{}",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /generate HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /generate HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
]


@pytest.mark.parametrize("data", RAW)
def test_raw_bytes(plain, data):
    """Each gets an answer below 500 or a closed connection, and the server serves on."""
    url = httpx.URL(plain.url)
    with socket.create_connection((url.host, url.port), timeout=240) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := connection.recv(4096):
                answer += piece
        except ConnectionResetError:
            pass
    for status in re.findall(rb"HTTP/1\.1 (\d{3})", answer):
        assert int(status) < 500
    assert plain.get("/health").status_code == 200
    assert plain.post("/flush_cache", None).status_code == 200


def test_half_a_request_holds_nobody_up(plain):
    url = httpx.URL(plain.url)
    with socket.create_connection((url.host, url.port)) as stuck:
        stuck.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        answer = plain.post("/generate", {"input_ids": [20], "sampling_params": {"max_new_tokens": 1}})
        assert answer.status_code == 200
