"""07: the same changes on a load made for timing and on one that looks like use: what is left of the gain, and why."""

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from labkit import workloads
from labkit.engines import ladder
from labkit.engines.config import Speculative
from labkit.errors import BadInput
from labkit.evidence import Evidence
from labkit.fields import Text, check, whole
from labkit.figures import decode, runs
from labkit.figures import gains as draw
from labkit.measure import experts, gain
from labkit.measure.gain import Gains, Split
from labkit.measure.plan import Block, alternate
from labkit.measure.prompts import prompts_of
from labkit.measure.results import Arm, Result
from labkit.notebook.experiment import Experiment
from labkit.notebook.experiments import real_answers, real_lines, real_published
from labkit.notebook.experiments.real_answers import GREEDY, QUESTIONS, REAL, SAMPLED, TIMING, label, on
from labkit.notebook.reading import NOTHING, accepted, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import COUNT, REPEATS, WORKLOAD, Guess, Setting

EXPERTS = "distinct experts"
# Sampling that draws what greedy decoding takes: all of its work is done, and the accept length stays what it was.
COLD = {"temperature": 0.001, "top_p": 0.95}
PROMPTS = 6  # prompts of that pair at most
QUESTION_COUNT = Setting(
    "questions", "questions", "int", "Questions with known answers, each asked once of every arm; 0: none.", 0, 1319
)


class RealLoad(Experiment):
    """Three arms (the first, the last, and the one before it) on four loads, pass by pass in turns.

    timing     a load made for timing: `timing_workload`, `timing_tokens` tokens of output
    real       `workload`, of the model's own length
    greedy     the real load's prompts, decoded greedily
    sampled as greedy   the same, sampled at so low a temperature that the text stays the same
    questions  `question_workload`, one pass: accuracy
    """

    name = "07_real_load"
    guess = Guess("How many times faster will decoding be with all changes on this load?", "times", 0.1, 20, 0.05, 1.0)
    case = (
        "The text describes the published changes and what they brought on two loads; the method is that of any ladder."
    )
    settings = (WORKLOAD, COUNT, REPEATS, QUESTION_COUNT)
    own = ("questions",)

    def __init__(self, **parameters):
        self.timing_workload = check(Text, "timing_workload", parameters.pop("timing_workload", "repetitive"))
        self.timing_tokens = check(whole(16, 1 << 20), "timing_tokens", parameters.pop("timing_tokens", 128))
        self.question_workload = check(
            Text, "question_workload", parameters.pop("question_workload", "word-problems-sampled")
        )
        loads = {n: getattr(self, n) for n in ("timing_workload", "timing_tokens", "question_workload")}
        super().__init__(**{"questions": 60, **parameters})
        for name in ("timing_workload", "question_workload") if self.record is None else ():
            try:
                workloads.check(loads[name])
            except BadInput as e:
                raise BadInput(name, loads[name], e.accepted) from None
        self.given |= loads
        self.counted: dict[str, dict[int, Evidence]] = {}  # by load

    # --- arms ------------------------------------------------------------------------------------------------------

    def _subject(self) -> ladder.Arm:
        """The arm with all changes: the last that is not broken on purpose, where `arm` names none."""
        return super()._subject() if self.params.arm else ladder.choose(self.ladder)[-1]

    @property
    def ends(self) -> list[ladder.Arm]:
        """The first arm, the one before the subject, and the subject; two arms where those are one. Raises BadInput for
        a ladder of one arm."""
        if self.subject == self.ladder[0]:
            raise BadInput("arm", self.subject.name, "an arm that changes another one")
        return list({a.name: a for a in (self.ladder[0], self.before(self.subject), self.subject)}.values())

    def instead(self) -> list[str]:
        out = super().instead()
        return [*out, "Compared on both loads: " + ", ".join(a.name for a in self.ends) + "."] if out else out

    def loads(self) -> dict[str, dict]:
        """What each load changes in the parameters, by its name."""
        few = min(self.values["count"], PROMPTS)
        out = {
            TIMING: {"workload": self.timing_workload, "output_tokens": self.timing_tokens},
            REAL: {"output_tokens": None},
            GREEDY: {"output_tokens": None, "count": few, "sampling": {"temperature": 0.0}},
            SAMPLED: {"output_tokens": None, "count": few, "sampling": COLD},
        }
        if self.values["questions"]:
            asked = {"count": self.values["questions"], "repeats": 1, "workload": self.question_workload}
            out[QUESTIONS] = {"output_tokens": None, **asked}
        return out

    def arms(self) -> list[Arm]:
        return [
            self.arm(
                replace(a, name=on(a.name, load), title=f"{a.title}; {load}", before=a.before and on(a.before, load)),
                **changes,
            )
            for load, changes in self.loads().items()
            for a in self.ends
        ]

    def order(self, blocks: list[Block]) -> list[Block]:
        return alternate(blocks)

    def gains(self, results: Mapping[str, Result], load: str) -> Gains | None:
        """The arms of one load; None until all are measured."""
        found = present(results, [on(a.name, load) for a in self.ends])
        return Gains(found[0], found[-2], found[-1]) if len(found) == len(self.ends) else None

    # --- experts ---------------------------------------------------------------------------------------------------

    def after(self, pool) -> None:
        """Count the experts that the drafting arm really uses on either load, once the timing is over."""
        for load in (TIMING, REAL):
            arm = next(a for a in self.arms() if a.name == on(self.subject.name, load))
            engine = pool.get(arm.config)
            if engine is not None and engine.dialect.counts_experts and arm.config.speculative is not None:
                self.counted[load] = experts.count(engine.url, prompts_of(arm.params)[:3], api_key=engine.api_key)

    def extra(self) -> dict:
        counted = {load: {str(m): e.as_dict() for m, e in found.items()} for load, found in self.counted.items()}
        return {EXPERTS: counted} if counted else {}

    def restore(self, summary: Mapping[str, object]) -> None:
        for load, found in summary.get(EXPERTS, {}).items():
            self.counted[load] = {int(m): Evidence.from_dict(e) for m, e in found.items()}

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> list[str]:
        """What the parts of the gain are called on the axis of the figures."""
        names = [a.name for a in self.ends]
        middle = [f"{names[1]} over {names[0]}"] if len(names) > 2 else []
        return [*middle, f"{names[-1]} over {names[-2]}", *([f"{names[-1]} over {names[0]}"] if middle else [])]

    def sampling(self, results: Mapping[str, Result]) -> dict[str, tuple[Result, Result]]:
        """(greedy, sampled on the same text) of the arms whose pass is a plain step and a round, where measured."""
        greedy, cold = (self.gains(results, load) for load in (GREEDY, SAMPLED))
        if greedy is None or cold is None:
            return {}
        return {"plain step": (greedy.middle, cold.middle), "round": (greedy.last, cold.last)}

    def sampling_ratios(self, results: Mapping[str, Result]) -> dict[str, Evidence]:
        """Time sampled over time greedy, of a plain step and of a round, at the same text."""
        return {name: gain.pass_ratio(cold, greedy) for name, (greedy, cold) in self.sampling(results).items()}

    def split(self, g: Gains) -> Split | None:
        return gain.split(g.last, g.first, model=self.model) if self.shape_known else None

    def published_runs(self) -> real_published.Published | None:
        return real_published.published([self.reported(a) for a in self.ends], self.subject.reported)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        found = self.published_runs()
        return found.lines() if found else []

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        made, real = (self.gains(results, load) for load in (TIMING, REAL))
        both = {label(load): g for load, g in ((TIMING, made), (REAL, real)) if g}
        found = present(results, [on(a.name, REAL) for a in self.ends])
        by_question = {r.arm.name.removesuffix(f" on {REAL}"): real_answers.by_question(r) for r in found}
        asked = self.asked(results)
        return [
            self._by_load(both, guess) if both else waiting("The same changes on two loads"),
            draw.lost((label(TIMING), made.whole), self.lost(results), (label(REAL), real.whole))
            if made and real
            else waiting("Where the gain goes"),
            self._splits(both),
            self._sampling(results),
            accepted([g.last for g in (made, real) if g is not None and g.last.accept is not None]),
            self._experts(bool(both)),
            runs.latency_ecdf([(n, [q["latency_s"] for q in qs]) for n, qs in by_question.items()])
            if by_question
            else waiting("End-to-end latency"),
            draw.accuracy(
                [(n, share) for n, rows in asked.items() if (share := real_answers.share(n, rows)) is not None]
            )
            if asked
            else waiting("Accuracy on the same questions"),
        ]

    def lost(self, results: Mapping[str, Result]) -> list[tuple[str, Evidence]]:
        """The factors between the gain on the timing load and on the real one; [] until both are measured."""
        made, real = (self.gains(results, load) for load in (TIMING, REAL))
        if made is None or real is None:
            return []
        own = self.sampling_ratios(results)
        sampled = any(row.get("temperature") for row in real.last.used)
        return gain.lost(real, made, own["round"] / own["plain step"] if own and sampled else None)

    def asked(self, results: Mapping[str, Result]) -> dict[str, list[dict]]:
        """By arm: one answer to each question of the accuracy load."""
        found = present(results, [on(a.name, QUESTIONS) for a in self.ends])
        rows = {r.name.removesuffix(f" on {QUESTIONS}"): real_answers.one_pass(r) for r in found}
        return {n: mine for n, mine in rows.items() if mine}

    def _by_load(self, both: Mapping[str, Gains], guess: float | None) -> go.Figure:
        def named(g: Gains) -> list[tuple[str, Evidence]]:
            known = [g.rungs, g.final, g.whole] if g.rungs is not None else [g.final]
            return list(zip(self.parts, known, strict=True))

        found = self.published_runs()
        return draw.by_load(
            {load: named(g) for load, g in both.items()},
            found.gains(self.parts) if found else {},
            order=self.parts,
            guess=None if guess is None else (self.parts[-1], guess),
        )

    def _splits(self, both: Mapping[str, Gains]) -> go.Figure:
        title = "Each gain: fewer bytes x more bandwidth"
        mine = [(load, s) for load, g in both.items() if (s := self.split(g)) is not None]
        if not mine:
            if any(not gain.one_size(g.last) for g in both.values()):
                why = "Rounds differ in their number of drafts, so none stands for all in bytes."
            else:
                why = decode.NOT_YET if self.shape_known else "The bytes of this model are not known."
            return waiting(title, why)
        found = self.published_runs()
        return draw.splits(
            [(n, s.fewer_bytes, s.more_bandwidth) for n, s in [*mine, *(found.splits() if found else [])]], title=title
        )

    def _sampling(self, results: Mapping[str, Result]) -> go.Figure:
        title = "What sampling itself costs: the same text, greedy and sampled"
        pairs = [(n, *(r.pass_s for r in sides)) for n, sides in self.sampling(results).items()]
        return (
            draw.paired_times(pairs, (GREEDY, SAMPLED), title=title, y="ms per step or round")
            if pairs
            else waiting(title)
        )

    def _experts(self, asked: bool) -> go.Figure:
        expected, title = self.expected_experts(), "Distinct experts per layer"
        if self.shape_known and not expected:
            return waiting(title, "This model has no routed experts.")
        if not expected or not self.counted:
            untold = "Not counted: the engine does not report its experts."
            return waiting(title) if expected and not asked else waiting(title, untold)
        return draw.experts(expected, {label(load): found for load, found in self.counted.items()})

    def expected_experts(self) -> list[tuple[int, Evidence]]:
        """(positions, distinct experts that independent choices would use); [] for a model without routed experts."""
        return self.distinct_experts(_positions(self.subject.config.speculative))

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        return real_lines.findings(self, results) or [NOTHING]

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        return real_lines.verdict(self, results)

    def warnings(self, results: Mapping[str, Result]) -> list[str]:
        """Questions are asked once, so no interval over repeats is expected of them; a doubt about many arms is one
        sentence."""
        timed = {n: r for n, r in results.items() if not n.endswith(f" on {QUESTIONS}")}
        return [*real_answers.grouped(super().warnings(timed)), *real_answers.warnings(self.asked(results))]


def _positions(s: Speculative | None) -> int:
    return s.verified if s is not None else 1
