"""What a notebook's experiment is: its settings, what it measures, what it predicts, and how it reads the results."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from labkit import catalog, workloads
from labkit.engines import ladder
from labkit.engines.adapter import not_in_effect
from labkit.engines.config import EngineConfig, Speculative
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived
from labkit.fields import Text, check
from labkit.measure import machine
from labkit.measure.plan import Block
from labkit.measure.results import Arm, Result, count
from labkit.notebook.foretold import Foretelling
from labkit.notebook.reading import apart, present
from labkit.notebook.render import Line
from labkit.notebook.settings import LOAD_SETTINGS, WORKLOAD, Guess, Setting, checked
from labkit.params import Params, load_params
from labkit.roofline.architectures import shape_of
from labkit.roofline.speculation import expected_distinct_experts

if TYPE_CHECKING:
    from labkit.roofline.account import Account


class Experiment(Foretelling):
    """Base of the notebooks' experiments. A subclass says what is special about it and nothing about widgets.

    parameters: what the notebook's parameters cell gave, by name: the fields of labkit.params.Params, `own` names,
    `machine`, `record` (a finished record to read instead of measuring) and `guess` (None: no guess). Raises BadInput
    for anything that does not fit.
    about: what the arm of this notebook should do (labkit.engines.ladder.EXPECT), where `arm` does not name it.
    """

    name = ""
    about = ladder.NOTHING
    guess: Guess | None = None
    case = ""  # the published change that the notebook's text describes, and what of it holds for any other
    settings: tuple[Setting, ...] = LOAD_SETTINGS
    own: tuple[str, ...] = ()  # settings that are no fields of Params

    def __init__(self, **parameters: Any):
        super().__init__()
        self.given = dict(parameters)
        self.machine = parameters.pop("machine", "this")
        self.record = check(Text | None, "record", parameters.pop("record", None))
        guess = parameters.pop("guess", None)
        own = {name: parameters.pop(name) for name in self.own if name in parameters}
        self.params = load_params(parameters)
        if self.record is None:
            workloads.check(self.params.workload)
        self.ladder = self.params.ladder()
        self.subject = self._subject()
        if self.guess is not None and self.guess.elsewhere and not self.published:
            self.guess = replace(self.guess, question=self.guess.elsewhere.format(arm=self.subject.name))
        self.guessed = self.guess.check(guess) if self.guess is not None else None
        everything = {n: getattr(self.params, n) for n in Params.model_fields} | self.own_values(own)
        self.settings = self.offers()
        everything = {s.name: everything[s.name] for s in self.settings if s.name in everything}
        self.values = checked(self._offered(everything), everything)

    def _subject(self) -> ladder.Arm:
        """The arm that the notebook is about."""
        return ladder.get(self.ladder, self.params.arm) if self.params.arm else ladder.first(self.ladder, self.about)

    @property
    def published(self) -> bool:
        """Whether the arm is the published change or its counterpart, so that the notebook's text is about it."""
        return self.subject.reported is not None

    def instead(self) -> list[str]:
        """What this ladder has in the place of the published change, in sentences; [] where it has that."""
        if self.published or not self.case:
            return []
        arm, before = self.subject, ladder.reference(self.ladder, self.subject)
        changes = f'; the arm that it changes is {before.name} ("{before.title}")' if before is not None else ""
        return [f'{self.case} On this ladder the arm under test is {arm.name} ("{arm.title}"){changes}.']

    def before(self, arm: ladder.Arm) -> ladder.Arm:
        """The arm that this one changes. Raises BadInput for the first one, which changes none."""
        found = ladder.reference(self.ladder, arm)
        if found is None:
            raise BadInput("arm", arm.name, "an arm that changes another one")
        return found

    def own_values(self, given: dict[str, object]) -> dict[str, object]:
        """The values of `own` settings as they start; a notebook may fill in what was not given."""
        return given

    def offers(self) -> tuple[Setting, ...]:
        """The settings of this notebook on this engine."""
        return self.settings

    def offer(self, name: str, value: str) -> None:
        """One more choice of a menu."""
        self.settings = tuple(
            replace(s, choices=(*s.choices, value)) if s.name == name and value not in s.choices else s
            for s in self.settings
        )

    def changed(self, arm: ladder.Arm) -> list[str]:
        """Fields of the engine's configuration that an arm sets otherwise than the engine section."""
        mine, section = arm.config.given(), self.params.engine.given()
        return [n for n in {**mine, **section} if mine.get(n) != section.get(n)]

    def _offered(self, values: Mapping[str, object]) -> tuple[Setting, ...]:
        """Settings with the ranges widened to what the parameters say: a file:PATH load is no choice of the menu, and
        an empty output length has no slider."""
        out = []
        for s in self.settings:
            v = values.get(s.name)
            if s.kind == "choice" and isinstance(v, str) and v not in s.choices and s is WORKLOAD:
                s = Setting(s.name, s.label, s.kind, s.tip, choices=(*s.choices, v), restarts=s.restarts)
            elif v is None:
                continue
            elif s in LOAD_SETTINGS and isinstance(v, (int, float)) and not s.low <= v <= s.high:
                # labkit.params has checked it; the slider starts where the parameters say.
                s = Setting(s.name, s.label, s.kind, s.tip, min(s.low, v), max(s.high, v), s.step, restarts=s.restarts)
            out.append(s)
        self.settings = tuple(out)
        return self.settings

    # --- what a subclass says ------------------------------------------------------------------------------------

    def arms(self) -> list[Arm]:
        """What Run measures at the present values."""
        raise TypeError(f"{type(self).__name__} measures nothing")

    def sweep(self) -> list[Arm]:
        """What Sweep measures: the whole curve. Empty where there is no sweep."""
        return []

    def axes(self) -> tuple[Setting, ...]:
        """Settings of which a grid may vary any two; empty where a notebook has no grid."""
        return ()

    def point(self, values: Mapping[str, object]) -> tuple[Arm, Arm]:
        """The reference and the arm at these values of axes, all else as the sliders have it. Raises BadInput where the
        engine would refuse or rewrite them."""
        raise TypeError(f"{type(self).__name__} has no grid")

    def order(self, blocks: list[Block]) -> list[Block]:
        """The blocks of a plan in the order in which they are measured."""
        return blocks

    def after(self, pool) -> None:
        """Whatever is asked of the running engines once a measurement has ended (labkit.measure.pool.Pool)."""

    def after_seconds(self) -> float:
        """How long `after` will take, for the time that is predicted before a run."""
        return 0.0

    def floors_of(self, results: Mapping[str, Result]) -> list[tuple[Result, Evidence]]:
        """Measured arms with the byte floor of each, where the account is known."""
        return []

    def impossible(self, results: Mapping[str, Result]) -> list[str]:
        """A sentence for each arm that was faster than its floor."""
        return [
            f"{r.name}: TPOT is {r.tpot.value / floor.si:.2f} of its byte floor, which is impossible: the account"
            " counts bytes that came from a cache or were never read, or the bandwidth was measured too low (`labkit"
            " doctor --fresh` measures it again; then restart the kernel). Neither U nor the floor can be trusted here."
            for r, floor in self.floors_of(results)
            if r.tpot.value < floor.si
        ]

    def distinct_experts(self, most: int) -> list[tuple[int, Evidence]]:
        """(positions, distinct experts of a layer that independent choices would use), 1 to `most` positions; [] for a
        model without routed experts."""
        shape = shape_of(catalog.load_config(self.model)) if self.shape_known else None
        if shape is None or not shape.experts:
            return []
        n, k = shape.experts, shape.top_k
        inputs = (count(n, "expert", "experts"), count(k, "expert", "experts per token"))
        expected = ((m, expected_distinct_experts(n, k, m)) for m in range(1, most + 1))
        return [(m, derived(value, "1", "N (1 - (1 - k/N)^m)", inputs)) for m, value in expected]

    def look_again(self, results: Mapping[str, Result]) -> bool:
        """After a run, with nothing else going on: a time below its floor asks for another look at the memory."""
        needed = self.machine == "this" and bool(self.impossible(results))
        if needed:
            machine.look_again(self.params.engine.threads or 1)
        return needed

    def extra(self) -> dict:
        """What `after` found, JSON-ready, for the record's summary."""
        return {}

    def restore(self, summary: Mapping[str, object]) -> None:
        """Take back from a record's summary what `after` found for it."""

    def remarks(self) -> list[str]:
        """What the present settings mean where a slider alone would mislead."""
        return []

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        """What is expected, from bytes and from reference arms, never from the arm that it is about."""
        return []

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        """The same number of figures whatever has been measured so far."""
        return []

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        """The measured numbers beside predicted and reported ones."""
        return []

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        """What this does and does not show, in sentences with its numbers."""
        return []

    def certain(self, results: Mapping[str, Result]) -> list[str]:
        """What can be said although times are unstable: sentences that rest on counts or on bytes alone."""
        return self.impossible(results)

    # --- what they share -------------------------------------------------------------------------------------------

    def arm(self, arm: ladder.Arm, **changes: object) -> Arm:
        """An arm of the ladder at the present values of the load's settings."""
        own = {n: self.values[n] for n in ("workload", "output_tokens", "count", "repeats") if n in self.values}
        # The arm says it all: its parameters hold no ladder beside it.
        params = self.params.replace(engine=arm.config, arms=None, arm=None, only=(), **{**own, **changes})
        return Arm(arm.name, arm.title, arm.config, params, arm.expect, arm.before)

    def context(self, results: Mapping[str, Result]) -> int:
        """Tokens of context that accounts count: as measured where an arm of Run is, else as the load has them."""
        arms = self.arms()
        found = present(results, [a.name for a in arms])
        return found[0].context if found else arms[0].params.context

    def reported(self, arm: ladder.Arm, metric: str = "tpot") -> Evidence | None:
        """The published figure beside an arm, None where its ladder names none."""
        found = catalog.result(arm.reported).metrics.get(metric) if arm.reported else None
        return found

    def reported_gain(self, fast: ladder.Arm, slow: ladder.Arm) -> Evidence | None:
        """The published speed-up between two arms, from the two times that were reported."""
        times = [self.reported(a) for a in (slow, fast)]
        return times[0] / times[1] if all(times) else None

    @property
    def reported_on(self) -> str:
        """Where the published figures beside this ladder come from."""
        published = next((a.reported for a in self.ladder if a.reported), None)
        return f"reported on {catalog.machine(catalog.result(published).machine).name}" if published else ""

    @property
    def shape_known(self) -> bool:
        """Whether bytes can be counted (labkit.measure.machine.shape_known)."""
        return machine.shape_known(self.params.engine)

    @property
    def model(self) -> str:
        """Where the model's config.json is, for the accounts (labkit.measure.machine.model_of)."""
        return machine.model_of(self.params)

    def account_of(self, config: EngineConfig, *, context: int) -> "Account":
        """Bytes of one step under a configuration of this model."""
        return machine.account(config, context=context, model=self.model)

    def byte_cost(self, config: EngineConfig, drafting: Speculative, *, context: int) -> Evidence:
        """c by bytes alone, on a configuration that does not draft."""
        return machine.byte_cost(config, drafting, context=context, model=self.model)

    def active_parameters(self) -> Evidence:
        """Parameters that one token uses."""
        return machine.active_parameters(self.model)

    @property
    def bandwidth(self) -> Evidence:
        """What memory sustains on the machine of this experiment, B/s."""
        return machine.bandwidth(self.machine, self.params.engine.threads or 1)

    def warnings(self, results: Mapping[str, Result]) -> list[str]:
        """Why single results may not be trusted, and which comparisons cross two moments of the machine."""
        used = [r for r in results.values() if r.used]
        doubts = [f"{r.name}: {w}" for r in used for w in (*r.warnings, *not_in_effect(r.arm.config, r.info))]
        return [*doubts, *apart(results)]

    def parameters(self) -> dict:
        """The notebook's parameters at the present values: what papermill needs to measure this again."""
        out = {**self.given, **{k: v for k, v in self.values.items() if k in self.given}}
        if "engine" in out:
            out["engine"] = self.params.engine.given()
        if "guess" in out:
            out["guess"] = self.guessed
        return out
