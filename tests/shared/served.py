"""A small HTTP server of a test's own, in a thread, on a free port of this machine, gone when the test is."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer


@contextmanager
def served(
    handler: type[BaseHTTPRequestHandler],
    *,
    kind: type[HTTPServer] = ThreadingHTTPServer,
    tls: ssl.SSLContext | None = None,
    **facts,
) -> Iterator[HTTPServer]:
    """The running server, with `url`, and with these attributes for its handler to read."""
    with kind(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.url = (
            f"http{'' if tls is None else 's'}://{'127.0.0.1' if tls is None else 'localhost'}:{server.server_port}"
        )
        for name, value in facts.items():
            setattr(server, name, value)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
