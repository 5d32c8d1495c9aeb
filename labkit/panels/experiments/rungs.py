"""03 and 04: one change at a time on the ladder, each rung beside the one before and beside what was predicted."""

import tempfile
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from labkit.engines import ladder, process
from labkit.evidence import Evidence, measured
from labkit.figures import decode, runs, speculation
from labkit.panels import machine
from labkit.panels.experiment import Experiment, present, waiting
from labkit.panels.results import Arm, Result, speedup
from labkit.panels.settings import Guess
from labkit.panels.words import Line
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
        """The ladder's rule: stop with a reason at a rung that makes TPOT worse."""
        gain = self.gain(results)
        if gain is None:
            return []
        name, before = self.rungs[-1], self.rungs[-2]
        if gain.high < 1:
            return [
                f"Stop here: {name} makes a token slower than {before} ({gain.value:.3f} times the speed, interval"
                f" {gain.low:.3f} to {gain.high:.3f}). Leave it off and go back to {before}."
            ]
        if gain.low <= 1:
            return [
                f"No gain is shown: the interval {gain.low:.3f} to {gain.high:.3f} holds 1. Measure again to narrow it"
                " before climbing on."
            ]
        return [f"{name} is {gain.value:.3f} times as fast as {before} (interval {gain.low:.3f} to {gain.high:.3f})."]

    def tpot_figure(
        self,
        results: Mapping[str, Result],
        predicted: Sequence[tuple[str, Evidence]] = (),
        guess_s: float | None = None,
    ) -> go.Figure:
        return decode.tpot(
            [(r.name, r.tpot) for r in present(results, self.rungs)],
            floors=[(n, self.floor(n, results)) for n in self.rungs],
            predicted=predicted,
            guess_s=guess_s,
            arms=self.rungs,
        )

    def order_figure(self, results: Mapping[str, Result]) -> go.Figure:
        found = present(results, self.rungs)
        title = "Every request in the order it ran"
        return runs.run_order({r.name: r.rows for r in found}, title=title) if found else waiting(title)


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
                with process.start(arm.config.but(extra_args=extra), f"{folder}/log", beside=True) as engine:
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
            (
                "reported speed-up",
                machine.reported("synthetic-baseline", "tpot") / machine.reported("synthetic-kernels", "tpot"),
                "another machine and model: a comparison, not a prediction",
            ),
        ]
        if base:
            most = base[0].tpot / self.floor("baseline", results)
            lines.append(("most that any kernel could gain", most, "baseline TPOT over its byte floor"))
        return lines

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.rungs)
        reported = machine.reported("synthetic-baseline", "tpot") / machine.reported("synthetic-kernels", "tpot")
        gain = self.gain(results)
        gains = speculation.speedups(
            [("kernels", None, gain)], reported=[("kernels", reported)], guess=guess, title="Speed-up of the kernels"
        )
        starts = [(f"{n}, empty cache", *self.first[n]) for n in self.first]
        starts += [(f"{r.name}, this run", r.start_s, compile_seconds(r)) for r in found if r.start_s]
        return [
            self.tpot_figure(results),
            gains,
            runs.starts(starts) if starts else waiting("Start of each engine"),
            self.order_figure(results),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines = self.measured_lines(results)
        gain = self.gain(results)
        if gain is not None:
            lines += [("speed-up of the kernels", gain, "bootstrap interval of the ratio"), *self.guess_line(gain)]
        for name, (start, compiling) in self.first.items():
            value = measured(start, "s", "this lab: one start, empty kernel cache")
            remark = "" if compiling is None else f"{compiling:.1f} s of it compiling, by the engine's own clock"
            lines.append((f"first start, {name}", value, remark))
        return lines or [("nothing measured yet", "", "press Run")]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        gain = self.gain(results)
        if gain is None:
            return []
        return [
            *self.stop_line(results),
            "Both rungs read the same bytes, so a shorter token means a higher effective bandwidth, not less traffic.",
            "This does not show that the same kernels gain as much on another machine or at another batch size.",
        ]


class Fp8Head(Rungs):
    """04: the LM head in FP8: fewer bytes, and two predictions of what they are worth."""

    name = "04_fp8_head"
    rungs = ("baseline", "kernels", "fp8-head")
    guess = Guess("How many times faster will the FP8 head make a token?", "times", 0.1, 20, 0.01, 1.0)

    def saved(self, results: Mapping[str, Result]) -> Evidence:
        """Bytes that the FP8 head takes off a step."""
        return self.step("kernels", results) - self.step("fp8-head", results)

    def predicted(self, results: Mapping[str, Result]) -> list[tuple[str, str, Evidence]]:
        """(what, remark, TPOT) from the saved bytes and the effective bandwidth of a reference rung."""
        out = []
        for name, remark in (
            ("kernels", "the adjacent rung: only the head changes"),
            ("baseline", "counterfactual: a head on the baseline, its kernels unchanged"),
        ):
            for r in present(results, [name]):
                b_eff = floors.effective_bandwidth(self.step(name, results), r.tpot)
                out.append((name, remark, r.tpot - self.saved(results) / b_eff))
        return out

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        share = self.saved(results) / self.step("kernels", results)
        lines: list[Line] = [
            ("bytes saved by the FP8 head", self.saved(results), "half of the BF16 head, less its scales"),
            ("share of the step", share, "if time followed bytes alone, TPOT would fall by this share"),
        ]
        for name, remark, value in self.predicted(results):
            lines.append((f"TPOT predicted from {name}", value, remark))
        if not self.predicted(results):
            lines.append(("TPOT predicted from the rungs", "after Run", "needs the measured rungs before it"))
        before, after = (machine.reported(f"synthetic-{n}", "tpot") for n in ("kernels", "fp8-head"))
        lines.append(("reported speed-up on DGX Spark", before / after, "Ling-3.0-flash, 32K: a comparison only"))
        return lines

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.rungs)
        predicted = [("fp8-head", value) for _, _, value in self.predicted(results)]
        before = present(results, ["kernels"])
        account = self.account_of(ladder.rung(self.params.engine, "kernels"), context=self.context(results))
        return [
            # The guess is a speed-up over the adjacent rung: a time once that rung is measured.
            self.tpot_figure(results, predicted, before[0].tpot.value / guess if guess and before else None),
            decode.ladder([(r.name, r.tpot) for r in found]) if found else waiting("The ladder"),
            decode.bytes_treemap(account, title="Where the head stands among the step's bytes (BF16 head)"),
            self.order_figure(results),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines = self.measured_lines(results)
        after = present(results, ["fp8-head"])
        for name, _, value in self.predicted(results):
            remark = ""
            if after:
                off = value.value / after[0].tpot.to("s").value - 1
                remark = f"{off:+.1%} against measured"
            lines.append((f"TPOT predicted from {name}", value.to("s"), remark))
        gain = self.gain(results)
        if gain is not None:
            lines += [("speed-up of the FP8 head", gain, "over the kernels rung"), *self.guess_line(gain)]
        return lines or [("nothing measured yet", "", "press Run")]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        if self.gain(results) is None:
            return []
        return [
            *self.stop_line(results),
            "The two predictions differ because each divides the same saved bytes by another rung's effective"
            " bandwidth, and because the one from the baseline leaves the kernels as they were: hold the measured rung"
            " against the one from the adjacent rung.",
            "Equal text is not shown here: an FP8 head rounds logits. Accuracy needs a paired test on questions.",
        ]


def compile_seconds(r: Result) -> float | None:
    """Seconds that the engine spent compiling when it started, as it says itself; None when it does not say."""
    return _seconds(r.info)


def _seconds(info: dict) -> float | None:
    value = info.get("compile_s", info.get("compile_seconds"))
    return float(value) if isinstance(value, (int, float)) else None
