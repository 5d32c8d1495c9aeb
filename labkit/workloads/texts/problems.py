"""Word problems with worked answers: gsm_symbolic of reasoning-gym (imported on first use), and plain arithmetic.

reasoning-gym's templates were re-created after Apple's GSM-Symbolic, which derive from GSM8K. Ten whole templates are
held out of training, so that "unseen" means a kind of problem never shown, not merely new numbers.
"""

import re
from functools import cache
from random import Random

from labkit.workloads.texts.lexicon import NAMES, NOUNS

# The templates of reasoning-gym 0.1.25 that it marks as sound.
TEMPLATES = tuple(i for i in range(100) if i not in (32, 35, 37, 61, 63, 65, 74, 76, 77, 79, 86, 87, 90, 97, 98))
HELD_OUT = tuple(sorted(Random("held-out templates").sample(TEMPLATES, 10)))
SEEN = tuple(t for t in TEMPLATES if t not in HELD_OUT)

_OPENERS = (
    "First, ",
    "Then, ",
    "Next, ",
    "Now, ",
    "So, ",
    "We see that ",
    "Note that ",
    "From this, ",
    "Here, ",
    "In other words, ",
    "That means: ",
    "Looking at the numbers, ",
    "Step by step: ",
)
_REMARKS = (
    " That is one part.",
    " Good.",
    " We keep this number.",
    " This is needed below.",
    " (checked)",
    " Nothing else changes here.",
    " The rest follows from it.",
    " Now we can go on.",
)
_STARTS = (
    "Let us work it out.",
    "We go through it in order.",
    "Start with what is given.",
    "Here is the solution.",
    "Take it one line at a time.",
    "What do we know?",
    "This needs a few steps.",
    "The question gives the numbers.",
)
_ENDS = ("The answer is {}.", "That gives {}.", "So the result is {}.", "In the end it is {}.", "Hence {}.")


def prompt_of(question: str) -> str:
    """The one prompt format of the pocket model; its chat template renders a user message to exactly this."""
    return f"Question: {question}\nAnswer:"


def normalise(question: str) -> str:
    """The form in which two questions count as the same: letters and digits in order, case and spacing ignored."""
    return " ".join(re.findall(r"[a-z0-9]+(?:[.,][0-9]+)*|[^\sa-z0-9]", question.lower()))


@cache
def _generators() -> dict:
    """Template number -> reasoning-gym's generator function(rng, difficulty)."""
    from reasoning_gym.arithmetic.gsm_symbolic import generators_00_49, generators_50_99

    return {t: getattr(generators_00_49 if t < 50 else generators_50_99, f"generate_{t}") for t in TEMPLATES}


def word_problem(rng: Random, template: int) -> tuple[str, str, str]:
    """-> (question, worked answer ending "#### n", n). Needs reasoning-gym."""
    item = _generators()[template](rng, 1.0)
    return item["question"].strip(), item["metadata"]["answer_cot"].strip(), str(item["answer"])


def restyle(rng: Random, worked: str) -> str:
    """The same solution in one of many wordings; numbers and order stay, the last line too.

    A third stays as it is, so that greedy text keeps the plain style while sampled text branches at every line.
    """
    if rng.random() < 0.34:
        return worked
    *lines, last = worked.split("\n")
    openers, remarks = rng.random() * 0.9, rng.random() * 0.5
    out = [rng.choice(_STARTS)] if rng.random() < 0.35 else []
    for line in lines:
        if rng.random() < 0.3:
            line = re.sub(r" ?([=+*/]) ?", r" \1 " if rng.random() < 0.5 else r"\1", line)
        if rng.random() < openers:
            line = rng.choice(_OPENERS) + line
        if rng.random() < remarks:
            line += rng.choice(_REMARKS)
        out.append(line)
    if rng.random() < 0.3:
        out.append(rng.choice(_ENDS).format(last.removeprefix("#### ")))
    return "\n".join([*out, last])


def _long_sum(rng: Random) -> tuple[str, str, int]:
    values = [rng.randrange(2, 10 ** rng.choice((1, 2, 2, 3, 3, 4))) for _ in range(rng.randrange(2, 6))]
    total, shown, lines = values[0], str(values[0]), []
    for v in values[1:]:
        minus = rng.random() < 0.4 and total > v
        after = total - v if minus else total + v
        sign = "-" if minus else "+"
        lines.append(f"{total} {sign} {v} = {after}")
        shown += f" {sign} {v}"
        total = after
    return f"What is {shown}?", "\n".join(lines), total


def _product(rng: Random) -> tuple[str, str, int]:
    a, b = rng.randrange(3, 1000), rng.randrange(3, 100)
    tens, ones = b // 10 * 10, b % 10
    if not tens or not ones:
        return f"What is {a} x {b}?", f"{a} x {b} = {a * b}", a * b
    return (
        f"What is {a} x {b}?",
        f"{a} x {tens} = {a * tens}\n{a} x {ones} = {a * ones}\n{a * tens} + {a * ones} = {a * b}",
        a * b,
    )


def _division(rng: Random) -> tuple[str, str, int]:
    b, q = rng.randrange(2, 80), rng.randrange(2, 400)
    return f"What is {b * q} divided by {b}?", f"{b} x {q} = {b * q}\nSo {b * q} / {b} = {q}", q


def _percent(rng: Random) -> tuple[str, str, int]:
    p, base = rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80, 90)), rng.randrange(1, 90) * 20
    part = base * p // 100
    return f"What is {p}% of {base}?", f"{base} x {p}/100 = {base * p}/100 = {part}", part


def _shop(rng: Random) -> tuple[str, str, int]:
    who, goods = rng.choice(NAMES), rng.sample(NOUNS, rng.choice((2, 3, 3, 4)))
    counts, prices = [rng.randrange(2, 40) for _ in goods], [rng.randrange(2, 60) for _ in goods]
    asked = ", ".join(f"{n} {g}s at ${p} each" for g, n, p in zip(goods, counts, prices, strict=True))
    costs = [n * p for n, p in zip(counts, prices, strict=True)]
    lines = [f"The {g}s cost {n} x ${p} = ${c}." for g, n, p, c in zip(goods, counts, prices, costs, strict=True)]
    total = costs[0]
    for c in costs[1:]:
        lines.append(f"${total} + ${c} = ${total + c}.")
        total += c
    return f"{who} buys {asked}. How much does {who} pay?", "\n".join(lines), total


def arithmetic(rng: Random) -> tuple[str, str, str]:
    """Generated arithmetic -> (question, worked answer ending "#### n", n); no package needed."""
    question, worked, n = rng.choice((_long_sum, _long_sum, _product, _product, _division, _percent, _shop, _shop))(rng)
    return question, f"{worked}\n#### {n}", str(n)


def final_number(text: str) -> float | None:
    """The number after the last "####", or None."""
    tail = text.rsplit("####", 1)
    try:
        return float(tail[1].split("\n")[0].strip().replace(",", "")) if len(tail) == 2 else None
    except ValueError:
        return None
