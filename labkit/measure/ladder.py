"""Climb a ladder on one engine and say what each of its arms brought."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from labkit.engines import ladder, process
from labkit.engines.adapter import evidence, not_in_effect
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput, LabError
from labkit.measure import estimates, machine, session
from labkit.measure.pool import together
from labkit.params import Params
from labkit.records import RunWriter
from labkit.roofline import floors
from labkit.workloads import load

Progress = Callable[[str], None]


def climb(params: Params, writer: RunWriter, *, progress: Progress = print, cancel: Event | None = None) -> list[dict]:
    """Measure the arms of `params` into `writer`; returns one dict an arm (see `table`).

    Where engines may run side by side, all arms run at once and the requests alternate between them, so that drift hits
    all alike. Where one server fills the machine, each arm is started twice, the second time in reversed order, with
    half of the repeats each time. Raises EngineFailed, Owned, BadInput; rows already measured stay in the writer.
    """
    arms = ladder.choose(params.ladder(), params.only)
    prompts = load(
        params.workload,
        count=params.count,
        seed=params.seed,
        prompt_tokens=params.prompt_tokens,
        output_tokens=params.output_tokens,
        tokenizer_path=tokenizer_of(params),
    )
    rows = _together if together([a.config for a in arms]) else _in_turn
    total = len(arms) * len(prompts) * params.repeats
    kept, began = [], None
    for row in rows(arms, prompts, params, writer, progress, cancel):
        kept.append(row)
        began = began or time.monotonic()  # from the first sample on: starting engines is not measuring
        if len(kept) % (len(arms) * len(prompts)) == 0 and len(kept) < total:
            left = (time.monotonic() - began) / (len(kept) - 1 or 1) * (total - len(kept))
            progress(f"{len(kept)} of {total} requests, about {left:.0f} s left")
    if cancel is not None and cancel.is_set():
        return []
    found = table(arms, kept, seed=params.seed)
    for arm, line in zip(arms, found, strict=True):
        described = next(a for a in writer.meta["arms"] if a["name"] == arm.name)
        line["warnings"] += not_in_effect(arm.config, described["server_info"])
    return found


def tokenizer_of(params: Params) -> str | None:
    """Where the prompts' tokenizer is: params.tokenizer, else the engine's model folder, None for the pocket model."""
    if params.tokenizer is not None or params.engine.model == "pocket":
        return params.tokenizer
    return params.engine.model if Path(params.engine.model).is_dir() else None


def _together(arms, prompts, params, writer, progress, cancel) -> Iterator[dict]:
    with ExitStack() as stack:
        engines = {arm.name: _start(stack, arm, writer, progress, cancel) for arm in arms}
        sides = [session.Arm(name, e.url, e.api_key, dialect=e.dialect) for name, e in engines.items()]
        progress(f"measuring {len(sides) * len(prompts) * params.repeats} requests, arms alternating")
        yield from session.interleave(
            sides,
            prompts,
            repeats=params.repeats,
            warmup=params.warmup,
            writer=writer,
            cancel=cancel,
            timeout_s=params.timeout_s,
        )
        _all_alive(engines.values())


def _in_turn(arms, prompts, params, writer, progress, cancel) -> Iterator[dict]:
    half = math.ceil(params.repeats / 2)
    turns = [(arms, 0, half), (arms[::-1], half, params.repeats - half)]
    for order, first, repeats in turns:
        for arm in order if repeats else []:
            with ExitStack() as stack:
                engine = _start(stack, arm, writer, progress, cancel)
                yield from session.measure(
                    engine.url,
                    prompts,
                    arm=arm.name,
                    repeats=repeats,
                    warmup=params.warmup,
                    writer=writer,
                    cancel=cancel,
                    api_key=engine.api_key,
                    timeout_s=params.timeout_s,
                    first_repeat=first,
                    dialect=engine.dialect,
                )
                _all_alive([engine])
            if cancel is not None and cancel.is_set():
                return


def _all_alive(engines) -> None:
    """An engine that died in mid-measurement is an error with its last log lines, not a short table."""
    for engine in engines:
        said = engine.failure()
        if said:
            raise LabError(said)


def _start(stack: ExitStack, arm: ladder.Arm, writer, progress, cancel):
    progress(f"starting {arm.name}: {arm.title}")
    engine = stack.enter_context(process.start(arm.config, writer.directory, beside=True, cancel=cancel))
    info = engine.server_info()
    writer.add_arm(
        arm.name,
        requested=arm.config.as_dict(),
        server_info=info,
        launch=engine.launch_record(),
        title=arm.title,
        expect=arm.expect,
        before=arm.before,
        options=evidence(arm.config, info),
    )
    return engine


def table(arms: list[ladder.Arm], rows: list[dict], *, seed: int = 0) -> list[dict]:
    """One dict per arm: summary (estimates.summarise), ratios and why the ladder stops.

    before    the measured arm that it is compared with: the one that it changes, or the nearest above that
    step      how many times faster than that arm, with interval; None on the first
    total     how many times faster than the first arm
    c, S      only with speculation, against the arm before (labkit.measure.estimates); S is the step
    account   bytes of a plain step and the bandwidth that the TPOT amounts to, where the model's shape is known
    stop      the reason when this arm made TPOT worse; the arms that lead on from it have above_stop true
    """
    out: list[dict] = []
    mine = {a.name: [r for r in rows if r["arm"] == a.name] for a in arms}
    stopped: set[str | None] = set()
    for arm in arms:
        name, before = arm.name, arm.before
        found = {
            "arm": name,
            "title": arm.title,
            "expect": arm.expect,
            "before": before,
            "above_stop": before in stopped,
        }
        found |= estimates.summarise(mine[name], seed=seed)
        step = estimates.compare(mine[name], mine[before], seed=seed) if before else None
        total = estimates.compare(mine[name], mine[out[0]["arm"]], seed=seed) if before else None
        found["step"], found["total"] = (x and x.speedup.as_dict() for x in (step, total))
        drafts = step is not None and step.cost is not None
        found["c"], found["S"] = (step.cost.as_dict(), step.speedup.as_dict()) if drafts else (None, None)
        found["account"] = account(arm.config, mine[name])
        found["stop"] = _stop(found, before)
        if found["stop"] or found["above_stop"]:
            stopped.add(name)
        out.append(found)
    return out


def account(config: EngineConfig, rows: list[dict]) -> dict | None:
    """Bytes of one plain step at the middle of the measured contexts, and bytes / TPOT in bytes/s.

    None with speculation (a round is not a step) and for a model whose config.json is not at hand.
    """
    if config.speculative is not None:
        return None
    context = estimates.context(rows)
    try:
        step = machine.account(config, context=context, model=machine.model_path(config))
    except BadInput:
        return None
    rate = floors.effective_bandwidth(step.total_bytes, estimates.estimate(rows).tpot.value)
    return {"step_bytes": step.total_bytes, "context": context, "head": machine.head_of(config), "bytes_s": rate}


def _stop(found: dict, before: str | None) -> str | None:
    """Why not to climb on: the whole interval says that this arm is slower than the one before."""
    step = found["step"]
    if step is None or step["high"] is None or step["high"] >= 1:
        return None
    bounds = f"[{step['low']:.2f}, {step['high']:.2f}]"
    why = f"{found['arm']} makes TPOT worse than {before}: x{step['median']:.2f} {bounds}"
    if found["c"] is None:
        return why
    accept = found["accept_length"]["median"]
    why += f"; a round costs c = {found['c']['median']:.2f} plain steps and yields a = {accept:.2f} tokens"
    if accept < estimates.NOTHING_ACCEPTED:
        why += " (no draft is accepted: check what the draft shares with the head, `labkit check`)"
    return why
