"""Two runs side by side in one offline page: whether they may be compared, how far they differ, how each ran."""

import html
import secrets
from pathlib import Path

from labkit import disk
from labkit.engines.secrets import hide_text
from labkit.errors import BadInput
from labkit.measure.stats import text
from labkit.records.reader import Run
from labkit.report import compare, page
from labkit.report.tables import table
from labkit.report.verdict import behind, card, records_of


def write(a: str | Path, b: str | Path, destination: str | Path, arm: str | None = None) -> Path:
    """Write the page and return its path. arm: "X" or "X:Y", which arms; None: all in common.

    Raises BadInput for a directory without a record, or without a record of the same kind in the other; disk.NoRoom.
    """
    sides = [records_of(path) for path in (a, b)]
    for path, found in zip((a, b), sides, strict=True):
        if not found:
            raise BadInput("run", str(path), "a run directory that holds a record")
    target = disk.place(destination)
    names = [str(Path(p).resolve().name) for p in (a, b)]
    parts = [_pair(x, y, arm) for x, y in _matched(*sides)]
    cards = "".join(
        f"<div><h2>{html.escape(n)}</h2>{card(f)}{behind(f)}</div>" for n, f in zip("AB", sides, strict=True)
    )
    body = [
        f"<p>A is {html.escape(names[0])}, B is {html.escape(names[1])}.</p>",
        *parts,
        f'<div class="two">{cards}</div>',
    ]
    shown = page.document(
        title=f"{names[0]} and {names[1]}",
        heading=True,
        lead="",
        contents=[],
        body="\n".join(body),
        figures=[],
        nonce=secrets.token_urlsafe(16),
    )
    disk.write_text(target, shown, "the records are kept")
    return target


def _matched(a: list, b: list) -> list[tuple[Run, Run]]:
    """The newest records of one label in both; of two single records, the two."""
    if len(a) == len(b) == 1:
        return [(a[0][0], b[0][0])]
    mine, theirs = ({r.meta.get("label") or r.directory.name: r for r, _ in side} for side in (a, b))
    common = [(mine[n], theirs[n]) for n in mine if n in theirs]
    if not common:
        raise BadInput("runs", f"{', '.join(mine)} / {', '.join(theirs)}", "runs with records of the same label")
    return common


def _pair(a: Run, b: Run, arm: str | None) -> str:
    """Every pair of arms: the conditions that differ first, then times and their ratio."""
    label = a.meta.get("label") or a.directory.name
    rows, differ, changed = [], [], []
    for left, right in compare.pairs(a, b, arm):
        unequal = compare.conditions(a, b, left, right)
        differ += [(d["what"], d["a"], d["b"]) for d in unequal if (d["what"], d["a"], d["b"]) not in differ]
        changed += [(left, d["what"], d["a"], d["b"]) for d in compare.changes(a, b, left, right)]
        one = compare.compare(a, b, left, right)
        tpot = one["tpot_s"]
        word = "not comparable" if unequal else compare.verdict(tpot["ratio"])
        times = [text(tpot[side], 1e3, ".2f") for side in "ab"]
        accepts = [text(v, spec=".2f") if v else "" for v in one["accept_length"].values()]
        rows.append((left if left == right else f"{left} / {right}", *times, f"x{text(tpot['ratio'])}", word, *accepts))
    head = ["arm", "A, ms per token", "B, ms per token", "B over A", "B is", "a in A", "a in B"]
    out = [f"<section><h2>{html.escape(hide_text(label))}</h2>"]
    if differ:
        out.append(
            '<div class="labkit-caution"><b>Not measured under equal conditions:</b>'
            f"{table(['what', 'A', 'B'], differ)}</div>"
        )
    out.append(table(head, rows, "numbers"))
    if changed:
        out.append(f"<h3>Changed on purpose</h3>{table(['arm', 'setting', 'A', 'B'], changed)}")
    return "".join([*out, "</section>"])
