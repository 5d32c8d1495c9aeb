"""07: the reader's own kind of load: sampled text that ends by itself, whole latencies instead of tokens alone."""

from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.errors import BadInput
from labkit.evidence import Evidence, measured
from labkit.figures import decode, runs, speculation
from labkit.measure import machine
from labkit.measure.results import Arm, Result, speedup
from labkit.measure.stats import at_rank, median_interval
from labkit.notebook.experiment import COUNT, REPEATS, WORKLOAD, Experiment, accepted, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess


class RealLoad(Experiment):
    """The baseline against all changes on outputs of the model's own length."""

    name = "07_real_load"
    guess = Guess("How many times faster will decoding be with all changes on this load?", "times", 0.1, 20, 0.05, 1.0)
    settings = (WORKLOAD, COUNT, REPEATS)

    def _subject(self) -> ladder.Arm:
        """The arm with all changes: the last that is not broken on purpose, where `arm` names none."""
        return super()._subject() if self.params.arm else ladder.choose(self.ladder)[-1]

    @property
    def ends(self) -> tuple[ladder.Arm, ladder.Arm]:
        """Before any change, and after all of them. Raises BadInput for a ladder of one arm."""
        if self.subject == self.ladder[0]:
            raise BadInput("arm", self.subject.name, "an arm that changes another one")
        return self.ladder[0], self.subject

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.ends]

    def arms(self) -> list[Arm]:
        return [self.arm(a, output_tokens=None) for a in self.ends]

    def reported_pairs(self) -> list[tuple[str, Evidence]]:
        """Published speed-ups of all changes: on GSM8K, and on the load of the ladder's own figures."""
        own = self.reported_gain(self.subject, self.ladder[0])
        if own is None:
            return []
        real = machine.reported("gsm8k-baseline", "tpot") / machine.reported("gsm8k-all", "tpot")
        return [("DGX Spark, GSM8K", real), ("DGX Spark, synthetic", own)]

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        pairs = dict(self.reported_pairs())
        if not pairs:
            return []
        return [
            (
                "reported speed-up, synthetic load",
                pairs["DGX Spark, synthetic"],
                "greedy, 32K in and 2K out",
            ),
            ("reported speed-up, GSM8K", pairs["DGX Spark, GSM8K"], "the same machine on sampled chains of thought"),
            (
                "reported accept length, GSM8K",
                machine.reported("gsm8k-all", "accept_length"),
                "3.90 on the synthetic load",
            ),
        ]

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.names)
        drafting = [r for r in found if r.accept is not None]
        return [
            decode.tpot([(r.name, r.tpot) for r in found], arms=self.names),
            self._speedups(found, guess),
            runs.latency_ecdf([(r.name, [row["latency_s"] for row in r.used]) for r in found])
            if found
            else waiting("End-to-end latency"),
            accepted(drafting),
        ]

    def _speedups(self, found: list[Result], guess: float | None) -> go.Figure:
        gain = speedup(found[1], found[0]) if len(found) == 2 else None
        reported = self.reported_pairs()
        return speculation.speedups(
            [("here", None, gain), *((name, None, None) for name, _ in reported)],
            reported=reported,
            guess=guess,
            guess_at="here",
            title="Speed-up per token with all changes",
        )

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines: list[Line] = []
        found = present(results, self.names)
        for r in found:
            latencies = [row["latency_s"] for row in r.used]
            half = median_interval(latencies, [row["repeat"] for row in r.used], seed=self.params.seed)
            slow = at_rank(latencies, 0.95)
            of = f"this lab: {len(latencies)} requests of arm {r.name}"
            tokens = sum(row["output_tokens"] for row in r.used) / len(r.used)
            lines += [
                (f"TPOT, {r.name}", r.tpot, r.arm.title),
                (f"TTFT, {r.name}", r.ttft, ""),
                (f"latency P50, {r.name}", measured(half.value, "s", of, half.low, half.high), "to the last token"),
                (f"latency P95, {r.name}", measured(slow, "s", of), f"of {len(latencies)} requests"),
                (f"mean output, {r.name}", measured(tokens, "tok", of), ""),
            ]
            if r.accept is not None:
                lines.append((f"accept length, {r.name}", r.accept, ""))
        if len(found) == 2:
            gain = speedup(found[1], found[0])
            lines.append(("speed-up per token", gain, ""))
            if self.guessed is not None:
                lines.append(("your guess of the speed-up", f"{self.guessed:g}", f"measured {gain.value:.2f}"))
        return lines or [("nothing measured yet", "", "press Run")]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        if len(present(results, self.names)) < 2:
            return []
        return [
            "TPOT, throughput and latency are three numbers: latency also holds TTFT and the length of the answer,"
            " which may differ between the arms.",
            "Whether the answers are as good is not shown here: that takes the same questions with known answers on"
            " both arms and a paired test.",
        ]
