"""Why an option may not pay: candidates ranked by what the evidence excludes, each with the next experiment.

A candidate is supported (the evidence fits it), open (nothing tells) or excluded (the evidence speaks against it). Even
a supported one is a candidate: other causes may look the same, and the experiment beside it is what would tell.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from labkit.checks.benefit import NO_INTERVAL, NO_OVERLAP
from labkit.checks.check import FAIL, PASS, Check
from labkit.engines import ladder
from labkit.measure.estimates import NOTHING_ACCEPTED, Comparison

TOO_FEW = "too few repeats to tell"
_SCATTER = 3.0  # times the spread between repeats that an effect must be before noise is excluded as its cause


@dataclass(frozen=True)
class Cause:
    """A candidate: what may be wrong, what speaks for it in this case, what would tell, and the command that asks.

    supported: True the evidence fits, False it is excluded, None nothing tells yet. <...> in a command is the user's.
    """

    name: str
    why: str
    decide: str
    supported: bool | None = None
    command: str = ""

    def as_dict(self) -> dict:
        return asdict(self)

    def line(self) -> str:
        state = {True: "fits", None: "open", False: "excluded"}[self.supported]
        tell = f"; to decide: {self.decide}" + (f" ({self.command})" if self.command else "")
        return f"[{state}] {self.name}: {self.why}" + ("" if self.supported is False else tell)


@dataclass(frozen=True)
class Benefit:
    """A benefit check at equal load: did the step make TPOT smaller? low, high: interval of the ratio before/after.

    apart: no request of one side was as fast as any of the other (labkit.measure.estimates.Comparison).
    """

    step: str
    ratio: float
    low: float | None
    high: float | None
    causes: tuple[Cause, ...] = field(default=())
    apart: bool = False

    @property
    def verdict(self) -> str:
        """gain, loss or no difference shown: whole interval above, below or across 1. Without an interval a gain or
        loss takes requests that do not overlap; anything else is too few repeats to tell, never "no difference"."""
        if self.low is None or self.high is None:
            return TOO_FEW if not self.apart else "gain" if self.ratio > 1 else "loss"
        return "gain" if self.low > 1 else "loss" if self.high < 1 else "no difference shown"

    def lines(self) -> list[str]:
        """The candidates as sentences for a terminal, a notebook or a report; [] for a gain with its interval."""
        shown = f"{self.step}: x{self.ratio:.2f}, {self.verdict}"
        if self.low is None and self.apart:
            shown += f" ({NO_INTERVAL}, but {NO_OVERLAP})"
        if not self.causes:
            return [] if self.low is not None else [shown]
        head = f"{shown}; candidate causes, none proved by this alone:"
        return [head, *(f"  {i}. {c.line()}" for i, c in enumerate(self.causes, 1))]

    def as_dict(self) -> dict:
        return {**asdict(self), "verdict": self.verdict, "causes": [c.as_dict() for c in self.causes]}


def judge(
    step: str,
    found: Comparison,
    *,
    expect: str = ladder.NOTHING,
    fp8_head: bool = False,
    same_prompts: bool = True,
    sampled: bool = False,
    spread: float = 0.0,
    disturbed: bool | None = None,
    gpu: bool = True,
    head: bool = True,
    moe: bool = True,
    draft_layer: bool = True,
    checks: Iterable[Check] = (),
    where: str = "--url <URL>",
    again: str | None = None,
) -> Benefit:
    """Judge a step, with candidate causes whenever it is no clear gain.

    found: the arm after the step against the one before it. expect: what the arm should do (labkit.engines.ladder).
    spread: largest relative difference between repeats of either arm, 0 for a single one. disturbed: whether the
    engine's thread had to wait for a core. gpu: whether the engine could run CUDA graphs at all. head, moe: whether the
    step is about the LM head's format, or about MoE kernels. draft_layer: whether drafts come from a layer of the
    model, which can be misread. checks: what the configuration checks found. where: how the commands reach the server;
    again: the command that measures both again (None: `labkit bench` measures the server).
    """
    s = found.speedup
    plain = Benefit(step, s.value, s.low, s.high, (), found.apart)
    if plain.verdict == "gain":
        return plain
    told = {check.name: check.verdict for check in checks}
    again = again or f"labkit bench {where}"
    unclear = plain.verdict == TOO_FEW and s.value > 1
    causes: list[Cause] = []
    if not unclear:  # else nothing speaks for a fault yet: what is missing is repeats
        if found.accept is not None or expect in (ladder.DRAFTING, ladder.FAULT):
            accept, c = (None if x is None else x.value for x in (found.accept, found.cost))
            if draft_layer:
                shared, dead = _seen(told, "draft shares the head"), told.get("later draft positions") == FAIL
                causes += _layer(accept, fp8_head, shared, dead, where)
            causes += _drafting(accept, c, sampled, again)
            causes += _rounds(told, where)
        elif expect == ladder.FASTER and moe:
            causes.append(_kernels(_seen(told, "MoE kernels"), where))
        elif expect == ladder.BYTES and head:
            causes.append(_head(_seen(told, "FP8 head"), where))
    causes += [_load(same_prompts), _noise(plain, spread, again), _cores(disturbed, again)]
    if not unclear:
        causes += [_NOT_BYTES, *([_eager(_seen(told, "CUDA graph"), where)] if gpu else [])]
    return replace(plain, causes=_ranked(causes))


def of_checks(checks: Sequence[Check], *, sampled: bool = False, where: str = "--url <URL>") -> tuple[Cause, ...]:
    """Candidates for drafts that are not accepted, from configuration checks alone; () where none of those failed."""
    told = {check.name: check for check in checks}
    dead = _failed(told.get("later draft positions"))
    if not dead and not any(_failed(told.get(n)) for n in ("accept length", "first draft position")):
        return ()
    a = told.get("accept length")
    accept = float(a.seen.split()[0]) if a is not None and a.seen[:1].isdigit() else None
    fp8_head = "FP8 head" in told and not _failed(told["FP8 head"])
    shared = told.get("draft shares the head")
    by_log = shared is not None and shared.where == "log"
    module_shared = (shared.verdict == PASS) if by_log else None
    layer = _layer(accept, fp8_head, module_shared, dead, where)
    return _ranked([*layer, *_drafting(accept, None, sampled, f"labkit bench {where}")])


def _ranked(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    return tuple(sorted(causes, key=lambda x: {True: 0, None: 1, False: 2}[x.supported]))


def _look(where: str, *expects: str) -> str:
    """The command that checks whether a server's options for this are in effect."""
    return f"labkit check {where} --expect {','.join(map(ladder.word, expects))} --log <LOG>"


def _kernels(backend_seen: bool | None, where: str) -> Cause:
    return Cause(
        "another kernel runs",
        "a runner can fall back on this GPU while /server_info repeats what was requested",
        "the log line about preparing experts",
        None if backend_seen is None else not backend_seen,
        _look(where, ladder.FASTER),
    )


def _head(head_seen: bool | None, where: str) -> Cause:
    return Cause(
        "the head is still 16-bit",
        "an environment variable that the engine does not know is ignored silently",
        "the proof line in the log, bytes of the head",
        None if head_seen is None else not head_seen,
        _look(where, ladder.BYTES),
    )


def _eager(graphs: bool | None, where: str) -> Cause:
    return Cause(
        "decoding runs without CUDA graphs",
        "kernel launches then dominate the step, whatever its bytes",
        "`cuda graph: False` on decode lines of the log",
        None if graphs is None else not graphs,
        f"labkit check {where} --expect drafting --log <LOG>",
    )


def _load(same_prompts: bool) -> Cause:
    return Cause(
        "not the same load",
        "prompts or lengths differ between the arms",
        "prompt digests of the two arms",
        not same_prompts,
        "labkit compare <RUN_A> <RUN_B>",
    )


def _noise(found: Benefit, spread: float, again: str) -> Cause:
    """Excluded only for an effect that is shown and well beyond what repeats differ by."""
    effect = abs(math.log(found.ratio)) if found.ratio > 0 else math.inf
    scatter = math.log1p(spread)
    shown = found.verdict in ("gain", "loss")
    fits = True if scatter >= effect else False if shown and scatter and effect > _SCATTER * scatter else None
    return Cause(
        "noise",
        f"repeats differ by {spread:.1%}" if spread else "a single repeat does not show how far repeats differ",
        "more repeats, arms interleaved, servers started again",
        fits if spread else None,
        f"{again} --repeats 10",
    )


def _cores(disturbed: bool | None, again: str) -> Cause:
    return Cause(
        "something else used the cores",
        "the engine's thread had to wait for a core"
        if disturbed
        else "time spent waiting for a core counts as decode time",
        "the same measurement on an idle machine",
        disturbed,
        again,
    )


_NOT_BYTES = Cause(
    "bytes do not bind here",
    "kernel launches, small kernels and the CPU can take longer than the memory traffic",
    "how far a step is above its byte floor; the share of idle time in a profile",
    None,
    "labkit bytes --model <MODEL> --machine <MACHINE> --context <N>",
)


def _layer(accept, fp8_head, module_shared, dead, where) -> list[Cause]:
    """What may be wrong with a draft layer of the model."""
    nothing = None if accept is None else accept < NOTHING_ACCEPTED
    return [
        Cause(
            "the draft's head is a bare tensor",
            "an FP8 head shared without its scales gives a = 1.00 and no error",
            "the log's line about sharing the module; the accept length with a 16-bit head",
            _bare(fp8_head, module_shared, nothing),
            _look(where, ladder.BYTES, ladder.DRAFTING),
        ),
        Cause(
            "the draft layer is misread",
            "a quantised draft layer loaded in the wrong format gets no draft accepted either",
            "accept length by position; the draft's dtypes in the log",
            nothing if not fp8_head else (False if nothing is False else None),
            _look(where, ladder.DRAFTING),
        ),
        Cause(
            "the draft layer is damaged in part",
            "some of its tensors without scales, or a state that is not carried on: the first draft may be"
            " accepted while later ones never are",
            "acceptance by position; dtypes and scales of the draft layer in the checkpoint's index and in the log",
            True if dead else False if nothing else None,
            _look(where, ladder.DRAFTING),
        ),
    ]


def _drafting(accept, c, sampled, again) -> list[Cause]:
    nothing = None if accept is None else accept < NOTHING_ACCEPTED
    costly = None if accept is None or c is None else accept < c
    both = f"; here a = {accept:.2f}, c = {c:.2f}" if accept is not None and c is not None else ""
    return [
        Cause(
            "the round costs more than it accepts",
            f"a gain needs a > c{both}",
            "c over the number of draft tokens (notebook 05 sweeps them), fewer steps",
            costly,
            "labkit run 05_mtp",
        ),
        Cause(
            "drafts rarely match this load",
            "the accept length falls with sampling and on unfamiliar text",
            "the same server on a repetitive load, greedy",
            True if sampled and not nothing else None,
            f"{again} --workload repetitive",
        ),
    ]


def _rounds(told: Mapping[str, str], where: str) -> list[Cause]:
    """Why a round may cost more than it need: candidates only where the checks looked (labkit.checks.rounds)."""
    look = _look(where, ladder.DRAFTING)
    known = (
        (
            "rounds wait for the host",
            "an attention backend that reads sequence lengths on the host stops the queue in each round",
            "c with another attention backend (fa3, triton); GPU idle time in a profile",
        ),
        (
            "draft-extend CUDA graph",
            "without a graph the pass after each verify step is launched kernel by kernel",
            "`Capture draft extend CUDA graph end` in the log; c with another attention backend",
        ),
    )
    return [
        Cause(name, why, decide, {PASS: False, FAIL: True}.get(told[name]), look)
        for name, why, decide in known
        if name in told
    ]


def _bare(fp8_head: bool, module_shared: bool | None, nothing: bool | None) -> bool | None:
    if not fp8_head or module_shared is True or nothing is False:
        return False
    # Accepting nothing fits this cause and others: only the log decides.
    return True if module_shared is False else None


def _seen(told: Mapping[str, str], check: str) -> bool | None:
    return {PASS: True, FAIL: False}.get(told.get(check))


def _failed(check: Check | None) -> bool:
    return check is not None and check.verdict == FAIL
