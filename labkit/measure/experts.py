"""Distinct experts as the engine counts them, where it can: further requests with its recorder on."""

import json
from collections.abc import Sequence

from labkit.evidence import Evidence, measured
from labkit.measure import client
from labkit.workloads import Prompt


def count(url: str, prompts: Sequence[Prompt], *, api_key: str | None = None) -> dict[int, Evidence]:
    """Mean distinct experts in a layer by positions computed together; {} for an engine that does not say.

    Runs one request per prompt while the engine records its expert distribution. Raises LabError when one fails.
    """
    status, _ = client.request(url, "POST", "/start_expert_distribution_record", b"{}", api_key=api_key)
    if status != 200:
        return {}
    try:
        for prompt in prompts:
            client.answer(url, prompt, api_key=api_key)
        status, body = client.request(url, "POST", "/dump_expert_distribution_record", b"{}", api_key=api_key)
    finally:
        client.request(url, "POST", "/stop_expert_distribution_record", b"{}", api_key=api_key)
    if status != 200:
        return {}
    try:
        layers = json.loads(body).get("distinct") or []
    except (ValueError, AttributeError):
        return {}
    return _by_positions(layers)


def _by_positions(layers: list[dict]) -> dict[int, Evidence]:
    """layers: for each MoE layer {positions: [passes, distinct experts summed over them]}."""
    totals: dict[int, list[float]] = {}
    ranges: dict[int, list[float]] = {}
    for layer in layers:
        for positions, (passes, distinct) in layer.items():
            if passes:
                at = totals.setdefault(int(positions), [0.0, 0.0])
                at[0] += passes
                at[1] += distinct
                ranges.setdefault(int(positions), []).append(distinct / passes)
    # The interval is the range over layers: layers differ more than requests do.
    return {
        m: measured(
            distinct / passes,
            "1",
            f"this lab: the engine's own count, {len(layers)} layers, interval = their range",
            min(ranges[m]),
            max(ranges[m]),
        )
        for m, (passes, distinct) in sorted(totals.items())
    }
