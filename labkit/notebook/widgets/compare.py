"""Lay an earlier record over the present results and compare the two."""

from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.errors import BadInput, LabError
from labkit.evidence import Evidence
from labkit.figures import decode, live
from labkit.measure.results import Result, results_of, speedup
from labkit.notebook import render
from labkit.notebook.widgets import controls

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


class Overlay:
    """A menu of earlier records of this notebook; choosing one draws it beside the present results."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        tip = "Overlay an earlier run on the present results."
        self.menu = controls.menu("overlay run", [NOTHING], NOTHING, tip, "520px")
        self.board = live.Board()
        self.table = W.HTML()
        self.shown = W.VBox([], layout=W.Layout(width="100%"))
        self.box = W.VBox([self.menu, self.shown])
        self.menu.observe(lambda change: self._chosen(change["new"]), "value")
        self.refresh()

    def refresh(self) -> None:
        """Look for records again."""
        found = sorted(p.parent.name for p in self.panel.out_dir.glob(f"*-{self.panel.experiment.name}*/run.json"))
        names = [NOTHING, *reversed(found)]
        if list(self.menu.options) != names:
            kept = self.menu.value if self.menu.value in names else NOTHING
            self.menu.options = names
            self.menu.value = kept

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
