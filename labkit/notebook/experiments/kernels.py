"""03: shape-specialised kernels: the same bytes in less time, and what compiling them costs."""

import tempfile
from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.engines import ladder, process
from labkit.engines.adapter import options
from labkit.evidence import measured
from labkit.figures import decode, runs, speculation
from labkit.measure.results import Result
from labkit.notebook.experiments.change import Change
from labkit.notebook.reading import NOTHING, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess
from labkit.roofline import floors


class Kernels(Change):
    """03: shape-specialised kernels against run-time-shape kernels: the same bytes, another effective bandwidth."""

    name = "03_humming"
    about = ladder.FASTER
    guess = Guess(
        "How many times faster will the specialised kernels make decoding?",
        "times",
        0.1,
        20,
        0.05,
        1.0,
        "How many times faster will {arm} make decoding?",
    )
    case = "The text describes Humming's kernels; its method is that of any change that leaves the bytes as they are."

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.first: dict[str, tuple[float, float | None]] = {}  # arm -> (start, of it compiling), s, empty cache

    def after(self, pool) -> None:
        """Start each arm once more with an empty kernel cache: what a first start on a machine costs."""
        if not self.compiles or self.first:
            return
        for arm in self.arms():
            with tempfile.TemporaryDirectory() as folder:
                config = arm.config.replace(kernel_cache=f"{folder}/kernels")
                with process.start(config, f"{folder}/log", beside=True) as engine:
                    self.first[arm.name] = (engine.start_seconds, _seconds(engine.server_info()))

    @property
    def compiles(self) -> bool:
        """Whether the engine keeps its compiled kernels in a folder that can be named, and so can be an empty one."""
        return "kernel_cache" in options(self.params.engine.engine)

    def after_seconds(self) -> float:
        """Two first starts; on a machine with time to spare each takes some seconds."""
        return 0.0 if self.first or not self.compiles else 12.0

    def extra(self) -> dict:
        return {"first start": {n: {"start_s": s, "compile_s": c} for n, (s, c) in self.first.items()}}

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        before, after = self.names
        same = self.step(after, results) / self.step(before, results)
        lines: list[Line] = [
            (f"bytes, {after} over {before}", same, "the same tensors are read: bytes alone predict no gain"),
        ]
        for arm, when in zip(self.chain, ("before", "after"), strict=True):
            if found := self.reported(arm):
                lines.append((f"{self.reported_on}: TPOT {when}", found, "Ling-3.0-flash, 32K"))
        lines += self.reported_lines()
        measured_base = present(results, [before])
        most = measured_base[0].tpot / self.floor(before, results) if measured_base else "after Run"
        lines.append(("upper bound of the gain by kernels", most, f"TPOT of {before} over its byte floor"))
        return lines

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.names)
        before, after = self.names
        gains = speculation.speedups(
            [(after, self.step(before, results) / self.step(after, results), self.gain(results))],
            reported=self.reported_points(after),
            guess=guess,
            title=f"Speed-up of {after}: predicted by bytes, measured, reported",
        )
        rates = [(r.name, floors.effective_bandwidth(self.step(r.name, results), r.tpot)) for r in found]
        title = "At which rate do the same bytes arrive?"
        starts = [(f"{n}, empty cache", *self.first[n]) for n in self.first]
        starts += [(f"{r.name}, this run", r.start_s, compile_seconds(r)) for r in found if r.start_s]
        return [
            self.tpot_figure(results),
            gains,
            decode.bandwidths(rates, self.bandwidth, order=self.names, title=title) if found else waiting(title),
            runs.starts(starts) if starts else waiting("Start of each engine"),
            self.order_figure(results),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines = self.measured_lines(results)
        gain = self.gain(results)
        if gain is not None:
            lines += [
                ("bytes of one step", self.step(self.subject.name, results), "the same on both arms"),
                (f"speed-up of {self.subject.name}", gain, "bootstrap interval of the ratio; bytes alone predict 1"),
                *self.guess_line(gain),
                *self.reported_lines(),
            ]
        for name, (start, compiling) in self.first.items():
            value = measured(start, "s", "this lab: one start, empty kernel cache")
            remark = "" if compiling is None else f"{compiling:.1f} s of it compiling, by the engine's own clock"
            lines.append((f"first start, {name}", value, remark))
        lines += self.price(results)
        return lines or [NOTHING]

    def price(self, results: Mapping[str, Result]) -> list[Line]:
        """What specialising costs once, and after how many tokens a gain has paid for it."""
        pair, spent = present(results, self.names), [c for _, c in self.first.values() if c is not None]
        if len(pair) < 2 or len(spent) < 2:
            return []
        general, special = (measured(c, "s", "this lab: one start, empty kernel cache") for c in spent)
        saved = pair[0].tpot - pair[1].tpot
        remark = (
            f"at a first start, cached from then on; the general kernels take {general.value:.1f} s here, none prebuilt"
        )
        lines: list[Line] = [("compile time of the specialised kernels", special, remark)]
        if self.gain(results).above(1):
            tokens = f"{special.value / saved.value:,.0f} tokens"
            lines.append(("paid back after", tokens, "◇ derived: the compile time over the time saved per token"))
        return lines

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        gain = self.gain(results)
        if gain is None:
            return []
        return [
            *self.stop_line(results),
            *self.impossible(results),
            "Both arms read the same bytes, so a shorter TPOT means a higher effective bandwidth, not less traffic.",
            "This does not show that the same kernels gain as much on another machine or at another batch size.",
        ]


def compile_seconds(r: Result) -> float | None:
    """Seconds that the engine spent compiling when it started, as it says itself; None when it does not say."""
    return _seconds(r.info)


def _seconds(info: dict) -> float | None:
    value = info.get("compile_s", info.get("compile_seconds"))
    return float(value) if isinstance(value, (int, float)) else None
