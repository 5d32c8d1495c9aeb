"""What the reader of notebook 01 has chosen, and the accounts that follow from it."""

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived, reported, spec
from labkit.fields import check, real
from labkit.measure import machine as machines
from labkit.notebook.settings import Setting, checked
from labkit.roofline.account import Account, per_tensor
from labkit.roofline.architectures import shape_of, with_top_k
from labkit.roofline.capacity import Capacity, capacity, largest_batch
from labkit.roofline.formats import Format
from labkit.roofline.predictions import BatchPoint, RoundBytes, batch_axis, context_crossover, round_bytes
from labkit.roofline.quantization import Recipe, recipe_of
from labkit.roofline.simple import Simple, simple

AS_RELEASED = "as released"
FORMATS = (AS_RELEASED, "bf16", "fp8-row", "mxfp4", "int4-g32", "int4-g128")
HEADS = (AS_RELEASED, "bf16", "fp8", "fp32")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WINDOWS = 16
LONGEST = 131072  # where a config names no longest context


class Choice:
    """Settings with their values, and what the roofline says at them. BadInput for values that do not fit."""

    def __init__(
        self,
        *,
        model: str,
        machine: str,
        context: int,
        experts: str,
        head: str,
        top_k: int,
        window: int,
        tpot_ms: float | None,
    ):
        self.base = catalog.load_config(model)
        self.shape = shape_of(self.base)
        self.tpot_ms = check(real(1e-6, 1e6) | None, "tpot_ms", tpot_ms)
        self.longest = self.base.fields.get("max_position_embeddings") or LONGEST
        self.settings = (
            Setting(
                "machine",
                "machine",
                "choice",
                "The machine whose memory bandwidth is used.",
                choices=(*catalog.catalog().machines, "this"),
            ),
            Setting(
                "context",
                "context",
                "int",
                "Tokens whose KV is read per step.",
                0,
                self.longest,
                max(1, self.longest // 256),
            ),
            Setting("experts", "expert format", "choice", "Number format of the routed experts.", choices=FORMATS),
            Setting("head", "head format", "choice", "Number format of the LM head.", choices=HEADS),
            Setting(
                "top_k",
                "top-k",
                "int",
                "Experts per token and layer.",
                min(1, self.shape.experts),
                max(1, min(self.shape.experts, 4 * self.shape.top_k)),
            ),
            Setting("window", "window", "int", "Positions computed together in one step.", 1, WINDOWS),
        )
        # 0 stands for the model's own top-k: the parameters cell need not know the model.
        self.values = checked(
            self.settings,
            {
                "machine": machine,
                "context": context,
                "experts": experts,
                "head": head,
                "top_k": self.shape.top_k if top_k == 0 else top_k,
                "window": window,
            },
        )

    def setting(self, name: str) -> Setting:
        return next(s for s in self.settings if s.name == name)

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
    def machine(self) -> catalog.Machine:
        return machines.find(self.values["machine"])

    @property
    def config(self) -> catalog.ModelConfig:
        """The model's config with the chosen top-k."""
        return self.base if self.top_k == self.shape.top_k else with_top_k(self.base, self.top_k)

    @property
    def recipe(self) -> Recipe:
        chosen = self.values["experts"]
        return recipe_of(self.base).with_formats(experts=None if chosen == AS_RELEASED else chosen)

    @property
    def head(self) -> str | None:
        return None if self.values["head"] == AS_RELEASED else self.values["head"]

    def account(self, *, context: int | None = None, tokens: int = 1, head: str | None = None) -> Account:
        """The per-tensor account at the present settings."""
        return per_tensor(
            self.config,
            context=self.context if context is None else context,
            recipe=self.recipe,
            head=head or self.head,
            tokens=tokens,
        )

    def simple(self) -> Simple:
        """The simple account at the present settings."""
        bits = (self.recipe.experts if self.shape.experts else self.recipe.dense).bits
        return simple(self.config, self.account(context=0).recipe.head.bits, weight_bits=bits)

    def simple_step(self) -> Evidence:
        active = spec(self.simple().active_parameters, "param", self.base.source)
        return derived(self.simple().total_bytes, "B", "active parameters * bits + head", (active,))

    def known_time(self) -> Evidence | None:
        """A TPOT for exactly these settings: the reader's own, or a published one, or None."""
        if self.tpot_ms is not None:
            return reported(self.tpot_ms, "ms", "given as tpot_ms")
        rung = {"bf16": "baseline", AS_RELEASED: "baseline", "fp8": "fp8-head"}.get(self.values["head"])
        as_published = (
            self.base.name == "ling-3.0-flash"
            and self.values["machine"] == "dgx-spark"
            and rung is not None
            and self.values["experts"] in (AS_RELEASED, "mxfp4")
            and self.top_k == self.shape.top_k
            and 30_000 <= self.context <= 36_000
        )  # the published load: 32K in, 2K out
        return catalog.result(f"synthetic-{rung}").metrics["tpot"] if as_published else None

    def crossover(self) -> float | None:
        """The context at which KV equals the weights, None where it never does."""
        try:
            return context_crossover(self.config, self.recipe, self.head)
        except BadInput:
            return None

    def rounds(self) -> list[RoundBytes]:
        """Draft-and-verify rounds of 2, 3, ... positions; empty for a model without a NEXTN layer."""
        if not self.shape.nextn:
            return []
        return [
            round_bytes(self.config, context=self.context, drafts=m - 1, recipe=self.recipe, head=self.head)
            for m in range(2, WINDOWS + 1)
        ]

    def batches(self) -> list[BatchPoint]:
        """Batches as far as the memory holds them, with the compute roof where a peak is known."""
        held = largest_batch(self.config, self.machine, BATCHES, context=self.context, recipe=self.recipe)
        peak = self.peak()
        return batch_axis(
            self.config,
            [b for b in BATCHES if held is None or b <= max(1, held)],
            context=self.context,
            bandwidth=self.machine.bandwidth.si,
            peak_flops=None if peak is None else peak[0],
            recipe=self.recipe,
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
        """What must be held at the present settings; None where the machine's memory is not known."""
        context = self.context if context is None else context
        return capacity(self.config, self.machine, context=context, recipe=self.recipe)

    def changes(self) -> list[tuple[str, Account]]:
        """(change, account after it) for single changes of format, head and context, the present settings first."""
        found = [("as it is", self.account())]
        if self.account().recipe.head.bits > 8:
            found.append(("FP8 head", self.account(head="fp8")))
        role = "experts" if self.shape.experts else "dense"
        for name in ("bf16", "fp8-block128", "nvfp4"):
            form = Format.parse(name)
            if form.bits != getattr(self.recipe, role).bits:
                recipe = self.recipe.with_formats(**{role: form})
                account = per_tensor(self.config, context=self.context, recipe=recipe, head=self.head)
                what = "routed experts" if self.shape.experts else "projections"
                found.append((f"{what} in {name}", account))
        if self.recipe.kv.bits > 8:
            recipe = self.recipe.with_formats(kv="fp8-tensor")
            found.append(("FP8 KV cache", per_tensor(self.config, context=self.context, recipe=recipe, head=self.head)))
        found.append(("an eighth of the context", self.account(context=self.context // 8)))
        if 2 * self.context <= self.longest:
            found.append(("twice the context", self.account(context=2 * self.context)))
        return found
