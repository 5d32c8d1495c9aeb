"""What 03 and 04 share: one change at a time on the ladder, each rung beside the one before."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.evidence import Evidence
from labkit.figures import decode, runs
from labkit.measure import machine
from labkit.measure.results import Arm, Result, speedup
from labkit.notebook.experiment import Experiment, present, waiting
from labkit.notebook.render import Line, span
from labkit.roofline import floors


class Rungs(Experiment):
    """Some rungs of the ladder under one load; the last one is the change that the notebook is about."""

    rungs: tuple[str, ...] = ()

    def arms(self) -> list[Arm]:
        config = self.params.engine
        return [self.arm(n, ladder.title(config, n), ladder.rung(config, n)) for n in self.rungs]

    def context(self, results: Mapping[str, Result]) -> int:
        """Tokens of context that the accounts count: as measured where something is, else as the loads have them."""
        found = present(results, self.rungs)
        if found:
            return found[0].context
        return (self.params.prompt_tokens or 150) + (self.values.get("output_tokens") or 256) // 2

    def step(self, rung: str, results: Mapping[str, Result]) -> Evidence:
        """Bytes of a step on a rung."""
        config = ladder.rung(self.params.engine, rung)
        return self.account_of(config, context=self.context(results)).evidence()

    def floor(self, rung: str, results: Mapping[str, Result]) -> Evidence:
        return floors.floor_s(self.step(rung, results), self.bandwidth)

    def floors_of(self, results: Mapping[str, Result]) -> list[tuple[Result, Evidence]]:
        return [(r, self.floor(r.name, results)) for r in present(results, self.rungs)]

    def reported_gain(self) -> Evidence:
        """The published speed-up of the same change, from the two times that were reported."""
        before, after = (machine.reported(f"synthetic-{n}", "tpot") for n in self.rungs[-2:])
        return before / after

    def gain(self, results: Mapping[str, Result]) -> Evidence | None:
        """Speed-up of the change over the rung before, once both are measured."""
        pair = present(results, self.rungs[-2:])
        return speedup(pair[1], pair[0]) if len(pair) == 2 else None

    def measured_lines(self, results: Mapping[str, Result]) -> list[Line]:
        """TPOT and effective bandwidth of every rung."""
        lines: list[Line] = []
        for r in present(results, self.rungs):
            lines.append((f"TPOT, {r.name}", r.tpot, r.arm.title))
            step = self.step(r.name, results)
            lines.append((f"effective bandwidth, {r.name}", floors.effective_bandwidth(step, r.tpot), ""))
        return lines

    def guess_line(self, gain: Evidence | None) -> list[Line]:
        if self.guessed is None:
            return []
        remark = "" if gain is None else f"measured {gain.value:.3f}"
        return [("your guess of the speed-up", f"{self.guessed:g}", remark)]

    def stop_line(self, results: Mapping[str, Result]) -> list[str]:
        """The ladder's rule: stop with a reason at the first rung that makes TPOT worse."""
        found = present(results, self.rungs)
        for slow, fast in zip(found, found[1:], strict=False):
            gain = speedup(fast, slow)
            if gain.below(1):
                return [
                    f"Stop here: {fast.name} makes a token slower than {slow.name} ({gain.value:.3f} times the speed,"
                    f" {span(gain)}). Leave it off and go back to {slow.name}."
                ]
        gain = self.gain(results)
        if gain is None:
            return []
        name, before = self.rungs[-1], self.rungs[-2]
        if not gain.above(1):
            return [
                f"No gain is shown: {gain.value:.3f} times the speed, {span(gain)}. Measure again to narrow it before"
                " climbing on."
            ]
        return [f"{name} is {gain.value:.3f} times as fast as {before} ({span(gain)})."]

    def tpot_figure(
        self, results: Mapping[str, Result], predicted: Mapping[str, Sequence[tuple[str, Evidence]]] | None = None
    ) -> go.Figure:
        return decode.tpot(
            [(r.name, r.tpot) for r in present(results, self.rungs)],
            floors=[(n, self.floor(n, results)) for n in self.rungs],
            predicted=predicted or {},
            arms=self.rungs,
        )

    def order_figure(self, results: Mapping[str, Result]) -> go.Figure:
        found = present(results, self.rungs)
        title = "Every request in the order it ran"
        return runs.run_order({r.name: r.rows for r in found}, title=title) if found else waiting(title)
