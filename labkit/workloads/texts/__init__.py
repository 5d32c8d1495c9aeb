"""Seeded texts of the loads: repetitive, code, prose, arithmetic, word-problems. Pure Python.

The same generators make the training data and, from another split, the prompts that measurements send. A text is a
request and an answer; the model sees `Question: REQUEST\\nAnswer: ANSWER`. Seeds are strings hashed by Random, so
texts of neighbouring indices or of different splits share no random stream.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from labkit.workloads.texts.code import code
from labkit.workloads.texts.problems import (
    HELD_OUT,
    SEEN,
    arithmetic,
    final_number,
    normalise,
    prompt_of,
    restyle,
    word_problem,
)
from labkit.workloads.texts.prose import prose
from labkit.workloads.texts.repetitive import repetitive

KINDS = ("repetitive", "code", "prose", "arithmetic", "word-problems")

__all__ = [
    "HELD_OUT",
    "KINDS",
    "SEEN",
    "Text",
    "distinct_share",
    "final_number",
    "held_out",
    "is_loop",
    "make",
    "normalise",
    "prompt_of",
]


@dataclass(frozen=True)
class Text:
    """One training text or load item; `prompt` ends with "Answer:" and `answer` starts with a space."""

    kind: str
    prompt: str
    answer: str
    expected: str | None = None  # final number of a problem
    template: int | None = None  # gsm_symbolic template of a word problem


def make(
    kind: str,
    seed: int,
    index: int,
    *,
    split: str = "load",
    template: int | None = None,
    words: Sequence[str] | None = None,
) -> Text:
    """Text number `index` of a kind. Training uses split "train"; a load never shares its random stream.

    repetitive: about 600 to 850 tokens in a load, two lengths in training. word-problems: needs reasoning-gym; training
    draws among the seen templates and varies the wording; at run time use `held_out`, which needs no package.
    Raises ValueError for an unknown kind.
    """
    rng = Random(f"{split}/{kind}/{seed}/{index}")
    if kind in ("arithmetic", "word-problems"):
        if kind == "arithmetic":
            question, worked, n = arithmetic(rng)
        else:
            template = rng.choice(SEEN) if template is None else template
            question, worked, n = word_problem(rng, template)
        if split == "train":
            worked = restyle(rng, worked)
        return Text(kind, prompt_of(question), " " + worked, n, template)
    if kind == "repetitive":
        request, answer = repetitive(rng, long=split != "train" or rng.random() < 0.6)
    elif kind == "code":
        request, answer = code(rng)
    elif kind == "prose":
        request, answer = prose(rng, list(words) if words else None)
    else:
        raise ValueError(f"kind: got {kind!r}; accepted: {', '.join(KINDS)}")
    return Text(kind, prompt_of(request), " " + answer)


def held_out(path: str | Path) -> list[Text]:
    """Word problems of a shipped JSONL file ({"prompt", "cot", "answer", "template"} a line), never trained on."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    return [Text("word-problems", r["prompt"], r["cot"], r["answer"], r["template"]) for r in rows]


def distinct_share(tokens: Sequence, n: int = 4) -> float:
    """Distinct n-grams over all n-grams of a sequence; near 0 for a loop, 1 when nothing repeats."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def is_loop(tokens: Sequence, *, longest: int = 64, share: float = 0.5) -> bool:
    """True when the last `share` of the sequence is one period of at most `longest` tokens, repeated."""
    tail = list(tokens[int(len(tokens) * (1 - share)) :])
    return any(len(tail) >= 2 * p and tail[p:] == tail[:-p] for p in range(1, longest + 1))
