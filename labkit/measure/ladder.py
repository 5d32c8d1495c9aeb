"""What each arm of a ladder brought: the table from its rows, and why the ladder stops."""

from collections.abc import Mapping, Sequence

from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.measure import estimates, machine
from labkit.measure.results import Arm
from labkit.roofline import floors


def table(arms: Sequence[Arm], rows: Mapping[str, list[dict]], *, seed: int = 0) -> list[dict]:
    """One dict per arm: summary (estimates.summarise), ratios and why the ladder stops.

    rows      of each arm by its name
    before    the measured arm that it is compared with: the one that it changes, or the nearest above that
    step      how many times faster than that arm, with interval; None on the first
    total     how many times faster than the first arm
    c, S      only with speculation, against the arm before (labkit.measure.estimates); S is the step
    drafts_a_round  in the mean, where the engine chooses anew in each round how many tokens it drafts; a and c are then
              means over such rounds
    account   bytes of a plain step and the bandwidth that the TPOT amounts to, where the model's shape is known
    stop      the reason when this arm made TPOT worse; the arms that lead on from it have above_stop true
    """
    out: list[dict] = []
    stopped: set[str | None] = set()
    for arm in arms:
        name, before, mine = arm.name, arm.before, rows[arm.name]
        found = {
            "arm": name,
            "title": arm.title,
            "expect": arm.expect,
            "before": before,
            "above_stop": before in stopped,
        }
        found |= estimates.summarise(mine, seed=seed)
        step = estimates.compare(mine, rows[before], seed=seed) if before else None
        total = estimates.compare(mine, rows[out[0]["arm"]], seed=seed) if before else None
        found["step"], found["total"] = (x and x.speedup.as_dict() for x in (step, total))
        drafts = step is not None and step.cost is not None
        found["c"], found["S"] = (step.cost.as_dict(), step.speedup.as_dict()) if drafts else (None, None)
        found["drafts_a_round"] = estimates.drafts_a_round(mine)
        found["account"] = account(arm.config, mine)
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
    return {
        "byte_model": "per tensor",
        "step_bytes": step.total_bytes,
        "context": context,
        "head": machine.head_of(config),
        "bytes_s": rate,
    }


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
