"""The streaming client against bytes as servers really cut them."""

import json
import shutil
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.engines import dialects, http
from labkit.errors import BadInput, LabError
from labkit.measure import client, doubts


def test_tokens_come_from_completion_tokens_never_from_chunks(server, wire):
    spec = {
        "spec_verify_ct": 4,
        "spec_num_correct_drafts": 7,
        "spec_num_proposed_drafts": 12,
        "spec_correct_drafts_histogram": [0, 1, 2, 1],
    }
    events = [wire.event(1), wire.event(5), wire.event(5), wire.event(8), wire.event(12, finish="length", **spec)]
    server.script = [wire.stream(*events)]
    r = client.generate(server.url, text="hello")
    assert (r.output_tokens, r.chunk_tokens) == (12, [1, 5, 8, 12])
    assert (r.prompt_tokens, r.cached_tokens, r.finish_reason) == (7, 0, "length")
    assert r.accept_length == 12 / 4
    assert (r.verify_ct, r.correct_drafts, r.proposed_drafts, r.histogram) == (4, 7, 12, [0, 1, 2, 1])
    assert r.output_ids == list(range(12))


def test_times_follow_the_definitions(server, wire):
    """TTFT is the first event with a token, even when it has no text; latency the last one with a new token."""
    server.script = [
        wire.head,
        0.15,
        wire.chunk(wire.event(1, text="")),
        0.1,
        wire.chunk(wire.event(3)),
        0.1,
        wire.chunk(wire.event(5)),
        0.3,
        wire.chunk(wire.event(5, finish="length")),
        wire.end,
    ]
    seen = []
    r = client.generate(server.url, text="x", on_chunk=lambda s, n: seen.append((s, n)))
    assert r.ttft_s >= 0.15 and r.ttft_s == r.chunk_times[0]
    # The late final event brings no token, so it is not the end of the last token's time.
    assert r.latency_s == r.chunk_times[-1] and len(r.chunk_times) == 3
    assert r.tpot_s == pytest.approx((r.latency_s - r.ttft_s) / 4)
    assert seen == list(zip(r.chunk_times, [1, 3, 5], strict=True))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, 700), max_size=12))
def test_any_cutting_of_the_bytes_gives_the_same_answer(server, wire, cuts):
    text = 'a "quoted" word, a \\ and "completion_tokens": 999\n\nblank line\r\n'
    events = [wire.event(1, text=text), wire.event(4, text=text * 2), wire.event(6, text=text * 2, finish="stop")]
    whole = wire.stream(*events)
    at = [0, *sorted(c for c in cuts if c < len(whole)), len(whole)]
    server.script = [whole[a:b] for a, b in zip(at, at[1:], strict=False)]
    r = client.generate(server.url, text="x")
    assert (r.output_tokens, r.chunk_tokens, r.text, r.finish_reason) == (6, [1, 4, 6], text * 2, "stop")


def test_stream_without_chunked_encoding_and_with_crlf_events(server, wire):
    events = [wire.event(1), wire.event(2, finish="length")]
    body = b"".join(e.replace(b"\n\n", b"\r\n\r\n") for e in events)
    server.script = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body]
    assert client.generate(server.url, text="x").chunk_tokens == [1, 2]


def test_what_is_sent(server, wire):
    server.script = [wire.stream(wire.event(1, finish="length"))]
    client.generate(server.url, input_ids=[5, 6], sampling={"temperature": 0.0}, api_key="k1")
    assert server.asked() == [{"input_ids": [5, 6], "sampling_params": {"temperature": 0.0}, "stream": True}]
    assert b"Authorization: Bearer k1\r\n" in server.requests[0][1] + b"\r\n"


def test_cancel_closes_the_connection_in_mid_request(server, wire):
    late, release = wire.chunk(wire.event(3)), threading.Event()  # the server says no more before the client has left
    server.script = [wire.head, wire.chunk(wire.event(1)), wire.chunk(wire.event(2)), release.wait, late, 0.1, late]
    cancel = threading.Event()
    with pytest.raises(client.Cancelled) as stopped:
        client.generate(server.url, text="x", cancel=cancel, on_chunk=lambda s, n: n == 2 and cancel.set())
    assert stopped.value.partial.chunk_tokens == [1, 2]
    release.set()
    assert server.hung_up.wait(60)


def test_cancel_before_the_answer_begins(server):
    cancel, release = threading.Event(), threading.Event()
    server.script = [cancel.set, release.wait]  # asked, and silent from then on
    with pytest.raises(client.Cancelled):
        client.generate(server.url, text="x", cancel=cancel)
    release.set()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (lambda w: [w.plain(b'{"error": {"message": "temperature: got -1"}}', 400)], "HTTP 400.*temperature: got -1"),
        (lambda w: [w.stream(w.event(1), w.event(2))], "broke off after 2 tokens"),
        (lambda w: [w.head + w.chunk(w.event(1))[:-40]], "connection lost in the middle of the stream"),
        (lambda w: [w.stream(b'data: {"error": {"message": "out of memory"}}\n\n')], "engine failed: out of memory"),
        (lambda w: [w.stream(b"data: oops\n\n")], "not JSON: oops"),
        (lambda w: [w.stream()], "without a token"),
        (lambda w: [b""], "without an answer|connection lost"),
        (lambda w: [b"SSH-2.0-OpenSSH\r\n\r\n"], "not an HTTP answer"),
    ],
)
def test_failures_say_what_happened(server, wire, script, says):
    server.script = script(wire)
    with pytest.raises(client.RequestError, match=says):
        client.generate(server.url, text="x", timeout_s=60)


def test_a_silent_server_is_given_up(server, wire):
    release = threading.Event()
    server.script = [wire.head, release.wait]
    with pytest.raises(client.RequestError, match="silent for 0.5 s"):
        client.generate(server.url, text="x", timeout_s=0.5)
    release.set()


def test_nobody_there():
    with pytest.raises(client.RequestError, match="no answer from http://127.0.0.1:9"):
        client.generate("http://127.0.0.1:9", text="x")


@pytest.mark.parametrize(
    "arguments",
    [{"url": "ftp://x", "text": "a"}, {"url": "http://x"}, {"url": "http://x", "text": "a", "input_ids": [1]}],
)
def test_bad_arguments(arguments):
    with pytest.raises(BadInput):
        client.generate(arguments.pop("url"), **arguments)


def test_one_token_has_no_tpot(server, wire):
    server.script = [wire.stream(wire.event(1, finish="length"))]
    r = client.generate(server.url, text="x")
    assert r.tpot_s is None and r.ttft_s == r.latency_s


def test_get_json_and_flush(server):
    assert client.get_json(server.url, "/server_info")["version"] == "9.9"
    assert client.flush(server.url) == 200
    server.flush_status = 302
    began = time.monotonic()
    assert client.flush(server.url) == 302 and time.monotonic() - began < client.FLUSH_WAIT_S  # waiting changes nothing
    server.flush_status = 400
    assert client.flush(server.url) == 400


OPENAI = dialects.openai("m", chat=True)


def delta(finish=None, **said) -> bytes:
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


def usage(n: int, **more) -> bytes:
    told = {"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5 + n} | more
    return b"data: " + json.dumps({"choices": [], "usage": told}).encode() + b"\n\n"


WORDS = [delta(content=f"w{i} ") for i in range(8)]
NO_USAGE = b'data: {"choices": [{"index": 0, "delta": {"content": "w "}, "finish_reason": null}], "usage": null}\n\n'
DONE = b"data: [DONE]\n\n"
# What servers send that nobody here wrote: (events, tokens in the answer, text)
SOUND = {
    "a role alone first": ([delta(role="assistant", content=""), *WORDS, delta("length"), usage(8), DONE], 8),
    "a role and null": ([delta(role="assistant", content=None), *WORDS, delta("length"), usage(8), DONE], 8),
    "no choices first": (
        [b'data: {"choices": [], "prompt_filter_results": []}\n\n', *WORDS, delta("stop"), usage(8)],
        8,
    ),
    "usage null until the end": ([*[NO_USAGE] * 8, delta("length"), usage(8), DONE], 8),
    "error null in each": (
        [w.replace(b'{"object"', b'{"error": null, "object"') for w in WORDS] + [delta("stop"), usage(8)],
        8,
    ),
    "no [DONE]": ([*WORDS, delta("length"), usage(8)], 8),
    "no finish reason, but [DONE]": ([*WORDS, usage(8), DONE], 8),
    "usage in the last chunk of choices": (
        [*WORDS, delta("length")[:-3] + b', "usage": {"prompt_tokens": 5, "completion_tokens": 8}}\n\n', DONE],
        8,
    ),
    "comments to keep it alive": (
        [b": ping\n\n", *[e for w in WORDS for e in (w, b":\n\n")], delta("stop"), usage(8), DONE],
        8,
    ),
    "CR LF": ([e.replace(b"\n\n", b"\r\n\r\n") for e in (*WORDS, delta("length"), usage(8), DONE)], 8),
    "reasoning first": (
        [delta(reasoning_content="w0 "), delta(reasoning="w1 "), *WORDS[2:], delta("stop"), usage(8), DONE],
        8,
    ),
    "an end token without text": ([*WORDS * 4, delta("stop"), usage(33), DONE], 33),
    "a null choice": ([b'data: {"choices": [null], "usage": null}\n\n', *WORDS, delta("stop"), usage(8), DONE], 8),
    "a null delta": ([b'data: {"choices": [{"delta": null}]}\n\n', *WORDS, delta("stop"), usage(8), DONE], 8),
}


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_streams_of_servers_that_nobody_here_wrote(server, wire, kind, cut):
    """Any framing, cut anywhere: the same tokens and text."""
    events, n = SOUND[kind]
    body = b"".join(events).replace(b"w3", "w\u00e93".encode())
    server.script = [wire.head, *(wire.chunk(body[i : i + cut]) for i in range(0, len(body), cut)), wire.end]
    r = client.generate(server.url, text="x", sampling={"max_new_tokens": 64}, dialect=OPENAI)
    assert (r.output_tokens, r.first_tokens, r.prompt_tokens) == (n, 1, 5)
    assert r.decode_tokens == n - 1 and len(r.chunk_times) == len(r.text.split()) in (n, n - 1)
    if kind != "usage null until the end":
        assert "w\u00e93" in r.text


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            lambda w: [w.stream(*WORDS, b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')],
            "out of memory",
        ),
        (lambda w: [w.stream(*WORDS, b"event: error\ndata: out of memory\n\n")], "out of memory"),
        (
            lambda w: [w.head, w.chunk(b"".join(WORDS)), w.chunk(b'error: {"message": "out of memory"}\n\n'), w.end],
            "out of memory",
        ),
        (lambda w: [w.head, *map(w.chunk, WORDS), w.end], "broke off"),
        (lambda w: [w.plain(b"slow down", 429)], "HTTP 429: slow down"),
        (
            lambda w: [b"HTTP/1.1 308 X\r\nLocation: https://elsewhere/v1\r\nContent-Length: 0\r\n\r\n"],
            "redirects to https://elsewhere/v1: give the address",
        ),
        (
            lambda w: [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"],
            "compressed answer .gzip., unasked for",
        ),
    ],
)
def test_failures_of_such_servers_keep_their_cause(server, wire, script, says):
    server.script = script(wire)
    with pytest.raises(client.RequestError, match=says):
        client.generate(server.url, text="x", sampling={"max_new_tokens": 64}, dialect=OPENAI, timeout_s=60)


@pytest.mark.parametrize("lost", [0, 1, 20])
def test_a_server_that_sends_no_count_but_stops_at_the_limit(server, wire, lost):
    """llama-cpp-python's streams have no usage. Events that carry two tokens are few, or there is no time per token."""
    server.script = [wire.stream(*(WORDS * 5)[lost:], delta("length"))]
    r = client.generate(server.url, text="x", sampling={"max_new_tokens": 40}, dialect=OPENAI)
    assert r.counts == {"events": 40 - lost, "limit": 40} and r.output_tokens == 40 and r.merged == (lost == 1)
    found = {d.kind for d in doubts.of(r, doubts.Asked(40))}
    assert "counted by the limit" in found and ("first event unknown" in found) == (r.tpot_s is None) == (lost == 20)
    server.script = [wire.stream(*WORDS, delta("stop"))]
    r = client.generate(server.url, text="x", sampling={"max_new_tokens": 40}, dialect=OPENAI)
    assert r.output_tokens == 0 and "no token count" in {d.kind for d in doubts.of(r, doubts.Asked(40))}


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_says_when_is_asked_again_then(server, wire, status):
    """The time is that of the request that was taken up."""
    turns = [b"HTTP/1.1 %d X\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy" % status]

    def answer():
        server.script[1:] = [] if turns else [wire.stream(wire.event(1), wire.event(2, finish="length"))]
        if turns:
            server.script.append(turns.pop())

    server.script = [answer]
    began = time.monotonic()
    r = client.generate(server.url, text="x")
    assert r.output_tokens == 2 and time.monotonic() - began >= 1 > r.latency_s
    assert 1 <= r.put_off_s <= time.monotonic() - began
    assert len(server.asked()) == 2


def test_it_is_not_waited_for_longer_than_the_limit(server):
    server.script = [b"HTTP/1.1 429 X\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n"]
    with pytest.raises(client.RequestError, match="HTTP 429"):
        client.generate(server.url, text="x")


@pytest.fixture(scope="module")
def own_authority(tmp_path_factory):
    """(url of a server over TLS, file of the certificate that it is signed with): an authority that nobody knows."""
    import ssl
    import subprocess
    from http.server import BaseHTTPRequestHandler

    from served import served

    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = [*made.split(), "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with served(Handler, tls=context) as listening:
        yield listening.url, folder / "cert.pem"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
@pytest.mark.parametrize("ask", [client.get_json, http.get_json])
def test_an_authority_of_ones_own_is_named_by_a_variable(own_authority, ask, monkeypatch):
    url, certificate = own_authority
    with pytest.raises(LabError, match="SSL_CERT_FILE"):
        ask(url, "/v1/models")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert ask(url, "/v1/models") == {}
