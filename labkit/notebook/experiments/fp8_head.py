"""04: the LM head in FP8: fewer bytes, predicted from two rungs and measured."""

from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.evidence import Evidence
from labkit.figures import decode, speculation
from labkit.measure.results import Result
from labkit.notebook.experiment import present, waiting
from labkit.notebook.experiments.rungs import Rungs
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess
from labkit.roofline import floors


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
                # TPOT - saved / B_eff with B_eff = step / TPOT, written so that TPOT's interval counts once.
                step = self.step(name, results)
                out.append((name, remark, r.tpot * ((step - self.saved(results)) / step)))
        return out

    def by_bytes(self, results: Mapping[str, Result]) -> Evidence:
        """The speed-up if time followed bytes alone: the same from either rung."""
        return self.step("kernels", results) / self.step("fp8-head", results)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        share = self.saved(results) / self.step("kernels", results)
        lines: list[Line] = [
            ("bytes saved by the FP8 head", self.saved(results), "half of the BF16 head, less its scales"),
            ("share of the step", share, "if time followed bytes alone, TPOT would fall by this share"),
            ("speed-up by bytes alone", self.by_bytes(results), "the same from either rung; the times differ"),
        ]
        for name, remark, value in self.predicted(results):
            lines.append((f"TPOT predicted from {name}", value, remark))
        if not self.predicted(results):
            lines.append(("TPOT predicted from the rungs", "after Run", "needs the measured rungs before it"))
        lines.append(("reported speed-up on DGX Spark", self.reported_gain(), "Ling-3.0-flash, 32K: a comparison only"))
        return lines

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.rungs)
        predicted = {f"predicted from {n}": [("fp8-head", value)] for n, _, value in self.predicted(results)}
        account = self.account_of(ladder.rung(self.params.engine, "kernels"), context=self.context(results))
        return [
            self.tpot_figure(results, predicted),
            speculation.speedups(
                [("fp8-head", self.by_bytes(results), self.gain(results))],
                reported=[("fp8-head", self.reported_gain())],
                guess=guess,
                title="Speed-up of the FP8 head: predicted by bytes, measured, reported",
            ),
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
            lines += [
                ("speed-up of the FP8 head", gain, "over the kernels rung"),
                ("speed-up by bytes alone", self.by_bytes(results), "predicted"),
                *self.guess_line(gain),
                ("reported on DGX Spark", self.reported_gain(), "Ling-3.0-flash, 32K: another machine and model"),
            ]
        return lines or [("nothing measured yet", "", "press Run")]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        gain = self.gain(results)
        if gain is None:
            return []
        return [
            *self.stop_line(results),
            *self.impossible(results),
            self.why_two(results),
            self.held(gain, self.by_bytes(results)),
            "Equal text is not shown here: an FP8 head rounds logits. Accuracy needs a paired test on questions.",
        ]

    def why_two(self, results: Mapping[str, Result]) -> str:
        """Why the two predictions differ, with their numbers."""
        saved, parts = self.saved(results), []
        for r in present(results, ["kernels", "baseline"]):
            rate = floors.effective_bandwidth(self.step(r.name, results), r.tpot)
            off, tpot = (saved / rate).to("ms").value, r.tpot.to("ms").value
            parts.append(
                f"at the {rate.to('GB/s').value:.3g} GB/s of {r.name} they take {off:.3g} ms off {tpot:.3g} ms"
            )
        return (
            f"The two predictions share the saved {saved.quantity()} and differ in the rung: {'; '.join(parts)}."
            " The one from kernels changes the head alone, so it is the one to hold against the measured rung; the one"
            " from baseline says what the head would have brought without the kernels, which was not measured here."
        )

    @staticmethod
    def held(gain: Evidence, predicted: Evidence) -> str:
        """Does the measured speed-up agree with its bytes?"""
        if gain.low is None:
            return f"Bytes alone predict {predicted.value:.3f}; fewer than three repeats cannot test it."
        bounds = f"{gain.low:.3f} to {gain.high:.3f}"
        if gain.low <= predicted.value <= gain.high:
            return f"The measured interval {bounds} holds the {predicted.value:.3f} that bytes alone predict."
        less = "less" if gain.value < predicted.value else "more"
        return (
            f"The measured interval {bounds} does not hold the {predicted.value:.3f} that bytes alone predict: the FP8"
            f" head brings {less} than its bytes say. Another read rate of the head and dearer arithmetic are"
            " candidates; this measurement does not tell them apart."
        )
