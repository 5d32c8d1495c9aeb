"""A step and a round of the pocket engine, predicted part by part from the rates of this machine (labkit.measure.rates)
before anything is asked: which matrices a pass multiplies, how many experts it reads, how far back it looks."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labkit.engines.adapter import flags
from labkit.errors import LabError
from labkit.evidence import Evidence, derived, measured
from labkit.measure import rates as probes
from labkit.measure.parts import DISTINCT, MOST, PASTS, hot_tiles, kernel_name
from labkit.measure.probe import cache_dir, cached, keep
from labkit.measure.prompts import prompts_of
from labkit.params import Params
from labkit.pocket import pieces
from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.loader import PocketConfig
from labkit.pocket.options import Options
from labkit.pocket.tokenizer import Tokenizer
from labkit.roofline.cost import Component, added, experts_s, pass_s

READ_AHEAD = 2  # tokens above which a product asks for what comes after it (dense_and_fetch in mlp.h)
LONGEST = 512  # tokens of a prompt that are worth reading to count experts
COUNTED = 128  # tokens of a text whose experts are counted


@dataclass(frozen=True)
class Model:
    """What passes of one engine cost. options: with the dense dtype resolved. experts: {tokens of a pass:
    distinct experts of a layer}, counted on a text (Engine.text_experts). reading: B/s at which the very engine that is
    predicted reads its weights alone; None: as the one that was probed."""

    rates: probes.Rates
    config: PocketConfig
    options: Options
    experts: Mapping[int, float]
    reading: float | None = None

    @property
    def bandwidth(self) -> float:
        """B/s of the memory that a prediction rests on."""
        return self.reading or self.rates.bandwidth

    def plain(self, context: int) -> list[Component]:
        """A plain step after `context` tokens."""
        return self._pass(1, context, draft=False)

    def verify(self, tokens: int, context: int) -> list[Component]:
        """One pass over `tokens` tokens."""
        return self._pass(tokens, context, draft=False)

    def draft(self, number: int, context: int) -> list[Component]:
        """Draft pass `number` of a chain, from 1. The first also enters the tokens accepted before, all of them."""
        entered = 1 + (self.options.speculative_num_steps or 0 if number == 1 else 0)
        return self._pass(1, context, draft=True, entered=entered)

    def round(self, context: int, steps: int | None = None, tokens: int | None = None) -> list[Component]:
        """A round: `steps` draft passes and a verify pass over `tokens` tokens; None: the engine's own numbers."""
        steps = self.options.speculative_num_steps if steps is None else steps
        tokens = self.options.speculative_num_draft_tokens if tokens is None else tokens
        drafts = [self.draft(i + 1, context) for i in range(steps)]
        return added([self.verify(tokens, context), *drafts])

    def seconds(self, parts: list[Component]) -> float:
        """Of a pass or a round."""
        return pass_s(parts, self.bandwidth)

    def evidence(self, parts: list[Component], *, bytes_alone: bool = False) -> Evidence:
        """The same, s, derived."""
        r = self.rates
        how = f"probe of this machine, kernels {r.variant}, {r.threads} thread(s)"
        how += f", {r.disturbed}" if r.disturbed else ""
        whose = "this very engine" if self.reading else how
        rate = measured(self.bandwidth, "B/s", f"{whose}: reading the engine's weights alone")
        read = derived(sum(p.bytes_read for p in parts), "B", "bytes of every part", (rate,))
        took = pass_s(parts, self.bandwidth, bytes_alone=bytes_alone)
        if bytes_alone:
            return derived(took, "s", "bytes / bandwidth", (read, rate))
        work = measured(sum(p.kernel_s for p in parts), "s", f"{how}: products on cached operands")
        fixed = measured(sum(p.fixed_s for p in parts), "s", f"{how}: pieces of a pass alone, less these")
        formula = "by part: max(bytes / bandwidth, products) + fixed"
        return derived(took, "s", formula, (read, rate, work, fixed))

    def _pass(self, tokens: int, context: int, *, draft: bool, entered: int = 0) -> list[Component]:
        took, work = self._seconds(tokens, context, draft, entered), self._products(tokens, context, draft)
        read = self._bytes(tokens, context, draft)
        rate, out = self.rates.bandwidth, []
        for part in (p for p in self.rates.bytes_["step"] if p in took):
            kernel, operations = work.get(part, (0.0, 0.0))
            roof = Component(part, read[part], kernel).predicted_s(rate)
            out.append(Component(part, read[part], kernel, took[part] - roof, operations))
        return out

    def _seconds(self, tokens: int, context: int, draft: bool, entered: int) -> dict[str, float]:
        """Of each part: what its pieces take alone, in as many layers as the pass has of each."""
        out: dict[str, float] = {}
        every = pieces.layers(self.config, draft=False)
        for piece, count in pieces.layers(self.config, draft).items():
            share = count / max(every[piece], 1)
            for part, s in self._alone(piece, entered if piece == "mix" else tokens, context).items() if count else ():
                out[part] = out.get(part, 0.0) + share * s
        return out

    def _alone(self, piece: str, tokens: int, context: int) -> dict[str, float]:
        """Seconds of a piece's parts, in all layers of the model that have it."""
        if piece == "moe":
            by = {m: self._moe(at, self.experts.get(m, at[-1][DISTINCT])) for m, at in self.rates.moe.items()}
        else:
            by = self.rates.pieces[piece]
        parts = dict.fromkeys(part for one in by.values() for part in one)
        out = {p: self._at({m: one.get(p, 0.0) for m, one in by.items()}, tokens) for p in parts}
        if piece == "mla":
            out["mla_attention"] += (context - PASTS[0]) * self._position(tokens)
        return out

    def _position(self, tokens: int) -> float:
        """Attention's time for one more position, in all layers of the model that attend."""
        near, far = self.rates.pieces["mla"], self.rates.far
        each = {m: (far[m] - near[m]["mla_attention"]) / (PASTS[1] - PASTS[0]) for m in far}
        return max(self._at(each, tokens), 0.0)

    @staticmethod
    def _moe(at: Sequence[Mapping[str, float]], experts: float) -> dict[str, float]:
        """A mixture's parts where tokens choose `experts` distinct ones of a layer, from probes with fewer and more."""
        counts = [one[DISTINCT] for one in at]
        return {p: float(np.interp(experts, counts, [one[p] for one in at])) for p in at[0] if p != DISTINCT}

    @staticmethod
    def _at(by: Mapping[int, float], tokens: int) -> float:
        """Seconds by tokens, probed at some and up to some: a line between two, and after the last every kernel goes on
        as it does from four tokens to it."""
        last = max(by)
        if tokens > last:
            return by[last] + (by[last] - by[4]) / (last - 4) * (tokens - last)
        at = sorted(by)
        return float(np.interp(tokens, at, [by[m] for m in at]))

    def _products(self, tokens: int, context: int, draft: bool) -> dict[str, tuple[float, float]]:
        """Of each part: seconds of its products on cached operands, and their operations (FLOP)."""
        out: dict[str, tuple[float, float]] = {}
        held = pieces.matrices(self.config, self.options)
        for piece, count in pieces.layers(self.config, draft).items():
            for part, matrices in held[piece].items() if count else ():
                pairs = tokens * self.config.num_experts_per_tok
                s, work = out.get(part, (0.0, 0.0))
                for m in matrices:
                    tiles = m.tiles * 16 * m.k
                    if part == "experts":
                        one, four = (self.rates.kernels[kernel_name(m)][n] for n in (1, 4))
                        mine = experts_s(one, four, self.experts[tokens], pairs)
                        work += count * 2 * pairs * tiles
                    else:
                        share = m.tiles / hot_tiles(m)
                        mine = m.count * share * self._at(self.rates.kernels[kernel_name(m)], tokens)
                        work += count * 2 * tokens * m.count * tiles
                    s += count * mine
                out[part] = s, work
        every = pieces.layers(self.config, draft=False)["mla"]
        attention = pieces.layers(self.config, draft)["mla"] / every * context * self._position(tokens)
        return {**out, "mla_attention": (attention, 0.0)}  # its arithmetic on a position, while the position comes

    def _bytes(self, tokens: int, context: int, draft: bool) -> dict[str, float]:
        """Of each part, from memory."""
        one, layers = self.rates.bytes_["one"], pieces.layers(self.config, draft)
        read = dict(self.rates.bytes_["draft" if draft else "step"])
        read["kda_state"] += layers["kda"] * self._state
        read["experts"] = layers["moe"] * self.experts[tokens] * one["expert"]
        read["mla_attention"] = layers["mla"] * (context + tokens) * one["position"]
        if tokens > READ_AHEAD and not draft:
            self._read_ahead(read, layers)
        return read

    @staticmethod
    def _read_ahead(read: dict[str, float], layers: Mapping[str, int]) -> None:
        """With several tokens, KDA's projections wait for the layer's state and every layer's for its router, which
        they ask for meanwhile (dense_and_fetch in mlp.h): the sum stays, its place is another."""
        kda = layers["kda"] / (layers["kda"] + layers["mla"])
        read["kda_projections"] += kda * read["router"] + read["kda_input"] + read["kda_state"]
        read["mla_projections"] += (1 - kda) * read["router"]
        read["router"] = read["kda_input"] = read["kda_state"] = 0.0

    @property
    def _state(self) -> int:
        """Bytes of one KDA layer's state, FP32."""
        return self.config.num_attention_heads * self.config.head_dim**2 * 4


def counted(engine: Engine, prompt: Sequence[int], tokens: int = COUNTED) -> dict[int, float]:
    """Distinct experts of a layer by tokens of a pass, on a prompt and what the model greedily says to it. Counts only:
    nothing is timed."""
    request = engine.start(prompt, Sampling(temperature=0, max_new_tokens=tokens, ignore_eos=True))
    request.join(120)
    text = [*prompt[-tokens:], *request.poll()]
    experts = {m: engine.text_experts(text, m) for m in range(2, MOST + 1)}
    return {1: float(engine.config.num_experts_per_tok)} | experts


def of(options: Options, prompt: tuple[int, ...]) -> Model:
    """The cost model of an engine with these options: rates as probed or kept, experts counted on `prompt` and its
    answer, or as kept. Raises LabError where the engine cannot run here (no compiler, weights that are not there)."""
    rates = probes.of(options)
    config = PocketConfig.from_json(Path(options.model_path) / "config.json")
    return Model(rates, config, replace(options, dense_dtype=rates.dense), _experts(options, prompt))


def _experts(options: Options, prompt: tuple[int, ...]) -> dict[int, float]:
    """What `counted` says, kept on disk: kernels and head hardly change which experts a model chooses."""
    index = Path(options.model_path) / "model.safetensors.index.json"
    key = repr((COUNTED, prompt, str(index.resolve()), index.stat().st_mtime if index.exists() else None))
    path = cache_dir() / f"experts-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    try:
        return {int(m): float(n) for m, n in cached(path).items()}
    except (ValueError, AttributeError):  # nothing, or something else
        pass
    drafting = options if options.speculative else replace(options, speculative_algorithm="NEXTN")
    with Engine(drafting) as engine:
        found = counted(engine, prompt)
    keep(path, found)  # a count is a count, also where it cannot be kept
    return found


def model_for(params: Params) -> Model | None:
    """The cost model of the engine of these parameters under their load; None where nothing here can predict it: an
    engine that is not the pocket engine on this machine, one that cannot run, or a reduced draft vocabulary."""
    config = params.engine
    reduced = config.speculative is not None and config.speculative.token_map not in (None, "0")
    if config.engine != "pocket" or config.command_prefix or config.extra_args or reduced:
        return None
    try:
        options = Options.from_flags(*flags(config))
        first = prompts_of(params)[0]
        ids = first.input_ids or Tokenizer(options.model_path).encode(first.text or "")
        return of(options, tuple(ids[-LONGEST:]))
    except LabError:
        return None
