"""A connection whose requests come whole within a limit: uvicorn waits for the rest of one for ever."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

WHOLE_S = 60.0  # from the connection, or from the first byte of a later request, to the last byte of its body
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's, with a limit on the way in: head and body together. Between requests its keep-alive limit holds."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._limit = self.loop.call_later(WHOLE_S, self._late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        coming = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if coming and self._limit is None:
            self._limit = self.loop.call_later(WHOLE_S, self._late)
        elif not coming:
            self._in_time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def _in_time(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _late(self) -> None:
        # Where the answer has begun, another status line would only be a part of it.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(LATE)
        self.transport.close()
