"""What the reader of notebook 01 has chosen: typed settings whose ranges follow model and machine."""

import json

from labkit import catalog
from labkit.errors import BadInput
from labkit.fields import check, list_of, real
from labkit.notebook.bytes import offers
from labkit.notebook.bytes.counted import Counted
from labkit.notebook.bytes.offers import PASTED, POSITIONS
from labkit.notebook.settings import Setting, checked
from labkit.roofline.architectures import shape_of

ACCEPTANCE = (0.85, 0.80, 0.75, 0.70, 0.65)  # where the simulator's sliders start: an example, nobody's measurement


class Choice(Counted):
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
        config: str | None = None,
        bandwidth: float | None = None,
        batch: int = 1,
        acceptance: list | None = None,
        verify_cost: float | None = None,
        draft_cost: float | None = None,
    ):
        self.tpot_ms = check(real(1e-6, 1e6) | None, "tpot_ms", tpot_ms)
        self.pasted = None if config is None else parsed(config)
        self.given = model  # offered beside the catalog's models: it may be a path
        self._use(PASTED if self.pasted else model)
        shares = check(list_of(real(0, 1)), "acceptance", list(acceptance or ACCEPTANCE))
        if len(shares) > POSITIONS:
            raise BadInput("acceptance", list(shares), f"at most {POSITIONS} numbers, one for each draft position")
        values = {
            "model": PASTED if self.pasted else model,
            "machine": machine,
            "bandwidth": 0.0 if bandwidth is None else bandwidth,
            "context": context,
            "batch": batch,
            "experts": experts,
            "head": head,
            "top_k": top_k or self.shape.top_k,  # 0 for the model's own: the parameters cell need not know the model
            "window": window,
            **{f"accept_{i}": shares[i - 1] if i <= len(shares) else 0.0 for i in range(1, POSITIONS + 1)},
            "verify_cost": 0.0 if verify_cost is None else verify_cost,
            "draft_cost": 0.0 if draft_cost is None else draft_cost,
        }
        # Costs that nobody gave follow the bytes of the chosen model.
        self.typed = {n for n, v in (("verify_cost", verify_cost), ("draft_cost", draft_cost)) if v is not None}
        self.values = values
        self.values = checked(self.settings, values)
        self._follow()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What can be set, in the ranges of the present model and machine."""
        own = None if self.values["machine"] not in catalog.catalog().machines else self.own_machine.bandwidth
        return offers.settings(
            self.shape, self.longest, own, self.given, pasted=self.pasted is not None, typed=self.values["bandwidth"]
        )

    def choose(self, name: str, value: object) -> None:
        """Change one setting; others are brought into the new ranges. Raises BadInput and leaves all as it was."""
        before = self.state()
        try:
            value = self.setting(name).check(value)
            if name == "model":
                self._use(value)
                self.values |= {"top_k": self.shape.top_k, "context": min(self.context, self.longest)}
            if name == "machine":
                self.values["bandwidth"] = 0.0
            self.values[name] = value
            self.typed |= {name} & {"verify_cost", "draft_cost"}
            self._follow()
        except BadInput:
            self.restore(before)
            raise

    def paste(self, text: str) -> None:
        """Take a config.json as text for the model. Raises BadInput and leaves all as it was."""
        before = self.state()
        try:
            self.pasted = parsed(text)
            self.choose("model", PASTED)
        except BadInput:
            self.restore(before)
            raise

    def state(self) -> tuple:
        """All that `restore` needs to undo changes."""
        return dict(self.values), set(self.typed), self.pasted, self.base, self.shape, self.longest

    def restore(self, state: tuple) -> None:
        values, typed, self.pasted, self.base, self.shape, self.longest = state
        self.values, self.typed = dict(values), set(typed)

    def _use(self, model: str) -> None:
        self.base = self.pasted if model == PASTED and self.pasted else catalog.load_config(model)
        self.shape = shape_of(self.base)
        self.longest = self.base.fields.get("max_position_embeddings") or offers.LONGEST

    def _follow(self) -> None:
        """Costs of drafting that the reader has not set are those of the bytes."""
        by_bytes = dict(zip(("verify_cost", "draft_cost"), self.costs_by_bytes(), strict=True))
        self.values |= {n: min(1.0, round(v, 3)) for n, v in by_bytes.items() if n not in self.typed}

    def setting(self, name: str) -> Setting:
        return next(s for s in self.settings if s.name == name)


def parsed(text: str) -> catalog.ModelConfig:
    """A config.json given as text. Raises BadInput for what is no JSON object or names no architecture."""
    shown = " ".join(text.split())[:60]
    try:
        fields = json.loads(text)
    except ValueError as e:
        raise BadInput("config", shown, f"the text of a config.json ({e})") from None
    if not isinstance(fields, dict):
        raise BadInput("config", shown, "the text of a config.json: one object in braces")
    found = catalog.ModelConfig.made(fields, PASTED, "config.json, pasted")
    shape_of(found)
    return found
