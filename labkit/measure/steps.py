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
from labkit.measure.parts import PASTS, TOKENS, kernel_name
from labkit.measure.probe import cache_dir, cached, keep
from labkit.measure.prompts import prompts_of
from labkit.params import Params
from labkit.pocket import pieces
from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.loader import PocketConfig
from labkit.pocket.options import Options
from labkit.pocket.tokenizer import Tokenizer
from labkit.roofline.cost import Component, added, experts_s, pass_s

GROUP = 4  # tokens that a kernel takes while it reads a tile; further ones find it in the cache, and memory waits
READ_AHEAD = 2  # tokens above which a product asks for what comes after it (dense_and_fetch in mlp.h)
LONGEST = 512  # tokens of a prompt that are worth reading to count experts
COUNTED = 128  # tokens of a text whose experts are counted


@dataclass(frozen=True)
class Model:
    """What passes of one engine cost. options: with the dense dtype resolved. experts: {tokens of a pass:
    distinct experts of a layer}, counted on a text (Engine.text_experts)."""

    rates: probes.Rates
    config: PocketConfig
    options: Options
    experts: Mapping[int, float]

    def plain(self, context: int) -> list[Component]:
        """A plain step after `context` tokens."""
        return self._pass(1, context, draft=False)

    def verify(self, tokens: int, context: int) -> list[Component]:
        """One pass over `tokens` tokens."""
        return self._pass(tokens, context, draft=False)

    def draft(self, number: int, context: int) -> list[Component]:
        """Draft pass `number` of a chain, from 1. The first also enters the tokens accepted before, all of them."""
        parts = self._pass(1, context, draft=True)
        entered = (self.options.speculative_num_steps or 0) if number == 1 else 0
        if not entered:
            return parts
        hot = self._hot("mix", entered)["nextn_mix"]  # the weights are in the cache for the pass itself
        return [replace(p, fixed_s=p.fixed_s + hot) if p.name == "nextn_mix" else p for p in parts]

    def round(self, context: int, steps: int | None = None, tokens: int | None = None) -> list[Component]:
        """A round: `steps` draft passes and a verify pass over `tokens` tokens; None: the engine's own numbers."""
        steps = self.options.speculative_num_steps if steps is None else steps
        tokens = self.options.speculative_num_draft_tokens if tokens is None else tokens
        drafts = [self.draft(i + 1, context) for i in range(steps)]
        return added([self.verify(tokens, context), *drafts])

    def seconds(self, parts: list[Component]) -> float:
        """Of a pass or a round."""
        return pass_s(parts, self.rates.bandwidth)

    def evidence(self, parts: list[Component], *, bytes_alone: bool = False) -> Evidence:
        """The same, s, derived."""
        r = self.rates
        how = f"probe of this machine, kernels {r.variant}, {r.threads} thread(s)"
        how += f", {r.disturbed}" if r.disturbed else ""
        rate = measured(r.bandwidth, "B/s", f"{how}: reading the engine's weights alone")
        read = derived(sum(p.bytes_read for p in parts), "B", "bytes of every part", (rate,))
        took = pass_s(parts, r.bandwidth, bytes_alone=bytes_alone)
        if bytes_alone:
            return derived(took, "s", "bytes / bandwidth", (read, rate))
        work = measured(sum(p.kernel_s for p in parts), "s", f"{how}: products on cached operands")
        fixed = measured(sum(p.fixed_s for p in parts), "s", f"{how}: pieces of a pass alone, warm and cold")
        formula = "by part: max(bytes / bandwidth, products) + fixed"
        return derived(took, "s", formula, (read, rate, work, fixed))

    def _hot(self, piece: str, tokens: int) -> dict[str, float]:
        by = self.rates.hot[piece]
        if tokens in by:
            return by[tokens]
        return {p: self._further({m: parts[p] for m, parts in by.items()}, tokens) for p in by[max(by)]}

    def _kernel(self, matrix: pieces.Matrix, tokens: int) -> float:
        return self._further(self.rates.kernels[kernel_name(matrix)], tokens)

    @staticmethod
    def _further(by: Mapping[int, float], tokens: int) -> float:
        """Seconds by tokens, probed up to some: every kernel goes on as it does from four tokens to the last."""
        last = max(by)
        return by[tokens] if tokens in by else by[last] + (by[last] - by[4]) / (last - 4) * (tokens - last)

    def _pass(self, tokens: int, context: int, *, draft: bool) -> list[Component]:
        out: dict[str, Component] = {}
        matrices = pieces.matrices(self.config, self.options)
        weights = self.rates.bytes_["draft" if draft else "step"]
        for piece, count in pieces.layers(self.config, draft).items():
            for part in self._hot(piece, tokens) if count else ():
                mine = self._part(piece, part, matrices[piece].get(part, []), tokens, context, count, draft)
                out[part] = added([[out[part]], [mine]])[0] if part in out else mine
        layers = pieces.layers(self.config, draft)["kda"]
        for name, part in out.items():  # those of one kind of layer are known here, the slots' exact bytes there
            if name not in ("experts", "mla_attention"):
                out[name] = replace(
                    part, bytes_read=weights[name] + (layers * self._state if name == "kda_state" else 0)
                )
        if tokens > READ_AHEAD and not draft:
            self._read_ahead(out)
        return [out[name] for name in weights if name in out]

    def _read_ahead(self, out: dict[str, Component]) -> None:
        """With several tokens, KDA's projections wait for the layer's state and every layer's for its router, which
        they ask for meanwhile (dense_and_fetch in mlp.h): the sum stays, its place is another."""
        layers = pieces.layers(self.config, False)
        router, kda = out["router"], layers["kda"] / (layers["kda"] + layers["mla"])
        for name, share in (("kda_projections", kda), ("mla_projections", 1 - kda)):
            more = share * router.bytes_read
            out[name] = replace(out[name], bytes_read=out[name].bytes_read + more)
        out["router"] = replace(router, bytes_read=0.0)
        for name in ("kda_input", "kda_state"):
            to, mine = out["kda_projections"], out[name]
            out["kda_projections"] = replace(to, bytes_read=to.bytes_read + mine.bytes_read)
            out[name] = replace(mine, bytes_read=0.0)

    @property
    def _state(self) -> int:
        """Bytes of one KDA layer's state, FP32."""
        return self.config.num_attention_heads * self.config.head_dim**2 * 4

    def _part(self, piece: str, part: str, matrices, tokens: int, context: int, count: int, draft: bool) -> Component:
        """One part of all `count` runs of a piece."""
        c, hot = self.config, self._hot(piece, tokens)[part]
        start = self._cold(piece, part, tokens) - self._alone(piece, part, matrices, tokens, draft)
        if part == "experts":
            up, down = matrices
            n, pairs = self.experts[tokens], tokens * c.num_experts_per_tok
            one, four = (self._kernel(up, m) + self._kernel(down, m) for m in (1, 4))
            own = hot - pairs / tokens * self._further(self.rates.together, tokens)
            kernel, read = experts_s(one, four, n, pairs), n * self.rates.bytes_["one"]["expert"]
            fixed = own + n * self._gathered(pairs / n) - max(read / self.rates.bandwidth, kernel)
            work = 2 * pairs * 16 * sum(m.tiles * m.k for m in matrices)
            return Component(part, count * read, count * kernel, count * fixed, count * work)
        if part in ("head", "sampling"):  # a piece runs 512 rows and chooses among all
            share = c.vocab_size / pieces.HEAD_PIECE_ROWS if part == "head" else 1
            kernel, later = self._products(matrices, tokens)
            work = 2 * tokens * 16 * sum(m.tiles * m.k for m in matrices)
            return Component(part, 0, share * kernel, share * later + hot - kernel - later + start, work)
        kernel, _ = self._products(matrices, tokens)
        fixed, read = hot - kernel + start, 0.0
        if part == "mla_attention":  # its arithmetic on each position, while the position's bytes come
            read = (context + tokens) * self.rates.bytes_["one"]["position"]
            each = self._position(tokens)
            kernel, fixed = each * context, fixed - each * PASTS[0]
        work = 2 * tokens * 16 * sum(m.count * m.tiles * m.k for m in matrices)
        return Component(part, count * read, count * kernel, count * fixed, count * work)

    def _products(self, matrices, tokens: int) -> tuple[float, float]:
        """Seconds of the products of a part: (while its bytes come, afterwards)."""
        first = sum(m.count * self._kernel(m, min(tokens, GROUP)) for m in matrices)
        return first, sum(m.count * self._kernel(m, tokens) for m in matrices) - first

    def _gathered(self, tokens: float) -> float:
        """One expert's products with so many tokens on average, read from memory among others."""
        by = self.rates.gathered
        if tokens > GROUP:
            return by[GROUP] + (by[GROUP] - by[GROUP - 1]) * (tokens - GROUP)
        return float(np.interp(tokens, list(by), list(by.values())))

    def _position(self, tokens: int) -> float:
        """Attention's arithmetic on one more position of a layer."""
        return max(self._further(self.rates.position, tokens), 0.0)

    def _cold(self, piece: str, part: str, tokens: int) -> float:
        """One run of a piece's part with nothing in a near cache."""
        by = {m: parts.get(part, 0.0) for m, parts in self.rates.cold[piece].items()}
        if tokens > max(by):
            return self._further(by, tokens)
        return float(np.interp(tokens, list(by), list(by.values())))

    def _alone(self, piece: str, part: str, matrices, tokens: int, draft: bool) -> float:
        """What one run of a piece takes under both roofs alone, to be held against the cold probe."""
        hot, ahead = self._hot(piece, tokens)[part], tokens > READ_AHEAD and not draft
        kernel, _ = self._products(matrices, tokens)
        kernel = self._position(tokens) * PASTS[0] if part == "mla_attention" else kernel
        if part == "head":
            read = self.rates.bytes_["step"]["head"] * pieces.HEAD_PIECE_ROWS / self.config.vocab_size
        elif part == "experts":
            read = self.config.num_experts_per_tok * self.rates.bytes_["one"]["expert"]
        elif part == "mla_attention":
            read = PASTS[0] * self.rates.bytes_["one"]["position"]
        elif matrices:
            read = sum(m.count * m.bytes for m in matrices)
            if ahead and piece in ("kda", "mla"):
                read += self._own("moe", "router")
                read += self._own(piece, "kda_input") + self._own(piece, "kda_state") if piece == "kda" else 0
        else:
            read = 0.0 if ahead and piece == "kda" else self._own(piece, part)
        return max(read / self.rates.bandwidth, kernel) + hot - kernel

    def _own(self, piece: str, part: str) -> float:
        """Bytes of a part without matrices, in one run."""
        read = self.rates.bytes_["step"].get(part, 0.0) / max(pieces.layers(self.config, False)[piece], 1)
        return read + (self._state if part == "kda_state" else 0)


def counted(engine: Engine, prompt: Sequence[int], tokens: int = COUNTED) -> dict[int, float]:
    """Distinct experts of a layer by tokens of a pass, on a prompt and what the model greedily says to it. Counts only:
    nothing is timed."""
    request = engine.start(prompt, Sampling(temperature=0, max_new_tokens=tokens, ignore_eos=True))
    request.join(120)
    text = [*prompt[-tokens:], *request.poll()]
    experts = {m: engine.text_experts(text, m) for m in range(2, TOKENS[-1] + 1)}
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
