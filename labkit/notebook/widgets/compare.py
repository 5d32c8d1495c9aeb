"""Lay an earlier record over the present results and compare the two."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.errors import BadInput, LabError
from labkit.evidence import Evidence
from labkit.figures import decode, live
from labkit.measure.results import Result, results_of, speedup
from labkit.notebook import render
from labkit.notebook.widgets import controls
from labkit.records import read_run

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel

NOTHING = "(none)"


def compare(now: dict[str, Result], then: dict[str, Result]) -> list[render.Line]:
    """Arms of both, with TPOT now over then; arms measured under other conditions are named and not compared."""
    lines: list[render.Line] = []
    for name, old in then.items():
        new = now.get(name)
        if new is None or not new.used:
            lines.append((f"{name}, earlier run only", old.tpot, ""))
            continue
        differing = [k for k in old.arm.load if old.arm.load[k] != new.arm.load.get(k)]
        if old.arm.config.digest() != new.arm.config.digest():
            differing.append("engine settings")
        lines += [(f"{name}, now", new.tpot, ""), (f"{name}, earlier run", old.tpot, "")]
        if differing:
            lines.append((f"{name}, TPOT now / earlier", "not compared", "conditions differ: " + ", ".join(differing)))
        else:
            change: Evidence = speedup(old, new, together=False)
            differ = change.above(1) or change.below(1)
            shown = "they differ" if differ else "no difference shown" if change.low else "too few repeats to tell"
            lines.append((f"{name}, TPOT now / earlier", change, shown))
    return lines


def described(directory: Path) -> str | None:
    """A record as a menu names it: when, which arms with their TPOT, which load. None for one that has nothing to
    compare: still running, refused, or unreadable."""
    try:
        run = read_run(directory)
        found = results_of(run)
    except LabError:
        return None
    if not found or run.meta.get("status") == "running":
        return None
    began = datetime.strptime(directory.name[:15], "%Y%m%d-%H%M%S")
    arms = [f"{n} {r.tpot.to('ms').value:.3g} ms" for n, r in found.items()]
    more = f" and {len(arms) - 3} more" if len(arms) > 3 else ""
    loads = ", ".join(dict.fromkeys(r.arm.load["workload"] for r in found.values()))
    return f"{began:%d %b %H:%M:%S}: {', '.join(arms[:3])}{more} ({loads})"


class Overlay:
    """A menu of earlier records of this notebook; choosing one draws it beside the present results. The record whose
    results are shown is not offered: it lies on itself."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        tip = "Overlay an earlier run on the present results."
        self._known: dict[Path, tuple[tuple, str | None]] = {}  # a record that has ended does not change
        self.menu = controls.menu("overlay run", [(NOTHING, NOTHING)], NOTHING, tip, "min(760px, 100% - 4px)")
        self.board = live.Board()
        self.table = W.HTML()
        self.shown = W.VBox([], layout=W.Layout(width="100%"))
        self.box = W.VBox([self.menu, self.shown])
        self.menu.observe(lambda change: self._chosen(change["new"]), "value")
        self.refresh()

    def refresh(self) -> None:
        """Look for records again."""
        found = sorted(self.panel.out_dir.glob(f"*-{self.panel.experiment.name}*/run.json"), reverse=True)
        named = [(self._label(p.parent), p.parent.name) for p in found if p.parent != self.panel.record]
        options = [(NOTHING, NOTHING), *((label, name) for label, name in named if label is not None)]
        if list(self.menu.options) != options:
            kept = self.menu.value if self.menu.value in dict(options).values() else NOTHING
            self.menu.options = options
            self.menu.value = kept

    def _label(self, directory: Path) -> str | None:
        stamp = tuple((p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(directory.glob("*.json*")))
        if self._known.get(directory, ((), None))[0] != stamp:
            self._known[directory] = stamp, described(directory)
        return self._known[directory][1]

    def _chosen(self, name: str) -> None:
        if name == NOTHING:
            self.shown.children = ()
            return
        try:
            then = results_of(self.panel.out_dir / name)
            if not then:
                raise BadInput("run", name, "a run with at least one measured request")
        except LabError as e:
            self.table.value = render.note(str(e), "alert")
            self.shown.children = (self.table,)
            return
        now = {n: r for n, r in self.panel.results.items() if r.used}
        time = name[9:15]
        when = f"{time[:2]}:{time[2:4]}:{time[4:]}"
        items = [(f"{n}, now", r.tpot) for n, r in now.items()] + [(f"{n}, {when}", r.tpot) for n, r in then.items()]
        self.board.show([decode.tpot(items, title=f"Now and the run of {when}")])
        self.table.value = render.STYLE + render.table(compare(now, then))
        self.shown.children = (self.board, self.table)
