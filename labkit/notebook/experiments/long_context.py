"""08: longer contexts: the KV cache grows, and a verify step reads it once for several tokens."""

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.evidence import Evidence
from labkit.figures import runs, speculation
from labkit.measure.foresight import Foreseen
from labkit.measure.results import Arm, Result, cost, speedup
from labkit.notebook.experiment import Experiment
from labkit.notebook.experiments import drafts
from labkit.notebook.experiments.drafts import PLAIN
from labkit.notebook.reading import NOTHING, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import CONTEXT, COUNT, OUTPUT, REPEATS, Guess, Setting
from labkit.roofline import floors

LEAST = 1024
LONGEST = Setting(
    "max_context",
    "longest context",
    "choice",
    "Contexts double from 1K up to this many tokens.",
    choices=(1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144),
)


class LongContext(Experiment):
    """Plain decoding and drafting over contexts of 1K, 2K, 4K, ... tokens."""

    name = "08_long_context"
    foretells = True
    guess = Guess(
        "How many times longer will a plain token take at the longest context than at 1K?", "times", 0.5, 1000, 0.1, 1.0
    )
    about = ladder.DRAFTING
    case = (
        "The text describes a model whose layers mostly carry a state of fixed size; its method is that of any model."
    )
    settings = (OUTPUT, COUNT, REPEATS, LONGEST)
    own = ("max_context",)

    @property
    def sides(self) -> tuple[ladder.Arm, ladder.Arm]:
        """Without drafting and with it, under the names plain and that of the arm."""
        return replace(self.before(self.subject), name=PLAIN, title="no drafting"), self.subject

    def instead(self) -> list[str]:
        out = super().instead()
        if not out or not self.shape_known:
            return out
        first, last = (self.account_of(self.sides[0].config, context=n) for n in (LEAST, self.contexts()[-1]))
        drafts = f"Its drafts are {self.subject.config.speculative.words()}."
        if first.state_bytes or last.kv_bytes <= first.kv_bytes:
            return [*out, drafts]
        return [*out, drafts + " Every layer of this model attends to all previous tokens, so the whole cache grows."]

    def contexts(self) -> list[int]:
        out = [LEAST]
        while out[-1] * 2 <= self.values["max_context"]:
            out.append(out[-1] * 2)
        return out

    def arms(self) -> list[Arm]:
        """Both arms at 1K and at the longest context: the ends of the curve."""
        return self._pairs(sorted({LEAST, self.contexts()[-1]}))

    def sweep(self) -> list[Arm]:
        return self._pairs(self.contexts())

    def _pairs(self, contexts: list[int]) -> list[Arm]:
        need = contexts[-1] + self.values["output_tokens"] + 64
        length = (
            max(need, self.params.engine.context_length or 0) if need > 32768 else self.params.engine.context_length
        )
        return [
            self.arm(
                replace(
                    a,
                    name=f"{a.name} at {_k(n)}",
                    title=f"{a.title}, {n} tokens of prompt",
                    config=a.config.replace(context_length=length),
                    before=None if a.name == PLAIN else f"{PLAIN} at {_k(n)}",
                ),
                prompt_tokens=n,
            )
            for n in contexts
            for a in self.sides
        ]

    def axes(self) -> tuple[Setting, ...]:
        spec = self.subject.config.speculative
        return (CONTEXT, *(drafts.settings(self.params.engine.engine, spec) if spec is not None else ()))

    def point(self, values: Mapping[str, object]) -> tuple[Arm, Arm]:
        plain, drafting = self._pairs([int(values.get("prompt_tokens", LEAST))])
        spec = self.subject.config.speculative
        if spec is None:
            return plain, drafting
        s = drafts.at(spec, spec.model_dump(), values)
        config = EngineConfig.checked({**drafting.config.given(), "speculative": s}, "")
        name = f"{self.subject.name} {s.numbers()} {drafting.name.removeprefix(self.subject.name).strip()}"
        params = drafting.params.replace(engine=config)
        return plain, replace(drafting, name=name, title=drafts.title(s), config=config, params=params)

    # --- reading ---------------------------------------------------------------------------------------------------

    def pairs(self, results: Mapping[str, Result]) -> list[tuple[int, Result, Result | None]]:
        """(context, plain, drafting or None) of what is measured, by context."""
        out = []
        for n in self.contexts():
            plain, drafting = (results.get(f"{a.name} at {_k(n)}") for a in self.sides)
            if plain is not None and plain.used:
                out.append((n, plain, drafting if drafting is not None and drafting.used else None))
        return out

    def floor(self, n: int) -> Evidence:
        config = self.sides[0].config
        return floors.floor_s(self.account_of(config, context=n).evidence(), self.bandwidth)

    def floors_of(self, results: Mapping[str, Result]) -> list[tuple[Result, Evidence]]:
        return [(plain, self.floor(n)) for n, plain, _ in self.pairs(results)]

    def cost_at(self, n: int) -> Evidence:
        """c by bytes at a context."""
        config = self.subject.config
        return self.byte_cost(config, config.speculative, context=n)

    def said_of(self, arm: Arm) -> str:
        """By name: one configuration is measured at several contexts."""
        return arm.name if self.record is not None else f"{arm.name}, {arm.params.output_tokens}"

    def foresee(self, arm: Arm, context: int) -> Foreseen | None:
        """Experts are counted on the shortest prompt: which are chosen hangs on the text, not on how much of it came
        before."""
        return super().foresee(replace(arm, params=arm.params.replace(prompt_tokens=LEAST)), context)

    def foreseen_lines(self, results: Mapping[str, Result]) -> list[Line]:
        return []  # `predictions` shows them

    def said(self, n: int, side: int) -> Foreseen | None:
        """The prediction at a context by both roofs, of plain decoding (0) or drafting (1)."""
        arm = self._pairs(self.contexts())[2 * self.contexts().index(n) + side]
        return self.foresee(arm, n + self.values["output_tokens"] // 2)

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        last = self.contexts()[-1]
        config = self.sides[0].config
        ends = [self.account_of(config, context=n) for n in (LEAST, last)]
        return [
            (f"bytes of a step at {_k(LEAST)}", ends[0].evidence(), f"KV {ends[0].kv_bytes / 1e6:.2f} MB of it"),
            (f"bytes of a step at {_k(last)}", ends[1].evidence(), f"KV {ends[1].kv_bytes / 1e6:.2f} MB of it"),
            (
                "plain TPOT, longest over 1K, by bytes",
                ends[1].evidence() / ends[0].evidence(),
                "if time is proportional to bytes",
            ),
            (f"c by bytes at {_k(LEAST)}", self.cost_at(LEAST), ""),
            (
                f"c by bytes at {_k(last)}",
                self.cost_at(last),
                "a verify reads the KV once for several tokens"
                + ("" if self.subject.config.speculative.from_text else ", each draft pass that of its own layer"),
            ),
            *(line for n in dict.fromkeys((LEAST, last)) for line in self._said_lines(n)),
        ]

    def _said_lines(self, n: int) -> list[Line]:
        """What both roofs say at a context, where the engine's parts can be probed."""
        plain, drafting = self.said(n, 0), self.said(n, 1)
        lines = [] if plain is None else [(f"plain TPOT by both roofs at {_k(n)}", plain.best, plain.why)]
        return lines if drafting is None else [*lines, (f"c by both roofs at {_k(n)}", drafting.c, drafting.why)]

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        pairs = self.pairs(results)
        both = [(n, p, m) for n, p, m in pairs if m is not None]
        measured = {PLAIN: [(n, p.tpot) for n, p, _ in pairs]}
        if both:
            measured[self.subject.name] = [(n, m.tpot) for n, _, m in both]
        steps, roofs = ([(n, self.said(n, side)) for n in self.contexts()] for side in (0, 1))
        last = self.contexts()[-1]
        first = pairs[0][1].tpot if pairs and pairs[0][0] == LEAST else None
        return [
            runs.context_sweep(
                measured,
                {PLAIN: [(n, self.floor(n)) for n in self.contexts()]},
                roofs={PLAIN: [(n, said.best) for n, said in steps if said is not None]},
                guess=None if guess is None or first is None else (last, guess * first.to("ms").value),
            ),
            runs.context_sweep(
                {"c": [(n, cost(m, p)) for n, p, m in both]},
                {"c": [(n, self.cost_at(n)) for n in self.contexts()]},
                roofs={"c": [(n, said.c) for n, said in roofs if said is not None]},
                unit="1",
                y="c: time per round, in plain steps",
                title="c over context",
            ),
            speculation.ac_plane(
                [(_k(n), m.accept, cost(m, p)) for n, p, m in both],
                predicted=[(_k(n), self.cost_at(n), m.accept, m.accept) for n, _, m in both],
            )
            if both
            else waiting("Yield a over cost c"),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        lines: list[Line] = []
        pairs = self.pairs(results)
        for n, plain, drafting in pairs:
            said = self.said(n, 0)
            error = "" if said is None else f"; by both roofs {said.text()} ms ({said.error(plain):+.1%})"
            lines.append((f"TPOT, {plain.name}", plain.tpot, f"TTFT {plain.ttft.quantity()}{error}"))
            if drafting is not None:
                lines += [
                    (f"TPOT, {drafting.name}", drafting.tpot, f"speed-up {speedup(drafting, plain).value:.2f}"),
                    (f"a at {_k(n)}", drafting.accept, ""),
                    self._cost_line(n, cost(drafting, plain)),
                ]
        if self.guessed is not None and len(pairs) > 1:
            ratio = f"measured {pairs[-1][1].tpot.value / pairs[0][1].tpot.value:.2f}"
            lines.append(("your guess, longest over 1K", f"{self.guessed:g}", ratio))
        return lines or [NOTHING]

    def _cost_line(self, n: int, c: Evidence) -> Line:
        """Measured c beside both predictions and their errors."""
        said = self.said(n, 1)
        by = [("bytes", self.cost_at(n)), *([("both roofs", said.c)] if said is not None else [])]
        return f"c at {_k(n)}", c, ", ".join(f"by {how} {e.value:.2f} ({e.value / c.value - 1:+.1%})" for how, e in by)

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        pairs = self.pairs(results)
        if len(pairs) < 2:
            return []
        out = []
        if self.params.workload != "synthetic" and self.params.engine.model == "pocket" and pairs[-1][0] > 1024:
            out.append(
                "The pocket model was trained on short texts: at these contexts its acceptance is no property of the"
                " method, and this is an experiment on speed alone."
            )
        out += [
            "Report contexts of 32K and more separately: a gain at 1K promises nothing there, nor the reverse.",
            self._c_moves([(n, cost(m, p)) for n, p, m in pairs if m is not None]),
            *self.impossible(results),
        ]
        return out

    def _c_moves(self, costs: list[tuple[int, Evidence]]) -> str:
        """Where c went between the ends of what was measured, and where bytes say that it goes."""
        if len(costs) < 2:
            return "c over context needs drafting at two contexts."
        (n, before), (m, after) = costs[0], costs[-1]
        moves = (
            "rises"
            if before.high is not None and after.above(before.high)
            else "falls"
            if before.low is not None and after.below(before.low)
            else "shows no change, because the intervals overlap or are not known,"
        )
        return (
            f"c {moves} from {before.quantity()} at {_k(n)} to {after.quantity()} at {_k(m)}; by bytes it goes from"
            f" {self.cost_at(n).value:.2f} to {self.cost_at(m).value:.2f}."
        )


def _k(n: int) -> str:
    return f"{n // 1024}K" if n % 1024 == 0 else str(n)
