"""What a walk shows: the table of its arms, what it means in three sentences, the figure, and the page that leads its
report."""

from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.batch.walk import Walk, times
from labkit.engines import ladder
from labkit.evidence import Evidence
from labkit.figures import decode
from labkit.figures.show import bundle
from labkit.measure.ladder import table
from labkit.measure.results import Result
from labkit.measure.stats import text
from labkit.notebook.experiments.fallback import COMPLAINTS
from labkit.report.quick import nbformat
from labkit.roofline import floors

NEAR = 0.05  # a prediction within this share of the measured time counts as right
HEAD = ("arm", "ms per token [95%]", "predicted", "error", "a", "c", "c predicted", "x before [95%]", "what it is")


def rows(walk: Walk) -> list[dict]:
    """labkit.measure.ladder.table of the walk's arms, each with its prediction."""
    from labkit.measure.results import Arm

    arms = [Arm.of(a, walk.results[a.name].arm.params) for a in walk.arms]
    found = table(arms, times(walk.results), seed=walk.params.seed)
    for row in found:
        said = walk.foreseen.get(row["arm"])
        row["predicted"] = said and said.as_dict()
        row["predicted_text"] = said.text() if said else "-"
        row["prediction_error"] = said and said.error(walk.results[row["arm"]])
    return found


def cells(found: list[dict]) -> list[list[str]]:
    """The table as text, one list a row, under HEAD."""
    out = []
    for r in found:
        accept, c = r["accept_length"], r["c"]
        out.append(
            [
                r["arm"],
                text(r["tpot_s"], 1e3, ".2f"),
                r["predicted_text"],
                "" if r["prediction_error"] is None else f"{r['prediction_error']:+.1%}",
                f"{accept['median']:.2f}" if accept else "",
                f"{c['median']:.2f}" if c else "",
                _costs(r["predicted"]),
                "x" + text(r["step"], spec=".2f") if r["step"] else "",
                r["title"],
            ]
        )
    return out


def _costs(said: dict | None) -> str:
    """c by both roofs, and by bytes alone."""
    if not said or not said.get("c"):
        return ""
    return f"{said['c']['value']:.2f} (bytes: {said['c_bytes']['value']:.2f})"


def plain(found: list[dict]) -> str:
    """The table for a terminal; the last column is left out where it would not fit a line."""
    lines = [list(HEAD[:-1]), *(row[:-1] for row in cells(found))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD) - 1)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def sentences(walk: Walk, found: list[dict]) -> list[str]:
    """What the walk means, in three sentences with its numbers."""
    sound = [r for r in found if r["expect"] != ladder.FAULT]
    first, best = sound[0], min(sound, key=lambda r: r["tpot_s"]["median"])
    out = []
    if best is not first:
        gain = text(best["total"], spec=".2f")
        ms = [f"{r['tpot_s']['median'] * 1e3:.2f}" for r in (best, first)]
        out.append(
            f"With {best['arm']} a token takes {ms[0]} ms instead of {ms[1]} ms: {gain} times as fast as"
            f" {first['arm']}."
        )
    else:
        out.append(f"No arm of this ladder makes a token faster than {first['arm']} on this machine and load.")
    out.append(_beside(found))
    out += [_fault(walk, r, found) for r in found if r["expect"] == ladder.FAULT][:1]
    return out


def _beside(found: list[dict]) -> str:
    """Predictions against what was measured: of a step's time, of a round's where an arm drafts."""
    parts, held, parted = [], 0, False
    for r in found:
        said = r["predicted"]
        if said is None or said["bound"] or r["expect"] == ladder.FAULT:
            continue
        ms = r["tpot_s"]["median"] * 1e3
        low, high = (1e3 * (said[end] or said["best"])["value"] for end in ("best", "worst"))
        off = r["prediction_error"]
        held += low * (1 - NEAR) <= ms <= high * (1 + NEAR) if off is None else abs(off) <= NEAR
        parted = parted or bool(said.get("pass_s"))
        shown = "" if off is None else f" ({'a round' if r['c'] else 'a step'} {off:+.1%})"
        parts.append(f"{r['arm']} {r['predicted_text']}, then {ms:.2f} ms{shown}")
    if not parts:
        return "Nothing could be predicted here: the model's shape is not known."
    rest = "" if held == len(parts) else "; what is further off, the prediction does not explain"
    basis = "bytes, arithmetic and fixed parts at probed rates" if parted else "bytes"
    return (
        f"Predicted from {basis} before it was measured, then measured: {'; '.join(parts)}. Within {NEAR:.0%}:"
        f" {held} of {len(parts)}{rest}."
    )


def _fault(walk: Walk, fault: dict, found: list[dict]) -> str:
    healthy = next((r for r in found if r["arm"] == fault["before"]), None)
    complaints = walk.extra.get(COMPLAINTS)
    silent = ", answers and logs no complaint" if complaints == [] else " and answers"
    accept = fault["accept_length"]
    sign = f"; only the accept length of {accept['median']:.2f} gives it away" if accept else ""
    if healthy is None:
        return f"{fault['arm']} starts{silent}{sign}."
    slower = fault["tpot_s"]["median"] / healthy["tpot_s"]["median"]
    return (
        f"{fault['arm']} starts{silent}, yet a token takes {slower:.1f} times as long as with {healthy['arm']}{sign}."
    )


def notes(found: list[dict]) -> list[str]:
    """Why single numbers may not be trusted, each once with its arms."""
    by_text: dict[str, list[str]] = {}
    for r in found:
        busy = (r["predicted"] or {}).get("disturbed")
        for warning in [*r["warnings"], *([f"its prediction rests on rates {busy}"] if busy else [])]:
            by_text.setdefault(warning, []).append(r["arm"])
    return [f"{', '.join(arms)}: {warning}" for warning, arms in by_text.items()]


def figure(walk: Walk) -> go.Figure:
    """The ladder: measured TPOT of each arm beside what was predicted, and the byte floor of plain arms."""
    ladder = {a.name for a in walk.arms}  # the sweep's arms were predicted too; 05 shows them
    forecasts = {n: f for n, f in walk.foreseen.items() if n in ladder and not f.bound}
    kinds: dict[str, list[tuple[str, Evidence]]] = {
        "predicted": [(n, f.best) for n, f in forecasts.items()],
        "predicted if no draft is right": [(n, f.worst) for n, f in forecasts.items() if f.worst is not None],
    }
    return decode.tpot(
        [(n, r.tpot) for n, r in walk.results.items()],
        floors=_floors(walk, walk.results),
        predicted={k: v for k, v in kinds.items() if v},
        arms=[a.name for a in walk.arms],
        title="The ladder: predicted, then measured",
    )


def _floors(walk: Walk, results: Mapping[str, Result]) -> list[tuple[str, Evidence]]:
    from labkit.errors import BadInput
    from labkit.measure import machine

    out = []
    for a in walk.arms:
        if a.config.speculative is None:
            try:
                model = machine.model_of(results[a.name].arm.params)
                step = machine.account(a.config, context=results[a.name].context, model=model).evidence()
            except BadInput:
                return []
            out.append((a.name, floors.floor_s(step, machine.bandwidth("this", a.config.threads or 1))))
    return out


def page(walk: Walk, found: list[dict], shown: go.Figure) -> nbformat.NotebookNode:
    """The report's first section, as a notebook without code."""
    load = walk.results[walk.arms[0].name]
    new = nbformat.v4
    words = "\n".join(f"- {s}" for s in sentences(walk, found))
    head = "| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD)
    lines = "\n".join("| " + " | ".join(map(_kept, row)) + " |" for row in cells(found))
    length = f"{walk.params.output_tokens} tokens out" if walk.params.output_tokens else "own length"
    used = load.estimates.tpot
    about = (
        f"Load: {walk.params.workload}, {length}, one request at a time; {used.count} requests per arm in"
        f" {used.repeats} passes, all arms in turns. TPOT and a are ● measured, with 95% bootstrap intervals; c and x"
        " are ◇ derived from them. Predictions are ◇ derived from bytes, from probes of this machine where the"
        " engine's parts can be probed, and else from arms before; each was made before its arm was asked anything."
        " Their error is that of a step's time, of a round's where the arm drafts."
    )
    doubts = "".join(f"\n- {n}" for n in notes(found))
    data, metadata = bundle(shown)
    nb = new.new_notebook(
        cells=[
            new.new_markdown_cell(f"# What does each optimisation bring on this machine?\n\n{words}"),
            new.new_code_cell("", outputs=[new.new_output("display_data", data=data, metadata=metadata)]),
            new.new_markdown_cell(f"{head}\n{lines}\n\n{about}"),
            *([new.new_markdown_cell(f"**Before you trust this:**\n{doubts}")] if doubts else []),
        ]
    )
    nb.metadata["labkit"] = {"status": "ok"}
    nb.metadata["language_info"] = {"name": "python"}
    return nb


def _kept(cell: str) -> str:
    """A cell of a Markdown table; a number stays on a line with its interval."""
    cell = cell.replace("|", "\\|")
    return cell.replace(" ", "\u00a0") if "[" in cell or " to " in cell and cell[:1].isdigit() else cell
