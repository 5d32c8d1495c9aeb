"""Long structured texts whose continuation follows from the request: tables, lists, records, logs, copies.

Every rule is stated in the request (names that cycle, start and step of each counter), so greedy text is long and
predictable without being one loop: counters move, and columns cycle with different periods.
"""

import json
import re
from random import Random

from labkit.workloads.texts.lexicon import FIELDS, NAMES, NOUNS, STATES, THINGS, invented


class _Rule:
    """One column: a counter with a step, or a cycle of words."""

    def __init__(self, rng: Random, name: str, counter: bool):
        self.name, self.counter = name, counter
        if counter:
            self.start, self.step = (
                rng.randrange(1, rng.choice((20, 200, 900))),
                rng.choice((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 25)),
            )
        else:
            pool = rng.choice((STATES, NAMES, NOUNS, None))
            size = rng.randrange(3, 8)
            self.words = rng.sample(pool, size) if pool else [invented(rng) for _ in range(size)]

    def at(self, i: int) -> int | str:
        return self.start + i * self.step if self.counter else self.words[i % len(self.words)]

    def describe(self) -> str:
        if self.counter:
            return f"{self.name} starts at {self.start} and grows by {self.step}"
        return f"{self.name} cycles through {', '.join(self.words)}"


def _rules(rng: Random) -> list[_Rule]:
    names = rng.sample(FIELDS, rng.choice((2, 3, 3, 4)))
    kinds = [True, False] + [rng.random() < 0.5 for _ in names[2:]]
    rng.shuffle(kinds)
    return [_Rule(rng, n, k) for n, k in zip(names, kinds, strict=True)]


def _json_rows(rules: list[_Rule], rng: Random, n: int) -> list[str]:
    rows = [json.dumps({"id": i + 1, **{r.name: r.at(i) for r in rules}}) for i in range(n)]
    return ["["] + [f"  {row}," for row in rows[:-1]] + [f"  {rows[-1]}", "]"]


def _json_lines(rules, rng, n):
    return [json.dumps({r.name: r.at(i) for r in rules}) for i in range(n)]


def _table(rules, rng, n):
    head = ["row"] + [r.name for r in rules]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(str(v) for v in [i + 1] + [r.at(i) for r in rules]) + " |" for i in range(n)]


def _csv(rules, rng, n):
    return [",".join(["id"] + [r.name for r in rules])] + [
        ",".join(str(v) for v in [i + 1] + [r.at(i) for r in rules]) for i in range(n)
    ]


def _yaml(rules, rng, n):
    return [line for i in range(n) for line in [f"- id: {i + 1}"] + [f"  {r.name}: {r.at(i)}" for r in rules]]


def _log(rules, rng, n):
    hour, minute, gap, part = rng.randrange(24), rng.randrange(60), rng.choice((1, 2, 5, 10, 15)), invented(rng)
    lines = []
    for i in range(n):
        t = hour * 60 + minute + i * gap
        lines.append(f"[{t // 60 % 24:02d}:{t % 60:02d}] {part}: " + " ".join(f"{r.name}={r.at(i)}" for r in rules))
    return lines


def _sentences(rules, rng, n):
    thing = rng.choice(THINGS)
    return [
        f"{i + 1}. In {thing} {i + 1} the " + " and the ".join(f"{r.name} is {r.at(i)}" for r in rules) + "."
        for i in range(n)
    ]


def _sums(rules, rng, n):
    a, b, step = rng.randrange(2, 60), rng.randrange(2, 60), rng.randrange(1, 9)
    return [
        f"{a + i * step} + {b} = {a + i * step + b}; {a + i * step} - {i + 1} = {a + i * step - i - 1}"
        for i in range(n)
    ]


_FORMS = {
    "a JSON list": _json_rows,
    "JSON lines": _json_lines,
    "a table": _table,
    "CSV rows": _csv,
    "a YAML list": _yaml,
    "log lines": _log,
    "numbered sentences": _sentences,
    "sums": _sums,
}


_KNOWN = frozenset(FIELDS + NAMES + NOUNS + STATES + THINGS)


def rough_tokens(text: str) -> int:
    """About how many tokens a text has: digits one by one, invented words in pieces, runs of punctuation, newlines."""
    parts = re.findall(r"\d|[A-Za-z]+|[^\sA-Za-z0-9]+|\n| (?=\d)", text)
    return sum(1 if p in _KNOWN or len(p) < 4 else 1 + len(p) // 4 for p in parts)


def _copy(rng: Random, long: bool) -> tuple[str, str]:
    """A list in the request, given back in three other clothes: the copy is long but never one loop."""
    count = rng.randrange(18, 24) if long else rng.randrange(5, 15)
    things = [
        f"{rng.choice(NOUNS)} {rng.randrange(10, 990)}" if rng.random() < 0.6 else invented(rng, 3)
        for _ in range(count)
    ]
    request = "Write this list numbered, then as quoted words, then as records: " + ", ".join(things) + "."
    lines = [f"{i}. {t}" for i, t in enumerate(things, 1)] + [f'"{t}",' for t in things]
    return request, "\n".join(lines + [json.dumps({"name": t, "id": i}) for i, t in enumerate(things, 1)])


def repetitive(rng: Random, long: bool = True) -> tuple[str, str]:
    """-> (request, text). `long` asks for about 600 to 850 tokens, else for a third of that (training mixes both)."""
    if rng.random() < 0.15:
        return _copy(rng, long)
    form = rng.choice(tuple(_FORMS))
    rules = _rules(rng)
    budget = rng.randrange(650, 760) if long else rng.randrange(90, 400)
    state = rng.getstate()
    rows = _FORMS[form](rules, rng, 40)
    rng.setstate(state)
    n = max(4, round(40 * budget / rough_tokens("\n".join(rows))))
    lines = _FORMS[form](rules, rng, n)
    shown = "; ".join(r.describe() for r in rules) if form != "sums" else "count upwards"
    given = 3 if form in ("a JSON list", "a table", "sums", "log lines") else 1
    return f"Write {form} of {n} entries: {shown}. It begins:\n" + "\n".join(lines[:given]), "\n".join(lines)
