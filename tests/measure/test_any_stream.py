"""Whatever a server sends: a row, never a traceback, and no number without counts that bear it out or a mark."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labkit.measure import client, estimates, session
from labkit.measure.wire import RequestError
from labkit.workloads import Prompt

PROMPT = Prompt(text="a b c", sampling={"temperature": 0.0, "ignore_eos": True}, max_new_tokens=16, workload="test")

_numbers = st.integers(-2, 20) | st.sampled_from([10**15, 10**400, 0.5, 3.0, math.nan, math.inf, -1.0, True])
_scalars = st.none() | _numbers | st.text(max_size=6) | st.sampled_from(["", "stop", "NaN", '"completion_tokens": 9'])
_values = _scalars | st.lists(_scalars, max_size=5) | st.dictionaries(st.text(max_size=4), _scalars, max_size=2)
_NAMES = (
    "completion_tokens prompt_tokens cached_tokens finish_reason e2e_latency decode_throughput thread_cpu_s "
    "spec_verify_ct spec_num_correct_drafts spec_num_proposed_drafts spec_correct_drafts_histogram spec_accept_length "
    "spec_accept_token_num spec_odd error"
).split()


@st.composite
def _honest(draw):
    """The events of an ordinary answer, as one engine or another would send them, and perhaps one of them changed."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    incremental, with_ids, counted = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    told = draw(st.sampled_from([lambda n: n, lambda n: 2 * n, lambda n: n * (n + 1) // 2, lambda n: n - 1]))
    out, done = [], 0
    for i, size in enumerate(sizes):
        first, done = (done if incremental else 0), done + size
        last = i == len(sizes) - 1
        meta = {"prompt_tokens": 3, "cached_tokens": 0, "finish_reason": {"type": "length"} if last else None}
        if counted or last:
            meta["completion_tokens"] = told(done)
        document = {"text": "".join(f"w{k} " for k in range(first, done)), "meta_info": meta}
        if with_ids:
            document["output_ids"] = list(range(first, done))
        out.append(document)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(out) - 1))
        out[at]["meta_info"][draw(st.sampled_from(_NAMES))] = draw(_values)
    return [json.dumps(d).encode() for d in out]


_wild = st.lists(
    st.binary(max_size=20)
    | _values.map(lambda v: json.dumps(v).encode())
    | st.builds(
        lambda text, ids, meta: json.dumps({"text": text, "output_ids": ids, "meta_info": meta}).encode(),
        _values,
        _values,
        st.dictionaries(st.sampled_from(_NAMES), _values, max_size=8) | _values,
    ),
    max_size=10,
)


@st.composite
def _streams(draw):
    """(bytes in the pieces in which they arrive, clock of each)."""
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    heads = st.sampled_from(
        [b"", b"", b"", b"event: message\n", b"event: error\n", b"id: 1\n", b": ping\n\n", b"retry: 3\n"]
    )
    data = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    for event in draw(_honest() | _wild):
        data += draw(heads) + b"data: " + event.replace(b"\n", b" ") + b"\n\n"
    data += draw(st.sampled_from([b"data: [DONE]\n\n", b"data: [DONE]\n\n", b"", b"data: {", b"{}"]))
    data = data.replace(b"\n", end)
    cuts = sorted(draw(st.sets(st.integers(0, max(1, len(data))), max_size=12)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    gaps = draw(st.lists(st.sampled_from([0.0, 0.001, 0.01]), min_size=len(pieces), max_size=len(pieces)))
    clocks = [0.1 + sum(gaps[: i + 1]) for i in range(len(pieces))]
    return list(zip(clocks, pieces, strict=True))


_EVENT = b'data: {"text": "w", "meta_info": {"completion_tokens": %d, "finish_reason": "stop", %b}}\n\n'


class _Exchange:
    """An exchange whose answer is given."""

    sent, status = 0.0, 200
    stream: list = []

    def __init__(self, url, path, *_, **__):
        self._streams = path == "/generate"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def stood_still_s(self):
        return 0.0

    def came(self, now):
        pass

    def pieces(self):
        return iter(self.stream if self._streams else [])


def _holds(stream) -> None:
    _Exchange.stream = stream
    row = session.sample(
        session.Side("x", "http://x", count_tokens=lambda t: len(t.split())), PROMPT, repeat=0, index=0
    )
    json.dumps(row, allow_nan=False)  # it can be recorded
    assert row["status"] in ("ok", "refused", "error") and (row["status"] == "ok") == (row["error"] is None)
    if row["status"] == "ok" and row["tpot_s"] is not None:
        assert 0 < row["tpot_s"] < 10 and row["decode_tokens"] > 0
        assert row["output_tokens"] == row["first_tokens"] + row["decode_tokens"] <= PROMPT.max_new_tokens
        assert row["tokens_ids"] in (None, row["output_tokens"]) and row["tokens_events"] <= row["output_tokens"]
    if row["accept_length"] is not None and row["status"] == "ok":
        marked = {d["kind"] for d in row["doubts"]}
        assert 0 < row["accept_length"] <= PROMPT.max_new_tokens or marked
    try:
        summary = estimates.summarise([row])
    except estimates.NoSamples:
        assert row["status"] != "ok" or row["tpot_s"] is None
    else:
        json.dumps(summary, allow_nan=False)
        assert len(summary["warnings"]) >= len({d["kind"] for d in row["doubts"]})


@pytest.fixture(autouse=True)
def given_answers(monkeypatch):
    monkeypatch.setattr(client, "Exchange", _Exchange)


@settings(max_examples=300)
@given(_streams())
@example(
    [(0.1, _EVENT % (1, b'"e2e_latency": NaN')), (0.2, _EVENT % (2, b'"thread_cpu_s": "x", "e2e_latency": Infinity'))]
)
@example([(0.1, b"data: " + b"[" * 3000 + b"\n\n")])
@example([(0.1, b'data: {"meta_info": {"completion_tokens": ' + b"9" * 300 + b"}}\n\n")])
def test_300_streams(stream):
    _holds(stream)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=10_000)
@given(_streams())
def test_10000_streams(stream):
    _holds(stream)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_at_all(pieces):
    _holds([(0.1 + i, p) for i, p in enumerate(pieces)])


def test_a_real_error_is_kept():
    _Exchange.stream = [(0.1, b"event: error\ndata: out of memory\n\n")]
    with pytest.raises(RequestError, match="out of memory"):
        client.generate("http://x", text="a")
