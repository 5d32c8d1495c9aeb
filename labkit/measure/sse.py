"""Server-sent events as the standard frames them: any line end, comments, names, ids, data over several lines.

Source: WHATWG HTML, section "Server-sent events" (parsing an event stream).
"""

from collections.abc import Iterable, Iterator

from labkit.measure.wire import RequestError

STRAY = ""  # the name under which lines come that belong to no event: what a server says that does not stream
_LIMIT = 1 << 28  # bytes without an end of event


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str | None, bytes]]:
    """(clock, name, data) of each event; name is None where the server gives none, STRAY for what is no event at all.

    The clock is that of the piece which completed the event, so events that arrive in one piece share it. A last event
    without its blank line counts too. Raises RequestError for a stream that never ends an event.
    """
    buffer, after_cr, first, now = b"", False, True, 0.0
    for now, piece in pieces:
        if first and piece:
            piece, first = piece.removeprefix(b"\xef\xbb\xbf"), False
        if after_cr and piece:
            piece = piece.removeprefix(b"\n")  # the second half of a CR LF
        after_cr = piece.endswith(b"\r") if piece else after_cr
        if b"\r" in piece:  # a CR inside JSON is always escaped
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer += piece
        if b"\n\n" not in buffer:
            if len(buffer) > _LIMIT:
                raise RequestError(f"the stream holds an event of more than {_LIMIT >> 20} MiB", 200)
            continue
        *blocks, buffer = buffer.split(b"\n\n")
        for block in blocks:
            found = _event(block)
            if found is not None:
                yield now, *found
    found = _event(buffer)
    if found is not None:
        yield now, *found


def _event(block: bytes) -> tuple[str | None, bytes] | None:
    """(name, data) of one block of lines, None for one of comments only."""
    if block.startswith(b"data:") and b"\n" not in block:  # what a token looks like, nearly always
        return None, block[5:].strip()
    name, data, stray = None, [], []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.strip().decode(errors="replace")
        elif field not in (b"", b"id", b"retry"):
            stray.append(line)
    if data:
        return name, b"\n".join(data).strip()
    return (STRAY, b"\n".join(stray)) if stray else None
