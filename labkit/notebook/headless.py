"""A panel without a person: it measures at once, or shows a finished record that was read instead."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.engines import turn
from labkit.errors import BadInput
from labkit.measure.foresight import Foreseen
from labkit.measure.results import Result
from labkit.records import read_run
from labkit.units import minutes

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel


@dataclass(frozen=True)
class Adopted:
    """What a finished record holds of a panel's arms, and its summary."""

    results: dict[str, Result]
    summary: dict


def adopt(panel: "Panel", record: str) -> Adopted:
    """Take everything from a finished record, and nothing from another minute beside it. What was predicted before it
    was measured is shown as such; measured arms are shown from the cell `run` on. Raises BadInput."""
    if panel.live:
        raise BadInput("record", record, "nothing in JupyterLab: there a panel measures")
    found, arms = read_run(record), panel.arms(sweep=True) or panel.arms()
    lacking = panel.runner.adopt(found, arms)
    if lacking:
        names = ", ".join(a.name for a in lacking)
        raise BadInput("record", record, f"a finished record with {names} under {json.dumps(arms[0].load)}")
    adopted = Adopted(dict(panel.runner.results), found.meta["summary"])
    panel.record, panel.runner.results = Path(record), {}
    said = [Foreseen.from_dict(p) for p in found.meta.get("predictions", [])]
    panel.experiment.foreseen = {f.digest: f for f in said} | {f.arm: f for f in said}
    return adopted


def run(panel: "Panel") -> None:
    """Measure at the parameters' values, or show what was read, and print how it goes."""
    e = panel.experiment
    if panel.adopted is not None:
        panel.runner.results = panel.adopted.results
        e.restore(panel.adopted.summary)
        print(f"{e.name}: read from {panel.record}, whose arms were measured in turns", flush=True)
        return
    blocks = panel.blocks(sweep=bool(e.sweep()))
    urls = [a.config.url for b in blocks for a in b.arms if a.config.url]
    turn.wait_for_engines(turn.wait_s(), lambda text: print(text, flush=True), urls=urls)
    print(f"{e.name}: {panel.forecast(blocks)}", flush=True)
    quarter = 0
    for progress in panel.measure(blocks, panel.writer()):
        if progress.text.startswith("warning: "):
            print(progress.text, flush=True)
        now = 4 * progress.done // max(1, progress.total)
        if now > quarter:
            quarter = now
            left = f", about {minutes(progress.eta_s)} left" if progress.done < progress.total else ""
            print(f"{progress.done} of {progress.total} requests{left}", flush=True)
