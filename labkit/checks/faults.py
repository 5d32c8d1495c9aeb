"""Faults injected on purpose, and the check that must catch each: small servers, logs and streams written here.

A fault's function gets a seeded random generator (no two runs are alike) and returns what was raised: names of failed
checks, kinds of doubts, "error" for a failed request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from labkit.checks import benefit, checks, observed
from labkit.checks.benefit import Side
from labkit.checks.check import FAIL, PASS
from labkit.checks.observed import Observed
from labkit.checks.servers import DRAFTS, INFO, Script, serve
from labkit.engines import ladder
from labkit.engines.config import Speculative
from labkit.measure import session
from labkit.workloads import Prompt

# Words for what is expected of a server: arms of SGLang's own ladder, by what each should do.
PLAIN, KERNELS, HEAD, MTP = (ladder.word(e) for e in (ladder.NOTHING, ladder.FASTER, ladder.BYTES, ladder.DRAFTING))
TOKENS = 64
HEALTHY = (2, 3, 1, 2)
_WORDS = "river stone lamp garden letter bridge winter market window silver forest engine".split()


@dataclass(frozen=True)
class Fault:
    """caught_by: any of these names is the right alarm. trap: its number in labkit.checks.traps."""

    name: str
    caught_by: tuple[str, ...]
    raised: Callable[[Random], set[str]]


def prompts(rng: Random, count: int = 3, *, ids: bool = False, **sampling: object) -> list[Prompt]:
    """Distinct prompts of fixed output length, as text or as ids."""
    out = []
    for i in range(count):
        text = " ".join(rng.choice(_WORDS) for _ in range(rng.randrange(8, 30))) + f" {i}"
        tokens = [rng.randrange(100, 9000) for _ in range(rng.randrange(8, 40))]
        one = {"temperature": 0.0, "ignore_eos": True, **sampling}
        out.append(Prompt(None if ids else text, tokens if ids else None, one, TOKENS, i, None, "selfcheck"))
    return out


def measured(
    script: Script, rng: Random, *, repeats: int = 3, floor_s: float | None = None, ids: bool = False
) -> set[str]:
    """What a bench of this server raises."""
    with serve(script) as url:
        rows = list(session.measure(url, prompts(rng, ids=ids), arm="bench", repeats=repeats, warmup=1))
    return raised_by(rows, script.info, floor_s)


def raised_by(rows: Sequence[dict], info: dict, floor_s: float | None = None) -> set[str]:
    """Kinds of doubts, failed requests and refused ones, and the failures of the benefit checks of one arm."""
    out = {d["kind"] for r in rows for d in r["doubts"]}
    out |= {r["status"] for r in rows} & {"error", "refused"}
    side = Side("bench", rows, info, floor_s)
    if side.good:
        out |= {c.name.removeprefix("bench: ") for c in benefit.alone(side) if c.verdict == FAIL}
    from labkit.measure import doubts

    if any("steps varied" in s for s in doubts.said(rows)):
        out.add("steps vary")
    return out


def checked(
    script: Script, expect: str | Sequence[str], *, log: str | None = None, requests: int = 3, **more: object
) -> set[str]:
    """Which configuration checks fail on this server; env and temperature as `observe` takes them, spec: asked."""
    spec, env = more.pop("spec", None), more.pop("env", {})
    with serve(script) as url:
        seen = observed.observe(url, requests=requests, **more)
    seen = Observed(seen.info, log, seen.rows, env)
    found = checks.configuration(seen, expect, speculative=spec)
    out = {c.name.removeprefix("probe: ") for c in found if c.verdict == FAIL}
    # An unknown server is caught by what it may not pass.
    who = found[0]
    passed = [c for c in found if c.verdict == PASS and c.where.startswith("/server_info")]
    return out | ({who.name} if who.verdict != PASS and not passed else set())


def paired(before: Script, after: Script, rng: Random, *, same: bool = True) -> set[str]:
    """Which benefit checks of two servers fail, measured in turns with the same prompts (same False: with others)."""
    with serve(before) as one, serve(after) as two:
        arms = [session.Side("before", one), session.Side("after", two)]
        if same:
            rows = list(session.interleave(arms, prompts(rng), repeats=3, warmup=1))
        else:
            rows = [r for a in arms for r in session.measure(a.url, prompts(rng), arm=a.name, repeats=3, warmup=1)]
    sides = [Side(a.name, [r for r in rows if r["arm"] == a.name]) for a in arms]
    found = benefit.of(sides)
    short = {"after and before: ": "", "after: ": "", "before: ": ""}
    out = set()
    for c in found:
        name = c.name
        for prefix, by in short.items():
            name = name.replace(prefix, by)
        if c.verdict == FAIL:
            out.add(name)
    return out


# --- scripts and logs -------------------------------------------------------------------------------------------------


def plain(rng: Random, **changes: object) -> Script:
    """A sound server without drafting, somewhat different each time."""
    base = Script(step_s=rng.uniform(0.0015, 0.003), ttft_s=rng.uniform(0.003, 0.01))
    return replace(base, **changes)


def drafting(rng: Random, accepted: tuple[int, ...] | None = None, **changes: object) -> Script:
    """A sound server that drafts 3 steps and accepts 1 to 3 of them in a round; its first event is prefill's token."""
    changes.pop("first", None)
    pattern = accepted or tuple(rng.sample(HEALTHY, len(HEALTHY)))
    base = Script(info={**INFO, **DRAFTS}, accepted=pattern, step_s=rng.uniform(0.003, 0.006), ttft_s=0.005)
    return replace(base, **changes)


def told(script: Script, **info: object) -> Script:
    """The same server with another description."""
    return replace(script, info={**script.info, **info})


def log(
    rng: Random, *, experts: str = "Humming backend", graph: bool = True, accept: float | None = None, more: str = ""
) -> str:
    """Lines as SGLang 0.5.x writes them, with numbers of their own."""
    lines = [
        f"[t] Preparing DeepSeekV4 MXFP4 experts for {experts} (layer: model.layers.{rng.randrange(40)}.experts)...",
        f"[t] max_total_num_tokens={rng.randrange(100000, 3000000)}, chunked_prefill_size=8192",
        more,
        "[t] Prefill batch, #new-seq: 1, #new-token: 812, #cached-token: 0, #running-req: 0, cuda graph: False",
    ]
    for _ in range(rng.randrange(2, 8)):
        length = f"accept len: {accept + rng.uniform(-0.02, 0.02):.2f}, accept rate: 0.50, " if accept else ""
        speed = rng.uniform(20, 300)
        lines.append(
            f"[t] Decode batch, #running-req: 1, {length}cuda graph: {graph}, gen throughput (token/s): {speed:.2f}"
        )
    return "\n".join(x for x in lines if x) + "\n"


HEAD_ON = "[t] labkit plugin: FP8 lm_head on for BailingMoeV3ForCausalLM: weight (157184, 2560) torch.float8_e4m3fn"
BARE = "[t] labkit plugin: draft BailingMoeForCausalLMNextN keeps the bare weight tensor of the head"
SHARED = "[t] labkit plugin: draft BailingMoeForCausalLMNextN shares the target's lm_head module"
REWRITTEN = "[t] speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 = 4 with topk 1"


def _other(rng: Random) -> set[str]:
    name = rng.choice(["EAGLE3", "DFLASH", "DSPARK", "NGRAM"])
    return checked(told(drafting(rng), speculative_algorithm=name), MTP)


def _loaded(rng: Random) -> set[str]:
    return checked(told(plain(rng), speculative_draft_model_path="made-up/draft"), MTP)


def _flag(rng: Random) -> set[str]:
    command = f"python -m sglang.launch_server --moe-runner-backend {rng.choice(['humming', 'marlin'])} --port 1"
    return checked(told(plain(rng), launch_command=command, moe_runner_backend="triton"), "drafting")


def _unknown(rng: Random) -> set[str]:
    info = rng.choice([{"version": "0.26.0"}, {**INFO, "engine": "other"}, {"engine": "pocket"}, {"model_path": "m"}])
    return checked(plain(rng, info=info), PLAIN)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "tokens summed over events",
        ("counts disagree",),
        lambda g: measured(drafting(g, told=lambda n: n * (n + 1) // 2), g),
    ),
    Fault(
        "tokens summed over events, one each",
        ("counts disagree",),
        lambda g: measured(plain(g, told=lambda n: n * (n + 1) // 2), g),
    ),
    Fault(
        "every round billed with all its drafts, no ids",
        ("more tokens than drafts allow", "more tokens than asked"),
        lambda g: measured(drafting(g, told=lambda n: 2 * n, ids=False), g),
    ),
    Fault("ignore_eos not honoured", ("stopped early",), lambda g: measured(plain(g, longest=g.randrange(20, 60)), g)),
    Fault(
        "a template around every prompt",
        ("prompt changed",),
        lambda g: measured(plain(g, extra=g.randrange(1, 60)), g, ids=True),
    ),
    Fault(
        "prompts from the prefix cache", ("cached prompt",), lambda g: measured(plain(g, cached=g.randrange(1, 99)), g)
    ),
    Fault("not streamed", ("one event",), lambda g: measured(plain(g, whole=True), g)),
    Fault("held back by a proxy", ("all at once", "clocks far apart"), lambda g: measured(plain(g, burst=True), g)),
    Fault("fails in mid-stream", ("error",), lambda g: measured(plain(g, fails_at=g.randrange(5, 40)), g)),
    Fault("no cache flush", ("refused",), lambda g: measured(plain(g, flush=404), g)),
    Fault(
        "counts of drafting that contradict",
        ("speculative counts disagree",),
        lambda g: measured(drafting(g, histogram_off=g.randrange(1, 9)), g),
    ),
    Fault("draft steps change between requests", ("steps vary",), lambda g: measured(drafting(g, steps=(3, 5, 4)), g)),
    Fault(
        "slower from one request on",
        ("run order",),
        lambda g: measured(plain(g, step_s=0.004, slow_from=(g.randrange(6, 9), g.uniform(2, 3))), g, repeats=4),
    ),
    Fault("answers do not depend on prompts", ("answers",), lambda g: measured(plain(g, mute=True), g)),
    Fault("faster than its bytes", ("byte floor",), lambda g: measured(plain(g), g, floor_s=g.uniform(0.02, 0.09))),
    Fault(
        "temperature ignored",
        ("sampling",),
        lambda g: checked(plain(g, greedy=True), PLAIN, temperature=g.uniform(0.5, 1)),
    ),
    Fault("another drafting than asked", ("drafting algorithm",), _other),
    Fault("draft loaded and idle", ("drafting",), _loaded),
    Fault("drafting named, no request drafted", ("drafting",), lambda g: checked(told(plain(g), **DRAFTS), MTP)),
    Fault(
        "adaptive draft steps",
        ("draft steps",),
        lambda g: checked(drafting(g, steps=tuple(g.sample((1, 3, 5), 3))), MTP),
    ),
    Fault("a later draft position is dead", ("later draft positions",), lambda g: checked(drafting(g, (1, 0, 1)), MTP)),
    Fault("no draft accepted", ("accept length",), lambda g: checked(drafting(g, (0,)), MTP)),
    Fault(
        "the first position hardly accepted",
        ("first draft position",),
        lambda g: checked(drafting(g, (0,) * 30 + (3,)), MTP),
    ),
    Fault(
        "draft tokens rewritten",
        ("draft tokens",),
        lambda g: checked(drafting(g), MTP, spec=Speculative(steps=3, topk=1, draft_tokens=g.choice((5, 6, 8)))),
    ),
    Fault(
        "draft tokens rewritten, by the log",
        ("draft tokens",),
        lambda g: checked(drafting(g), MTP, log=log(g, more=REWRITTEN)),
    ),
    Fault("a flag resolved otherwise", ("flag --moe-runner-backend",), _flag),
    Fault(
        "another MoE runner resolved",
        ("MoE kernels",),
        lambda g: checked(told(plain(g), moe_runner_backend=g.choice(("triton", "marlin"))), KERNELS),
    ),
    Fault(
        "another MoE kernel prepared",
        ("MoE kernels",),
        lambda g: checked(plain(g), KERNELS, log=log(g, experts="FlashInfer SM90 CUTLASS W4A16")),
    ),
    Fault(
        "the draft's head a bare tensor",
        ("draft shares the head",),
        lambda g: checked(drafting(g, (0,)), "fp8-head,mtp", log=log(g, accept=1.0, more=f"{HEAD_ON}\n{BARE}")),
    ),
    Fault(
        "a variable that nobody reads",
        ("variable",),
        lambda g: checked(plain(g), KERNELS, env={f"SGLANG_NO_SUCH_{g.randrange(99)}": "1"}),
    ),
    Fault("FP8 head asked for, nothing in the log", ("FP8 head",), lambda g: checked(plain(g), HEAD, log=log(g))),
    Fault(
        "FP8 head in an arm before it",
        ("no FP8 head",),
        lambda g: checked(
            told(plain(g), moe_runner_backend="flashinfer_mxfp4"),
            PLAIN,
            log=log(g, experts="FlashInfer", more=HEAD_ON),
        ),
    ),
    Fault(
        "decoding without CUDA graphs, by the log",
        ("CUDA graph",),
        lambda g: checked(plain(g), KERNELS, log=log(g, graph=False)),
    ),
    Fault("CUDA graphs disabled", ("CUDA graph",), lambda g: checked(told(plain(g), disable_cuda_graph=True), KERNELS)),
    Fault(
        "no room for the context",
        ("memory",),
        lambda g: checked(told(plain(g), max_total_num_tokens=g.randrange(100, 4000)), KERNELS),
    ),
    Fault(
        "FP32 logits and an FP8 head",
        ("conflicting options", "FP8 head"),
        lambda g: checked(told(plain(g), enable_fp32_lm_head=True), HEAD, log=log(g, more=HEAD_ON)),
    ),
    Fault(
        "a reference that drafts",
        ("no drafting",),
        lambda g: checked(told(drafting(g), moe_runner_backend="flashinfer_mxfp4"), PLAIN),
    ),
    Fault("an engine that nobody knows", ("who is serving", "not measured"), _unknown),
    Fault(
        "drafting that costs more than it yields",
        ("a against c",),
        lambda g: paired(plain(g, step_s=0.004), drafting(g, (1, 0, 1, 1), step_s=g.uniform(0.016, 0.02)), g),
    ),
    Fault(
        "a step that makes it slower",
        ("after against before",),
        lambda g: paired(plain(g, step_s=0.003), plain(g, step_s=g.uniform(0.006, 0.009)), g),
    ),
    Fault("other prompts on each side", ("prompts",), lambda g: paired(plain(g), plain(g), g, same=False)),
)


def clean(i: int, rng: Random) -> set[str]:
    """What a sound server raises, run number i: loads, framings, ways of streaming, drafting or not, logs, pairs."""
    shape = {
        "framing": ("plain", "named", "ids", "pings", "crlf")[i % 5],
        "incremental": i % 2 == 1,
        "first": rng.choice((1, 1, 2, 4)),
        "busy_s": rng.choice((0.0, 0.03)),
    }
    way = i % 4
    if way == 0:
        return measured(plain(rng, **shape), rng, floor_s=0.0005, ids=i % 8 == 0)
    if way == 1:
        return measured(drafting(rng, **shape), rng)
    if way == 2:
        drafts = rng.random() < 0.5
        script = drafting(rng, **shape) if drafts else plain(rng, **shape)
        text = log(rng, accept=3.0 if drafts else None, more=f"{HEAD_ON}\n{SHARED}" if drafts else "")
        return checked(
            script, (KERNELS, HEAD, MTP) if drafts else (KERNELS,), log=text, temperature=rng.choice((None, 0.8))
        )
    return paired(plain(rng, step_s=0.004, **shape), drafting(rng, step_s=0.005, **shape), rng)
