"""The load tool's whole run: a scripted tool that calls back as the real one does, a scripted server for our client."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler

import pytest
from served import served
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks import loadtool
from labkit.errors import LabError

TOOL = """
import json, subprocess, sys
value = lambda name: sys.argv[sys.argv.index(name) + 1]
for _ in range(int(value("--runs")) + CALLS):      # the real tool calls back after its warm-up too
    subprocess.run(value("--post-run-cmd"), shell=True, check=True)
speeds = {"values": [50.0] * int(value("--runs"))}
json.dump({"benchmarks": [{"tg_req_throughput": speeds}]}, open(value("--save-result"), "w"))
"""


class Generates(BaseHTTPRequestHandler):
    """/generate: 8 tokens, the first request's 60 ms apart, the others' 20 ms."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        gap = 0.06 if len(self.server.asked) == 1 else 0.02
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for count in range(1, 9):
            meta = {
                "prompt_tokens": 4,
                "completion_tokens": count,
                "cached_tokens": 0,
                "finish_reason": {"type": "length"} if count == 8 else None,
            }
            self.wfile.write(b"data: " + json.dumps({"text": "x" * count, "meta_info": meta}).encode() + b"\n\n")
            self.wfile.flush()
            self.server.until_read(self.connection)
            time.sleep(gap)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(until_read):
    with served(Generates, until_read=until_read, asked=[]) as running:
        yield running


@pytest.fixture
def model(tmp_path):
    words = sorted(set(loadtool.SENTENCE.split()))
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def run(server, model, tmp_path, calls):
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\n{TOOL.replace('CALLS', str(calls))}")
    tool.chmod(0o755)
    args = [
        "--tool",
        str(tool),
        "--model",
        str(model),
        "--url",
        f"http://127.0.0.1:{server.server_address[1]}",
        "--rounds",
        "2",
        "--prompt-tokens",
        "8",
        "--output-tokens",
        "8",
    ]
    return loadtool.main(loadtool.parser().parse_args(args))


def test_warm_up_is_left_out_and_rounds_pair(server, model, tmp_path):
    result = run(server, model, tmp_path, 1)
    assert len(server.asked) == 3 and all(ask["text"] == server.asked[0]["text"] for ask in server.asked)
    assert len(server.asked[0]["text"].split()) == 8
    assert server.asked[0]["sampling_params"] == {"temperature": 0, "ignore_eos": True, "max_new_tokens": 8}
    pair = result["tpot"]
    assert pair["theirs"] == [0.02, 0.02]
    # a sleep is never short, so neither figure can be below its gap; the warm-up's 60 ms are not among them
    assert len(pair["ours"]) == 2 and min(pair["ours"]) >= 0.019
    assert result["agree"] == (abs(pair["ratio_theirs_over_ours"] - 1) <= 0.02)


def test_missing_call_backs_are_no_result(server, model, tmp_path):
    with pytest.raises(LabError, match="2 results and 2 call-backs for 2 rounds"):
        run(server, model, tmp_path, 0)
