"""02: what one token costs before anything is tuned, beside the bytes that it has to read."""

from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.evidence import Evidence
from labkit.figures import decode, passes, runs
from labkit.measure import steps
from labkit.measure.results import Arm, Result
from labkit.notebook.experiment import Experiment
from labkit.notebook.reading import NOTHING, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess
from labkit.roofline import floors


class Baseline(Experiment):
    """An arm that nothing is expected of: time per token, effective bandwidth and utilisation beside the account."""

    name = "02_baseline"
    foretells = True
    guess = Guess("How many milliseconds will one output token take?", "ms", 0.01, 10_000, 0.05, 1.0)

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self._models: dict[str, steps.Model | None] = {}  # by setting of the arm

    def arms(self) -> list[Arm]:
        return [self.arm(self.subject)]

    def account(self, results: Mapping[str, Result]):
        """The step's bytes at the present context; None where the model's config is not here (an attached server)."""
        return self.account_of(self.subject.config, context=self.context(results)) if self.shape_known else None

    def floor(self, results: Mapping[str, Result]) -> Evidence | None:
        """Seconds below which no token can go on this machine."""
        account = self.account(results)
        return None if account is None else floors.floor_s(account.evidence(), self.bandwidth)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        account = self.account(results)
        if account is None:
            return [("bytes of a step", "not known", "the config.json of an attached server's model is not available")]
        largest = max(account.groups, key=lambda g: g.total_bytes)
        share = 100 * largest.total_bytes / account.total_bytes
        return [
            ("bytes of one step", account.evidence(), f"largest part: {largest.name}, {share:.0f}%"),
            ("memory sustains", self.bandwidth, "the most that decoding can use"),
            ("byte floor", self.floor(results), "no token can take less time than its bytes"),
            *self._said(results),
            *self.reported_lines(),
        ]

    def _said(self, results: Mapping[str, Result]) -> list[Line]:
        """The time per token by both roofs, where the engine's parts could be probed; with its error once measured."""
        said = self.foresee(self.arms()[0], self.context(results))
        if said is None:
            return []
        found = present(results, [a.name for a in self.arms()])
        error = f"; error {said.error(found[0]):+.1%}" if found else ""
        return [("TPOT by both roofs", said.best, f"{said.why}{error}")]

    def reported_lines(self) -> list[Line]:
        """The published figure of this arm beside it."""
        found = self.reported(self.subject)
        remark = "Ling-3.0-flash, 32K: another machine and model: a comparison, not a prediction"
        return [(self.reported_on, found, remark)] if found else []

    def floors_of(self, results: Mapping[str, Result]) -> list[tuple[Result, Evidence]]:
        found = present(results, [a.name for a in self.arms()])
        return [(found[0], self.floor(results))] if found and self.account(results) else []

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found, account = present(results, [a.name for a in self.arms()]), self.account(results)
        out = [
            decode.tpot(
                [(r.name, r.tpot) for r in found],
                floors=[(self.arms()[0].name, self.floor(results))] if account else [],
                guess_s=None if guess is None else guess / 1e3,
                arms=[a.name for a in self.arms()],
            )
        ]
        if account:
            out += [decode.account_bars(account), self._parts(results) or self._roofline(found)]
        return [*out, runs.run_order({r.name: r.rows for r in found}) if found else waiting("Every request in order")]

    def _roofline(self, found: list[Result]) -> go.Figure:
        if not found:
            return waiting("Roofline")
        active = self.active_parameters()
        account = self.account_of(found[0].arm.config, context=found[0].context).evidence()
        # Two FLOP for each parameter and token.
        points = [(r.name, floors.intensity(active, account), _flops(active, r.tpot)) for r in found]
        return decode.roofline(points, self.bandwidth)

    def _parts(self, results: Mapping[str, Result]) -> go.Figure | None:
        """Every part of a step under two roofs; None where nobody here can probe the engine's parts."""
        if self.record is not None or self.machine != "this":
            return None
        arm = self.arms()[0]
        if arm.setting not in self._models:  # once: figures are drawn again and again while requests are measured
            self._models[arm.setting] = steps.model_for(arm.params)
        if (model := self._models[arm.setting]) is None:
            return None
        rates = {name: max(by.values()) for name, by in model.rates.operations_s().items()}
        plain = model.plain(self.context(results))
        title = "Roofline: two roofs, and every part of a step"
        return passes.roofs(plain, model.rates.bandwidth, rates, title=title)

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        found = present(results, [a.name for a in self.arms()])
        if not found:
            return [NOTHING]
        r = found[0]
        tpot = r.estimates.tpot
        lines: list[Line] = [
            (
                "TPOT",
                r.tpot,
                f"median of {tpot.count} requests in {tpot.repeats} repeats; repeats differ by {tpot.spread:.1%}",
            ),
            *self.guess_line(r),
            ("decode throughput", r.throughput, "all requests together"),
            ("TTFT", r.ttft, f"prompts of {_lengths(r)} tokens"),
        ]
        account = self.account(results)
        if account:
            step, floor = account.evidence(), self.floor(results)
            lines += [
                ("bytes of one step", step, f"at {r.context} tokens of context"),
                ("memory sustains", self.bandwidth, ""),
                ("byte floor", floor, ""),
                ("TPOT over floor", r.tpot / floor, "1 would mean that reading memory takes all the time"),
                ("effective bandwidth", floors.effective_bandwidth(step, r.tpot), "counted bytes over time"),
                ("utilisation U", floors.utilisation(step, r.tpot, self.bandwidth), "of what memory sustained"),
                *self._said(results),
            ]
        lines += self.reported_lines()
        plain = r.accept is None
        lines.append(("accept length", "n/a" if plain else r.accept, "plain decoding has no drafts" if plain else ""))
        return lines

    def guess_line(self, r: Result) -> list[Line]:
        """The reader's guess beside the measured value."""
        if self.guessed is None:
            return []
        return [
            ("your guess", f"{self.guessed:g} ms", f"measured: {r.tpot.to('ms').value / self.guessed:.2f} times that")
        ]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        found, account = present(results, [a.name for a in self.arms()]), self.account(results)
        if not found or account is None:
            return []
        r = found[0]
        over = r.tpot.value / self.floor(results).si
        if over < 1:
            return self.impossible(results)
        return [
            f"A token takes {over:.2f} times as long as reading its bytes at this machine's sustained bandwidth. The"
            " rest is work that bytes do not explain: arithmetic on packed numbers, small kernels, waiting.",
            "Effective bandwidth is an estimate (counted bytes over time), not a reading of a hardware counter.",
            "This says nothing about other loads, other machines or larger batches.",
        ]


def _flops(active: Evidence, tpot: Evidence) -> Evidence:
    """FLOP/s: two FLOP for each active parameter, over the time of a token."""
    from labkit.evidence import derived

    work = derived(2 * active.value, "FLOP", "2 FLOP * active parameters", (active,))
    return work / tpot


def _lengths(r: Result) -> str:
    lengths = sorted({row["prompt_tokens"] for row in r.used})
    return str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
