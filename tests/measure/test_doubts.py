"""What servers say and how it is not believed: each case of public reports as events, and the word it gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.measure import doubts
from labkit.measure.answer import Answer
from labkit.measure.doubts import Asked
from labkit.measure.wire import RequestError


def event(tokens=None, ids=None, text="", finish=None, **meta):
    meta = {"prompt_tokens": 7, "cached_tokens": 0, "finish_reason": finish and {"type": finish}} | meta
    if tokens is not None:
        meta["completion_tokens"] = tokens
    document = {"text": text, "meta_info": meta}
    if ids is not None:
        document["output_ids"] = ids
    return json.dumps(document).encode()


def answered(*events, gap=0.01):
    answer = Answer(0.0)
    for i, data in enumerate(events):
        answer.take(0.1 + i * gap, None, data)
    return answer.read()


def stream(sizes, *, incremental=False, ids=True, told=lambda n: n, **last):
    """Events of these sizes; told: what completion_tokens says of n."""
    out, done = [], 0
    for i, size in enumerate(sizes):
        first, done = (done if incremental else 0), done + size
        text = "".join(f"w{k} " for k in range(first, done))
        more = {"finish": "length", **last} if i == len(sizes) - 1 else {}
        out.append(event(told(done), list(range(first, done)) if ids else None, text, **more))
    return out


def kinds(result, asked=64, **more):
    return {d.kind for d in doubts.of(result, Asked(asked, **more))}


def test_a_clean_answer_has_no_doubt():
    r = answered(*stream([1] * 12))
    assert kinds(r, 12, fixed=True, prompt_tokens=7, own_count=12) == set()
    assert (r.first_tokens, r.decode_tokens, r.counts) == (1, 11, {"events": 12, "server": 12, "ids": 12})


def test_the_first_event_may_carry_several_tokens():
    for sizes in ([4] * 16, [4, 4], [3, 4, 4, 1]):
        r = answered(*stream(sizes), gap=0.04)
        assert r.tpot_s == pytest.approx(0.04 * (len(sizes) - 1) / (sum(sizes) - sizes[0]))


@pytest.mark.parametrize("sizes", [[1] * 30, [4, 2, 1, 3] * 5, [2, 1]])
@pytest.mark.parametrize("ids", [True, False])
def test_incremental_and_cumulative_streams_give_the_same_answer(sizes, ids):
    one = answered(*stream(sizes, ids=ids))
    other = answered(*stream(sizes, incremental=True, ids=ids))
    assert one.text == other.text == "".join(f"w{k} " for k in range(sum(sizes)))
    assert one.output_ids == other.output_ids
    assert (one.stream, other.stream) == ("cumulative", "incremental")
    assert one.tpot_s == other.tpot_s and one.chunk_tokens == other.chunk_tokens


def test_equal_pieces_of_an_incremental_stream_are_all_kept():
    events = [event(n, [5], "a ", "length" if n == 20 else None) for n in range(1, 21)]
    r = answered(*events)
    assert (r.text, r.output_ids) == ("a " * 20, [5] * 20) and kinds(r) == set()


def test_half_a_character_does_not_look_like_new_text():
    texts = ["a", "ab\ufffd", "abé", "abéc"]
    r = answered(*(event(i + 1, None, t, "length" if i == 3 else None) for i, t in enumerate(texts)))
    assert (r.text, r.stream) == ("abéc", "cumulative")


def test_a_late_event_without_tokens_is_no_decode_time():
    events = stream([1] * 10)
    r = answered(*events, events[-1])
    assert len(r.chunk_times) == 10 and r.text.endswith("w9 ") and kinds(r) == set()
    inc = stream([1] * 10, incremental=True)
    assert answered(*inc, inc[-1]).text == r.text


SPEC = {
    "spec_verify_ct": 4,
    "spec_num_correct_drafts": 8,
    "spec_num_proposed_drafts": 12,
    "spec_correct_drafts_histogram": [0, 1, 2, 1],
    "spec_accept_length": 3.0,
}
OLD = {
    "spec_verify_ct": 4,
    "spec_accept_token_num": 8,
    "spec_draft_token_num": 12,
    "spec_accept_histogram": [0, 1, 2, 1],
}


@pytest.mark.parametrize("spec", [SPEC, OLD])
def test_speculative_counts_that_fit_by_newer_and_older_names(spec):
    r = answered(*stream([3] * 4, **spec))
    assert (r.verify_ct, r.correct_drafts, r.proposed_drafts, r.histogram) == (4, 8, 12, [0, 1, 2, 1])
    assert r.accept_length == 3.0 and kinds(r) == set()


@pytest.mark.parametrize(
    "tokens, rounds, correct",
    [(12, 4, 8), (13, 4, 8), (10, 4, 8)],  # exact; prefill's token apart; the last round cut at the length limit
)
def test_honest_engines_differ_by_the_first_token_and_the_cut_of_the_last_round(tokens, rounds, correct):
    spec = SPEC | {"spec_verify_ct": rounds, "spec_num_correct_drafts": correct, "spec_accept_length": tokens / rounds}
    assert kinds(answered(*stream([1] * tokens, **spec))) == set()


@pytest.mark.parametrize(
    "events, asked, kind",
    [
        (stream([3] * 4, told=lambda n: n * (n + 1) // 2, **SPEC), {}, "counts disagree"),
        (stream([3] * 4, told=lambda n: 2 * n, ids=False, **SPEC), {}, "more tokens than drafts allow"),
        (stream([3] * 4, ids=False, spec_verify_ct=2), {"draft_tokens": 4}, "more tokens than drafts allow"),
        (stream([1] * 12, told=lambda n: n + 1), {}, "counts disagree"),
        (stream([1] * 12, told=lambda n: 5 * n, ids=False), {"own_count": 12}, "counts disagree"),
        (stream([1] * 12), {"own_count": 40}, "own count differs"),
        (stream([1] * 80), {}, "more tokens than asked"),
        (stream([12]), {}, "one event"),
        (stream([1] * 12, cached_tokens=3), {}, "cached prompt"),
        (stream([1] * 12, cached_tokens=None), {}, "cache unknown"),
        (stream([1] * 12), {"prompt_tokens": 3}, "prompt changed"),
        (stream([1] * 12), {"prompt_tokens": 9, "spare": 2}, "prompt changed"),
        (stream([1] * 12, prompt_tokens=None), {}, "prompt unknown"),
        (stream([1] * 12), {"fixed": True}, "stopped early"),
        (stream([1]), {}, "few tokens"),
        (stream([1, 1]), {}, "few tokens"),
        ([event(None, None, f"w{i}", "stop" if i == 9 else None) for i in range(10)], {}, "no token count"),
        (stream([3] * 4, **SPEC | {"spec_correct_drafts_histogram": [9, 9]}), {}, "speculative counts disagree"),
        (stream([3] * 4, **SPEC | {"spec_num_correct_drafts": 99}), {}, "speculative counts disagree"),
        (stream([3] * 4, **SPEC | {"spec_accept_length": 1.5}), {}, "speculative counts disagree"),
        (stream([3] * 4, **SPEC | {"spec_num_proposed_drafts": 9}), {}, "steps vary"),
        (stream([1] * 12, spec_new_thing=3), {}, "unknown fields"),
        (stream([1] * 12, spec_verify_ct="four"), {}, "unreadable fields"),
        (stream([1] * 40, decode_throughput=250), {}, "clocks disagree"),
        (stream([1] * 40, decode_throughput=1e4), {}, "clocks far apart"),
    ],
)
def test_what_is_seen_gets_its_word(events, asked, kind):
    found = kinds(answered(*events), **asked)
    assert kind in found


def test_every_kind_is_met_here_or_in_the_session():
    """A kind that nothing can raise would be a promise without a check."""
    import inspect

    source = inspect.getsource(doubts) + "".join(open(__file__))
    assert all(source.count(f'"{kind}"') >= 2 for kind in doubts.KINDS)


def test_a_count_that_only_the_end_tells():
    """No counts while streaming: as many events as tokens makes one each, and a closing event brings none."""
    events = [event(None, None, f"w{i} ") for i in range(10)]
    r = answered(*events, event(10, None, "", "stop"))
    assert (r.decode_tokens, len(r.chunk_times), r.text) == (9, 10, "".join(f"w{i} " for i in range(10)))
    assert kinds(r) == set()
    lumps = answered(*events, event(25, None, "", "stop"))
    assert lumps.tpot_s is None and "first event unknown" in kinds(lumps)


@pytest.mark.parametrize(
    "data",
    [
        b'{"error": {"message": "out of memory"}}',
        b'{"error": "out of memory"}',
        b'{"object": "error", "message": "out of memory", "code": 500}',
        b'{"meta_info": {"completion_tokens": 9, "finish_reason": {"type": "abort", "message": "out of memory"}}}',
        b'{"text": "", "meta_info": {"completion_tokens": 9}, "error": {"detail": "out of memory"}}',
    ],
)
def test_an_error_in_the_stream_keeps_its_cause(data):
    with pytest.raises(RequestError, match="out of memory"):
        answered(*stream([1] * 8)[:-1], data)


def test_a_named_error_event_need_not_be_json():
    with pytest.raises(RequestError, match="engine failed: out of memory"):
        Answer(0.0).take(1.0, "error", b"out of memory")


def rows(results, **more):
    out = []
    for i, r in enumerate(results):
        found = [d.as_dict() for d in doubts.of(r, Asked(64, True))]
        row = {"status": "ok", "doubts": found, "proposed_drafts": r.proposed_drafts, "verify_ct": r.verify_ct}
        out.append(row | {"prompt_sha256": "p", "prompt_tokens": 7} | {k: v[i] for k, v in more.items()})
    return out


def test_said_counts_the_requests():
    early, full = answered(*stream([1] * 43)), answered(*stream([1] * 64))
    assert doubts.said(rows([early] * 3)) == [
        "in every request: 43 of 64 tokens, though ignore_eos fixed the length (the server says length)"
    ]
    assert doubts.said(rows([early, full]))[0].startswith("in 1 of 2 requests: 43 of 64")
    assert doubts.said(rows([full] * 2)) == []
    assert "same prompt" in doubts.said(rows([full] * 2, prompt_tokens=[7, 9]))[0]


def test_steps_that_vary_between_requests_are_said():
    made = []
    for k in (1, 3, 5):
        spec = {"spec_verify_ct": 32, "spec_num_correct_drafts": 32, "spec_num_proposed_drafts": 32 * k}
        made.append(answered(*stream([2] * 32, **spec)))
    assert doubts.said(rows(made)) == [
        "draft steps varied between requests (1, 3, 5): one c does not describe this server"
    ]


_scalars = st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.text(max_size=6)
_values = _scalars | st.lists(_scalars, max_size=4) | st.dictionaries(st.text(max_size=4), _scalars, max_size=2)
_names = st.sampled_from(
    "completion_tokens prompt_tokens cached_tokens finish_reason spec_verify_ct spec_num_correct_drafts "
    "spec_num_proposed_drafts spec_correct_drafts_histogram spec_accept_length spec_odd decode_throughput".split()
)
_events = st.one_of(
    st.builds(
        lambda text, ids, meta: json.dumps({"text": text, "output_ids": ids, "meta_info": meta}).encode(),
        _values,
        _values,
        st.dictionaries(_names, _values, max_size=8) | _values,
    ),
    st.builds(lambda n: event(n, list(range(n)), "x" * n, "length"), st.integers(0, 20)),
    st.binary(max_size=30),
    _values.map(lambda v: json.dumps(v).encode()),
)


@given(st.lists(st.tuples(st.sampled_from([None, "message", "error", "", "ping"]), _events), max_size=14))
def test_no_events_end_in_a_traceback_or_an_unmarked_number(events):
    """Whatever comes: a RequestError, or a time per token that counts and times bear out, or one that is marked."""
    answer = Answer(0.0)
    try:
        for i, (name, data) in enumerate(events):
            answer.take(0.1 + i * 0.01, name, data)
        r = answer.read()
    except RequestError:
        return
    found = doubts.of(r, Asked(64))
    json.dumps([d.as_dict() for d in found])
    if r.tpot_s is not None and not any(d.refuses for d in found):
        assert r.tpot_s > 0 and r.output_tokens <= 64
        assert r.counts.get("ids", r.output_tokens) == r.output_tokens == r.first_tokens + r.decode_tokens
        assert len(r.chunk_times) <= r.output_tokens
    if r.accept_length is not None and r.accept_length > 64:
        assert found


def streamed(documents, tokens=32):
    """(kinds of doubts, result) of an answer that came as these events, 10 ms apart."""
    taken = Answer(0.0)
    for i, document in enumerate(documents):
        taken.take(0.03 + i / 100, None, json.dumps(document).encode())
    found = taken.read()
    return {d.kind for d in doubts.of(found, Asked(tokens, fixed=True))}, found


def piece(i, *, incremental=False, last=False, ids=True, **meta):
    first = i if incremental else 0
    told = {"prompt_tokens": 5, "cached_tokens": 0, "finish_reason": {"type": "length"} if last else None, **meta}
    shown = {"output_ids": list(range(first, i + 1))} if ids else {}
    return {"text": "".join(f"w{j} " for j in range(first, i + 1)), "meta_info": told, **shown}


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_without_counts_on_the_way_ids_or_one_event_per_token_tell_the_first_event(incremental, ids):
    last = {"completion_tokens": 32}
    events = [piece(i, incremental=incremental, ids=ids, last=i == 31, **(last if i == 31 else {})) for i in range(32)]
    kinds, found = streamed(events)
    assert found.first_tokens == 1 and found.tpot_s == pytest.approx(0.01) and not kinds
    assert len(found.chunk_tokens) == len(found.chunk_times) == 32
    if ids:
        for e in events:
            e["meta_info"].pop("completion_tokens", None)
        kinds, found = streamed(events)
        assert found.output_tokens == 32 and found.tpot_s == pytest.approx(0.01)


def test_a_count_on_the_way_is_not_guessed_where_events_carry_several_tokens():
    events = [piece(i, ids=False, last=i == 31, **({"completion_tokens": 32} if i == 31 else {})) for i in (7, 15, 31)]
    assert "first event unknown" in streamed(events)[0]


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("count", [lambda i: 1, lambda i: (i + 2) // 2])
def test_a_count_that_lags_behind_the_text_is_refused(incremental, ids, count):
    events = [piece(i, incremental=incremental, ids=ids, last=i == 31, completion_tokens=count(i)) for i in range(32)]
    assert "counts disagree" in streamed(events)[0]


def test_repeated_events_and_text_that_was_held_back_are_no_lag():
    events = [piece(i, completion_tokens=i + 1, last=i == 31) for i in range(32)]
    doubled = [e for e in events for _ in range(2)]
    assert streamed(doubled)[0] == set()
    late = piece(31, completion_tokens=32, last=True)
    assert streamed([*events[:-1], {**late, "text": late["text"][:-4]}, late])[0] == set()


def test_drafts_without_verify_rounds_contradict():
    for rounds in ({}, {"spec_verify_ct": 0}, {"spec_verify_ct": -3}):
        told = {"spec_num_correct_drafts": 21, "spec_num_proposed_drafts": 30, **rounds}
        events = [piece(i, completion_tokens=i + 1, last=i == 31, **told) for i in range(32)]
        assert "speculative counts disagree" in streamed(events)[0]


def test_cached_tokens_in_openai_s_place():
    events = [
        piece(i, completion_tokens=i + 1, last=i == 31, cached_tokens=None, prompt_tokens_details={"cached_tokens": 4})
        for i in range(32)
    ]
    assert "cached prompt" in streamed(events)[0]


@pytest.mark.parametrize("reason", ["abort", {"type": "abort", "message": "by the administrator"}])
def test_an_aborted_answer_is_a_failed_request_and_no_short_answer(reason):
    with pytest.raises(RequestError, match="aborted"):
        streamed([piece(0, completion_tokens=1), piece(1, completion_tokens=2, finish_reason=reason)])


def drafted(repeat, index, verify, text="same", **more):
    return {
        "status": "ok",
        "repeat": repeat,
        "index": index,
        "prompt_sha256": f"p{index}",
        "text_sha256": text,
        "output_tokens": 64,
        "prompt_tokens": 9,
        "verify_ct": verify,
        "drafts_vary": True,
        **more,
    }


def test_drafts_from_earlier_answers_are_told():
    """As llama.cpp's ngram-mod drafts: nothing on a prompt's first answer, nearly everything on its second."""
    rows = [drafted(r, i, first if r == 0 else 15) for r in range(3) for i, first in enumerate((63, 63, 51))]
    (said,) = doubts.said(rows)
    assert "1.07 in the first pass and 4.20 in later ones" in said


@pytest.mark.parametrize(
    "rows",
    [
        [drafted(r, i, 27) for r in range(3) for i in range(3)],
        [drafted(r, i, 30 - 2 * r) for r in range(3) for i in range(3)],  # as a GPU's numerics let it vary
        [drafted(r, 0, 63 if r == 0 else 15, text=f"another {r}") for r in range(3)],  # sampled anew
        [drafted(0, 0, 63, session="a"), drafted(0, 0, 15, session="b")],  # another start of the server
        [drafted(0, i, 63 if i else 15) for i in range(3)],  # one pass
    ],
)
def test_drafts_without_memory_are_not_accused(rows):
    assert not any("earlier answers" in s for s in doubts.said(rows))


@pytest.mark.parametrize("incremental", [False, True])
def test_the_text_so_far_is_there_while_it_streams_and_is_bounded(incremental):
    events = stream([1] * 60, incremental=incremental)
    answer, seen = Answer(0.0), []
    for i, data in enumerate(events):
        answer.take(0.1 + i * 0.01, None, data)
        seen.append(answer.so_far(20))
    whole = answer.read().text
    assert seen[0] == "" and seen[-1] == whole[-20:] == answer.so_far(20)
    told = [s for s in seen if s]
    assert len(told) > 40 and all(len(s) <= 20 and s in whole for s in told)
    assert [whole.index(s) for s in told] == sorted(whole.index(s) for s in told)
    assert answer.so_far(10_000) == whole
