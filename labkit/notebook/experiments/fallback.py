"""06: the draft shares the head's tensor but not its scales: no error anywhere, and how to catch it all the same."""

import re
from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.checks import judged
from labkit.engines import ladder
from labkit.evidence import Evidence, derived
from labkit.figures import decode, runs, speculation
from labkit.measure.estimates import NOTHING_ACCEPTED
from labkit.measure.results import Arm, Result, cost, count, speedup
from labkit.notebook.experiment import Experiment
from labkit.notebook.reading import NOTHING, accepted, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import Guess
from labkit.roofline import speculation as formulas

COMPLAINTS = "complaints in the broken engine's log"
_COMPLAINT = re.compile(r"\b(error|warning|traceback|critical)\b", re.IGNORECASE)


class Fallback(Experiment):
    """Plain decoding, healthy drafting, and drafting with the head shared as a bare tensor (a fault set here)."""

    name = "06_silent_fallback"
    guess = Guess(
        "The draft reads the FP8 head wrongly. What accept length will the engine report?",
        "tokens",
        1,
        17,
        0.05,
        2.0,
        "The drafts of {arm} are useless, and nothing says so. What accept length will the engine report?",
    )
    case = (
        "The text describes a draft that shares an FP8 head without its scales; the same two checks catch any drafting"
        " that does not work."
    )

    about = ladder.FAULT

    @property
    def three(self) -> tuple[ladder.Arm, ladder.Arm, ladder.Arm]:
        """Plain decoding, drafting in health, and the arm that is broken on purpose. Raises BadInput without them."""
        broken = self.subject
        healthy = self.before(broken)
        return self.before(healthy), healthy, broken

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.three]

    def arms(self) -> list[Arm]:
        return [self.arm(a) for a in self.three]

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.complaints: list[str] | None = None  # what the broken engine's log says of a problem; None: not read

    def after(self, pool) -> None:
        """Read the broken engine's log, so that "logged no error" is looked up and not believed."""
        engine = pool.get(self.arms()[2].config)
        if hasattr(engine, "tail"):
            self.complaints = [line for line in engine.tail(10_000) if _COMPLAINT.search(line)]

    def extra(self) -> dict:
        return {} if self.complaints is None else {COMPLAINTS: self.complaints}

    def restore(self, summary: Mapping[str, object]) -> None:
        self.complaints = summary.get(COMPLAINTS)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        none = derived(
            1.0, "1", "0 accepted drafts + 1 bonus token", (count(0, "1", "accepted"), count(1, "1", "bonus token"))
        )
        lines: list[Line] = [
            ("accept length if no draft is ever accepted", none, "each round still yields its bonus token")
        ]
        plain, healthy, broken = self.three
        if a := self.reported(broken, "accept_length"):
            lines.append((f"{self.reported_on}: a", a, "the same fault"))
        if speed := self.reported(broken, "decode"):
            lines.append((f"{self.reported_on}: speed", speed, "baseline there: 37.8 tok/s (GSM8K)"))
        tpot, c = self.reported(plain), self.reported(healthy, "verify_cost_ratio")
        if tpot and c:
            there = (1 / formulas.fallback_tpot(tpot, c)).to("tok/s")
            lines.append(("speed that c predicts there", there, "from the synthetic load's c and TPOT: another load"))
        pair = present(results, self.names[:2])
        if len(pair) == 2:
            c = cost(pair[1], pair[0])
            lines += [
                ("c of a healthy round", c, ""),
                (
                    "TPOT predicted at a = 1",
                    formulas.fallback_tpot(pair[0].tpot, c),
                    "every round costs c and yields one token",
                ),
            ]
        return lines

    def predicted(self, results: Mapping[str, Result]) -> Evidence | None:
        """TPOT of the broken arm, from the arms before it: as a walk said it beforehand, else from this measurement."""
        said = self.foreseen.get(self.said_of(self.arm(self.subject)))
        if said is not None:
            return said.best
        pair = present(results, self.names[:2])
        return formulas.fallback_tpot(pair[0].tpot, cost(pair[1], pair[0])) if len(pair) == 2 else None

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, self.names)
        drafting = [r for r in found if r.accept is not None]
        predicted = self.predicted(results)
        base = present(results, self.names[:1])
        return [
            decode.tpot(
                [(r.name, r.tpot) for r in found],
                predicted=[(self.names[2], predicted)] if predicted else [],
                arms=self.names,
            ),
            speculation.ac_plane([(r.name, r.accept, cost(r, base[0])) for r in drafting], guess=guess)
            if drafting and base
            else waiting("Yield a over cost c"),
            accepted(drafting),
            runs.run_order({r.name: r.rows for r in found}) if found else waiting("Every request in the order it ran"),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        found = present(results, self.names)
        lines: list[Line] = []
        for r in found:
            lines.append((f"TPOT, {r.name}", r.tpot, r.arm.title))
            if r.accept is not None:
                lines.append((f"accept length, {r.name}", r.accept, "tokens per verify step, prefill's left out"))
        if self.guessed is not None and len(found) == 3:
            lines.append(
                ("your guess of the accept length", f"{self.guessed:g}", f"measured {found[2].accept.value:.2f}")
            )
        predicted = self.predicted(results)
        if predicted is not None and len(found) == 3:
            off = predicted.value / found[2].tpot.value - 1
            lines.append(("TPOT predicted at a = 1", predicted, f"{off:+.1%} against measured"))
        lines += self.checks(results)
        return lines or [NOTHING]

    def checks(self, results: Mapping[str, Result]) -> list[tuple[str, str, str]]:
        """The two signs that catch the fault without an error message, for the healthy and the broken arm: (check,
        passes, fails or not shown, why). An interval that holds the limit shows neither."""
        found = present(results, self.names)
        if len(found) < 3:
            return []
        out = []
        for r in found[1:]:
            gain = speedup(r, found[0])
            out += [
                (
                    f"accept length above {NOTHING_ACCEPTED}, {r.name}",
                    _says(r.accept, NOTHING_ACCEPTED),
                    f"a = {r.accept.quantity()}",
                ),
                (f"faster than without drafting, {r.name}", _says(gain, 1.0), f"{gain.quantity()} times plain"),
            ]
        return out

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        checks = self.checks(results)
        if not checks:
            return []
        healthy, broken = checks[:2], checks[2:]
        caught = [c for c, says, _ in broken if says == "fails"]
        false = [c for c, says, _ in healthy if says != "passes"]
        sick = present(results, self.names)[2]
        failed = sum(r["status"] == "error" for r in sick.rows)
        out = [
            f"The broken engine started and answered {len(sick.rows) - failed} of {len(sick.rows)} requests without an"
            f" error{self._logged()}. It still says of itself: speculative_algorithm"
            f" {sick.info.get('speculative_algorithm')!r}.",
            f"Caught by: {'; '.join(caught)}." if caught else "Not caught: neither check shows the fault on this load.",
        ]
        if false:
            out.append(f"The healthy arm does not pass: {'; '.join(false)}. On this load that check proves nothing.")
        if self.published:
            out.append(
                "An accept length of 1.00 names the symptom, not the cause: a wrong head, a wrong draft layer and a"
                " wrong position look alike. The cause is found by comparing how the draft reads the head."
            )
        else:
            out.append("An accept length of 1.00 names the symptom, not the cause: different faults look alike in it.")
        found = present(results, self.names)
        return out + judged.step(found[2], found[0], expect=ladder.FAULT, checks=judged.configuration(found[2])).lines()

    def certain(self, results: Mapping[str, Result]) -> list[str]:
        """The accept length is counted, not timed."""
        drafting = [r for r in present(results, self.names) if r.accept is not None]
        counted = [f"{r.name}: a = {r.accept.quantity()}, by the engine's own counts." for r in drafting]
        return [*counted, *super().certain(results)]

    def _logged(self) -> str:
        if self.complaints is None:
            return ""
        if not self.complaints:
            return ", and its log holds no line with error or warning"
        return f"; its log holds {len(self.complaints)} lines with error or warning, the first: {self.complaints[0]}"


def _says(value: Evidence, limit: float) -> str:
    return "passes" if value.above(limit) else "fails" if value.below(limit) else "not shown"
