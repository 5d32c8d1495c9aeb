"""The number that an answer ends with, read strictly and flexibly, and what became of each question.

strict     the number after the last `####`, as GSM8K's own answers end
flexible   strict; else the last `\\boxed{}`; else what follows the last "answer is"; else the last number

Both read only the answer: thoughts between <think> and </think> are left out, and so is whatever follows once the model
goes on to ask itself a next question (few-shot prompts invite that). Numbers are exact fractions, so 0.5, 1/2 and
\\frac{1}{2} are equal. Percent signs and units, also
"million", are dropped, since GSM8K's answers carry none.
"""

import re
from fractions import Fraction

RIGHT, WRONG, NO_ANSWER = "right", "wrong", "no answer"
TRUNCATED, REFUSED, FAILED = "truncated", "refused", "failed"
OUTCOMES = (RIGHT, WRONG, NO_ANSWER, TRUNCATED, REFUSED, FAILED)

_MINUS = str.maketrans({"−": "-", "–": "-", "‐": "-", "‑": "-", "﹣": "-", "-": "-"})
_SPACES = str.maketrans(dict.fromkeys("\u00a0\u2009\u202f\u2007", " "))
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_PLAIN = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:[ ]\d{3})+(?![\d])|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"""(?P<sign>(?<![\w.)])-\s?)?[$€£¥]?\s?(?P<sign2>(?<=[$€£¥])-)?
    (?:(?P<whole>\d+)\s+(?=\d+\s?/\s?\d))?          # 1 of "1 1/2"
    (?P<number>{_PLAIN})
    (?:\s?/\s?(?P<under>\d+(?:\.\d+)?)(?![\d/]))?     # 3/4
    (?:\s?(?:x|×|\*)\s?10\s?\^\s?\{{?(?P<ten>-?\d+)\}}?|e(?P<e>[+-]?\d+)(?!\w))?""",
    re.VERBOSE,
)
_FRAC = re.compile(r"\\[dt]?frac\s*\{\s*(-?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}")
_NEXT_QUESTION = re.compile(r"\n\s*(?:#+ )?(?:\*\*)?(?:Question|Problem|Q)\s?\d*\s?:")
_SAYS = re.compile(r"answer\s*(?:is|:|=)\s*", re.IGNORECASE)


def strict(text: str) -> Fraction | None:
    """The number on the line after the last `####`; after the last "=" where the line is a sum. None without one."""
    head, mark, tail = answer_of(text).rpartition("####")
    if not mark:
        return None
    line = tail.lstrip("#* \t").split("\n")[0]
    return _first(line.rpartition("=")[2]) if "=" in line else _first(line)


def flexible(text: str) -> Fraction | None:
    """What a person would take for the answer: see the head of the module. None for a text without a number."""
    found = strict(text)
    if found is not None:
        return found
    said = answer_of(text)
    boxed = _boxed(said)
    if boxed is not None and (found := _last(boxed)) is not None:
        return found
    for match in reversed(list(_SAYS.finditer(said))):
        sentence = re.split(r"\n|\.(?!\d)", said[match.end() :])[0]
        found = _first(sentence.rpartition("=")[2])
        if found is not None:
            return found
    return _last(said)


def answer_of(text: str) -> str:
    """The answer alone: without finished thoughts, up to a next question. A thought that never ends has no answer."""
    said = re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL)
    if "</think>" in said:  # a chat template may have opened the thought itself
        said = said.rpartition("</think>")[2]
    said = said.split("<think>")[0]
    return _NEXT_QUESTION.split(said)[0]


def number(text: str) -> Fraction | None:
    """The value of an expected answer ("18", "1,200", "3/4"); None where it is not a number."""
    return _first(text)


def same(found: Fraction | None, expected: str) -> bool:
    """Whether a number equals an expected answer, to one part in a million (0.333 333 3 is a third)."""
    want = number(expected)
    if found is None or want is None:
        return False
    return abs(found - want) <= max(1, abs(want)) * Fraction(1, 10**6)


def outcome(text: str, expected: str, *, finish_reason: str | None, read=flexible) -> str:
    """What became of an answered question: right, wrong, no answer, or truncated (cut at the token limit unfinished).

    A text that was cut but already holds the right number is right; one that was cut before any final answer is
    truncated, never wrong: the model was not heard out. Refused and failed requests have no text and never come here.
    """
    found = read(text)
    if same(found, expected):
        return RIGHT
    if finish_reason == "length" and strict(text) is None:
        return TRUNCATED
    return WRONG if found is not None else NO_ANSWER


def outcomes(text: str, expected: str, *, finish_reason: str | None) -> dict[str, str]:
    """The outcome as each way of reading has it: {"flexible", "strict"}."""
    return {
        name: outcome(text, expected, finish_reason=finish_reason, read=read)
        for name, read in (("flexible", flexible), ("strict", strict))
    }


def _first(text: str) -> Fraction | None:
    numbers = _numbers(text)
    return numbers[0] if numbers else None


def _last(text: str) -> Fraction | None:
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def _numbers(text: str) -> list[Fraction]:
    return [value for m in _NUMBER.finditer(_plain(text)) if (value := _value(m)) is not None]


def _value(m: re.Match) -> Fraction | None:
    value = Fraction(m["number"].replace(",", "").replace(" ", ""))
    if m["under"] is not None:
        under = Fraction(m["under"])
        if under == 0:
            return None
        value /= under
    if m["whole"] is not None:
        value += int(m["whole"])
    power = int(m["ten"] or m["e"] or 0)
    if abs(power) > 30:
        return None
    value *= Fraction(10) ** power
    return -value if m["sign"] or m["sign2"] else value


def _plain(text: str) -> str:
    """LaTeX, Markdown and typography as plain characters."""
    text = text.translate(_MINUS).translate(_SPACES)
    text = _FRAC.sub(r" \1/\2 ", text)
    for sign, value in _VULGAR.items():
        text = text.replace(sign, f" {value}")
    text = re.sub(r"\\(?:text|mathrm|mathbf)\s*\{([^{}]*)\}", r" \1 ", text)
    text = (
        text.replace("\\times", "×").replace("\\cdot", "*").replace("{,}", ",").replace("\\,", " ").replace("\\!", "")
    )
    return re.sub(r"[*_`]{2,}|\\[()\[\]$%]|\\boxed|\\left|\\right", " ", text).replace("$ ", "$")


def _boxed(text: str) -> str | None:
    """The content of the last \\boxed{}, braces matched."""
    at = text.rfind("\\boxed{")
    if at < 0:
        return None
    depth, start = 0, at + len("\\boxed{")
    for i in range(start - 1, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[start:i]
    return text[start:]
