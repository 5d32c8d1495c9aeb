"""What a panel shows: figures, tables, the summary's text, and what the next run will take."""

from typing import TYPE_CHECKING

import ipywidgets as W

from labkit.evidence import Evidence
from labkit.figures import live
from labkit.measure.runner import Block
from labkit.notebook import render
from labkit.notebook.gate import OPEN

if TYPE_CHECKING:
    from labkit.notebook.panel import Panel


class Readout:
    """One panel's results as widgets; nothing of them is shown while its guess is open."""

    def __init__(self, panel: "Panel"):
        self.panel = panel
        self.board = live.Board()
        self.lines, self.predicted, self.block = W.HTML(), W.HTML(), W.HTML()
        self.forecast, self.note = W.HTML(), W.HTML()

    def draw(self, *, final: bool = False) -> None:
        """Figures from the present results; final: tables and text too, which are not redrawn while requests run."""
        panel = self.panel
        self.board.show(panel.figures())
        if final and panel.veiled:
            self.lines.value = self.predicted.value = self.block.value = render.note(OPEN)
        elif final:
            self.lines.value = render.STYLE + panel.found() + self._kept()
            self.predicted.value = self._prediction()
            self.block.value = render.STYLE + render.block(panel.summary_text())

    def hush(self) -> None:
        """Say nothing of the next run: none may start yet, or one is under way."""
        self.forecast.value = self.note.value = ""

    def announce(self, queued: list[Block] | None) -> None:
        """How long the next run takes, which engines it starts, when what is shown was measured. queued: what the queue
        adds, None without one."""
        panel = self.panel
        if panel.veiled:
            self.hush()
            return
        blocks = panel.blocks()
        times = [] if queued is None else ["Queue: " + panel.forecast(queued)]
        times.append("Run: " + panel.forecast(blocks))
        if panel.experiment.sweep():
            times.append("Sweep: " + panel.forecast(panel.blocks(sweep=True)))
        if not blocks:
            times.append("Measure again: " + panel.forecast(panel.blocks(again=True)))
        self.forecast.value = "<br>".join(map(render.note, times))
        notes = [*panel.experiment.remarks(), *self._starts(blocks)]
        kept = [f"{r.name} measured {r.when}" for r in panel.results.values() if r.when]
        if kept:
            notes.append("Stored results shown: " + ", ".join(kept) + ".")
        self.note.value = render.note(" ".join(notes))

    def _starts(self, blocks: list[Block]) -> list[str]:
        """Engines that these blocks start first. By configuration: arms that differ in their load alone share one."""
        pool, arms = self.panel.runner.pool, [a for b in blocks for a in b.arms]
        fresh = {a.config.digest(): a.name for a in reversed(arms) if pool.needs_start(a.config)}
        if not fresh:
            return []
        last = max((pool.start_seconds(a.config) or 0 for a in arms), default=0)
        took = f"; the last start took {last:.1f} s" if last else ""
        return [f"Run will first start the engine for: {', '.join(reversed(fresh.values()))}{took}."]

    def _kept(self) -> str:
        """Other settings that were measured, apart from the comparison: another minute is no reference."""
        lines = self.panel.kept_lines()
        if not lines:
            return ""
        return render.note("Measured earlier under this load, not part of the comparison above:") + render.table(lines)

    def _prediction(self) -> str:
        panel = self.panel
        lines: list[tuple[str, Evidence | str, str]] = list(panel.predictions())
        if panel.gate.value is not None:
            about = "committed before measuring" if panel.guess is not None else "for other settings: not scored here"
            lines.insert(0, ("your guess", f"{panel.gate.value:g} {panel.gate.guess.unit}", about))
        return render.STYLE + render.table(lines, ("", "predicted", "evidence", ""))
