"""05: drafting: what a round costs (c), what it yields (a), and which setting is best."""

import json
from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.engines.adapter import options
from labkit.engines.config import EngineConfig, Speculative
from labkit.errors import BadInput
from labkit.evidence import Evidence
from labkit.measure import experts
from labkit.measure.results import Arm, Result, count, varies
from labkit.measure.timed import Phases, timed
from labkit.notebook.experiment import Experiment
from labkit.notebook.experiments import drafts, mtp_figures, mtp_lines
from labkit.notebook.experiments.drafts import NUMBERS, PLAIN, verified
from labkit.notebook.reading import present
from labkit.notebook.render import Line
from labkit.notebook.settings import CONTEXT, LOAD_SETTINGS, Guess, Setting, checked
from labkit.roofline import speculation as formulas

EXPERTS = "distinct experts"
TIMES = "times of parts"


class Mtp(Experiment):
    """Plain decoding and one draft setting side by side; the sweep takes chains of 1 to `longest` steps."""

    name = "05_mtp"
    foretells = True
    guess = Guess("How many times faster will drafting with these settings make decoding?", "times", 0.1, 10, 0.05, 1.0)
    about = ladder.DRAFTING
    case = "The text describes drafts by a layer of the model (MTP); a, c and S = a / c are the same for any drafts."
    own = (*NUMBERS, "longest")

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self._counted: dict[str, dict[int, Evidence]] = {}  # by load: other text chooses other experts
        self.times: dict[str, Phases] = {}  # by setting of an arm

    @property
    def counted(self) -> dict[int, Evidence]:
        """Distinct experts by positions as the engine counted them under the present load."""
        return self._counted.setdefault(json.dumps(self.plain().load, sort_keys=True), {})

    def instead(self) -> list[str]:
        out = super().instead()
        return [*out, f"Its drafts are {self._spec.words()}."] if out else []

    # --- arms ------------------------------------------------------------------------------------------------------

    def own_values(self, given: dict[str, object]) -> dict[str, object]:
        """Draft numbers that were not given are the arm's own; with new steps or topk a round verifies all that these
        propose. Raises BadInput for numbers that do not fit the engine or each other."""
        spec = self._spec
        own = {n: getattr(spec, n) if given.get(n) is None else given[n] for n in self._numbers}
        for name, value in given.items():
            if name in NUMBERS and value is not None and name not in own:
                raise BadInput(name, value, f"nothing: {self.subject.name} drafts by {spec.algorithm}")
        own = checked([s for s in self._engine_settings() if s.name in own], own)
        moved = any(own[n] != getattr(spec, n) for n in ("steps", "topk") if n in own)
        if moved and "draft_tokens" in own and given.get("draft_tokens") is None:
            most = int(options(self.params.engine.engine)["speculative.draft_tokens"].high)
            own["draft_tokens"] = min(most, drafts.of(spec, {**own, "draft_tokens": None}).largest)
        self._with(drafts.of(spec, own))
        longest = self._steps_limit if given.get("longest") is None else given["longest"]
        return {**own, "longest": longest} if "steps" in own else own

    @property
    def _spec(self) -> Speculative:
        """The arm's own draft setting. Raises BadInput when it has none."""
        spec = self.subject.config.speculative
        if spec is None:
            raise BadInput("arm", self.subject.name, "an arm that drafts (engine field speculative)")
        return spec

    @property
    def _numbers(self) -> list[str]:
        return drafts.numbers(self._spec)

    @property
    def _steps_limit(self) -> int:
        return int(options(self.params.engine.engine)["speculative.steps"].high)

    def _engine_settings(self) -> list[Setting]:
        return drafts.settings(self.params.engine.engine, self._spec)

    def offers(self) -> tuple[Setting, ...]:
        own = self._engine_settings()
        if "steps" in self._numbers:
            tip = "The sweep measures chains of 1 to this many steps."
            own.append(Setting("longest", "sweep up to steps", "int", tip, 1, self._steps_limit))
        return (*LOAD_SETTINGS, *own)

    def plain_config(self) -> EngineConfig:
        return self.before(self.subject).config

    def draft(self) -> Speculative:
        """The draft setting of the sliders, with the rule of chains and trees applied."""
        return drafts.ruled(self._spec, {n: self.values[n] for n in self._numbers})

    def remarks(self) -> list[str]:
        s = self.draft()
        if s.draft_tokens == self.values.get("draft_tokens"):
            return []
        why = "with topk 1 it is always steps + 1" if s.topk == 1 else "a tree of these steps and topk has no more"
        return [f"{s.draft_tokens} draft tokens are verified, whatever the slider says: {why}."]

    def parameters(self) -> dict:
        """As what is measured: a slider that the rule of chains overrules would be refused when it is read again."""
        s = self.draft()
        return {**super().parameters(), **{n: getattr(s, n) for n in self._numbers}}

    def _with(self, s: Speculative) -> EngineConfig:
        return EngineConfig.checked({**self.subject.config.given(), "speculative": s}, "")

    def drafting(self, s: Speculative, **load: object) -> Arm:
        drafting = replace(
            self.subject, name=self.name_of(s), title=drafts.title(s), config=self._with(s), before=PLAIN
        )
        return self.arm(drafting, **load)

    def name_of(self, s: Speculative) -> str:
        return f"{self.subject.name} {s.numbers()}"

    def plain(self, **load: object) -> Arm:
        base = self.before(self.subject)
        return self.arm(replace(base, name=PLAIN, title="the same configuration without drafting", before=None), **load)

    def arms(self) -> list[Arm]:
        return [self.plain(), self.drafting(self.draft())]

    def sweep(self) -> list[Arm]:
        if "longest" not in self.values:
            return []
        longest = self.values["longest"]
        if "topk" in self._numbers:
            numbers = [{"steps": n, "topk": 1, "draft_tokens": n + 1} for n in range(1, longest + 1)]
        else:  # drafts from the text cost next to nothing, so it may take dozens: each setting twice the one before
            numbers = [{"steps": 2**n} for n in range(longest.bit_length())]
        chains = [drafts.of(self._spec, n) for n in numbers]
        here = self.draft()
        return [self.plain(), *(self.drafting(s) for s in chains + ([here] if here not in chains else []))]

    def axes(self) -> tuple[Setting, ...]:
        own = [s for s in self.settings if s.name in (*self._numbers, "workload")]
        return (*sorted(own, key=lambda s: s.name == "workload"), CONTEXT)

    def point(self, values: Mapping[str, object]) -> tuple[Arm, Arm]:
        load = {n: v for n, v in values.items() if n not in NUMBERS}
        return self.plain(**load), self.drafting(drafts.at(self._spec, self.values, values), **load)

    def after(self, pool) -> None:
        """Once the timing is over, ask the engines that drafted for their expert counts on the first prompt, and those
        of the present setting for the times of their parts."""
        from labkit.measure.runner import prompts_of

        for arm in {a.name: a for a in (*self.sweep(), *self.arms()) if a.before}.values():
            engine = pool.get(arm.config)
            counts = engine is not None and engine.dialect.counts_experts
            if counts and arm.config.speculative.draft_tokens not in self.counted:
                found = experts.count(engine.url, prompts_of(arm.params)[:1], api_key=engine.api_key)
                self.counted.update(found)
        for arm in self.arms():
            engine = pool.get(arm.config)
            if engine is not None and engine.dialect.counts_experts:
                self.times[arm.setting] = timed(engine.url, prompts_of(arm.params)[:1], api_key=engine.api_key)

    def extra(self) -> dict:
        counted = {EXPERTS: {str(m): e.as_dict() for m, e in self.counted.items()}} if self.counted else {}
        times = {setting: phases for setting, phases in self.times.items() if phases}
        return counted | ({TIMES: times} if times else {})

    def restore(self, summary: Mapping[str, object]) -> None:
        self.counted.update({int(m): Evidence.from_dict(e) for m, e in summary.get(EXPERTS, {}).items()})
        self.times.update(summary.get(TIMES, {}))

    # --- reading ---------------------------------------------------------------------------------------------------

    def drafted(self, results: Mapping[str, Result]) -> list[Result]:
        """Measured draft settings, by steps; without those whose steps changed between requests: they have no c."""
        found = [r for r in results.values() if r.used and r.arm.config.speculative is not None and not varies(r)]
        return sorted(found, key=lambda r: (r.arm.config.speculative.topk or 0, verified(r)))

    def base(self, results: Mapping[str, Result]) -> Result | None:
        found = present(results, [PLAIN])
        return found[0] if found else None

    def cost_of(self, s: Speculative, results: Mapping[str, Result]) -> Evidence:
        """c by bytes alone."""
        return self.byte_cost(self.plain_config(), s, context=self.context(results))

    def roof_cost(self, arm: Arm, results: Mapping[str, Result]) -> Evidence | None:
        """c by both roofs and fixed parts, where the engine's parts could be probed (labkit.measure.foresight)."""
        found = self.foresee(arm, self.context(results))
        return found and found.c

    def expected_cost(self, arm: Arm, results: Mapping[str, Result]) -> Evidence:
        """The one c that every figure and prediction of a setting rests on: by both roofs, else by bytes."""
        return self.roof_cost(arm, results) or self.cost_of(arm.config.speculative, results)

    def ends(self, s: Speculative) -> tuple[Evidence, Evidence]:
        """The least and the most tokens that a round can yield: no draft right, all of them."""
        return count(1, "1", "no draft right"), count(s.most, "1", "drafts + 1")

    def predicted_speedup(self, r: Result, results: Mapping[str, Result]) -> Evidence:
        """S = a / c with the measured a and a predicted c (by both roofs, else by bytes): what it says before any
        time is known."""
        return formulas.speedup(r.accept, self.expected_cost(r.arm, results))

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        return mtp_lines.predictions(self, results)

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        return mtp_figures.figures(self, results, guess)

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        return mtp_lines.findings(self, results)

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        return mtp_lines.verdict(self, results)
