"""What other people's clients send and read beyond a plain request: lists, samples, log-probabilities, grammars."""

import json
import math
import re

import httpx
import numpy as np
import openai
import pytest

from labkit.pocket.tokenizer import Tokenizer
from training.reference import Reference

GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
IDS = [[20, 30, 40], [50, 60]]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(folder):
    return Reference(folder)


def logp(model, text: list[int]) -> np.ndarray:
    """Log-probabilities [positions, vocabulary] of what follows each token of `text`."""
    logits = model.logits(text).astype(np.float64)
    return (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )


# ---------------------------------------------------------------- lists and samples


def test_a_list_of_prompts_is_a_list_of_answers(server):
    alone = [server.post("/generate", {"input_ids": ids, "sampling_params": GREEDY}).json() for ids in IDS]
    for body in ({"input_ids": IDS}, {"input_ids": IDS, "rid": ["a", "b"]}):
        answers = server.post("/generate", body | {"sampling_params": GREEDY}).json()
        assert [a["output_ids"] for a in answers] == [a["output_ids"] for a in alone]
    assert [a["meta_info"]["id"] for a in answers] == ["a", "b"]
    [one] = server.post("/generate", {"text": ["the"], "sampling_params": [GREEDY]}).json()
    assert one["meta_info"]["completion_tokens"] == 6


def test_a_streamed_list_numbers_its_chunks(server):
    whole = server.post("/generate", {"input_ids": IDS, "sampling_params": GREEDY}).json()
    chunks, _ = server.stream("/generate", {"input_ids": IDS, "sampling_params": GREEDY})
    for i in range(2):
        assert [c for c in chunks if c["index"] == i][-1]["output_ids"] == whole[i]["output_ids"]


def test_samples_differ_and_repeat_with_the_seed(server, client):
    sampling = GREEDY | {"temperature": 1, "n": 3, "sampling_seed": 5}
    first, second = (server.post("/generate", {"text": "the", "sampling_params": sampling}).json() for _ in range(2))
    ids = [a["output_ids"] for a in first]
    assert ids == [a["output_ids"] for a in second] and len({tuple(i) for i in ids}) == 3
    answer = client.completions.create(model="m", prompt=["the", "words"], n=2, max_tokens=3, seed=1)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    tokens = client.completions.create(model="m", prompt=["the", "words"], max_tokens=3).usage
    assert answer.usage.completion_tokens <= 12 and answer.usage.prompt_tokens == tokens.prompt_tokens


def test_streamed_samples_are_the_whole_ones(client):
    ask = {"model": "m", "prompt": ["the", "words"], "n": 2, "max_tokens": 8, "seed": 3}
    whole = client.completions.create(**ask)
    text = dict.fromkeys(range(4), "")
    for chunk in client.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            text[choice.index] += choice.text
    assert [text[c.index] for c in whole.choices] == [c.text for c in whole.choices]
    assert chunk.usage.completion_tokens == whole.usage.completion_tokens


def test_openai_streams_have_a_chunk_for_every_step(slow_server):
    """A token takes 20 ms here: nothing may gather them, or a load tool shows gaps that the engine does not have."""
    body = {"prompt": [20], "max_tokens": 10, "ignore_eos": True, "return_token_ids": True}
    chunks, _ = slow_server.stream("/v1/completions", body)
    assert max(len(c["choices"][0]["token_ids"]) for c in chunks[:-1]) <= 4  # half characters wait for their rest
    chunks, _ = slow_server.stream("/generate", {"input_ids": [20], "sampling_params": GREEDY | {"stream_interval": 3}})
    assert [c["meta_info"]["completion_tokens"] for c in chunks] in ([1, 4, 6], [1, 4, 6, 6])


# ---------------------------------------------------------------- log-probabilities


def test_output_logprobs_are_the_models(server, model):
    body = {"input_ids": IDS[0], "sampling_params": GREEDY, "return_logprob": True, "top_logprobs_num": 3}
    answer = server.post("/generate", body | {"return_text_in_logprobs": True}).json()
    meta, output = answer["meta_info"], answer["output_ids"]
    expected = logp(model, IDS[0] + output)
    assert [t[1] for t in meta["output_token_logprobs"]] == output
    for i, ((p, token, text), top) in enumerate(
        zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True)
    ):
        row = expected[len(IDS[0]) - 1 + i]
        assert p == pytest.approx(row[token], abs=1e-4) and isinstance(text, str)
        assert [t[1] for t in top] == np.argsort(-row, kind="stable")[:3].tolist()
        assert top[0][0] == p  # greedy
    assert meta["input_token_logprobs"] == []


@pytest.mark.parametrize("first", [0, 1, 2])
def test_prompt_logprobs_from_a_place_on(server, model, first):
    body = {"input_ids": IDS[0], "sampling_params": GREEDY | {"max_new_tokens": 0}, "return_logprob": True}
    meta = server.post("/generate", body | {"logprob_start_len": first}).json()["meta_info"]
    expected = logp(model, IDS[0])
    assert [t[1] for t in meta["input_token_logprobs"]] == IDS[0][first:]
    for i, (p, token, text) in enumerate(meta["input_token_logprobs"], first):
        assert text is None
        assert p is None if i == 0 else p == pytest.approx(expected[i - 1][token], abs=1e-4)


def test_streamed_logprobs_end_as_the_whole_ones(server):
    body = {"input_ids": IDS[0], "sampling_params": GREEDY, "return_logprob": True, "logprob_start_len": 0}
    whole = server.post("/generate", body).json()["meta_info"]
    chunks, _ = server.stream("/generate", body)
    for chunk in chunks:
        meta = chunk["meta_info"]
        assert meta["output_token_logprobs"] == whole["output_token_logprobs"][: meta["completion_tokens"]]
        assert meta["input_token_logprobs"] == whole["input_token_logprobs"]


def test_what_lm_eval_asks_for_loglikelihoods(client, model):
    """Lists of ids, echo, logprobs 1, one token: the sum over the continuation, and whether it is the greedy one."""
    answer = client.completions.create(
        model="m", prompt=IDS, max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234
    )
    for ids, choice in zip(IDS, answer.choices, strict=True):
        expected = logp(model, ids)
        found = choice.logprobs.token_logprobs
        assert found[0] is None and choice.logprobs.top_logprobs[0] is None
        assert sum(found[1:-1]) == pytest.approx(sum(expected[i - 1][ids[i]] for i in range(1, len(ids))), abs=1e-3)
        for p, top in zip(found[1:], choice.logprobs.top_logprobs[1:], strict=True):
            assert max(top.values()) >= p - 1e-9
        assert "".join(choice.logprobs.tokens) == choice.text
        offsets = np.cumsum([0, *(len(t) for t in choice.logprobs.tokens)])[:-1]
        assert choice.logprobs.text_offset == offsets.tolist()


def test_logprobs_0_are_the_tokens_own(client):
    """It once was 200 and null: a silent wrong answer."""
    ask = {"model": "m", "prompt": "the", "max_tokens": 4, "temperature": 0, "logprobs": 0}
    whole = client.completions.create(**ask).choices[0].logprobs
    assert len(whole.token_logprobs) == 4 and whole.top_logprobs is None
    assert all(p <= 0 and math.isfinite(p) for p in whole.token_logprobs)
    parts = [c.choices[0].logprobs for c in client.completions.create(**ask, stream=True)]
    assert [p for part in parts for p in part.token_logprobs] == whole.token_logprobs


def test_chat_logprobs(client):
    ask = {"model": "m", "messages": [{"role": "user", "content": "the"}], "max_tokens": 4, "temperature": 0}
    whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2).choices[0]
    content = whole.logprobs.content
    assert len(content) == 4 and all(len(e.top_logprobs) == 2 for e in content)
    assert b"".join(bytes(e.bytes) for e in content).decode(errors="replace") == whole.message.content
    assert all(e.logprob == e.top_logprobs[0].logprob for e in content)
    chunks = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2, stream=True)
    parts = [e.logprob for c in chunks for e in (c.choices[0].logprobs.content if c.choices else [])]
    assert parts == [e.logprob for e in content]


def test_the_c_engine_scores_as_the_reference(launch, exact, c_folder):
    """Drafting or not, chunked prompt or not; the reference rounds its experts' activations in its own order."""
    model, prompt = Reference(c_folder, w4a8=True), list(range(20, 90))
    found = []
    for flags in ((), ("--speculative-algorithm", "NEXTN")):
        server = launch(*exact, *flags)
        body = {"input_ids": prompt, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 4}
        meta = server.post("/generate", body | {"sampling_params": GREEDY}).json()["meta_info"]
        found.append({k: v for k, v in meta.items() if k.endswith("logprobs")})
        server.stop()
    assert found[0] == found[1]
    expected = logp(model, prompt)
    got = [t[0] for t in found[0]["input_token_logprobs"]]
    assert got[0] is None and len(got) == len(prompt)
    gaps = [abs(got[i] - expected[i - 1][prompt[i]]) for i in range(1, len(prompt))]
    assert np.median(gaps) < 0.05 and max(gaps) < 0.5
    for top in found[0]["output_top_logprobs"]:
        assert [p for p, *_ in top] == sorted((p for p, *_ in top), reverse=True) and len({t for _, t, _ in top}) == 4


# ---------------------------------------------------------------- grammars


@pytest.fixture(scope="module", params=["reference", "c", "c-drafting"])
def any_server(request, launch):
    """A grammar must hold with drafts too: a draft token that it forbids is a rejected draft."""
    if request.param == "reference":
        return request.getfixturevalue("server")
    return launch(*(("--speculative-algorithm", "NEXTN") if request.param == "c-drafting" else ()))


def test_a_json_schema_is_followed(any_server):
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}, "sure": {"type": "boolean"}},
        "required": ["answer", "sure"],
        "additionalProperties": False,
    }
    with openai.OpenAI(base_url=f"{any_server.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "the"}],
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
            max_tokens=200,
            seed=1,
        )
    said = json.loads(answer.choices[0].message.content)
    assert said.keys() == {"answer", "sure"} and 0 <= said["answer"] <= 99
    assert answer.choices[0].finish_reason == "stop"


def test_a_regex_is_followed(any_server):
    sampling = {"max_new_tokens": 60, "regex": "(ab|cd){3}-[0-9]{2}"}
    text = any_server.post("/generate", {"text": "the", "sampling_params": sampling}).json()["text"]
    assert re.fullmatch("(ab|cd){3}-[0-9]{2}", text)


def test_json_mode_begins_an_object(client):
    ask = {"model": "m", "messages": [{"role": "user", "content": "the"}], "max_tokens": 8}
    text = client.chat.completions.create(**ask, response_format={"type": "json_object"}).choices[0].message.content
    assert text.lstrip().startswith("{")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            **ask, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objec"}}}
        )
    assert caught.value.param == "response_format.json_schema.json_schema"


# ---------------------------------------------------------------- what changes nothing, and addresses


@pytest.mark.parametrize(
    "more",
    [
        {"prompt_cache_key": "x"},
        {"modalities": ["text"]},
        {"separate_reasoning": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "minimal"},
        {"stream_interval": 2},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"},
        {"user": "me", "metadata": {"a": 1}, "store": False, "service_tier": "auto"},
    ],
)
def test_harmless_fields_are_taken(server, more):
    body = {"model": "m", "messages": [{"role": "user", "content": "the"}], "max_tokens": 2}
    assert server.post("/v1/chat/completions", body | more).status_code == 200


def test_harmless_fields_of_generate(server):
    body = {"text": "the", "model": "m", "sampling_params": GREEDY | {"stream_interval": 1}}
    assert server.post("/generate", body).status_code == 200


def test_the_shipped_template_takes_tools_and_what_they_said():
    from labkit.pocket.options import SHIPPED_WEIGHTS

    said = [
        {"role": "user", "content": "two and two"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ]
    assert "two and two" in Tokenizer(SHIPPED_WEIGHTS).chat(said, {"enable_thinking": False, "messages": "mine"})


def test_choices_and_usage_have_sglangs_fields(server):
    body = {"prompt": "the", "max_tokens": 30, "temperature": 0}
    answer = server.post("/v1/completions", body).json()
    assert answer["usage"]["reasoning_tokens"] == 0 and answer["choices"][0]["matched_stop"] is None
    text = answer["choices"][0]["text"]
    at = next(i for i in range(4, len(text)) if text[i] != "\ufffd")
    stopped = server.post("/v1/completions", body | {"stop": [text[at]]}).json()["choices"][0]
    assert stopped["matched_stop"] == text[at] and stopped["finish_reason"] == "stop"
    chunks, _ = server.stream("/v1/completions", body | {"stop": [text[at]]})
    assert chunks[-1]["choices"][0]["matched_stop"] == text[at]


def test_errors_have_sglangs_shape_and_json_values(server):
    flat = server.post("/v1/completions", {"prompt": "the", "temperature": True}).json()
    assert (flat["object"], flat["type"], flat["code"], flat["param"]) == (
        "error",
        "BadRequestError",
        400,
        "temperature",
    )
    assert "got true;" in flat["message"]
    nested = server.post("/generate", {"text": "the", "sampling_params": {"stop": {"a": None}}}).json()
    assert 'got {"a": null};' in nested["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/ping", "/openapi.json", "/health"])
def test_addresses_that_tools_try_first(server, path):
    assert server.get(path).status_code == 200


def test_openapi_lists_every_address(server):
    document = server.get("/openapi.json").json()
    assert {"/generate", "/v1/models/{model}", "/flush_cache"} <= document["paths"].keys()
    assert all(about["summary"] for methods in document["paths"].values() for about in methods.values())


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_tokenize_and_back(server, folder, prefix):
    text = "the tiny model 🙂"
    answer = server.post(f"{prefix}/tokenize", {"prompt": text}).json()
    assert answer["tokens"] == Tokenizer(folder).encode(text) and answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 512
    assert server.post(f"{prefix}/detokenize", {"tokens": answer["tokens"]}).json() == {"text": text}
    several = server.post(f"{prefix}/tokenize", {"prompt": [text, "a"]}).json()
    assert several["tokens"][0] == answer["tokens"] and len(several["count"]) == 2
    assert server.post(f"{prefix}/detokenize", {"tokens": several["tokens"]}).json()["text"] == [text, "a"]
    assert server.post(f"{prefix}/tokenize", {"prompt": 3}).status_code == 400
    assert server.post(f"{prefix}/detokenize", {"tokens": [9999]}).status_code == 400


def test_a_page_may_ask(server, start):
    asked = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"}
    answer = httpx.options(server.url + "/v1/chat/completions", headers=asked)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "*"
    locked = start("--api-key-env", "POCKET_TEST_KEY", env={"POCKET_TEST_KEY": "s3cret"})
    assert httpx.options(locked.url + "/v1/chat/completions", headers=asked).status_code == 200
    assert httpx.get(locked.url + "/v1/models").status_code == 401
    assert httpx.get(locked.url + "/v1/models").json()["object"] == "error"
    locked.stop()
