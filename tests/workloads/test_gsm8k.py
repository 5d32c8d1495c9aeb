"""GSM8K as published: shots, chat template, sampling; from a small folder made here, never from a copy of the set."""

import json
import shutil

import pytest

from labkit.errors import BadInput
from labkit.workloads import chat, check, gsm8k, load
from labkit.workloads.loads import POCKET_WEIGHTS


@pytest.fixture
def folder(tmp_path):
    for split, n in (("train", 12), ("test", 8)):
        rows = [
            {"question": f"{split} question {i}?", "answer": f"{i} + 1 = <<{i}+1={i + 1}>>{i + 1}\n#### {i + 1}"}
            for i in range(n)
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


def test_whether_questions_can_be_had_is_asked_before_anything_runs(folder, tmp_path, monkeypatch):
    check(f"gsm8k:{folder}")
    check("gsm_symbolic")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no `datasets` here
    for bad in ("gsm8k", f"gsm8k:{tmp_path / 'none'}", "gsm9k", "code:x", "file:/nowhere.jsonl"):
        with pytest.raises(BadInput, match="workload"):
            check(bad)


@pytest.fixture
def model(tmp_path):
    """A model folder with a thinking chat template in Hugging Face's dialect."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(POCKET_WEIGHTS / "tokenizer.json", folder)
    template = (
        "{%- for m in messages %}\n{{ bos_token + '<|' + m.role + '|>' + m['content'] }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% endif %}{%- endif %}"
    )
    config = {"chat_template": template, "bos_token": {"content": "<s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_on_the_pocket_model_it_asks_without_shots(folder):
    prompts = load(f"gsm8k:{folder}", count=8, seed=3)
    assert {p.text for p in prompts} == {f"Question: test question {i}?\nAnswer:" for i in range(8)}
    assert all(p.sampling.items() >= gsm8k.SAMPLING.items() and p.workload == "gsm8k" for p in prompts)
    assert len({p.sampling["sampling_seed"] for p in prompts}) == 8
    assert all(int(p.text.split("question ")[1].split("?")[0]) + 1 == int(p.expected) for p in prompts)


def test_elsewhere_five_shots_of_the_train_split_in_the_models_template(folder, model):
    prompts = load(f"gsm8k:{folder}", count=3, seed=42, tokenizer_path=model)
    for p in prompts:
        assert p.text.startswith("<s><|user|>Solve") and p.text.endswith("Answer:<|assistant|><think>")
        assert p.text.count("train question") == 5 and p.text.count("test question") == 1
        assert "<<" not in p.text and p.max_new_tokens == 32768
    head = {p.text.split("test question")[0] for p in prompts}
    assert len(head) == 1, "the same shots for every question"
    other = load(f"gsm8k:{folder}", count=3, seed=43, tokenizer_path=model)
    assert other[0].text.split("test question")[0] not in head


def test_sampling_settings_are_a_parameter_of_every_load(folder):
    for name in (f"gsm8k:{folder}", "word-problems", "repetitive", "code"):
        hot = load(name, count=2, seed=1, sampling={"temperature": 0.3, "top_k": 7})
        assert all(p.sampling["temperature"] == 0.3 and p.sampling["top_k"] == 7 for p in hot)
        assert len({p.sampling["sampling_seed"] for p in hot}) == 2
        assert hot == load(name, count=2, seed=1, sampling={"temperature": 0.3, "top_k": 7})
        greedy = load(name, count=2, seed=1, sampling={"temperature": 0})
        assert all("sampling_seed" not in p.sampling for p in greedy)


def test_the_data_sets_own_name_is_accepted():
    assert load("gsm_symbolic", count=2, seed=1) == load("word-problems", count=2, seed=1)


@pytest.mark.parametrize(
    "spoil, word",
    [
        (lambda f: (f / "test.jsonl").unlink(), "test.jsonl"),
        (lambda f: (f / "test.jsonl").write_text(""), "at least one"),
        (lambda f: (f / "test.jsonl").write_text('{"question": "a", "answer": "12"}'), "test.jsonl line 1"),
        (lambda f: (f / "test.jsonl").write_text("[1]"), "test.jsonl line 1"),
    ],
)
def test_a_folder_that_is_not_gsm8k_is_one_line(folder, spoil, word):
    spoil(folder)
    with pytest.raises(BadInput, match=word):
        load(f"gsm8k:{folder}", count=1, seed=1)


def test_more_shots_than_there_are_is_refused(folder):
    with pytest.raises(BadInput, match="at most 12"):
        load(f"gsm8k:{folder}", count=1, seed=1, shots=13)


def test_a_template_that_fails_is_one_line(model):
    (model / "chat_template.jinja").write_text("{{ raise_exception('only with a system message') }}")
    with pytest.raises(BadInput, match="only with a system message"):
        chat.render(model, "hi", thinking=True)


def test_a_template_cannot_leave_the_sandbox(model):
    (model / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(BadInput, match="template"):
        chat.render(model, "hi", thinking=True)


def test_without_a_template_the_prompt_is_plain(folder, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    assert chat.render(bare, "hi", thinking=True) is None
    assert load(f"gsm8k:{folder}", count=1, seed=1, tokenizer_path=bare)[0].text.startswith("Question: train")
