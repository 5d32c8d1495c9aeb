"""`labkit bench` on servers of every dialect, each a small server of its own that streams in the shape that the engine
documents: what it reports is measured or counted, what it does not report is said to be so."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from served import served

from labkit.cli import main as labkit
from labkit.engines import survey

TOKENS = 16


class Server(BaseHTTPRequestHandler):
    """kind: what it is; the class is made anew for each server, so `drafts` is its own count of verify rounds."""

    protocol_version = "HTTP/1.1"
    kind = ""
    drafts = 0
    asked: list
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def _send(self, document, status=200):
        body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        owner = {"vllm": "vllm", "tensorrt-llm": "tensorrt_llm", "ollama": "library"}.get(self.kind, "somebody")
        documents = {"/v1/models": {"object": "list", "data": [{"id": "org/m", "object": "model", "owned_by": owner}]}}
        if self.kind == "vllm":
            n = TOKENS * self.drafts // 5
            documents["/version"] = {"version": "0.14.0"}
            documents["/metrics"] = (
                f'vllm:generation_tokens_total{{engine="0"}} {n}.0\n'
                f'vllm:spec_decode_num_drafts_total{{engine="0"}} {self.drafts}.0\n'
                f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {3 * self.drafts}.0\n'
                f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {2 * self.drafts}.0\n'
            )
        elif self.kind == "tensorrt-llm":
            documents["/version"] = {"version": "1.2.0"}
        elif self.kind == "ollama":
            documents |= {"/api/version": {"version": "0.15.1"}, "/api/tags": {"models": [{"name": "m"}]}}
            documents["/"] = "Ollama is running"
        elif self.kind == "lmstudio":
            documents["/api/v0/models"] = {"data": [{"id": "org/m", "state": "loaded", "publisher": "org"}]}
        found = documents.get(self.path)
        self._send(*(({"error": "not found"}, 404) if found is None else (found,)))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        chat = self.path == "/v1/chat/completions"
        if not chat and (self.path != "/v1/completions" or self.kind == "chat-only"):
            return self._send({"error": {"message": "not found"}}, 404)
        if asked == {}:
            asked = {"model": "any"}
        if "model" not in asked:
            return self._send({"error": {"message": "model is required"}}, 400)
        assert isinstance(asked, dict)
        type(self).asked.append((self.path, asked))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(TOKENS):
            time.sleep(0.002)
            said = {"delta": {"content": f"w{i} "}} if chat else {"text": f"w{i} "}
            event = {"object": "x", "choices": [{"index": 0, **said, "finish_reason": None}]}
            if i == TOKENS - 1:
                event["choices"][0]["finish_reason"] = "length"
            if asked.get("stream_options", {}).get("continuous_usage_stats"):
                event["usage"] = {"prompt_tokens": 9, "completion_tokens": i + 1}
            self._event(event)
        with self.lock:
            type(self).drafts += 5  # 5 rounds of 3 drafts, 2 accepted: 15 tokens after the prompt's own
        usage = {"prompt_tokens": 9, "completion_tokens": TOKENS, "total_tokens": 9 + TOKENS}
        if self.kind == "vllm":
            usage["prompt_tokens_details"] = {"cached_tokens": 0}
        self._event({"object": "x", "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, document):
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        self.wfile.flush()


@contextmanager
def serving(kind: str):
    handler = type("Handler", (Server,), {"kind": kind, "asked": [], "drafts": 0})
    with served(handler) as server:
        yield server.url, handler


def bench(url, tmp_path, capsys, *flags):
    plan = ["--count", "1", "--repeats", "3", "--warmup", "0", "--output-tokens", str(TOKENS), "--workload", "code"]
    code = labkit(["bench", "--url", url, "--json", "--out", str(tmp_path), *plan, *flags])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["vllm", "tensorrt-llm", "ollama", "lmstudio", "unknown", "chat-only"])
def test_bench(kind, tmp_path, capsys):
    with serving(kind) as (url, server):
        code, told = bench(url, tmp_path, capsys)
    assert code == 0, told
    assert told["engine"] == ("unknown" if kind == "chat-only" else kind)
    assert told["tpot_s"]["median"] > 0.002 and told["ttft_s"]["median"] > 0.002
    assert told["dialect"].endswith("/v1/chat/completions" if kind == "chat-only" else "/v1/completions")
    assert {path for path, _ in server.asked} == {told["dialect"].split()[-1]}
    missing = " ".join(told["not_reported"])
    if kind == "vllm":  # by the counters before and after each request
        assert told["accept_length"]["median"] == pytest.approx(3.0) and "accept length" not in missing
    else:
        assert told["accept_length"] is None and "accept length" in missing
    extras = kind in ("vllm", "tensorrt-llm")
    assert all(a.get("ignore_eos", False) == extras for _, a in server.asked)
    assert ("fixed output length" in missing) != extras
    # What came from the prefix cache is told by vLLM alone; elsewhere it is a doubt, never an assumed 0.
    assert any("its cache" in w for w in told["warnings"]) == (kind != "vllm")


@pytest.mark.parametrize("kind", ["unknown", "chat-only"])
def test_looking_generates_nothing(kind):
    """llama-cpp-python answers an empty request with a text of any length."""
    with serving(kind) as (url, server):
        survey.look(url)
    assert not server.asked


def test_a_server_of_chat_messages_alone_is_not_sent_token_ids(tmp_path, capsys):
    with serving("chat-only") as (url, server):
        code, told = bench(url, tmp_path, capsys, "--workload", "synthetic", "--prompt-tokens", "64")
    assert code == 2 and not server.asked
