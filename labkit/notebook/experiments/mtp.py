"""05: drafting: what a round costs (c), what it yields (a), and which setting is best."""

import json
from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from labkit.checks import judged
from labkit.engines import ladder
from labkit.engines.adapter import options
from labkit.engines.config import EngineConfig, Speculative
from labkit.errors import BadInput
from labkit.evidence import Evidence
from labkit.figures import decode, gains, passes, speculation
from labkit.measure import experts
from labkit.measure.results import Arm, Result, cost, count, drafts_a_round, speedup, varies
from labkit.measure.timed import Phases, beside, timed
from labkit.notebook.experiment import CONTEXT, LOAD_SETTINGS, NOTHING, Experiment, accepted, present, waiting
from labkit.notebook.experiments import drafts
from labkit.notebook.experiments.drafts import NUMBERS
from labkit.notebook.render import Line, span
from labkit.notebook.settings import Guess, Setting, checked
from labkit.roofline import floors
from labkit.roofline import speculation as formulas
from labkit.roofline.cost import Component

EXPERTS = "distinct experts"
TIMES = "times of parts"
PLAIN = "plain"  # the arm without drafting, whatever its ladder calls it
TITLES = (
    "Time per output token",
    "Speed-up over plain decoding",
    "Yield a over cost c",
    "c(n): what a round of n tokens costs",
    "Which drafts are accepted",
    "Distinct experts per layer",
    "Where the time goes: measured parts beside predicted ones",
)


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
        self._times: dict[str, Phases] = {}  # by setting of an arm

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

    def _drafting(self, s: Speculative, **load: object) -> Arm:
        drafting = replace(self.subject, name=self._name(s), title=drafts.title(s), config=self._with(s), before=PLAIN)
        return self.arm(drafting, **load)

    def _name(self, s: Speculative) -> str:
        return f"{self.subject.name} {s.numbers()}"

    def plain(self, **load: object) -> Arm:
        base = self.before(self.subject)
        return self.arm(replace(base, name=PLAIN, title="the same configuration without drafting", before=None), **load)

    def arms(self) -> list[Arm]:
        return [self.plain(), self._drafting(self.draft())]

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
        return [self.plain(), *(self._drafting(s) for s in chains + ([here] if here not in chains else []))]

    def axes(self) -> tuple[Setting, ...]:
        own = [s for s in self.settings if s.name in (*self._numbers, "workload")]
        return (*sorted(own, key=lambda s: s.name == "workload"), CONTEXT)

    def point(self, values: Mapping[str, object]) -> tuple[Arm, Arm]:
        load = {n: v for n, v in values.items() if n not in NUMBERS}
        return self.plain(**load), self._drafting(drafts.at(self._spec, self.values, values), **load)

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
                self._times[arm.setting] = timed(engine.url, prompts_of(arm.params)[:1], api_key=engine.api_key)

    def extra(self) -> dict:
        counted = {EXPERTS: {str(m): e.as_dict() for m, e in self.counted.items()}} if self.counted else {}
        times = {setting: phases for setting, phases in self._times.items() if phases}
        return counted | ({TIMES: times} if times else {})

    def restore(self, summary: Mapping[str, object]) -> None:
        self.counted.update({int(m): Evidence.from_dict(e) for m, e in summary.get(EXPERTS, {}).items()})
        self._times.update(summary.get(TIMES, {}))

    # --- reading ---------------------------------------------------------------------------------------------------

    def drafted(self, results: Mapping[str, Result]) -> list[Result]:
        """Measured draft settings, by steps; without those whose steps changed between requests: they have no c."""
        found = [r for r in results.values() if r.used and r.arm.config.speculative is not None and not varies(r)]
        return sorted(found, key=lambda r: (r.arm.config.speculative.topk or 0, _tokens(r)))

    def base(self, results: Mapping[str, Result]) -> Result | None:
        found = present(results, [PLAIN])
        return found[0] if found else None

    def _context(self, results: Mapping[str, Result]) -> int:
        """Tokens of context that accounts count: as measured, else as the load has them."""
        base = self.base(results)
        if base is not None:
            return base.context
        return (self.params.prompt_tokens or 150) + (self.values.get("output_tokens") or 256) // 2

    def cost_of(self, s: Speculative, results: Mapping[str, Result]) -> Evidence:
        """c by bytes alone."""
        return self.byte_cost(self.plain_config(), s, context=self._context(results))

    def roof_cost(self, arm: Arm, results: Mapping[str, Result]) -> Evidence | None:
        """c by both roofs and fixed parts, where the engine's parts could be probed (labkit.measure.foresight)."""
        found = self.foresee(arm, self._context(results))
        return found and found.c

    def expected_cost(self, arm: Arm, results: Mapping[str, Result]) -> Evidence:
        """The one c that every figure and prediction of a setting rests on: by both roofs, else by bytes."""
        return self.roof_cost(arm, results) or self.cost_of(_draft_of(arm), results)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        s = self.draft()
        c = self.cost_of(s, results)
        roofs = self.roof_cost(self.arms()[1], results)
        lines: list[Line] = [
            (
                "c by bytes alone",
                c,
                f"a round of {s.verified - 1} drafts and a verify of {s.verified} tokens, in plain steps",
            ),
            *([("c by both roofs", roofs, "bytes, arithmetic and fixed parts, each rate probed")] if roofs else []),
            ("a to break even", roofs or c, "a must exceed c, or drafting loses"),
            (
                "S if every draft is accepted",
                formulas.speedup(count(s.most, "1", "drafts + 1"), roofs or c),
                "the most that this cost allows",
            ),
        ]
        a, published = (self.reported(self.subject, metric) for metric in ("accept_length", "verify_cost_ratio"))
        if a and published:
            lines += [
                (f"{self.reported_on}: a", a, "synthetic greedy load"),
                (f"{self.reported_on}: c", published, "head configuration not published"),
                (
                    "S from the reported a and c",
                    formulas.speedup(a, published),
                    "the published step was faster: an open residual",
                ),
            ]
        return lines

    def ends(self, s: Speculative) -> tuple[Evidence, Evidence]:
        """The least and the most tokens that a round can yield: no draft right, all of them."""
        return count(1, "1", "no draft right"), count(s.most, "1", "drafts + 1")

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        """Predictions of the present setting, and measured settings with an arrow from the one to the other."""
        base, drafted, s = self.base(results), self.drafted(results), self.draft()
        if not self.shape_known and (base is None or not drafted):
            return [waiting(t) for t in TITLES]
        here, known = self._name(s), base is not None and bool(drafted)
        c = self.expected_cost(self.arms()[1], results)
        if not known:
            drafted = []
        open_ = here not in [r.name for r in drafted]  # not measured yet
        floor = floors.floor_s(
            self.account_of(self.plain_config(), context=self._context(results)).evidence(), self.bandwidth
        )
        least, most = self.ends(s)
        chains = [r for r in drafted if r.arm.config.speculative.topk in (1, None)]
        costs = {_tokens(r): self.cost_of(r.arm.config.speculative, results) for r in chains}
        if not chains:
            costs = {a.verified: self.cost_of(a, results) for a in map(_draft_of, self._curve())}
        costs.setdefault(s.verified, self.cost_of(s, results))
        points = [(r.name, r.accept, cost(r, base)) for r in drafted]
        predicted = [(r.name, self.expected_cost(r.arm, results), *self.ends(_draft_of(r.arm))) for r in drafted]
        return [
            decode.tpot(
                [(r.name, r.tpot) for r in ([base, *drafted] if known else [])],
                floors=[(PLAIN, floor)],
                ranges=[(here, *self._between(floor, c, s, results))] if open_ else [],
            ),
            speculation.speedups(
                [(r.name, self.predicted_speedup(r, results), speedup(r, base)) for r in drafted],
                ranges=[(here, formulas.speedup(least, c), formulas.speedup(most, c))] if open_ else [],
                guess=guess,
                guess_at=here,
            ),
            speculation.ac_plane(points, predicted=[*predicted, *([(here, c, least, most)] if open_ else [])]),
            speculation.cost_by_tokens(
                [(_tokens(r), cost(r, base)) for r in chains],
                list(costs.items()),
                [(_tokens(r), r.accept) for r in chains],
                [(_tokens(r), c) for r in chains if (c := self.roof_cost(r.arm, results)) is not None],
            ),
            accepted(drafted),
            self._experts(results),
            self._parts(),
        ]

    def _parts(self) -> go.Figure:
        """A plain step and a round of the present setting: their parts as predicted, and as the engines timed them."""
        plain, drafting = self.arms()
        said = self.foreseen.get(self.said_of(drafting))
        if said is None or said.parts is None:
            return waiting(TITLES[-1], "This needs an engine whose parts can be probed on this machine.")
        shown = []
        for what, key, arm in (("plain step", "plain", plain), ("round", "round", drafting)):
            parts = [Component(**p) for p in said.parts[key]]
            phases = [p for name, p in self._times.get(arm.setting, {}).items() if (name == "plain") == (arm is plain)]
            shown.append((what, beside(parts, phases) if phases else parts))
        return passes.parts(shown, said.parts["bandwidth"], title=TITLES[-1])

    def _between(self, floor: Evidence, c: Evidence, s: Speculative, results) -> tuple[Evidence, Evidence]:
        """TPOT with all drafts right and with none: part by part where that is known, else from the byte floor."""
        found = self.foresee(self._drafting(s), self._context(results))
        least, most = self.ends(s)
        return (found.best, found.worst) if found else (floor * c / most, floor * c / least)

    def _curve(self) -> list[Arm]:
        """The settings that c(n) is drawn for before anything is measured."""
        return [a for a in self.sweep() if a.before and _draft_of(a).topk in (1, None)]

    def predicted_speedup(self, r: Result, results: Mapping[str, Result]) -> Evidence:
        """S = a / c with the measured a and a predicted c (by both roofs, else by bytes): what it says before any
        time is known."""
        return formulas.speedup(r.accept, self.expected_cost(r.arm, results))

    def _cost_line(self, r: Result, base: Result, results: Mapping[str, Result]) -> Line:
        """Measured c beside both predictions and their errors."""
        c, by_bytes = cost(r, base), self.cost_of(r.arm.config.speculative, results)
        said = [("bytes", by_bytes), ("both roofs", self.roof_cost(r.arm, results))]
        shown = [f"by {how} {e.value:.2f} ({e.value / c.value - 1:+.1%})" for how, e in said if e is not None]
        return f"c, {r.name}", c, f"round time over the plain step; {', '.join(shown)}"

    def _experts(self, results: Mapping[str, Result]) -> go.Figure:
        most = max([2, self.draft().verified, *(_tokens(r) for r in self.drafted(results)), *self.counted])
        expected = self.distinct_experts(most)
        if not expected:
            return waiting("Distinct experts per layer", "This model has no experts, or its file does not name them.")
        return gains.experts(expected, {"by the engine": self.counted} if self.counted else {})

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        base, drafted = self.base(results), self.drafted(results)
        if base is None or not drafted:
            return [NOTHING]
        lines: list[Line] = [(f"TPOT, {base.name}", base.tpot, base.arm.title)]
        for r in drafted:
            lines += [
                (f"TPOT, {r.name}", r.tpot, r.arm.title),
                (f"a, {r.name}", r.accept, "tokens per verify step"),
                self._cost_line(r, base, results),
                (f"speed-up, {r.name}", speedup(r, base), ""),
            ]
        best = self.best(results)
        lines.append(("best setting measured", best[0].name, best[1]))
        if self.guessed is not None:
            here = [r for r in drafted if r.name == self._name(self.draft())]
            remark = f"measured {speedup(here[0], base).value:.2f}" if here else ""
            lines.append(("your guess of the speed-up", f"{self.guessed:g}", remark))
        return lines

    def best(self, results: Mapping[str, Result]) -> tuple[Result, str]:
        """The draft setting (or plain) with the shortest TPOT, and how sure that is."""
        everything = sorted([self.base(results), *self.drafted(results)], key=lambda r: r.tpot.value)
        first, second = everything[0], everything[1]
        gain = speedup(first, second)
        sure = gain.above(1)
        against = f"{gain.value:.3f} times as fast as {second.name}, {span(gain)}"
        return first, against if sure else f"cannot be told apart from {second.name}: {against}"

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        base, drafted = self.base(results), self.drafted(results)
        out = [
            f"{r.name}: draft steps changed from request to request, so one c does not describe it, and none is given."
            for r in results.values()
            if r.used and r.arm.config.speculative is not None and varies(r)
        ]
        if base is None or not drafted:
            return out
        vary = [f"{n:.2g} with {r.name}" for r in drafted if (n := drafts_a_round(r)) is not None]
        if vary:
            out.append(
                "This engine chooses in each round how many tokens to draft, up to the setting (on average"
                f" {', '.join(vary)}): a and c are means over its rounds."
            )
        for r in drafted:
            gain, c = speedup(r, base), cost(r, base)
            if gain.below(1):
                out.append(
                    f"{r.name} is slower than plain decoding: a = {r.accept.value:.2f} does not exceed c ="
                    f" {c.value:.2f}. Stop the ladder here for this load."
                )
            out += judged.step(r, base, expect=ladder.DRAFTING, again="labkit ladder").lines()
        best = max(drafted, key=lambda r: speedup(r, base).value)
        gain, c = speedup(best, base), cost(best, base)
        if gain.above(1):
            out.append(
                f"Drafting pays on this load: {best.name} yields a = {best.accept.value:.2f} tokens for c ="
                f" {c.value:.2f} plain steps, {gain.value:.2f} times plain ({span(gain, '.2f')})."
            )
        if len(drafted) > 2:
            out.append(
                f"The best of {len(drafted)} settings was picked on these same samples, which overstates its lead a"
                " little: measure it again before you rely on it."
            )
        out.append(
            "The measured speed-up is a / c, with a and c from the same requests. The prediction is tested by"
            " c from bytes: what it misses is what bytes do not explain (sampling, arithmetic on several positions,"
            " experts that neighbouring tokens share)."
        )
        out.append(
            "Acceptance depends on this load: another text or sampling gives another a, and c changes with context."
        )
        return out


def _draft_of(arm: Arm) -> Speculative:
    return arm.config.speculative


def _tokens(r: Result) -> int:
    return r.arm.config.speculative.verified
