"""A sweep's folder as `labkit sweep` leaves it, with made-up numbers: for what reads sweeps, not for what measures."""

import json

from labkit.measure.sweep import drive, points
from labkit.records.sweep import FINISHED, LOG, PROGRESS

GRID = {"fp8_lm_head": [False, True], "moe_runner_backend": ["generic", "jit"], "prompt_tokens": [64, 256]}
DOCUMENT = {
    "common": {"workload": "repetitive", "count": 2, "repeats": 3, "output_tokens": 24, "seed": 1},
    "sweep": {
        "grid": GRID,
        "list": [{"speculative.steps": 2, "speculative.topk": 1, "speculative.draft_tokens": 3, "prompt_tokens": 64}],
        "block": 2,
    },
}
GAIN = {"fp8_lm_head": 1.2, "moe_runner_backend": 1.1, "prompt_tokens": 1.0}  # of a field's second value


def row(config, speedup, block, **more):
    """A measured configuration's line."""
    out = {"config": config, "status": "measured", "reason": "", "blocks": [block], "repeats": 3, "warnings": []}
    for name, value in (("speedup", speedup), ("tpot_s", 0.004 / speedup), ("ttft_s", 0.1)):
        out |= {name: value, f"{name}_low": 0.97 * value, f"{name}_high": 1.03 * value}
    return out | {"accept_length": None, "cost": None, "command": "python -m labkit.pocket --port 1", **more}


def made(directory, document=DOCUMENT, *, lines=None, ended=True):
    """The folder. lines: of configs.jsonl; None: every configuration, each field's gain exactly GAIN, then a final."""
    directory.mkdir(parents=True)
    plan = drive.create(document, directory)
    if lines is None:
        lines = finished(plan)
    (directory / LOG).write_text("".join(json.dumps(x) + "\n" for x in lines))
    if ended:
        (directory / PROGRESS).write_text(json.dumps({"text": FINISHED, "eta_s": 0.0, "spent_s": 60.0, "unix": 1.0}))
    return directory


def finished(plan: points.Plan):
    """Lines of a sweep that ended."""
    names, out = [p.name for p in plan.measured], []
    for i, p in enumerate(plan.measured):
        gain = 1.0
        for name, factor in GAIN.items():
            values = GRID[name]
            gain *= factor if p.fields.get(name) == values[1] else 1.0
        more = {"accept_length": 2.5, "cost": 2.0} if p.arm.config.speculative else {}
        gain *= 1.25 if more else 1.0
        out.append(row(p.name, gain, f"r0-{i // 2:03d}", **more))
    best, second = names[6], names[4]
    fresh = {
        n: {"speedup": s, "speedup_low": s - 0.1, "speedup_high": s + 0.1} for n, s in ((best, 1.2), (second, 1.1))
    }
    fresh = {n: {**f, "status": "measured", "reason": ""} for n, f in fresh.items()}
    over = {"median": 1.09, "low": 0.99, "high": 1.2}
    final = {"final": 0, "best": best, "runner_up": second, "in_sweep": 1.32, "fresh": fresh, "shrinkage": -0.09}
    return [*out, {**final, "called": None, "over_runner_up": over}]
