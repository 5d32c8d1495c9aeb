"""What a running engine times itself: the parts of its passes, in further requests with its stopwatch on, and reading
its weights alone, before any."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from labkit.engines.config import EngineConfig
from labkit.errors import LabError
from labkit.measure import client
from labkit.measure.pool import Pool
from labkit.measure.sweeps import middle
from labkit.roofline.cost import Component
from labkit.workloads import Prompt

TURNS = 3  # of each engine's reading: between two the machine may change its speed
Phases = dict[str, dict[str, float]]  # {kind of pass: {part: seconds of one}}


def timed(url: str, prompts: Sequence[Prompt], *, api_key: str | None = None) -> Phases:
    """Seconds of one pass by kind of pass (plain, verify, draft 1, ...) and part; {} for an engine that does not time
    its parts. One request per prompt. Raises LabError when one fails."""
    status, _ = client.request(url, "POST", "/start_part_times", b"{}", api_key=api_key)
    if status != 200:
        return {}
    try:
        for prompt in prompts:
            client.answer(url, prompt, api_key=api_key)
    finally:
        status, body = client.request(url, "POST", "/stop_part_times", b"{}", api_key=api_key)
    if status != 200:
        return {}
    return {
        name: {part: s / p["passes"] for part, s in p["seconds"].items() if s}
        for name, p in json.loads(body).items()
        if name != "prefill" and p["passes"]
    }


def reading(url: str, *, api_key: str | None = None) -> float | None:
    """B/s at which an engine reads its own weights and does nothing with them; None for one that does not say."""
    status, body = client.request(url, "POST", "/read_weights", b"{}", api_key=api_key)
    if status != 200:
        return None
    try:
        found = json.loads(body)
        return found["bytes"] / middle(found["seconds"])
    except (ValueError, TypeError, KeyError):  # a server that answers whatever it is asked
        return None


def readings(pool: Pool, configs: Sequence[EngineConfig], run_dir: Path) -> dict[str, float]:
    """The same of each of these engines, by EngineConfig.digest(), in turns; starts what does not run. Without those
    that do not say; {} where one does not start: whoever measures it gets the reason."""
    tries: dict[str, list[float]] = {}
    try:
        engines = pool.ensure(configs, run_dir)
        for _ in range(TURNS):
            for config, engine in zip(configs, engines, strict=True):
                if rate := reading(engine.url, api_key=engine.api_key):
                    tries.setdefault(config.digest(), []).append(rate)
    except LabError:
        return {}
    return {digest: float(np.median(rates)) for digest, rates in tries.items()}


def beside(parts: Sequence[Component], phases: Sequence[Mapping[str, float]]) -> list[Component]:
    """Predicted parts of a pass, or of a round, with what was measured in its phases. A part that nobody predicted has
    a prediction of 0."""
    took: dict[str, float] = {}
    for phase in phases:
        for part, s in phase.items():
            took[part] = took.get(part, 0.0) + s
    known = {p.name: p for p in parts}
    names = dict.fromkeys([*known, *took])
    return [replace(known.get(n, Component(n, 0.0, 0.0)), measured_s=took.get(n, 0.0)) for n in names]
