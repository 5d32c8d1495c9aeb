"""Why one answer, or a number made of it, may not be trusted: each doubt has a kind, a sentence, and may refuse.

Nothing that a server says is taken for true because it says so. Tokens are counted by several sources that must agree;
counts of draft and verify must fit each other. A doubt either refuses the sample (its time per token would be wrong) or
stands beside the number in every row, summary and report.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from labkit.measure.answer import RequestResult

OWN_COUNT = 0.25  # text tokenised again may split otherwise, but not by more than this share
OWN_COUNT_LEAST = 4  # tokens; below this a share says nothing
CLOCKS = 0.5  # share by which the server's own time per token may differ from the client's
CLOCKS_FAR = 3.0  # times that they may differ before the sample is refused
CLOCKS_LEAST_S = 0.1  # s over the whole answer; less is one pause of a busy machine
CLOCKS_LEAST = 32  # tokens; on fewer the first event's tokens weigh too much
SPARE = 2  # tokens that belong to no verify round: prefill's, and one more after a preempted request is resumed
BURSTS = 0.5  # share of events that came with the one before them
REMEMBERED, REMEMBERED_SIGMAS = (
    0.15,
    3.0,
)  # share of the rounds, and multiples of their root, saved on a text seen before

# kind: whether it refuses the sample
KINDS = {
    "cached prompt": True,
    "no token count": True,
    "counts disagree": True,
    "more tokens than asked": True,
    "more tokens than drafts allow": True,
    "one event": True,
    "all at once": True,
    "first event unknown": True,
    "clocks far apart": True,
    "stood still": True,
    "speculative counts disagree": False,
    "steps vary": False,
    "prompt changed": False,
    "stopped early": False,
    "few tokens": False,
    "cache unknown": False,
    "prompt unknown": False,
    "unknown fields": False,
    "unreadable fields": False,
    "bursts": False,
    "events merged": False,
    "counted by the limit": False,
    "clocks disagree": False,
    "own count differs": False,
}


@dataclass(frozen=True)
class Doubt:
    """kind: one of KINDS; text: what was seen, as a clause that can follow "in 3 of 4 requests: "."""

    kind: str
    text: str

    @property
    def refuses(self) -> bool:
        return KINDS[self.kind]

    def as_dict(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """What a request asked for, to hold the answer against.

    output_tokens   most tokens wanted; fixed: the model may not stop before
    prompt_tokens   tokens sent, None where nobody here can count them; spare: more that a server may add (BOS, EOS)
    own_count       tokens of the answer's text by the lab's own tokenizer, None without one
    draft_tokens    tokens a round can yield, by the server's description; None where it does not tell
    drafts_vary     whether the engine chooses anew in each round how many tokens it drafts
    """

    output_tokens: int
    fixed: bool = False
    prompt_tokens: int | None = None
    spare: int = 0
    own_count: int | None = None
    draft_tokens: int | None = None
    drafts_vary: bool = False


def of(r: RequestResult, asked: Asked) -> list[Doubt]:
    """Every doubt about one whole answer."""
    return [*_prompt(r, asked), *_tokens(r, asked), *_times(r), *_speculation(r, asked), *_fields(r)]


def _prompt(r: RequestResult, asked: Asked) -> Iterable[Doubt]:
    if r.cached_tokens:
        yield Doubt("cached prompt", f"{r.cached_tokens} prompt tokens came from the prefix cache")
    if r.cached_tokens is None:
        yield Doubt("cache unknown", "the server does not say how much of the prompt came from its cache")
    if r.prompt_tokens is None:
        yield Doubt("prompt unknown", "the server does not say how many prompt tokens it read")
    elif asked.prompt_tokens is not None and not 0 <= r.prompt_tokens - asked.prompt_tokens <= asked.spare:
        how = "more" if r.prompt_tokens > asked.prompt_tokens else "fewer"
        yield Doubt(
            "prompt changed",
            f"the prompt changed on the way: {asked.prompt_tokens} tokens sent, {r.prompt_tokens} read by the server, "
            f"{abs(r.prompt_tokens - asked.prompt_tokens)} {how} (a template, or a cut)",
        )


def _tokens(r: RequestResult, asked: Asked) -> Iterable[Doubt]:
    server, ids, events = (r.counts.get(k) for k in ("server", "ids", "events"))
    n = r.output_tokens
    if server is None and ids is None:
        if "limit" not in r.counts:
            yield Doubt(
                "no token count",
                f"{events} events, and neither a token count nor ids: an event is not a token (an answer that is cut at"
                " its length would tell: ask for fewer output tokens)",
            )
            return
        yield Doubt(
            "counted by the limit", f"the server sends no token count, but says that it stopped at the limit of {n}"
        )
    if server is not None and ids is not None and server != ids:
        yield Doubt("counts disagree", f"the server counts {server} tokens and sent {ids} ids")
    elif r.chunk_tokens and None not in r.chunk_tokens and r.chunk_tokens[-1] != n:
        yield Doubt("counts disagree", f"{r.chunk_tokens[-1]} tokens while streaming, {n} at the end")
    elif events is not None and events > n:
        yield Doubt("counts disagree", f"{events} events with new text, but {n} tokens counted")
    if n > asked.output_tokens:
        yield Doubt("more tokens than asked", f"{n} tokens counted, at most {asked.output_tokens} asked for")
    if asked.own_count is not None:
        gap = abs(n - asked.own_count)
        if gap > max(OWN_COUNT_LEAST, OWN_COUNT * max(n, asked.own_count)):
            kind = "own count differs" if ids is not None else "counts disagree"
            yield Doubt(kind, f"{n} tokens counted; this lab's tokenizer counts {asked.own_count} in the text")
    if asked.fixed and n < asked.output_tokens:
        yield Doubt(
            "stopped early", f"{n} of {asked.output_tokens} tokens, though ignore_eos fixed the length ({_why(r)})"
        )


def _times(r: RequestResult) -> Iterable[Doubt]:
    n = r.output_tokens
    if r.stood_still_s:
        yield Doubt(
            "stood still",
            f"this lab or its machine stood still for {r.stood_still_s:.1f} s in mid-request (asleep, or stopped)",
        )
    if n == 1:
        yield Doubt("few tokens", "one token has no decode time")
    elif len(r.chunk_times) == 1 and n > 1:
        yield Doubt(
            "one event", f"all {n} tokens came in one event, so there is no decode time to measure (not streamed?)"
        )
    elif r.first_tokens is None and n > 1:
        yield Doubt("first event unknown", "the number of tokens in the first event is unknown")
    elif r.tpot_s == 0:
        yield Doubt("all at once", "all tokens arrived at once: not streamed, or the client had no core")
    elif r.decode_tokens == 1 or len(r.chunk_times) == 2:
        yield Doubt("few tokens", f"{n} tokens in two events: the time per token rests on a single gap")
    if r.merged and len(r.chunk_times) > 1:
        most = (n - 1) / (len(r.chunk_times) - 1) - 1
        yield Doubt(
            "events merged",
            f"{n} tokens in {len(r.chunk_times)} events, none of which tells its count: if the first one carried the"
            f" rest, a token took {most:.1%} longer",
        )
    told = r.meta.get("decode_throughput")
    clock = bool(r.tpot_s) and _positive(told) and (r.decode_tokens or 0) >= CLOCKS_LEAST
    if clock:
        apart = abs(1 / told - r.tpot_s)
        differ = apart > CLOCKS * r.tpot_s and apart * r.decode_tokens > CLOCKS_LEAST_S
        far = max(1 / told / r.tpot_s, r.tpot_s * told) > CLOCKS_FAR
        if differ or far:
            kind = "clocks far apart" if far else "clocks disagree"
            yield Doubt(
                kind, f"{r.tpot_s * 1e3:.3g} ms per token by the client, {1e3 / told:.3g} by the server's own clock"
            )
    else:  # where the server's own clock bears the time out, it does not matter in which reads the events came
        yield from _bursts(r)


def _bursts(r: RequestResult) -> Iterable[Doubt]:
    together = sum(a == b for a, b in zip(r.chunk_times, r.chunk_times[1:], strict=False))
    if r.verify_ct and len(r.chunk_times) == r.output_tokens:
        together -= max(0, r.output_tokens - 1 - r.verify_ct)  # an event a token: a round's tokens do come together
    if r.tpot_s and len(r.chunk_times) > 4 and together > BURSTS * (len(r.chunk_times) - 1):
        yield Doubt(
            "bursts",
            f"{together} of {len(r.chunk_times)} events arrived together with the one before: the stream is buffered",
        )


def _speculation(r: RequestResult, asked: Asked) -> Iterable[Doubt]:
    rounds, n = r.verify_ct, r.output_tokens
    if not rounds:
        if r.told_accept_length and r.told_accept_length > 1:
            yield Doubt("speculative counts disagree", "the server reports an accept length but no verify rounds")
        elif r.correct_drafts or r.proposed_drafts or any(r.histogram or ()):
            yield Doubt("speculative counts disagree", "the server reports drafts but no verify rounds")
        return
    steps = steps_of(r.proposed_drafts, rounds)
    if steps is not None and steps != int(steps) and not asked.drafts_vary:
        yield Doubt("steps vary", f"{r.proposed_drafts} drafts in {rounds} rounds: the steps varied within the request")
    if r.proposed_drafts is not None:
        most = rounds + r.proposed_drafts
    else:
        most = rounds * asked.draft_tokens if asked.draft_tokens else None
    if most is not None and n > most + SPARE:
        yield Doubt(
            "more tokens than drafts allow",
            f"accept length {n / rounds:.2f}, where a round yields at most {most / rounds:.3g} tokens",
        )
    elif r.correct_drafts is not None and n > rounds + r.correct_drafts + SPARE:
        yield Doubt(
            "more tokens than drafts allow",
            f"{n} tokens from {rounds} rounds with {r.correct_drafts} accepted drafts, which make "
            f"{rounds + r.correct_drafts}",
        )
    yield from _identities(r, rounds, steps)


def _identities(r: RequestResult, rounds: int, steps: float | None) -> Iterable[Doubt]:
    n, correct, h = r.output_tokens, r.correct_drafts, r.histogram
    wrong = []
    # A last round may accept more than the length limit lets out: then tokens are fewer, by at most a round's drafts.
    over = max(steps or 0, len(h) - 1 if h else 0) or 64
    if correct is not None and n < rounds + correct - over:
        wrong.append(
            f"{rounds} rounds + {correct} accepted drafts make {rounds + correct} tokens, but {n} were counted"
        )
    if h is not None and sum(h) != rounds:
        wrong.append(f"the histogram has {sum(h)} rounds, but the server reports {rounds}")
    if h is not None and correct is not None and sum(i * k for i, k in enumerate(h)) != correct:
        wrong.append(
            f"the histogram has {sum(i * k for i, k in enumerate(h))} accepted drafts, but the server reports {correct}"
        )
    if correct is not None and r.proposed_drafts is not None and correct > r.proposed_drafts:
        wrong.append(f"{correct} drafts accepted of {r.proposed_drafts} proposed")
    if r.told_accept_length and abs(r.told_accept_length - n / rounds) > max(0.05, 2 / rounds):
        counted = f"{n} tokens in {rounds} rounds make {n / rounds:.2f}"
        wrong.append(f"the server reports accept length {r.told_accept_length:.2f}, but {counted}")
    if wrong:
        yield Doubt("speculative counts disagree", "; ".join(wrong))


def _fields(r: RequestResult) -> Iterable[Doubt]:
    if r.unread:
        yield Doubt("unknown fields", "speculative fields that this lab does not know: " + ", ".join(r.unread))
    if r.garbled:
        yield Doubt("unreadable fields", "fields with unusable values: " + ", ".join(sorted(set(r.garbled))))


def steps_of(proposed: int | None, rounds: int | None) -> float | None:
    """Draft steps of a round: proposed drafts / verify rounds; whole where only the last round was cut short."""
    if proposed is None or not rounds:
        return None
    whole = math.ceil(proposed / rounds)
    return float(whole) if whole * rounds - proposed < max(whole, 1) else proposed / rounds


def fixed_steps(rows: Iterable[Mapping]) -> list[float]:
    """Distinct draft steps of the rows, in order; without rows whose engine varies them by nature."""
    told = {steps_of(r.get("proposed_drafts"), r.get("verify_ct")) for r in rows if not r.get("drafts_vary")}
    return sorted(told - {None})


def said(rows: Iterable[Mapping]) -> list[str]:
    """The doubts of the rows that count (status ok), one sentence a kind, and what only shows over several rows."""
    rows = [r for r in rows if r["status"] == "ok"]
    found: dict[str, list[str]] = {}
    for row in rows:
        for doubt in row.get("doubts") or []:
            found.setdefault(doubt["kind"], []).append(doubt["text"])
    out = []
    for kind in sorted(found):
        texts = found[kind]
        share = "every request" if len(texts) == len(rows) else f"{len(texts)} of {len(rows)} requests"
        same = "" if len(set(texts)) == 1 else "; similar in the others"
        out.append(f"in {share}: {texts[0]}{same}")
    return out + _over_rows(rows)


def _over_rows(rows: list[Mapping]) -> list[str]:
    out = []
    steps = set(fixed_steps(rows))
    if len(steps) > 1:
        shown = ", ".join(f"{s:.3g}" for s in sorted(steps))
        out.append(f"draft steps varied between requests ({shown}): one c does not describe this server")
    prompts: dict[str, set] = {}
    for row in rows:
        if row.get("prompt_sha256"):
            prompts.setdefault(row["prompt_sha256"], set()).add(row.get("prompt_tokens"))
    uneven = [sorted(map(str, p)) for p in prompts.values() if len(p) > 1]
    if uneven:
        out.append(f"the same prompt was counted as {' and '.join(uneven[0])} tokens")
    return out + _remembered(rows)


def _remembered(rows: list[Mapping]) -> list[str]:
    """Drafts taken from answers of earlier passes (a table of n-grams that outlives the request): the same text then
    takes fewer rounds every time but the first, and a is that of a prompt which was answered before."""
    seen: dict[tuple, list[Mapping]] = {}
    for row in rows:
        if row.get("verify_ct") and row.get("prompt_sha256") and row.get("text_sha256"):
            key = (row.get("session"), row.get("start"), row["prompt_sha256"], row["text_sha256"])
            seen.setdefault(key, []).append(row)
    tokens = first = later = 0.0
    for mine in seen.values():
        mine.sort(key=lambda row: row["repeat"])
        again = [r["verify_ct"] for r in mine if r["repeat"] > mine[0]["repeat"]]
        if again:
            tokens += mine[0]["output_tokens"] - 1
            first += mine[0]["verify_ct"]
            later += statistics.median(again)
    if first - later <= max(REMEMBERED * first, REMEMBERED_SIGMAS * math.sqrt(first)):
        return []
    return [
        f"drafts come from earlier answers: the same texts were generated with accept length {tokens / first:.2f} in"
        f" the first pass and {tokens / later:.2f} in later ones, so a and the gain hold for prompts that this server"
        " has answered before, not for new ones"
    ]


def _why(r: RequestResult) -> str:
    return f"the server says {r.finish_reason}" if r.finish_reason else "no reason given"


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9
