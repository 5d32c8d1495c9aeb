"""Why an option may not pay: candidates ranked by what the evidence excludes, each with the next experiment.

A candidate is supported (the evidence fits it), open (nothing tells) or excluded (the evidence speaks against it). Even
a supported one is a candidate: other causes may look the same, and the experiment beside it is what would tell.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from labkit.checks.benefit import NO_INTERVAL, NO_OVERLAP
from labkit.checks.check import FAIL, PASS, Check
from labkit.measure.estimates import NOTHING_ACCEPTED

TOO_FEW = "too few repeats to tell"
_SCATTER = 3.0  # times the spread between repeats that an effect must be before noise is excluded as its cause
# What an arm changes; the ladder's own words for what it expects are taken too.
DRAFTING, KERNELS, BYTES = "drafting", "kernels", "bytes"
_KINDS = {"mtp": DRAFTING, "a > c": DRAFTING, "kernels": KERNELS, "same bytes, better kernels": KERNELS}
_KINDS |= {"fp8-head": BYTES, "fewer bytes": BYTES, "a silent fault": DRAFTING}


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
    ratio: float,
    low: float | None,
    high: float | None,
    *,
    kind: str | None = None,
    accept: float | None = None,
    c: float | None = None,
    fp8_head: bool = False,
    module_shared: bool | None = None,
    same_prompts: bool = True,
    sampled: bool = False,
    spread: float = 0.0,
    apart: bool = False,
    backend_seen: bool | None = None,
    head_seen: bool | None = None,
    graphs: bool | None = None,
    disturbed: bool | None = None,
    gpu: bool = True,
    head: bool = True,
    moe: bool = True,
    draft_layer: bool = True,
    checks: Iterable[Check] = (),
    where: str = "--url <URL>",
    ladder: str | None = None,
) -> Benefit:
    """Judge a step by TPOT before over TPOT after, with candidate causes whenever it is no clear gain.

    kind: what the step changes (DRAFTING, KERNELS, BYTES or a ladder's word for what an arm expects; default by the
    step's name). accept and c concern drafting. module_shared, backend_seen, head_seen, graphs: what the configuration
    checks found (None: unknown); `checks` are read for them where they are not given. spread: largest relative
    difference between repeats of either arm, 0 for a single one. apart: as in Benefit. disturbed: whether the engine's
    thread had to wait for a core. gpu: whether the engine could run CUDA graphs at all. head, moe: whether the step is
    about the LM head's format, or about MoE kernels. draft_layer: whether drafts come from a layer of the model, which
    can be misread. where: how the commands reach the server; ladder: options with which `labkit ladder` measures the
    arms again (None: `labkit bench` measures the server).
    """
    plain = Benefit(step, ratio, low, high, (), apart)
    if plain.verdict == "gain":
        return plain
    told = {check.name: check.verdict for check in checks}
    module_shared = _or(module_shared, told.get("draft shares the head"))
    backend_seen = _or(backend_seen, told.get("MoE kernels"))
    head_seen = _or(head_seen, told.get("FP8 head"))
    graphs = _or(graphs, told.get("CUDA graph"))
    kind = _KINDS.get(kind or step, kind or step)
    again = f"labkit bench {where}" if ladder is None else f"labkit ladder {ladder}".strip()
    causes: list[Cause] = []
    if plain.verdict == TOO_FEW and ratio > 1:
        kind, gpu = None, False  # nothing speaks for a fault yet: what is missing is repeats
    if kind == DRAFTING:
        dead = told.get("later draft positions") == FAIL
        if draft_layer:
            causes += _layer(accept, fp8_head, module_shared, dead, where)
        causes += _drafting(accept, c, sampled, again)
        causes += _rounds(told, where)
    if kind == KERNELS and moe:
        causes.append(_kernels(backend_seen, where))
    if kind == BYTES and head:
        causes.append(_head(head_seen, where))
    causes.append(_load(same_prompts))
    causes.append(_noise(plain, spread, again))
    causes.append(_cores(disturbed, again))
    if plain.verdict != TOO_FEW or ratio <= 1:
        causes.append(_NOT_BYTES)
    if gpu:
        causes.append(_eager(graphs, where))
    return Benefit(step, ratio, low, high, _ranked(causes), apart)


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


def _kernels(backend_seen: bool | None, where: str) -> Cause:
    return Cause(
        "another kernel runs",
        "a runner can fall back on this GPU while /server_info repeats what was requested",
        "the log line about preparing experts",
        None if backend_seen is None else not backend_seen,
        f"labkit check {where} --expect kernels --log <LOG>",
    )


def _head(head_seen: bool | None, where: str) -> Cause:
    return Cause(
        "the head is still 16-bit",
        "an environment variable that the engine does not know is ignored silently",
        "the proof line in the log, bytes of the head",
        None if head_seen is None else not head_seen,
        f"labkit check {where} --expect fp8-head --log <LOG>",
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
            f"labkit check {where} --expect fp8-head,mtp --log <LOG>",
        ),
        Cause(
            "the draft layer is misread",
            "a quantised draft read in the wrong format accepts nothing either",
            "accept length by position; the draft's dtypes in the log",
            nothing if not fp8_head else (False if nothing is False else None),
            f"labkit check {where} --expect mtp --log <LOG>",
        ),
        Cause(
            "the draft layer is damaged in part",
            "some of its tensors without scales, or a state that is not carried on: the first draft may come right and"
            " the next ones never do",
            "acceptance by position; dtypes and scales of the draft layer in the checkpoint's index and in the log",
            True if dead else False if nothing else None,
            f"labkit check {where} --expect mtp --log <LOG>",
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
            "drafts fit this load badly",
            "the accept length falls with sampling and on unfamiliar text",
            "the same server on a repetitive load, greedy",
            True if sampled and not nothing else None,
            f"{again} --workload repetitive",
        ),
    ]


def _rounds(told: Mapping[str, str], where: str) -> list[Cause]:
    """Why a round may cost more than it need: candidates only where the checks looked (labkit.checks.rounds)."""
    look = f"labkit check {where} --expect mtp --log <LOG>"
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


def _or(given: bool | None, verdict: str | None) -> bool | None:
    return given if given is not None else {PASS: True, FAIL: False}.get(verdict)


def _failed(check: Check | None) -> bool:
    return check is not None and check.verdict == FAIL
