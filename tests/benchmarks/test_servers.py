import io
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from served import served

from benchmarks import servers
from labkit.errors import LabError


def test_tpot_counts_tokens_not_events():
    # 2 tokens in the first event, 7 in all, 1.5 s apart: five tokens took that time
    assert servers.tpot("x", [(10.0, 2), (11.0, 5), (11.5, 7)], 7) == pytest.approx(0.3)


@pytest.mark.parametrize("arrivals, tokens", [([], 4), ([(0.0, 4)], 4), ([(0.0, 1), (1.0, 3)], 4)])
def test_a_short_or_lumped_answer_is_no_figure(arrivals, tokens):
    with pytest.raises(LabError):
        servers.tpot("x", arrivals, tokens)


def test_arrivals_skip_the_closing_event():
    lines = (
        b'data: {"content":" a","stop":false,"tokens_predicted":1}\n\n'
        b'data: {"content":" b","stop":false,"tokens_predicted":2}\n\n'
        b'data: {"content":"","stop":true,"tokens_predicted":2,"generation_settings":{"stream":true}}\n\n'
    )
    assert [tokens for _, tokens in servers._arrivals(io.BytesIO(lines))] == [1, 2]


def child(text):
    return [sys.executable, "-u", "-c", text]


def test_a_server_is_awaited_and_ended(tmp_path):
    code = "import os,time; time.sleep(0.2); print('listening on http pid', os.getpid()); time.sleep(600)"
    with servers.process("it", child(code), {}, tmp_path / "log", r"pid (\d+)\n") as found:
        pid = int(found[1])
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_ends_early_says_its_last_line(tmp_path):
    code = "print('loading'); print('error: no such file'); raise SystemExit(3)"
    with pytest.raises(LabError, match="it: ended: error: no such file"):
        with servers.process("it", child(code), {}, tmp_path / "log", "never"):
            pass


def test_a_program_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(LabError, match="does not start"):
        with servers.process("it", [str(tmp_path / "nothing")], {}, tmp_path / "log", "never"):
            pass


class Recorded(BaseHTTPRequestHandler):
    """Streams three tokens 50 ms apart, the way llama-server frames them; answers 400 to a prompt [400]."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["prompt"] == [400]:
            self.send_error(400, "bad prompt")
            return
        self.server.asked = asked
        self.send_response(200)
        self.end_headers()
        for count in (1, 2, 3):
            self.wfile.write(b'data: {"content":"x","stop":false,"tokens_predicted":%d}\n\n' % count)
            self.wfile.flush()
            self.server.until_read(self.connection)
            time.sleep(0.05)
        self.wfile.write(b'data: {"content":"","stop":true,"tokens_predicted":3}\n\n')

    def log_message(self, *_):
        pass


@pytest.fixture
def recorded(until_read):
    with served(Recorded, kind=HTTPServer, until_read=until_read) as server:
        yield server


def test_llama_tpot_asks_for_plain_greedy_decoding(recorded):
    figure = servers.llama_tpot(f"http://127.0.0.1:{recorded.server_address[1]}", [5, 6], 3)
    assert figure >= 0.045  # two gaps of 50 ms slept after each event was read; a busy machine only adds
    asked = recorded.asked
    assert asked["prompt"] == [5, 6] and asked["n_predict"] == 3 and asked["temperature"] == 0
    assert asked["ignore_eos"] is True and asked["cache_prompt"] is False


def test_llama_errors_carry_the_status(recorded):
    with pytest.raises(LabError, match="HTTP 400"):
        servers.llama_tpot(f"http://127.0.0.1:{recorded.server_address[1]}", [400], 3)
