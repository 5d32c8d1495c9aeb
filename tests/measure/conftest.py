"""A server that sends exactly the bytes a test gives it, in the pieces the test chooses."""

import json
import socket
import threading
import time

import pytest


class ScriptedServer:
    """Answers POST /generate from `script`: a list of bytes to send, floats to wait once the client has read what came
    before, and functions to wait for. Keeps what it was asked."""

    def __init__(self, until_read):
        self.until_read = until_read
        self.script: list = []
        self.flush_status = 200
        self.flushes: list[int] | None = None
        self.info = {"engine": "pocket", "version": "9.9", "model_path": "m", "api_key": "sk-planted"}
        self.info |= {"weights_sha256": "ab12", "kernel_variant": "test"}
        self.requests: list[tuple[str, bytes, bytes]] = []
        self.on_profile = None
        self.hung_up = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client):
        with client:
            data = b""
            while b"\r\n\r\n" not in data:
                data += client.recv(65536)
            head, body = data.split(b"\r\n\r\n", 1)
            fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
            length = int(fields.get(b"content-length", 0))
            while len(body) < length:
                body += client.recv(65536)
            path = head.split(b" ")[1].decode()
            self.requests.append((path, head, body))
            if path.split("?")[0] == "/flush_cache":
                status = self.flushes.pop(0) if self.flushes else self.flush_status
                client.sendall(plain(b"", status))
            elif path == "/start_profile":
                client.sendall(plain(b"Start profiling.\n", 200 if self.on_profile else 404))
                if self.on_profile:
                    self.on_profile(body)
            elif path == "/server_info":
                client.sendall(plain(json.dumps(self.info).encode()))
            else:
                self._play(client)

    def _play(self, client):
        try:
            for step in self.script:
                if isinstance(step, bytes):
                    client.sendall(step)
                elif callable(step):
                    step()
                else:
                    self.until_read(client)
                    time.sleep(step)
            client.settimeout(60)
            client.shutdown(socket.SHUT_WR)
            if client.recv(1) == b"":
                self.hung_up.set()
        except OSError:
            self.hung_up.set()

    def asked(self) -> list[dict]:
        return [json.loads(body) for path, _, body in self.requests if path == "/generate"]

    def close(self):
        self._socket.close()


def plain(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


class Wire:
    """Builders of the bytes that an SSE answer consists of."""

    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    end = b"0\r\n\r\n"
    plain = staticmethod(plain)

    @staticmethod
    def event(tokens: int, *, text: str = "x", finish=None, prompt=7, cached=0, **spec) -> bytes:
        meta = {
            "id": "r",
            "finish_reason": finish and {"type": finish},
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "completion_tokens": tokens,
            **spec,
        }
        document = {"text": text, "output_ids": list(range(tokens)), "meta_info": meta}
        return b"data: " + json.dumps(document).encode() + b"\n\n"

    @staticmethod
    def chunk(data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)

    @classmethod
    def stream(cls, *events: bytes) -> bytes:
        return cls.head + b"".join(cls.chunk(e) for e in events) + cls.chunk(b"data: [DONE]\n\n") + cls.end


@pytest.fixture
def wire():
    return Wire


@pytest.fixture
def server(until_read):
    s = ScriptedServer(until_read)
    yield s
    s.close()
