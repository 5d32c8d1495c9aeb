"""Small servers whose truth is known: no model, SGLang's routes, and one fault at a time that a check must catch.

They stand in for engines only where the checks are put to the test (`labkit selfcheck`, tests); nothing that they say
is ever a measurement of an engine.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import urlsplit

INFO = {
    "version": "0.5.23",
    "model_path": "made-up",
    "tokenizer_path": "made-up",
    "served_model_name": "made-up",
    "load_format": "auto",
    "moe_runner_backend": "humming",
    "enable_fp32_lm_head": False,
    "disable_cuda_graph": False,
    "disable_radix_cache": False,
    "context_length": 4096,
    "max_total_num_tokens": 100000,
    "speculative_algorithm": None,
    "speculative_num_steps": None,
    "speculative_eagle_topk": None,
    "speculative_num_draft_tokens": None,
    "internal_states": [{}],
}
DRAFTS = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


@dataclass
class Script:
    """How a server behaves. All times in seconds.

    accepted       drafts accepted in successive rounds, repeated; None: no drafting. steps: draft steps by request
    first          tokens of the first event; incremental: events hold only what is new
    framing        "plain", "named", "ids", "pings", "crlf"
    told           completion_tokens told when n are out; ids: whether output_ids are sent
    longest        no answer is longer, whatever is asked; extra: prompt tokens added on the way; cached: told as cached
    flush          status of /flush_cache; busy_s: it is 400 for so long after an answer
    fails_at       tokens after which an error event ends the stream; whole: everything in one event; burst: nothing is
                   sent before the last token
    slow_from      (request, factor): from this request on a step takes longer
    greedy         answers do not depend on the seed; mute: nor on the prompt
    histogram_off  rounds that the histogram misses
    """

    info: dict = field(default_factory=lambda: dict(INFO))
    ttft_s: float = 0.004
    step_s: float = 0.002
    accepted: tuple[int, ...] | None = None
    steps: tuple[int, ...] = (3,)
    first: int = 1
    incremental: bool = False
    framing: str = "plain"
    told: object = staticmethod(lambda n: n)
    ids: bool = True
    longest: int = 1 << 30
    extra: int = 0
    cached: int | None = 0
    flush: int = 200
    busy_s: float = 0.0
    fails_at: int | None = None
    whole: bool = False
    burst: bool = False
    slow_from: tuple[int, float] | None = None
    greedy: bool = False
    mute: bool = False
    histogram_off: int = 0

    def __post_init__(self):
        self.requests, self.idle_at = 0, 0.0

    def sizes(self, n: int) -> list[int]:
        """Tokens of each event."""
        if self.whole:
            return [n]
        out, i = [min(self.first, n)], 0
        while sum(out) < n:
            grow = 1 if self.accepted is None else 1 + self.accepted[i % len(self.accepted)]
            out.append(min(grow, n - sum(out)))
            i += 1
        return out

    def events(self, body: dict) -> Iterator[tuple[float, bytes]]:
        """(seconds to wait, bytes) of each event of one answer; with `burst` of all of them together."""
        if not self.burst:
            yield from self._events(body)
            return
        all_events = list(self._events(body))
        yield sum(wait for wait, _ in all_events), b"".join(data for _, data in all_events)

    def _events(self, body: dict) -> Iterator[tuple[float, bytes]]:
        self.requests += 1
        sampling = body.get("sampling_params") or {}
        asked = int(sampling.get("max_new_tokens", 16))
        n, prompt = min(asked, self.longest), body.get("input_ids") or body.get("text") or ""
        sizes, k = self.sizes(n), self.steps[(self.requests - 1) % len(self.steps)]
        seed = 0 if self.greedy or not sampling.get("temperature") else sampling.get("sampling_seed", self.requests)
        words = Random(f"{'' if self.mute else prompt}/{seed}")
        ids = [words.randrange(1000, 9000) for _ in range(n)]
        step_s = self.step_s * (self.slow_from[1] if self.slow_from and self.requests >= self.slow_from[0] else 1.0)
        done, first_at = 0, 0.0
        for i, size in enumerate(sizes):
            before, done = done, done + size
            if self.fails_at is not None and before >= self.fails_at:
                yield 0.0, b'event: error\ndata: {"error": {"message": "out of memory"}}\n\n'
                return
            last = done == n
            shown = ids[before if self.incremental else 0 : done]
            meta = {
                "id": str(self.requests),
                "finish_reason": ({"type": "length"} if n == asked else {"type": "stop"}) if last else None,
                "prompt_tokens": (len(prompt) if isinstance(prompt, list) else len(prompt.split())) + self.extra,
                "completion_tokens": self.told(done),
                **({"cached_tokens": self.cached} if self.cached is not None else {}),
                **self._speculation(i, done, k),
            }
            if last and i:
                # The engine's own clock: what a proxy holds back, it does not see.
                spent = step_s * i if self.burst else time.perf_counter() - first_at + step_s
                meta["decode_throughput"] = (n - sizes[0]) / max(spent, 1e-6)
            document = {"text": "".join(f"w{t} " for t in shown), "meta_info": meta}
            if self.ids:
                document["output_ids"] = shown
            wait = self.ttft_s if i == 0 else step_s
            yield wait, self._framed(json.dumps(document), i)
            first_at = first_at or time.perf_counter()
        self.idle_at = time.monotonic() + self.busy_s
        yield 0.0, b"data: [DONE]\n\n"

    def _speculation(self, rounds: int, done: int, k: int) -> dict:
        if self.accepted is None or not rounds:
            return {}
        correct = done - self.first - rounds
        each = [self.accepted[i % len(self.accepted)] for i in range(rounds)]
        each[-1] -= sum(each) - correct  # the last round is cut at the length limit
        histogram = [each.count(i) for i in range(max(each) + 1)]
        histogram[0] += self.histogram_off
        return {
            "spec_verify_ct": rounds,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": rounds * k,
            "spec_correct_drafts_histogram": histogram,
        }

    def _framed(self, data: str, i: int) -> bytes:
        head = {"named": "event: message\n", "ids": f"id: {i}\n", "pings": ": ping\n\n: ping\n"}.get(self.framing, "")
        block = f"{head}data: {data}\n\n"
        return (block.replace("\n", "\r\n") if self.framing == "crlf" else block).encode()


@contextmanager
def serve(script: Script) -> Iterator[str]:
    """Serve a script on a free port of this machine; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def _whole(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            path = urlsplit(self.path).path
            if path == "/server_info":
                self._whole(200, json.dumps(script.info).encode())
            elif path == "/flush_cache":
                self._whole(400 if time.monotonic() < script.idle_at else script.flush, b"")
            else:
                self._whole(404, b"{}")

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if urlsplit(self.path).path != "/generate":
                return self.do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            due = time.perf_counter()
            try:
                for wait, data in script.events(json.loads(body)):
                    due += wait
                    time.sleep(max(0.0, due - time.perf_counter()))
                    self.wfile.write(data)
                    self.wfile.flush()
            except OSError:
                pass  # the client has gone
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
