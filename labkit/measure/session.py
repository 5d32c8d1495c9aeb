"""Sessions that can be compared: warm-up, flush checks, the same prompts for every arm, rows kept at once."""

import functools
import hashlib
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from types import MappingProxyType
from typing import Protocol

from labkit.engines.dialects import SGLANG, Dialect
from labkit.errors import BadInput
from labkit.measure import client, doubts
from labkit.measure.answer import Answer, number
from labkit.workloads import Prompt, answers

WARMUP_TOKENS = 32
FAILURES_IN_A_ROW = 3  # errors or refusals; then the server is taken to be gone, or to belong to somebody else
ANSWER_LIMIT = 20_000  # characters of an answer that a record keeps


class Writer(Protocol):
    """Anything that keeps a row at once (labkit.records.RunWriter)."""

    def append(self, row: dict) -> None: ...


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a name and a server. api_key is held in memory only.

    dialect        how the server is asked and read
    count_tokens   the lab's own tokenizer as a function text -> tokens, where it has one
    draft_tokens   tokens a verify round can yield, by the server's description
    prepare        called before each request and the flush before it, to switch what can be switched while it runs
    """

    name: str
    url: str
    api_key: str | None = None
    count_tokens: Callable[[str], int] | None = None
    draft_tokens: int | None = None
    dialect: Dialect = SGLANG
    prepare: Callable[[], None] | None = None

    @classmethod
    def of(cls, name: str, url: str, info: Mapping, dialect: Dialect, api_key: str | None = None, **more) -> "Side":
        """A side by the server's description (info). more: count_tokens and prepare, where there are any."""
        told = info.get("speculative_num_draft_tokens")
        drafts = told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else None
        return cls(name, url, api_key, draft_tokens=drafts, dialect=dialect, **more)


def measure(
    url: str,
    prompts: Sequence[Prompt],
    *,
    arm: str,
    repeats: int,
    warmup: int = 2,
    writer: Writer | None = None,
    cancel: Event | None = None,
    api_key: str | None = None,
    timeout_s: float = 300.0,
    first_repeat: int = 0,
    count_tokens: Callable[[str], int] | None = None,
    draft_tokens: int | None = None,
    dialect: Dialect = SGLANG,
) -> Iterator[dict]:
    """Measure one server: `warmup` requests, then `repeats` passes over `prompts`; yields each measured row.

    A row is in the writer before it is yielded. Samples whose flush was not answered 200 or that met cached tokens get
    status "refused" and do not count, a failed request gets "error"; three in a row end the session. After a
    cancel the row says "cancelled" and the iteration ends. Warm-up rows are written with status "warmup" and not
    yielded. Rows: see labkit.records.schema.
    """
    yield from interleave(
        [Side(arm, url, api_key, count_tokens, draft_tokens, dialect)],
        prompts,
        repeats=repeats,
        warmup=warmup,
        writer=writer,
        cancel=cancel,
        timeout_s=timeout_s,
        first_repeat=first_repeat,
    )


def interleave(
    arms: Sequence[Side],
    prompts: Sequence[Prompt],
    *,
    repeats: int,
    warmup: int = 2,
    writer: Writer | None = None,
    cancel: Event | None = None,
    timeout_s: float = 300.0,
    first_repeat: int = 0,
    watch: Callable[[str, Answer], None] | None = None,
    done: Container[tuple[str, int, int]] = (),
    stamp: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[dict]:
    """Measure several running servers with the same prompts, arms alternating request by request (A B, then B A).

    Drift of the machine then hits every arm alike. Same rows and rules as `measure`. Raises BadInput for unequal names.
    done: (arm, repeat, index) of requests that are not asked again; stamp: further columns of every row; watch: told of
    each measured answer before its first event, with its arm's name, so that another thread can look at it.
    """
    if not prompts:
        raise BadInput("prompts", 0, "at least one prompt")
    if len({a.name for a in arms}) != len(arms):
        raise BadInput("arms", [a.name for a in arms], "distinct names")
    for arm in arms:
        for i in range(warmup):
            # The shape of a measured prompt, cut short; the flush before each measured request forgets it.
            row = sample(arm, _warm(prompts[i % len(prompts)]), repeat=-1, index=i, cancel=cancel, timeout_s=timeout_s)
            if row["status"] == "ok":
                row["status"] = "warmup"
            row |= stamp
            _keep(writer, row)
            if row["status"] == "cancelled":
                yield row
                return
            if row["status"] == "error":
                yield row
    failures = 0
    for repeat in range(first_repeat, first_repeat + repeats):
        for index, prompt in enumerate(prompts):
            for arm in arms if (repeat + index) % 2 == 0 else list(reversed(arms)):
                if (arm.name, repeat, index) in done:
                    continue
                row = sample(
                    arm,
                    prompt,
                    repeat=repeat,
                    index=index,
                    cancel=cancel,
                    timeout_s=timeout_s,
                    watch=watch,
                )
                row |= stamp
                _keep(writer, row)
                yield row
                failures = failures + 1 if row["status"] in ("error", "refused") else 0
                if row["status"] == "cancelled" or failures == FAILURES_IN_A_ROW:
                    return


def sample(
    arm: Side,
    prompt: Prompt,
    *,
    repeat: int,
    index: int,
    cancel: Event | None = None,
    timeout_s: float = 300.0,
    watch: Callable[[str, Answer], None] | None = None,
) -> dict:
    """One request as one row, never an exception: flush (200 required), generate, every doubt about the answer.

    Status "refused" where a doubt says that the numbers would be wrong (labkit.measure.doubts).
    """
    row = {
        "arm": arm.name,
        "repeat": repeat,
        "index": index,
        "workload": prompt.workload,
        "seed": prompt.seed,
        "prompt_sha256": prompt_digest(prompt),
        "asked_sha256": _sha((prompt.text, prompt.input_ids)),
        "temperature": prompt.sampling.get("temperature"),
        "status": "ok",
        "error": None,
        "started_unix": time.time(),
        "fixed_length": bool(prompt.sampling.get("ignore_eos")),
        "asked_tokens": prompt.max_new_tokens,
        "sent_tokens": None,
        "flush_status": None,
        "drafts_vary": arm.dialect.drafts_vary,
    }
    result, found, own = client.RequestResult(), [], None
    if arm.prepare is not None:
        arm.prepare()
    try:
        row["sent_tokens"], spare = _sent(prompt, arm.count_tokens)
        if arm.dialect.flush:
            row["flush_status"] = client.flush(arm.url, api_key=arm.api_key, cancel=cancel)
        if row["flush_status"] not in (None, 200):
            row["status"] = "refused"
            row["error"] = f"/flush_cache answered {row['flush_status']}: {_unflushed(row['flush_status'])}"
        else:
            result = client.answer(
                arm.url,
                prompt,
                api_key=arm.api_key,
                timeout_s=timeout_s,
                cancel=cancel,
                on_answer=None if watch is None else functools.partial(watch, arm.name),
                dialect=arm.dialect,
            )
            own = arm.count_tokens(result.text) if arm.count_tokens is not None and result.text else None
            asked = doubts.Asked(
                prompt.max_new_tokens,
                row["fixed_length"],
                row["sent_tokens"],
                spare,
                own,
                arm.draft_tokens,
                row["drafts_vary"],
            )
            found = doubts.of(result, asked)
            against = [d.text for d in found if d.refuses]
            if against:
                row["status"], row["error"] = "refused", "; ".join(against)
    except client.Cancelled as e:
        row["status"], row["error"], result = "cancelled", "cancelled", e.partial
    except client.RequestError as e:
        row["status"], row["error"] = "error", str(e)
    if any(d.kind == "speculative counts disagree" for d in found):
        # Counts that contradict each other make no accept length; the doubt keeps what they were.
        result.accept_length = result.verify_ct = None
    row |= _answer(prompt, result)
    numbers = _numbers(result)
    if numbers["prompt_tokens"] is None:
        numbers["prompt_tokens"] = row["sent_tokens"] or 0
    return {**row, **numbers, "tokens_tokenizer": own, "doubts": [d.as_dict() for d in found]}


def _sent(prompt: Prompt, count_tokens: Callable[[str], int] | None) -> tuple[int | None, int]:
    """(tokens that are sent, how many more a server may rightly read)."""
    if prompt.input_ids is not None:
        return len(prompt.input_ids), 0
    return (count_tokens(prompt.text), 2) if count_tokens is not None else (None, 0)  # BOS and EOS may be added


def _unflushed(status: int) -> str:
    if status in (404, 405, 501):
        return "the server cannot flush its prefix cache, so a prompt may be served from it"
    if 300 <= status < 400:
        return "the server redirects: give the address that it redirects to"
    return "the server refused the key" if status in (401, 403) else "another request may be running"


def prompt_digest(prompt: Prompt) -> str:
    """12 hex digits of everything that is sent: prompt, sampling parameters, length."""
    sent = (prompt.text, prompt.input_ids, sorted(prompt.sampling.items()), prompt.max_new_tokens)
    return _sha(sent)


def _sha(sent: object) -> str:
    return hashlib.sha256(repr(sent).encode()).hexdigest()[:12]


def _answer(prompt: Prompt, result: client.RequestResult) -> dict:
    """The answer's text, where it is kept, and how it was read (strictly, flexibly) where the right one is known."""
    text = result.text or ""
    found = {"text": text[:ANSWER_LIMIT] if prompt.keep_answer and text else None, "expected": prompt.expected}
    if prompt.expected is not None and text:
        found["outcomes"] = answers.outcomes(text, prompt.expected, finish_reason=result.finish_reason)
    return found


def _numbers(r: client.RequestResult) -> dict:
    return {
        "prompt_tokens": r.prompt_tokens,
        "output_tokens": r.output_tokens,
        "first_tokens": r.first_tokens,
        "decode_tokens": r.decode_tokens,
        "tokens_server": r.counts.get("server"),
        "tokens_ids": r.counts.get("ids"),
        "tokens_events": r.counts.get("events"),
        "stream": r.stream,
        "cached_tokens": r.cached_tokens,
        "ttft_s": r.ttft_s,
        "latency_s": r.latency_s,
        "put_off_s": r.put_off_s,
        "tpot_s": r.tpot_s,
        "accept_length": r.accept_length,
        "verify_ct": r.verify_ct,
        "correct_drafts": r.correct_drafts,
        "proposed_drafts": r.proposed_drafts,
        "histogram": r.histogram,
        "finish_reason": r.finish_reason,
        "text_sha256": _digest(r),
        "thread_cpu_s": _told(r, "thread_cpu_s"),
        "server_latency_s": _told(r, "e2e_latency"),
        "server_decode_tok_s": _told(r, "decode_throughput"),
        # Microseconds are finer than any clock jitter here and keep a row small.
        "chunk_times": [round(t, 6) for t in r.chunk_times],
        "chunk_tokens": r.chunk_tokens,
    }


def _told(r: client.RequestResult, name: str) -> float | None:
    """A time or a rate by the server's own clock; None for what is no positive number."""
    value = r.meta.get(name)
    return value if number(value) and 0 < value < 1e9 else None


def _digest(r: client.RequestResult) -> str | None:
    said = r.text or (repr(r.output_ids) if r.output_ids else "")
    return hashlib.sha256(said.encode()).hexdigest()[:12] if said else None


def _warm(prompt: Prompt) -> Prompt:
    return replace(prompt, max_new_tokens=min(WARMUP_TOKENS, prompt.max_new_tokens))


def _keep(writer: Writer | None, row: dict) -> None:
    if writer is not None:
        writer.append(row)
