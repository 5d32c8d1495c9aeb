"""Answers as models end them: hundreds of odd endings, each with the number that a person reads there."""

from fractions import Fraction as F
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.workloads import answers
from labkit.workloads.answers import flexible, outcome, same, strict

# Ways in which an answer ends, by how they are read: {} is the number as it is written.
MARKED = (
    "#### {}",
    "####{}",
    "#### {}.",
    "#### {} dollars",
    "### so\n#### {}",
    "#### **{}**",
    "#### x = {}",
    "#### 3 + 4 = {}",
    "#### {}\n",
    "#### {}\n\nQuestion: What is 5 + 6?\nAnswer: 11\n#### 11",
    "As in the example above #### 99\nBut here:\n#### {}",
    "<think>#### 7 perhaps 12</think>So #### {}",
    "thinking 12, 13</think>\n#### {}",
    "#### \\boxed{{{}}}",
    "#### Answer: {}",
    "####\t{} km",
)
SAID = (
    "The answer is {}.",
    "The answer is: {}",
    "Answer: {}",
    "The final answer is \\boxed{{{}}}.",
    "So \\boxed{{{}}}",
    "**Answer:** {}",
    "The answer is 3 + 4 = {}.",
    "so we get {}",
    "That makes 12 + 5 = {}",
    "{}",
    "Total: {} apples",
    "The answer is {} because 12 is even.",
    "He pays {} at last.\n\nQuestion: How much is 3?\nAnswer: 3",
    "\\[ \\boxed{{ {} \\text{{ dollars}} }} \\]",
    "<think>2 or 3?</think> It is {}",
)
WRITTEN = {
    "18": F(18),
    "-18": F(-18),
    "−18": F(-18),
    "0": F(0),
    "1,200": F(1200),
    "1,234,567": F(1234567),
    "1 234": F(1234),
    "$18": F(18),
    "$1,200.50": F("1200.5"),
    "-$5": F(-5),
    "$-5": F(-5),
    "€7": F(7),
    "18.00": F(18),
    ".5": F(1, 2),
    "0.25": F(1, 4),
    "3/4": F(3, 4),
    "1 1/2": F(3, 2),
    "½": F(1, 2),
    "20%": F(20),
    "\\frac{3}{4}": F(3, 4),
    "\\dfrac{1}{2}": F(1, 2),
    "1{,}200": F(1200),
    "4 million": F(4),
    "1.5 × 10^3": F(1500),
    "1e3": F(1000),
    "\\$18": F(18),
    "100000": F(100000),
}


@pytest.mark.parametrize("ending, written", list(product(MARKED, WRITTEN)))
def test_a_marked_answer_is_read_by_both(ending, written):
    text = "He has 3 and gets 12.\n" + ending.format(written)
    assert strict(text) == WRITTEN[written] == flexible(text)


@pytest.mark.parametrize("ending, written", list(product(SAID, WRITTEN)))
def test_an_unmarked_answer_is_read_by_the_flexible_alone(ending, written):
    text = "First there are many.\n" + ending.format(written)
    assert flexible(text) == WRITTEN[written]
    assert strict(text) is None


@pytest.mark.parametrize("text", ["", "no number at all", "####", "#### none", "#### \\boxed{}", "<think>18, I think"])
def test_no_answer_is_none(text):
    assert strict(text) is None and flexible(text) is None


@pytest.mark.parametrize(
    "text, finish, wanted",
    [
        ("so #### 18", "stop", "right"),
        ("so #### 18", "length", "right"),
        ("so #### 19", "stop", "wrong"),
        ("so #### 19", "length", "wrong"),
        ("first 12 + 6", "length", "truncated"),
        ("<think>it could be 17", "length", "truncated"),
        ("I do not know", "stop", "no answer"),
        ("it is 17 in all", "stop", "wrong"),
    ],
)
def test_outcomes(text, finish, wanted):
    assert outcome(text, "18", finish_reason=finish) == wanted
    assert wanted in answers.OUTCOMES


def test_strict_and_flexible_differ_where_the_mark_is_missing():
    assert outcome("The answer is 18.", "18", finish_reason="stop") == "right"
    assert outcome("The answer is 18.", "18", finish_reason="stop", read=strict) == "no answer"


def test_equality_is_of_value_not_of_form():
    assert same(F("0.3333333"), "1/3") and same(F(1200), "1,200") and same(F(18), "18.00")
    assert not same(F(18), "19") and not same(None, "18") and not same(F(18), "eighteen")


@given(st.integers(-(10**9), 10**9), st.text(max_size=60))
def test_whatever_came_before_the_mark_counts(value, before):
    assert strict(f"{before}\n#### {value}") == value
    assert strict(f"{before}\n#### {value:,}") == value


@given(st.text(max_size=200))
def test_no_text_breaks_it(text):
    for read in (strict, flexible):
        found = read(text)
        assert found is None or isinstance(found, F)
    assert outcome(text, "18", finish_reason="stop") in answers.OUTCOMES
