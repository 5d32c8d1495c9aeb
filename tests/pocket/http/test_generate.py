"""/generate as SGLang's clients know it: shapes, streams, stops."""

import numpy as np
import pytest

from labkit.pocket.tokenizer import Tokenizer
from training.reference import Reference

GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(folder):
    return Reference(folder)


def test_greedy_tokens_are_the_models(server, model):
    ids = [20, 30, 40]
    answer = server.post("/generate", {"input_ids": ids, "sampling_params": GREEDY}).json()
    expected = list(ids)
    for _ in range(12):
        expected.append(int(np.argmax(model.logits(expected)[-1])))
    assert answer["output_ids"] == expected[3:]


def test_the_request_of_sglangs_own_benchmark_client(server):
    """Every field that `sglang.bench_serving --backend sglang` of 0.5.23 sends, at what it sends by default."""
    body = {
        "input_ids": [20, 30, 40],
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": True},
        "lora_path": None,
        "return_logprob": False,
        "return_routed_experts": False,
        "logprob_start_len": -1,
    }
    events, _ = server.stream("/generate", body)
    assert events[-1]["meta_info"]["completion_tokens"] == 12
    refused = server.post("/generate", body | {"return_routed_experts": True})
    assert refused.status_code == 400 and "return_routed_experts" in refused.text


def test_meta_info(server):
    answer = server.post("/generate", {"text": "the words", "rid": "mine", "sampling_params": GREEDY}).json()
    meta = answer["meta_info"]
    assert meta["id"] == "mine"
    assert (meta["completion_tokens"], meta["cached_tokens"]) == (12, 0)
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert 0 < meta["first_token_latency"] < meta["e2e_latency"] < 60
    assert meta["prompt_tokens"] >= 2 and meta["decode_throughput"] > 0
    assert not any(k.startswith("spec_") for k in meta)


def test_stream_is_cumulative_and_ends_as_the_whole_answer(server):
    body = {"text": "the tiny model", "sampling_params": GREEDY}
    whole = server.post("/generate", body).json()
    chunks, _ = server.stream("/generate", body)
    assert len(chunks) > 2
    for before, after in zip(chunks, chunks[1:], strict=False):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert before["meta_info"]["finish_reason"] is None
    for chunk in chunks:
        assert chunk["meta_info"]["completion_tokens"] == len(chunk["output_ids"])
        assert chunk["meta_info"]["prompt_tokens"] == whole["meta_info"]["prompt_tokens"]
    last = chunks[-1]
    assert (last["text"], last["output_ids"]) == (whole["text"], whole["output_ids"])
    assert last["meta_info"].keys() == whole["meta_info"].keys()
    assert last["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]


def test_text_is_the_tokenizers(server, folder):
    answer = server.post("/generate", {"text": "the", "sampling_params": GREEDY | {"max_new_tokens": 60}}).json()
    assert answer["text"] == Tokenizer(folder).decode(answer["output_ids"])


def test_seeded_sampling_repeats_and_seeds_differ(server):
    def ids(**more):
        sampling = {"temperature": 1.0, "max_new_tokens": 16, "ignore_eos": True, **more}
        return server.post("/generate", {"text": "the", "sampling_params": sampling}).json()["output_ids"]

    assert ids(sampling_seed=5) == ids(sampling_seed=5) != ids(sampling_seed=6)
    assert ids() != ids()


def test_stop_token_ends_the_request_and_stays_out_of_the_text(server, folder):
    ids = server.post("/generate", {"text": "the", "sampling_params": GREEDY}).json()["output_ids"]
    stop = ids[4]
    cut = ids.index(stop) + 1
    answer = server.post("/generate", {"text": "the", "sampling_params": GREEDY | {"stop_token_ids": [stop]}}).json()
    assert answer["output_ids"] == ids[:cut]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["text"] == Tokenizer(folder).decode(ids[: cut - 1])
    kept = GREEDY | {"stop_token_ids": [stop], "no_stop_trim": True}
    assert server.post("/generate", {"text": "the", "sampling_params": kept}).json()["text"] == Tokenizer(
        folder
    ).decode(ids[:cut])


@pytest.mark.parametrize("streamed", [False, True])
def test_stop_string(server, folder, streamed):
    text = server.post("/generate", {"text": "the", "sampling_params": GREEDY | {"max_new_tokens": 60}}).json()["text"]
    at = next(i for i in range(8, len(text) - 1) if "\ufffd" not in text[i : i + 2])
    stop = text[at : at + 2]
    at = text.index(stop)
    body = {"text": "the", "sampling_params": GREEDY | {"max_new_tokens": 60, "stop": ["never comes", stop]}}
    if streamed:
        chunks, _ = server.stream("/generate", body)
        assert all(text[:at].startswith(c["text"]) for c in chunks)
        answer = chunks[-1]
    else:
        answer = server.post("/generate", body).json()
    assert answer["text"] == text[:at]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) < 60
    full = Tokenizer(folder).decode(answer["output_ids"])
    assert stop in full and stop not in Tokenizer(folder).decode(answer["output_ids"][:-1])


def test_no_new_tokens(server):
    answer = server.post("/generate", {"text": "the", "sampling_params": {"max_new_tokens": 0}}).json()
    assert (answer["text"], answer["output_ids"]) == ("", [])
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 0}


def test_default_length_is_cut_to_the_context(server):
    answer = server.post("/generate", {"input_ids": [20] * 500, "sampling_params": {"ignore_eos": True}}).json()
    assert answer["meta_info"]["completion_tokens"] == 12
