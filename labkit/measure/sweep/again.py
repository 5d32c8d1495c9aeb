"""Any configuration of a sweep as a params file of its own, and what may be called best, in sentences."""

from collections.abc import Mapping, Sequence

import yaml

from labkit.errors import BadInput
from labkit.measure.sweep import points, race
from labkit.params import COMMON


def document(plan: points.Plan, name: str) -> dict:
    """A params document that measures one configuration beside its baseline again: `labkit ladder -f FILE`.

    Raises BadInput for a name that the sweep does not have, or one that its engine would not take.
    """
    point = next((p for p in plan.points if p.name == name), None)
    if point is None:
        raise BadInput("config", name, f"one of {plan.points[0].name} to {plan.points[-1].name}")
    if point.arm is None:
        raise BadInput("config", name, f"a configuration that can be measured ({point.skipped})")
    base = plan.baselines[points.group(point)].arm
    engine = base.config.given()
    mine = point.arm.config.given()
    change = {k: v for k, v in mine.items() if engine.get(k) != v and k not in ("env", "extra_args")}
    change |= {k: None for k in engine if k not in mine and k not in ("env", "extra_args")}
    arm: dict = {"name": name, "set": change}
    env, given = dict(mine.get("env") or {}), dict(engine.get("env") or {})
    arm["env"] = {k: v for k, v in env.items() if given.get(k) != v} | {k: None for k in given if k not in env}
    had = tuple(engine.get("extra_args") or ())
    arm["extra_args"] = list(mine.get("extra_args") or ())[len(had) :]
    arm = {k: v for k, v in arm.items() if v or k == "name"}
    load = {k: v for k, v in point.arm.load.items() if v is not None}
    rest = {"repeats": max(5, plan.params.repeats), "warmup": plan.params.warmup}
    return {COMMON: {"engine": engine, "arms": [{"name": "baseline"}, arm], **load, **rest}}


def params_file(plan: points.Plan, name: str) -> str:
    """The same as the text of a YAML file."""
    head = f"# Configuration {name} of a sweep beside its baseline. To measure both: labkit ladder -f FILE\n"
    return head + yaml.safe_dump(document(plan, name), sort_keys=False, allow_unicode=True)


def second_look(f: dict) -> list[str]:
    """What measuring the best again on fresh prompts says (a line of SweepRun.finals), in sentences."""
    again = f["fresh"][f["best"]]
    if again["status"] != "measured":
        return [f"best in the sweep: {f['best']}; it failed on fresh prompts: {again['reason']}"]
    luck = "the best of many measurements is partly luck" if f["shrinkage"] < 0 else "not flattered by the choice"
    out = [
        f"{f['best']} was fastest in the sweep (x{f['in_sweep']:.2f}); on fresh prompts x{again['speedup']:.2f}"
        f" ({f['shrinkage']:+.1%}: {luck})"
    ]
    over = f["over_runner_up"]
    if over is not None:
        ends = "" if over["low"] is None else f" [{over['low']:.3f}, {over['high']:.3f}]"
        out.append(f"over the runner-up {f['runner_up']}: x{over['median']:.3f}{ends}")
    out.append(f"best: {f['called']}" if f["called"] else "no best: the two fastest cannot be told apart")
    return out


def standings(rows: Sequence[Mapping]) -> list[dict]:
    """Where the configurations of each machine and load stand after the sweep, before the second look:

    fastest  the one that was fastest
    able     it and those that cannot be told apart from it
    missed   those that were not measured, because the time was over or the sweep was interrupted
    faster, clear  chance that another measured one is faster than it, and that one is by more than race.CLEAR
    """
    groups: dict[tuple[str, str], list[Mapping]] = {}
    for r in rows:
        if r["status"] in ("measured", "pending"):
            groups.setdefault((r["machine"], r["load"]), []).append(r)
    out = []
    for (machine, load), mine in groups.items():
        s = race.standing(mine)
        if s is not None:
            lead = s.names[0]
            chances = {"faster": 1 - s.chance[lead], "clear": s.clear[lead]}
            missed = [r["config"] for r in mine if r["status"] == "pending"]
            out.append(
                {"machine": machine, "load": load, "fastest": lead, "able": list(s.able), "missed": missed, **chances}
            )
    return out


def stands(found: Mapping) -> str:
    """One of `standings` as a sentence or three."""
    lead, others = found["fastest"], [n for n in found["able"] if n != found["fastest"]]
    where = ", ".join(x for x in (found["machine"], found["load"]) if x not in ("", points.THIS))
    where += ": " if where else ""
    if others:
        alike = f"{where}not told apart from {lead} by the sweep: {_named(others)}"
    else:
        alike = f"{where}{lead} is faster than all others by more than the noise"
    alike += (
        f". Chance that another one is faster: {_percent(found['faster'])}, by more than {race.CLEAR:.0%}:"
        f" {_percent(found['clear'])}"
    )
    if found["missed"]:
        alike += f". Not measured: {_named(found['missed'])}"
    return alike


def unlooked(rows: Sequence[Mapping], finals: Sequence[Mapping]) -> list[str]:
    """What a sweep that has ended did not measure again on fresh prompts, in a sentence; [] where it did."""
    places = {r["config"]: (r["machine"], r["load"]) for r in rows}
    done = {places.get(f["best"]) for f in finals}
    left = [s["fastest"] for s in standings(rows) if (s["machine"], s["load"]) not in done]
    return [f"not measured again on fresh prompts, because the time was over: {', '.join(left)}"] if left else []


NAMED = 12  # configurations that a sentence names


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return f"{len(names)} ({', '.join(names[:NAMED])}{f' and {more} more' if more > 0 else ''})"


def _percent(chance: float) -> str:
    return "under 1%" if chance < 0.01 else "over 99%" if chance > 0.99 else f"{chance:.0%}"
