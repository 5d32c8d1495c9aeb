"""Clients that never finish what they say: each costs a connection for so long, and nobody else anything."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
import uvicorn

from labkit.pocket.http import connection

HEAD = b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"


async def _app(scope, receive, send):
    """Answers once the body is whole."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address(monkeypatch):
    """A server that gives a request half a second."""
    monkeypatch.setattr(connection, "WHOLE_S", 0.5)
    config = uvicorn.Config(_app, http=connection.Connection, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        yield listener.getsockname()
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def _read(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    client.settimeout(60)
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(4096):
            got += data
    return got


@pytest.mark.parametrize("said", [b"", b"GET / HT", HEAD[:-2], HEAD, HEAD + b'{"text"'])
def test_a_request_that_never_ends_is_told_so(address, said):
    with socket.create_connection(address) as client:
        client.sendall(said)
        assert _read(client).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("before", [b"GET / HTTP/1.1\r\n", HEAD])
def test_a_client_that_drips(address, before):
    """A byte now and then does not lengthen it."""
    with socket.create_connection(address) as client:
        client.sendall(before)
        stop = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    client.sendall(b"x")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        got = _read(client)
        stop.set()
        dripping.join(60)
        assert got.startswith(b"HTTP/1.1 408 ")


def test_the_second_request_of_a_connection_has_its_own_limit(address):
    whole = HEAD.replace(b"1000", b"2") + b"{}"
    with socket.create_connection(address) as client:
        for _ in range(3):
            client.sendall(whole)
            client.settimeout(60)
            got = b""
            while not got.endswith(b"ok"):
                got += client.recv(4096)
            assert got.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.3)  # together longer than the limit
        client.sendall(HEAD)
        assert _read(client).startswith(b"HTTP/1.1 408 ")
