"""The card that leads a report, and what stands behind its numbers: conditions, environment, exact command lines."""

import html
from pathlib import Path

from labkit.engines.adapter import evidence, not_in_effect
from labkit.errors import LabError
from labkit.measure.results import Result, results_of, speedup
from labkit.records import read_run
from labkit.records.reader import Run
from labkit.report.tables import flat, folded, table

Found = tuple[Run, dict[str, Result]]


def records_of(run: str | Path) -> list[Found]:
    """The records of a run directory, oldest first: its own, and those below it. Damaged ones are left out."""
    root, found = Path(run), []
    places = [root / "run.json", *root.glob("*/run.json"), *root.glob("records/*/run.json")] if root.is_dir() else []
    for path in sorted(p for p in places if p.is_file()):
        try:
            one = read_run(path.parent)
            results = results_of(one)
        except (LabError, KeyError, TypeError):
            continue
        if results:
            found.append((one, results))
    return found


def card(found: list[Found]) -> str:
    """The ladder, what is in effect, and how far to trust it; empty without a record."""
    if not found:
        return ""
    run, results = max(found, key=lambda f: (len(f[1]), f[0].meta.get("created_utc", "")))
    rest = len(found) - 1
    about = (run.meta.get("label") or run.directory.name) + (
        f"; {rest} other record{'s' if rest > 1 else ''} in the appendix" if rest else ""
    )
    head = ["arm", "ms per token [95%]", "tokens per verify (a)", "times as fast as the first arm", "in effect"]
    parts = [
        '<section class="verdict"><h2>Result</h2>',
        f"<p>{html.escape(conditions(run, next(iter(results.values()))))}. Record: {html.escape(about)}.</p>",
        table(head, [_row(r, next(iter(results.values()))) for r in results.values()], "numbers"),
        _trust(results),
        "</section>",
    ]
    return "\n".join(parts)


def _row(r: Result, first: Result) -> tuple[str, ...]:
    gain = "" if r is first else speedup(r, first).quantity(".2f") + " ◇"
    wrong, seen = not_in_effect(r.arm.config, r.info), evidence(r.arm.config, r.info)
    shown = sum(e["in_effect"] is True for e in seen)
    effect = "NO: " + "; ".join(wrong) if wrong else f"{shown} of {len(seen)} settings shown by the engine"
    accept = "" if r.accept is None else r.accept.quantity(".2f") + " ●"
    return r.name, f"{r.tpot.to('ms').quantity('.2f').removesuffix(' ms')} ●", accept, gain, effect


def _trust(results: dict[str, Result]) -> str:
    """Every warning once with its arms, or that there is none."""
    doubts: dict[str, list[str]] = {}
    for r in results.values():
        for text in [*r.warnings, *not_in_effect(r.arm.config, r.info)]:
            doubts.setdefault(text, []).append(r.name)
    least = min(r.estimates.tpot.repeats for r in results.values())
    if not doubts:
        return f"<p><b>How far to trust it:</b> {least} or more repeats per arm, and no check raised a doubt.</p>"
    lines = "".join(f"<li>{html.escape(', '.join(arms))}: {html.escape(t)}</li>" for t, arms in doubts.items())
    return f'<div class="labkit-caution"><b>Before you trust this:</b><ul>{lines}</ul></div>'


def conditions(run: Run, r: Result) -> str:
    """Where and how it was measured, in one line."""
    e, load = run.meta.get("environment", {}), r.arm.load
    gpus = ", ".join(g.get("name", "GPU") for g in e.get("gpus") or [])
    machine = f"{gpus}, " * bool(gpus) + f"{e.get('cpu', 'unknown processor')}, {e.get('usable_cores', '?')} cores"
    engine = f"{r.info.get('engine') or r.arm.config.engine} {r.info.get('version', '')}".strip()
    model = r.info.get("served_model_name") or r.info.get("model_path") or r.arm.config.model
    length = f"{load['output_tokens']} tokens out" if load.get("output_tokens") else "own length"
    given = f"{load['prompt_tokens']} tokens in, " if load.get("prompt_tokens") else ""
    used = r.estimates.tpot
    return (
        f"{engine}, model {model}, on {machine}; load {load.get('workload')}, {given}{length}, one request at a time,"
        f" seed {load.get('seed')}; {used.count} requests in {used.repeats} repeats"
    )


def behind(found: list[Found]) -> str:
    """Command lines, settings as asked and seen, parameters and environment of every record, folded."""
    parts = []
    for run, results in found:
        meta = run.meta
        name = meta.get("label") or run.directory.name
        commands = [
            (a["name"], (a.get("launch") or {}).get("command") or "attached: not started by the lab")
            for a in meta.get("arms", [])
        ]
        seen = [
            (r.name, e["field"], str(e["asked"]), str(e["sent"]), str(e["seen"]), _word(e["in_effect"]))
            for r in results.values()
            for e in evidence(r.arm.config, r.info)
        ]
        body = [
            f"<h3>Command lines</h3>{table(['arm', 'command'], commands, 'commands')}",
            f"<h3>Settings</h3>{table(['arm', 'setting', 'asked', 'sent', 'seen', 'in effect'], seen)}" if seen else "",
            f"<h3>Parameters</h3>{table(['parameter', 'value'], flat(meta.get('parameters', {})))}",
            f"<h3>Environment</h3>{table(['what', 'value'], flat(meta.get('environment', {})))}",
            f"<h3>Lab</h3>{table(['what', 'value'], flat(_lab(meta)))}",
        ]
        parts.append(folded(f"{name}, {str(meta.get('created_utc', ''))[:19].replace('T', ' ')} UTC", "".join(body)))
    return "\n".join(parts)


def _lab(meta: dict) -> dict:
    return {
        k: meta[k] for k in ("id", "status", "created_utc", "finished_utc", "git", "seeds") if meta.get(k) is not None
    }


def _word(in_effect: bool | None) -> str:
    return {True: "yes", False: "NO"}.get(in_effect, "the engine does not say")
