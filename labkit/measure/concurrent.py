"""Several requests at once against servers that batch: throughput against TPOT, tails, and where drafting stops paying.

closed loop  n clients, each of which asks its next question as soon as the last one is answered: n requests are in
             flight, and a slow server is asked more slowly
open loop    requests arrive at a rate, at random times (Poisson, seeded), whatever the server does; latency counts from
             the arrival, so waiting in the client or in the server's queue is part of it

The prefix cache is flushed before each level where the server can, not before each request: others are running.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from labkit import waits
from labkit.measure import client, estimates, session, stats
from labkit.measure.stats import at_rank
from labkit.workloads import Prompt

NO_GROWTH = 1.15  # throughput at several requests over that at one, below which more at once bring nothing
WAITS = 1.5  # TTFT at several over that at one, above which they wait for each other
SAME = 1.3  # TPOT at several over that at one, below which each is answered as if it were alone


class Append(Protocol):
    """Keeps a row at once; called from one thread at a time."""

    def __call__(self, row: dict) -> None: ...


@dataclass(frozen=True)
class Level:
    """How requests are put: `clients` at once (closed loop), or `rate` arrivals per second (open loop)."""

    clients: int | None = None
    rate: float | None = None

    @property
    def name(self) -> str:
        return f"{self.clients} at once" if self.clients else f"{self.rate:g} per second"

    @property
    def loop(self) -> str:
        return "closed" if self.clients else "open"


def run(
    arm: session.Side,
    prompts: Sequence[Prompt],
    level: Level,
    *,
    repeat: int,
    seed: int = 0,
    timeout_s: float = 300.0,
    cancel: threading.Event | None = None,
    keep: Append = lambda row: None,
) -> list[dict]:
    """Every prompt once at one level; the rows in the order of the prompts, none of them lost.

    Rows are those of session.sample, with clients, rate, and in an open loop arrival_s (when it was due, since the
    level began) and waited_s (how long after that it was sent). ttft_s and latency_s include it, and put_off_s. After a
    cancel, those not yet asked are left out. `keep` gets each row as it ends.
    """
    if arm.dialect.flush:
        client.flush(arm.url, api_key=arm.api_key, cancel=cancel)
    # Counters of the whole server say nothing of one request among several.
    asked = replace(arm, dialect=replace(arm.dialect, flush=False, counters=None))
    cancel = cancel or threading.Event()
    due = _arrivals(level.rate, len(prompts), seed + repeat) if level.rate else [0.0] * len(prompts)
    rows: dict[int, dict] = {}
    waiting, lock, began = iter(range(len(prompts))), threading.Lock(), time.monotonic()

    def one(index: int) -> None:
        cancel.wait(max(0.0, began + due[index] - time.monotonic()))
        if cancel.is_set():
            return
        waited = time.monotonic() - began - due[index] if level.rate else 0.0
        row = session.sample(asked, prompts[index], repeat=repeat, index=index, cancel=cancel, timeout_s=timeout_s)
        row |= {"clients": level.clients, "rate": level.rate, "ended_s": time.monotonic() - began}
        if level.rate:
            row |= {"arrival_s": due[index], "waited_s": waited}
        for name in ("ttft_s", "latency_s"):
            row[name] = row[name] and row[name] + waited + row["put_off_s"]
        with waits.holding(lock, "another client to keep its row", waits.LOCK_S):
            rows[index] = row
            keep(row)

    def client_loop() -> None:
        while True:
            with waits.holding(lock, "another client to take its question", waits.LOCK_S):
                index = next(waiting, None)
            if index is None or cancel.is_set():
                return
            one(index)

    # In an open loop nobody waits for anybody: a thread for each request.
    threads = [threading.Thread(target=client_loop, daemon=True) for _ in range(level.clients or len(prompts))]
    try:
        for t in threads:
            t.start()
        waits.join(threads, f"{len(prompts)} answers", max(1.0, due[-1] + timeout_s * len(prompts)))
    except BaseException:
        cancel.set()
        for t in threads:
            t.join(5.0)
        raise
    if len(rows) < len(prompts) and not cancel.is_set():
        raise RuntimeError(f"{len(prompts) - len(rows)} of {len(prompts)} requests have no row")
    return [rows[i] for i in sorted(rows)]


def _arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds at which requests arrive: exponential gaps of mean 1 / rate."""
    rng, at, out = Random(f"arrivals/{seed}"), 0.0, []
    for _ in range(count):
        out.append(at)
        at += rng.expovariate(rate)
    return out


def summary(rows: Sequence[Mapping], level: Level, *, asked: int, seed: int = 0) -> dict:
    """One arm at one level, JSON-ready. rows: of all passes; asked: requests that were to be made in all of them.

    output_tok_s: tokens of a pass over its wall time, ramp-up and the last answers included: median over passes with
    its interval. tpot_s, ttft_s, latency_s: medians with intervals, and p99 (the largest of fewer than 100).
    Counted by status, so that a lost request would show: asked = ok + refused + error + cancelled + lost.
    """
    counts = Counter(r["status"] for r in rows)
    used = estimates.good(rows)
    out = {
        "level": level.name,
        "loop": level.loop,
        "clients": level.clients,
        "rate": level.rate,
        "asked": asked,
        **{name: counts[name] for name in ("ok", "refused", "error", "cancelled")},
        "lost": asked - len(rows),
        "why": sorted({str(r["error"]) for r in rows if r["status"] != "ok"})[:3],
        "accept_length": estimates.accept_length(used),
    }
    if not used:
        return out | dict.fromkeys(("output_tok_s", "tpot_s", "ttft_s", "latency_s", "p99"))
    passes = throughput_by_pass(rows)
    out["output_tok_s"] = stats.median_interval(list(passes.values()), list(passes), seed=seed).as_dict()
    for name in ("tpot_s", "ttft_s", "latency_s"):
        found = stats.median_interval([r[name] for r in used], [r["repeat"] for r in used], seed=seed)
        out[name] = found.as_dict()
    out["p99"] = {name: at_rank([r[name] for r in used], 0.99) for name in ("tpot_s", "ttft_s", "latency_s")}
    return out


def throughput_by_pass(rows: Sequence[Mapping]) -> dict[int, float]:
    """Output tokens per second of wall time, by pass; a pass without an answer has none."""
    out = {}
    for repeat in sorted({r["repeat"] for r in rows}):
        mine = [r for r in rows if r["repeat"] == repeat and r["status"] == "ok"]
        if mine:
            out[repeat] = sum(r["output_tokens"] for r in mine) / max(r["ended_s"] for r in mine)
    return out


def gain(rows: Sequence[Mapping], base: Sequence[Mapping], *, seed: int = 0) -> dict | None:
    """Throughput of an arm over that of another at the same level, by pairs of passes, as Interval.as_dict; None
    without a common pass."""
    over, under = throughput_by_pass(rows), throughput_by_pass(base)
    common = sorted(over.keys() & under.keys())
    if not common:
        return None
    return stats.median_interval([over[p] / under[p] for p in common], common, seed=seed).as_dict()


def pays(gains: Mapping[int, Mapping]) -> str:
    """At how many requests at once an arm pays. gains: by clients, as `gain` has them."""
    few = "has too few passes to tell"
    kinds: dict[str, list[int]] = {"pays": [], "costs": [], "cannot be told apart": [], few: []}
    for n, g in sorted(gains.items()):
        up, down = g["low"] is not None and g["low"] > 1, g["high"] is not None and g["high"] < 1
        unsure = few if g["low"] is None else "cannot be told apart"
        kinds["pays" if up else "costs" if down else unsure].append(n)
    return "; ".join(f"{kind} at {_list(mine)} at once" for kind, mine in kinds.items() if mine)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def scaling(levels: Sequence[Mapping]) -> str | None:
    """A sentence where more requests at once bring no more throughput, by what was measured: they wait for each other,
    or they share what one keeps busy. None where throughput grows."""
    closed = [s for s in levels if s["clients"] and s["output_tok_s"]]
    one, most = (f(closed, key=lambda s: s["clients"], default=None) for f in (min, max))
    if one is None or one["clients"] == most["clients"]:
        return None
    grown, waits, slower = (most[name]["median"] / one[name]["median"] for name in ("output_tok_s", "ttft_s", "tpot_s"))
    if grown >= NO_GROWTH:
        return None
    seen = (
        f"at {most['clients']} at once throughput is x{grown:.2f} of that at {one['clients']}, TTFT x{waits:.1f}, TPOT"
        f" x{slower:.2f}"
    )
    if slower < SAME and waits > WAITS:
        return f"{seen}: requests wait for each other and are answered one at a time"
    return f"{seen}: they run together, on a machine that one of them keeps busy"
