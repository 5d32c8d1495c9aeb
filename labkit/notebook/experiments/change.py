"""What 03 and 04 share: one change of the ladder, each arm beside the one that it changes."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.evidence import Evidence
from labkit.figures import decode, runs
from labkit.measure.results import Arm, Result, speedup
from labkit.notebook.experiment import Experiment
from labkit.notebook.reading import present, waiting
from labkit.notebook.render import Line, span
from labkit.roofline import floors


class Change(Experiment):
    """The arm that the notebook is about and `back` arms that lead to it, under one load."""

    back = 1

    @property
    def chain(self) -> list[ladder.Arm]:
        """The arms in the order in which they change each other; the last is the subject."""
        out = [self.subject]
        while len(out) <= self.back and (before := ladder.reference(self.ladder, out[0])) is not None:
            out.insert(0, before)
        if len(out) < 2:
            self.before(self.subject)
        return out

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.chain]

    @property
    def base(self) -> ladder.Arm:
        """The arm that the subject changes."""
        return self.chain[-2]

    def arms(self) -> list[Arm]:
        return [self.arm(a) for a in self.chain]

    def step(self, name: str, results: Mapping[str, Result]) -> Evidence:
        """Bytes of a step of an arm."""
        config = ladder.get(self.ladder, name).config
        return self.account_of(config, context=self.context(results)).evidence()

    def floor(self, name: str, results: Mapping[str, Result]) -> Evidence:
        return floors.floor_s(self.step(name, results), self.bandwidth)

    def floors_of(self, results: Mapping[str, Result]) -> list[tuple[Result, Evidence]]:
        return [(r, self.floor(r.name, results)) for r in present(results, self.names)]

    def reported_lines(self) -> list[Line]:
        """The published speed-up of the same change, where the ladder names one."""
        found = self.reported_gain(self.subject, self.base)
        remark = "another machine and model: a comparison, not a prediction"
        return [(f"{self.reported_on}: speed-up", found, remark)] if found else []

    def reported_points(self, name: str) -> list[tuple[str, Evidence]]:
        """The same for a figure."""
        found = self.reported_gain(self.subject, self.base)
        return [(name, found)] if found else []

    def gain(self, results: Mapping[str, Result]) -> Evidence | None:
        """Speed-up of the change over the arm that it changes, once both are measured."""
        pair = present(results, self.names[-2:])
        return speedup(pair[1], pair[0]) if len(pair) == 2 else None

    def measured_lines(self, results: Mapping[str, Result]) -> list[Line]:
        """TPOT and effective bandwidth of every arm."""
        lines: list[Line] = []
        for r in present(results, self.names):
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
        """The ladder's rule: stop with a reason at the first arm that makes TPOT worse."""
        found = present(results, self.names)
        for slow, fast in zip(found, found[1:], strict=False):
            gain = speedup(fast, slow)
            if gain.below(1):
                return [
                    f"Stop here: a token takes longer with {fast.name} than with {slow.name} ({gain.value:.3f} times"
                    f" the speed, {span(gain)}). Leave it off and go back to {slow.name}."
                ]
        gain = self.gain(results)
        if gain is None:
            return []
        name, before = self.names[-1], self.names[-2]
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
            [(r.name, r.tpot) for r in present(results, self.names)],
            floors=[(n, self.floor(n, results)) for n in self.names],
            predicted=predicted or {},
            arms=self.names,
        )

    def order_figure(self, results: Mapping[str, Result]) -> go.Figure:
        found = present(results, self.names)
        title = "Every request in the order it ran"
        return runs.run_order({r.name: r.rows for r in found}, title=title) if found else waiting(title)
