"""Other servers' streams read as SGLang's: nothing invented, nothing lost. The documents were written here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines import dialects, vllm
from labkit.measure.answer import Answer


def answered(dialect, events: list[dict], more: dict | None = None):
    """The RequestResult of these events, a millisecond apart."""
    read, answer = dialect.reader(), Answer(0.0)
    for i, event in enumerate(events):
        for data in read(json.dumps(event).encode()):
            answer.take(0.01 + i / 1000, None, data)
    return answer.read(more)


def llamacpp(tokens: int, **timings) -> list[dict]:
    """A stream of llama.cpp's /completion."""
    part = {"index": 0, "stop": False, "id_slot": -1, "tokens_evaluated": 5}
    events = [{**part, "content": "a", "tokens": [7 + i], "tokens_predicted": i + 1} for i in range(tokens)]
    told = {"cache_n": 0, "prompt_n": 5, "predicted_n": tokens, "predicted_ms": 10.0, "predicted_per_second": 1000.0}
    kinds = timings.pop("kinds", "none")
    end = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": tokens}
    end |= {"tokens_evaluated": 5, "timings": told | timings, "generation_settings": {"speculative.types": kinds}}
    return [*events, end]


def test_llamacpps_stream():
    r = answered(dialects.LLAMACPP, llamacpp(6))
    assert (r.output_tokens, r.prompt_tokens, r.cached_tokens, r.finish_reason) == (6, 5, 0, "length")
    assert r.text == "aaaaaa" and r.output_ids == list(range(7, 13)) and r.stream == "incremental"
    assert r.tpot_s == pytest.approx(1e-3) and r.accept_length is None and r.verify_ct is None


@pytest.mark.parametrize("n, accepted, drafted, a", [(96, 66, 66, 95 / 29), (96, 71, 71, 95 / 24), (96, 0, 40, 1.0)])
def test_llamacpps_accept_length_counts_every_pass(n, accepted, drafted, a):
    """Its log's own mean was 34 and 3.96 here: drafting passes only."""
    r = answered(dialects.LLAMACPP, llamacpp(n, draft_n=drafted, draft_n_accepted=accepted, kinds="none,ngram-mod"))
    assert (n - 1) / r.verify_ct == pytest.approx(a)
    assert (r.correct_drafts, r.proposed_drafts) == (accepted, drafted)


def test_llamacpp_that_drafts_and_finds_nothing_made_a_token_a_pass():
    r = answered(dialects.LLAMACPP, llamacpp(20, kinds="none,ngram-mod"))
    assert (r.verify_ct, r.correct_drafts, r.proposed_drafts) == (19, 0, 0)


def test_llamacpp_is_asked_without_its_own_defaults():
    body = dialects.LLAMACPP.body("hello", None, {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True})
    assert (body["n_predict"], body["ignore_eos"], body["cache_prompt"], body["stream"]) == (8, True, False, True)
    assert (body["top_k"], body["top_p"], body["min_p"]) == (0, 1.0, 0.0)  # 40, 0.95 and 0.05 if nobody says
    assert dialects.LLAMACPP.body(None, [1, 2], {"max_new_tokens": 8})["prompt"] == [1, 2]


def completion(tokens: int, *, running: bool, details: dict | None = None) -> list[dict]:
    usage = [{"prompt_tokens": 9, "completion_tokens": i + 1, "prompt_tokens_details": details} for i in range(tokens)]
    events = [
        {"object": "text_completion", "choices": [{"index": 0, "text": "b", "finish_reason": None}]}
        | ({"usage": usage[i]} if running else {})
        for i in range(tokens)
    ]
    events[-1]["choices"][0]["finish_reason"] = "length"
    return [*events, {"object": "text_completion", "choices": [], "usage": usage[-1]}]


@pytest.mark.parametrize("running", [False, True])
def test_openais_completions(running):
    r = answered(dialects.openai("m"), completion(5, running=running, details={"cached_tokens": 4}))
    assert (r.output_tokens, r.prompt_tokens, r.cached_tokens) == (5, 9, 4)
    assert r.chunk_tokens == [1, 2, 3, 4, 5] and r.tpot_s == pytest.approx(1e-3) and r.finish_reason == "length"


def test_what_is_not_told_stays_untold():
    r = answered(dialects.openai("m"), completion(5, running=False))
    assert r.cached_tokens is None and r.accept_length is None
    merged = completion(5, running=False)
    del merged[1]  # two tokens in one event: nothing tells in which
    r = answered(dialects.openai("m"), merged)
    assert r.output_tokens == 5 and r.first_tokens is None and r.tpot_s is None


def test_reasoning_counts_as_the_first_token():
    def delta(**said):
        return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": said, "finish_reason": None}]}

    events = [delta(role="assistant", content=""), delta(reasoning_content="hm"), delta(content="so")]
    events[-1]["choices"][0]["finish_reason"] = "stop"
    events.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    r = answered(dialects.openai("m", chat=True), events)
    assert r.ttft_s == pytest.approx(0.011) and r.text == "hmso" and r.tpot_s == pytest.approx(1e-3)


def test_chat_and_the_fields_that_only_some_servers_take():
    sampling = {"max_new_tokens": 4, "temperature": 0, "top_k": 5, "ignore_eos": True}
    plain = dialects.openai("m", chat=True).body("hi", None, sampling)
    assert plain["messages"] == [{"role": "user", "content": "hi"}] and "ignore_eos" not in plain
    more = dialects.openai("m", extras=True, salt=True).body("hi", None, sampling)
    assert more["ignore_eos"] and more["top_k"] == 5 and more["stream_options"]["continuous_usage_stats"]
    assert more["cache_salt"] != dialects.openai("m", extras=True, salt=True).body("hi", None, sampling)["cache_salt"]


def test_an_error_in_the_stream_is_an_error():
    from labkit.measure.wire import RequestError

    for dialect in (dialects.LLAMACPP, dialects.openai("m")):
        with pytest.raises(RequestError, match="out of memory"):
            answered(dialect, [{"error": {"message": "out of memory"}}])


METRICS = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} %(tokens)s
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} %(drafts)s
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} %(proposed)s
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} %(accepted)s
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} %(first)s
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} %(second)s
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.7e+09
"""


def counts(tokens, drafts, proposed, accepted, first, second):
    return vllm.read(METRICS % locals())


def test_vllms_counters_around_a_request():
    before = counts(1000.0, 300.0, 600.0, 400.0, 250.0, 150.0)
    after = counts(1064.0, 330.0, 660.0, 433.0, 271.0, 162.0)  # 64 tokens: the first by prefill, 30 rounds, 33 drafts
    found = vllm.spent(before, after, 64)
    assert found["spec_verify_ct"] == 30 and found["spec_num_correct_drafts"] == 33
    assert found["spec_correct_drafts_histogram"] == [9, 9, 12]
    r = answered(dialects.openai("m", extras=True), completion(64, running=True), found)
    assert r.verify_ct == 30 and r.histogram == [9, 9, 12]


def test_vllms_counters_prove_nothing_while_others_ask():
    before = counts(1000.0, 300.0, 600.0, 400.0, 250.0, 150.0)
    assert vllm.spent(before, counts(1200.0, 380.0, 760.0, 520.0, 330.0, 190.0), 64) == {}
    assert vllm.spent({"tokens": 5}, {"tokens": 69}, 64) == {}  # it does not draft


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=60))
def test_rounds_are_what_really_ran(passes):
    """Any mixture of passes with and without drafts: (proposed beyond the accepted, accepted) each."""
    n = 1 + sum(1 + accepted for _, accepted in passes)
    accepted = sum(a for _, a in passes)
    found = dialects.rounds(n, accepted, sum(p + a for p, a in passes))
    assert found["spec_verify_ct"] == len(passes)
