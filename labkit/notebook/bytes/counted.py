"""What the roofline says at the settings of notebook 01: accounts, capacity, batches, simulated rounds."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import yaml

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived, reported, spec
from labkit.measure import machine as machines
from labkit.notebook.bytes.offers import AS_RELEASED, BATCHES, POSITIONS, WINDOWS
from labkit.roofline.account import Account, per_tensor
from labkit.roofline.architectures import with_top_k
from labkit.roofline.capacity import Capacity, capacity, largest_batch
from labkit.roofline.drafting import Round, simulate
from labkit.roofline.formats import Format
from labkit.roofline.predictions import BatchPoint, RoundBytes, batch_axis, context_crossover, round_bytes
from labkit.roofline.quantization import Quantization, quantization_of
from labkit.roofline.simple import Simple, simple
from labkit.roofline.tensors import Shape

DRAFT_COST = 0.1  # plain steps, of a drafter whose bytes are not known: an assumption


class Counted:
    """values: the settings by name; base: the model's config as it is, of this shape; longest: tokens of context that
    it takes; tpot_ms: a time per token that the reader knows, or None."""

    values: dict
    base: catalog.ModelConfig
    shape: Shape
    longest: int
    tpot_ms: float | None

    @property
    def context(self) -> int:
        return self.values["context"]

    @property
    def window(self) -> int:
        return self.values["window"]

    @property
    def top_k(self) -> int:
        return self.values["top_k"]

    @property
    def batch(self) -> int:
        return self.values["batch"]

    @property
    def own_machine(self) -> catalog.Machine:
        return machines.find(self.values["machine"])

    @property
    def machine(self) -> catalog.Machine:
        """The chosen machine, at the chosen bandwidth where one was set."""
        found, set_to = self.own_machine, self.values["bandwidth"]
        return replace(found, bandwidth=reported(set_to, "GB/s", "given as bandwidth")) if set_to else found

    @property
    def config(self) -> catalog.ModelConfig:
        """The model's config with the chosen top-k."""
        return self.base if self.top_k == self.shape.top_k else with_top_k(self.base, self.top_k)

    @property
    def quant(self) -> Quantization:
        chosen = self.values["experts"]
        return quantization_of(self.base).with_formats(experts=None if chosen == AS_RELEASED else chosen)

    @property
    def head(self) -> str | None:
        return None if self.values["head"] == AS_RELEASED else self.values["head"]

    def account(self, *, context: int | None = None, positions: int = 1, head: str | None = None) -> Account:
        """The per-tensor account at the present settings."""
        return per_tensor(
            self.config,
            context=self.context if context is None else context,
            quant=self.quant,
            head=head or self.head,
            positions=positions,
        )

    def simple(self) -> Simple:
        """The simple account at the present settings."""
        bits = (self.quant.experts if self.shape.experts else self.quant.dense).bits
        return simple(self.config, self.account(context=0).quant.head.bits, weight_bits=bits)

    def simple_step(self) -> Evidence:
        active = spec(self.simple().active_parameters, "param", self.base.source)
        return derived(self.simple().total_bytes, "B", "active parameters * bits + head", (active,))

    def known_time(self) -> Evidence | None:
        """A TPOT for exactly these settings: the reader's own, or a published one, or None."""
        if self.tpot_ms is not None:
            return reported(self.tpot_ms, "ms", "given as tpot_ms")
        for row in published()["times"]:
            found, (low, high) = catalog.result(row["result"]), row["context"]
            if (
                (found.model, found.machine) == (self.base.name, self.values["machine"])
                and self.values["head"] in row["heads"]
                and self.values["experts"] in row["experts"]
                and not self.values["bandwidth"]
                and self.top_k == self.shape.top_k
                and low <= self.context <= high
            ):
                return found.metrics["tpot"]
        return None

    def crossover(self) -> float | None:
        """The context at which KV equals the weights, None where it never does."""
        try:
            return context_crossover(self.config, self.quant, self.head)
        except BadInput:
            return None

    def rounds(self, most: int = WINDOWS) -> list[RoundBytes]:
        """Draft-and-verify rounds of 2, 3, ... `most` positions; empty for a model without a NEXTN layer."""
        if not self.shape.nextn:
            return []
        return [
            round_bytes(self.config, context=self.context, drafts=m - 1, quant=self.quant, head=self.head)
            for m in range(2, most + 1)
        ]

    def largest_batch(self) -> int | None:
        """The largest batch that memory holds, where that is less than the batch axis shows; else None."""
        held = largest_batch(self.config, self.machine, BATCHES, context=self.context, quant=self.quant)
        return None if held is None or held == BATCHES[-1] else held

    def batches(self) -> list[BatchPoint]:
        """Batches as far as the memory holds them, with the compute roof where a peak is known."""
        held, peak = self.largest_batch(), self.peak()
        return batch_axis(
            self.config,
            [b for b in BATCHES if held is None or b <= max(1, held)],
            context=self.context,
            bandwidth=self.machine.bandwidth.si,
            peak_flops=None if peak is None else peak[0],
            quant=self.quant,
            head=self.head,
        )

    def peak(self) -> tuple[float, str] | None:
        """(FLOP/s of dense work, how it is known): a dense peak, else half of a sparse one, an assumption."""
        dense = next((p for p in self.machine.peaks if not p.sparse), None)
        if dense is not None:
            return dense.flops.si, f"{dense.precision} dense"
        sparse = next(iter(self.machine.peaks), None)
        return None if sparse is None else (sparse.flops.si / 2, f"half of the sparse {sparse.precision} peak, assumed")

    def room(self, context: int | None = None) -> Capacity | None:
        """What `batch` sequences must hold at the present settings; None where the machine's memory is not known."""
        context = self.context if context is None else context
        return capacity(self.config, self.machine, context=context, batch=self.batch, quant=self.quant)

    def changes(self) -> list[tuple[str, Account]]:
        """(change, account after it) for single changes of format, head and context, the present settings first."""
        found = [("as it is", self.account())]
        if self.account().quant.head.bits > 8:
            found.append(("FP8 head", self.account(head="fp8")))
        role = "experts" if self.shape.experts else "dense"
        for name in ("bf16", "fp8-block128", "nvfp4"):
            form = Format.parse(name)
            if form.bits != getattr(self.quant, role).bits:
                quant = self.quant.with_formats(**{role: form})
                account = per_tensor(self.config, context=self.context, quant=quant, head=self.head)
                what = "routed experts" if self.shape.experts else "projections"
                found.append((f"{what} in {name}", account))
        if self.quant.kv.bits > 8:
            quant = self.quant.with_formats(kv="fp8-tensor")
            found.append(("FP8 KV cache", per_tensor(self.config, context=self.context, quant=quant, head=self.head)))
        found.append(("an eighth of the context", self.account(context=self.context // 8)))
        if 2 * self.context <= self.longest:
            found.append(("twice the context", self.account(context=2 * self.context)))
        return found

    def costs_by_bytes(self) -> tuple[float, float]:
        """(of a further position to verify, of a draft pass) in plain steps, by bytes at the present settings."""
        plain = self.account().total_bytes
        verify = (self.account(positions=4).total_bytes - plain) / 3 / plain
        rounds = self.rounds(most=2)
        return verify, rounds[0].draft.total_bytes / plain if rounds else DRAFT_COST

    def drafting(self) -> list[Round]:
        """Simulated rounds of 1, 2, ... drafts at the chosen acceptances and costs."""
        shares = [self.values[f"accept_{i}"] for i in range(1, POSITIONS + 1)]
        return simulate(shares, verify=self.values["verify_cost"], draft=self.values["draft_cost"])


@cache
def published() -> dict:
    """Which published results belong to which settings: published.yaml."""
    return yaml.safe_load((Path(__file__).parent / "published.yaml").read_text(encoding="utf-8"))
