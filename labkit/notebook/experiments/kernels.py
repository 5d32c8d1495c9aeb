"""03: shape-specialised kernels: the same bytes in less time, and what compiling them costs."""

import tempfile
from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.engines import process
from labkit.evidence import measured
from labkit.figures import decode, runs, speculation
from labkit.measure import machine
from labkit.measure.results import Result
from labkit.notebook.experiment import present, waiting
from labkit.notebook.experiments.rungs import Rungs
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess
from labkit.roofline import floors


class Kernels(Rungs):
    """03: shape-specialised kernels against run-time-shape kernels: the same bytes, another effective bandwidth."""

    name = "03_humming"
    rungs = ("baseline", "kernels")
    guess = Guess("How many times faster will the specialised kernels make a token?", "times", 0.1, 20, 0.05, 1.0)

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.first: dict[str, tuple[float, float | None]] = {}  # rung -> (start, of it compiling), s, empty cache

    def after(self, pool) -> None:
        """Start each rung once more with an empty kernel cache: what a first start on a machine costs."""
        if self.params.engine.engine != "pocket" or self.first:
            return
        for arm in self.arms():
            with tempfile.TemporaryDirectory() as folder:
                extra = [*arm.config.extra_args, "--kernel-cache", f"{folder}/kernels"]
                with process.start(arm.config.replace(extra_args=extra), f"{folder}/log", beside=True) as engine:
                    self.first[arm.name] = (engine.start_seconds, _seconds(engine.server_info()))

    def after_seconds(self) -> float:
        """Two first starts; on a machine with time to spare each takes some seconds."""
        return 0.0 if self.first or self.params.engine.engine != "pocket" else 12.0

    def extra(self) -> dict:
        return {"first start": {n: {"start_s": s, "compile_s": c} for n, (s, c) in self.first.items()}}

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        same = self.step("kernels", results) / self.step("baseline", results)
        base = present(results, ["baseline"])
        lines: list[Line] = [
            ("bytes, kernels over baseline", same, "the same tensors are read: bytes alone predict no gain"),
            (
                "reported on DGX Spark: TPOT before",
                machine.reported("synthetic-baseline", "tpot"),
                "Ling-3.0-flash, 32K",
            ),
            ("reported on DGX Spark: TPOT after", machine.reported("synthetic-kernels", "tpot"), "Humming, same load"),
            ("reported speed-up", self.reported_gain(), "another machine and model: a comparison, not a prediction"),
        ]
        if base:
            most = base[0].tpot / self.floor("baseline", results)
            lines.append(("most that any kernel could gain", most, "baseline TPOT over its byte floor"))
        else:
            lines.append(("most that any kernel could gain", "after Run", "the baseline's TPOT over its byte floor"))
        return lines

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.rungs)
        gains = speculation.speedups(
            [("kernels", self.step("baseline", results) / self.step("kernels", results), self.gain(results))],
            reported=[("kernels", self.reported_gain())],
            guess=guess,
            title="Speed-up of the kernels: predicted by bytes, measured, reported",
        )
        rates = [(r.name, floors.effective_bandwidth(self.step(r.name, results), r.tpot)) for r in found]
        title = "The same bytes, at which rate?"
        starts = [(f"{n}, empty cache", *self.first[n]) for n in self.first]
        starts += [(f"{r.name}, this run", r.start_s, compile_seconds(r)) for r in found if r.start_s]
        return [
            self.tpot_figure(results),
            gains,
            decode.bandwidths(rates, self.bandwidth, order=self.rungs, title=title) if found else waiting(title),
            runs.starts(starts) if starts else waiting("Start of each engine"),
            self.order_figure(results),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines = self.measured_lines(results)
        gain = self.gain(results)
        if gain is not None:
            lines += [
                ("bytes of one step", self.step("kernels", results), "the same on both rungs"),
                ("speed-up of the kernels", gain, "bootstrap interval of the ratio; bytes alone predict 1"),
                *self.guess_line(gain),
                ("reported on DGX Spark", self.reported_gain(), "Ling-3.0-flash, 32K: another machine and model"),
            ]
        for name, (start, compiling) in self.first.items():
            value = measured(start, "s", "this lab: one start, empty kernel cache")
            remark = "" if compiling is None else f"{compiling:.1f} s of it compiling, by the engine's own clock"
            lines.append((f"first start, {name}", value, remark))
        lines += self.price(results)
        return lines or [("nothing measured yet", "", "press Run")]

    def price(self, results: Mapping[str, Result]) -> list[Line]:
        """What specialising costs once, and after how many tokens a gain has paid for it."""
        pair, spent = present(results, self.rungs), [c for _, c in self.first.values() if c is not None]
        if len(pair) < 2 or len(spent) < 2:
            return []
        general, special = (measured(c, "s", "this lab: one start, empty kernel cache") for c in spent)
        more, saved = special - general, pair[0].tpot - pair[1].tpot
        lines: list[Line] = [("extra compiling of kernels", more, "one start each: small differences vary")]
        if more.value > 0 and self.gain(results).above(1):
            tokens = f"{more.value / saved.value:,.0f} tokens"
            lines.append(("paid back after", tokens, "◇ derived: the extra compiling over the time saved a token"))
        return lines

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        gain = self.gain(results)
        if gain is None:
            return []
        return [
            *self.stop_line(results),
            *self.impossible(results),
            "Both rungs read the same bytes, so a shorter token means a higher effective bandwidth, not less traffic.",
            "This does not show that the same kernels gain as much on another machine or at another batch size.",
        ]


def compile_seconds(r: Result) -> float | None:
    """Seconds that the engine spent compiling when it started, as it says itself; None when it does not say."""
    return _seconds(r.info)


def _seconds(info: dict) -> float | None:
    value = info.get("compile_s", info.get("compile_seconds"))
    return float(value) if isinstance(value, (int, float)) else None
