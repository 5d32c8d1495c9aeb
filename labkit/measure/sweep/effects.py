"""What each varied field does to the speed-up, and which configurations no other one beats on two counts at once."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.measure import stats
from labkit.measure.results import Arm
from labkit.measure.sweep import points

DEFAULT = "not set"  # a field that a configuration leaves at the engine's default
Row = Mapping[str, object]


@dataclass(frozen=True)
class Effect:
    """One value of a field against another: how the speed-up changes, all other fields equal.

    along   fields that this one decides (draft tokens by steps, with topk 1): they change with it
    ratio   geometric mean of speed-up(value) / speed-up(against) over the pairs, with a 95% interval; no interval from
            fewer than stats.LEAST blocks. Each speed-up is over the baseline of its own block
    least, most   of the pairs: where they lie far apart, the effect depends on the other fields
    """

    field: str
    along: tuple[str, ...]
    value: str
    against: str
    ratio: stats.Interval
    least: float
    most: float


def measured(rows: Sequence[Row]) -> list[Row]:
    """The rows that have numbers."""
    return [r for r in rows if r["status"] == "measured"]


def value_of(row: Row, name: str) -> str:
    """A field of a configuration, as text."""
    if name not in row["fields"]:
        return DEFAULT
    value = row["fields"][name]
    return value if isinstance(value, str) else json.dumps(value)


def filled(rows: Sequence[Row], plan: points.Plan | None) -> list[Row]:
    """The rows with every field that any of them sets, at the value that the common settings give it."""
    arms = {p.name: p.arm for p in plan.measured} if plan is not None else {}
    names, out = list(dict.fromkeys(name for r in rows for name in r["fields"])), []
    for r in rows:
        arm = arms.get(r["config"])
        given = {n: v for n in names if arm is not None and (v := _at(arm, n)) is not None}
        fields = {**given, **r["fields"]}
        out.append({**r, "fields": {n: fields[n] for n in names if n in fields}})
    return out


def _at(arm: Arm, name: str) -> object:
    """A field's value in an arm; None where it has none, or is no single value."""
    found: object = arm.params if name.partition(".")[0] in points.LOAD else arm.config
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, (str, bool, int, float)) else None


def varied(rows: Sequence[Row]) -> list[str]:
    """Fields that do not have one and the same value in all rows, in order of appearance."""
    names = dict.fromkeys(name for r in rows for name in r["fields"])
    return [n for n in names if len({value_of(r, n) for r in rows}) > 1]


def deciding(rows: Sequence[Row]) -> list[str]:
    """The varied fields without those that an earlier one decides (draft tokens by steps, with topk 1)."""
    out: list[str] = []
    for name in varied(rows):
        if not any(_decides(rows, n, name) for n in out):
            out.append(name)
    return out


def effects(rows: Sequence[Row], *, seed: int = 0) -> list[Effect]:
    """One per field and value, against the first value that most others can be held against, from pairs that differ in
    nothing else.

    A field that never changes alone has none; of fields that decide each other the first stands for all.
    """
    rows = measured(rows)
    names, out, told = varied(rows), [], set()
    for name in names:
        if name in told:
            continue
        along = [n for n in names if n != name and _decides(rows, name, n)]
        told |= {n for n in along if _decides(rows, n, name)}
        rest = [n for n in names if n != name and n not in along]
        alike: dict[tuple, dict[str, Row]] = {}
        for r in rows:
            alike.setdefault(tuple(value_of(r, n) for n in rest), {})[value_of(r, name)] = r
        values = list(dict.fromkeys(value_of(r, name) for r in rows))
        partners = {v: sum(v in found and len(found) > 1 for found in alike.values()) for v in values}
        against = next(v for v in values if 2 * partners[v] >= max(partners.values()))
        for value in values:
            pairs = [(found[value], found[against]) for found in alike.values() if value in found and against in found]
            if value != against and pairs:
                ratio, least, most = _ratio(pairs, seed)
                out.append(Effect(name, tuple(along), value, against, ratio, least, most))
    return out


def _decides(rows: Sequence[Row], name: str, other: str) -> bool:
    """Whether rows with equal values of a field always have equal values of the other one."""
    seen: dict[str, str] = {}
    return all(seen.setdefault(value_of(r, name), value_of(r, other)) == value_of(r, other) for r in rows)


def _ratio(pairs: Sequence[tuple[Row, Row]], seed: int) -> tuple[stats.Interval, float, float]:
    """Blocks are resampled, not pairs: all configurations of a block share the error of its baseline."""
    logs = np.array([math.log(a["speedup"] / b["speedup"]) for a, b in pairs])
    places = [(a["blocks"][0], b["blocks"][0]) for a, b in pairs]
    blocks = sorted({name for place in places for name in place})
    first, second = (np.array([blocks.index(place[i]) for place in places]) for i in (0, 1))
    count = len(blocks)
    chosen = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=stats.DRAWS)
    weights = np.where(first == second, chosen[:, first], chosen[:, first] * chosen[:, second]).astype(float)
    total = weights.sum(axis=1)
    drawn = np.exp((weights[total > 0] @ logs) / total[total > 0])
    value = float(np.exp(logs.mean()))
    low = high = None
    if count >= stats.LEAST and len(pairs) >= stats.LEAST:
        low, high = (float(q) for q in np.quantile(drawn, [0.025, 0.975]))
        low, high = min(low, value), max(high, value)
    ends = [float(np.exp(logs.min())), float(np.exp(logs.max()))]
    return stats.Interval(value, low, high, count, len(pairs), (ends[1] - ends[0]) / value), *ends


def second_count(rows: Sequence[Row]) -> tuple[str, bool]:
    """(what speed is held against, whether more of it is better): accuracy where any configuration was asked
    questions, else the time to the first token."""
    asked = any(r.get("accuracy") is not None for r in measured(rows))
    return ("accuracy", True) if asked else ("ttft_s", False)


def front(rows: Sequence[Row]) -> list[str]:
    """Names of the measured configurations of one load that no other one beats or equals in both TPOT and the second
    count, fastest first (the Pareto front, by the values as measured: intervals may overlap)."""
    other, more = second_count(rows)
    able = [r for r in measured(rows) if r.get(other) is not None]
    ranked = sorted(able, key=lambda r: (r["tpot_s"], -r[other] if more else r[other]))
    out, best = [], -math.inf
    for r in ranked:
        good = r[other] if more else -r[other]
        if good > best:
            best = good
            out.append(r["config"])
    return out


def loads(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Measured rows by the load that they were measured under, in words; "" for the common one."""
    found: dict[str, list[Row]] = {}
    for r in measured(rows):
        found.setdefault(r["load"], []).append(r)
    return found
