"""Generated texts: seeded, distinct, and each kind what it claims to be."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import labkit
from labkit.workloads import texts
from labkit.workloads.texts import problems

WEIGHTS = Path(labkit.__file__).parent / "pocket/weights"
MADE = ("repetitive", "code", "prose", "arithmetic")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))


@pytest.mark.parametrize("kind", MADE)
def test_same_seed_same_text_other_seed_split_or_index_another(kind):
    one = [texts.make(kind, 5, i) for i in range(40)]
    assert one == [texts.make(kind, 5, i) for i in range(40)]
    assert len({t.prompt + t.answer for t in one}) == 40
    others = [texts.make(kind, 6, i) for i in range(40)] + [texts.make(kind, 5, i, split="train") for i in range(40)]
    assert not {t.prompt + t.answer for t in one} & {t.prompt + t.answer for t in others}


@pytest.mark.parametrize("kind", MADE)
def test_format(kind):
    t = texts.make(kind, 1, 1)
    assert t.prompt.startswith("Question: ") and t.prompt.endswith("\nAnswer:")
    assert t.answer[0] == " " and t.answer.strip() == t.answer[1:]


def test_unknown_kind_names_the_accepted_ones():
    with pytest.raises(ValueError, match="repetitive, code"):
        texts.make("poems", 0, 0)


def test_importing_needs_nothing_but_the_standard_library():
    code = "import sys, labkit.workloads.texts; sys.exit(bool({'numpy', 'torch', 'reasoning_gym'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_repetitive_is_long_and_not_one_loop(tokenizer):
    lengths = []
    for i in range(60):
        answer = texts.make("repetitive", 2, i).answer
        words = answer.replace("\n", " \n ").split(" ")
        lengths.append(len(tokenizer.encode(answer).ids))
        assert not texts.is_loop(words) and not texts.is_loop(answer, longest=200)
        assert 0.02 < texts.distinct_share(words) <= 1
    assert min(lengths) >= 590 and sum(lengths) / len(lengths) > 650  # tokens of the pocket model


def test_repetitive_follows_from_its_request():
    """A JSON list's rows obey the rules that the request states."""
    found = 0
    for i in range(200):
        t = texts.make("repetitive", 3, i)
        if not t.prompt.startswith("Question: Write a JSON list"):
            continue
        rows = json.loads(t.answer)
        assert f"of {len(rows)} entries" in t.prompt and [r["id"] for r in rows] == list(range(1, len(rows) + 1))
        for name in list(rows[0])[1:]:
            column = [r[name] for r in rows]
            if isinstance(column[0], int):
                step = column[1] - column[0]
                assert f"{name} starts at {column[0]} and grows by {step}" in t.prompt
                assert column == [column[0] + step * k for k in range(len(rows))]
            else:
                assert f"{name} cycles through {', '.join(list(dict.fromkeys(column)))}" in t.prompt
        found += 1
    assert found >= 8


def test_code_is_python():
    for i in range(80):
        ast.parse(texts.make("code", 4, i).answer.strip())


@given(st.integers(0, 10**6))
def test_arithmetic_is_right(index):
    t = texts.make("arithmetic", 0, index, split="train")
    assert texts.final_number(t.answer) == float(t.expected)
    question = t.prompt.removeprefix("Question: What is ").removesuffix("?\nAnswer:")
    if set(question) <= set("0123456789 +-x"):
        assert eval(question.replace("x", "*")) == int(t.expected)


@given(st.integers(0, 10**6))
def test_restyling_keeps_numbers_and_last_line(seed):
    from random import Random

    worked = "He has 3 * 12 = 36 pens.\nSo he keeps 36 - 6=30.\n#### 30"
    styled = problems.restyle(Random(seed), worked)
    assert styled.split("\n")[-1] == "#### 30"
    position = 0
    for number in ("3", "12", "36", "36", "6", "30", "30"):
        position = styled.index(number, position) + len(number)


def test_final_number():
    assert texts.final_number("a #### 1,200\nmore") == 1200
    assert texts.final_number("#### 1\n#### -2.5") == -2.5
    assert texts.final_number("no number") is None and texts.final_number("#### none") is None


def test_loops_and_shares():
    assert texts.is_loop([9, 8, 7] + [1, 2, 3] * 30) and not texts.is_loop(list(range(100)))
    assert texts.distinct_share([1] * 100) < 0.02 and texts.distinct_share(list(range(50))) == 1
    assert texts.distinct_share([1, 2]) == 1


def test_held_out_file(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt": "Question: q\\nAnswer:", "cot": " #### 2", "answer": "2", "template": 7}\n')
    assert texts.held_out(path) == [texts.Text("word-problems", "Question: q\nAnswer:", " #### 2", "2", 7)]
