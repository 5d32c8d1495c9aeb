"""Loads: the same for every arm and machine, distinct, of exactly the length that was asked for."""

import json

import pytest

from labkit.errors import BadInput
from labkit.workloads import Prompt, load
from labkit.workloads.loads import POCKET_WEIGHTS, _tokenizer, counter

TEXTS = [
    "repetitive",
    "code",
    "word-problems",
    "word-problems-unseen",
    "word-problems-sampled",
    "word-problems-unseen-sampled",
]


@pytest.mark.parametrize("name", TEXTS)
def test_seeded_and_distinct(name):
    one, two = load(name, count=5, seed=3), load(name, count=5, seed=3)
    assert one == two and len({p.text for p in one}) == 5
    assert load(name, count=3, seed=3) == one[:3]  # more prompts never change the first ones
    assert {p.text for p in load(name, count=5, seed=4)} != {p.text for p in one}
    assert all(p.workload == name and p.input_ids is None for p in one)


def test_how_each_load_samples():
    greedy, sampled = load("word-problems", count=2, seed=1), load("word-problems-sampled", count=2, seed=1)
    assert [p.text for p in greedy] == [p.text for p in sampled]  # the same questions, so that only sampling differs
    assert greedy[0].sampling == {"temperature": 0.0}
    assert sampled[0].sampling["temperature"] == 1.0
    assert len({p.sampling["sampling_seed"] for p in sampled}) == 2


def test_output_length():
    (free,), (fixed,) = load("code", count=1, seed=1), load("code", count=1, seed=1, output_tokens=64)
    assert (free.max_new_tokens, "ignore_eos" in free.sampling) == (512, False)
    assert (fixed.max_new_tokens, fixed.sampling["ignore_eos"]) == (64, True)


def test_expected_answers_come_from_the_held_out_file():
    (p,) = load("word-problems", count=1, seed=1)
    rows = [json.loads(line) for line in (POCKET_WEIGHTS / "test_seen.jsonl").read_text().splitlines()]
    assert {"prompt": p.text, "answer": p.expected} in [{k: r[k] for k in ("prompt", "answer")} for r in rows]


@pytest.mark.parametrize("name", ["repetitive", "code", "word-problems"])
@pytest.mark.parametrize("tokens", [16, 700])
def test_exact_prompt_length(name, tokens):
    prompts = load(name, count=3, seed=1, prompt_tokens=tokens)
    assert [len(p.input_ids) for p in prompts] == [tokens] * 3
    last = load(name, count=3, seed=1)
    tokenizer = _tokenizer(None)
    for p, short in zip(prompts, last, strict=True):
        said = tokenizer.decode(p.input_ids, skip_special_tokens=False)
        assert said.endswith(short.text[-20:]) and p.text is None
    # No common beginning: a prefix cache would have nothing to share.
    assert len({tuple(p.input_ids[:16]) for p in prompts}) == 3


def test_synthetic():
    prompts = load("synthetic", count=3, seed=1, prompt_tokens=1024, output_tokens=8)
    assert all(len(p.input_ids) == 1024 and 100 <= min(p.input_ids) and max(p.input_ids) < 6144 for p in prompts)
    assert prompts == load("synthetic", count=3, seed=1, prompt_tokens=1024, output_tokens=8)
    with pytest.raises(BadInput, match="prompt_tokens"):
        load("synthetic", count=1, seed=1)


def test_prompts_from_a_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n\n{"prompt": "b", "sampling": {"temperature": 0.5}}\n')
    one, two = load(f"file:{path}", count=2, seed=9)
    assert (one.text, one.expected, one.sampling) == ("a", "1", {"temperature": 0.0})
    # One that samples gets a seed, so that every arm draws the same way.
    assert two.sampling == {"temperature": 0.5, "sampling_seed": two.seed}
    assert one.workload == "file:mine.jsonl"  # no folder of this machine
    with pytest.raises(BadInput, match="count"):
        load(f"file:{path}", count=3, seed=9)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("file:gone.jsonl", None, "readable JSONL"),
        ("file:x.jsonl", "", "at least one prompt"),
        ("file:x.jsonl", '{"prompt": "a"}\n{"text": 1}\n', "x.jsonl line 2"),
        ("gsm9k", None, "one of repetitive"),
    ],
)
def test_bad_loads(tmp_path, monkeypatch, name, text, says):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(BadInput, match=says):
        load(name, count=1, seed=1)


def test_another_tokenizer_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="tokenizer"):
        load("code", count=1, seed=1, prompt_tokens=32, tokenizer_path=tmp_path)
    with pytest.raises(BadInput, match="vocab_size"):
        load("synthetic", count=1, seed=1, prompt_tokens=32, tokenizer_path=tmp_path)
    assert isinstance(load("code", count=1, seed=1, tokenizer_path=tmp_path)[0], Prompt)


def test_a_model_folder_without_a_tokenizer_has_no_counter(tmp_path):
    assert counter(tmp_path) is None and counter(None)("one two") > 1
