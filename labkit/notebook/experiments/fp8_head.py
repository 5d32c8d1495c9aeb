"""04: fewer bytes (the LM head in FP8): what they should be worth, by two predictions, and what they are."""

from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.evidence import Evidence
from labkit.figures import decode, speculation
from labkit.measure.results import Result
from labkit.notebook.experiments.change import Change
from labkit.notebook.reading import NOTHING, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess
from labkit.roofline import floors


class Fp8Head(Change):
    """An arm that reads fewer bytes, and two predictions of what they are worth."""

    name = "04_fp8_head"
    about = ladder.BYTES
    back = 2
    guess = Guess(
        "How many times faster will the FP8 head make decoding?",
        "times",
        0.1,
        20,
        0.01,
        1.0,
        "How many times faster will {arm} make decoding?",
    )
    case = "The text describes an FP8 LM head; its method is that of any change that takes bytes off a step."

    def saved(self, results: Mapping[str, Result]) -> Evidence:
        """Bytes that the change takes off a step."""
        return self.step(self.base.name, results) - self.step(self.subject.name, results)

    def predicted(self, results: Mapping[str, Result]) -> list[tuple[str, str, Evidence]]:
        """(what, remark, TPOT) from the saved bytes and the effective bandwidth of an arm before it."""
        out = []
        for i, name in enumerate(reversed(self.names[:-1])):
            remark = f"counterfactual: the same change on {name}" if i else "the adjacent arm: nothing else differs"
            for r in present(results, [name]):
                # TPOT - saved / B_eff with B_eff = step / TPOT, written so that TPOT's interval counts once.
                step = self.step(name, results)
                out.append((name, remark, r.tpot * ((step - self.saved(results)) / step)))
        return out

    def by_bytes(self, results: Mapping[str, Result]) -> Evidence:
        """The speed-up if time followed bytes alone."""
        return self.step(self.base.name, results) / self.step(self.subject.name, results)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        share = self.saved(results) / self.step(self.base.name, results)
        lines: list[Line] = [
            (f"bytes saved by {self.subject.name}", self.saved(results), f"against {self.base.name}"),
            ("share of the step", share, "if time depended on bytes alone, TPOT would fall by this share"),
            ("speed-up by bytes alone", self.by_bytes(results), "the same from either arm; the times differ"),
        ]
        for name, remark, value in self.predicted(results):
            lines.append((f"TPOT predicted from {name}", value, remark))
        if not self.predicted(results):
            lines.append(("TPOT predicted from the arms before", "after Run", "needs them measured"))
        return lines + self.reported_lines()

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found, name = present(results, self.names), self.subject.name
        predicted = {f"predicted from {n}": [(name, value)] for n, _, value in self.predicted(results)}
        account = self.account_of(self.base.config, context=self.context(results))
        return [
            self.tpot_figure(results, predicted),
            speculation.speedups(
                [(name, self.by_bytes(results), self.gain(results))],
                reported=self.reported_points(name),
                guess=guess,
                title=f"Speed-up of {name}: predicted by bytes, measured, reported",
            ),
            decode.ladder([(r.name, r.tpot) for r in found]) if found else waiting("The ladder"),
            decode.bytes_treemap(account, title=f"Bytes per step before the change ({self.base.name})"),
            self.order_figure(results),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines = self.measured_lines(results)
        after = present(results, [self.subject.name])
        for name, _, value in self.predicted(results):
            remark = ""
            if after:
                off = value.value / after[0].tpot.to("s").value - 1
                remark = f"{off:+.1%} against measured"
            lines.append((f"TPOT predicted from {name}", value.to("s"), remark))
        gain = self.gain(results)
        if gain is not None:
            lines += [
                (f"speed-up of {self.subject.name}", gain, f"over {self.base.name}"),
                ("speed-up by bytes alone", self.by_bytes(results), "predicted"),
                *self.guess_line(gain),
                *self.reported_lines(),
            ]
        return lines or [NOTHING]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        gain = self.gain(results)
        if gain is None:
            return []
        return [
            *self.stop_line(results),
            *self.impossible(results),
            self.why_two(results),
            self.held(gain, self.by_bytes(results)),
            "This does not show that the text stays the same: fewer bits round more. Accuracy needs a paired test on"
            " questions.",
        ]

    def why_two(self, results: Mapping[str, Result]) -> str:
        """Why the two predictions differ, with their numbers."""
        saved, parts = self.saved(results), []
        for r in present(results, self.names[-2::-1]):
            rate = floors.effective_bandwidth(self.step(r.name, results), r.tpot)
            off, tpot = (saved / rate).to("ms").value, r.tpot.to("ms").value
            parts.append(
                f"at the {rate.to('GB/s').value:.3g} GB/s of {r.name} they take {off:.3g} ms off {tpot:.3g} ms"
            )
        said = f"The saved {saved.quantity()} are worth more where bytes are read more slowly: {'; '.join(parts)}."
        if len(parts) < 2:
            return said
        return (
            f"{said} The prediction from {self.base.name} changes nothing else, so it is the one to compare with the"
            f" measured time; the one from {self.names[0]} says what the same change would have brought there, which"
            " was not measured."
        )

    @staticmethod
    def held(gain: Evidence, predicted: Evidence) -> str:
        """Does the measured speed-up agree with its bytes?"""
        if gain.low is None:
            return f"Bytes alone predict {predicted.value:.3f}; fewer than three repeats cannot test it."
        bounds = f"{gain.low:.3f} to {gain.high:.3f}"
        if gain.low <= predicted.value <= gain.high:
            return f"The measured interval {bounds} includes the {predicted.value:.3f} that bytes alone predict."
        less = "less" if gain.value < predicted.value else "more"
        return (
            f"The measured interval {bounds} does not include the {predicted.value:.3f} that bytes alone predict: the"
            f" change brings {less} than its bytes predict. Another read rate of these bytes and costlier arithmetic"
            " are candidates; this measurement does not tell them apart."
        )
