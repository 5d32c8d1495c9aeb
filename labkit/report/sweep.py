"""A sweep for readers: how it stands, what may be called best, what each setting does, every configuration with its
command line, record and params file. The same parts make the offline page and the notebook's outputs."""

import html
import json
import secrets
from functools import lru_cache
from pathlib import Path

from labkit import disk
from labkit.engines.secrets import hide_text
from labkit.errors import BadInput, LabError
from labkit.figures import swept
from labkit.figures.show import bundle
from labkit.measure.results import results_of
from labkit.measure.sweep import again, effects, points
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, EMPTY, FINISHED, INTERRUPTED, META, RUNNING, SweepRun, read_sweep
from labkit.report import page
from labkit.report.html import figure
from labkit.report.tables import flat, folded, table
from labkit.report.verdict import behind, conditions
from labkit.units import minutes

STATES = ("measured", "failed", "skipped", "pending")


def is_sweep(folder: str | Path) -> bool:
    """Whether this is a sweep's folder."""
    return (Path(folder) / META).is_file()


def plan_of(run: SweepRun) -> points.Plan | None:
    """What the sweep was to measure; None where this lab's engines no longer take its document."""
    return _plan(json.dumps(run.meta["document"]))


@lru_cache(maxsize=4)
def _plan(document: str) -> points.Plan | None:
    try:
        return points.read(json.loads(document))
    except LabError:
        return None


def standing(run: SweepRun) -> str:
    """How the sweep stands, in one sentence."""
    counts = {s: sum(r["status"] == s for r in run.rows) for s in STATES}
    words = ", ".join(f"{n} {'still to come' if s == 'pending' else s}" for s, n in counts.items() if n)
    state, seen = run.state, run.progress
    words += f"; {run.meta['excluded']} excluded by conditions" * bool(run.meta["excluded"])
    out = f"{len(run.rows)} configurations: {words}. The sweep is {state}"
    if state == RUNNING and seen:
        left = f", about {minutes(seen['eta_s'])} left" if seen.get("eta_s") else ""
        return f"{out}: {seen['text']}{left}."
    if state in (INTERRUPTED, EMPTY):
        return f"{out}: labkit sweep --resume {run.directory} goes on with it."
    return f"{out}, after {minutes(seen.get('spent_s', 0))}."


def best(run: SweepRun) -> list[str]:
    """What may be called best: how sure the sweep is of its fastest, and what measuring the best again on fresh prompts
    says, a paragraph each per machine and load; [] before anything was measured."""
    loads = {r["config"]: r["load"] for r in run.rows}
    out = [again.stands(s) + "." for s in again.standings(run.rows)]
    for f in run.finals:
        where = f"{loads[f['best']]}: " if loads.get(f["best"]) else ""
        out.append(where + "; ".join(again.second_look(f)) + ".")
    if run.state == FINISHED:
        out += [f"{text}." for text in again.unlooked(run.rows, run.finals)]
    return out


@lru_cache(maxsize=4)
def found_effects(run: SweepRun) -> tuple[effects.Effect, ...]:
    """What each setting does, from what this object has read: a picture, two tables and a text show it."""
    return tuple(effects.effects(effects.filled(run.rows, plan_of(run)), seed=_seed(run)))


def effect_rows(run: SweepRun) -> tuple[list[str], list[tuple]]:
    """(head, rows) of the table of effects."""
    head = ["setting", "value", "against", "x speed-up [95%] ◇", "smallest to largest", "pairs", "changes with it"]
    rows = []
    for e in found_effects(run):
        r = e.ratio
        ends = (
            f" [{r.low:.3f}, {r.high:.3f}]"
            if r.low is not None
            else f" (no interval: {r.count} pairs, {r.repeats} blocks)"
        )
        spread = f"{e.least:.3f} to {e.most:.3f}"
        rows.append((e.field, e.value, e.against, f"{r.value:.3f}{ends}", spread, r.count, ", ".join(e.along)))
    return head, rows


def config_rows(run: SweepRun) -> tuple[list[str], list[tuple]]:
    """(head, rows) of the table of measured configurations, fastest first within their load."""
    head = ["config", "x baseline [95%] ◇", "TPOT, ms ●", "TTFT, ms ●", "a ●", "c ◇", "accuracy ●", "what it sets"]
    rows, order = [], {name: i for i, name in enumerate(effects.loads(run.rows))}
    for r in sorted(effects.measured(run.rows), key=lambda r: (order[r["load"]], -r["speedup"])):
        rows.append((r["config"], *_numbers(r), swept.label(r)))
    shown = [i for i in range(len(head)) if not rows or any(row[i] for row in rows)]  # accuracy, where it was asked for
    return [head[i] for i in shown], [tuple(row[i] for i in shown) for row in rows]


def rest_rows(run: SweepRun) -> tuple[list[str], list[tuple]]:
    """(head, rows) of what has no numbers: those that failed one by one, the others by their reason."""
    rows, same = [], {}
    for r in run.rows:
        if r["status"] == "failed":
            rows.append(("failed", r["config"], r["reason"], swept.label(r)))
        elif r["status"] != "measured":
            same.setdefault((r["status"], r.get("reason", "")), []).append(r["config"])
    rows += [(status, ", ".join(names), reason, "") for (status, reason), names in same.items()]
    return ["", "config", "reason", "what it sets"], rows


def configs_html(run: SweepRun) -> str:
    """Both tables."""
    rest = rest_rows(run)
    return table(*config_rows(run), "numbers labkit-table") + (
        f"<h3>Without numbers</h3>{table(*rest, 'labkit-table')}" if rest[1] else ""
    )


def _numbers(r: dict) -> tuple[str, ...]:
    low, high = r.get("speedup_low"), r.get("speedup_high")
    return (
        f"{r['speedup']:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]"),
        f"{1e3 * r['tpot_s']:.3f}",
        f"{1e3 * r['ttft_s']:.1f}",
        f"{r['accept_length']:.2f}" if r.get("accept_length") else "",
        f"{r['cost']:.2f}" if r.get("cost") else "",
        f"{r['accuracy']:.0%}" if r.get("accuracy") is not None else "",
    )


def details(run: SweepRun, plan: points.Plan | None, name: str) -> str:
    """One configuration as HTML: command line, records, params file, or why it has no numbers."""
    row = next(r for r in run.rows if r["config"] == name)
    parts = [f"<p><b>{html.escape(name)}</b>: {html.escape(hide_text(swept.label(row)))}</p>"]
    if row["status"] != "measured":
        why = f"{row['status']}: {row.get('reason') or 'not measured yet'}"
        parts.append(f"<p>{html.escape(hide_text(why))}</p>")
    if row.get("command"):
        command = row["command"] if isinstance(row["command"], str) else " ".join(map(str, row["command"]))
        parts.append(f"<p>Command line</p><pre>{html.escape(hide_text(command))}</pre>")
    if row.get("blocks"):
        places = ", ".join(f"{BLOCKS}/{b}" for b in row["blocks"])
        parts.append(f"<p>Record: {html.escape(places)} in the sweep's folder, arm {html.escape(name)}</p>")
    if row.get("warnings"):
        doubts = "".join(f"<li>{html.escape(hide_text(w))}</li>" for w in row["warnings"])
        parts.append(f'<div class="labkit-caution"><ul>{doubts}</ul></div>')
    text = params_text(plan, name)
    if text:
        parts.append(f"<p>Params file</p><pre>{html.escape(hide_text(text))}</pre>")
    return "".join(parts)


def params_text(plan: points.Plan | None, name: str) -> str:
    """The params file of a configuration, "" where it cannot be measured."""
    try:
        return again.params_file(plan, name) if plan is not None else ""
    except BadInput:
        return ""


def each(run: SweepRun) -> str:
    """Every configuration's details, folded, as HTML."""
    plan = plan_of(run)
    return "".join(
        folded(f"{r['config']}: {r['status']}, {swept.label(r)}", details(run, plan, r["config"])) for r in run.rows
    )


def write(folder: str | Path, destination: str | Path | None = None) -> Path:
    """Write the sweep's offline page and return its path; by default report.html in its folder. Raises BadInput,
    disk.NoRoom."""
    run = read_sweep(folder)
    target = disk.place(destination or run.directory / "report.html")
    disk.write_text(target, render(run), "the sweep is kept")
    return target


def render(run: SweepRun) -> str:
    """The page: finished, under way or interrupted."""
    shown: list[dict] = []
    pictures = [figure(bundle(f, picture=False)[0], shown) for f in drawn(run)]
    records = [(r, found) for r in _records(run) if (found := results_of(r))]
    first = next((r for r in records if not r[0].directory.name.startswith("final")), None)
    where = f"<p>First block: {html.escape(conditions(first[0], next(iter(first[1].values()))))}.</p>" if first else ""
    lead = [
        f'<section class="verdict"><h2>Result</h2><p>{html.escape(standing(run))}</p>{where}',
        "".join(f"<p>{html.escape(s)}</p>" for s in best(run)),
        "</section>",
    ]
    parts = [
        ("drawn", "What was measured", "".join(pictures)),
        ("effects", "What each setting does", effects_html(run)),
        ("configs", "All configurations", configs_html(run)),
        ("each", "Each configuration: command line, record, params file", each(run)),
        ("asked", "What was asked", table(["field", "value"], flat(run.meta["document"]))),
        (
            "behind",
            "How it was measured",
            behind(records) or "<p>The records of the blocks are not in this folder.</p>",
        ),
    ]
    body = "".join(f'<section class="notebook" id="{a}"><h2>{html.escape(t)}</h2>{b}</section>' for a, t, b in parts)
    return page.document(
        title=f"Sweep: {len(run.rows)} configurations",
        heading=True,
        lead="".join(lead),
        contents=[(a, t) for a, t, _ in parts],
        body=body,
        figures=shown,
        nonce=secrets.token_urlsafe(16),
    )


def effects_html(run: SweepRun) -> str:
    """The table of effects and how it was made."""
    head, rows = effect_rows(run)
    if not rows:
        return "<p>No two measured configurations differ in one setting alone.</p>"
    how = (
        "Each line compares configurations that differ in that setting alone, pair by pair, by their speed-ups over the"
        " baselines of their own blocks. Where smallest and largest lie far apart, the effect depends on the other"
        " settings."
    )
    return f"<p>{how}</p>{table(head, rows, 'labkit-table')}"


def drawn(run: SweepRun) -> list:
    """The figures."""
    return swept.figures(effects.filled(run.rows, plan_of(run)), run.finals, found_effects(run))


def _seed(run: SweepRun) -> int:
    return int((run.meta["document"].get("common") or {}).get("seed") or 0)


def _records(run: SweepRun) -> list:
    found = []
    for path in sorted((run.directory / BLOCKS).glob("*/run.json")):
        try:
            found.append(read_run(path.parent))
        except LabError:
            continue
    return found
