"""From the records of blocks to one row per configuration, and to what the second look at the best says."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labkit.errors import LabError
from labkit.measure import estimates, evaluation
from labkit.measure.sweep.block import ANSWERS, Task
from labkit.records import Run, read_run
from labkit.records.sweep import BLOCKS


def row(point_name: str, base: str, runs: Sequence[Run], *, seed: int = 1) -> dict:
    """One configuration from the records that hold it: times in s, `speedup` over the baselines of its own blocks,
    `visits` for race.standing."""
    last = runs[-1]
    out = {"config": point_name, "blocks": [r.directory.name for r in runs], **_where(last, point_name)}
    why = next((r.meta["failed"][point_name] for r in runs if point_name in r.meta.get("failed", {})), None)
    if why is not None:
        return out | {"status": "failed", "reason": _short(why)}
    mine, under = (_rows(runs, name) for name in (point_name, base))
    described = last.described(point_name)
    out["command"] = (described.get("launch") or {}).get("command")
    try:
        found, against = estimates.summarise(mine, seed=seed), estimates.compare(mine, under, seed=seed)
    except LabError as e:
        return out | {"status": "failed", "reason": str(e).splitlines()[0]}
    for name in ("tpot_s", "ttft_s", "accept_length"):
        out |= _interval(name, found[name])
    visits = [estimates.by_pass(_rows([r], point_name), _rows([r], base)) for r in runs]
    out["visits"] = [_visit(v) for v in visits if v]
    out |= _interval("speedup", against.speedup.as_dict()) | _interval("cost", against.cost and against.cost.as_dict())
    asked = [r for r in _answers(runs, point_name) if r.get("expected") is not None]
    if asked:
        got = evaluation.accuracy([o for r in asked if (o := evaluation.outcome(r)) is not None])
        out |= {"accuracy": got["accuracy"], "accuracy_low": got["low"], "accuracy_high": got["high"]}
    return out | {
        "status": "measured",
        "reason": "",
        "repeats": found["tpot_s"]["repeats"],
        "warnings": found["warnings"],
    }


def whole(task: Task, run: Run) -> bool:
    """Was this block measured to its end, or failed as a whole? Not where a budget ended it."""
    return run.meta["status"] == "finished" or all(a.name in run.meta.get("failed", {}) for a in task.arms)


def _short(why: str) -> str:
    """The first line of a failure and the last one, where an engine's log ends with what happened to it."""
    lines = [line.strip() for line in why.splitlines() if line.strip()] or ["no reason given"]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def _where(run: Run, name: str) -> dict:
    """The machine and the software under a row."""
    there, info = run.meta.get("environment", {}), run.described(name).get("server_info") or {}
    return {
        "worker": run.meta.get("worker", {}).get("name", "this"),
        "host": run.meta.get("worker", {}).get("host", ""),
        "attempts": run.meta.get("attempts", 1),
        "environment": {k: there.get(k) for k in ("cpu", "usable_cores", "memory_bytes", "system", "gpus", "python")}
        | {"labkit": there.get("packages", {}).get("labkit"), "engine": info.get("version")}
        | {"kernel_variant": info.get("kernel_variant")},
    }


def _rows(runs: Sequence[Run], name: str) -> list[dict]:
    return [r for run in runs for r in run.rows if r["arm"] == name and r["repeat"] >= 0]


def _answers(runs: Sequence[Run], name: str) -> list[dict]:
    """What a configuration's engine answered: it was asked once, whatever the number of its loads."""
    out = []
    for run in runs:
        mine = run.described(name).get("engine")
        same = [a["name"] for a in run.meta["arms"] if a["name"].endswith(ANSWERS) and a["engine"] == mine]
        out += [r for n in same for r in _rows([run], n)]
    return out


def _visit(speedups: Sequence[float]) -> list:
    """[passes, mean log speed-up, standard deviation of a pass or None] of one block."""
    logs = np.log(speedups)
    return [len(logs), float(logs.mean()), float(logs.std(ddof=1)) if len(logs) > 1 else None]


def _interval(name: str, found: dict | None) -> dict:
    if found is None:
        return {name: None}
    return {name: found["median"], f"{name}_low": found["low"], f"{name}_high": found["high"]}


def second_look(task: Task, directory: Path, earlier: dict[str, dict], *, seed: int = 1) -> dict:
    """The best two again, on prompts that chose nothing. earlier: rows of the sweep by configuration.

    The best of many noisy numbers is too good: `shrinkage` is what fresh prompts took from its speed-up. `called` is
    the configuration that may be called best, None where the two cannot be told apart.
    """
    run = read_run(directory / BLOCKS / task.name)
    base, names = task.baselines[0].name, [a.name for a in task.arms]
    fresh = {n: row(n, base, [run], seed=seed) for n in names}
    good = [n for n in names if fresh[n]["status"] == "measured"]
    out = {
        "best": names[0],
        "runner_up": names[1] if len(names) > 1 else None,
        "in_sweep": earlier[names[0]]["speedup"],
        "fresh": {
            n: {k: fresh[n].get(k) for k in ("speedup", "speedup_low", "speedup_high", "status", "reason")}
            for n in names
        },
        "shrinkage": None,
        "called": None,
        "over_runner_up": None,
    }
    if names[0] in good:
        out["shrinkage"] = fresh[names[0]]["speedup"] / out["in_sweep"] - 1
    if len(good) == 2:
        a, b = (_rows([run], n) for n in names)
        found = estimates.compare(a, b, seed=seed).speedup
        out["over_runner_up"] = found.as_dict()
        if found.low is not None and (found.low > 1 or found.high < 1):
            out["called"] = names[0] if found.low > 1 else names[1]
    elif len(good) == 1 and len(names) == 1 and (fresh[good[0]]["speedup_low"] or 0) > 1:
        out["called"] = good[0]
    return out
