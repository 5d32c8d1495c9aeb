"""Content split: no held-out question, and no held-out template, is in the training documents."""

import json
from pathlib import Path

import pytest

import labkit
from labkit.workloads import texts
from labkit.workloads.texts import problems

WEIGHTS = Path(labkit.__file__).parent / "pocket/weights"
FILES = [WEIGHTS / "test_seen.jsonl", WEIGHTS / "test_unseen.jsonl"]


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_test_sets_are_distinct_questions_of_the_right_templates():
    seen, unseen = (rows(p) for p in FILES)
    assert len(seen) == 1319 and len(texts.HELD_OUT) == 10
    assert {r["template"] for r in seen} == set(texts.SEEN) and {r["template"] for r in unseen} == set(texts.HELD_OUT)
    assert not set(texts.SEEN) & set(texts.HELD_OUT) and len(texts.SEEN) + len(texts.HELD_OUT) == 85
    keys = [problems.normalise(r["prompt"]) for r in seen + unseen]
    assert len(set(keys)) == len(keys)


def test_held_out_answers_end_in_their_number():
    for row in rows(FILES[0]) + rows(FILES[1]):
        assert texts.final_number(row["cot"]) == pytest.approx(float(row["answer"].replace(",", "")))
        assert row["prompt"].startswith("Question: ") and row["prompt"].endswith("\nAnswer:")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Tom has 3 pens.", "tom  has 3\npens .", True),
        ("Tom has 3 pens.", "Tom has 4 pens.", False),
        ("It costs 1.5 now", "It costs 15 now", False),
        ("5% of it", "5 of it", False),
    ],
)
def test_normalise(a, b, same):
    assert (problems.normalise(a) == problems.normalise(b)) is same


def test_training_documents_hold_no_test_question():
    """A slice of the very documents that training used: without the filter it does hold test questions."""
    pytest.importorskip("reasoning_gym", reason="makes the training documents; part of the [train] extra")
    from training import corpus

    banned = corpus.banned_prompts(WEIGHTS)
    assert len(banned) == len(rows(FILES[0])) + len(rows(FILES[1]))
    kept = list(corpus.documents(0, 2500, banned, []))
    unfiltered = list(corpus.documents(0, 2500, frozenset(), []))
    asked = [t for t in kept if t.kind == "word-problems"]
    assert len(asked) > 1000
    assert not {problems.normalise(t.prompt) for t in kept} & banned
    assert not {t.template for t in asked} & set(texts.HELD_OUT)
    assert len(unfiltered) > len(kept), "the slice should show that the filter drops something"


def test_filter_drops_a_document_whose_question_is_banned():
    """The same without reasoning-gym: the drawing of word problems is replaced by one that repeats a test question."""
    from unittest import mock

    from training import corpus

    banned = corpus.banned_prompts(WEIGHTS)
    question = rows(FILES[0])[7]["prompt"].removeprefix("Question: ").removesuffix("\nAnswer:")
    with mock.patch.object(texts, "word_problem", lambda rng, template: (question.upper(), "#### 1", "1")):
        kept = list(corpus.documents(0, 300, banned, []))
        assert len(list(corpus.documents(0, 300, frozenset(), []))) == 300
    assert kept and all(t.kind != "word-problems" for t in kept)
