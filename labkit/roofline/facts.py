"""Every published derived number, recomputed from the catalog's constants and held beside what was published."""

from collections.abc import Iterable
from dataclasses import dataclass

from labkit.evidence import Evidence
from labkit.roofline.facts_account import account_facts
from labkit.roofline.facts_published import published_facts


@dataclass(frozen=True)
class Fact:
    """One number twice. `published` is the text as printed; `within` is how far the computed value may lie from it:
    half a unit of its last printed digit, unless the published figure itself came from rounded inputs."""

    name: str
    published: str
    computed: Evidence
    unit: str
    source: str
    within: float
    assumptions: str = ""
    reason: str = ""

    @property
    def value(self) -> float:
        """The computed value in the published unit."""
        return self.computed.to(self.unit).value

    @property
    def ok(self) -> bool:
        return abs(self.value - float(self.published)) <= self.within * (1 + 1e-9)

    def as_dict(self) -> dict:
        return {"name": self.name, "published": float(self.published), "computed": self.value, "unit": self.unit,
                "tier": self.computed.tier.value, "source": self.source, "ok": self.ok,
                "rests_on": [t.value for t in self.computed.rests_on()], "formula": self.computed.formula,
                "inputs_from": self.computed.source, "assumptions": self.assumptions, "reason": self.reason}


def last_place(text: str) -> float:
    """The value of one unit in the last printed digit: '3.355' -> 0.001, '402' -> 1, '1.24e9' -> 1e7."""
    digits, _, exponent = text.lower().partition("e")
    places = len(digits.partition(".")[2])
    return 10.0 ** ((int(exponent) if exponent else 0) - places)


def facts() -> list[Fact]:
    """All of them, in reading order. A row with a `reason` disagrees with another published figure."""
    rows: Iterable[tuple] = [*published_facts(), *account_facts()]
    return [Fact(name, published, computed, unit, source, within or last_place(published) / 2, assumptions, reason)
            for name, published, computed, unit, source, within, assumptions, reason in rows]
