"""One streamed answer, put together from its events: when tokens came, how many, and what they say.

While the stream runs an event costs one search for the token count; JSON is parsed at the end, but for a few events
that tell whether each event repeats the text before it (cumulative) or brings only what is new (incremental).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from labkit.measure import sse
from labkit.measure.wire import RequestError, brief

# In generated text a quote is escaped, so text that talks about "completion_tokens" cannot match this.
_COUNT = b'"completion_tokens"'
_HELD_LIMIT = 1 << 28  # bytes of events kept until the end
UNCOUNTED_LEAST, UNCOUNTED = 3, 0.25  # events with content and no higher count, as number and share, that are a doubt
_FIRST_LOOK = 8  # events before the way of streaming is looked at
MERGED = 0.05  # share of the tokens that events without counts may leave open

# SGLang's names for one count, newest first (0.5.23 has the first of each; the others were found in 0.5.x before it).
SPECULATIVE = {
    "verify_ct": ("spec_verify_ct",),
    "correct_drafts": (
        "spec_num_correct_drafts",
        "spec_accepted_drafts",
        "spec_accept_token_num",
        "spec_accepted_tokens",
    ),
    "proposed_drafts": ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
    "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram"),
    "told_accept_length": ("spec_accept_length",),
}
# Known, and not needed: what they say follows from the counts above, or concerns other kinds of drafting.
_ALSO = (
    "spec_accept_rate",
    "spec_draft_occupancy_rate",
    "spec_num_block_accept_tokens",
    "spec_num_cap_tokens",
    "spec_cap_lens_histogram",
    "spec_proposed_drafts_histogram",
)
_KNOWN_SPEC = {name for names in SPECULATIVE.values() for name in names} | set(_ALSO)


@dataclass
class RequestResult:
    """One request as the client saw it. Times in seconds since the request was sent.

    ttft_s         first event that carries a token of any kind
    latency_s      last event that carried a new token
    first_tokens   tokens in the first event; decode_tokens: those after it; None where that cannot be told
    tpot_s         (latency - ttft) / decode_tokens: the first event may carry several tokens, and the time before it is
                   not decoding; None without a token after the first event
    counts         output tokens by source: "ids" (length of output_ids), "server" (completion_tokens), "events", and
                   "limit" (the length asked for, where the server says no count, but that it stopped there)
    output_tokens  the server's count, else the ids, else the limit, else 0
    chunk_times    arrival of every event with new tokens; chunk_tokens: tokens known at that moment, None if not told
    merged         tokens beyond one an event, where no event tells its count and they are few: a character of several
                   tokens, an end token without text; 0 elsewhere
    stream         "cumulative", "incremental" or "whole" (one event)
    histogram      correct drafts per verify step: entry i counts the steps that accepted i drafts
    accept_length  output tokens per verify step, bonus token included; None without speculation
    unread         names of speculative fields that this client does not know; garbled: fields with values of no use
    put_off_s      between the first asking and the one that was answered, where the server said to ask later
    stood_still_s  of the request's time in which this process did not run: stopped, or the machine was asleep
    """

    prompt_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    first_tokens: int | None = None
    decode_tokens: int | None = None
    ttft_s: float | None = None
    latency_s: float | None = None
    tpot_s: float | None = None
    chunk_times: list[float] = field(default_factory=list)
    chunk_tokens: list[int | None] = field(default_factory=list)
    merged: int = 0
    stream: str | None = None
    text: str = ""
    output_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    verify_ct: int | None = None
    correct_drafts: int | None = None
    proposed_drafts: int | None = None
    histogram: list[int] | None = None
    told_accept_length: float | None = None
    accept_length: float | None = None
    unread: list[str] = field(default_factory=list)
    garbled: list[str] = field(default_factory=list)
    meta: dict = field(default_factory=dict)
    stood_still_s: float = 0.0
    put_off_s: float = 0.0


class Answer:
    """Takes events as they arrive (`take`) and makes a RequestResult of them (`read`).

    Raises RequestError from `take` and `read` for an error that the server sent, with its cause.
    """

    def __init__(self, sent: float, on_chunk: Callable[[float, int], None] | None = None):
        self._sent, self._on_chunk = sent, on_chunk
        self.result = RequestResult()
        self._seen = 0
        self._held: list[tuple[int | None, bytes | dict]] = []  # (index into chunk_times, event)
        self._bytes = 0
        self._mode: str | None = None
        self._look = _FIRST_LOOK
        self._last: tuple | None = None
        self._sizes: list[int] = []  # ids of each event that told no count
        self._before: bytes | None = None  # the last event that told a count, for those whose count does not rise
        self._unmoved = 0  # events that brought content and no higher count
        self.stray = b""

    def take(self, now: float, name: str | None, data: bytes) -> None:
        """One event, at the clock of its last byte."""
        if name == "error":
            raise _failed(data)
        at = data.rfind(_COUNT)
        tokens = _integer(data, at + len(_COUNT)) if at >= 0 else None
        if not tokens or (not self._seen and self.result.chunk_times):
            self._without_count(now, name, data)  # also a count that only the end tells
        elif tokens > self._seen:
            self._seen = tokens
            self._arrived(now, tokens)
            self._hold(len(self.result.chunk_times) - 1, data)
            self._before = data
        else:  # rare in a sound stream, so it may cost two parses
            self._unmoved += _content(data) not in (("", []), _content(self._before))
            self._hold(None, data)
            self._before = data

    def _arrived(self, now: float, tokens: int | None) -> None:
        self.result.chunk_times.append(now - self._sent)
        self.result.chunk_tokens.append(tokens)
        if self._on_chunk is not None:
            self._on_chunk(now - self._sent, tokens or len(self.result.chunk_times))

    def _without_count(self, now: float, name: str | None, data: bytes) -> None:
        """An event that tells no count: an error, content all the same, or nothing of interest."""
        document = _parse(data)
        if document is None:
            if name == sse.STRAY:
                self.stray = self.stray or data
            elif name in (None, "message"):
                raise RequestError(f"the stream holds something that is not JSON: {brief(data)}", 200)
            return
        if _is_error(document):
            raise _failed(data)
        meta = document.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        content = (_text(document), _ids(document))
        repeat = content == self._last and meta.get("finish_reason") is not None
        if any(content) and not repeat:
            self._last = content
            self._arrived(now, None)
            self._sizes.append(len(content[1]))
            self._hold(len(self.result.chunk_times) - 1, document)
        elif meta:
            self._hold(None, document)

    def _hold(self, at: int | None, event: bytes | dict) -> None:
        if self._mode == "cumulative" and at is not None:
            self._held.clear()  # this event repeats all that was there
        self._held.append((at, event))
        if self._mode is None and at is not None and len(self._held) >= self._look:
            self._look *= 2
            self._mode = _mode(self._contents())
        if isinstance(event, bytes):
            self._bytes = 0 if self._mode == "cumulative" else self._bytes + len(event)
        if self._bytes > _HELD_LIMIT:
            raise RequestError(f"the stream holds more than {_HELD_LIMIT >> 20} MiB", 200)

    def _contents(self) -> list[tuple[int | None, dict]]:
        """Events that brought tokens, parsed: (tokens told by then, document)."""
        told = self.result.chunk_tokens
        return [(told[at], _parsed(event)) for at, event in self._held if at is not None]

    def so_far(self, limit: int) -> str:
        """The last `limit` characters of the text that has come by now; "" until it is clear how the server streams.
        For another thread: the one that takes events does nothing for it."""
        mode, held = self._mode, list(self._held)
        if mode == "cumulative":
            texts = (_text(_parsed(event)) for at, event in reversed(held) if at is not None)
            return next((t for t in texts if t), "")[-limit:]
        text = ""
        for at, event in reversed(held) if mode == "incremental" else ():
            if len(text) >= limit:
                break
            text = (_text(_parsed(event)) if at is not None else "") + text
        return text[-limit:]

    def read(self, more: dict | None = None, limit: int | None = None) -> RequestResult:
        """All fields from what has come so far. more: fields of meta_info that the server tells elsewhere; limit: the
        number of tokens after which it was to stop."""
        r = self.result
        r.garbled = []
        documents = [(at, _parsed(event)) for at, event in self._held]
        self._held = documents
        mode = self._mode or _mode(self._contents()) or ("incremental" if len(r.chunk_times) > 1 else "whole")
        contents = [d for at, d in documents if at is not None]
        late = [d for at, d in documents if at is None]
        r.stream = mode if r.chunk_times else None
        if mode == "incremental":
            # An event without new tokens may bring text that was held back, or repeat the event before it.
            new = contents + [d for d in late if not _ids(d) and contents and _text(d) != _text(contents[-1])]
            r.text = "".join(map(_text, new))
            r.output_ids = [i for d in contents for i in _ids(d)]
        else:
            whole = [d for _, d in documents]
            r.text = next((t for t in map(_text, reversed(whole)) if t), "")
            r.output_ids = next((i for i in map(_ids, reversed(whole)) if i), [])
        meta: dict = {}
        for _, d in documents:
            found = d.get("meta_info")
            if isinstance(found, dict):
                meta |= {k: v for k, v in found.items() if v is not None}
        self._fill(meta | (more or {}))
        self._count(meta, contents, mode, limit)
        return r

    def _fill(self, meta: dict) -> None:
        r = self.result
        r.meta = {k: v for k, v in meta.items() if k != "id" and "logprob" not in k}
        reason = meta.get("finish_reason")
        if isinstance(reason, dict):
            if reason.get("type") == "abort":
                raise RequestError(f"the engine aborted the request: {_said(reason)}", 200)
            reason = reason.get("type")
        elif reason == "abort":
            raise RequestError("the engine aborted the request: no reason given", 200)
        r.finish_reason = reason if isinstance(reason, str) else None
        r.prompt_tokens = self._whole(meta, "prompt_tokens")
        details = meta.get("prompt_tokens_details")  # OpenAI's place for it
        r.cached_tokens = self._whole((details if isinstance(details, dict) else {}) | meta, "cached_tokens")
        for name in ("verify_ct", "correct_drafts", "proposed_drafts"):
            setattr(r, name, self._whole(meta, *SPECULATIVE[name]))
        r.histogram = self._histogram(meta)
        told = next((meta[n] for n in SPECULATIVE["told_accept_length"] if n in meta), None)
        if told is not None and not (number(told) and 0 <= told < 1e6):
            r.garbled.append("spec_accept_length")
        elif told:
            r.told_accept_length = float(told)
        r.unread = sorted(k for k in meta if k.startswith("spec") and k not in _KNOWN_SPEC)

    def _count(self, meta: dict, contents: list[dict], mode: str, limit: int | None) -> None:
        """Output tokens by source, tokens of the first event, and what follows from them."""
        r = self.result
        server = self._whole(meta, "completion_tokens")
        r.counts = {"events": len(r.chunk_times)}
        # A detokeniser may hold back a character or a stop string; content that often comes uncounted is another thing.
        if self._unmoved > max(UNCOUNTED_LEAST, UNCOUNTED * len(r.chunk_times)):
            r.counts["events"] += self._unmoved
        if server is not None:
            r.counts["server"] = server
        if r.output_ids:
            r.counts["ids"] = len(r.output_ids)
        elif server is None and limit and r.finish_reason == "length" and r.chunk_times:
            r.counts["limit"] = limit
        r.output_tokens = server if server is not None else len(r.output_ids) or r.counts.get("limit", 0)
        if any(t is None for t in r.chunk_tokens):
            sizes = [len(_ids(d)) for d in contents] if len(contents) == len(r.chunk_tokens) else self._sizes
            if len(sizes) == len(r.chunk_tokens):
                r.chunk_tokens = _from_sizes(sizes, mode, r.output_tokens)
            if None not in r.chunk_tokens and not any(sizes):
                r.merged = r.output_tokens - len(sizes)
        if r.verify_ct:
            r.accept_length = r.output_tokens / r.verify_ct
        elif r.told_accept_length:
            r.accept_length = r.told_accept_length
        if not r.chunk_times:
            return
        r.ttft_s, r.latency_s = r.chunk_times[0], r.chunk_times[-1]
        first, last = r.chunk_tokens[0], r.chunk_tokens[-1]
        if first is not None and last is not None:
            r.first_tokens, r.decode_tokens = first, last - first
            if r.decode_tokens > 0:
                r.tpot_s = (r.latency_s - r.ttft_s) / r.decode_tokens

    def _whole(self, meta: dict, *names: str) -> int | None:
        """The first of these fields as a count; what is no count is noted and left out."""
        for name in names:
            value = meta.get(name)
            if value is None:
                continue
            if number(value) and 0 <= value < 1e12 and value == int(value):
                return int(value)
            self.result.garbled.append(name)
        return None

    def _histogram(self, meta: dict) -> list[int] | None:
        for name in SPECULATIVE["histogram"]:
            value = meta.get(name)
            if not value:
                continue
            if isinstance(value, list) and all(number(v) and 0 <= v < 1e12 and v == int(v) for v in value):
                return [int(v) for v in value]
            self.result.garbled.append(name)
        return None


def _mode(contents: list[tuple[int | None, dict]]) -> str | None:
    """cumulative, incremental or None (not to be told yet) from (count, document) of events in a row.

    Ids decide by their number, else ids or text by whether each event begins with the one before it.
    """
    if len(contents) < 2:
        return None
    ids, counts = [_ids(d) for _, d in contents], [c for c, _ in contents]
    if all(ids) and None not in counts:
        news = [counts[0], *(b - a for a, b in zip(counts, counts[1:], strict=False))]
        sizes = [len(i) for i in ids]
        # Counts that are summed over events would look like pieces of growing length; what repeats is no piece.
        grows = len(ids) > 2 and all(a == b[: len(a)] != b for a, b in zip(ids, ids[1:], strict=False))
        if sizes == counts or grows:
            return "cumulative"
        if sizes == news:
            return "incremental"
    parts = ids if all(ids) else [_text(d).rstrip("\ufffd") for _, d in contents]  # half a character comes as U+FFFD
    if not any(parts):
        return None
    grown = all(b[: len(a)] == a for a, b in zip(parts, parts[1:], strict=False))
    if grown and len(parts[-1]) > len(parts[0]):
        return "cumulative"
    return None if grown else "incremental"


def _from_sizes(sizes: list[int], mode: str, total: int) -> list[int | None]:
    """Tokens known at each event where the server told none: by the number of its ids, else one each if there are as
    many events as tokens, or nearly so."""
    if all(sizes):
        if mode != "incremental":
            return sizes
        done, out = 0, []
        for size in sizes:
            done += size
            out.append(done)
        return out
    if 0 <= total - len(sizes) <= MERGED * total:
        return [*range(1, len(sizes)), total]
    return [None] * len(sizes)


def _integer(data: bytes, at: int) -> int | None:
    """The integer that stands behind the colon at `at`. Cheaper than parsing the whole document."""
    tail = data[at : at + 24].lstrip()
    if not tail.startswith(b":"):
        return None
    digits = tail[1:].lstrip()
    end = 0
    while digits[end : end + 1].isdigit():
        end += 1
    return int(digits[:end]) if end else None


def _parse(data: bytes) -> dict | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else {}


def _parsed(event: bytes | dict) -> dict:
    if isinstance(event, dict):
        return event
    document = _parse(event)
    if document is None:
        raise RequestError(f"the stream holds something that is not JSON: {brief(event)}", 200)
    if _is_error(document):
        raise _failed(event)
    return document


def _is_error(document: dict) -> bool:
    return bool(document.get("error")) or document.get("object") == "error"


def _failed(data: bytes) -> RequestError:
    return RequestError(f"the engine failed: {_said(_parse(data) or data)}", 200)


def _said(cause: object) -> str:
    """The words in an error document, whatever its shape."""
    if isinstance(cause, bytes):
        return brief(cause) or "no reason given"
    if isinstance(cause, dict):
        inner = next((cause[k] for k in ("error", "message", "detail", "err_type") if cause.get(k)), None)
        return _said(inner) if inner is not None else brief(json.dumps(cause).encode())
    return brief(str(cause).encode())


def _content(event: bytes | None) -> tuple[str, list[int]]:
    document = _parse(event) if event is not None else None
    return (_text(document), _ids(document)) if document else ("", [])


def _text(document: dict) -> str:
    text = document.get("text")
    return text if isinstance(text, str) else ""


def _ids(document: dict) -> list[int]:
    ids = document.get("output_ids")
    return ids if isinstance(ids, list) and all(isinstance(i, int) for i in ids) else []


def number(value: object) -> bool:
    """A finite number; Python's JSON also reads NaN and Infinity, and true is an int to Python."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
