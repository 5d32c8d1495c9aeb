"""Where the time of a running engine's passes goes, part by part, as it times itself: further requests, with its
stopwatch on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from labkit.measure import client
from labkit.roofline.cost import Component
from labkit.workloads import Prompt

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
