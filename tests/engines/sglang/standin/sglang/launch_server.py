"""A scripted child for tests: prints a recorded SGLang log, then answers HTTP as that server would.

Environment: SCRIPT_LOG (file), SCRIPT_UNTIL (stop after a line that contains this, exit 1), SCRIPT_TPOT_S. It honours
LABKIT_HOLD_FILE and LABKIT_SIMULATE_ACC_LEN_FILE, which in the real SGLang labkit's plugin does.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

READY = "The server is fired up"
DRAFTED = 3


def _option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    accept = 1.0
    busy = 2  # flushes that come while the server still tidies up

    def log_message(self, *_):
        pass

    def _json(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            return self._json({})
        spec = _option("--speculative-algorithm")
        return self._json(
            {
                "version": "0.5.23",
                "model_path": _option("--model-path"),
                "api_key": _option("--api-key", "PLANTED-KEY"),
                "moe_runner_backend": _option("--moe-runner-backend"),
                "enable_fp32_lm_head": "--enable-fp32-lm-head" in sys.argv,
                "speculative_algorithm": "EAGLE" if spec else None,
                "speculative_num_steps": int(_option("--speculative-num-steps", 0)) or None,
                "speculative_num_draft_tokens": int(_option("--speculative-num-draft-tokens", 0)) or None,
                "launch_command": " ".join(sys.argv) + " --api-key PLANTED-KEY",
                "internal_states": [{"avg_spec_accept_length": Handler.accept if spec else None}],
            }
        )

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path.partition("?")[0] == "/flush_cache":
            if Handler.busy:
                Handler.busy -= 1
                return self._json({}, 400)
            path = os.environ.get("LABKIT_SIMULATE_ACC_LEN_FILE")
            if path and os.path.exists(path):
                Handler.accept = max(1.0, float(open(path).read()))
            return self._json({})
        return self._generate(body)

    def _generate(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        wanted, done, rounds = body["sampling_params"]["max_new_tokens"], 0, 0
        spec = "--speculative-algorithm" in sys.argv
        while done < wanted:
            rounds += 1
            step = Handler.accept if spec else 1
            done = min(wanted, max(done + 1, round(rounds * step)))
            time.sleep(float(os.environ.get("SCRIPT_TPOT_S", "0.01")))
            meta = {
                "prompt_tokens": len(body["input_ids"]),
                "completion_tokens": done,
                "cached_tokens": 0,
                "finish_reason": {"type": "length"} if done == wanted else None,
            }
            if spec:
                meta |= {
                    "spec_verify_ct": rounds,
                    "spec_num_proposed_drafts": DRAFTED * rounds,
                    "spec_num_correct_drafts": done - rounds,
                }
            self.wfile.write(b"data: " + json.dumps({"output_ids": [7] * done, "meta_info": meta}).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def main():
    gate = os.environ.get("LABKIT_HOLD_FILE")
    until = os.environ.get("SCRIPT_UNTIL")
    server = None
    for line in open(os.environ["SCRIPT_LOG"], encoding="utf-8"):
        if "Init parallel begin" in line:
            for process in ("scheduler", "detokenizer") if gate else ():
                open(f"{gate}.held.{process}", "w").close()
            while gate and not os.path.exists(gate):
                time.sleep(0.02)
        if "Uvicorn running" in line:
            server = ThreadingHTTPServer(("127.0.0.1", int(_option("--port"))), Handler)
        print(line, end="", flush=True)
        if until and until in line:
            return 1
        if READY in line:
            break
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
